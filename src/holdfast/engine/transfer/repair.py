"""Repairs a damaged execution from a file of it: what is whole here and what is whole in the file become one history.

The chain of digests decides what is whole. Both must agree up to the damage; events behind the damage are kept if they
still fit. The whole family is then replaced, and held until a person resumes it. Before anything is removed, the
repaired family is on disk in a file of its own, and the same import of that file finishes what a crash cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import HoldfastError, NotFound, Refused, StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.engine.services import Services
from holdfast.journal import checkpoint_files
from holdfast.journal.blobs import fetch_blob
from holdfast.journal.bundle.write import Bundle, ExportedExecution, open_rows, wanted_blobs, write
from holdfast.journal.codec import CHAIN_START, Row, link
from holdfast.journal.deletion import why_kept
from holdfast.journal.inspection import verify_execution
from holdfast.journal.store import Forget, Head, NewExecution, Quarantine, Query, Store

FOLDER = "repair"  # beside the store; a file lies there only while a family is replaced
SET_ASIDE = "it is being repaired from a file"
CHILDREN_MAX = 1000


class Merged(NamedTuple):
    """A family as it will be, who of it is here now, and how many of its events are whole nowhere."""

    bundle: Bundle
    here: list[Head]
    lost: int


async def is_damaged(store: Store, bundle: Bundle) -> bool:
    """Whether one of the file's executions is here and was set aside, or has to be."""
    for carried in bundle.executions:
        try:
            head = await store.head(carried.state.id)
            if head.quarantined:
                return True
            await verify_execution(store, head)
        except NotFound:
            continue
        except StoreCorrupted:
            return True
    return False


async def merge(store: Store, bundle: Bundle) -> Merged:
    """The file and what is here as one history for each of the family. Raises Refused if they are not the same."""
    heads = await _family(store, bundle)
    files = {carried.state.id: carried for carried in bundle.executions}
    executions: list[ExportedExecution] = []
    blobs, lost = dict(bundle.blobs), 0
    for execution_id in [*files, *(one for one in heads if one not in files)]:
        rows = await _merged_rows(store, heads.get(execution_id), files.get(execution_id), blobs)
        if not rows:
            raise Refused(f"execution {execution_id} is damaged, too, and is not in the file; nothing was changed")
        executions.append(open_rows(execution_id, rows))
        if execution_id in heads:
            lost += max(0, heads[execution_id].seq - len(rows))
    _check_known(executions)
    wanted = {digest for carried in executions for digest in wanted_blobs(carried.rows)}
    whole = Bundle(executions, {digest: blob for digest, blob in blobs.items() if digest in wanted})
    return Merged(whole, list(heads.values()), lost)


async def replace(
    services: Services,
    merged: Merged,
    is_dead: Callable[[str], bool],
    news: Callable[[Bundle, Sequence[ExportedExecution]], list[NewExecution]],
) -> None:
    """Put the merged family in the place of what is here."""
    store, root = services.store, merged.bundle.root.state
    for head in merged.here:
        if head.driver and not is_dead(head.driver):
            raise Refused(f"a process drives execution {head.id} now; end that process first; nothing was changed")
    file = _keep(services, merged.bundle)
    new, *others = [await _with_inbox(store, one) for one in news(merged.bundle, merged.bundle.executions)]
    new.family = tuple(others)
    aside = [head.id for head in merged.here if not head.ended_at and not head.quarantined]
    await store.commit([Quarantine(execution_id=one, why=SET_ASIDE) for one in aside])  # no engine takes it up now
    if root.id not in await store.delete([root.id]):
        await store.commit([Quarantine(execution_id=one, why="") for one in aside])
        if file is not None:
            file.unlink(missing_ok=True)
        raise Refused(f"{await _why_kept(store, root)}; nothing was changed")
    written = await services.writer.write(new)
    if not written.ok:
        raise Refused(f"execution {written.existing} was created meanwhile; import this file: {file}")
    written_ids = tuple(carried.state.id for carried in merged.bundle.executions)
    await store.commit([Forget(execution_ids=written_ids)])  # its other files stay
    if file is not None:
        file.unlink(missing_ok=True)


def unfinished(data_folder: Path) -> list[Path]:
    """Files of repairs that a crash cut short."""
    folder = data_folder / FOLDER
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def finished(data_folder: Path | None, source: str | Path | bytes) -> None:
    """What was imported is no longer needed as a file, if it is one of an unfinished repair."""
    if data_folder is not None and not isinstance(source, bytes):
        path = Path(source).absolute()
        if path.parent == (data_folder / FOLDER).absolute():
            path.unlink(missing_ok=True)


def _keep(services: Services, bundle: Bundle) -> Path | None:
    if services.data_folder is None:
        return None
    folder = services.data_folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{bundle.root.state.id}.json"
    checkpoint_files.write_file(path, write(bundle, services.version))
    return path


async def _with_inbox(store: Store, new: NewExecution) -> NewExecution:
    """What it was asked and has not answered yet goes with it, as far as that can be read."""
    known = {command.id for command in new.posts}
    try:
        pending = await store.pending([new.head.id])
    except StoreCorrupted:
        return new
    new.posts = (*new.posts, *(command for command in pending if command.id not in known))
    return new


async def _why_kept(store: Store, root: Execution) -> str:
    head = next(iter(await store.heads(Query(ids=(root.id,), limit=1))))
    if head.parent_id:
        return f"execution {root.id} is a child; import a file of its parent, {head.parent_id}"
    return await why_kept(store, head) or f"execution {root.id} cannot be replaced now"


async def _family(store: Store, bundle: Bundle) -> dict[str, Head]:
    """Those of the file that are here, with all their descendants; a damaged row is read as far as that is possible."""
    ids = tuple(carried.state.id for carried in bundle.executions)
    found = {head.id: head for head in await store.heads(Query(ids=ids, limit=len(ids)))}
    parents = list(found)
    for parent in parents:  # which grows meanwhile
        for head in await store.heads(Query(parent_id=parent, limit=CHILDREN_MAX)):
            if head.id not in found:
                found[head.id] = head
                parents.append(head.id)
    return found


async def _merged_rows(
    store: Store, head: Head | None, carried: ExportedExecution | None, blobs: dict[str, bytes]
) -> list[Row]:
    here = await _rows(store, head) if head is not None else {}
    whole = list(_chained([], here))
    rows = list(carried.rows) if carried is not None else []
    agreed = min(len(whole), len(rows))
    if agreed and whole[agreed - 1].digest != rows[agreed - 1].digest:
        raise Refused(
            f"execution {head.id if head else ''} is another history here than in the file: they differ at or before "
            f"event {agreed}, which is whole in both; nothing was changed"
        )
    for row in [*whole[len(rows) :]] or _chained(rows, here):
        if not await _has_values(store, row, blobs):
            break
        rows.append(row)
    return rows


def _chained(before: Sequence[Row], here: dict[int, Row]) -> list[Row]:
    """The events from here that go on where `before` ends."""
    found: list[Row] = []
    seq, digest = len(before), before[-1].digest if before else CHAIN_START
    while (row := here.get(seq + 1)) is not None and link(digest, row.version, row.body) == row.digest:
        found.append(row)
        seq, digest = row.seq, row.digest
    return found


async def _has_values(store: Store, row: Row, blobs: dict[str, bytes]) -> bool:
    """Whether the large values of an event are whole; they are added to `blobs`."""
    try:
        for digest, blob in wanted_blobs([row]).items():
            if digest not in blobs:
                blobs[digest] = await fetch_blob(store, blob)
    except HoldfastError:
        return False
    return True


async def _rows(store: Store, head: Head) -> dict[int, Row]:
    """The events that can be read, by number."""
    try:
        _, rows = await store.events(head.id, 0, -1)
        return {row.seq: row for row in rows}
    except StoreCorrupted:
        found: dict[int, Row] = {}
    for after in range(head.seq):
        try:
            _, rows = await store.events(head.id, after, 1)
        except StoreCorrupted:
            continue
        found |= {row.seq: row for row in rows}
    return found


def _check_known(executions: Sequence[ExportedExecution]) -> None:
    """A child whose start is lost would be started once more."""
    known = {child.id for carried in executions for child in carried.state.children.values()}
    for carried in executions[1:]:
        state = carried.state
        if state.id not in known:
            root = executions[0].state.id
            raise Refused(
                f"execution {state.id} is a child of which the event that started it is lost; to begin again where "
                f"the file ends: holdfast delete {root} --force, and then import it; nothing was changed"
            )
