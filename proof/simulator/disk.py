"""The simulated store: one shared truth, and one port per process through which it is slow, fails, or answers too late.

A commit travels, takes effect, and travels back; a process that dies on the way there has written nothing, one that
dies on the way back has written without knowing it. What was still in the writer's batch is gone either way. A power
cut is the death of all processes at once: a commit that nobody was told of is there whole or not at all. What a disk
makes of a commit that it has begun and not yet synced is shown elsewhere, on the real store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from random import Random
from typing import TypeVar

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.codec import Row
from holdfast.journal.keyed import ROWS_PAGE, KeyedRow
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Head, Hold, Query, Stored, Write, Written
from holdfast.testing.simulated_processes import Process
from proof.simulator.history import Committed, Deleted, Fault, Held, History, Reopened

T = TypeVar("T")


class DiskWeather(msgspec.Struct, kw_only=True):
    """How a process's disk does right now. Chances are per operation."""

    kind: str = ""  # what is wrong with it
    commit_s: float = 0.002
    read_s: float = 0.0005
    lost_before: float = 0.0  # fails, and nothing was written
    lost_after: float = 0.0  # fails, but it was written all the same
    late: float = 0.0  # fails, and is written some time after everybody heard that it was not
    read_fails: float = 0.0


FAIR = DiskWeather()


class SimulatedStore:
    """What one process sees of the shared store."""

    def __init__(self, shared: MemoryStore, process: Process, history: History, rng: Random) -> None:
        self._shared = shared
        self._process = process
        self._history = history
        self._dice = rng
        self._loop = asyncio.get_running_loop()
        self.weather = FAIR
        self.is_gone = False  # and another one has taken its place: what was still on its way arrives nowhere

    # ---- writing ------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        await self._travel(self.weather.commit_s)
        if self._dice.random() < self.weather.lost_before:
            self._strike("nothing was written")
            raise StoreUnavailable("simulated: the disk failed, nothing was written")
        if self._dice.random() < self.weather.late:
            # Outside of the process: a server finishes what it was told, even if whoever told it is dead.
            self._loop.call_later(self._dice.random() * 3, self._arrive_late, list(writes), context=Context())
            self._strike("it will be written")
            raise StoreUnavailable("simulated: the connection broke while it was written")
        line = await self._commit(writes)
        await self._travel(self.weather.commit_s)
        if self._dice.random() < self.weather.lost_after:
            self._strike("it was written")
            raise StoreUnavailable("simulated: the disk failed after writing")
        if self.weather.commit_s > FAIR.commit_s:
            self._strike("it took long")
        line.acknowledged_us = self._now_us()
        return line.results

    async def _commit(self, writes: Sequence[Write]) -> Committed:
        results = await self._shared.commit(writes)
        line = Committed(at_us=self._now_us(), process=self._process.name, writes=list(writes), results=results)
        self._history.write(line)
        for hold in (write for write in writes if isinstance(write, Hold)):
            self._held(hold)
        return line

    def _held(self, hold: Hold) -> None:
        heads = {head.id: head for head in self._shared.all_heads()}
        held = [one for one in hold.execution_ids if one in heads and heads[one].held == hold.why]
        line = Held(at_us=self._now_us(), process=self._process.name, execution_ids=held, why=hold.why)
        self._history.write(line)

    def _strike(self, text: str) -> None:
        line = Fault(at_us=self._now_us(), process=self._process.name, kind=self.weather.kind, text=text)
        self._history.write(line)

    def _arrive_late(self, writes: list[Write]) -> None:
        if not self.is_gone:
            self._loop.create_task(self._commit(writes))

    async def delete(self, execution_ids: Sequence[str]) -> list[str]:
        await self._travel(self.weather.commit_s)
        if self._dice.random() < self.weather.lost_before:
            self._strike("nothing was deleted")
            raise StoreUnavailable("simulated: the disk failed, nothing was deleted")
        gone = await self._shared.delete(execution_ids)
        wanted = list(execution_ids)
        line = Deleted(at_us=self._now_us(), process=self._process.name, execution_ids=gone, wanted=wanted)
        self._history.write(line)
        await self._travel(self.weather.commit_s)
        return gone

    async def would_delete(self, execution_ids: Sequence[str]) -> list[str]:
        return await self._read(lambda: self._shared.would_delete(execution_ids))

    async def deleted(self) -> list[str]:
        return await self._read(self._shared.deleted)

    def _now_us(self) -> int:
        return round(self._loop.time() * 1e6)

    # ---- reading ------------------------------------------------------------------------------------------------

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        await self._travel(self.weather.read_s)
        if self._dice.random() < self.weather.read_fails:
            self._strike("nothing was read")
            raise StoreUnavailable("simulated: the disk cannot be read")
        return await read()

    async def _travel(self, typical_s: float) -> None:
        if not self._process.is_alive:
            raise StoreUnavailable("simulated: this process is dead")
        await asyncio.sleep(self._dice.random() * 2 * typical_s)

    async def load(self, execution_id: str) -> Stored:
        stored = await self._read(lambda: self._shared.load(execution_id))
        if stored.snapshot is not None:
            line = Reopened(
                at_us=self._now_us(),
                process=self._process.name,
                execution_id=execution_id,
                snapshot_seq=stored.snapshot.seq,
                events=len(stored.rows),
            )
            self._history.write(line)
        return stored

    async def events(self, execution_id: str, after: int, limit: int) -> tuple[bytes, list[Row]]:
        return await self._read(lambda: self._shared.events(execution_id, after, limit))

    async def head(self, execution_id: str) -> Head:
        return await self._read(lambda: self._shared.head(execution_id))

    async def find(self, fragment: str, limit: int = 2) -> list[str]:
        return await self._read(lambda: self._shared.find(fragment, limit))

    async def heads(self, query: Query) -> list[Head]:
        return await self._read(lambda: self._shared.heads(query))

    async def count(self, query: Query) -> int:
        return await self._read(lambda: self._shared.count(query))

    async def drivers(self) -> list[str]:
        return await self._read(self._shared.drivers)

    async def claimable(self, now: int, drivers: Sequence[str], limit: int) -> list[Head]:
        return await self._read(lambda: self._shared.claimable(now, drivers, limit))

    async def blob(self, digest: str) -> bytes:
        return await self._read(lambda: self._shared.blob(digest))

    async def cached(self, key: str, now: int) -> bytes | None:
        return await self._read(lambda: self._shared.cached(key, now))

    async def row(self, space: str, key: str) -> KeyedRow | None:
        return await self._read(lambda: self._shared.row(space, key))

    async def rows(
        self, space: str, prefix: str = "", *, after: str | None = None, limit: int = ROWS_PAGE
    ) -> list[KeyedRow]:
        return await self._read(lambda: self._shared.rows(space, prefix, after=after, limit=limit))

    async def command(self, command_id: str) -> Command | None:
        return await self._read(lambda: self._shared.command(command_id))

    async def answer(self, command_id: str) -> Answer | None:
        return await self._read(lambda: self._shared.answer(command_id))

    async def pending(self, execution_ids: Sequence[str] | None = None, *, after: str = "") -> list[Command]:
        return await self._read(lambda: self._shared.pending(execution_ids, after=after))

    def changes(self) -> int:
        return self._shared.changes()

    async def close(self) -> None: ...


class SimulatedLiveness:
    """Who is alive, as the others see it: a death is noticed a little later, and the living can be taken for dead."""

    def __init__(self, everybody: dict[str, SimulatedLiveness], process: Process, rng: Random, slow_s: float) -> None:
        self._everybody = everybody
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._noticed_after_s = rng.random() * slow_s
        self._died_s: float | None = None
        self.is_deposed = False

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def register(self, driver: str) -> None:
        self._everybody[driver] = self

    def is_dead(self, driver: str) -> bool:
        other = self._everybody.get(driver)
        return other is None or other.looks_dead()

    def looks_dead(self) -> bool:
        if self.is_deposed:
            return True
        if self._process.is_alive:
            return False
        if self._died_s is None:
            self._died_s = self._loop.time()
        return self._loop.time() - self._died_s >= self._noticed_after_s

    def release(self, driver: str) -> None:
        self._everybody.pop(driver, None)

    def tidy(self, holders: object) -> None:
        """Nothing is left behind."""
