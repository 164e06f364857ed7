"""Drives one execution from claim to wait or end, and then lets go.

A driver starts from the journal alone: it runs the program, answers it from history, takes new steps, applies commands,
and notices when nothing can move any more. It owns what is in memory for the execution; everything else is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, cast

from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import PAUSE_LIMIT, Command, close_attempts
from holdfast.core.errors import Divergence, Fenced, HoldfastError, JournalError, NotFound, StepFailed, Suspended
from holdfast.core.execution import Execution, Step
from holdfast.core.failed_steps import failures_in_words
from holdfast.core.failure import Failure
from holdfast.core.plan.resources import limits_of
from holdfast.core.resources import Usage
from holdfast.engine.commands.apply import apply_command, ruling_on
from holdfast.engine.commands.child_messages import told_at_end
from holdfast.engine.drive.activity import ActivityTracker
from holdfast.engine.drive.lost_attempts import running_attempts, told_as_lost, told_with_usage
from holdfast.engine.drive.slots import Slot
from holdfast.engine.drive.steps_port import DriverSteps
from holdfast.engine.limits.guards import together_of
from holdfast.engine.program import Program
from holdfast.engine.services import Services
from holdfast.engine.step.budget_gate import BudgetGate
from holdfast.engine.step.call_host import CallHost
from holdfast.engine.step.invoke import EXECUTION_GRACE
from holdfast.engine.transfer.auto_checkpoint import Checkpointing
from holdfast.journal.log import Log, read_events
from holdfast.tools.json_values import encode
from holdfast.tools.runtime.output_capture import listening
from holdfast.tools.runtime.user_traceback import located
from holdfast.tools.secrets.redaction import masks

Cause = Literal["ended", "parked", "cut", "closing", "lost", "diverged"]


class Driver:
    def __init__(self, services: Services, log: Log, program: Program, slot: Slot) -> None:
        self.services = services
        self.log = log
        self.state: Execution = log.state
        self._left = running_attempts(log.state)
        self.used_by_cut: dict[tuple[str, int], Usage | None] = {}  # by path and attempt, until it is recorded
        self.problem: HoldfastError | None = None
        self.cause: Cause | None = None
        self._program = program
        self._task: asyncio.Task[None] | None = None
        self._stubborn = False
        self.is_shaky = log.state.is_shaky
        self._over = asyncio.Event()
        self.finished = asyncio.Event()  # everything is let go of
        self._extended: list[asyncio.Future[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self.on_recorded: Callable[[Sequence[ev.Event], int], None] | None = None  # the program, if it wants to know
        self._handled: set[str] = set()  # commands seen here, by id: asked twice is done once
        self.loop = asyncio.get_running_loop()
        self.loop_time = self.loop.time
        self._clock_now_us = services.clock.now_us
        self._watched = services.feed.watched
        self._pulse = pulse = ActivityTracker(self, slot)
        self.busy, self.idle, self.admit = pulse.busy, pulse.idle, pulse.admit
        self.park, self.wake_ready, self.end_wait = pulse.park, pulse.wake_ready, pulse.end_wait
        self.purse = BudgetGate(self)
        self.places = services.guards.own_places(log.state.facts().parallel)
        self.limits = limits_of(log.state.facts())
        self.together = together_of(log.state, self.limits.total)
        self.voice = CallHost(self)
        self.make_call = self.voice.make_call
        self.keep = log.blobs.keep
        self._checkpoints = Checkpointing(self) if log.state.facts().checkpoint and services.data_folder else None
        log.on_lost = self._lost
        log.on_durable = self._durable

    # ---- the story ----------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """From claim to wait or end. Afterwards nothing of the execution is held."""
        await self._pulse.begin()
        if self.services.notices is not None:
            self.services.notices.look(self.state, self.log.durable_seq)
        with listening():
            self._task = self.loop.create_task(self._run(), name=f"holdfast {self.state.id}")
            try:
                await self._over.wait()
            finally:
                await self._let_go()

    async def _run(self) -> None:
        while await self._run_once():
            pass

    async def _run_once(self) -> bool:
        """The program, and the end it comes to. True if it was given more to do before that was written."""
        try:
            output = await self._program.run(DriverSteps(self))
            if self.cause is not None:
                return False  # it came back after it had been let go of
            if await self._is_given_more():
                return True
            doubt = next((step for step in self.state.steps.values() if step.status == "in_doubt"), None)
            if doubt is not None:
                raise StepFailed(doubt.path, _left_in_doubt(doubt))
            failures = failures_in_words(self.state)
            self._end(ev.TaskCompleted(at=self.now_us(), output=self.keep(masks.json(output)), failures=failures))
        except BaseException as error:
            return await self._ended_with(_innermost(error))
        return False

    async def _ended_with(self, error: BaseException) -> bool:
        if self.cause is not None or isinstance(error, Suspended):
            return False  # it was put to sleep or cut; its driver knows why
        match error:
            case JournalError():
                self._stop_for(error, "lost")
                return False
            case StepFailed():
                return await self._fail(error.failure, error.path)
            case asyncio.CancelledError():
                return await self._fail(Failure(category="logic", message="the program was cancelled from inside"), "")
            case _:
                failure, trace = located(error)
                return await self._fail(failure, "", trace)

    async def _fail(self, failure: Failure, path: str, trace: str = "") -> bool:
        with suppress(Suspended):
            if await self._is_given_more():
                return True
            kept = self.keep(encode(masks.text(trace))) if trace else Raw(b"null")
            self._end(ev.TaskError(at=self.now_us(), failure=masks.failure(failure), path=path, trace=kept))
        return False

    async def _is_given_more(self) -> bool:
        """Come to rest after the program's last word; whether steps were added meanwhile, which only it can take.

        Commands are applied until the end is written, and who was told so must not find his steps forgotten. Then the
        program runs again, as after a crash, and the journal answers what it has done. All else that may come is kept
        (events), counted (budgets, ends of children) or obeyed by `admit` (a pause), and gives nobody more to do.
        """
        known = len(self.state.extensions)
        await self._settle_strays()
        while self.state.status != "running":  # whoever waits behind a pause, too, begins when it is over
            await self.admit()
            await self._settle_strays()
        await self.admit()
        return len(self.state.extensions) > known

    async def _settle_strays(self) -> None:
        """Steps that the program began and did not wait for must not go on behind its end.

        Nor may a step be forgotten that was running when a process died, and that the program did not come back to.
        """
        if self._checkpoints is not None:
            await self._checkpoints.settle()  # what it saved is journaled before its end
        left: set[asyncio.Task[Any]] = set()
        while strays := self._pulse.movers - {asyncio.current_task()} - left:  # others may begin while these end
            for task in strays:
                task.cancel()
            _, running = await asyncio.wait(strays, timeout=self.services.limits.interrupt_grace_s * EXECUTION_GRACE)
            for task in running:
                self.services.leave_behind(task)
            left |= running
        cut = self._cut_off("its program ended while it ran")
        if cut and self.log.error is None:
            self.append(*cut)

    def _cut_off(self, why: str) -> list[ev.Event]:
        cut = told_as_lost(close_attempts(self.state, self.now_us(), why), self._left)
        return told_with_usage(cut, self.used_by_cut)

    def _end(self, event: ev.TaskCompleted | ev.TaskError | ev.TaskStopped) -> None:
        if self.state.stopping:  # its `finally` steps have run
            by, why = PAUSE_LIMIT
            event = ev.TaskStopped(at=event.at, by=by, why=why, pause_limit=True)
        self.append(event, posts=told_at_end(self.state, event), release=True)
        self.finish("ended")

    def finish(self, cause: Cause) -> None:
        if self.cause in ("cut", "closing"):
            return  # whoever cuts or closes records it first, and then says that it is over
        if self.cause is None:
            self.cause = cause
        self._over.set()

    def _stop_for(self, error: HoldfastError, cause: Cause) -> None:
        self.problem = error
        self.finish(cause)

    async def _let_go(self) -> None:
        """Every end is the same: timers off, program gone, place free, journal flushed, feed told."""
        self._pulse.rest()
        await self._cancel_program()
        for errand in list(self._errands):
            if errand is not asyncio.current_task():
                errand.cancel()
        if self._checkpoints is not None and self.cause != "cut":
            await self._checkpoints.rest()
        if self.cause in (None, "parked", "diverged") and self.log.error is None:
            with suppress(JournalError):
                self.log.append(release=True, wake=self._pulse.wake_wanted)
        with suppress(JournalError):
            await self.log.durable()
        if self.log.error is not None and self.problem is None:
            self.problem = self.log.error
        if self._stubborn:  # a tool that would not be cancelled finds the door closed
            self.log.error = self.log.error or Fenced()
        self._pulse.leave()
        self.finished.set()
        self.services.feed.notify(self.state.id)

    async def _cancel_program(self) -> None:
        """The program, and every step it asked for from tasks of its own."""
        task, self._task = self._task, None
        tasks = {one for one in (task, *self._pulse.movers) if one is not None and not one.done()} - {
            asyncio.current_task()
        }
        if not tasks:
            return
        for one in tasks:
            one.cancel()
        _, running = await asyncio.wait(tasks, timeout=self.services.limits.interrupt_grace_s * EXECUTION_GRACE)
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
        if self.on_recorded is not None:
            self.on_recorded(events, self.state.seq)
        if events and self.state.spend.limit_micros is not None:
            # Only for what was journaled: asking for a place is done here, too, and must not be asked for in turn.
            self.purse.look()
        if self._checkpoints is not None and events:
            self._checkpoints.saw(events)
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

    async def compare(self) -> None:
        """Look whether this is still ours to drive; whoever was replaced lets go, and begins nothing more."""
        try:
            head = await self.services.store.head(self.state.id)
        except NotFound:
            head = None  # ended by somebody else, and deleted since
        except JournalError as error:
            self._stop_for(error, "lost")
            raise Suspended from None
        self.log.compare(head)
        if self.log.error is not None:
            raise Suspended

    async def recorded_start(self, path: str) -> ev.StepStarted | None:
        """The first attempt of a step, looked up in the journal; waits have none."""
        for _, event in await read_events(self.services.store, self.state.id, 0):
            if isinstance(event, ev.StepStarted) and event.path == path:
                return event
        return None

    def diverged(self, path: str, recorded: str, attempted: str, *, dropped: bool = False) -> Divergence:
        """Stop here and now: even a program that catches the error gets no further step."""
        error = divergence(path, recorded, attempted, dropped=dropped)
        self._stop_for(error, "diverged")
        return error

    def _lost(self, error: HoldfastError) -> None:
        """Fenced, or the store failed: what is in memory may not be true, so nothing more is done with it."""
        self._stop_for(error, "lost")
        self._pulse.stop_draining()
        if self._task is not None:
            self._task.cancel()

    def _durable(self, status_moved: bool) -> None:
        self.services.feed.notify(self.state.id, status=status_moved)
        if self.services.notices is not None:
            self.services.notices.look(self.state, self.log.durable_seq)

    def must_wait(self) -> bool:
        """Whether a step that wants to begin has to ask `admit` first."""
        return self.cause is not None or self.state.status != "running" or self.log.error is not None

    def looks_shaky(self) -> bool:
        """Whether its last driver died, and no step has come to an end on disk since."""
        self.is_shaky = self.state.is_shaky or not self.log.is_durable()
        return self.is_shaky

    # ---- commands -----------------------------------------------------------------------------------------------

    def deliver(self, commands: Sequence[Command]) -> None:
        """Commands for this execution, oldest first."""
        for command in commands:
            if self.cause is not None:
                return  # whoever drives next finds them in the inbox
            if command.id in self._handled:
                continue
            self._handled.add(command.id)
            if command.verb in ("interrupt", "stop") and self._will_cut(command):
                self.cause = "cut"
                self.errand(partial(self._cut, command))
            else:
                self._apply(command)

    def _will_cut(self, command: Command) -> bool:
        """Ruled on before anything is cancelled: what is refused, or changes nothing, must not cut a step either."""
        return ruling_on(self.services, self.state, command, self.now_us()).outcome == "applied"

    def _apply(self, command: Command) -> None:
        if not self.log.error:
            apply_command(self.services, self.log, command, self.now_us(), self._left)
            self._pulse.commanded(command.verb)
            self._tell_extended()
            self.purse.look()
            self.wake_ready()
            if command.verb == "resume" and self.state.status == "running":
                self._pulse.take_place()

    async def _cut(self, command: Command) -> None:
        """Interrupt or stop: cancel what runs, give it time to tidy up, then record what is known."""
        await self._cancel_program()
        if self.log.error is None:
            apply_command(self.services, self.log, command, self.now_us(), self._left, self.used_by_cut)
            if self._checkpoints is not None:
                await self._checkpoints.rest()
        if self.log.error is None:
            self.log.append(release=True)
        self._over.set()

    async def shut(self) -> None:
        """The engine is closing: let running steps finish for a while, then let go without ending anything."""
        if self.cause is not None:
            return
        self.cause = "closing"
        await self._pulse.drain(self.services.limits.drain_s)
        await self._cancel_program()
        if self.log.error is None:
            cut = self._cut_off("the engine was closed while it ran")
            self.log.append(*cut, release=True, wake=self._pulse.wake_wanted)
        self._over.set()

    def errand(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            with suppress(Suspended):
                await work()

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


def divergence(path: str, recorded: str, attempted: str, *, dropped: bool = False) -> Divergence:
    """What the journal says and what the code does, side by side. `dropped`: the code asks for the step no more."""
    what = "was begun, and the code does not ask for it any more" if dropped else "was recorded with another input"
    way_out = (
        'put the code back, keep both versions with `if ctx.patched("…")`, or start a new execution'
        if dropped
        else "give the changed step another name, put the code back, or start a new execution"
    )
    return Divergence(
        f"step {path} {what}; nothing was changed\n  recorded:  {recorded}\n  attempted: {attempted}\n{way_out}",
        path=path,
        recorded=recorded,
        attempted=attempted,
    )


def _left_in_doubt(step: Step) -> Failure:
    message = f"it is in doubt whether it happened ({step.reason}), and the program ended without settling that"
    return Failure(category="unknown", message=message, happened="unknown", remedies=("retry",))


def _innermost(error: BaseException) -> BaseException:
    """The first real error of a group of branches that ran side by side."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
