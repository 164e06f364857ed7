"""Taking turns: how many at once, and how many in a second, fair between executions.

Owns the one fair queue of the project, `FairQueue`: each execution has its turn, so that one with a thousand calls does
not starve one with two. Calls wait in it before a `Gate`: `Places` (so many at the same time), `Pacer` (so many in a
stretch of time), `Turns` (both), and the breakers of the engine. `def` tools wait in it for a thread.
A gate belongs to one event loop: a limit belongs to one engine.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, TypeVar

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid

CATCH_UP_PART = 0.05  # of a rate's stretch of time: so much may be made up for after a delay
CALLS_MAX = 1_000_000
_RATE = re.compile(r"\s*([0-9]{1,7})\s*/\s*([0-9.]*)\s*(ms|s|m|h|d)\s*", re.ASCII)
T = TypeVar("T")


class Rate(NamedTuple):
    """At most `calls` in every stretch of `per_s` seconds, evenly spaced."""

    calls: int
    per_s: float

    @property
    def interval_s(self) -> float:
        return self.per_s / self.calls


def parse_rate(text: str) -> Rate:
    """`10/s`, `100/m`, `5/2s`. Raises `InputInvalid`."""
    found = _RATE.fullmatch(text)
    calls = int(found[1]) if found else 0
    if found is None or not 1 <= calls <= CALLS_MAX:
        raise InputInvalid(f'expected a rate such as "10/s", "100/m" or "5/2s", got {describe_value(text)}')
    per_s = parse_duration(f"{found[2] or 1}{found[3]}")
    if per_s == 0:
        raise InputInvalid(f"expected a rate over more than 0 seconds, got {describe_value(text)}")
    return Rate(calls, per_s)


class FairQueue(Generic[T]):
    """Serves one execution after the other, and the items of one execution in the order in which they came."""

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, execution_id: str) -> bool:
        return execution_id in self._items

    def put(self, execution_id: str, item: T) -> None:
        self._items.setdefault(execution_id, deque()).append(item)
        self._length += 1

    def remove(self, execution_id: str, item: T) -> bool:
        """False if it is not in the queue, or not any more."""
        own = self._items.get(execution_id)
        if own is None or item not in own:
            return False
        own.remove(item)
        self._length -= 1
        if not own:
            del self._items[execution_id]
        return True

    def pop(self) -> T | None:
        for execution_id, own in self._items.items():
            item = own.popleft()
            self._length -= 1
            del self._items[execution_id]
            if own:
                self._items[execution_id] = own  # at the end: the other executions come first now
            return item
        return None


class Gate(ABC):
    """What a call may have to wait for. A call that is let in holds its place until it gives it back."""

    def __init__(self) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    @abstractmethod
    def take_now(self) -> bool:
        """Go in, if no other call has to go first."""

    @abstractmethod
    def give_back(self) -> None: ...

    async def take(self, execution_id: str) -> None:
        """Go in now, or wait for it."""
        if self.take_now():
            return
        place = self.join(execution_id)
        try:
            await place
        except asyncio.CancelledError:
            self.leave(execution_id, place)
            raise

    def join(self, execution_id: str) -> asyncio.Future[None]:
        """Wait in the queue; when the future is done, the place is held."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(execution_id, place)
        return place

    def leave(self, execution_id: str, place: asyncio.Future[None]) -> None:
        """Stop waiting. A place that was handed over in the same moment goes to the next one."""
        if not self._queue.remove(execution_id, place) and place.done() and not place.cancelled():
            self.give_back()

    def _admit_next(self) -> bool:
        """Let the next one in; False if none waits."""
        while (place := self._queue.pop()) is not None:
            if not place.done():
                place.set_result(None)
                return True
        return False


class Places(Gate):
    """At most `limit` at the same time."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.used = 0

    @asynccontextmanager
    async def hold(self, execution_id: str) -> AsyncGenerator[None]:
        await self.take(execution_id)
        try:
            yield
        finally:
            self.give_back()

    def take_now(self) -> bool:
        if self.used < self.limit and not self._queue:
            self.used += 1
            return True
        return False

    def give_back(self) -> None:
        if not self._admit_next():  # else the place goes from hand to hand
            self.used -= 1


class Pacer(Gate):
    """One after the other, each an interval after the one before; time that was not used is not saved up."""

    def __init__(self, rate: Rate | None) -> None:
        super().__init__()
        self._interval_s = rate.interval_s if rate is not None else 0.0
        self._late_s_max = rate.per_s * CATCH_UP_PART if rate is not None else 0.0
        self._next_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def take_now(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._next_at and not self._queue:
            self._next_at = now + self._interval_s
            return True
        return False

    def give_back(self) -> None:
        """The call was not made after all: the next one may be made in its place."""
        self._next_at -= self._interval_s
        self._serve()

    def join(self, execution_id: str) -> asyncio.Future[None]:
        place = super().join(execution_id)
        self._serve()
        return place

    def _serve(self) -> None:
        """Let in what may go in now, and come back when the next one may.

        The interval counts from the time a call was due, not from now: a loop that is a little late must not slow
        everything down for good. One that stood still must not make up for it either: the other side would see all of
        them at once.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._next_at = max(self._next_at, now - self._late_s_max)
        while now >= self._next_at and self._admit_next():
            self._next_at += self._interval_s
        if self._queue and now < self._next_at:
            self._timer = loop.call_at(self._next_at, self._serve)


class Turns(Pacer):
    """At most `limit` at the same time, and no faster than a rate: both in one queue, for a host and the like.

    With a queue for each, a call that has waited in one would give it up for the other, and all of them would again.
    """

    def __init__(self, limit: int, rate: Rate | None = None) -> None:
        super().__init__(rate)
        self.limit = limit
        self.used = 0

    def is_at_rest(self) -> bool:
        """None is in or waits, and the next one need not wait."""
        return not self.used and not self._queue and asyncio.get_running_loop().time() >= self._next_at

    def take_now(self) -> bool:
        if self.used < self.limit and super().take_now():
            self.used += 1
            return True
        return False

    def give_back(self) -> None:
        self.used -= 1
        super().give_back()

    def over(self) -> None:
        """The call was made, and has ended."""
        self.used -= 1
        self._serve()

    def _admit_next(self) -> bool:
        if self.used < self.limit and super()._admit_next():
            self.used += 1
            return True
        return False


class Turn:
    """One that was taken. It ends once: with the call, or before, when the tool is done with the host."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._is_over = False

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.turns.over()
