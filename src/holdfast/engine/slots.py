"""How many executions may run at once in this process. Waiting ones hold no slot."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A fair counter: whoever asked first is served first."""

    def __init__(self, limit: int, parked_max: int) -> None:
        self.limit = limit
        self.parked_max = parked_max
        self.used = 0
        self.parked = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used - len(self._queue))

    def take_now(self) -> bool:
        """A place, if there is one that nobody queues for."""
        if self.used < self.limit and not self._queue:
            self.used += 1
            return True
        return False

    async def acquire(self) -> None:
        if self.take_now():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()  # it was served and cancelled in the same moment
            raise

    def release(self) -> None:
        while self._queue:
            future = self._queue.popleft()
            if not future.done():
                future.set_result(None)  # the place goes from hand to hand
                return
        self.used -= 1


class Slot:
    """One execution's place: held while it runs, given away while it waits."""

    def __init__(self, slots: Slots, held: bool = False) -> None:
        self._slots = slots
        self._parked = False
        self._asking: asyncio.Event | None = None  # set when the one who asks for all branches has an answer
        self.held = held

    async def acquire(self) -> None:
        while not self.held:
            if self._asking is not None:
                await self._asking.wait()  # one place is enough for all branches
                continue
            self._asking = asyncio.Event()
            try:
                await self._slots.acquire()
                self.held = True
            finally:
                self._asking.set()
                self._asking = None
        self._unpark()

    def take_now(self) -> bool:
        if not self.held and not self._slots.take_now():
            return False
        self.held = True
        self._unpark()
        return True

    def give_away(self) -> None:
        """The execution waits; its driver stays in memory for a while."""
        self.release()
        self._parked = True
        self._slots.parked += 1

    def release(self) -> None:
        self._unpark()
        if self.held:
            self.held = False
            self._slots.release()

    def _unpark(self) -> None:
        if self._parked:
            self._parked = False
            self._slots.parked -= 1

    def crowded(self) -> bool:
        """Too many executions wait in memory; the next one should sleep at once."""
        return self._slots.parked >= self._slots.parked_max
