"""Group commit: one writer gathers what all executions want written and commits it in one transaction.

Pure asyncio around an injected store. While one commit is under way, the next batch fills up; so the more there is to
do, the fewer syncs each write costs. Nobody is told of a write before it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.journal.store import Store, Write, Written

RELEASED_AT_ONCE = 128

Done = Callable[[Written | HoldfastError], None]


class Batch:
    """What goes into the next transaction. Closed to additions once its commit begins."""

    __slots__ = ("callbacks", "is_open", "waiters", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.callbacks: list[Done | None] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.is_open = True


class Writer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.batch = Batch()
        self._under_way: Batch | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.commits = 0

    def submit(self, write: Write, done: Done | None = None) -> Batch:
        """Put a write into the next transaction; `done` is called with what became of it."""
        if self._closing:
            raise StoreUnavailable("the journal was closed")
        batch = self.batch
        batch.writes.append(write)
        batch.callbacks.append(done)
        if len(batch.writes) == 1:
            self._wanted.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-writer")
        return batch

    async def write(self, write: Write) -> Written:
        """Write and wait until it is durable."""
        return await self._written(write)

    async def write_together(self, writes: Sequence[Write]) -> list[Written]:
        """Several writes in one transaction: a death leaves all of them or none."""
        return list(await asyncio.gather(*[self._written(write) for write in writes]))

    def _written(self, write: Write) -> asyncio.Future[Written]:
        loop = asyncio.get_running_loop()
        if self._task is not None and self._task.get_loop() is not loop:  # the task that commits does not run here
            raise StoreUnavailable(
                "this engine was opened in another event loop or before a fork; open a new one in the child process"
            )
        future: asyncio.Future[Written] = loop.create_future()

        def done(result: Written | HoldfastError) -> None:
            if future.done():
                return
            if isinstance(result, Written):
                future.set_result(result)
            else:
                future.set_exception(result)

        self.submit(write, done)
        return future

    async def flush(self) -> None:
        """Wait until everything submitted so far is durable, or has failed."""
        batch = self.batch if self.batch.writes else self._under_way
        if batch is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(future)
            await future

    async def close(self) -> None:
        with suppress(HoldfastError):
            await self.flush()
        self._closing = True
        if self._task is not None:
            self._wanted.set()
            await self._task

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            batch, self.batch = self.batch, Batch()
            batch.is_open = False
            if batch.writes:
                self._under_way = batch
                await self._commit(batch)
                self._under_way = None
                # A log keeps its newest batch: that must not keep the others of the batch, and theirs, in memory.
                batch.writes, batch.callbacks, batch.waiters = [], [], []
            if self._closing and not self.batch.writes:
                return
            if self.batch.writes:
                self._wanted.set()

    async def _commit(self, batch: Batch) -> None:
        try:
            results = await self._store.commit(batch.writes)
        except HoldfastError as error:
            self._fail(batch, error)
            return
        except Exception as error:
            self._fail(batch, StoreUnavailable(f"the journal could not be written: {error!r}"))
            return
        self.commits += 1
        for callback, result in zip(batch.callbacks, results, strict=True):
            if callback is not None:
                _tell(callback, result)
        self._release(batch.waiters, 0)

    def _release(self, waiters: list[asyncio.Future[None]], first: int) -> None:
        """Let those go on who waited, a few at a time: what the first ones write is committed while others run."""
        for waiter in waiters[first : first + RELEASED_AT_ONCE]:
            if not waiter.done():
                waiter.set_result(None)
        if first + RELEASED_AT_ONCE < len(waiters):
            asyncio.get_running_loop().call_soon(self._release, waiters, first + RELEASED_AT_ONCE)

    def _fail(self, batch: Batch, error: HoldfastError) -> None:
        """Nothing of the batch was written. Everybody who wanted something hears of it."""
        for callback in batch.callbacks:
            if callback is not None:
                _tell(callback, error)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_exception(error)


def _tell(callback: Done, result: Written | HoldfastError) -> None:
    """One listener that stumbles must not keep the news from the others, nor end the writer."""
    try:
        callback(result)
    except Exception as error:
        context = {"message": "holdfast: a listener of the journal failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
