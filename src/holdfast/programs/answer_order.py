"""The order in which a function gets the outcomes of its steps: as they were recorded, one at a time.

A function with several asyncio tasks is the same on every replay only if its tasks run in the same order. So an
outcome is handed over only when none of the function's tasks can run, the one with the lowest event number first; then
the tasks run until none can run again. Only when no waiting `ctx` call has a recorded outcome may a step begin, or an
open wait be answered. The first run and every replay follow the same rule. A function with one task is answered at
once.

A task can run unless it is inside a `ctx` call, or waits for something else: a lock, another task, a socket. How long
that takes cannot be known, and nothing here waits for it. A task that only waits is given SETTLED_TURNS turns of the
event loop, because what wakes it may pass through a few callbacks first. What is awaited from outside the function
(`asyncio.sleep`, a socket) is not recorded, and so has no place in this order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from holdfast.core import events as ev
from holdfast.core.errors import Cancelled, Suspended
from holdfast.core.execution import Step
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.engine.program import Steps
from holdfast.programs.function_tasks import AnyTask, can_run, counter_of, current

T = TypeVar("T")
SETTLED_TURNS = 5  # a wake-up through gather, shield, wait or a TaskGroup takes two or three
TURNS_MAX = 200  # a task that always has a turn to come (`while …: await asyncio.sleep(0)`) holds nothing up for longer
OUTSIDE_PATIENCE_S = (
    1.0  # before a step counts as dropped though a task waits for something outside, and might ask for it
)
_OUTCOMES = (ev.StepCompleted, ev.StepFailed, ev.StepSkipped, ev.ChildStarted)


class Branch:
    """A branch of `ctx.gather`. The tasks that it creates belong to it, too."""

    __slots__ = ("_is_cancelled", "_outer")

    def __init__(self, outer: Branch | None) -> None:
        self._outer = outer
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled or (self._outer is not None and self._outer.is_cancelled)

    def is_within(self, other: Branch) -> bool:
        return self is other or (self._outer is not None and self._outer.is_within(other))


class Asking:
    """What a `ctx` call asks for: a step's outcome, or (`starts_child`) only that the child has begun."""

    __slots__ = ("attempted", "path", "scope", "starts_child")

    def __init__(self, path: str, scope: str, attempted: Callable[[], str], *, starts_child: bool = False) -> None:
        self.path = path
        self.scope = scope
        self.attempted = attempted
        self.starts_child = starts_child


class _Call:
    """One `ctx` call that has not returned yet. `number` is the event of its outcome, once that is recorded."""

    __slots__ = ("asking", "future", "is_fetched", "is_over", "number", "task")

    def __init__(self, asking: Asking, task: AnyTask, number: int) -> None:
        self.asking = asking
        self.task = task
        self.number = number
        self.future: asyncio.Future[None] | None = None
        self.is_fetched = False  # the outcome is here and can be handed over
        self.is_over = False


class AnswerOrder:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._state = steps.state
        self._loop = asyncio.get_running_loop()
        self._counter = counter_of(self._loop)
        self._members: dict[AnyTask, Branch | None] = {}  # the function's tasks, and the branch each belongs to
        self._outside: set[AnyTask] = set()  # those that are not inside a `ctx` call
        self._open: dict[str, list[_Call]] = {}  # by path
        self._recorded: list[tuple[int, int, _Call]] = []  # a heap: calls with a recorded outcome
        self._beginning: list[_Call] = []  # calls without one that wait to begin
        self._began_together = 0
        self._count = 0
        self._is_looking = False
        self._is_closed = False
        self._idle_turns = self._turns = 0
        self._judging: asyncio.TimerHandle | None = None
        self._may_judge = False
        self._unasked = dict[str, dict[str, str]]()  # begun steps not asked for yet: scope → name in it → a path
        for path in self._begun_with_effect():
            for scope, name in _scopes_of(path):
                self._unasked.setdefault(scope, {}).setdefault(name, path)
        self.replayed_to = self._state.seq  # what is recorded up to here was recorded before this run
        self._counter.begin()
        self.join(current())
        steps.tell_recorded(self._told)

    def close(self) -> None:
        """The function is over: no call is answered any more."""
        self._is_closed = True
        self._steps.tell_recorded(None)
        self._counter.end()
        if self._judging is not None:
            self._judging.cancel()
        for task in self._members:
            self._counter.remove(task)
        self._members.clear()
        for call in [call for calls in self._open.values() for call in calls]:
            if call.future is not None and not call.future.done():
                call.task.cancel()

    def _begun_with_effect(self) -> Iterator[str]:
        for step in self._state.steps.values():
            if step.started_seq > self._state.copied and (step.effect != "read" or step.kind == "child"):
                yield step.path

    # ---- tasks --------------------------------------------------------------------------------------------------

    def join(self, task: AnyTask, branch: Branch | None = None) -> None:
        """This task belongs to the function, and can run."""
        self._members[task] = branch
        self._outside.add(task)
        self._counter.add(task, self._made)

    def leave(self, task: AnyTask) -> None:
        """This task has ended."""
        self._members.pop(task, None)
        self._counter.remove(task)
        self.enter(task)

    def _made(self, creator: AnyTask, task: AnyTask) -> None:
        if creator in self._outside:  # and not a tool, or the engine, in the middle of a step
            self.join(task, self._members[creator])
            task.add_done_callback(self.leave)

    def branch_of(self, task: AnyTask) -> Branch | None:
        return self._members.get(task)

    def enter(self, task: AnyTask) -> None:
        """This task cannot run: it is inside a `ctx` call."""
        self._outside.discard(task)
        self._idle_turns = self._turns = 0
        if self._recorded or self._beginning:
            self._look()

    def wake(self, task: AnyTask) -> None:
        """This task can run: its `ctx` call has returned, or is about to."""
        self._outside.add(task)
        self._idle_turns = self._turns = 0

    def check_cancelled(self) -> None:
        if len(self._members) > 1:
            branch = self._members.get(current())
            if branch is not None and branch.is_cancelled:
                raise Cancelled

    # ---- one call -----------------------------------------------------------------------------------------------

    async def answer(self, asking: Asking, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a `ctx` call when its turn has come, and return when its outcome's turn has come."""
        task = current()
        if len(self._members) > 1 or task not in self._members:
            return await self._in_order(asking, work, task)
        self._outside.discard(task)
        try:
            if self._unasked and asking.path not in self._state.steps:
                await self._refuse_dropped(asking)
            return await work()
        finally:
            self._outside.add(task)

    async def _in_order(self, asking: Asking, work: Callable[[], Awaitable[T]], task: AnyTask) -> T:
        if self._is_closed:
            raise Suspended
        if task not in self._members:
            self.join(task)
            task.add_done_callback(self.leave)
        self.check_cancelled()
        call = _Call(asking, task, self._number(asking))
        self._open.setdefault(asking.path, []).append(call)
        try:
            if call.number:
                self._push(call)
                self.enter(task)
            else:
                await self._begin(call)
            try:
                outcome = await work()
            except Cancelled:
                self._steps.cancelled(asking.path)
                await self._await_turn(call)
                raise
            await self._await_turn(call)
            return outcome
        finally:
            self._close(call)

    def _close(self, call: _Call) -> None:
        call.is_over = True
        calls = self._open[call.asking.path]
        calls.remove(call)
        if not calls:
            del self._open[call.asking.path]
        self.wake(call.task)
        if self._recorded or self._beginning:
            self._look()

    def _number(self, asking: Asking) -> int:
        """The event that a call is answered with, if it is recorded."""
        step = self._state.steps.get(asking.path)
        if asking.starts_child and (child := self._state.children.get(asking.path)) is not None:
            return child.started_seq
        return step.ended_seq if step is not None and step.status in STEP_ENDS else 0

    def _push(self, call: _Call) -> None:
        self._count += 1
        heappush(self._recorded, (call.number, self._count, call))

    def _told(self, events: Sequence[ev.Event], last: int) -> None:
        """Events were recorded: the outcome of an open call gets its place in the order at once."""
        if not self._open:
            return
        for number, event in enumerate(events, last - len(events) + 1):
            if isinstance(event, _OUTCOMES):
                for call in self._open.get(event.path, ()):
                    if not call.number and isinstance(event, ev.ChildStarted) == call.asking.starts_child:
                        call.number = number
                        self._push(call)

    async def _begin(self, call: _Call) -> None:
        call.future = self._loop.create_future()
        self._beginning.append(call)
        self.enter(call.task)
        try:
            if call.future.done() and self._began_together > 1:
                await asyncio.sleep(0)  # it let them begin itself, and the others came first
            await call.future
        except asyncio.CancelledError:
            self._steps.given_up(call.asking.path)
            raise
        if call.asking.path not in self._state.steps and self._dropped(call.asking.scope):
            await self._refuse_dropped(call.asking)

    async def _await_turn(self, call: _Call) -> None:
        if not call.number:
            return
        call.is_fetched = True
        if not self._outside and self._first() is call:
            heappop(self._recorded)
            return
        call.future = self._loop.create_future()
        self._look()
        await call.future

    # ---- whose turn it is ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Decide now if no task can run; otherwise look again after the next turn of the loop."""
        if not self._outside:
            self._decide()
        elif not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_looking = False
        if not self._recorded and not self._beginning:
            return
        self._turns += 1
        is_idle = self._turns > TURNS_MAX or not any(map(can_run, self._outside))
        self._idle_turns = self._idle_turns + 1 if is_idle else 0
        if self._outside and self._idle_turns < SETTLED_TURNS:
            self._is_looking = True
            self._loop.call_soon(self._turn)
        else:
            self._decide()

    def _first(self) -> _Call | None:
        recorded = self._recorded
        while recorded and recorded[0][2].is_over:
            heappop(recorded)
        return recorded[0][2] if recorded else None

    def _decide(self) -> None:
        """No task can run: answer the call that was recorded first; if there is none, let those that wait begin."""
        first = self._first()
        if first is None:
            self._let_begin()
        elif first.is_fetched and first.future is not None:
            heappop(self._recorded)
            self.wake(first.task)
            if not first.future.done():
                first.future.set_result(None)
            if self._recorded or self._beginning:
                self._look()
        # else its value is being read; it looks again when it has it

    def _let_begin(self) -> None:
        waiting = [call for call in self._beginning if not call.is_over]
        if self._outside and not self._may_judge and any(self._is_beside_dropped(call) for call in waiting):
            if self._judging is None:  # a task that waits for something outside may yet ask for what is missing
                self._judging = self._loop.call_later(OUTSIDE_PATIENCE_S, self._judge)
            return
        self._beginning, self._began_together = [], len(waiting)
        for call in waiting:
            if call.future is not None and not call.future.done():
                call.future.set_result(None)

    def _judge(self) -> None:
        self._judging, self._may_judge = None, True
        self._look()

    # ---- branches -----------------------------------------------------------------------------------------------

    def cancel(self, branch: Branch) -> None:
        """End what a branch waits for. What it runs comes to its end, and a recorded outcome is handed over in turn."""
        branch.cancel()
        for call in [call for calls in self._open.values() for call in calls]:
            within = self._members.get(call.task)
            if call.number or within is None or not within.is_within(branch):
                continue
            if call in self._beginning and call.asking.path not in self._state.steps:
                if call.future is not None and not call.future.done():
                    call.future.set_exception(Cancelled())
            else:
                self._steps.end_wait(call.asking.path)

    # ---- what the code asks for no more -------------------------------------------------------------------------

    def asked(self, scope: str, name: str) -> None:
        """The function asks for a step, or opens a scope, of this name."""
        names = self._unasked.get(scope)
        if names is not None and names.pop(name, None) is not None and not names:
            del self._unasked[scope]

    @property
    def has_unasked(self) -> bool:
        return bool(self._unasked)

    def _dropped(self, scope: str) -> str:
        """A begun step inside this scope that was not asked for, though everything recorded has been handed over."""
        for other, names in self._unasked.items():
            if other.startswith(scope):
                return next(iter(names.values()))
        return ""

    def _is_beside_dropped(self, call: _Call) -> bool:
        return call.asking.path not in self._state.steps and bool(self._dropped(call.asking.scope))

    async def _refuse_dropped(self, asking: Asking) -> None:
        if path := self._dropped(asking.scope):
            await self._steps.dropped(path, asking.attempted())

    async def finish(self, name: str) -> None:
        """The function has come to its end: everything that it had begun must have been asked for."""
        if not self._unasked:
            return
        task = current()
        asking = Asking("", "", lambda: f"the end of {name}")
        if len(self._members) > 1:
            call = _Call(asking, task, 0)
            self._open[""] = [call]
            try:
                await self._begin(call)
            finally:
                self._close(call)
        else:
            await self._refuse_dropped(asking)

    def is_new_ground(self, scope: str, has_asked: Callable[[str], bool]) -> bool:
        """Whether every step of this scope that was recorded before this run has been asked for."""
        return not any(
            here == scope and not has_asked(name)
            for path, step in self._state.steps.items()
            if _begun_seq(step) <= self.replayed_to
            for here, name in _scopes_of(path)
        )


def _begun_seq(step: Step) -> int:
    return step.started_seq or step.ended_seq


def _scopes_of(path: str) -> Iterator[tuple[str, str]]:
    """Each scope that a path is in, and its name there: `a[0]/b` is `a` in the function and `b` in `a[0]/`."""
    start = 0
    while (end := path.find("/", start)) >= 0:
        yield path[:start], path[start:end].partition("[")[0]
        start = end + 1
    yield path[:start], path[start:]
