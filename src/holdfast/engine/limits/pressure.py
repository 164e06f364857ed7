"""Holds steps back while the machine is under pressure, and lets them go on by itself when that is over.

Two stages (core/pressure.py says when): tight, and only so many steps run at once in this process, critical ones first;
severe, and only critical ones begin. None is skipped for it. What runs already is left alone. The figures are read when
steps ask, at most once a second, and once a second as long as there is pressure. A program's own code is never held
back: it may be what steps are waiting for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core import events as ev
from holdfast.core.pressure import STAGES, Judgement, PressureLimits, Reading, judge
from holdfast.engine.step.parking import Wait, is_due

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver
    from holdfast.engine.program import StepCall

LOOK_EVERY_S = 1.0
TOLD_MAX = 10_000  # executions of which it is remembered that they were told
ASK_AGAIN_S = 60.0  # an execution that was put to sleep meanwhile wakes up so often to ask
log = logging.getLogger("holdfast")


class Pressure:
    """One per engine. Without a reader it is off, and costs a step nothing."""

    def __init__(self, read: Callable[[], Reading] | None = None, limits: PressureLimits | None = None) -> None:
        self.is_on = read is not None
        self.stage = 0
        self.why = ""
        self._read = read
        self._limits = limits or PressureLimits()
        self._due = 0.0  # of the next look, in the loop's time
        self._calm_since: float | None = None
        self._held: dict[Driver, int] = {}  # how many steps of each execution wait, in the order in which they came
        self._critical: dict[Driver, int] = {}  # of these, the steps that may not fail
        self._told: dict[str, None] = {}  # executions whose journals tell of this stage, in the order of their asking
        self._timer: asyncio.TimerHandle | None = None

    # ---- one step -------------------------------------------------------------------------------------------------

    def lets_begin(self, driver: Driver, call: StepCall) -> bool:
        """Whether a step may begin now."""
        if driver.loop_time() >= self._due:
            self.look(driver.loop)
        return not self.stage or self._has_place(driver, call)

    def _has_place(self, driver: Driver, call: StepCall) -> bool:
        running = driver.services.guards.everybody.used
        if running >= self._limits.at_once or not call.stakes.may_fail:
            return running < self._limits.at_once
        return self.stage == 1 and not self._critical_waits()

    def _critical_waits(self) -> bool:
        """Whether a step that may not fail would take the place; none does while its execution is paused."""
        return any(run.cause is None and run.state.status != "paused" for run in self._critical)

    async def wait(self, driver: Driver, call: StepCall) -> None:
        """Until it may be worth asking again; the journal of whom it makes wait says why."""
        self._tell(driver, call)
        await self._hold(driver, call)

    def left(self) -> None:
        """A call is over: one of those who wait may have its place."""
        if self._held:
            self._let_on()

    async def _hold(self, driver: Driver, call: StepCall) -> None:
        due_at = driver.services.clock.now_us() + int(ASK_AGAIN_S * 1e6)
        reason = ev.Reason(kind="pressure", path=call.path, due_at=due_at, name=STAGES[self.stage])
        counts = (self._held,) if call.stakes.may_fail else (self._held, self._critical)
        for held in counts:
            held[driver] = held.get(driver, 0) + 1
        try:
            await driver.park(
                Wait(reason, lambda: not self.stage or self._has_place(driver, call) or is_due(driver, due_at))
            )
        finally:
            for held in counts:
                held[driver] -= 1
                if not held[driver]:
                    del held[driver]
            if not self._critical:
                self._let_on()  # what may fail goes on once nothing critical waits

    def _tell(self, driver: Driver, call: StepCall) -> None:
        """Once for each stage; and, should there be too many to remember, again to whom it was told longest ago."""
        is_told = driver.state.id in self._told
        self._told.pop(driver.state.id, None)
        self._told[driver.state.id] = None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        if not is_told:
            driver.append(ev.PressureFelt(at=driver.now_us(), path=call.path, stage=STAGES[self.stage], why=self.why))

    def _let_on(self) -> None:
        for run in list(self._held):
            run.loop.call_soon(run.wake_ready)

    # ---- looking --------------------------------------------------------------------------------------------------

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the figures and move to the stage they call for: up at once, down after a while of calm."""
        assert self._read is not None
        now = loop.time()
        self._due = now + LOOK_EVERY_S
        found = judge(self._read(), self._limits, self.stage)
        if found.stage >= self.stage:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        is_calm = self._calm_since is not None and now - self._calm_since >= self._limits.calm_s
        if found.stage > self.stage or is_calm:
            self._enter(found)
        elif self._critical:
            self._let_on()  # an execution with a critical step may have been paused meanwhile
        if self.stage and (self._timer is None or self._timer.when() <= now):
            self._timer = loop.call_later(LOOK_EVERY_S, self.look, loop)

    def _enter(self, found: Judgement) -> None:
        self.stage, self.why = found
        self._calm_since = None
        self._told.clear()
        match self.stage:
            case 0:
                log.warning("the pressure is over: steps begin as usual")
            case 1:
                log.warning("under pressure (tight): %s; at most %d steps run at once", self.why, self._limits.at_once)
            case _:
                log.warning("under pressure (severe): %s; only critical steps begin, the others wait", self.why)
        self._let_on()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
