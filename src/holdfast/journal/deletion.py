"""Tidying up for good: who goes when a query says who may, and the files that lie beside the store.

What is deleted is written down in the same transaction, and its files are removed after that. Whoever is killed in
between leaves files that the next one to tidy up finds written down, so nothing has to be guessed from a file's name.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.core.lifecycle import ENDS
from holdfast.journal.store import DeletableStore, Forget, Head, Query, Store

FILES_FOLDER = "executions"  # beside the store; a file there begins with the id of its execution and a dot
# What else is kept beside the store under the id of its execution: logs of detached ones, files as they were before.
_FOLDERS = (FILES_FOLDER, "logs", "before")
PAGE_HEADS = 100  # looked at and deleted in one go
FILES_EVERY = 10_000  # so many deleted executions: the files of all of them are looked for in one walk
FORGOTTEN_AT_ONCE = 1_000
FAMILY_MAX = 100_000  # children or forks of one execution that are looked at to say why it stays


class DeletedPage(NamedTuple):
    """Who is gone, with all that belongs to them, and who was asked for and stays."""

    gone: list[str]
    kept: list[Head]


async def prune(
    store: DeletableStore, query: Query, data_folder: Path | None, *, rehearse: bool = False
) -> AsyncGenerator[DeletedPage]:
    """Delete all that fit and have ended, page by page; or, to rehearse, only say who would go.

    A child belongs to its parent: it goes with it, and never alone.
    """
    if not rehearse:
        await delete(store, (), data_folder)  # what somebody who was killed has left: files, and space
    wanted = msgspec.structs.replace(
        query, status=query.status or tuple(sorted(ENDS)), ended_after=(0, ""), limit=PAGE_HEADS
    )
    files_of = 0
    try:
        while page := await store.heads(wanted):
            last = max((head.ended_at, head.id) for head in page)
            if wanted.ended_after is not None and last <= wanted.ended_after:
                return  # the times of all of these are damaged: nothing comes after them
            wanted.ended_after = last
            bite = await _delete(store, page, rehearse=rehearse)
            yield bite
            files_of += len(bite.gone)
            if files_of >= FILES_EVERY and not rehearse:
                files_of = 0
                await remove_files(store, data_folder)
    finally:
        if not rehearse:
            await remove_files(store, data_folder)


async def delete(
    store: DeletableStore, heads: Sequence[Head], data_folder: Path | None, *, rehearse: bool = False
) -> DeletedPage:
    """Delete these, with their children and their files, as far as nobody needs them."""
    bite = await _delete(store, heads, rehearse=rehearse)
    if not rehearse:
        await remove_files(store, data_folder)
    return bite


async def _delete(store: DeletableStore, heads: Sequence[Head], *, rehearse: bool) -> DeletedPage:
    roots = await _roots(store, heads)
    gone = await (store.would_delete(roots) if rehearse else store.delete(roots))
    known = set(gone)
    return DeletedPage(gone, [head for head in heads if head.id not in known])


def why_spared(head: Head, is_dead: Callable[[str], bool], *, force: bool) -> str:
    """Why what was set aside is not deleted with the rest: what is damaged may be mended, what is gone may not."""
    if head.ended_at or not head.quarantined:
        return ""
    if head.driver and not is_dead(head.driver):
        return f"execution {head.id} was set aside, but a process still has it in hand; end that process first"
    if not force:
        todo = f"look with: holdfast doctor; delete it for good with: holdfast delete {head.id} --force"
        return f"execution {head.id} was set aside, because its journal is damaged ({head.quarantined}); {todo}"
    return ""


async def why_kept(store: Store, head: Head) -> str:
    """Why an execution may not go now, and what can be done; "" if it may."""
    if not head.ended_at and not head.quarantined:
        return f"execution {head.id} is {head.status} and has not ended; stop it first: holdfast stop {head.id}"
    if head.parent_id and await store.count(Query(ids=(head.parent_id,))):
        return f"execution {head.id} is a child and goes with its parent: holdfast delete {head.parent_id}"
    members, seen = [head], set[str]()
    for member in members:  # which grows meanwhile
        if member.id in seen:
            continue  # a family that goes in a circle can only be forged; nobody may wait for its end
        seen.add(member.id)
        if not member.ended_at and not member.quarantined:
            todo = f"stop that first: holdfast stop {member.id}"
            return f"its child {member.id} is {member.status} and has not ended; {todo}"
        for fork in await store.heads(Query(forked_from=member.id, limit=FAMILY_MAX)):
            if not fork.ended_at and not fork.quarantined:
                return f"execution {fork.id} was made from it, has not ended and may still need it"
        members += await store.heads(Query(parent_id=member.id, limit=FAMILY_MAX))
    return ""


async def _roots(store: Store, page: Sequence[Head]) -> list[str]:
    parents = tuple({head.parent_id for head in page} - {""})
    there = {head.id for head in await store.heads(Query(ids=parents, limit=len(parents)))} if parents else set[str]()
    return [head.id for head in page if head.parent_id not in there]


async def remove_files(store: DeletableStore, data_folder: Path | None) -> None:
    """The files of all executions that were deleted, now or before somebody was killed."""
    deleted = set(await store.deleted())
    if deleted:
        there = await store.heads(Query(ids=tuple(deleted), limit=len(deleted)))  # created again, by a repair
        again = frozenset(head.id for head in there)
        if data_folder is not None:
            await asyncio.to_thread(_remove_all, data_folder, frozenset(deleted - again))
    ids = sorted(deleted)
    for first in range(0, len(ids), FORGOTTEN_AT_ONCE):
        await store.commit([Forget(execution_ids=tuple(ids[first : first + FORGOTTEN_AT_ONCE]))])


def files_bytes(data_folder: Path | None) -> int:
    """How much room all files of executions take beside the store."""
    if data_folder is None:
        return 0
    found = 0
    for name in _FOLDERS:
        for path in (data_folder / name).rglob("*"):
            with suppress(FileNotFoundError):  # somebody else tidies up, too
                found += path.lstat().st_size if not path.is_dir() else 0
    return found


def _remove_all(data_folder: Path, execution_ids: Collection[str]) -> None:
    for name in _FOLDERS:
        _remove(data_folder / name, execution_ids)


def _remove(folder: Path, execution_ids: Collection[str]) -> None:
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name.partition(".")[0] not in execution_ids:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
