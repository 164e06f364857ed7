"""Who is alive on PostgreSQL: each driver has a lease that runs out by the server's clock unless it is renewed.

A task of the event loop renews it, on a connection of its own, four times in a lease's length. A task and not a thread,
on purpose: a process whose event loop stands still drives nothing, however alive its threads are, and must lose what it
holds. If it wakes up later, the fence refuses what it writes.

Whoever slept longer than a lease, as a laptop does with all its processes and perhaps the server, does not judge at
once: the others may only just be waking up, too, and get the length of a lease to say so.

The port is synchronous, so `is_dead` answers from the last look. What was not seen dead counts as alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta

from holdfast.core.errors import JournalError
from holdfast.journal.postgres.address import PostgresAddress
from holdfast.journal.postgres.connection import Connection, PostgresConnection, statements

RENEWALS = 4  # in the length of a lease: three may fail or come late

log = logging.getLogger("holdfast")


class Leases:
    """Implements `Liveness`. Drivers are registered before the store is first used: it writes their leases at once."""

    def __init__(self, address: PostgresAddress, clock: Callable[[], float] = time.time) -> None:
        """`clock` goes on while the machine sleeps, which the event loop's own does not."""
        self._clock = clock
        self._renewed_at = float("inf")
        self._judges_from = float("-inf")
        self._length = timedelta(seconds=address.lease_s)
        self._ours: set[str] = set()
        self._released: set[str] = set()
        self._dead: set[str] = set()
        self._is_written = False
        self._renewing: asyncio.Task[None] | None = None

    def register(self, driver: str) -> None:
        self._ours.add(driver)

    def is_dead(self, driver: str) -> bool:
        return driver in self._dead and driver not in self._ours

    def release(self, driver: str) -> None:
        """The lease is not renewed from now on, and ends when the store is closed."""
        if driver in self._ours:
            self._ours.discard(driver)
            self._released.add(driver)

    def tidy(self, holders: Collection[str]) -> None:
        """Done by the server with every renewal, which knows the holders itself."""

    # ---- for the store --------------------------------------------------------------------------------------------

    async def write(self, connection: Connection) -> None:
        """Renew our leases, whether or not they had run out."""
        if self._ours:
            values = {"drivers": sorted(self._ours), "length": self._length}
            await connection.execute(statements()["renew_leases"], values)
            self._is_written = True
            if self._has_slept():
                self._judges_from = self._clock() + self._length.total_seconds()
            self._renewed_at = self._clock()

    async def look(self, connection: Connection) -> list[str]:
        """Everybody who holds an execution; those whose lease has run out are dead from now on."""
        cursor = await connection.execute(statements()["holders"])
        holders = await cursor.fetchall()
        expired = {driver for driver, is_dead in holders if is_dead}
        may_judge = not self._has_slept() and self._clock() >= self._judges_from
        self._dead = expired if may_judge else expired & self._dead
        return [driver for driver, _ in holders]

    def _has_slept(self) -> bool:
        return self._clock() - self._renewed_at > self._length.total_seconds()

    def keep(self, link: PostgresConnection) -> None:
        """Renew from now on, if there is anything to renew."""
        if self._ours and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.get_running_loop().create_task(self._renew(link), name="holdfast-leases")

    async def _renew(self, link: PostgresConnection) -> None:
        while self._ours:
            try:
                async with link.use() as connection:
                    await self.write(connection)
                    await connection.execute(statements()["tidy_leases"])
                    await self.look(connection)
            except JournalError as error:
                log.warning("the lease of this process cannot be renewed: %s", error)
            await asyncio.sleep(self._length.total_seconds() / RENEWALS)

    async def close(self, link: PostgresConnection) -> None:
        """Stop renewing, and give back at once what was released."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
            self._renewing = None
        if self._released and self._is_written:
            with suppress(JournalError):  # then it runs out by itself
                async with link.use() as connection:
                    await connection.execute(statements()["drop_leases"], (sorted(self._released),))
