"""An execution that went on elsewhere and comes home: what it did there is added to the history that is here.

History is never rewritten: what is here must be how the file begins, for it and for each of its descendants, and nobody
may be driving it. Then all of it is added in one transaction, or nothing is. What has not ended is held, as after any
import: where it comes from it may still go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core.commands import Command
from holdfast.core.errors import NotFound, Refused
from holdfast.engine.commands.hold import hold, let_go
from holdfast.engine.drive.claims import claim
from holdfast.engine.notifications import count_as_told
from holdfast.engine.services import Services
from holdfast.journal.bundle.write import Bundle, ExportedExecution, wanted_blobs
from holdfast.journal.codec import decode
from holdfast.journal.log import Log, head_change
from holdfast.journal.store import Entry, Head, Hold, NewExecution, Store

IsDead = Callable[[str], bool]


class Gap(NamedTuple):
    """Who of a file has done less here than there, with what is here of it, and who is not here at all."""

    behind: list[tuple[Head, ExportedExecution]]
    missing: list[ExportedExecution]

    @property
    def events(self) -> int:
        return sum(carried.state.seq - head.seq for head, carried in self.behind)


async def compare(store: Store, bundle: Bundle, is_dead: IsDead) -> Gap | None:
    """What the file knows more than this journal; None if its execution is not here. Raises Refused if both went on."""
    gap = Gap([], [])
    for carried in bundle.executions:
        here = await _head(store, carried.state.id)
        if here is not None:
            if await _is_behind(store, here, carried, is_dead):
                gap.behind.append((here, carried))
        elif carried is bundle.root:
            return None
        else:
            gap.missing.append(carried)
    return gap


async def _is_behind(store: Store, here: Head, carried: ExportedExecution, is_dead: IsDead) -> bool:
    seq, digest = carried.state.seq, carried.rows[-1].digest
    if here.driver and not is_dead(here.driver):
        raise Refused(
            f"execution {here.id} is here, and a process drives it now: the original runs; nothing was changed"
        )
    if here.seq == seq and here.digest == digest:
        return False
    if here.seq < seq and carried.rows[here.seq - 1].digest == here.digest:
        return True
    if here.seq > seq and (await store.events(here.id, seq, 0))[0] == digest:
        raise Refused(
            f"execution {here.id} is here, and further: it has {here.seq} events, the file has {seq}; "
            f"nothing was changed{'' if here.ended_at else f'; go on with: holdfast resume {here.id}'}"
        )
    raise Refused(
        f"execution {here.id} is here with {here.seq} events, and the file has gone another way to {seq}; nothing was "
        "changed; to have both, import the file under a new id with --as-new"
    )


async def _head(store: Store, execution_id: str) -> Head | None:
    try:
        return await store.head(execution_id)
    except NotFound:
        return None


class Additions(NamedTuple):
    """What comes with the events: descendants that were started elsewhere, and what was said and not heard yet."""

    creates: Sequence[NewExecution]
    posts: Sequence[Command]


async def catch_up(services: Services, bundle: Bundle, gap: Gap, more: Additions, is_dead: IsDead, why: str) -> None:
    """Add what is missing here. `why` is what those are held for that have not ended."""
    store, root = services.store, bundle.root.state.id
    was_held = (await store.head(root)).held
    ids = [head.id for head, _ in gap.behind]
    for refused in (await hold(store, is_dead, ids, why)).values():
        raise Refused(f"{refused}; nothing was changed")
    logs: list[Log] = []
    try:
        for head, _ in gap.behind:
            claimed = await claim(services, head, to_drive=False)  # which reads it from end to end
            if claimed is not None:
                logs.append(claimed.log)
            if claimed is None or claimed.head.seq != head.seq:
                raise Refused(f"somebody has just asked something of execution {head.id}; import it once more")
        entries = [_entry(bundle, *one, log.epoch) for one, log in zip(gap.behind, logs, strict=True)]
        entries[0].creates = tuple(more.creates)
        entries[-1].posts = tuple(more.posts)
        news = [*(carried for _, carried in gap.behind), *gap.missing]
        await count_as_told(services, [carried.state for carried in news])  # before anybody can see it
        if not all(written.ok for written in await services.writer.write_together(entries)):
            raise Refused(f"execution {root} was taken by another process meanwhile; import it once more")
    except BaseException:
        for log in logs:
            log.append(release=True)
            await log.durable()
        if not was_held:
            await let_go(store, root)
        raise
    ended = tuple(carried.state.id for _, carried in gap.behind if carried.state.is_ended)
    await store.commit([Hold(execution_ids=ended, why="")])


def has_news(carried: ExportedExecution) -> bool:
    """Whether something came while it waited that nobody has acted upon yet: no other word of that will come."""
    for event in map(decode, reversed(carried.rows)):
        if isinstance(event, ev.TaskWaiting):
            return False
        if not isinstance(event, ev.CheckpointSaved):
            return carried.state.status == "waiting"
    return False


def _entry(bundle: Bundle, here: Head, carried: ExportedExecution, epoch: int) -> Entry:
    state, rows = carried.state, carried.rows[here.seq :]
    return Entry(
        execution_id=state.id,
        epoch=epoch,
        after=here.seq,
        rows=rows,
        at=state.last_at,
        ended=state.ended,
        total=state.total,
        change=head_change(state, wake=has_news(carried)),
        blobs=tuple((digest, bundle.blobs[digest]) for digest in wanted_blobs(rows)),
        release=True,
    )
