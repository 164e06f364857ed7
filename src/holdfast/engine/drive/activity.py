"""What of one execution moves, what waits, and what follows when nothing moves any more.

The driver owns the journal and the ends; here is its pulse. Steps say when they begin and stop moving, branches of the
program wait here until something lets them go on, and when all is quiet the execution says what it waits for, gives its
place away and, after a while, is put to sleep. Nothing here is durable: a replay makes it anew.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.core import events as ev
from holdfast.core.errors import Cancelled, Suspended
from holdfast.engine.drive.slots import Slot
from holdfast.engine.step.parking import Wait, listed

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver

REFUSALS_MAX = 100  # how often a program that is being put to sleep may ask for another step
QUIET_S = 0.01  # how long nothing may move before an execution counts as waiting; short waits are not worth an event


class ActivityTracker:
    def __init__(self, driver: Driver, slot: Slot) -> None:
        self.movers: set[asyncio.Task[Any]] = set()  # tasks that are inside a step
        self.wake_wanted = False  # something could go on and has no place yet: whoever drives next must know
        self._driver = driver
        self._slot = slot
        self._active = 0
        self._refusals = 0
        self._drained: asyncio.Event | None = None  # set when a closing driver has nothing running any more
        self._waits: dict[Wait, None] = {}  # in the order in which they began: whoever waited first goes on first
        self._given_up: set[str] = set()  # paths of steps that may not wait any more
        self._going = asyncio.Event()
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._park_timer: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        await self._slot.acquire()
        if self._driver.state.status == "running":
            self._going.set()

    def rest(self) -> None:
        """Nothing is waited for any more."""
        for timer in (self._quiet_timer, self._park_timer):
            if timer is not None:
                timer.cancel()

    def leave(self) -> None:
        self._slot.release()

    async def drain(self, limit_s: float) -> None:
        """Let what runs come to its end, for a while."""
        if self._active:
            self._drained = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._drained.wait()

    def stop_draining(self) -> None:
        """Nothing runs any more, or what runs is another's by now: there is nothing to wait for."""
        if self._drained is not None:
            self._drained.set()

    # ---- gates --------------------------------------------------------------------------------------------------

    async def admit(self) -> None:
        """Let a step begin: not while paused, not while letting go; wake up first if the execution waits."""
        run = self._driver
        if run.cause is not None or run.log.error is not None:
            await self._refuse()
        while run.state.status != "running":
            if run.state.status == "waiting":
                await self._wake()
            else:
                self._going.clear()
                await self._going.wait()
            if run.cause is not None:
                await self._refuse()

    async def _refuse(self) -> NoReturn:
        """Nothing more is begun. A program that will not hear of it waits here, instead of asking for ever."""
        self._refusals += 1
        await asyncio.sleep(0)
        if self._refusals > REFUSALS_MAX:
            await self._driver.loop.create_future()
        raise Suspended

    def busy(self, task: asyncio.Task[Any]) -> bool:
        """A step begins to move, in whichever task the program asked for it. Returns what `idle` wants back."""
        self._active += 1
        if task in self.movers:
            return True  # a step within a step
        self.movers.add(task)
        return False

    def idle(self, task: asyncio.Task[Any], was_moving: bool) -> None:
        self._active -= 1
        if not was_moving:
            self.movers.discard(task)
        if self._active == 0:
            if self._waits or self._driver.state.status == "paused":
                self._look_for_quiet()
            self.stop_draining()

    # ---- waiting ------------------------------------------------------------------------------------------------

    async def park(self, wait: Wait) -> None:
        """Sleep until the wait is ready. It holds no place, and may be cut short and replayed."""
        if wait.reason.path in self._given_up and self._may_end(wait):
            raise Cancelled
        self._close_lost(wait.reason.path)
        self._waits[wait] = None
        self._active -= 1
        wait.arm(self._driver)
        self._look_for_quiet()
        try:
            try:
                await wait.future
            finally:
                wait.disarm()
                self._waits.pop(wait, None)
            if (
                self._driver.state.status == "paused"
            ):  # what it waited for came with the pause: it must not stay in memory
                self._look_for_quiet()
            await self.admit()
        finally:
            self._active += 1

    def end_wait(self, path: str) -> None:
        """The program wants nothing of this step any more: what it waits for, now or later, is not waited for."""
        self._given_up.add(path)
        for wait in list(self._waits):
            if wait.reason.path == path and self._may_end(wait) and not wait.future.done():
                wait.future.set_exception(Cancelled())

    def _may_end(self, wait: Wait) -> bool:
        """Not if its step may have had an effect: what it came to must be known."""
        step = self._driver.state.steps.get(wait.reason.path)
        return step is None or step.status in ("waiting", "retrying") or step.kind == "child"

    def _close_lost(self, path: str) -> None:
        """A step that waits for money or for its turn before another attempt: if the last one ended with its process,
        nobody may take it for one that runs.
        """
        run, step = self._driver, self._driver.state.steps.get(path)
        if step is not None and step.status == "running" and step.kind in ("tool", "code"):
            run.append(ev.StepInterrupted(at=run.now_us(), path=path, attempt=step.attempt, lost=True))

    def wake_ready(self) -> None:
        """Something may have changed: let go on whoever can."""
        run = self._driver
        ready = [wait for wait in self._waits if wait.is_ready() and not wait.future.done()]
        if not ready or run.cause is not None:
            return
        if run.state.status == "waiting":
            if not self._slot.take_now():
                self._want_to_wake()
                run.errand(self._wake_and_poke)
                return
            self._woken()  # in one transaction with what woke it: nobody sees it wait for what has come
        if run.state.status == "running":
            for wait in ready:
                wait.future.set_result(None)

    def commanded(self, verb: str) -> None:
        """A command was applied: what it holds comes to rest, and what it lets go on does."""
        status = self._driver.state.status
        if verb == "extend" and status == "waiting":
            self._driver.append(wake=True)  # its new steps are not known to be ready before the program has seen them
        if status == "running":
            self._going.set()
        elif status == "paused" and not self._active:
            self._look_for_quiet()

    def take_place(self) -> None:
        """Resumed: it needs a place again, in its turn."""
        self._driver.errand(self._slot.acquire)

    async def _wake_and_poke(self) -> None:
        await self._slot.acquire()
        if self._driver.cause is None and self._driver.state.status == "waiting":
            if self._is_any_ready():
                self._woken()
            else:
                self._slot.give_away()
        self.wake_ready()

    async def _wake(self) -> None:
        if not self._slot.take_now():
            self._want_to_wake()
            await self._slot.acquire()
        if self._driver.cause is None and self._driver.state.status == "waiting":
            self._woken()

    def _want_to_wake(self) -> None:
        self.wake_wanted = True
        self._driver.append(wake=True)

    def _woken(self) -> None:
        run = self._driver
        self.wake_wanted = False
        if self._park_timer is not None:
            self._park_timer.cancel()
        run.append(ev.TaskStarted(at=run.now_us(), because="woken", driver=run.services.driver))
        self._going.set()

    # ---- quiet --------------------------------------------------------------------------------------------------

    def _look_for_quiet(self) -> None:
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._quiet_timer = self._driver.loop.call_later(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        """Nothing runs and nothing is ready: say so, give the place away, and after a while go to sleep."""
        run = self._driver
        if self._active or run.cause is not None:
            return
        if run.state.status == "paused":
            run.finish("parked")
        elif run.state.status == "running" and self._waits and not self._is_any_ready():
            run.append(ev.TaskWaiting(at=run.now_us(), reasons=listed(wait.reason for wait in self._waits)))
            self._going.clear()
            self._slot.give_away()
            self._park_timer = run.loop.call_later(self._patience_s(), self._finish_if_waiting)

    def _patience_s(self) -> float:
        """An execution with a concurrency key sleeps at once: its place belongs to others while it waits. Not while it
        stands in line for a tool, which is short, and would be begun anew each time."""
        if any(wait.reason.kind == "limit" for wait in self._waits):
            return self._driver.services.limits.passivate_after_s
        if self._driver.state.facts().concurrency is not None or self._slot.crowded():
            return 0.0
        return self._driver.services.limits.passivate_after_s

    def _finish_if_waiting(self) -> None:
        if self._driver.state.status == "waiting" and not self._is_any_ready() and not self.wake_wanted:
            self._driver.finish("parked")

    def _is_any_ready(self) -> bool:
        return any(wait.is_ready() for wait in self._waits)
