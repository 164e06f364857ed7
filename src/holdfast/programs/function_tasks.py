"""Which asyncio tasks belong to a running function, so that it is known when none of them can run.

A task that a function creates with `asyncio.create_task`, `asyncio.gather` or a `TaskGroup` belongs to that function.
To see them all, the event loop gets a task factory while functions run on it. It calls the factory that was there
before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

AnyTask = asyncio.Task[Any]
Made = Callable[[AnyTask, AnyTask], None]  # told the task that creates another one, and the other one


class TaskCounter:
    """The task factory of one event loop, as long as functions run on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._previous = cast("Callable[..., AnyTask] | None", loop.get_task_factory())
        self._told: dict[AnyTask, Made] = {}
        self._functions = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> AnyTask:
        make = self._previous
        made = make(loop, coroutine, **options) if make is not None else asyncio.Task(coroutine, loop=loop, **options)
        creator = asyncio.current_task(loop)
        if creator is not None and (told := self._told.get(creator)) is not None:
            told(creator, made)
        return made

    def add(self, task: AnyTask, made: Made) -> None:
        self._told[task] = made

    def remove(self, task: AnyTask) -> None:
        self._told.pop(task, None)

    def begin(self) -> None:
        self._functions += 1

    def end(self) -> None:
        self._functions -= 1
        if not self._functions and cast("Any", self._loop.get_task_factory()) is self:
            self._loop.set_task_factory(cast("Any", self._previous))


def counter_of(loop: asyncio.AbstractEventLoop) -> TaskCounter:
    found: Any = loop.get_task_factory()
    if isinstance(found, TaskCounter):
        return found
    counter = TaskCounter(loop)
    loop.set_task_factory(cast("Any", counter))
    return counter


def can_run(task: AnyTask) -> bool:
    """Whether a task has a turn to come: it waits for nothing, or for something that has come."""
    if task.done():
        return False
    waits_for: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return waits_for is None or waits_for.done()


def current() -> AnyTask:
    return cast("AnyTask", asyncio.current_task())
