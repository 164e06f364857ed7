"""Regular expressions of a stranger's schema, by RE2, whose time is linear in the text.

Owns the way from the dialect of JSON Schema (ECMA) to RE2's, and says None wherever the two, or those that servers are
written in, could disagree: a look ahead, a back-reference, `\\w` and a letter that is not ASCII. Who asked leaves such
a text to the server. RE2 comes with CEL, which plans use anyway.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

PATTERN_CHARS_MAX = 1000
WORK_MAX = 100_000_000  # parts of patterns times characters of text, in one check: half a second at the very worst

_CALL_WORK = 100  # characters; what a call costs beside them
_CLASS_WORK = 10  # parts of a program; RE2 reads bytes, of which a character of a class may have four
_ALWAYS_DOUBTFUL = (
    r"\x00\ud800-\udfff\U00010000-\U0010ffff"  # the runtime stops at NUL; others count the last ones twice
)
_DOUBTFUL_TO_DOT = r"\r\u2028\u2029"
_DOUBTFUL_TO_CLASS = r"\x0b\x1c-\x1f\x80-\U0010ffff"  # some take é for \w, others do not
_TOKEN = re.compile(
    r"\\x(?P<x>[0-9a-fA-F]{2})|\\u(?P<u>[0-9a-fA-F]{4})|\\(?P<control>[tnvfr])|\\(?P<class>[dDwWsS])|\\(?P<edge>b)"
    r"|\\(?P<escaped>[^\w\s\\]|[\\_])|(?P<group>\((?:\?:|\?<[A-Za-z_]\w*>)?(?!\?))|(?P<times>\{\d{1,4}(?:,\d{0,4})?\})"
    r"|(?P<set>\[\^?)|(?P<special>[\^$.*+?)|])|(?P<literal>[^\\()\[\]{}])",
    re.ASCII,
)
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class Pattern:
    """One that RE2 reads as everybody else does."""

    def __init__(self, text: str) -> None:
        reader = _Reader(text)
        self.work = reader.work
        self._ends_line = reader.has_end
        self._doubtful = re.compile(f"[{reader.doubtful}]")
        environment = _environment()
        self._activation = environment.Activation
        self._program = environment.compile(f'text.matches(r"{reader.written}")')
        if self._asked("").type().name() == "ERROR":
            raise _Unreadable

    def fits(self, text: str) -> bool | None:
        """Whether it is somewhere in the text; None if that is not for us to say."""
        if self._doubtful.search(text) or (self._ends_line and text.endswith("\n")):
            return None
        outcome = self._asked(text)
        return bool(outcome.value()) if outcome.type().name() == "BOOL" else None

    def _asked(self, text: str) -> Any:
        return self._program.eval(self._activation({"text": text}))


class Matching:
    """The patterns of one check: its bound on work, and what was left to the server."""

    def __init__(self) -> None:
        self._left = WORK_MAX
        self.unchecked: list[str] = []

    def fits(self, pattern: str, text: str) -> bool | None:
        read = read_pattern(pattern)
        fits: bool | None = None
        if read is not None:
            self._left -= read.work * (len(text) + _CALL_WORK)
            fits = read.fits(text) if self._left >= 0 else None
        if fits is None:
            self.unchecked.append(pattern)
        return fits


@lru_cache(maxsize=1024)
def read_pattern(text: str) -> Pattern | None:
    """None if it cannot be read, or not for sure."""
    if len(text) > PATTERN_CHARS_MAX:
        return None
    try:
        return Pattern(text)
    except (_Unreadable, RuntimeError):  # the latter is how the runtime refuses
        return None


class _Unreadable(Exception): ...


class _Reader:
    """Writes a pattern anew for RE2, part by part; every part that is not known to mean the same is refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.doubtful = _ALWAYS_DOUBTFUL
        self.has_end = False
        self._works = [1]  # of the groups around, outermost first
        self._last = 0  # of what stands before; of edges 0
        parts: list[str] = []
        while self._at < len(text):
            parts.append(self._part())
        if len(self._works) != 1:
            raise _Unreadable
        self.written = "".join(parts)
        self.work = self._works[0]

    def _part(self) -> str:
        found = self._token()
        match found.lastgroup:
            case "group":
                self._works.append(0)
                self._last = 0
                return "(?:"
            case "times":
                return self._times(found[0])
            case "set":
                return self._counted(self._set(found[0]), _CLASS_WORK)
            case "special":
                return self._special(found[0])
            case "class" | "edge":
                self.doubtful += _DOUBTFUL_TO_CLASS
                return self._counted(found[0], _CLASS_WORK if found["class"] else 0)
            case _:
                return self._counted(_written(_char(found)), 1)

    def _special(self, sign: str) -> str:
        match sign:
            case ".":
                self.doubtful += _DOUBTFUL_TO_DOT
                return self._counted(sign, _CLASS_WORK)
            case ")":
                inside = self._works.pop()
                if not self._works:
                    raise _Unreadable
                return self._counted(sign, inside)
            case "*" | "+" | "?" if self._last:
                return sign
            case "^" | "$" | "|":
                self.has_end |= sign == "$"
                return self._counted(sign, 0)
            case _:
                raise _Unreadable

    def _times(self, sign: str) -> str:
        if not self._last:
            raise _Unreadable  # some repeat an edge, or nothing, and others do not
        most = max(int(number) for number in re.findall(r"\d+", sign))
        self._works[-1] += self._last * most
        return sign

    def _counted(self, written: str, work: int) -> str:
        self._last = work
        self._works[-1] += work
        return written

    def _set(self, opening: str) -> str:
        parts = [opening]
        while not self._text.startswith("]", self._at):
            first = self._member()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._member()
                if first is None or last is None or first > last:
                    raise _Unreadable
                parts.append(f"{_written(first)}-{_written(last)}")
            else:
                parts.append(_written(first) if first is not None else self._text[self._at - 2 : self._at])
        self._at += 1
        if len(parts) == 1:
            raise _Unreadable  # nothing, and everything, which RE2 writes in another way
        return "".join([*parts, "]"])

    def _member(self) -> int | None:
        """One character of a set; None for a class such as `\\d`."""
        if self._text[self._at : self._at + 2] in ("&&", "--", "~~", "||"):
            raise _Unreadable  # some do sums with sets
        if self._text[self._at : self._at + 1] in tuple("^$.*+?(){}|"):
            self._at += 1
            return ord(self._text[self._at - 1])
        found = self._token()
        if found.lastgroup == "class":
            self.doubtful += _DOUBTFUL_TO_CLASS
            return None
        return 8 if found[0] == r"\b" else _char(found)

    def _token(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise _Unreadable
        self._at = found.end()
        return found


def _char(found: re.Match[str]) -> int:
    match found.lastgroup:
        case "x" | "u":
            code = int(found[found.lastgroup], 16)
        case "control":
            code = _CONTROLS[found["control"]]
        case "escaped" | "literal":
            code = ord(found[found.lastgroup])
        case _:
            raise _Unreadable
    if 0xD800 <= code <= 0xDFFF or code > 0xFFFF:
        raise _Unreadable  # one character to some, two to others
    return code


def _written(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\x{{{code:x}}}"


@lru_cache(maxsize=1)
def _environment() -> Any:
    from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]

    return cel.NewEnv(variables={"text": cel.Type.STRING})
