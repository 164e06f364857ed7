"""What parents and children tell each other, as commands: always in the transaction of the event it speaks of."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import PASSED_DOWN, Command, encode_arguments, internal_id
from holdfast.core.execution import Execution


def pass_down(state: Execution, command: Command) -> list[Command]:
    """Pause, interrupt, stop and resume go to the children that are still alive."""
    if command.verb not in PASSED_DOWN:
        return []
    return [
        Command(
            id=internal_id(f"{command.id}/{child.id}"),
            execution_id=child.id,
            verb=command.verb,
            at=command.at,
            by=command.by,
            arguments=command.arguments,
        )
        for child in state.children.values()
        if child.status not in ("completed", "failed", "stopped")
    ]


def end_of_child(state: Execution, event: ev.TaskCompleted | ev.TaskError | ev.TaskStopped) -> list[Command]:
    """What a child tells its parent, in the transaction of its end."""
    parent = state.facts().parent
    if parent is None:
        return []
    arguments: dict[str, Any] = {"child_id": state.id, "status": "completed", **_spent(state)}
    match event:
        case ev.TaskCompleted():
            arguments["data"] = event.output
        case ev.TaskError():
            arguments |= {"status": "failed", "failure": event.failure}
        case _:
            arguments["status"] = "stopped"
    return [
        Command(
            id=internal_id(f"{state.id}:ended"),
            execution_id=parent.id,
            verb="child_ended",
            at=event.at,
            arguments=Raw(msgspec.json.encode(arguments)),
        )
    ]


def _spent(state: Execution) -> dict[str, Any]:
    """What the child has come to. What it ends in the middle of is counted as the fold of its end will count it."""
    spend = state.spend
    if not spend.amounts and not spend.reserved:
        return {}
    return {"spent_micros": spend.committed_micros, "unknown": spend.unknown + len(spend.reserved)}


def raise_parent(state: Execution, command: Command, event: ev.BudgetRaised) -> list[Command]:
    """A child that is given more needs a larger share of its parent's budget, and the parent a larger budget."""
    parent, before = state.facts().parent, state.spend.limit_micros
    if parent is None or before is None or event.limit_micros <= before:
        return []
    return [
        Command(
            id=internal_id(f"{command.id}/{state.id}:budget"),
            execution_id=parent.id,
            verb="budget",
            at=event.at,
            by=event.by,
            arguments=encode_arguments(step=parent.path, limit_micros=event.limit_micros),
        )
    ]


def told_at_end(state: Execution, event: ev.TaskCompleted | ev.TaskError | ev.TaskStopped) -> list[Command]:
    """What an execution's end sets off: its parent hears of it, and children that still run are stopped."""
    ended = {ev.TaskCompleted: "completed", ev.TaskError: "failed", ev.TaskStopped: "was stopped"}[type(event)]
    why = encode_arguments(why=f"its parent {ended}")
    stop = Command(id=internal_id(f"{state.id}:end"), execution_id=state.id, verb="stop", at=event.at, arguments=why)
    return [*end_of_child(state, event), *pass_down(state, stop)]
