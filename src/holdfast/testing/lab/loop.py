"""The event loop of the lab, and processes on it that can be killed. Owns what does not exist in virtual time.

The network and other processes take real time, which stands still here; so they are refused with a clear word instead
of timing out at once. Threads are waited for: while a `def` tool runs, everything else stands still.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from types import coroutine
from typing import Any, NoReturn

from holdfast.core.errors import Misconfigured
from holdfast.engine.services import Deadlines
from holdfast.testing.lab.errors import LabError
from holdfast.testing.simulated_processes import Process, SimulatedLoop
from holdfast.tools.call import Call, running_call
from holdfast.tools.runtime.thread_pool import pool

TURNS_MAX = 50_000  # in a row, with nothing written and no time passed: a program that runs in circles
THREAD_LOOK_S = 0.05


class LabLoop(SimulatedLoop):
    def __init__(self) -> None:
        self.ended_s: float | None = None  # when the run was over; what comes after is tidying up
        self.spoke = threading.Event()  # a thread has finished, or wants something
        self.on_fault: Callable[[LabError], None] = lambda _: None
        super().__init__()

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self.spoke.set()
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """At once and here: a thread that nobody waits for would answer at a time nobody can foretell."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _refuse(self, what: str) -> NoReturn:
        call = running_call.get(None)
        who = f"step {call.path}" if call is not None else "the program"
        text = (
            f"{who} wants {what}, which takes real time, and the lab runs in virtual time; "
            "put a fake in the place of its tool with lab.fake(…), or make the tool a `def`: those run in threads"
        )
        self.on_fault(LabError(text))
        raise Misconfigured(text)

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        self._refuse("the network")

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self._refuse("the network")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> Any:
        self._refuse("the network")

    async def create_unix_connection(self, *args: Any, **options: Any) -> Any:
        self._refuse("a socket")

    async def sock_connect(self, *args: Any, **options: Any) -> Any:
        self._refuse("the network")

    async def connect_read_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        pipe.close()
        self._refuse("another process")

    async def connect_write_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        pipe.close()
        self._refuse("another process")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        self._refuse("another process")

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        self._refuse("another process")


class LabProcess(Process):
    """Notices when it runs in circles: many turns in which no time passes and nothing is written."""

    def __init__(self, loop: LabLoop, name: str) -> None:
        super().__init__(loop, name)
        self._lab_loop = loop
        self._since = (0.0, 0)

    def progressed(self) -> None:
        self._since = (self._lab_loop.time(), self.turns)

    def may_take_turn(self, turn: Any) -> bool:
        now_s = self._lab_loop.time()
        if now_s != self._since[0]:
            self._since = (now_s, self.turns)
        elif self.is_alive and self.turns - self._since[1] > TURNS_MAX:
            text = "the program runs in circles: it goes on and on without a step, and no time passes"
            self._lab_loop.on_fault(LabError(f"{text}; look for a loop that awaits nothing but itself"))
            self.kill()
        return super().may_take_turn(turn)


class ExactDeadlines(Deadlines):
    """Time limits, looked at when the first of them is up: looking every few milliseconds would make an hour long."""

    def set(self, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, limit_s: float) -> float | None:
        before = self._due.get(task)
        self._due[task] = loop.time() + limit_s
        if self._timer is None:  # there is one general limit, so what began first is up first
            self._arm(loop)
        return before

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        open_ = [at for task, at in self._due.items() if task not in self._expired]
        self._timer = loop.call_at(min(open_), self._enforce, loop) if open_ else None

    def _enforce(self, loop: asyncio.AbstractEventLoop) -> None:
        super()._enforce(loop)
        if self._timer is not None:
            self._timer.cancel()
        self._arm(loop)


class Killed(BaseException):
    """Ends a thread whose process was killed while it wrote a note; otherwise it would wait for ever."""


class ThreadCall(Call):
    """The call of a `def` tool. Whenever its thread runs, the loop stands still, so that every run is the same."""

    __slots__ = ("_asking", "_lab_loop", "_outer", "_process")

    def __init__(self, outer: Call, loop: LabLoop, process: LabProcess) -> None:
        super().__init__(outer.execution_id, outer.path, outer.attempt, outer.key, outer.folder, outer.notes)
        self._outer = outer
        self._lab_loop = loop
        self._process = process
        self._asking: Future[None] | None = None

    @coroutine
    def run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Let `work` begin its thread, and stand still at once: what the thread says has one place in the order."""
        inner = work.__await__()
        self._lab_loop.spoke.clear()
        try:
            awaited = next(inner)
        except StopIteration as done:
            return done.value
        self._stand_still()
        while True:
            try:
                yield awaited
            except BaseException as error:
                awaited = inner.throw(error)
            else:
                return (yield from inner)

    def _stand_still(self) -> None:
        """Until the thread has finished, or wants something."""
        while not self._lab_loop.spoke.wait(THREAD_LOOK_S):
            if not pool.busy:
                return

    def note(self, data: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return self._outer.note(data)  # a `def` that returned a coroutine, which is finished on the loop
        asking: Future[None] = Future()
        self._asking = asking
        self._lab_loop.call_soon_threadsafe(self._begin_note, data, asking)
        try:
            asking.result()
        except CancelledError:
            raise Killed from None
        self.notes = data
        return NOTED

    def _begin_note(self, data: Any, asking: Future[None]) -> None:
        if self._process.is_alive:
            self._process.spawn(self._note(data, asking))
        else:
            asking.cancel()

    async def _note(self, data: Any, asking: Future[None]) -> None:
        try:
            await self._outer.note(data)
        except Exception as error:
            self._lab_loop.spoke.clear()
            asking.set_exception(error)
        else:
            self._lab_loop.spoke.clear()
            asking.set_result(None)
        self._stand_still()

    def let_go(self) -> None:
        """Its process was killed."""
        if self._asking is not None:
            self._asking.cancel()

    def say(self, content: str, role: str = "tool", streaming: bool = False) -> None:
        """Nobody watches in the lab."""

    def progress(self, percent: float, text: str = "") -> None:
        """Nobody watches in the lab."""


class _Noted:
    def __await__(self) -> Any:
        return iter(())


NOTED = _Noted()
