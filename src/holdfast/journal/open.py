"""From the address of a store to its journal: the store, who is alive in it, and the ring for live frames.

Every process opens its store here, so that all of them look for the same locks. Loads no database driver before it is
needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.journal.liveness import InProcess, Liveness, LockFiles
from holdfast.journal.postgres.address import is_postgres, open_postgres

if TYPE_CHECKING:
    from holdfast.journal.frame_ring import LiveRing
    from holdfast.journal.postgres.store import PostgresStore
    from holdfast.journal.sqlite.store import SqliteStore
    from holdfast.journal.store import DeletableStore

MEMORY = "memory:"
DRIVERS_FOLDER = "drivers"

_memory_liveness = InProcess()


class Journal(NamedTuple):
    store: DeletableStore
    liveness: Liveness
    ring: LiveRing | None = None


def open_journal(address: str, data_folder: Path) -> Journal:
    """`data_folder` is where the locks and the ring of a file lie; it must be there."""
    if address == MEMORY:
        from holdfast.journal.memory import MemoryStore

        return Journal(MemoryStore(), _memory_liveness)
    store = open_store(address, data_folder)
    if is_postgres(address):
        return Journal(store, liveness_of(store, data_folder))
    from holdfast.journal.frame_ring import RING_FILE, LiveRing

    return Journal(store, liveness_of(store, data_folder), LiveRing(data_folder / RING_FILE))


def open_store(address: str, data_folder: Path) -> SqliteStore | PostgresStore:
    """A store in a file or a database. An older file is upgraded unless another process uses it."""
    if is_postgres(address):
        return open_postgres(address)
    from holdfast.journal.sqlite.store import SqliteStore

    return SqliteStore(Path(address), may_migrate=lambda: is_alone(data_folder))


def liveness_of(store: SqliteStore | PostgresStore, data_folder: Path) -> Liveness:
    """Who is alive. A database says so when it is asked for the drivers, and it is good as long as that."""
    return getattr(store, "leases", None) or lock_files(data_folder)


def lock_files(data_folder: Path) -> LockFiles:
    return LockFiles(data_folder / DRIVERS_FOLDER)


def is_alone(data_folder: Path, us: str = "") -> bool:
    """Whether no engine uses the file, but for ours."""
    locks = lock_files(data_folder)
    return all(driver == us or locks.is_dead(driver) for driver in locks.everybody())
