"""Masks over the values that must not be seen, in every form in which one is likely to appear.

Pure. What is masked is decided by whoever adds values; references to secrets are holdfast.core.secret_refs.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, cast

import msgspec

from holdfast.core.failure import Failure
from holdfast.core.url_variants import Ways, is_written, longest, patterns_of, shortest, ways_of

MASKS_MAX = 1000  # values that are masked in one process; the oldest of a secret that changes all the time go
FORM_CHARS_MIN = 6  # of a part of a value, or of its base64 inside something longer: less is found everywhere
NUMBER_CHARS_MIN = 8  # of a number that is masked: a shorter one, such as a year, only happens to be the same
LINE_CHARS_MIN = 8  # of a line of a secret of several lines: logs are read line by line
_NOWHERE = "(?!)"
_ALPHABETS = (("+/", "+/"), ("+/", "-_"))


class Masks:
    """Nothing is looked at before the first value is known. A value that was encrypted, hashed, compressed or cut into
    pieces is not recognised.
    """

    def __init__(self) -> None:
        self.active = False
        self.longest = 0  # characters that the longest form of a value has
        self._values: dict[str, str] = {}  # value → name, oldest first
        self._undeclared: set[str] = set()
        self._names: dict[str, str] = {}  # form → name
        self._in_urls: dict[Ways, str] = {}  # how a value may be written there → name
        self._pattern = re.compile(_NOWHERE)
        self._needles: tuple[bytes, ...] = ()
        self._percent_needle = re.compile(_NOWHERE.encode())
        self._starts: frozenset[str] = frozenset()

    def add(self, name: str, value: str, *, declared: bool = True) -> None:
        """One that is declared as a secret gives its name to the value; others are masked, and no more."""
        if value in self._values and not (declared and value in self._undeclared):
            return  # under whichever name: two secrets may be the same
        self._undeclared.discard(value)
        if not declared:
            self._undeclared.add(value)
        self._values[value] = name
        while len(self._values) > MASKS_MAX:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._undeclared.discard(oldest)
        names = {form: owner for known, owner in self._values.items() for form in forms(known)}
        in_urls = {ways: owner for known, owner in self._values.items() if (ways := ways_of(known))}
        sought = [(len(form), re.escape(form)) for form in names]
        sought += [(shortest(ways), pattern) for ways in in_urls for pattern in patterns_of(ways)]
        sought.sort(key=itemgetter(0), reverse=True)  # or the rest of a value that begins like another would be left
        in_json = [pattern for ways in in_urls for pattern in patterns_of(ways, _in_json)]
        # Threads may be masking: each of these is replaced whole, and what is new only ever hides more.
        self._names, self._in_urls = names, in_urls
        self._pattern = re.compile("|".join(pattern for _, pattern in sought))
        self._needles = tuple(_in_json(form).encode() for form in names)
        self._percent_needle = re.compile("|".join(in_json or [_NOWHERE]).encode())
        self._starts = frozenset(form[0] for form in names) | {one[0] for ways in in_urls for one in ways[0]}
        self.longest = max(0, *map(len, names), *map(longest, in_urls))
        self.active = True

    def forget(self) -> None:
        """For tests: a process otherwise never forgets what it must not tell."""
        self.__init__()

    def text(self, text: str) -> str:
        return self._pattern.sub(self._label, text) if self.active else text

    def found_in(self, text: str) -> str:
        """The name of a secret that a text would show; "" if there is none."""
        match = self._pattern.search(text) if self.active else None
        return self._name(match[0]) if match else ""

    def names_in(self, text: str) -> set[str]:
        return {self._name(form) for form in self._pattern.findall(text)} if self.active else set()

    def json(self, encoded: bytes) -> bytes:
        """The same JSON with everything masked, in texts, names and long numbers; decoded only if something is."""
        if not self.active or not self._may_be_in(encoded):
            return encoded
        return msgspec.json.encode(self._value(msgspec.json.decode(encoded)))

    def failure(self, failure: Failure) -> Failure:
        message = self.text(failure.message)
        if self.active and "…" in message:  # it was cut there, and perhaps in the middle of something
            *cut, rest = message.split("…")
            message = "…".join([*(part[: len(part) - self.held_back(part)] for part in cut), rest])
        return failure if message == failure.message else msgspec.structs.replace(failure, message=message)

    def beginning(self, text: str, limit: int) -> str:
        """At most so many characters, masked before they are cut: half of a secret is not recognised any more."""
        if not self.active:
            return text[:limit]
        if len(text) <= limit:
            return self.text(text)[:limit]
        return self.torn(text[: limit + self.longest])[:limit]

    def torn(self, text: str) -> str:
        """A text whose rest was dropped, and which must not end in the beginning of a secret."""
        masked = self.text(text)
        return masked[: len(masked) - self.held_back(masked)]

    def ending(self, text: str, limit: int) -> str:
        return self.text(text)[-limit:]

    def held_back(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret whose rest is still to come."""
        if not self.active:
            return 0
        for start in range(max(0, len(text) - self.longest + 1), len(text)):
            if text[start] in self._starts and self._may_begin(text[start:]):
                return len(text) - start
        return 0

    def _may_be_in(self, encoded: bytes) -> bool:
        if any(needle in encoded for needle in self._needles):
            return True
        return b"%" in encoded and self._percent_needle.search(encoded) is not None

    def _may_begin(self, text: str) -> bool:
        return any(form.startswith(text) for form in self._names) or any(
            is_written(ways, text, in_part=True) for ways in self._in_urls
        )

    def _label(self, match: re.Match[str]) -> str:
        return f"[secret {self._name(match[0])}]"

    def _name(self, form: str) -> str:
        if name := self._names.get(form):
            return name
        return next((name for ways, name in self._in_urls.items() if is_written(ways, form)), "?")

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                pairs = cast("dict[str, Any]", value).items()
                return {self.text(key): self._value(item) for key, item in pairs}
            case list():
                return [self._value(item) for item in cast("list[Any]", value)]
            case int() | float() if not isinstance(value, bool):
                name = self._values.get(str(value), "") if len(str(value)) >= NUMBER_CHARS_MIN else ""
                return f"[secret {name}]" if name else value
            case _:
                return value


def forms(value: str) -> set[str]:
    """A value and how it looks in JSON, HTML, hexadecimal and base64, also as a part of something longer.

    In a URL it may look in too many ways for a list of them (url_variants.py); here is only the one without a `%`.
    """
    raw = value.encode()
    once = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    once |= {text.replace("/", "\\/") for text in once}
    found = {value, repr(value)[1:-1], value.replace(" ", "+")}
    found |= {
        html.escape(value, quote=False).replace("'", single).replace('"', double)
        for single in ("'", "&#x27;", "&#39;", "&apos;")
        for double in ('"', "&quot;", "&#34;")
    }
    found |= once | {json.dumps(text)[1:-1] for text in once} | {raw.hex(), raw.hex().upper()}
    whole = base64.b64encode(raw).decode()
    parts = {whole, whole.rstrip("="), *_inside_base64(raw)}
    found |= {part.translate(str.maketrans(*alphabet)) for part in parts for alphabet in _ALPHABETS}
    lines = value.splitlines()
    if len(lines) > 1:
        found |= {line for line in map(str.strip, lines) if len(line) >= LINE_CHARS_MIN}
    return found


def _in_json(text: str) -> str:
    return msgspec.json.encode(text)[1:-1].decode()


def _inside_base64(raw: bytes) -> Iterable[str]:
    """What is certain of its base64 wherever it begins, as in `Basic base64(user:password)`."""
    for before, unsure in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        cut = len(encoded) - (1 if (before + len(raw)) % 3 else 0)
        if cut - unsure >= FORM_CHARS_MIN:
            yield encoded[unsure:cut]
