"""The wording that error messages share: what a value is called, and which name was probably meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, cast

SHOWN_CHARS_MAX = 60  # a longer value is cut: the message must stay readable
SUGGESTED_FROM_MAX = 2000  # comparing a mistyped word with more names than this costs more than it helps


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean "search"?`, or nothing when no candidate is near."""
    names = sorted(set(candidates))[:SUGGESTED_FROM_MAX]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.65)
    if not near:
        # "write" for "files.write": people remember the last part of a dotted name.
        near = [name for name in names if word and name.rsplit(".", 1)[-1] == word][:1]
    return f"; did you mean {quoted(near[0])}?" if near else ""


def quoted(text: str) -> str:
    shown = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return json.dumps(shown, ensure_ascii=False)


def describe_value(value: Any) -> str:
    """What a person calls this value: `the string "x"`, `the number 3`, `a list`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= 10**SHOWN_CHARS_MAX:
            return "a very large number"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {quoted(value)}"
        case list() | tuple():
            return "a list" if cast("list[Any]", value) else "an empty list"
        case dict():
            return "a map" if cast("dict[Any, Any]", value) else "an empty map"
        case _:
            return f"a value of the type {type(value).__name__}"
