"""One connection to PostgreSQL, made when it is first needed and made again after it was lost.

Owns connecting, one user at a time, and turning the driver's errors into ours. It refuses to work in a forked child: two
processes that talk on one socket would spoil each other's transactions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import errors

from holdfast.core.errors import StoreCorrupted, StoreUnavailable
from holdfast.journal.postgres_address import PostgresAddress
from holdfast.journal.sql import queries

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
Prepare: TypeAlias = Callable[[Connection], Awaitable[None]]

# What libpq does unless the address says otherwise. A server that vanished without a word is noticed in half a minute,
# not in the two hours that TCP allows by itself.
LIBPQ_DEFAULTS: dict[str, str | int] = {
    "application_name": "holdfast",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


@cache
def statements() -> dict[str, bytes]:
    """The named queries; as bytes, because the driver takes only literals for text."""
    return {name: text.encode() for name, text in queries("postgres").items()}


class Link:
    """`prepare` is done with each new connection before anybody else gets it."""

    def __init__(self, address: PostgresAddress, prepare: Prepare) -> None:
        self._address = address
        self._prepare = prepare
        self._pid = os.getpid()
        self._lock = asyncio.Lock()
        self._closed = False
        self.connection: Connection | None = None

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Connection, None]:
        """The connection, for one user at a time. Trouble comes out as StoreUnavailable."""
        self.check_ours()
        async with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self._address.shown} was closed")
            with explaining(self._address):
                yield await self._connected()

    def check_ours(self) -> None:
        if os.getpid() != self._pid:
            raise StoreUnavailable("this store was opened before a fork; open a new one in the child process")

    async def _connected(self) -> Connection:
        if self.connection is not None and not self.connection.closed:
            return self.connection
        self.connection = None
        conninfo = psycopg.conninfo.make_conninfo(self._address.libpq)
        given = psycopg.conninfo.conninfo_to_dict(conninfo)
        defaults = {name: value for name, value in LIBPQ_DEFAULTS.items() if name not in given}
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, **defaults)
        try:
            await connection.execute(statements()["enter_schema"], (self._address.schema,))
            await self._prepare(connection)
        except BaseException:
            await connection.close()
            raise
        self.connection = connection
        return connection

    async def close(self) -> None:
        """In a forked child only the child's copy is let go: the session belongs to the parent."""
        self._closed = True
        connection, self.connection = self.connection, None
        if connection is not None and os.getpid() == self._pid:
            await connection.close()


@contextmanager
def explaining(address: PostgresAddress) -> Generator[None, None, None]:
    """Turns the driver's errors into ours: whose fault, what is safe, what to do."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        what = "grant this user CREATE on the database, or USAGE and all rights on the schema and its tables"
        raise StoreUnavailable(f"{address.shown}: {_first_line(error)}; {what}") from error
    except (errors.DiskFull, errors.ReadOnlySqlTransaction) as error:
        what = "free some space on the server or name the primary, then resume; what was recorded is safe"
        raise StoreUnavailable(f"{address.shown} cannot be written ({_first_line(error)}); {what}") from error
    except errors.DataCorrupted as error:
        text = f"{address.shown} is damaged ({_first_line(error)}); restore a backup of the database"
        raise StoreCorrupted(text) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailable(_unreachable(address, error)) from error
    except psycopg.Error as error:
        text = f"{address.shown} cannot be read or written ({_first_line(error)}); check the server, then resume"
        raise StoreUnavailable(text) from error
    except OSError as error:
        raise StoreUnavailable(f"{address.shown} cannot be reached ({error}); check the network") from error


def _unreachable(address: PostgresAddress, error: psycopg.OperationalError) -> str:
    text = _first_line(error)
    if "authentication failed" in text or "no password supplied" in text:
        todo = "check the user's name and password in the address"
    elif "does not exist" in text:
        todo = "create the database or the role first, or correct the address"
    else:
        todo = "check that the server runs and that the address is right; what was recorded is safe"
    return f"{address.shown} cannot be reached ({text}); {todo}"


def _first_line(error: BaseException) -> str:
    """One line of what the server or libpq says; neither repeats a password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
