"""The body of an answer: bounded while it is read and while it is unpacked, whatever it claims to be.

A few bytes can be unpacked to gigabytes, and packing can be packed again. So nothing is unpacked by whoever reads: each
piece here is unpacked no further than there is room, and what is packed in another way, or twice, is refused.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ToolError
from holdfast.tools.call import Call

if TYPE_CHECKING:
    import httpx

_GZIP = 16 + zlib.MAX_WBITS
# Ways to write host names and Python's own literals: they fail where others replace, or take for ever.
_NOT_FOR_PAGES = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})


class TooLarge(ToolError):
    """The answer is larger than this call takes. The request itself was answered, so its effect is there."""

    category = "logic"


async def read_body(response: httpx.Response, url: str, max_bytes: int, audience: Call | None = None) -> bytes:
    """The body, as long as it is not larger than it may be; shown to an audience as it comes."""
    announced = response.headers.get("content-length", "")
    if is_number(announced) and int(announced) > max_bytes:
        raise _too_large(url, max_bytes)
    unpacker = _Unpacker(response.headers.get("content-encoding", ""), url)
    pieces: list[bytes] = []
    received = size = 0
    async for raw in response.aiter_raw():
        received += len(raw)
        for piece in unpacker.pieces(raw, max_bytes - size + 1):
            size += len(piece)
            pieces.append(piece)
            if size <= max_bytes and audience is not None:
                audience.say(text_of(response, piece), streaming=True)
        if max(size, received) > max_bytes:
            raise _too_large(url, max_bytes)
    unpacker.finish(received)
    return b"".join(pieces)


def _too_large(url: str, max_bytes: int) -> ToolError:
    return TooLarge(f"{url} sends more than {max_bytes:,} bytes; raise max_bytes or ask for less")


def text_of(response: httpx.Response, body: bytes) -> str:
    """In the encoding it names; where there is none of that name, or none for text of any kind, in UTF-8."""
    return body.decode(_encoding_of(response), errors="replace")


def _encoding_of(response: httpx.Response) -> str:
    try:
        named = codecs.lookup(response.charset_encoding or "utf-8").name
        b"\xff\0a-\xff".decode(named, errors="replace")
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if named in _NOT_FOR_PAGES else named


def is_number(text: str) -> bool:
    """Whether it is written in the ten digits: there are others that count as digits, and are no number."""
    return text.isascii() and text.isdigit()


class _Unpacker:
    def __init__(self, packed_as: str, url: str) -> None:
        self._url = url
        kinds = [kind for part in packed_as.lower().split(",") if (kind := part.strip()) not in ("", "identity")]
        if len(kinds) > 1 or kinds not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise ToolError(f"{url} sent a body that is packed as {packed_as[:60]!r}, which nobody asked for")
        self._kind = kinds[0] if kinds else ""
        self._inner = self._fresh()
        self._begun = False

    def pieces(self, raw: bytes, room: int) -> Iterator[bytes]:
        """At most `room` bytes in all: whoever gets that many knows that it is too much."""
        if not self._kind:
            yield raw
            return
        try:
            while room > 0 and (raw := self._of_the_next(raw)):
                piece = self._unpacked(raw, room)
                room -= len(piece)
                yield piece
                raw = self._inner.unused_data
        except zlib.error as error:
            raise ToolError(f"{self._url} sent a body that cannot be decompressed: {error}") from None

    def _of_the_next(self, raw: bytes) -> bytes:
        """A body may be several packed ones in a row, with zeros between them: where one ended, another begins."""
        if self._inner.eof and (raw := raw.lstrip(b"\0")):
            self._inner = self._fresh()
        return raw

    def _fresh(self) -> Any:
        return zlib.decompressobj(zlib.MAX_WBITS if self._kind == "deflate" else _GZIP)

    def _unpacked(self, raw: bytes, room: int) -> bytes:
        try:
            piece = self._inner.decompress(raw, room)
        except zlib.error:
            if self._kind != "deflate" or self._begun:
                raise
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)  # half the world leaves the wrapping out
            piece = self._inner.decompress(raw, room)
        self._begun = True
        return piece

    def finish(self, received: int) -> None:
        if self._kind and received and not self._inner.eof:
            raise ToolError(f"{self._url} sent a body that cannot be decompressed: it breaks off")
