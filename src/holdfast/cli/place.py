"""Where a command works: the folder, its settings, and the journal, opened as lightly as the command allows.

Looking and commanding need neither the user's modules nor any tool, so a broken module never stands in their way.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from holdfast.core.errors import NotFound, UsageError
from holdfast.journal.postgres_address import is_postgres, open_postgres

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.engine.engine import Engine as BareEngine
    from holdfast.journal.liveness import Liveness, LockFiles
    from holdfast.journal.postgres import PostgresStore
    from holdfast.journal.sqlite import SqliteStore
    from holdfast.journal.store import Head
    from holdfast.settings import Settings

T = TypeVar("T")
DRIVERS_FOLDER = "drivers"


class Flags(NamedTuple):
    """The options every command shares."""

    store: str | None = None
    folder: str | None = None


def settings_of(context: typer.Context) -> Settings:
    """The settings that apply; also moves to the folder given with -C, so that every path means the same."""
    from holdfast.settings import load_settings

    flags: Flags = context.obj
    if flags.folder is not None:
        try:
            os.chdir(flags.folder)
        except OSError as error:
            raise UsageError(f"--folder {flags.folder}: {error.strerror}; name a folder that exists") from None
    return load_settings(Path.cwd(), os.environ, {"store": flags.store})


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def bare_engine(settings: Settings, *, with_tools: bool = False) -> AsyncGenerator[BareEngine]:
    """An engine that looks and commands but drives nothing; it knows the tools only if what is said must fit them."""
    from holdfast.engine.engine import Engine as BareEngine
    from holdfast.engine.feed import Feed
    from holdfast.engine.services import Services
    from holdfast.journal.live import LiveRing
    from holdfast.journal.writer import Writer
    from holdfast.tools.registry import Registry
    from holdfast.version import VERSION

    registry = Registry()
    if with_tools:
        from holdfast.app import registry_of

        registry = registry_of(settings)
    path = existing_store(settings)
    store = open_store(settings)
    feed = Feed(LiveRing(path.with_name("live.db")) if path else None)
    services = Services(
        store=store, writer=Writer(store), registry=registry, feed=feed, driver="", folder=settings.root, programs={},
        version=VERSION,
    )  # fmt: skip
    services.driver = services.new_id()
    engine = BareEngine(services, liveness_of(settings, store), recover="none")
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def driving_engine(settings: Settings) -> AsyncGenerator[Engine]:
    """An engine with everything, that drives what it is given and the children of that."""
    from holdfast.app import Engine

    async with Engine(settings=settings, recover="family") as engine:
        yield engine


def existing_store(settings: Settings) -> Path | None:
    """The journal's file, or None if it is in a database; looking at a folder must not leave one behind."""
    if is_postgres(settings.store):
        return None
    path = settings.store_file
    if path is None:
        raise UsageError("a store in memory ends with its process, so there is nothing to look at; use a file")
    if path.is_dir():
        raise UsageError(f"store: {path} is a folder; name a file")
    if not path.exists():
        raise NotFound(f"there is no journal at {path}; start a task with `holdfast run PLAN`, or name another --store")
    return path


def open_store(settings: Settings) -> SqliteStore | PostgresStore:
    """The store alone; an older one is upgraded unless another process is using it."""
    path = existing_store(settings)
    if path is None:
        return open_postgres(settings.store)
    from holdfast.journal.sqlite import SqliteStore

    locks = lock_files(settings)
    alone = lambda: all(locks.is_dead(driver) for driver in locks.everybody())  # noqa: E731
    return SqliteStore(path, may_migrate=alone)


def liveness_of(settings: Settings, store: SqliteStore | PostgresStore) -> Liveness:
    """Who is alive. A database says so when it is asked for the drivers, and it is good as long as that."""
    return getattr(store, "leases", None) or lock_files(settings)


def lock_files(settings: Settings) -> LockFiles:
    from holdfast.journal.liveness import LockFiles

    return LockFiles(settings.data_folder / DRIVERS_FOLDER)


def is_left_alone(head: Head, is_dead: Callable[[str], bool]) -> bool:
    """It should move, and no living process drives it."""
    if head.ended_at or head.status in ("paused", "interrupted"):
        return False
    return not head.driver or is_dead(head.driver)


def left_alone(execution_id: str) -> str:
    return f"nobody is driving it now; go on with: holdfast resume {execution_id}"
