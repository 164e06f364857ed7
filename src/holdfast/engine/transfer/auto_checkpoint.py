"""When an execution saves itself: after so many steps, so often, and when it comes to rest.

The clock goes on while it waits: a checkpoint that is owed when its driver lets go of it is saved when it is due by the
process that drove it, which needs to know no more of it than its id.

Files are written beside the work, never in its way, and each holds the journal up to the event that made it due. One
that cannot be written is told and forgotten: the journal itself is safe, and the execution goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import HoldfastError
from holdfast.core.execution import Execution, steps_ended
from holdfast.core.policy import Checkpoints, Rest
from holdfast.engine.services import Services
from holdfast.engine.transfer.export import save
from holdfast.journal.checkpoint_files import KEPT
from holdfast.journal.log import Log, read_state

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver
    from holdfast.engine.engine import Engine

SETTLE_S = 10.0  # how long an execution that comes to rest waits for a disk that does not answer
_RESTS: dict[str, Rest] = {
    "paused": "pause",
    "interrupted": "interrupt",
    "completed": "end",
    "failed": "end",
    "stopped": "end",
}
_STEP_ENDS = (ev.StepCompleted, ev.StepFailed, ev.StepSkipped)
log = logging.getLogger("holdfast")


def policy_of(state: Execution) -> Checkpoints:
    return state.facts().checkpoint or Checkpoints()


def is_wanted_at_rest(state: Execution) -> bool:
    return _RESTS.get(state.status) in policy_of(state).on


async def save_at_rest(services: Services, journal: Log, before: str) -> None:
    """Somebody else than its driver has brought it from the status `before` to where it is now."""
    if journal.state.status != before and services.data_folder and is_wanted_at_rest(journal.state):
        await _save(services, journal, limit_s=SETTLE_S)


async def _save(services: Services, journal: Log, through: int = 0, *, limit_s: float | None = None) -> None:
    """Save what is durable, and say so unless the journal is closed."""
    state = journal.state
    try:
        async with asyncio.timeout(limit_s):
            await journal.durable()
            saved = await save(services, state.id, through)
        if not (state.is_ended or journal.released):
            at = max(services.clock.now_us(), state.last_at)
            journal.append(msgspec.structs.replace(saved, at=at))
    except Exception as error:
        why = f"the disk has not answered for {limit_s:g} s" if isinstance(error, TimeoutError) else error
        _tell_unsaved(services, state, why)


def _tell_unsaved(services: Services, state: Execution, why: object) -> None:
    text = f"no checkpoint was saved: {why}"
    log.warning("execution %s: %s", state.id, text)
    services.feed.show(state.id, ev.TaskMessage(at=state.last_at, after=state.seq, role="holdfast", content=text))


class Checkpointing:
    """The checkpoints of one execution that is driven here."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._policy = policy_of(driver.state)
        self._steps = steps_ended(driver.state) if self._policy.every_steps else 0
        last = driver.state.checkpoint
        self._covered = last.ended if last else 0
        self._last_us = last.at if last else driver.state.facts().at
        self._due: deque[int] = deque(maxlen=KEPT)  # events to save up to; what falls out would not be kept anyway
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._count(0)
        if self._policy.every_s and driver.state.seq > (last.through + 1 if last else 0):
            self._arm(self._policy.every_s)  # something has happened that no checkpoint holds: before us, or to wake it

    def saw(self, events: Sequence[ev.Event]) -> None:
        """Something was journaled."""
        if self._policy.every_steps:
            self._count(sum(isinstance(event, _STEP_ENDS) for event in events))
        if self._policy.every_s:
            self._arm(self._policy.every_s)

    def _count(self, ended: int) -> None:
        every = self._policy.every_steps
        self._steps += ended
        if every and self._steps // every > self._covered // every:
            self._covered = self._steps
            self._save_soon()

    def _arm(self, every_s: float) -> None:
        if self._timer is None:
            passed_s = (self._driver.now_us() - self._last_us) / 1e6
            self._timer = self._driver.loop.call_later(max(0.0, every_s - passed_s), self._rang)

    def _rang(self) -> None:
        self._timer = None
        self._save_soon()

    def _save_soon(self) -> None:
        self._last_us = self._driver.now_us()
        self._due.append(self._driver.state.seq)
        if self._writing is None:
            self._writing = self._driver.loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._due:
                await _save(self._driver.services, self._driver.log, self._due.popleft())
        finally:
            self._writing = None

    async def settle(self) -> None:
        """Wait for what is being written; a disk that does not answer is left behind."""
        writing = self._writing
        if writing is not None:
            _, stuck = await asyncio.wait({writing}, timeout=SETTLE_S)
            for task in stuck:
                self._due.clear()
                self._driver.services.leave_behind(task)

    async def rest(self) -> None:
        """The execution has come to rest, or is let go of."""
        if self._timer is not None:
            self._timer.cancel()
            if self._driver.cause == "parked":
                self._driver.services.owe_checkpoint(self._driver.state.id, self._last_us, self._timer.when())
        await self.settle()
        if is_wanted_at_rest(self._driver.state) and self._driver.log.error is None:
            await _save(self._driver.services, self._driver.log, limit_s=SETTLE_S)


class DeferredCheckpoints:
    """Checkpoints that came due, or will, after their drivers had let go: each is saved once, if it is still owed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._saving: set[asyncio.Task[None]] = set()
        self._closed = False

    def remember(self, execution_id: str, since_us: int, when: float) -> None:
        """`since_us`: the moment of the checkpoint before it; `when` it is due, by the loop's own time."""
        if self._closed:
            return  # made up for by whoever drives it next
        if execution_id in self._timers:
            self._timers[execution_id].cancel()
        loop = asyncio.get_running_loop()
        self._timers[execution_id] = loop.call_at(when, self._rang, execution_id, since_us)

    def _rang(self, execution_id: str, since_us: int) -> None:
        del self._timers[execution_id]
        task = asyncio.get_running_loop().create_task(self._save(execution_id, since_us))
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def _save(self, execution_id: str, since_us: int) -> None:
        """Whoever drives it by now minds its clock, and whoever has saved it meanwhile has done what was owed."""
        services = self._engine.services
        try:
            head, state, _ = await read_state(services.store, execution_id)
        except (HoldfastError, OSError):
            return  # it was deleted, or is damaged, which others tell
        if head.driver or state.is_ended or (state.checkpoint and state.checkpoint.at > since_us):
            return
        try:
            await self._engine.checkpoint(execution_id, by="holdfast")
        except Exception as error:
            _tell_unsaved(services, state, error)

    async def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._saving:
            await asyncio.wait(self._saving, timeout=SETTLE_S)
