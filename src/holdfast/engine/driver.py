"""Drives one execution from claim to wait or end, and then lets go.

A driver starts from the journal alone: it runs the program, answers it from history, takes new steps, applies commands,
and notices when nothing can move any more. It owns what is in memory for the execution; everything else is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn, cast

from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import Command, close_attempts
from holdfast.core.errors import Divergence, Fenced, HoldfastError, JournalError, StepFailed, Suspended
from holdfast.core.execution import Execution, Step
from holdfast.core.failure import Failure, describe
from holdfast.engine.family import apply_command, told_at_end
from holdfast.engine.program import Program
from holdfast.engine.services import Services
from holdfast.engine.slots import Slot
from holdfast.engine.steps import DriverSteps
from holdfast.engine.voice import Voice
from holdfast.engine.waiting import Wait
from holdfast.journal.log import Log, read_events

REFUSALS_MAX = 100  # how often a program that is being put to sleep may ask for another step
QUIET_S = 0.01  # how long nothing may move before an execution counts as waiting; short waits are not worth an event

Cause = Literal["ended", "parked", "cut", "closing", "lost", "diverged"]


class Driver:
    def __init__(self, services: Services, log: Log, program: Program, slot: Slot) -> None:
        self.services = services
        self.log = log
        self.state: Execution = log.state
        self.problem: HoldfastError | None = None
        self.cause: Cause | None = None
        self._program = program
        self._slot = slot
        self._task: asyncio.Task[None] | None = None
        self._stubborn = False
        self._over = asyncio.Event()
        self.finished = asyncio.Event()  # everything is let go of
        self._refusals = 0
        self._active = 0
        self._resting: asyncio.Event | None = None  # set when a closing driver has nothing running any more
        self._movers: set[asyncio.Task[Any]] = set()  # tasks that are inside a step
        self._waits: dict[Wait, None] = {}  # in the order in which they began: whoever waited first goes on first
        self._going = asyncio.Event()
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._park_timer: asyncio.TimerHandle | None = None
        self._wake_wanted = False  # something could go on and has no place yet: whoever drives next must know
        self._extended: list[asyncio.Future[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._handled: set[str] = set()  # commands seen here, by id: asked twice is done once
        self.loop = asyncio.get_running_loop()
        self.loop_time = self.loop.time
        self._clock_now_us = services.clock.now_us
        self._watched = services.feed.watched
        self.voice = Voice(self)
        self.make_call = self.voice.make_call
        self.keep = log.blobs.keep
        log.on_lost = self._lost
        log.on_durable = self._durable

    # ---- the story ----------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """From claim to wait or end. Afterwards nothing of the execution is held."""
        await self._slot.acquire()
        if self.state.status == "running":
            self._going.set()
        self._task = self.loop.create_task(self._run(), name=f"holdfast {self.state.id}")
        try:
            await self._over.wait()
        finally:
            await self._let_go()

    async def _run(self) -> None:
        try:
            output = await self._program.run(DriverSteps(self))
            if self.cause is not None:
                return  # it came back after it had been let go of
            await self._settle_strays()
            await self.admit()
            doubt = next((step for step in self.state.steps.values() if step.status == "in_doubt"), None)
            if doubt is not None:
                raise StepFailed(doubt.path, _left_in_doubt(doubt))
            self._end(ev.TaskCompleted(at=self.now_us(), output=self.keep(output)))
        except BaseException as error:
            await self._ended_with(_innermost(error))

    async def _ended_with(self, error: BaseException) -> None:
        if self.cause is not None or isinstance(error, Suspended):
            return  # it was put to sleep or cut; its driver knows why
        match error:
            case JournalError():
                self._stop_for(error, "lost")
            case StepFailed():
                await self._fail(error.failure, error.path)
            case asyncio.CancelledError():
                await self._fail(Failure(category="logic", message="the program was cancelled from inside"), "")
            case _:
                await self._fail(describe(error), "")

    async def _fail(self, failure: Failure, path: str) -> None:
        with suppress(Suspended):
            await self._settle_strays()
            await self.admit()
            self._end(ev.TaskError(at=self.now_us(), failure=failure, path=path))

    async def _settle_strays(self) -> None:
        """Steps that the program began and did not wait for must not go on behind its end.

        Nor may a step be forgotten that was running when a process died, and that the program did not come back to.
        """
        strays = self._movers - {asyncio.current_task()}
        for task in strays:
            task.cancel()
        if strays:
            _, running = await asyncio.wait(strays, timeout=self.services.limits.interrupt_grace_s)
            for task in running:
                self.services.leave_behind(task)
        cut = close_attempts(self.state, self.now_us(), "its program ended while it ran")
        if cut and self.log.error is None:
            self.append(*cut)

    def _end(self, event: ev.TaskCompleted | ev.TaskError) -> None:
        self.append(event, posts=told_at_end(self.state, event), release=True)
        self._finish("ended")

    def _finish(self, cause: Cause) -> None:
        if self.cause in ("cut", "closing"):
            return  # whoever cuts or closes records it first, and then says that it is over
        if self.cause is None:
            self.cause = cause
        self._over.set()

    def _stop_for(self, error: HoldfastError, cause: Cause) -> None:
        self.problem = error
        self._finish(cause)

    async def _let_go(self) -> None:
        """Every end is the same: timers off, program gone, place free, journal flushed, feed told."""
        for timer in (self._quiet_timer, self._park_timer):
            if timer is not None:
                timer.cancel()
        await self._cancel_program()
        for errand in list(self._errands):
            if errand is not asyncio.current_task():
                errand.cancel()
        if self.cause in (None, "parked", "diverged") and self.log.error is None:
            with suppress(JournalError):
                self.log.append(release=True, wake=self._wake_wanted)
        with suppress(JournalError):
            await self.log.durable()
        if self.log.error is not None and self.problem is None:
            self.problem = self.log.error
        if self._stubborn:  # a tool that would not be cancelled finds the door closed
            self.log.error = self.log.error or Fenced()
        self._slot.release()
        self.finished.set()
        self.services.feed.notify(self.state.id)

    async def _cancel_program(self) -> None:
        """The program, and every step it asked for from tasks of its own."""
        task, self._task = self._task, None
        tasks = {one for one in (task, *self._movers) if one is not None and not one.done()} - {asyncio.current_task()}
        if not tasks:
            return
        for one in tasks:
            one.cancel()
        _, running = await asyncio.wait(tasks, timeout=self.services.limits.interrupt_grace_s)
        self._stubborn = bool(running)
        for stuck in running:
            self.services.leave_behind(stuck)

    # ---- the journal --------------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """The time of the next event: never before the last one."""
        now, last = self._clock_now_us(), self.state.last_at
        return now if now > last else last

    def append(self, *events: ev.Event, **extras: Any) -> None:
        if self.log.error is not None or self.log.released:
            raise Suspended
        self.log.append(*events, **extras)
        if self.state.id in self._watched:
            self.voice.moved(events)

    async def value(self, raw: Raw) -> bytes:
        """The bytes behind a recorded value. One that cannot be had stops the driver, not the program."""
        try:
            return await self.log.blobs.fetch(raw)
        except JournalError as error:
            self._stop_for(error, "lost")
            raise Suspended from None

    async def durable(self) -> None:
        if self.log.is_durable():
            return
        try:
            await self.log.durable()
        except JournalError:
            raise Suspended from None

    async def recorded_start(self, path: str) -> ev.StepStarted | None:
        """The first attempt of a step, looked up in the journal; waits have none."""
        for _, event in await read_events(self.services.store, self.state.id, 0):
            if isinstance(event, ev.StepStarted) and event.path == path:
                return event
        return None

    def diverged(self, path: str, recorded: str, attempted: str) -> Divergence:
        """Stop here and now: even a program that catches the error gets no further step."""
        error = Divergence(
            f"step {path} was recorded with another input; nothing was changed\n"
            f"  recorded:  {recorded}\n"
            f"  attempted: {attempted}\n"
            "give the changed step another name, put the code back, or start a new execution"
        )
        self._stop_for(error, "diverged")
        return error

    def _lost(self, error: HoldfastError) -> None:
        """Fenced, or the store failed: what is in memory may not be true, so nothing more is done with it."""
        self._stop_for(error, "lost")
        if self._task is not None:
            self._task.cancel()

    def _durable(self, status_moved: bool) -> None:
        self.services.feed.notify(self.state.id, status=status_moved)

    # ---- gates --------------------------------------------------------------------------------------------------

    def must_wait(self) -> bool:
        """Whether a step that wants to begin has to ask `admit` first."""
        return self.cause is not None or self.state.status != "running" or self.log.error is not None

    async def admit(self) -> None:
        """Let a step begin: not while paused, not while letting go; wake up first if the execution waits."""
        if self.cause is not None or self.log.error is not None:
            await self._refuse()
        while self.state.status != "running":
            if self.state.status == "waiting":
                await self._wake()
            else:
                self._going.clear()
                await self._going.wait()
            if self.cause is not None:
                await self._refuse()

    async def _refuse(self) -> NoReturn:
        """Nothing more is begun. A program that will not hear of it waits here, instead of asking for ever."""
        self._refusals += 1
        await asyncio.sleep(0)
        if self._refusals > REFUSALS_MAX:
            await self.loop.create_future()
        raise Suspended

    def busy(self, task: asyncio.Task[Any]) -> bool:
        """A step begins to move, in whichever task the program asked for it. Returns what `idle` wants back."""
        self._active += 1
        if task in self._movers:
            return True  # a step within a step
        self._movers.add(task)
        return False

    def idle(self, task: asyncio.Task[Any], was_moving: bool) -> None:
        self._active -= 1
        if not was_moving:
            self._movers.discard(task)
        if self._active == 0:
            if self._waits or self.state.status == "paused":
                self._look_for_quiet()
            if self._resting is not None:
                self._resting.set()

    # ---- waiting ------------------------------------------------------------------------------------------------

    async def park(self, wait: Wait) -> None:
        """Sleep until the wait is ready. It holds no place, and may be cut short and replayed."""
        self._waits[wait] = None
        self._active -= 1
        wait.arm(self)
        self._look_for_quiet()
        try:
            try:
                await wait.future
            finally:
                wait.disarm()
                self._waits.pop(wait, None)
            if self.state.status == "paused":  # what it waited for came with the pause, and must not keep it in memory
                self._look_for_quiet()
            await self.admit()
        finally:
            self._active += 1

    def poke(self) -> None:
        """Something may have changed: let go on whoever can."""
        ready = [wait for wait in self._waits if wait.is_ready() and not wait.future.done()]
        if not ready or self.cause is not None:
            return
        if self.state.status == "waiting":
            if not self._slot.take_now():
                self._want_to_wake()
                self._errand(self._wake_and_poke())
                return
            self._woken()  # in one transaction with what woke it: nobody sees it wait for what has come
        if self.state.status == "running":
            for wait in ready:
                wait.future.set_result(None)

    async def _wake_and_poke(self) -> None:
        await self._slot.acquire()
        if self.cause is None and self.state.status == "waiting":
            if self._is_any_ready():
                self._woken()
            else:
                self._slot.give_away()
        self.poke()

    async def _wake(self) -> None:
        if not self._slot.take_now():
            self._want_to_wake()
            await self._slot.acquire()
        if self.cause is None and self.state.status == "waiting":
            self._woken()

    def _want_to_wake(self) -> None:
        self._wake_wanted = True
        self.append(wake=True)

    def _woken(self) -> None:
        self._wake_wanted = False
        if self._park_timer is not None:
            self._park_timer.cancel()
        self.append(ev.TaskStarted(at=self.now_us(), because="woken", driver=self.services.driver))
        self._going.set()

    def _look_for_quiet(self) -> None:
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._quiet_timer = self.loop.call_later(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        """Nothing runs and nothing is ready: say so, give the place away, and after a while go to sleep."""
        if self._active or self.cause is not None:
            return
        if self.state.status == "paused":
            self._finish("parked")
        elif self.state.status == "running" and self._waits and not self._is_any_ready():
            reasons = tuple(sorted((wait.reason for wait in self._waits), key=lambda reason: reason.path))
            self.append(ev.TaskWaiting(at=self.now_us(), reasons=reasons))
            self._going.clear()
            self._slot.give_away()
            self._park_timer = self.loop.call_later(self._patience_s(), self._finish_if_waiting)

    def _patience_s(self) -> float:
        """An execution with a concurrency key sleeps at once: its place belongs to others while it waits."""
        if self.state.facts().concurrency is not None or self._slot.crowded():
            return 0.0
        return self.services.limits.passivate_after_s

    def _finish_if_waiting(self) -> None:
        if self.state.status == "waiting" and not self._is_any_ready() and not self._wake_wanted:
            self._finish("parked")

    def _is_any_ready(self) -> bool:
        return any(wait.is_ready() for wait in self._waits)

    # ---- commands -----------------------------------------------------------------------------------------------

    def deliver(self, commands: Sequence[Command]) -> None:
        """Commands for this execution, oldest first."""
        for command in commands:
            if self.cause is not None:
                return  # whoever drives next finds them in the inbox
            if command.id in self._handled:
                continue
            self._handled.add(command.id)
            if command.verb in ("interrupt", "stop") and not self.state.is_ended:
                self.cause = "cut"
                self._errand(self._cut(command))
            else:
                self._apply(command)

    def _apply(self, command: Command) -> None:
        if not self.log.error:
            apply_command(self.services, self.log, command, self.now_us())
            if command.verb == "extend" and self.state.status == "waiting":
                self.append(wake=True)  # its new steps are not known to be ready before the program has seen them
            if self.state.status == "running":
                self._going.set()
            elif self.state.status == "paused" and not self._active:
                self._look_for_quiet()
            self._tell_extended()
            self.poke()
            if command.verb == "resume" and self.state.status == "running":
                self._errand(self._slot.acquire())

    async def _cut(self, command: Command) -> None:
        """Interrupt or stop: cancel what runs, give it time to tidy up, then record what is known."""
        await self._cancel_program()
        if self.log.error is None:
            apply_command(self.services, self.log, command, self.now_us(), release=True)
        self._over.set()

    async def shut(self) -> None:
        """The engine is closing: let running steps finish for a while, then let go without ending anything."""
        if self.cause is not None:
            return
        self.cause = "closing"
        if self._active:
            self._resting = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.services.limits.drain_s):
                    await self._resting.wait()
        await self._cancel_program()
        if self.log.error is None:
            cut = close_attempts(self.state, self.now_us(), "the engine was closed while it ran")
            self.log.append(*cut, release=True, wake=self._wake_wanted)
        self._over.set()

    def _errand(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            with suppress(Suspended):
                await work

        task = self.loop.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # ---- plans that grow ----------------------------------------------------------------------------------------

    async def wait_extended(self, known: int) -> None:
        if len(self.state.extensions) <= known:
            future: asyncio.Future[None] = self.loop.create_future()
            self._extended.append(future)
            await future

    def _tell_extended(self) -> None:
        if self._extended and self.state.extensions:
            waiting, self._extended = self._extended, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


def _left_in_doubt(step: Step) -> Failure:
    message = f"it is in doubt whether it happened ({step.reason}), and the program ended without settling that"
    return Failure(category="unknown", message=message, happened="unknown", remedies=("retry",))


def _innermost(error: BaseException) -> BaseException:
    """The first real error of a group of branches that ran side by side."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
