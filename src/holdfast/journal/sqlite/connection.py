"""How one gets at the SQLite file: connections, patience with other processes, migrations, and errors in our words.

SQLite's own busy handler waits for seconds under contention, so it is off and `begin` retries by itself in fractions of
a millisecond.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from holdfast.core.errors import HoldfastError, SchemaTooNew, StoreCorrupted, StoreUnavailable
from holdfast.journal.sql import migrations

BUSY_LIMIT_S = 30.0  # how long another writer may hold the file before we say so
WAL_PAGES = 4000  # checkpoint about every 16 MB: larger batches of page writes, a bounded log
T = TypeVar("T")

NEW_FILE = ("auto_vacuum=INCREMENTAL",)  # before its first page: what is deleted can be given back bit by bit
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    f"wal_autocheckpoint={WAL_PAGES}",
    "foreign_keys=OFF",
    "temp_store=MEMORY",
    "cell_size_check=ON",  # a page is looked over when it is first read
    *(("fullfsync=ON", "checkpoint_fullfsync=ON") if sys.platform == "darwin" else ()),
)


def connect(path: Path) -> Any:
    """Typed loosely: apsw's stubs leave the types of bindings and rows open."""
    is_new = not path.exists() or not path.stat().st_size
    ensure_private(path)
    connection: Any = apsw.Connection(str(path))
    connection.set_busy_timeout(0)
    for pragma in (*(NEW_FILE if is_new else ()), *PRAGMAS):
        patiently(lambda pragma=pragma: connection.execute(f"PRAGMA {pragma}").fetchall())
    return connection


def ensure_private(path: Path) -> None:
    """A file that is not there yet is made so that only its owner may read it, and SQLite's files beside it likewise.

    One that is there is not even opened: closing it would drop the locks that this process has on it.
    """
    if not path.exists():
        with suppress(OSError):  # SQLite will say what is wrong, or somebody was quicker
            os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


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
                what, todo = (
                    f"the disk is full, {path} cannot grow",
                    "free some space and resume, what was recorded is safe",
                )
            case apsw.ReadOnlyError() | PermissionError():
                what, todo = f"{path} is read-only for this user", "make the file and its folder writable"
            case apsw.CantOpenError() if path.is_dir():
                what, todo = f"{path} is a folder", f"name a file in it, such as {path / 'holdfast.db'}"
            case apsw.CantOpenError():
                what, todo = f"{path} cannot be opened", "check that its folder exists and is writable"
            case apsw.BusyError() | apsw.LockedError():
                what, todo = (
                    f"{path} is locked by another process for over {BUSY_LIMIT_S:.0f} s",
                    "find and end that process",
                )
            case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():
                raise StoreCorrupted(
                    f"{path} is damaged ({error})",
                    todo="run `holdfast doctor`, and restore a backup if it cannot be read",
                ) from error
            case apsw.Error() | OSError():
                what, todo = f"{path} cannot be read or written ({error})", "check the disk, then resume"
            case _:
                return
        raise StoreUnavailable(what, todo=todo) from error


def _is_full(error: apsw.Error) -> bool:
    """The index of the log that finds no room is an I/O error to SQLite."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def patiently(work: Callable[[], T]) -> T:
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
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))


def migrate(connection: Any, path: Path, may_migrate: Callable[[], bool]) -> None:
    steps = migrations("sqlite")
    version = _version(connection)
    if version > len(steps):
        raise SchemaTooNew(
            f"{path} has schema version {version}, this Holdfast knows {len(steps)}; upgrade Holdfast to open it"
        )
    if version == len(steps):
        return
    if version and not may_migrate():
        raise StoreUnavailable(
            f"{path} must be upgraded from schema version {version} to {len(steps)}, and another process is using it",
            todo="end that process first",
        )
    begin(connection)
    # Another process may have been quicker between the look and the lock.
    for number in range(_version(connection), len(steps)):
        connection.execute(steps[number])
        connection.pragma("user_version", number + 1)
    patiently(lambda: connection.execute("COMMIT"))


def _version(connection: Any) -> int:
    """Even a look may have to wait: as long as another process turns a new file into one with a log."""
    return patiently(lambda: cast(int, connection.pragma("user_version")))
