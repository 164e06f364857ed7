"""The journal in one SQLite file: write-ahead log, full sync, one writer thread, one reader thread.

Several processes may share the file. What a transaction writes is in commit.py, what it deletes in
delete.py, what rows mean in rows.py; connection.py is how one gets at the file at all, and
file_identity.py looks whether it is still there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import NotFound, StoreCorrupted, StoreUnavailable
from holdfast.journal.codec import CHAIN_START, Row, Snapshot
from holdfast.journal.fsync import fsync_path
from holdfast.journal.keyed import ROWS_PAGE, KeyedRow, check_place, span
from holdfast.journal.sql import queries
from holdfast.journal.sqlite.commit import Committer
from holdfast.journal.sqlite.connection import begin, connect, explaining, migrate, patiently
from holdfast.journal.sqlite.delete import FAMILIES_AT_ONCE, Deleter
from holdfast.journal.sqlite.file_identity import Presence
from holdfast.journal.sqlite.integrity import check_content, check_header
from holdfast.journal.sqlite.rows import (
    command_of,
    conditions,
    keyed_row,
    read_heads,
    readable,
    seal_of_answer,
    seal_of_cached,
    texts,
)
from holdfast.journal.store import Head, Quarantine, Query, Stored, Write, Written

BREATH_S = 0.002  # between two bites of a deletion: others come in
T = TypeVar("T")


class FileSpace(NamedTuple):
    """The bytes of the file, those of them that hold nothing, and whether it can give them back bit by bit."""

    total: int
    free: int
    can_shrink: bool


class SqliteStore:
    """`may_migrate` is asked before an older file is upgraded: not while another process uses it."""

    def __init__(self, path: Path, may_migrate: Callable[[], bool] = lambda: True) -> None:
        self.path = path
        self._pid = os.getpid()
        self._sql = queries("sqlite")
        self._writing = ThreadPoolExecutor(1, "holdfast-writer")
        self._reading = ThreadPoolExecutor(1, "holdfast-reader")
        self._closed = False
        self._changes = 0
        self.at_work = {self._writing: threading.Lock(), self._reading: threading.Lock()}
        _stores.add(self)
        with explaining(path):
            fresh = not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            check_header(path)
            self._writer: Any = connect(path)
            if self._writer.readonly("main"):  # SQLite opens such a file all the same, and fails at the first write
                raise PermissionError
            migrate(self._writer, path, may_migrate)
            patiently(lambda: check_content(self._writer, path))
            self._reader: Any = connect(path)
            self._watcher: Any = connect(path)
            if fresh:
                fsync_path(path.parent)
        self._presence = Presence(self._writer)
        self._committer = Committer(self._writer)
        self._deleter = Deleter(self._writer)

    # ---- writing ------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        return await self._in_thread(self._writing, lambda: self._transact(lambda: self._committer.write(writes)))

    async def delete(self, execution_ids: Sequence[str]) -> list[str]:
        gone: list[str] = []
        left: Sequence[str] = list(execution_ids)
        while left:
            now = left
            some, left = await self._in_thread(
                self._writing, lambda now=now: self._transact(lambda: self._deleter.delete(now))
            )
            gone += some
            await asyncio.sleep(BREATH_S)
        await self._give_back(settle=bool(gone))
        return gone

    async def _give_back(self, *, settle: bool) -> None:
        """All free pages, also those that an earlier delete freed before it was killed."""
        while await self._in_thread(self._writing, lambda: patiently(self._deleter.give_back)):
            settle = True
            await asyncio.sleep(BREATH_S)
        if settle:
            await self._in_thread(self._writing, lambda: patiently(self._deleter.settle))

    async def room(self) -> FileSpace:
        def read() -> FileSpace:
            pragma = self._reader.pragma
            page = pragma("page_size")
            return FileSpace(page * pragma("page_count"), page * pragma("freelist_count"), pragma("auto_vacuum") != 0)

        return await self._read(read)

    async def rebuild(self) -> None:
        """Write the whole file anew, so that it is small now and can shrink from now on; for whoever uses it alone."""

        def work() -> None:
            self._writer.pragma("auto_vacuum", 2)
            patiently(lambda: self._writer.execute("VACUUM"))
            self._deleter.settle()

        await self._in_thread(self._writing, work)

    async def would_delete(self, execution_ids: Sequence[str]) -> list[str]:
        deleter = Deleter(self._reader)
        found = list[str]()
        for first in range(0, len(execution_ids), FAMILIES_AT_ONCE):
            wanted = execution_ids[first : first + FAMILIES_AT_ONCE]
            families = await self._read(lambda wanted=wanted: deleter.families(wanted))
            found += [member.id for family in families for member in family]
        return list(dict.fromkeys(found))

    async def deleted(self) -> list[str]:
        return await self._read(lambda: texts(self._reader.execute(self._sql["read_deleted"])))

    def _transact(self, work: Callable[[], T]) -> T:
        begin(self._writer)
        try:
            result = work()
            self._presence.check()  # what is written to a file that nobody will find is not on disk
            self._writer.execute("COMMIT")
            self._presence.check()
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
        patiently(lambda: self._reader.execute("BEGIN"))
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
                raise StoreCorrupted(f"execution {execution_id}: event {after} is missing", execution_id=execution_id)
            if isinstance(last, int) and last < (known if limit < 0 else min(known, after + limit)):
                lost = f"execution {execution_id} has {last} events, its head says {known}"
                raise StoreCorrupted(f"{lost}; the end of its journal is lost", execution_id=execution_id)
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
            raise StoreCorrupted(
                f"execution {execution_id} is damaged: its row in the list cannot be read (seq)",
                execution_id=execution_id,
            )
        return row[0], row[1]

    async def head(self, execution_id: str) -> Head:
        return await self._read(lambda: self._head(execution_id))

    def _head(self, execution_id: str) -> Head:
        found = read_heads(self._reader, "WHERE id = ?", (execution_id,))
        if not found:
            raise NotFound(f"there is no execution {execution_id} in {self.path}")
        if found[0].trouble:
            raise StoreCorrupted(f"execution {execution_id} is damaged: {found[0].trouble}", execution_id=execution_id)
        return found[0].head

    async def heads(self, query: Query) -> list[Head]:
        where, values = conditions(query)
        last = f"{where} ORDER BY {'num DESC' if query.ended_after is None else 'ended_at, id'} LIMIT ?"
        found = await self._read(lambda: read_heads(self._reader, last, (*values, query.limit)))
        return [head for head, _ in found]

    async def count(self, query: Query) -> int:
        where, values = conditions(query)
        found = await self._read(lambda: self._reader.execute(f"{self._sql['count']} {where}", values).fetchone())
        return found[0]

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
                await self.commit([Quarantine(execution_id=head.id, why=trouble)])
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

    async def row(self, space: str, key: str) -> KeyedRow | None:
        check_place(space, key)
        found = await self._read(lambda: self._reader.execute(self._sql["read_row"], (space, key)).fetchone())
        return self._keyed(space, found) if found else None

    async def rows(
        self, space: str, prefix: str = "", *, after: str | None = None, limit: int = ROWS_PAGE
    ) -> list[KeyedRow]:
        values = (space, *span(prefix, after), limit)
        found = await self._read(lambda: self._reader.execute(self._sql["read_rows"], values).fetchall())
        return [self._keyed(space, row) for row in found]

    def _keyed(self, space: str, row: Any) -> KeyedRow:
        found = keyed_row(space, row)
        if found is None:
            raise StoreCorrupted(_damaged_row(space, row[0]))
        return found

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

    async def pending(self, execution_ids: Sequence[str] | None = None, *, after: str = "") -> list[Command]:
        def read() -> list[tuple[int, Command | None]]:
            if execution_ids is None:
                rows = self._reader.execute(self._sql["pending_all"], {"after": after})
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
        with explaining(self.path), suppress(apsw.BusyError):  # then it has changed, and the next look sees it
            self._changes = self._watcher.pragma("data_version")
        return self._changes

    async def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file, and rows that no journal covers."""
        rows = await self._read(lambda: self._reader.execute("PRAGMA integrity_check(20)").fetchall())
        return [str(row[0]) for row in rows if row[0] != "ok"] or await self._read(self._damaged_rows)

    def _damaged_rows(self) -> list[str]:
        rows = readable(self._reader.execute(self._sql["all_rows"]))
        return [_damaged_row(space, row[0]) for space, *row in rows if keyed_row(space, row) is None]

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
        def read() -> T:
            if self._presence.is_lost:  # then what is read here may be known to nobody else
                self._presence.check()
            return patiently(work)

        return await self._in_thread(self._reading, read)

    async def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self.path} was closed")
        if os.getpid() != self._pid:  # the threads did not come along: work handed to them would wait for ever
            raise StoreUnavailable("this store was opened before a fork; open a new one in the child process")

        def explained() -> T:
            with self.at_work[pool], explaining(self.path):
                return work()

        return await asyncio.get_running_loop().run_in_executor(pool, explained)


def _damaged_row(space: str, key: bytes) -> str:
    return (
        f"row {space}/{bytes(key).decode(errors='replace')} was changed after it was written; restore a backup, or "
        "write the row again"
    )


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
