"""How many executions may run at once in this process. Waiting ones hold no slot."""

from __future__ import annotations

import asyncio

from holdfast.tools.runtime.fair_queue import Places


class Slots(Places):
    def __init__(self, limit: int, parked_max: int) -> None:
        super().__init__(limit)
        self.parked_max = parked_max
        self.parked = 0

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used - len(self._queue))


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
                await self._slots.take("")  # one queue: whoever asked first is served first
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
            self._slots.give_back()

    def _unpark(self) -> None:
        if self._parked:
            self._parked = False
            self._slots.parked -= 1

    def crowded(self) -> bool:
        """Too many executions wait in memory; the next one should sleep at once."""
        return self._slots.parked >= self._slots.parked_max
