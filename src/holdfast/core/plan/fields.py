"""Reading a document field by field: every mistake is noted with its place, and reading goes on.

Owns what any part of a plan needs: plain JSON whatever the parser made of the file, and maps whose keys and types are
known. Knows nothing about steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import date, datetime
from typing import Any, TypeVar, cast

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import InputInvalid, Problem
from holdfast.core.expressions import place_of

DEPTH_MAX = 100
VALUES_MAX = 1_000_000  # YAML references can make a small file expand without end
INTEGER_MAX = 2**63 - 1
PROBLEMS_MAX = 200  # nobody reads on; the last line says that there are more

Choice = TypeVar("Choice", bound=str)


class TooMany(Exception):
    """The document is so broken, or so large, that reading on would not help."""


class Problems(list[Problem]):
    def note(self, place: str, message: str) -> None:
        self.append(Problem(place, message))

    def append(self, item: Problem) -> None:
        if len(self) >= PROBLEMS_MAX:
            super().append(Problem("", "there are more mistakes; correct these first"))
            raise TooMany
        super().append(item)

    def in_reading_order(self) -> list[Problem]:
        """As the document goes from top to bottom, and not as its parts happened to be read."""
        roots: dict[str, int] = {}

        def key(problem: Problem) -> tuple[int, list[int]]:
            root = re.split(r"[.\[]", problem.place, maxsplit=1)[0]
            return roots.setdefault(root, len(roots)), [int(n) for n in re.findall(r"\[(\d+)\]", problem.place)]

        return sorted(self, key=key)


def plain_json(value: Any, problems: Problems) -> Any:
    """The same document as plain JSON values. What JSON cannot hold is a mistake, and becomes null."""
    return _Plain(problems).value(value, "", 0)


class _Plain:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._seen = 0

    def value(self, value: Any, place: str, depth: int) -> Any:
        self._seen += 1
        if self._seen > VALUES_MAX:
            self._problems.note("", f"the plan has more than {VALUES_MAX} values; keep large data in files")
            raise TooMany
        if depth > DEPTH_MAX:
            self._problems.note(place, f"nested more than {DEPTH_MAX} levels deep")
            return None
        match value:
            case None | bool():
                return value
            case str() | int() | float():
                return self._scalar(value, place)
            case list() | tuple():
                items = cast("list[Any]", value)
                return [self.value(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(items)]
            case dict():
                return self._map(cast("dict[Any, Any]", value), place, depth)
            case datetime() | date():
                return value.isoformat()  # YAML reads an unquoted time as one
            case _:
                self._problems.note(place, f"expected a value that JSON can hold, got {describe_value(value)}")
                return None

    def _map(self, value: dict[Any, Any], place: str, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._problems.note(place, f"expected a name in quotes, got {describe_value(key)} as a name")
                continue
            name: str = self._scalar(key, place) or ""
            plain[name] = self.value(item, place_of(place, name), depth + 1)
        return plain

    def _scalar(self, value: str | float, place: str) -> Any:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                self._problems.note(place, "the text holds half of a surrogate pair, which cannot be stored")
                return None
        elif isinstance(value, float):
            if not math.isfinite(value):
                self._problems.note(place, f"expected a number that JSON can hold, got {value}")
                return None
        elif abs(value) > INTEGER_MAX:
            self._problems.note(place, "expected a number of at most 64 bits; put larger ones in quotes")
            return None
        return value


class Fields:
    """One map of known keys at a known place."""

    def __init__(self, values: dict[str, Any], place: str, problems: Problems, known: Collection[str]) -> None:
        self.values = values
        self.place = place
        self.problems = problems
        for key in values:
            if key not in known:
                hint = did_you_mean(key, known) or f"; known are: {', '.join(known)}"
                self.note(key, f"unknown key{hint}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def at(self, key: str) -> str:
        return place_of(self.place, key)

    def note(self, key: str, message: str) -> None:
        self.problems.note(self.at(key), message)

    def expected(self, key: str, what: str) -> None:
        self.note(key, f"expected {what}, got {describe_value(self.values[key])}")

    def text(self, key: str, what: str = "a text") -> str:
        value = self.values.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if key in self.values:
            self.expected(key, what)
        return ""

    def truth(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if isinstance(value, bool):
            return value
        self.expected(key, "true or false")
        return default

    def choice(self, key: str, options: tuple[Choice, ...]) -> Choice | None:
        """One of a few words; None when it is left out or wrong."""
        value = self.values.get(key)
        for option in options:
            if option == value:
                return option
        if key in self.values:
            hint = did_you_mean(value, options) if isinstance(value, str) else ""
            self.expected(key, f"one of {', '.join(map(quoted, options))}")
            if hint:
                last = self.problems[-1]
                self.problems[-1] = last._replace(message=last.message + hint)
        return None

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self.values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.expected(key, f"a whole number from {least} to {most}")
        return default

    def duration(self, key: str) -> float | None:
        if key not in self.values:
            return None
        try:
            return parse_duration(self.values[key])
        except InputInvalid as error:
            self.note(key, str(error))
            return None

    def fields(self, key: str, known: Collection[str], what: str) -> Fields | None:
        """The map under a key, with its own known keys."""
        value = self.values.get(key)
        if isinstance(value, dict):
            return Fields(cast("dict[str, Any]", value), self.at(key), self.problems, known)
        if key in self.values:
            self.expected(key, what)
        return None
