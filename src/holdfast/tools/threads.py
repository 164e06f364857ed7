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

_Job = tuple[Callable[[], Any], contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ThreadPool:
    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._outstanding = 0  # jobs queued or running

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
        self._jobs.put((function, contextvars.copy_context(), loop, future))
        return await future

    def _work(self) -> None:
        while True:
            function, context, loop, future = self._jobs.get()
            if not future.cancelled():  # cancelled while it queued: it never starts
                result, error = _call(function, context)
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits for the answer
                    loop.call_soon_threadsafe(_settle, future, result, error)
                del result, error
            del function, context, loop, future
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
