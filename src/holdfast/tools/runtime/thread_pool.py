"""The bounded pool of threads in which `def` tools run; look-ups of hosts (hosts.py) have another of the same kind.

Its threads are daemons, unlike those of `concurrent.futures`: a blocking call that was cancelled cannot be stopped,
and it must not keep the process from ending either. Such a call is left behind, and its thread with it: another one
takes that thread's place, up to a limit. Beyond the threads there are, calls wait in line, one execution after the
other; the first call of an execution that has no thread yet may have one of a few that are kept for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from holdfast.core.errors import ResourceShort
from holdfast.tools.call import Call, running_call
from holdfast.tools.runtime.cancellation import NeverBegan, StillRunning
from holdfast.tools.runtime.fair_queue import FairQueue

THREADS_MAX = 64  # blocking calls at once; more would spend their time fighting for the interpreter
FIRST_MAX = 16  # more of them, each for an execution that has none: it must not wait for a neighbour's slow calls
LEFT_BEHIND_MAX = 256  # threads held by calls that nobody waits for any more; further ones cost the pool its own


class _Job:
    """One call. `state` changes under the pool's lock: either a thread begins it or its caller drops it."""

    __slots__ = ("call", "context", "function", "future", "is_left", "loop", "state", "who")

    def __init__(
        self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop, call: Call | None, who: str
    ) -> None:
        self.function = function
        self.context = contextvars.copy_context()
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.call = call
        self.who = who
        self.state: Literal["waiting", "running", "over"] = "waiting"
        self.is_left = False  # nobody waits for its answer any more

    def settle(self, result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits for the answer
            self.loop.call_soon_threadsafe(_settle, self.future, result, error)


class ThreadPool:
    def __init__(
        self,
        threads_max: int = THREADS_MAX,
        first_max: int = FIRST_MAX,
        left_behind_max: int = LEFT_BEHIND_MAX,
        *,
        of_what: str = "calls of `def` tools",
    ) -> None:
        self._threads_max = threads_max
        self._first_max = first_max
        self._left_behind_max = left_behind_max
        self._of_what = of_what
        self._lock = threading.Lock()
        self._queue: FairQueue[_Job] = FairQueue()
        self._called: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each that joined the queue
        self._running: Counter[str] = Counter()  # calls that somebody waits for, by execution
        self._threads = 0  # of the pool; those of calls that were left behind are not among them
        self._working = 0  # of these
        self._left = 0  # threads that were given up with their calls
        self._lost = 0  # the pool's own that are held by such calls, because no more could be given up
        self._outstanding = 0  # jobs waiting or running

    @property
    def busy(self) -> bool:
        return self._outstanding > 0

    async def run(self, function: Callable[[], Any], part_for: str | None = None) -> Any:
        """Run `function` in a thread with a copy of the caller's context variables.

        It is the work of the running call, whose time begins with its thread; or, with `part_for`, a part of something
        that this execution has begun long ago.
        """
        loop = asyncio.get_running_loop()
        call = running_call.get(None) if part_for is None else None
        job = _Job(function, loop, call, part_for or (call.execution_id if call is not None else ""))
        self._enter(job)
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            raise (NeverBegan() if self._leave(job) else StillRunning(job.future)) from None

    # ---- the caller's side --------------------------------------------------------------------------------------

    def _enter(self, job: _Job) -> None:
        with self._lock:
            if self._lost >= self._threads_max:
                raise self._used_up()
            self._outstanding += 1
            idle = self._threads - self._working - len(self._queue)
            if idle <= 0 and self._threads >= self._threads_max and self._may_be_first(job):
                self._take(job)
                self._start_thread(job)
                return
            if job.call is not None:
                job.call.wait_begins(job.loop.time())
            self._queue.put(job.who, job)
            self._called.put(None)
            self._grow()
            if not self._threads:
                self._queue.remove(job.who, job)
                self._outstanding -= 1
                raise ResourceShort("this process can start no more threads", without_effect=True)

    def _may_be_first(self, job: _Job) -> bool:
        has_one = self._running[job.who] or job.who in self._queue
        return not has_one and self._threads < self._threads_max + self._first_max

    def _leave(self, job: _Job) -> bool:
        """The caller does not wait any more; True if the job never began, and now never will."""
        with self._lock:
            if job.state == "waiting":
                self._queue.remove(job.who, job)
                job.state = "over"
                self._outstanding -= 1
                if job.call is not None:
                    job.call.wait_ends(job.loop.time())  # it goes on without: its time counts again
                return True
            if job.state == "running":
                self._give_up(job)
            return False

    def _give_up(self, job: _Job) -> None:
        job.is_left = True
        self._count_out(job)
        if self._left < self._left_behind_max:
            self._left += 1
            self._threads -= 1
            self._working -= 1
            self._grow()
            return
        self._lost += 1
        if self._lost >= self._threads_max:
            error = self._used_up()
            while (waiting := self._queue.pop()) is not None:
                waiting.state = "over"
                self._outstanding -= 1
                waiting.settle(None, error)

    def _used_up(self) -> ResourceShort:
        return ResourceShort(
            f"{self._left + self._lost} {self._of_what} did not end when they were told to and still run, so that "
            "no thread is left for another; end what they wait for, or start this process anew",
            without_effect=True,
        )

    def _grow(self) -> None:
        if len(self._queue) > self._threads - self._working and self._threads < self._threads_max:
            self._start_thread(None)

    def _start_thread(self, first: _Job | None) -> None:
        self._threads += 1
        try:
            threading.Thread(target=self._work, args=(first,), name="holdfast-tool", daemon=True).start()
        except RuntimeError:  # the machine has no more: whoever waits gets one of those there are
            self._threads -= 1
            if first is not None:
                self._working -= 1
                self._count_out(first)
                first.state = "waiting"
                self._queue.put(first.who, first)
                self._called.put(None)

    # ---- the threads' side --------------------------------------------------------------------------------------

    def _work(self, job: _Job | None) -> None:
        while True:
            if job is None:
                job = self._next()
            if job.call is not None:
                job.call.wait_ends(job.loop.time())
            result, error = _call(job.function, job.context)
            goes_on = self._over(job)  # before anybody hears of it: whoever calls again at once finds its place free
            job.settle(result, error)
            del result, error
            job = None
            with self._lock:
                self._outstanding -= 1
            if not goes_on:
                return

    def _next(self) -> _Job:
        while True:
            self._called.get()
            with self._lock:
                job = self._queue.pop()
                if job is not None:  # else it was dropped
                    self._take(job)
                    return job

    def _take(self, job: _Job) -> None:
        job.state = "running"
        self._working += 1
        self._running[job.who] += 1

    def _over(self, job: _Job) -> bool:
        """Whether the thread goes on with another job."""
        with self._lock:
            job.state = "over"
            if not job.is_left:
                self._count_out(job)
            elif self._lost:  # it becomes one of the pool's, and one that the pool has lost is given up in its stead
                self._lost -= 1
            else:
                self._left -= 1
                return False
            self._working -= 1
            if self._threads > self._threads_max:
                self._threads -= 1
                return False
            return True

    def _count_out(self, job: _Job) -> None:
        self._running[job.who] -= 1
        if not self._running[job.who]:
            del self._running[job.who]


def _call(function: Callable[[], Any], context: contextvars.Context) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function), None
    except StopIteration as error:  # a future cannot carry it
        wrapped = RuntimeError("the tool raised StopIteration")
        wrapped.__cause__ = error
        return None, wrapped
    except BaseException as error:  # a thread has nobody above it: everything goes to the one who waits
        return None, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


pool = ThreadPool()
