"""What a server offers: its tools as it described them, read with care, and kept on disk.

The file is for whoever wants to know the tools without starting the server: `holdfast check`, `tools`, `schema`, and an
engine before its first call. It can be thrown away at any moment; a server of other settings has another file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from holdfast.tools.mcp.schema import SchemaUnusable, harmless
from holdfast.tools.runtime.invisible_text import without_unseen
from holdfast.tools.secrets.redaction import masks

TOOLS_MAX = 1000  # of one server; nobody finds a tool among more
SCHEMA_BYTES_MAX = 256 * 1024
DESCRIPTION_CHARS_MAX = 4000
FRESH_S = 3600.0  # older ones are asked for again when an engine opens; each start of the server renews it, too
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}", re.ASCII)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, its schemas made harmless."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    reads_only: bool = False
    is_idempotent: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """All tools that can be used, and why the others cannot."""

    at: float
    tools: tuple[Described, ...] = ()
    left_out: tuple[str, ...] = ()

    def is_fresh(self) -> bool:
        return 0 <= time.time() - self.at < FRESH_S


def read_offer(listed: Iterable[Any], cut: bool) -> Offer:
    """The server's listing as ours. What cannot be used is left out with a reason; the rest is not its fault."""
    tools: dict[str, Described] = {}
    left_out: list[str] = []
    for one in listed:
        shown = repr(str(one.name)[:80])
        if not _NAME.fullmatch(one.name):
            left_out.append(f"a tool called {shown}: its name has other characters than letters, digits and _ . / -")
        elif one.name in tools:
            left_out.append(f"a second tool called {shown}")
        else:
            try:
                tools[one.name] = _described(one)
            except SchemaUnusable as error:
                left_out.append(f"{one.name}: its schema makes no sense: {error}")
    if cut:
        left_out.append(f"all tools after the first {TOOLS_MAX:,}")
    return Offer(at=time.time(), tools=tuple(tools.values()), left_out=tuple(left_out))


def _described(one: Any) -> Described:
    for schema in (one.input_schema, one.output_schema):
        if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
            raise SchemaUnusable(f"it is larger than {SCHEMA_BYTES_MAX:,} bytes")
    hints = one.annotations
    description = without_unseen(one.description or one.title or (hints.title if hints else "") or "", keep="\n\t")
    return Described(
        name=one.name,
        description=masks.beginning(description, DESCRIPTION_CHARS_MAX),
        input_schema=harmless(one.input_schema),
        output_schema=None if one.output_schema is None else harmless(one.output_schema),
        reads_only=bool(hints and hints.read_only_hint),
        is_idempotent=bool(hints and hints.idempotent_hint),
    )


class Catalogue:
    """One server's file below the data folder. `settings` is what the server is started or reached by."""

    def __init__(self, folder: Path | None, server: str, settings: Any) -> None:
        mark = blake2b(msgspec.json.encode(settings), digest_size=8).hexdigest()
        self._file = None if folder is None else folder / f"{server}-{mark}.json"

    def read(self) -> Offer | None:
        """What was written last; None if there is nothing, or nothing that makes sense any more."""
        try:
            return None if self._file is None else msgspec.json.decode(self._file.read_bytes(), type=Offer)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, offer: Offer) -> None:
        """Best effort: without the file, the server is simply asked again."""
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.parent.chmod(0o700)  # also one that was there before
            (self._file.parent / ".gitignore").write_text("*\n")  # it may be there before the data folder's own
            new = self._file.with_suffix(f".{os.getpid()}.new")
            new.unlink(missing_ok=True)
            with open(new, "xb", opener=_privately) as file:
                file.write(msgspec.json.encode(offer))
            new.replace(self._file)


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
