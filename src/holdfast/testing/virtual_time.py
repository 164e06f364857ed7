"""Time that passes as fast as the work allows: an asyncio loop that jumps to its next timer instead of sleeping.

A month of waiting takes milliseconds, and two runs of the same program take the same turns in the same order. Work in
other threads takes real time: as long as there is some, the loop waits for it and its clock stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from holdfast.tools.runtime.thread_pool import pool

T = TypeVar("T")
START_US = 1_800_000_000_000_000  # when virtual time begins: in January 2027
THREADS_LOOK_S = 0.01


class NothingWillHappen(RuntimeError):
    """Everything waits, and no timer is set: whatever is awaited will never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.passed_s = 0.0
        self._tasks_made = 0
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = 1e-6  # asyncio's nanosecond is lost in rounding after half a year: timers never ring
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self.passed_s

    def jump(self, seconds: float) -> None:
        self.passed_s += seconds

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        context: Context | None = None,
        name: str | None = None,
    ) -> asyncio.Task[T]:
        self._tasks_made += 1
        return NumberedTask(coro, self._tasks_made, loop=loop, context=context, name=name)


class NumberedTask(asyncio.Task[T]):
    """A task that is hashed by its number and not by its address, so that sets of tasks are walked in one order."""

    def __init__(self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], number: int, **options: Any) -> None:
        self.number = number  # first of all: it is kept in sets from the moment it is made
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        while pool.busy and (timeout is None or timeout > 0):
            ready = super().select(THREADS_LOOK_S)
            if ready:
                return ready
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise NothingWillHappen("everything waits and no timer is set: what is awaited will never come")
        self._virtual.jump(timeout)
        return ready


class VirtualClock:
    """The wall clock of a virtual loop. `offset_us` may be changed: clocks are set back and forward."""

    def __init__(self, loop: VirtualLoop, start_us: int = START_US) -> None:
        self._loop = loop
        self._start_us = start_us
        self.offset_us = 0

    def now_us(self) -> int:
        return self._start_us + self.offset_us + round(self._loop.passed_s * 1e6)


def run_virtually(work: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """Run a coroutine to its end in virtual time, as `asyncio.run` would in real time."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualLoop()) as runner:
        return runner.run(work)
