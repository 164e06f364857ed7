"""Two plans side by side: the recorded document and the new one.

In a plan the recorded outcome wins, whatever the plan says now, so a replay alone would not notice a changed wait, a
changed condition or an approval that is gone. Owns which of a step's words matter once something of it was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.core.plan.model import Plan, PlanStep

MATTERS = ("when", "for_each", "key", "wait", "approval", "start")
_ITEM = re.compile(r"\[[^\]]*\]")


class ChangedStep(NamedTuple):
    path: str
    recorded: str
    attempted: str


class ParsedPlan(NamedTuple):
    """A plan as it was read, and the document it was read from."""

    plan: Plan
    document: dict[str, Any]

    def steps(self) -> dict[str, dict[str, Any]]:
        """What is written about each step, by its path without items."""
        lists = {"steps": self.plan.steps, "on_failure": self.plan.on_failure, "finally": self.plan.finally_}
        found: dict[str, dict[str, Any]] = {}
        for key, steps in lists.items():
            found |= dict(_written("", steps, self.document.get(key) or []))
        return found


def _written(prefix: str, steps: Sequence[PlanStep], documents: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for step, document in zip(steps, documents, strict=True):
        words = cast("dict[str, Any]", document)
        yield prefix + step.id, words
        yield from _written(f"{prefix}{step.id}/", step.steps, words.get("steps") or [])


def changed_steps(recorded: ParsedPlan, new: ParsedPlan, paths: Sequence[str]) -> Iterator[ChangedStep]:
    """Steps of which something was recorded and about which the new plan says something else."""
    before, after = recorded.steps(), new.steps()
    for path in dict.fromkeys(_ITEM.sub("", path) for path in paths):
        if path in before and path in after:
            was, now = before[path], after[path]
            keys = [key for key in _matters(was, now) if was.get(key) != now.get(key)]
            if keys:
                yield ChangedStep(path, *(", ".join(_said(words, key) for key in keys) for words in (was, now)))


def removed_steps(recorded: ParsedPlan, new: ParsedPlan, paths: Sequence[str]) -> list[str]:
    before, after = recorded.steps(), new.steps()
    return [path for path in paths if (bare := _ITEM.sub("", path)) in before and bare not in after]


def _matters(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    yield from MATTERS
    if "start" in was and "start" in now:
        yield "with"  # of a tool, the values are compared, not the words
    if ("tool" in was) != ("tool" in now):
        yield "tool"
    if ("steps" in was) != ("steps" in now):
        yield "steps"
    if "approval" in was and "tool" not in was:
        yield "title"  # what a person reads


def _said(words: dict[str, Any], key: str) -> str:
    if key not in words:
        return f"no {key}"
    text = words[key] if isinstance(words[key], str) else msgspec.json.encode(words[key]).decode()
    return f"{key}: {text}"
