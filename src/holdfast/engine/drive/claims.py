"""Taking executions over: start, resume, recovery and wake-up are the same road.

Look first (does this process have the program and the tools?), then claim, then attend to what waits in the inbox, then
drive if there is something to drive. What this process cannot run is left as it is, for one that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core import events as ev
from holdfast.core.commands import PAUSE_LIMIT, Command, encode_arguments, internal_id
from holdfast.core.differences import Difference
from holdfast.core.errors import NotFound, ResumeMismatch, StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.engine.commands.apply import apply_command
from holdfast.engine.program import Program
from holdfast.engine.services import Services
from holdfast.engine.transfer.auto_checkpoint import save_at_rest
from holdfast.engine.transfer.compatibility import differences
from holdfast.journal.log import PAUSE_NOTICE_US, Log, read_state
from holdfast.journal.store import ASKED, Claim, Head, Quarantine

CHILDREN_MAX = 1000  # looked after by one command; engines find the rest


class Claimed(NamedTuple):
    """`head` is as it was left by whoever it was claimed from: he may have moved it since somebody looked at it."""

    log: Log
    head: Head


class Taken(NamedTuple):
    log: Log
    program: Program | None


async def look(
    services: Services, execution_id: str, *, accepting: Sequence[Difference] = ()
) -> tuple[Head, Execution, Program]:
    """Open an execution for reading and check that it could be driven here; `accepting` is about to be accepted."""
    head, state, _ = await open_state(services, execution_id)
    kind = services.programs.get(state.facts().program.kind)
    if kind is None:
        raise NotFound(f"nothing here can run a program of kind {state.facts().program.kind}")
    program = kind.open(state.facts(), state)
    if found := [one for one in differences(state, services) if one not in accepting]:
        raise ResumeMismatch(found)
    return head, state, program


async def open_state(services: Services, execution_id: str) -> tuple[Head, Execution, bytes]:
    """Read an execution; if its bytes are damaged it is set aside, so that the others go on."""
    try:
        return await read_state(services.store, execution_id)
    except StoreCorrupted as error:
        await services.store.commit([Quarantine(execution_id=execution_id, why=str(error))])
        raise StoreCorrupted(f"{error}; the execution was set aside, run `holdfast doctor`") from error


async def claim(services: Services, head: Head, *, to_drive: bool) -> Claimed | None:
    """Become the driver, or None if somebody else was quicker."""
    wish = Claim(execution_id=head.id, driver=services.driver, replacing=head.driver, to_drive=to_drive)
    written = await services.writer.write(wish)
    if not written.ok:
        return None
    left, state, chain = await open_state(services, head.id)
    log = services.open_log(state, chain, written.epoch)
    return Claimed(log, msgspec.structs.replace(left, driver=head.driver))


async def take(services: Services, head: Head) -> Taken | None:
    """Claim an execution to drive it. `program` is None if, after its commands, there is nothing to drive."""
    _, _, program = await look(services, head.id)
    claimed = await claim(services, head, to_drive=True)
    if claimed is None:
        return None
    log, head = claimed
    quiet = await attend(services, log)
    if is_moved(services, log, head, quiet):
        mark_started(services, log, head)
    is_running = log.state.status == "running"
    if not is_running:
        await save_at_rest(services, log, head.status)
        log.append(release=True)  # with what ended or held it: a death in between would leave it held for good
    await log.durable()  # answered commands are out of the inbox before a driver looks into it again
    if services.notices is not None and not is_running:
        services.notices.look(log.state, log.durable_seq)  # a driver would look for itself
    return Taken(log, program if is_running else None)


def is_moved(services: Services, log: Log, head: Head, quiet: int) -> bool:
    """Whether there is a reason to drive.

    Not if it was only asked something that was refused or changed nothing, or that left `quiet` events that move
    nothing; nor if it only had to be taken from somebody who is dead and would have let go of it.
    """
    due = head.wake_at is not None and head.wake_at != ASKED and head.wake_at <= services.clock.now_us()
    return due or log.state.seq != head.seq + quiet


async def attend(services: Services, log: Log) -> int:
    """Apply what waits in the inbox, and a pause limit that has come. Returns how many events of it move nothing."""
    quiet = await answer_commands(services, log)
    if log.state.status == "paused" and log.state.pause_until is not None:
        _mind_pause_limit(services, log, log.state.pause_until)
    return quiet


async def answer_commands(services: Services, log: Log) -> int:
    quiet = 0
    for command in await services.store.pending([log.state.id]):
        answer = apply_command(services, log, command, now(services, log))
        quiet += answer.outcome == "applied" and command.verb in ("checkpoint", "undone")
    return quiet


def mark_started(services: Services, log: Log, head: Head) -> None:
    """The event that says why this driver is here."""
    state, at = log.state, now(services, log)
    if state.status == "queued" and not state.facts().hold:
        log.append(ev.TaskStarted(at=at, because="created", driver=services.driver))
    elif state.status == "waiting":
        log.append(ev.TaskStarted(at=at, because="woken", driver=services.driver))
    note_recovery(services, log, head)


def note_recovery(services: Services, log: Log, head: Head) -> None:
    """Whoever takes a running execution from a dead driver says so, before anything else."""
    if head.status == log.state.status == "running" and head.driver:
        log.append(ev.TaskRecovered(at=now(services, log), driver=services.driver, lost=head.driver))


def _mind_pause_limit(services: Services, log: Log, until: int) -> None:
    """Announce it, and when it has come do what a person would: so that children and parents hear of it, too."""
    state, at = log.state, now(services, log)
    then = state.on_pause_timeout
    if not state.pause_announced and at >= until - PAUSE_NOTICE_US:
        log.append(ev.TaskPauseExpiring(at=at, due_at=until, then=then))
    if at >= until:
        by, why = PAUSE_LIMIT
        arguments = encode_arguments(why=why, pause_limit=True)
        command_id = internal_id(f"{state.id}:pause-limit:{state.seq}")
        command = Command(id=command_id, execution_id=state.id, verb=then, at=at, by=by, arguments=arguments)
        apply_command(services, log, command, at)


def now(services: Services, log: Log) -> int:
    return max(services.clock.now_us(), log.state.last_at)
