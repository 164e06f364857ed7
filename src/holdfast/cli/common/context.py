"""Where a command works: the folder, its settings, and the journal, opened as lightly as the command allows.

Looking and commanding need neither the user's modules nor any tool, so a broken module never stands in their way.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from holdfast.cli.common.invocation import holdfast
from holdfast.cli.output.format import aside
from holdfast.core.errors import NotFound, UsageError
from holdfast.journal.postgres.address import is_postgres

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.cli.foreground.step_mode import StepConfirmer
    from holdfast.engine.drive.scheduler import Recovery
    from holdfast.engine.engine import Engine as BareEngine
    from holdfast.journal.liveness import Liveness
    from holdfast.journal.postgres.store import PostgresStore
    from holdfast.journal.sqlite.store import SqliteStore
    from holdfast.settings import Settings

T = TypeVar("T")


class Flags(NamedTuple):
    """The options every command shares."""

    store: str | None = None
    folder: str | None = None
    profile: str | None = None


def settings_of(context: typer.Context, *, tell_warnings: bool = True) -> Settings:
    """The settings that apply in the folder of this command."""
    from holdfast.settings import load_settings

    flags: Flags = context.obj
    settings = load_settings(enter_folder(context), os.environ, {"store": flags.store}, flags.profile)
    for warning in settings.warnings if tell_warnings else ():
        aside(warning, as_json=bool(context.params.get("as_json")))
    return settings


def enter_folder(context: typer.Context) -> Path:
    """Move to the folder given with -C, so that every path means the same."""
    flags: Flags = context.obj
    if flags.folder is not None:
        try:
            os.chdir(flags.folder)
        except OSError as error:
            raise UsageError(f"--folder {flags.folder}: {error.strerror}; name a folder that exists") from None
    return Path.cwd()


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def bare_engine(settings: Settings, *, with_tools: bool = False) -> AsyncGenerator[BareEngine]:
    """An engine that looks and commands but drives nothing; it knows the tools only if what is said must fit them."""
    from holdfast.app import looking_engine

    existing_store(settings)
    engine = looking_engine(settings, with_tools=with_tools)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def driving_engine(
    settings: Settings, turnstile: StepConfirmer | None = None, *, recover: Recovery = "family"
) -> AsyncGenerator[Engine]:
    """An engine with everything, that drives what it is given and the children of that, or leaves it to others."""
    from holdfast.app import Engine

    engine = Engine(settings=settings, recover=recover)
    if turnstile is not None:
        engine.services.programs = turnstile.stand_before(engine.services.programs)
    async with engine:
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
    from holdfast.journal.open import open_store

    existing_store(settings)
    return open_store(settings.store, settings.data_folder)


def is_alone(settings: Settings, us: str = "") -> bool:
    """Whether no engine uses the file, but for ours."""
    from holdfast.journal.open import is_alone

    return is_alone(settings.data_folder, us)


@asynccontextmanager
async def looked_into(settings: Settings) -> AsyncGenerator[SqliteStore | PostgresStore | None]:
    """The store, for looking alone; None where nothing was ever run, unless somebody named one that is not there."""
    try:
        store = open_store(settings)
    except NotFound:
        if settings.sources["store"] in ("--store", "HOLDFAST_STORE"):
            raise
        yield None
        return
    try:
        yield store
    finally:
        await store.close()


def now_us() -> int:
    return time.time_ns() // 1000


def liveness_of(settings: Settings, store: SqliteStore | PostgresStore) -> Liveness:
    from holdfast.journal.open import liveness_of

    return liveness_of(store, settings.data_folder)


def left_alone(execution_id: str, held: str = "") -> str:
    if held:
        accepts = "--other-folder accepts that it was started in another folder"
        return f"it is held: {held}; go on with: {holdfast()} resume {execution_id} ({accepts})"
    return f"nobody is driving it now; go on with: {holdfast()} resume {execution_id}"
