"""A copy of the SQLite file, made while engines work, checked, and put in its place only when it is whole.

The pages are copied in small bites under one read transaction: it is one moment of the file, no writer has to wait for
it, and the disk gets a breath between two bites. What had not ended by then is held in the copy: the original goes on,
and whatever both of them did would happen twice.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from holdfast.core.errors import Refused, StoreCorrupted
from holdfast.journal.blobs import digest_of
from holdfast.journal.codec import CHAIN_START, Row, verify
from holdfast.journal.fsync import fsync_path
from holdfast.journal.sql import queries
from holdfast.journal.sqlite.connection import connect, explaining, patiently

PAGES_AT_ONCE = 250  # copied between two breaths: about 1 MB
BREATH_S = 0.001


class Backup(NamedTuple):
    executions: int
    held: int
    bytes: int


def back_up(source: Path, target: Path, why_held: str) -> Backup:
    """Copy the store; `target` is there when this returns, whole and on disk, and untouched if anything fails."""
    part = target.with_name(f"{target.name}.part")
    _check_unused(target)
    with explaining(target), _alone_at(part, target):
        try:
            _copy(source, part)
            executions, held = _hold_and_check(part, why_held)
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))  # as its owner wants it
            fsync_path(part)
            size = part.stat().st_size
            _check_unused(target)
            part.replace(target)
            fsync_path(target.parent)
        finally:
            _remove(part)
    return Backup(executions, held, size)


@contextmanager
def _alone_at(part: Path, target: Path) -> Generator[None]:
    """Two who copied to one place would spoil it for each other. What a killed one left is begun anew."""
    held = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another process is making a backup to {target}; wait for it, or name another file"
            ) from None
        os.ftruncate(held, 0)
        yield
    finally:
        os.close(held)


def _check_unused(target: Path) -> None:
    """A log that lies beside the file belongs to what it held before, and would be read into the new one."""
    log = target.with_name(f"{target.name}-wal")
    if log.exists() and log.stat().st_size:
        raise Refused(
            f"{target} is in use, or was when its process was killed: {log} holds what is not in it yet; "
            "name another file, or remove both once nothing uses them"
        )


def _copy(source: Path, part: Path) -> None:
    with explaining(source):
        store = connect(source)
    copy: Any = apsw.Connection(str(part))
    handle = os.open(part, os.O_RDONLY)  # closed last: closing any handle of a file gives up SQLite's locks on it
    try:
        copy.pragma("synchronous", "OFF")  # it is synced bite by bite
        patiently(lambda: store.execute("BEGIN; SELECT count(*) FROM deleted").fetchall())
        with copy.backup("main", store, "main") as copying:
            while not copying.done:
                copying.step(PAGES_AT_ONCE)
                os.fsync(handle)  # what piled up here would be written before the next commit of an engine is
                time.sleep(BREATH_S)
        copy.pragma("journal_mode", "DELETE")  # one file, and nothing beside it
    finally:
        copy.close()
        os.close(handle)
        store.close()


def _hold_and_check(part: Path, why_held: str) -> tuple[int, int]:
    connection: Any = apsw.Connection(str(part))
    sql = queries("sqlite")
    try:
        connection.execute(sql["hold_unfinished"], (why_held,))
        held = connection.execute(sql["count_held"]).fetchone()[0]  # also what was held before
        connection.execute(sql["drop_drivers"])
        _check(connection)
        return connection.execute(sql["count"]).fetchone()[0], held
    finally:
        connection.close()


def _check(connection: Any) -> None:
    sql = queries("sqlite")
    [(finding,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if finding != "ok":
        raise StoreCorrupted(f"the copy would not be whole ({finding}); run `holdfast doctor` on the store")
    for num, execution_id, digest in connection.execute(sql["sound_heads"]).fetchall():
        rows = [Row(*row) for row in connection.execute(sql["read_events"], (num, 0, -1))]
        try:
            if verify(rows, 0, CHAIN_START) != digest:
                raise StoreCorrupted("its head and its last event differ")
        except StoreCorrupted as error:
            todo = "run `holdfast doctor`, which sets it aside, and make the backup again"
            raise StoreCorrupted(f"execution {execution_id} is damaged: {error}; {todo}") from error
    for digest, body in connection.execute(sql["all_blobs"]):
        if digest_of(body) != digest:
            raise StoreCorrupted(f"blob {digest} was changed after it was written; run `holdfast doctor` on the store")


def _remove(part: Path) -> None:
    """A copy that was not finished, now or when somebody was killed."""
    for end in ("", "-journal", "-wal", "-shm"):
        part.with_name(part.name + end).unlink(missing_ok=True)
