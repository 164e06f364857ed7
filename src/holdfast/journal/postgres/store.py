"""The journal in a PostgreSQL database, shared by processes of any machine: one schema a store.

Owns the transaction, its retries and what is read in one moment. Four connections: one writes, one reads, one listens
for what others wrote, one renews leases. What a transaction writes is in commit.py, what rows mean in
rows.py, who is alive in leases.py. Nothing is opened before the first call.
"""

# sentences of others: Postgres, for the status of a transaction

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import NotFound, StoreCorrupted, StoreUnavailable
from holdfast.journal.codec import CHAIN_START, Row, Snapshot
from holdfast.journal.keyed import ROWS_PAGE, KeyedRow, check_place, span
from holdfast.journal.postgres.address import parse_address
from holdfast.journal.postgres.commit import Tidying, write_all
from holdfast.journal.postgres.connection import Connection, PostgresConnection, is_lost, statements
from holdfast.journal.postgres.delete import delete_some, families
from holdfast.journal.postgres.leases import Leases
from holdfast.journal.postgres.migrate import admit
from holdfast.journal.postgres.reconnect import AWAY_S, Absence
from holdfast.journal.postgres.rows import HeadRow, command_of, query_values, read_heads
from holdfast.journal.store import Head, Quarantine, Query, Stored, Write, Written

TRIES = 5  # of a transaction that met another one's locks, or whose commit was cut off
WAIT_S = 0.02  # at most, before the second try; twice as long before each that follows
BLIND_S = 0.5  # while nobody tells us what others write, something may have changed this often
T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]


class _Unseen(Exception):
    """The connection was lost during a COMMIT: whether it was made must be asked, on another connection."""

    def __init__(self, number: str, result: Any) -> None:
        super().__init__(number)
        self.number = number
        self.result = result


class PostgresStore:
    def __init__(self, url: str) -> None:
        self.address = parse_address(url)
        self.leases = Leases(self.address)
        self._sql = statements()
        self._tidying = Tidying()
        self._absence = Absence(self.address)
        self._us = uuid.uuid4().hex.encode()
        self._channel = f"holdfast:{self.address.schema}"
        self._changes = 0
        self._blind_at = 0.0
        self._writing = PostgresConnection(self.address, self._admit)
        self._reading = PostgresConnection(self.address, self._admit)
        self._leasing = PostgresConnection(self.address, self._admit)
        self._listening = PostgresConnection(self.address, self._listen)

    async def _admit(self, connection: Connection) -> None:
        await admit(connection, self.address, self.leases)
        self._absence.was_there = True

    async def _listen(self, connection: Connection) -> None:
        await connection.execute(f'LISTEN "{self._channel}"'.encode())
        self._changes += 1  # what happened before is not told

    async def _attend(self) -> None:
        """What must run beside every call: listening, and renewing our leases."""
        self._listening.check_usable()
        if not self._listening.is_connected:
            async with self._listening.use():
                pass
        self.leases.keep(self._leasing)

    # ---- writing ------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        return await self._transact(lambda connection: write_all(connection, writes, self._tidying))

    async def delete(self, execution_ids: Sequence[str]) -> list[str]:
        gone: list[str] = []
        left: Sequence[str] = list(execution_ids)
        while left:
            now = left
            some, left = await self._transact(lambda connection, now=now: delete_some(connection, now))
            gone += some
        return gone

    async def would_delete(self, execution_ids: Sequence[str]) -> list[str]:
        async def read(connection: Connection) -> list[str]:
            async with connection.transaction():
                await connection.execute(self._sql["walk_indexes"])
                found = [member.id async for members in families(connection, execution_ids) for member in members]
            return list(dict.fromkeys(found))

        return await self._read(read)

    async def deleted(self) -> list[str]:
        return [row[0] for row in await self._all("read_deleted")]

    async def _transact(self, work: Work[T]) -> T:
        """One transaction, tried again as long as it certainly wrote nothing."""
        for _ in range(TRIES):
            try:
                return await self._absence.outlast(lambda: self._try(work))
            except _Unseen as unseen:
                if await self._was_committed(unseen):
                    return unseen.result
        raise StoreUnavailable(
            f"the connection to {self.address.shown} was lost {TRIES} times while a transaction was being committed; "
            "nothing was written",
            todo="look into the server's log",
        )

    async def _try(self, work: Work[T]) -> T:
        """Alone with its rows in the end: another transaction's locks are waited for, and its victims come again."""
        await self._attend()
        for number in range(TRIES):
            async with self._writing.use() as connection:
                try:
                    return await self._commit(connection, work)
                except (errors.DeadlockDetected, errors.SerializationFailure):
                    if number == TRIES - 1:
                        raise
            await asyncio.sleep(random.uniform(0, WAIT_S * 2**number))
        raise AssertionError("the last try returns or raises")

    async def _commit(self, connection: Connection, work: Work[T]) -> T:
        unseen: _Unseen | None = None
        try:
            async with connection.transaction():
                result = await work(connection)
                values = {"channel": self._channel, "by": self._us.decode()}
                told = await (await connection.execute(self._sql["tell"], values)).fetchone()
                unseen = _Unseen(told[1] if told else "", result)
        except psycopg.Error as error:
            if unseen is not None and is_lost(connection, error):
                self._writing.drop()
                raise unseen from error
            raise
        finally:
            self._changes += 1
        return result

    async def _was_committed(self, unseen: _Unseen) -> bool:
        """Ask the server what became of a transaction: it remembers, even over a crash."""

        async def ask() -> str | None:
            async with self._writing.use() as connection:
                row = await (await connection.execute(self._sql["transaction_status"], (unseen.number,))).fetchone()
                return row[0] if row else None

        try:
            give_up, status = time.monotonic() + AWAY_S, await self._absence.outlast(ask)
            while status == "in progress" and time.monotonic() < give_up:  # it has not noticed yet that we are gone
                await asyncio.sleep(WAIT_S)
                status = await self._absence.outlast(ask)
        except StoreUnavailable as error:
            status = str(error)
        if status not in ("committed", "aborted"):
            raise StoreUnavailable(
                f"the connection to {self.address.shown} was lost while a transaction was being committed: it may "
                "or may not have been written",
                todo="look before you repeat it, an engine reads its journal again",
            ) from unseen
        return status == "committed"

    # ---- reading ------------------------------------------------------------------------------------------------

    async def _read(self, work: Work[T]) -> T:
        async def read() -> T:
            await self._attend()
            async with self._reading.use() as connection:
                return await work(connection)

        return await self._absence.outlast(read)

    async def _row(self, name: str, values: Any) -> tuple[Any, ...] | None:
        async def read(connection: Connection) -> tuple[Any, ...] | None:
            return await (await connection.execute(self._sql[name], values)).fetchone()

        return await self._read(read)

    async def _all(self, name: str, values: Any = None) -> list[tuple[Any, ...]]:
        async def read(connection: Connection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(self._sql[name], values)).fetchall()

        return await self._read(read)

    async def load(self, execution_id: str) -> Stored:
        async def read(connection: Connection) -> Stored:
            # One snapshot of the database, so that head, snapshot and events are of the same moment.
            async with connection.transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                head = await self._head(connection, execution_id)
                num = await self._num(connection, execution_id)
                row = await (await connection.execute(self._sql["read_snapshot"], (num,))).fetchone()
                snapshot = Snapshot(*row) if row else None
                return Stored(head, snapshot, await self._rows(connection, num, snapshot.seq if snapshot else 0, -1))

        return await self._read(read)

    async def events(self, execution_id: str, after: int, limit: int) -> tuple[bytes, list[Row]]:
        async def read(connection: Connection) -> tuple[bytes, list[Row]]:
            num = await self._num(connection, execution_id)
            chain = CHAIN_START
            if after:
                row = await (await connection.execute(self._sql["read_digest"], (num, after))).fetchone()
                if row is None:
                    return CHAIN_START, []
                chain = row[0]
            return chain, await self._rows(connection, num, after, limit)

        return await self._read(read)

    async def _rows(self, connection: Connection, num: int, after: int, limit: int) -> list[Row]:
        values = (num, after, limit if limit >= 0 else None)
        cursor = await connection.execute(self._sql["read_events"], values)
        return [Row(*row) for row in await cursor.fetchall()]

    async def _num(self, connection: Connection, execution_id: str) -> int:
        row = await (await connection.execute(self._sql["find_num"], (execution_id,))).fetchone()
        if row is None:
            raise NotFound(f"there is no execution {execution_id} in {self.address.shown}")
        return row[0]

    async def head(self, execution_id: str) -> Head:
        return await self._read(lambda connection: self._head(connection, execution_id))

    async def _head(self, connection: Connection, execution_id: str) -> Head:
        found = await read_heads(connection, ("one_head",), {"id": execution_id})
        if not found:
            raise NotFound(f"there is no execution {execution_id} in {self.address.shown}")
        if found[0].trouble:
            raise StoreCorrupted(f"execution {execution_id} is damaged: {found[0].trouble}", execution_id=execution_id)
        return found[0].head

    async def heads(self, query: Query) -> list[Head]:
        async def read(connection: Connection) -> list[HeadRow]:
            if query.ended_after is None:
                return await read_heads(connection, ("conditions", "some_heads"), query_values(query))
            async with connection.transaction():
                await connection.execute(self._sql["walk_indexes"])
                return await read_heads(connection, ("conditions", "ended_heads"), query_values(query))

        return [head for head, _ in await self._read(read)]

    async def count(self, query: Query) -> int:
        async def read(connection: Connection) -> int:
            statement = b"%b %b" % (self._sql["count"], self._sql["conditions"])
            row = await (await connection.execute(statement, query_values(query))).fetchone()
            return row[0] if row else 0

        return await self._read(read)

    async def find(self, fragment: str, limit: int = 2) -> list[str]:
        return [row[0] for row in await self._all("find", {"fragment": fragment, "limit": limit})]

    async def drivers(self) -> list[str]:
        return await self._read(self.leases.look)

    async def claimable(self, now: int, drivers: Sequence[str], limit: int) -> list[Head]:
        values = {"now": now, "drivers": list(drivers), "limit": limit}
        found = await self._read(lambda connection: read_heads(connection, ("claimable",), values))
        for head, trouble in found:
            if trouble:  # set aside for good, so that it takes nobody's place in the next answer
                await self.commit([Quarantine(execution_id=head.id, why=trouble)])
        return [head for head, trouble in found if not trouble]

    async def blob(self, digest: str) -> bytes:
        row = await self._row("read_blob", (digest,))
        if row is None:
            raise StoreCorrupted(f"blob {digest} is missing")
        return row[0]

    async def cached(self, key: str, now: int) -> bytes | None:
        row = await self._row("read_cache", (key, now))
        return row[0] if row else None

    async def row(self, space: str, key: str) -> KeyedRow | None:
        check_place(space, key)
        row = await self._row("read_row", (space, key))
        return KeyedRow(*row) if row else None

    async def rows(
        self, space: str, prefix: str = "", *, after: str | None = None, limit: int = ROWS_PAGE
    ) -> list[KeyedRow]:
        return [KeyedRow(*row) for row in await self._all("read_rows", (space, *span(prefix, after), limit))]

    async def answer(self, command_id: str) -> Answer | None:
        row = await self._row("read_answer", (command_id,))
        return Answer(command_id=row[0], outcome=row[1], text=row[2], seq=row[3]) if row else None

    async def command(self, command_id: str) -> Command | None:
        row = await self._row("read_command", (command_id,))
        return command_of(row) if row else None

    async def pending(self, execution_ids: Sequence[str] | None = None, *, after: str = "") -> list[Command]:
        if execution_ids is None:
            return [command_of(row) for row in await self._all("pending_all", {"after": after})]
        return [command_of(row) for row in await self._all("pending_some", (list(execution_ids),))]

    # ---- being told -----------------------------------------------------------------------------------------------

    def changes(self) -> int:
        """Counts our own commits when they are done, and others' when the server's word of them arrives."""
        self._listening.check_usable()
        connection = self._listening.connection
        if connection is None:
            return self._changes_unseen()
        try:
            connection.pgconn.consume_input()  # takes what has arrived; never waits
            while (told := connection.pgconn.notifies()) is not None:
                self._changes += told.extra != self._us
        except psycopg.Error:
            self._listening.drop()
            self._changes += 1
        return self._changes

    def _changes_unseen(self) -> int:
        """Nobody tells us: suppose that there was something, so that somebody looks, and the next call connects."""
        now = time.monotonic()
        if now - self._blind_at >= BLIND_S:
            self._blind_at = now
            self._changes += 1
        return self._changes

    async def room(self) -> None:
        """Nor is its space ours to count."""

    async def rebuild(self) -> None:
        """Nor to give back."""

    async def check(self) -> list[str]:
        """The server looks after its own files."""
        return []

    async def close(self) -> None:
        await self.leases.close(self._leasing)
        for link in (self._listening, self._leasing, self._reading, self._writing):
            await link.close()
