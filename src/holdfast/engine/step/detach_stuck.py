"""A tool on the event loop that is told to end, and does not: after a while it goes on in a task of its own.

Nearly every call ends by itself, so none gets a task of its own beforehand: that would double what a step costs. A call
runs in its step's task, and is watched from the moment it is cut. If it has not ended when its time is over, the step
lets go of it: what is left of the call moves to a new task, and the step's task is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any


class Ignored(asyncio.CancelledError):
    """It was cut, and goes on all the same, in `task`."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        super().__init__()
        self.task = task


class _Watched(asyncio.Future[None]):
    """Done when what a call waits for is, or when its time is over."""


@coroutine
def await_detachable(work: Coroutine[Any, Any, Any], grace_s: Callable[[], float | None]) -> Generator[Any, Any, Any]:
    """Await `work`. From its cancellation on it has `grace_s()` to end, or Ignored is raised and it is left to itself.

    None: it was not the engine that cancelled. Tools cancel what they do by themselves, too, and then go on.
    """
    until: float | None = None
    try:
        awaited = work.send(None)
        while True:
            # What a step within this one watches already is watched there.
            is_watched = until is None or isinstance(awaited, _Watched)
            error = yield from (_wait(work, awaited) if is_watched else _watch(work, awaited, until or 0))
            if until is None and isinstance(error, asyncio.CancelledError) and (left_s := grace_s()) is not None:
                until = asyncio.get_running_loop().time() + left_s
            awaited = work.send(None) if error is None else work.throw(error)
    except StopIteration as ended:
        return ended.value


def _wait(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, BaseException | None]:
    """Until what the call waits for is there; or the error that came instead."""
    try:
        yield awaited
    except GeneratorExit:
        work.close()
        raise
    except BaseException as error:
        return error
    return None


def _watch(work: Coroutine[Any, Any, Any], awaited: Any, until: float) -> Generator[Any, Any, BaseException | None]:
    """As `_wait`, but no longer than `until`."""
    loop = asyncio.get_running_loop()
    while True:
        watched = _Watched(loop=loop)
        done = partial(_settle, watched)
        timer = loop.call_at(until, done)
        if awaited is None:  # it only lets others go first
            loop.call_soon(done)
        else:
            awaited._asyncio_future_blocking = False  # as a task does that takes it over
            awaited.add_done_callback(done)
        error = yield from _wait(work, _handed_over(watched))
        timer.cancel()
        if awaited is not None:
            awaited.remove_done_callback(done)
        if error is None and loop.time() >= until:
            raise Ignored(loop.create_task(_rest(work, awaited)))
        if error is None or awaited is None or not awaited.cancel():
            return error
        # Cut once more: as with a task, the call hears of it when what it waits for has ended.


def _settle(watched: _Watched, _: object = None) -> None:
    if not watched.done():
        watched.set_result(None)


def _handed_over(future: Any) -> Any:
    """As a coroutine gives a future to its task."""
    future._asyncio_future_blocking = True
    return future


async def _rest(work: Coroutine[Any, Any, Any], awaited: Any) -> Any:
    if awaited is not None:
        await asyncio.wait({awaited})
    return await await_detachable(work, lambda: None)
