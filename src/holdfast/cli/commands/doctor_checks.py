"""What the doctor looks at: the folder, the disk, the store's file, and every execution in it.

A check returns findings and repairs nothing, with two exceptions: a damaged execution is set aside so that the others
go on, and the lock files of dead processes are removed.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.cli.common import context
from holdfast.cli.common.invocation import holdfast
from holdfast.core.differences import Difference
from holdfast.core.errors import HoldfastError, SchemaTooNew, StoreCorrupted, StoreUnavailable
from holdfast.core.events import TaskCreated
from holdfast.core.lifecycle import ENDS
from holdfast.engine.at_rest import is_due
from holdfast.engine.transfer.compatibility import tool_differences
from holdfast.journal.checkpoint_files import saved_of
from holdfast.journal.deletion import FILES_FOLDER
from holdfast.journal.inspection import verify_execution
from holdfast.journal.liveness import Liveness, LockFiles
from holdfast.journal.postgres.address import is_postgres
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Head, Quarantine, Query, Store
from holdfast.settings import Settings
from holdfast.tools.registry import Registry

if TYPE_CHECKING:
    from holdfast.journal.postgres.store import PostgresStore

FREE_BYTES_MIN = 50 * 1024 * 1024
PAGE_HEADS = 500


class Diagnosis(NamedTuple):
    """`what` was found, its `meaning`, and `todo`. Only "tidied" findings leave nothing to do."""

    severity: Literal["problem", "warning", "tidied"]
    name: str
    what: str
    meaning: str
    todo: str
    execution_id: str = ""


# ---- folder, disk, file --------------------------------------------------------------------------------------------


def folder(settings: Settings) -> list[Diagnosis]:
    if settings.store_file is None:
        return []
    wanted = settings.data_folder
    nearest = _nearest(wanted)
    try:
        if not nearest.is_dir():
            raise NotADirectoryError(20, "it is not a folder", str(nearest))
        with tempfile.NamedTemporaryFile(dir=nearest, prefix=".holdfast-"):
            pass
    except OSError as error:
        what = f"{nearest} cannot be written ({error.strerror})"
        return [
            Diagnosis(
                "problem", "folder", what, "Nothing can be started or resumed", "Make it writable, or use --store"
            )
        ]
    return []


def disk(settings: Settings) -> list[Diagnosis]:
    if is_postgres(settings.store):
        return []  # its disk is the server's
    free = shutil.disk_usage(_nearest(settings.data_folder)).free
    if free >= FREE_BYTES_MIN:
        return []
    what = f"only {free // 1024**2} MB are free for {settings.data_folder}"
    meaning = "Steps will soon be held back, because their outcomes cannot be recorded"
    return [Diagnosis("warning", "disk", what, meaning, "Free some space; what was recorded is safe")]


def _nearest(path: Path) -> Path:
    """The folder itself, or what is there of the way to it."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def is_there(settings: Settings) -> bool:
    """Whether there is a journal to look at; in a database, one is made by looking."""
    return is_postgres(settings.store) or (settings.store_file is not None and settings.store_file.exists())


def open_store(settings: Settings) -> SqliteStore | PostgresStore:
    if is_postgres(settings.store):
        return context.open_store(settings)
    path = Path(settings.store)
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder", todo="name a file with --store")
    try:
        with path.open("r+b"):
            pass
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written ({error.strerror})") from error
    return context.open_store(settings)


def store_trouble(error: HoldfastError) -> Diagnosis:
    match error:
        case SchemaTooNew():
            return Diagnosis("problem", "schema", str(error), "This Holdfast leaves the file alone", "Upgrade Holdfast")
        case StoreCorrupted():
            meaning = "Its bytes are not what was written"
            todo = "Copy the file away, then restore a backup or start with a new store"
            return Diagnosis("problem", "damaged store", error.what, meaning, todo)
        case _:
            meaning = "Nothing can be recorded, so nothing is started"
            todo = f"{error.todo[:1].upper()}{error.todo[1:]}" or "Make the file and its folder writable"
            return Diagnosis("problem", "store", error.what, meaning, todo)


# ---- executions ----------------------------------------------------------------------------------------------------


async def whole_store(
    store: SqliteStore | PostgresStore, registry: Registry, liveness: Liveness, data_folder: Path
) -> list[Diagnosis]:
    findings = [
        Diagnosis(
            "problem", "damaged store", trouble, "Its bytes are not what was written", "Restore a backup of the file"
        )
        for trouble in await store.check()
    ]
    held = set(await store.drivers())
    async for head in _heads(store):
        findings += await _execution(store, head, registry, liveness, data_folder)
    findings += _unfinished_repairs(data_folder)
    return findings + (_lock_files(liveness, held) if isinstance(liveness, LockFiles) else [])


def _lock_files(locks: LockFiles, held: set[str]) -> list[Diagnosis]:
    findings: list[Diagnosis] = []
    for driver in locks.everybody():
        if driver not in held and locks.is_dead(driver):
            locks.forget(driver)
            what = f"the lock file of a dead process, {driver}, was left behind"
            findings.append(Diagnosis("tidied", "lock file", what, "It held nothing", "It was removed"))
    return findings


async def _heads(store: Store) -> AsyncIterator[Head]:
    query = Query(limit=PAGE_HEADS)
    while page := await store.heads(query):
        for head in page:
            yield head
        query = Query(limit=PAGE_HEADS, before=page[-1].id)


async def _execution(
    store: Store, head: Head, registry: Registry, liveness: Liveness, data_folder: Path
) -> list[Diagnosis]:
    try:
        await store.head(head.id)  # a list shows what it can of a damaged row; asked for alone, it says so
        state = await verify_execution(store, head)
    except StoreCorrupted as error:
        await store.commit([Quarantine(execution_id=head.id, why=head.quarantined or str(error))])
        what = str(error) if error.execution_id else f"execution {head.id}: {error}"
        meaning = "It was set aside: nobody drives it, the others go on"
        todo = await _repaired_by(store, head, data_folder) or (
            f"Import a checkpoint or an export of it: {holdfast()} import FILE; or restore a backup, then "
            f"{holdfast()} doctor --release {head.id}; or start it anew"
        )
        return [Diagnosis("problem", "damaged execution", what, meaning, todo, head.id)]
    findings: list[Diagnosis] = []
    if head.quarantined:
        what = f"execution {head.id} is set aside ({head.quarantined}), but is whole now"
        todo = f"Let it back in: {holdfast()} doctor --release {head.id}"
        findings.append(Diagnosis("problem", "set aside", what, "Nobody drives it", todo, head.id))
    if head.status not in ENDS:
        findings += [*_orphaned(head, liveness), *_tools(head, state.facts(), registry)]
    return findings


async def _repaired_by(store: Store, head: Head, data_folder: Path) -> str:
    """The newest checkpoint of it, or of its parents, that repairs it, with the command."""
    from holdfast.engine.transfer.repair import merge
    from holdfast.engine.transfer.restore import read_bundle

    folder, seen = data_folder / FILES_FOLDER, set[str]()
    wanted = head.id if folder.is_dir() else ""
    while wanted and wanted not in seen:
        seen.add(wanted)
        above = next((one.parent_id for one in await store.heads(Query(ids=(wanted,), limit=1))), "")
        for _, path in saved_of(folder, wanted) if not above else ():
            try:
                merged = await merge(store, await read_bundle(path))
            except HoldfastError:
                continue
            lost = f"; the last {merged.lost} events are lost" if merged.lost else ""
            return f"Repair it from its checkpoint: holdfast import {shlex.quote(str(path))}{lost}"
        wanted = above
    return ""


def _unfinished_repairs(data_folder: Path) -> list[Diagnosis]:
    from holdfast.engine.transfer.repair import unfinished

    return [
        Diagnosis(
            "problem", "unfinished repair", f"a process died while it repaired execution {path.stem}",
            "It may be missing, or set aside", f"Finish it: holdfast import {shlex.quote(str(path))}", path.stem,
        )
        for path in unfinished(data_folder)
    ]  # fmt: skip


def _orphaned(head: Head, liveness: Liveness) -> list[Diagnosis]:
    if head.held:
        return []  # nobody shall drive it before a person says so
    if head.driver:
        if not liveness.is_dead(head.driver):
            return []
        why = "the process that drove it died"
    elif head.status == "running" or (head.status == "waiting" and is_due(head, time.time_ns() // 1000)):
        why = "nobody drives it"
    else:
        return []
    what = f"execution {head.id} ({head.name}) is {head.status}, but {why}"
    return [
        Diagnosis(
            "warning", "orphaned", what, "It does not move; nothing is lost", f"{holdfast()} resume {head.id}", head.id
        )
    ]


def _tools(head: Head, created: TaskCreated, registry: Registry) -> list[Diagnosis]:
    """What an unfinished execution was planned with and cannot find here."""
    found = tool_differences(created, registry)
    if created.program.kind == "function" and created.program.name not in registry.function_names():
        found.append(Difference(code="function_missing", name=created.program.name))
    todo = f"Put it back in `modules`, or go on regardless: {holdfast()} resume {head.id} --force"
    return [
        Diagnosis(
            "warning", "program", f"execution {head.id}: {what}", "It cannot go on as it was started", todo, head.id
        )
        for what in found
    ]
