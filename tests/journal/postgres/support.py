"""What the tests of the PostgreSQL store share: looking past the store, and other processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.journal.postgres.commit import Tidying, write_all
from holdfast.journal.postgres.connection import Connection
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.store import Write, Written


async def run_sql(store: PostgresStore, *statements: str) -> list[Any]:
    """Straight into the store's schema, past the store; returns what the last statement found."""
    found: list[Any] = []
    async with await psycopg.AsyncConnection.connect(store.address.libpq, autocommit=True) as connection:
        await connection.execute(f'SET search_path TO "{store.address.schema}"'.encode())
        for statement in statements:
            cursor = await connection.execute(statement.encode())
            found = await cursor.fetchall() if cursor.description else []
    return found


async def wait_for_sql(store: PostgresStore, statement: str, fits: Callable[[list[Any]], bool]) -> None:
    async with asyncio.timeout(60):
        while not fits(await run_sql(store, statement)):  # noqa: ASYNC110 -- a server does not call
            await asyncio.sleep(0.005)


def start_python(script: str, *arguments: object) -> subprocess.Popen[str]:
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], text=True, **pipes)


class Held:
    """A transaction of another process that has written and not committed yet."""

    def __init__(self, url: str, write: Write) -> None:
        self._store, self._write = PostgresStore(url), write
        self._written, self._go_on = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Held:
        self._task = asyncio.create_task(self._store._transact(self._work))
        await self._written.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.commit()
        await self._store.close()

    async def _work(self, connection: Connection) -> Written:
        [written] = await write_all(connection, [self._write], Tidying())
        self._written.set()
        await self._go_on.wait()
        return written

    async def commit(self) -> Written:
        self._go_on.set()
        return await self._task
