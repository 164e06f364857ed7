"""The journal in one SQLite file: write-ahead log, full sync, one writer thread, one reader thread.

Several processes may share the file. SQLite's own busy handler waits for seconds under contention, so it is off and
`begin` retries by itself in fractions of a millisecond. What a transaction writes is in sqlite_commit.py, and what rows
mean in sqlite_rows.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import HoldfastError, NotFound, SchemaTooNew, StoreCorrupted, StoreUnavailable
from holdfast.journal.codec import CHAIN_START, Row, Snapshot
from holdfast.journal.sql import migrations, queries
from holdfast.journal.sqlite_commit import Committer
from holdfast.journal.sqlite_health import check_content, check_header
from holdfast.journal.sqlite_rows import command_of, conditions, read_heads, seal_of_answer, seal_of_cached, texts
from holdfast.journal.store import Head, Query, Stored, Write, Written

BUSY_LIMIT_S = 30.0  # how long another writer may hold the file before we say so
WAL_PAGES = 4000  # checkpoint about every 16 MB: larger batches of page writes, a bounded log
T = TypeVar("T")


class SqliteStore:
    """`may_migrate` is asked before an older file is upgraded: not while another process uses it."""

    def __init__(self, path: Path, may_migrate: Callable[[], bool] = lambda: True) -> None:
        self.path = path
        self._pid = os.getpid()
        self._sql = queries("sqlite")
        self._writing = ThreadPoolExecutor(1, "holdfast-writer")
        self._reading = ThreadPoolExecutor(1, "holdfast-reader")
        self._closed = False
        self.at_work = {self._writing: threading.Lock(), self._reading: threading.Lock()}
        _stores.add(self)
        with explaining(path):
            fresh = not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            check_header(path)
            self._writer: Any = self._connect()
            if self._writer.readonly("main"):  # SQLite opens such a file all the same, and fails at the first write
                raise PermissionError
            _migrate(self._writer, path, may_migrate)
            _patiently(lambda: check_content(self._writer, path))
            self._reader: Any = self._connect()
            self._watcher: Any = self._connect()
            if fresh:
                _sync_folder(path.parent)
        self._committer = Committer(self._writer)

    def _connect(self) -> Any:
        """Typed loosely: apsw's stubs leave the types of bindings and rows open."""
        connection: Any = apsw.Connection(str(self.path))
        connection.set_busy_timeout(0)
        for pragma in _PRAGMAS:
            _patiently(lambda pragma=pragma: connection.execute(f"PRAGMA {pragma}").fetchall())
        return connection

    # ---- writing ------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        return await self._in_thread(self._writing, lambda: self._transact(lambda: self._committer.write(writes)))

    async def quarantine(self, execution_id: str, why: str) -> None:
        def write() -> None:
            self._writer.execute(self._sql["quarantine"], (why, execution_id))

        await self._in_thread(self._writing, lambda: self._transact(write))

    def _transact(self, work: Callable[[], T]) -> T:
        begin(self._writer)
        try:
            result = work()
            self._writer.execute("COMMIT")
        except BaseException:
            self._committer.forget()
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        return result

    # ---- reading ------------------------------------------------------------------------------------------------

    async def load(self, execution_id: str) -> Stored:
        return await self._read(lambda: self._load(execution_id))

    def _load(self, execution_id: str) -> Stored:
        # One read transaction, so that head, snapshot and events are of the same moment.
        _patiently(lambda: self._reader.execute("BEGIN"))
        try:
            head = self._head(execution_id)
            num, _ = self._place(execution_id)
            row = self._reader.execute(self._sql["read_snapshot"], (num,)).fetchone()
            snapshot = Snapshot(*row) if row else None
            rows = self._rows(num, snapshot.seq if snapshot else 0, -1)
            return Stored(head, snapshot, rows)
        finally:
            self._reader.execute("COMMIT")

    async def events(self, execution_id: str, after: int, limit: int) -> tuple[bytes, list[Row]]:
        def read() -> tuple[bytes, list[Row]]:
            num, known = self._place(execution_id)
            if after > known:
                return CHAIN_START, []
            row = self._reader.execute(self._sql["read_digest"], (num, after)).fetchone() if after else (CHAIN_START,)
            rows = self._rows(num, after, limit)
            last = cast(object, rows[-1].seq) if rows else after
            # An event that was committed before we looked must be there, whatever an index says.
            if row is None:
                raise StoreCorrupted(f"execution {execution_id}: event {after} is missing")
            if isinstance(last, int) and last < (known if limit < 0 else min(known, after + limit)):
                lost = f"execution {execution_id} has {last} events, its head says {known}"
                raise StoreCorrupted(f"{lost}; the end of its journal is lost")
            return row[0], rows

        return await self._read(read)

    def _rows(self, num: int, after: int, limit: int) -> list[Row]:
        found = self._reader.execute(self._sql["read_events"], (num, after, limit))
        return [Row(*row) for row in found]

    def _place(self, execution_id: str) -> tuple[int, int]:
        """Its row number, and the number of its last event."""
        row = self._reader.execute(self._sql["find_place"], (execution_id,)).fetchone()
        if row is None:
            raise NotFound(f"there is no execution {execution_id} in {self.path}")
        if not isinstance(row[1], int):
            raise StoreCorrupted(f"execution {execution_id} is damaged: its row in the list cannot be read (seq)")
        return row[0], row[1]

    async def head(self, execution_id: str) -> Head:
        return await self._read(lambda: self._head(execution_id))

    def _head(self, execution_id: str) -> Head:
        found = read_heads(self._reader, "WHERE id = ?", (execution_id,))
        if not found:
            raise NotFound(f"there is no execution {execution_id} in {self.path}")
        if found[0].trouble:
            raise StoreCorrupted(f"execution {execution_id} is damaged: {found[0].trouble}")
        return found[0].head

    async def heads(self, query: Query) -> list[Head]:
        where, values = conditions(query)
        last = f"{where} ORDER BY num DESC LIMIT ?"
        found = await self._read(lambda: read_heads(self._reader, last, (*values, query.limit)))
        return [head for head, _ in found]

    async def find(self, fragment: str, limit: int = 2) -> list[str]:
        values = {"fragment": fragment, "limit": limit}
        return await self._read(lambda: texts(self._reader.execute(self._sql["find"], values)))

    async def drivers(self) -> list[str]:
        return await self._read(lambda: texts(self._reader.execute(self._sql["drivers"])))

    async def claimable(self, now: int, drivers: Sequence[str], limit: int) -> list[Head]:
        values = {"now": now, "drivers": msgspec.json.encode(list(drivers)).decode(), "limit": limit}
        found = await self._read(lambda: read_heads(self._reader, self._sql["claimable"], values))
        for head, trouble in found:
            if trouble:  # set aside for good, so that it takes nobody's place in the next answer
                await self.quarantine(head.id, trouble)
        return [head for head, trouble in found if not trouble]

    async def blob(self, digest: str) -> bytes:
        row = await self._read(lambda: self._reader.execute(self._sql["read_blob"], (digest,)).fetchone())
        if row is None:
            raise StoreCorrupted(f"blob {digest} is missing")
        if not isinstance(row[0], bytes):
            raise StoreCorrupted(f"blob {digest} was changed after it was written: it is not even bytes")
        return row[0]

    async def cached(self, key: str, now: int) -> bytes | None:
        row = await self._read(lambda: self._reader.execute(self._sql["read_cache"], (key, now)).fetchone())
        if row is None or not isinstance(row[0], bytes):
            return None
        output, expires_at, seal = row
        return output if seal in (b"", seal_of_cached(key, output, expires_at)) else None

    async def answer(self, command_id: str) -> Answer | None:
        row = await self._read(lambda: self._reader.execute(self._sql["read_answer"], (command_id,)).fetchone())
        if row is None:
            return None
        answer = Answer(command_id=row[0], outcome=row[1], text=row[2], seq=row[3])
        if row[4] not in (b"", seal_of_answer(answer)):
            raise StoreCorrupted(f"the answer to command {command_id} was changed after it was written")
        return answer

    async def command(self, command_id: str) -> Command | None:
        row = await self._read(lambda: self._reader.execute(self._sql["read_command"], (command_id,)).fetchone())
        if row is None:
            return None
        identity, execution_id, verb, at, by, arguments = row  # once it is answered, its seal is the answer's
        return Command(
            id=identity, execution_id=execution_id, verb=verb, at=at, by=by, arguments=msgspec.Raw(arguments)
        )

    async def pending(self, execution_ids: Sequence[str] | None = None) -> list[Command]:
        def read() -> list[tuple[int, Command | None]]:
            if execution_ids is None:
                rows = self._reader.execute(self._sql["pending_all"])
            else:
                wanted = msgspec.json.encode(list(execution_ids)).decode()
                rows = self._reader.execute(self._sql["pending_some"], (wanted,))
            return [(num, command_of(row)) for num, *row in rows]

        found = await self._read(read)
        for num, command in found:
            if command is None:
                await self._in_thread(self._writing, lambda num=num: self._transact(lambda: self._spoilt(num)))
        return [command for _, command in found if command is not None]

    def _spoilt(self, num: int) -> None:
        """A command that was changed gets an answer, and whom it was meant for is set aside: it may wait for it."""
        text = "it was changed after it was written"
        self._writer.execute(self._sql["refuse_spoilt"], (text, num))
        self._writer.execute(self._sql["quarantine_receiver"], (f"command {num} of its inbox: {text}", num))

    def changes(self) -> int:
        with explaining(self.path):
            return self._watcher.pragma("data_version")

    async def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        rows = await self._read(lambda: self._reader.execute("PRAGMA integrity_check(20)").fetchall())
        return [str(row[0]) for row in rows if row[0] != "ok"]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writing.shutdown(wait=True)
        self._reading.shutdown(wait=True)
        for connection in (self._watcher, self._reader, self._writer):
            with suppress(apsw.Error):
                connection.close()

    # ---- threads ------------------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[], T]) -> T:
        return await self._in_thread(self._reading, lambda: _patiently(work))

    async def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self.path} was closed")
        if os.getpid() != self._pid:  # the threads did not come along: work handed to them would wait for ever
            raise StoreUnavailable("this store was opened before a fork; open a new one in the child process")

        def explained() -> T:
            with self.at_work[pool], explaining(self.path):
                return work()

        return await asyncio.get_running_loop().run_in_executor(pool, explained)


# SQLite's own locks are copied by a fork as they are. If another thread held one, the child would wait for it for ever,
# even in a store of its own; so a fork waits until no thread of ours is inside SQLite.
_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_held_for_fork: list[threading.Lock] = []


def _wait_for_quiet() -> None:
    for store in list(_stores):
        for lock in store.at_work.values():
            lock.acquire()
            _held_for_fork.append(lock)


def _go_on() -> None:
    while _held_for_fork:
        _held_for_fork.pop().release()


os.register_at_fork(before=_wait_for_quiet, after_in_parent=_go_on, after_in_child=_go_on)

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    f"wal_autocheckpoint={WAL_PAGES}",
    "foreign_keys=OFF",
    "temp_store=MEMORY",
    "cell_size_check=ON",  # a page is looked over when it is first read
    *(("fullfsync=ON", "checkpoint_fullfsync=ON") if sys.platform == "darwin" else ()),
)


class explaining:  # lower case: it reads as a verb at its use, `with explaining(path)`
    """Turns SQLite's errors into ours: whose fault, what is safe, what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        path = self._path
        match error:
            case None | HoldfastError():
                return
            case apsw.FullError() | apsw.IOError() if _is_full(error):
                text = f"the disk is full, {path} cannot grow; free some space and resume, what was recorded is safe"
            case apsw.ReadOnlyError() | PermissionError():
                text = f"{path} is read-only for this user; make the file and its folder writable"
            case apsw.CantOpenError() if path.is_dir():
                text = f"{path} is a folder; name a file in it, such as {path / 'holdfast.db'}"
            case apsw.CantOpenError():
                text = f"{path} cannot be opened; check that its folder exists and is writable"
            case apsw.BusyError() | apsw.LockedError():
                text = f"{path} is locked by another process for over {BUSY_LIMIT_S:.0f} s; find and end that process"
            case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():
                raise StoreCorrupted(
                    f"{path} is damaged ({error}); run `holdfast doctor`, and restore a backup if it cannot be read"
                ) from error
            case apsw.Error() | OSError():
                text = f"{path} cannot be read or written ({error}); check the disk, then resume"
            case _:
                return
        raise StoreUnavailable(text) from error


def _is_full(error: apsw.Error) -> bool:
    """The index of the log that finds no room is an I/O error to SQLite."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def _patiently(work: Callable[[], T]) -> T:
    """Try again while another process holds the file: short, jittered waits keep the worst case short."""
    give_up = time.monotonic() + BUSY_LIMIT_S
    while True:
        try:
            return work()
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(0.0002, 0.001))


def begin(connection: Any) -> None:
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))


def _migrate(connection: Any, path: Path, may_migrate: Callable[[], bool]) -> None:
    steps = migrations("sqlite")
    version = cast(int, connection.pragma("user_version"))
    if version > len(steps):
        raise SchemaTooNew(
            f"{path} has schema version {version}, this Holdfast knows {len(steps)}; upgrade Holdfast to open it"
        )
    if version == len(steps):
        return
    if version and not may_migrate():
        raise StoreUnavailable(
            f"{path} must be upgraded from schema version {version} to {len(steps)}, and another process is using it; "
            "end that process first"
        )
    begin(connection)
    # Another process may have been quicker between the look and the lock.
    for number in range(cast(int, connection.pragma("user_version")), len(steps)):
        connection.execute(steps[number])
        connection.pragma("user_version", number + 1)
    connection.execute("COMMIT")


def _sync_folder(folder: Path) -> None:
    """A new file is durable only when its folder's entry is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
