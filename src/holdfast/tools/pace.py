"""Taking turns: how many at once, and how many in a second, fair between executions.

Owns what calls wait for, a `Gate`, and three of them: `Places` (so many at the same time), `Pacer` (so many in a
stretch of time) and `Turns` (both, in one line).
Whoever waits is served one execution after the other, so that one with a thousand calls does not starve one with two.
Refuses to be shared between event loops: a limit belongs to one engine.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from holdfast.core.durations import parse_duration
from holdfast.core.errors import InputInvalid
from holdfast.core.suggest import describe_value

CATCH_UP_PART = 0.05  # of a rate's stretch of time: so much may be made up for after a delay
CALLS_MAX = 1_000_000
_RATE = re.compile(r"\s*([0-9]{1,7})\s*/\s*([0-9.]*)\s*(ms|s|m|h|d)\s*", re.ASCII)


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


class Line:
    """Who waits: each execution has its turn, and within one, whoever came first."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, who: str) -> asyncio.Future[None]:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(place)
        return place

    def leave(self, who: str, place: asyncio.Future[None]) -> None:
        others = self._waiting.get(who)
        if others is not None and place in others:
            others.remove(place)
            if not others:
                del self._waiting[who]

    def call_next(self) -> bool:
        """Let the next one go on; False if nobody waits."""
        while self._waiting:
            who, others = next(iter(self._waiting.items()))
            place = others.popleft()
            del self._waiting[who]
            if others:
                self._waiting[who] = others  # at the end: the other executions come first now
            if not place.done():
                place.set_result(None)
                return True
        return False


class Gate(Protocol):
    """Something a call may have to wait for. Whoever is let in holds its place until it gives it back."""

    def take_now(self) -> bool:
        """Go in, if nobody else has to go first."""
        ...

    def join(self, who: str) -> asyncio.Future[None]:
        """Wait in line; when the future is done, the place is held."""
        ...

    def leave(self, who: str, place: asyncio.Future[None]) -> None:
        """Stop waiting. A place that was handed over in the same moment goes to the next one."""
        ...

    def give_back(self) -> None: ...


async def wait_turn(gate: Gate, who: str) -> None:
    """Go in now or when one's turn has come."""
    if gate.take_now():
        return
    place = gate.join(who)
    try:
        await place
    except asyncio.CancelledError:
        gate.leave(who, place)
        raise


class Places:
    """At most `limit` at the same time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._line = Line()

    @asynccontextmanager
    async def hold(self, who: str) -> AsyncGenerator[None]:
        await wait_turn(self, who)
        try:
            yield
        finally:
            self.give_back()

    def take_now(self) -> bool:
        if self.used < self.limit and not self._line:
            self.used += 1
            return True
        return False

    def join(self, who: str) -> asyncio.Future[None]:
        return self._line.join(who)  # whoever leaves hands the place over, so `used` stays as it is then

    def leave(self, who: str, place: asyncio.Future[None]) -> None:
        self._line.leave(who, place)
        if place.done() and not place.cancelled():
            self.give_back()

    def give_back(self) -> None:
        if self.used > self.limit or not self._line.call_next():
            self.used -= 1

    def resize(self, limit: int) -> None:
        """More or fewer from now on; nobody who is in is sent away."""
        self.limit = limit
        while self.used < limit and self._line.call_next():
            self.used += 1


class Pacer:
    """One after the other, each an interval after the one before; time that nobody used is not saved up."""

    def __init__(self, rate: Rate) -> None:
        self._interval_s = rate.interval_s
        self._late_s_max = rate.per_s * CATCH_UP_PART
        self._next_at = float("-inf")
        self._line = Line()
        self._timer: asyncio.TimerHandle | None = None

    def is_at_rest(self) -> bool:
        """Whoever comes next need not wait, and nobody does."""
        return not self._line and asyncio.get_running_loop().time() >= self._next_at

    async def take(self, who: str) -> None:
        await wait_turn(self, who)

    def take_now(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._next_at and not self._line:
            self._next_at = now + self._interval_s
            return True
        return False

    def join(self, who: str) -> asyncio.Future[None]:
        place = self._line.join(who)
        self._arm(asyncio.get_running_loop())
        return place

    def leave(self, who: str, place: asyncio.Future[None]) -> None:
        self._line.leave(who, place)
        if place.done() and not place.cancelled():
            self.give_back()

    def give_back(self) -> None:
        """The call was not made after all: the next one may be made in its place."""
        self._next_at -= self._interval_s
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._tick(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and self._line:
            self._timer = loop.call_at(self._next_at, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """From the time it was due, not from now: a loop that is a little late must not slow everybody down for good.

        One that stood still must not make up for it either: the other side would see all of them at once.
        """
        self._timer = None
        self._next_at = max(self._next_at, loop.time() - self._late_s_max)
        while loop.time() >= self._next_at and self._line.call_next():
            self._next_at += self._interval_s
        self._arm(loop)


class Turns:
    """At most `limit` at the same time, and no faster than a rate: both in one line, for a host and the like.

    With a line for each, whoever has waited in one would give it up for the other, and all of them would again.
    """

    def __init__(self, limit: int, rate: Rate | None = None) -> None:
        self.limit = limit
        self.used = 0
        self._interval_s = rate.interval_s if rate is not None else 0.0
        self._late_s_max = rate.per_s * CATCH_UP_PART if rate is not None else 0.0
        self._next_at = float("-inf")
        self._line = Line()
        self._timer: asyncio.TimerHandle | None = None

    def is_at_rest(self) -> bool:
        """Nobody is in or waits, and whoever comes next need not."""
        return not self.used and not self._line and asyncio.get_running_loop().time() >= self._next_at

    def take_now(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self.used < self.limit and now >= self._next_at and not self._line:
            self.used += 1
            self._next_at = now + self._interval_s
            return True
        return False

    def join(self, who: str) -> asyncio.Future[None]:
        place = self._line.join(who)
        self._move()
        return place

    def leave(self, who: str, place: asyncio.Future[None]) -> None:
        self._line.leave(who, place)
        if place.done() and not place.cancelled():
            self.give_back()

    def give_back(self) -> None:
        """The call was not made after all: the next one may be made in its place."""
        self._next_at -= self._interval_s
        self.over()

    def over(self) -> None:
        """The call was made, and has ended."""
        self.used -= 1
        self._move()

    def _move(self) -> None:
        """Let in whoever may go in now, and come back when the next one may. See `Pacer` for what is made up for."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            self._next_at = max(self._next_at, loop.time() - self._late_s_max)
        while self.used < self.limit and loop.time() >= self._next_at and self._line.call_next():
            self.used += 1
            self._next_at += self._interval_s
        if self._line and self.used < self.limit:
            self._timer = loop.call_at(self._next_at, self._move)


class Turn:
    """One that was taken. It ends once: with the call, or before, when the tool is done with the host."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._is_over = False

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.turns.over()
