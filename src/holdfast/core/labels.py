"""What a label and a title may be: one rule, and one wording, for plans, for `Engine.start`, imports and commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.core.error_text import describe_value, quoted
from holdfast.core.errors import InputInvalid

LABELS_MAX = 100  # of one execution: they stand in every list
TITLE_CHARS_MAX = 10_000  # it stands in every list; far more than anybody reads
NAME_CHARS_MAX = 63
VALUE_CHARS_MAX = 256
_NAME = re.compile(rf"[A-Za-z0-9._/-]{{1,{NAME_CHARS_MAX}}}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def name_problem(name: Any) -> str:
    """What is wrong with a label's name, or nothing."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    said = quoted(name) if isinstance(name, str) else describe_value(name)
    return f"a label's name is 1 to {NAME_CHARS_MAX} letters, digits and . _ - /, not {said}"


def value_problem(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return f"the label {name} must be a text, not {describe_value(value)}"
    if len(value) > VALUE_CHARS_MAX:
        return f"the label {name} has {len(value):,} characters, {VALUE_CHARS_MAX} are allowed"
    if _CONTROL.search(value):
        return f"the label {name} holds a control character: {quoted(value)}"
    return ""


def check_labels(labels: Mapping[Any, Any]) -> dict[str, str]:
    """The labels, all of them in order; every mistake at once."""
    problems = [name_problem(name) or value_problem(name, value) for name, value in labels.items()]
    if len(labels) > LABELS_MAX:
        problems.append(f"there are {len(labels):,} labels, {LABELS_MAX} are allowed")
    if any(problems):
        raise InputInvalid("\n".join(["the labels do not fit:", *(f"  {problem}" for problem in problems if problem)]))
    return dict(labels)


def check_title(title: str) -> str:
    if len(title) > TITLE_CHARS_MAX:
        raise InputInvalid(f"the title has {len(title):,} characters, {TITLE_CHARS_MAX:,} are allowed")
    return title
