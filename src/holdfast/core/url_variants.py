"""A value as it may stand in a URL: each character that is no letter or digit either as itself or percent-encoded.

Which ones are encoded depends on the part of the URL, on the standard and on who wrote it: httpx leaves `!` in a query
and encodes `^` in a password, Chromium leaves both in a query, and a value with a `#` in it goes on in another part. So
every mixture counts. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

_PIECE = re.compile(r"[A-Za-z0-9]+|.", re.DOTALL)

Ways = tuple[tuple[str, ...], ...]  # of a value, piece by piece: the ways in which a piece may be written


def ways_of(value: str) -> Ways:
    """Nothing if there is only one: the value itself."""
    ways = tuple(_ways(piece) for piece in _PIECE.findall(value))
    return ways if any(len(way) > 1 for way in ways) else ()


def _ways(piece: str) -> tuple[str, ...]:
    if piece.isascii() and piece.isalnum():
        return (piece,)
    encoded = quote(piece, safe="") if piece not in "-._~" else f"%{ord(piece):02X}"
    return tuple(dict.fromkeys((piece, encoded, encoded.lower(), *("+" if piece == " " else ""))))


def shortest(ways: Ways) -> int:
    return sum(min(map(len, way)) for way in ways)


def longest(ways: Ways) -> int:
    return sum(max(map(len, way)) for way in ways)


def patterns_of(ways: Ways, written: Callable[[str], str] = str) -> list[str]:
    """Regular expressions that find it, one for each of its first pieces: `re` is fast if it knows the first character.

    `written` is how a piece looks where it is looked for.
    """
    rest = "".join(_either([re.escape(written(one)) for one in way]) for way in ways[1:])
    return [re.escape(written(one)) + rest for one in ways[0]]


def _either(ways: list[str]) -> str:
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def is_written(ways: Ways, text: str, *, in_part: bool = False) -> bool:
    """Whether a text is the value; `in_part`, also if it is the beginning of it."""
    reached = {0}
    for way in ways:
        if in_part and any(one.startswith(text[at:]) for at in reached for one in way):
            return True
        reached = {at + len(one) for at in reached for one in way if text.startswith(one, at)}
        if not reached:
            return False
    return len(text) in reached
