"""Commands and ends, as they travel between parent and child: always in the transaction of what they speak of."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import PASSED_DOWN, Answer, Command, Ruling, encode_arguments, internal_id, rule
from holdfast.core.execution import Execution
from holdfast.engine.leftovers import Attempts, Used, running_attempts, told_as_lost, told_with_usage
from holdfast.engine.services import Services
from holdfast.journal.log import Log


def ruling_on(services: Services, state: Execution, command: Command, at: int) -> Ruling:
    """What a command will do, by the rules and by what the programs and tools of this process know; nothing is done."""
    ruling = rule(state, command, at)
    objection = services.objection(state, ruling.events) if ruling.outcome == "applied" else ""
    return Ruling(outcome="refused", text=objection) if objection else ruling


def apply_command(
    services: Services, log: Log, command: Command, at: int, left: Attempts | None = None, used: Used | None = None
) -> Answer:
    """Rule on a command and journal events, answer and passing-down in one transaction.

    `left` is what ran when its driver took it up; where nobody drives, that is all that runs. `used` is what the
    attempts have used that its driver has cut off for this command.
    """
    ruling = ruling_on(services, log.state, command, at)
    seq = log.state.seq + len(ruling.events) if ruling.events else 0
    answer = Answer(command_id=command.id, outcome=ruling.outcome, text=ruling.text, seq=seq)
    # A parent that waits is not itself resumed, but a child that was paused or interrupted may be what it waits for.
    passes = ruling.outcome == "applied" or (ruling.outcome == "unchanged" and command.verb == "resume")
    posts = pass_down(log.state, command) if passes else []
    for event in ruling.events:
        if isinstance(event, ev.TaskStopped):
            posts.extend(end_of_child(log.state, event))
        elif isinstance(event, ev.BudgetRaised):
            posts.extend(raise_parent(log.state, command, event))
    told = told_as_lost(ruling.events, running_attempts(log.state) if left is None else left)
    log.append(*told_with_usage(told, used or {}), answers=[answer], posts=posts)
    return answer


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
