"""Applies commands: the one place where a command becomes events, whoever gave it and whoever drives the execution."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.commands import Answer, Command, Ruling, rule
from holdfast.core.execution import Execution
from holdfast.engine.commands import child_messages
from holdfast.engine.drive.lost_attempts import Attempts, Used, running_attempts, told_as_lost, told_with_usage
from holdfast.engine.services import Services
from holdfast.journal.log import Log


def ruling_on(services: Services, state: Execution, command: Command, at: int) -> Ruling:
    """What a command will do, by the rules and by what the programs and tools of this process know; nothing is done."""
    ruling = rule(state, command, at)
    objection = services.validation_error(state, ruling.events) if ruling.outcome == "applied" else ""
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
    posts = child_messages.pass_down(log.state, command) if passes else []
    for event in ruling.events:
        if isinstance(event, ev.TaskStopped):
            posts.extend(child_messages.end_of_child(log.state, event))
        elif isinstance(event, ev.BudgetRaised):
            posts.extend(child_messages.raise_parent(log.state, command, event))
    told = told_as_lost(ruling.events, running_attempts(log.state) if left is None else left)
    log.append(*told_with_usage(told, used or {}), answers=[answer], posts=posts)
    return answer
