"""Why a step was skipped: the code that is journaled and decided by, and the sentence beside it, for people."""

# old sentences: those of our own that are in journals

from __future__ import annotations

from typing import Literal, NamedTuple

SkipCode = Literal[
    "", "condition_false", "tool_missing", "need_lost", "step_failed", "item_failed", "too_late", "by_person"
]


class Skip(NamedTuple):
    """`reason` is for display only; everything that is decided is decided by `code`."""

    code: SkipCode
    reason: str


NEED_LOST = {"failed": "which failed", "left_out": "which was skipped", "unavailable": "whose tool is not there"}
ITEM_FAILED = Skip("item_failed", "another item failed")
TOO_LATE = Skip("too_late", "it was added when the plan's own steps had ended")
AT_TERMINAL = Skip("by_person", "skipped at the terminal")


def condition_false(condition: str) -> Skip:
    return Skip("condition_false", f"its condition is false: {condition}")


def tool_missing(error: object) -> Skip:
    return Skip("tool_missing", f"its tool is not there: {error}")


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
