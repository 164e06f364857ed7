"""One connection to PostgreSQL, made when it is first needed and made again after it was lost.

Owns connecting, one user at a time, and turning the driver's errors into ours. It refuses to work in a forked child:
two processes that talk on one socket would spoil each other's transactions.
"""

# sentences of others: libpq

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.core.errors import StoreCorrupted, StoreUnavailable
from holdfast.journal.postgres.address import PostgresAddress
from holdfast.journal.postgres.text_codec import adapt_texts
from holdfast.journal.sql import queries

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
Prepare: TypeAlias = Callable[[Connection], Awaitable[None]]

LOCK_LIMIT_S = 30.0  # how long another transaction may hold what ours needs before we say so
# What libpq does unless the address says otherwise. A server that vanished without a word is noticed in half a minute,
# not in the two hours that TCP allows by itself.
LIBPQ_DEFAULTS: dict[str, str | int] = {
    "application_name": "holdfast",
    "client_encoding": "UTF8",
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


class PostgresConnection:
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
        """The connection, for one user at a time. Trouble comes out as StoreUnavailable; a dead one is let go of."""
        self.check_usable()
        async with self._lock:
            self.check_usable()
            with explaining(self._address):
                connection = await self._connected()
                try:
                    yield connection
                except psycopg.Error as error:
                    if is_lost(connection, error):
                        self.drop()
                    raise

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and not self.connection.closed

    def check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._address.shown} was closed")
        if os.getpid() != self._pid:
            raise StoreUnavailable("this store was opened before a fork; open a new one in the child process")

    async def _connected(self) -> Connection:
        if self.connection is not None and not self.connection.closed:
            return self.connection
        self.connection = None
        connection = await psycopg.AsyncConnection.connect(_conninfo(self._address), autocommit=True)
        try:
            adapt_texts(connection)
            await connection.execute(statements()["enter"], _session(self._address))
            await self._prepare(connection)
        except BaseException:
            await connection.close()
            raise
        self.connection = connection
        return connection

    def drop(self) -> None:
        """Let go of a connection that is of no use any more; the next user gets a new one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def close(self) -> None:
        """Once whoever uses it has finished. A forked child leaves it alone: the session belongs to the parent."""
        if os.getpid() != self._pid:
            return
        async with self._lock:
            self._closed = True
            self.drop()


def _session(address: PostgresAddress) -> dict[str, str | int]:
    idle_ms, lock_ms = int(address.lease_s * 1000), int(LOCK_LIMIT_S * 1000)
    return {"schema": address.schema, "idle_ms": idle_ms, "lock_ms": lock_ms}


def _conninfo(address: PostgresAddress) -> str:
    try:
        given = conninfo_to_dict(address.libpq)
    except (psycopg.ProgrammingError, UnicodeError):  # whose text would repeat what may be a part of a password
        text = (
            f"{address.shown} is not an address that PostgreSQL understands; check its %xx and the options after the ?"
        )
        raise StoreUnavailable(text) from None
    return make_conninfo("", **{**LIBPQ_DEFAULTS, **given})


def is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Whether the session is over, and not just a statement."""
    return connection.closed or isinstance(error, _LAST_WORDS)


_LAST_WORDS = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleInTransactionSessionTimeout)


def is_away(error: StoreUnavailable) -> bool:
    """Whether all that is wrong is the connection, so that a server that was there may be there again in a moment."""
    cause = error.__cause__
    if isinstance(cause, _LAST_WORDS):
        return True
    if not isinstance(cause, psycopg.Error | OSError) or _is_to_be_corrected(_first_line(cause)):
        return False
    if isinstance(cause, errors.QueryCanceled | errors.DatabaseDropped):
        return False
    return isinstance(cause, psycopg.InterfaceError) or _is_about_the_connection(cause)


@contextmanager
def explaining(address: PostgresAddress) -> Generator[None, None, None]:
    """Turns the driver's errors into ours: whose fault, what is safe, what to do."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        todo = "grant this user CREATE on the database, or USAGE and all rights on the schema and its tables"
        raise StoreUnavailable(f"{address.shown}: {_first_line(error)}", todo=todo) from error
    except (errors.DiskFull, errors.ReadOnlySqlTransaction) as error:
        todo = "free some space on the server or name the primary, then resume; what was recorded is safe"
        raise StoreUnavailable(f"{address.shown} cannot be written ({_first_line(error)})", todo=todo) from error
    except errors.LockNotAvailable as error:
        what = f"{address.shown} is locked by another transaction for over {LOCK_LIMIT_S:.0f} s"
        raise StoreUnavailable(what, todo="find and end it with pg_stat_activity and pg_terminate_backend") from error
    except errors.DataCorrupted as error:
        what = f"{address.shown} is damaged ({_first_line(error)})"
        raise StoreCorrupted(what, todo="restore a backup of the database") from error
    except (psycopg.Error, OSError) as error:
        if _is_about_the_connection(error):
            raise _unreachable(address, _first_line(error)) from error
        what = f"{address.shown} cannot be read or written ({_first_line(error)})"
        raise StoreUnavailable(what, todo="check the server, then resume") from error


def _is_about_the_connection(error: psycopg.Error | OSError) -> bool:
    """What libpq says itself has no code; the server's codes for connecting, logging in and shutting down are few."""
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None or error.sqlstate[:2] in ("08", "28", "3D", "57")
    return isinstance(error, OSError)


def _is_to_be_corrected(text: str) -> bool:
    """Not let in, or nothing there: no waiting helps."""
    return _is_refused(text) or "does not exist" in text


def _is_refused(text: str) -> bool:
    return "authentication failed" in text or "no password supplied" in text


def _unreachable(address: PostgresAddress, text: str) -> StoreUnavailable:
    if _is_refused(text):
        todo = "check the user's name and password in the address"
    elif "does not exist" in text:
        todo = "create the database or the role first, or correct the address"
    else:
        todo = "check that the server runs and that the address is right; what was recorded is safe"
    return StoreUnavailable(f"{address.shown} cannot be reached ({text})", todo=todo)


def _first_line(error: BaseException) -> str:
    """One line of what the server or libpq says; neither repeats a password. Where it was is said already."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rpartition(" failed: ")[2].removeprefix("FATAL:").strip() if lines else type(error).__name__
