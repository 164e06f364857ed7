"""The accounts broken on purpose: every one of these must be noticed by the check of spend and limits."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from holdfast.core import events as ev
from holdfast.core import fold_budget
from holdfast.core.budget import Spend
from holdfast.core.execution import Execution
from holdfast.engine.step import after_failure, attempt, budget_gate, durable_waits
from proof.sabotage.saboteur import Broken, broken, together


def reserve_without_room() -> Broken:
    return patch.object(Spend, "has_room", lambda self, micros: True)


def settle_twice() -> Broken:
    """What an attempt came to is written down twice over."""
    bill = budget_gate.bill

    def twice(*arguments: Any) -> int | None:
        spent = bill(*arguments)
        return None if spent is None else 2 * spent

    return together(patch.object(attempt, "bill", twice), patch.object(after_failure, "bill", twice))


def count_twice() -> Broken:
    """The journal is right, and who adds it up is not."""
    count = Spend.count

    def twice(self: Spend, *arguments: Any, **others: Any) -> None:
        count(self, *arguments, **others)
        count(self, *arguments, **others)

    return patch.object(Spend, "count", twice)


def forget_what_was_lost() -> Broken:
    """An attempt that ended with its process is taken to have cost nothing."""

    def reserved(state: Execution, event: ev.StepStarted) -> None:
        state.spend.reserved.pop(event.path, None)
        if event.reserved_micros:
            state.spend.reserve(event.path, event.reserved_micros)

    return patch.object(fold_budget, "reserved", reserved)


def give_children_everything() -> Broken:
    """A child may spend what its plan says, whatever is left."""
    share = budget_gate.share_with_child

    async def generous(run: Any, path: str, created: ev.TaskCreated) -> Any:
        _, reserved = await share(run, path, created)
        return created, reserved

    return patch.object(durable_waits, "share_with_child", generous)


_CHECK = "spend_never_decreases_and_keeps_its_limit"
MONEY_SABOTEURS = (
    broken("reserve without room", reserve_without_room, _CHECK),
    broken("settle twice", settle_twice, _CHECK, 5),
    broken("count twice", count_twice, _CHECK),
    broken("forget what a lost attempt cost", forget_what_was_lost, _CHECK, 150),
    broken("give children more than there is", give_children_everything, _CHECK),
)
