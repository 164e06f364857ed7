"""The one bounded pool of threads in which `def` tools run.

Its threads are daemons, unlike those of `concurrent.futures`: a blocking call that was cancelled cannot be stopped,
and it must not keep the process from ending either. Refuses to grow: beyond the limit, calls queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

THREADS_MAX = 64  # blocking calls at once; more would spend their time fighting for the interpreter


class NeverBegan(asyncio.CancelledError):
    """Cancelled while it queued for a thread: nothing has happened."""


class StillRunning(asyncio.CancelledError):
    """Cancelled, but a thread cannot be stopped: `future` tells how it ends."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.future = future
        future.add_done_callback(_look_at)


def _look_at(future: asyncio.Future[Any]) -> None:
    """So that an error that nobody waits for is not complained about."""
    if not future.cancelled():
        future.exception()


class _Job:
    """One call. Either a thread begins it or its caller drops it, never both."""

    __slots__ = ("_taken", "context", "function", "future", "loop")

    def __init__(
        self,
        function: Callable[[], Any],
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        self.function = function
        self.context = context
        self.loop = loop
        self.future = future
        self._taken = threading.Lock()

    def begin(self) -> bool:
        return self._taken.acquire(blocking=False)

    def drop(self) -> bool:
        return self._taken.acquire(blocking=False)


class ThreadPool:
    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._outstanding = 0  # jobs queued or running

    @property
    def busy(self) -> bool:
        return self._outstanding > 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run `function` in a thread with a copy of the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._outstanding += 1
            grow = self._started < min(self._outstanding, self._threads_max)
            if grow:
                self._started += 1
        if grow:
            threading.Thread(target=self._work, name=f"holdfast-tool-{self._started}", daemon=True).start()
        job = _Job(function, contextvars.copy_context(), loop, future)
        self._jobs.put(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            raise (NeverBegan() if job.drop() else StillRunning(future)) from None

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job.begin():
                result, error = _call(job.function, job.context)
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits for the answer
                    job.loop.call_soon_threadsafe(_settle, job.future, result, error)
                del result, error
            del job
            with self._lock:
                self._outstanding -= 1


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
