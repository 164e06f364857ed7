"""Why a step was skipped: the code that is journaled and decided by, and the sentence beside it, for people."""

# old sentences: those of our own that are in journals

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

SkipCode = Literal[
    "", "condition_false", "tool_missing", "needs_unmet", "tool_down", "need_lost", "step_failed", "item_failed",
    "too_late", "by_person",
]  # fmt: skip


class Skip(NamedTuple):
    """`reason` is for display only; everything that is decided is decided by `code`."""

    code: SkipCode
    reason: str


NEED_LOST = {"failed": "which failed", "left_out": "which was skipped", "unavailable": "whose tool could not be used"}
UNAVAILABLE: frozenset[SkipCode] = frozenset({"tool_missing", "needs_unmet", "tool_down"})  # told apart from the rest
ITEM_FAILED = Skip("item_failed", "another item failed")
TOO_LATE = Skip("too_late", "it was added when the plan's own steps had ended")
AT_TERMINAL = Skip("by_person", "skipped at the terminal")


def condition_false(condition: str) -> Skip:
    return Skip("condition_false", f"its condition is false: {condition}")


def tool_missing(error: object) -> Skip:
    return Skip("tool_missing", f"its tool is not there: {error}")


def needs_unmet(lacking: Iterable[object]) -> Skip:
    return Skip("needs_unmet", f"its tool lacks something: {'; '.join(map(str, lacking))}")


def tool_down(tool: str, waited_s: float, why: str) -> Skip:
    said = f"{tool} has been left alone for {waited_s:g} s (limits.optional_wait_s): {why}"
    return Skip("tool_down", f"its tool does not work now: {said}")


def need_lost(step_id: str, state: str) -> Skip:
    """`state` is one of NEED_LOST."""
    return Skip("need_lost", f'needs "{step_id}", {NEED_LOST[state]}')


def step_failed(step_id: str) -> Skip:
    return Skip("step_failed", f'"{step_id}" failed')


def by_person(name: str) -> Skip:
    return Skip("by_person", f"skipped by {name or 'a person'}")


# How the reason began in journals from before there were codes, where something is decided by it. Never edit it.
_OLD_TOOL_MISSING = "its tool is not there"


def code_of(code: SkipCode, reason: str) -> SkipCode:
    """The code of a journaled skip; an older journal has only the reason."""
    return code or ("tool_missing" if reason.startswith(_OLD_TOOL_MISSING) else "")
