"""One execution's open journal: the folded state, the chain, and the only way to append.

Whoever holds a `Log` holds the execution's epoch. Events are numbered and folded at once and become durable with the
next commit; `durable()` waits for that. After a failed or fenced commit the log is dead: its state may be ahead of the
disk, and only opening it again tells the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import events as ev
from holdfast.core.commands import Answer, Command
from holdfast.core.errors import Fenced, HoldfastError, StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.blobs import Blobs, references
from holdfast.journal.codec import CHAIN_START, Row, decode, make_row, make_snapshot, open_snapshot, verify
from holdfast.journal.store import ASKED, CacheItem, Entry, Head, HeadChange, NewExecution, Store, Stored, Written
from holdfast.journal.writer import Batch, Writer

SNAPSHOT_EVENTS_MIN = 1000  # between two snapshots; that many are folded anew when a journal is opened
PAUSE_NOTICE_US = 3600 * 1_000_000  # a pause limit is announced an hour before it acts


class Log:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        state: Execution,
        chain: bytes,
        epoch: int,
        *,
        snapshot_events_min: int = SNAPSHOT_EVENTS_MIN,
    ) -> None:
        self.state = state
        self.epoch = epoch
        self.durable_seq = state.seq
        self.error: HoldfastError | None = None
        self.released = False  # let go of: whoever still holds this log may not write any more
        self.on_durable: Callable[[bool], None] | None = None  # told whether the head changed
        self.on_lost: Callable[[HoldfastError], None] | None = None
        self.blobs = Blobs(store)
        self._writer = writer
        self._chain = chain
        self._snapshot_events_min = snapshot_events_min
        self._entry: Entry | None = None
        self._batch: Batch | None = None
        self._unsettled = 0  # entries submitted, of which nothing has been heard yet
        self._wakes = False  # a driver should look at it: what is written after that must not forget it

    def append(
        self,
        *events: ev.Event,
        answers: Sequence[Answer] = (),
        posts: Sequence[Command] = (),
        creates: Sequence[NewExecution] = (),
        cached: Sequence[CacheItem] = (),
        release: bool = False,
        wake: bool = False,
    ) -> None:
        """Add events and what goes with them, all in one transaction.

        `release` lets go of the execution; `wake` says that a driver should look at it, whatever it waits for.
        If an event is refused, none of them is written.
        """
        if self.error is not None:
            raise self.error
        if self.released:
            raise Fenced("this execution was let go of; nothing more can be written")
        state = self.state
        entry = self._open_entry()
        status, reasons, seq, chain = state.status, state.reasons, state.seq, self._chain
        rows = entry.rows
        before, kept = seq, len(rows)
        uses: list[str] = []
        try:
            for event in events:
                seq += 1
                row = make_row(chain, seq, event)
                apply(state, event, seq)
                chain = row.digest
                rows.append(row)
                uses += references(row.body)
        except Exception as error:
            del rows[kept:]
            if state.seq != before:  # some were folded already: the state is ahead of what will be written
                self._lose(error if isinstance(error, HoldfastError) else StoreCorrupted(f"cannot append: {error}"))
            raise
        self._chain = chain
        entry.at, entry.ended, entry.total = state.last_at, state.ended, state.total
        self._wakes = (wake or self._wakes) and state.status == "waiting"
        if answers or release or wake or status != state.status or reasons != state.reasons:
            entry.change = head_change(state, self._wakes)
            entry.release = self.released = release
        if self.blobs.fresh:
            entry.blobs = (*entry.blobs, *self.blobs.take_fresh())
        if uses:
            entry.uses = (*entry.uses, *uses)
        if answers or posts or creates or cached:
            entry.answers = (*entry.answers, *answers)
            entry.posts = (*entry.posts, *posts)
            entry.creates = (*entry.creates, *creates)
            entry.cached = (*entry.cached, *cached)
        if seq - state.snapshot_seq > self._snapshot_events_min:
            self._maybe_snapshot(entry, release)

    def _maybe_snapshot(self, entry: Entry, release: bool) -> None:
        """Often enough that reopening is quick, seldom enough that writing them costs next to nothing."""
        state = self.state
        if release or state.seq - state.snapshot_seq > len(state.steps):
            state.snapshot_seq = state.seq
            entry.snapshot = make_snapshot(state, self._chain)

    def _open_entry(self) -> Entry:
        """Appends that come before the next commit share one entry: one fence, one head update."""
        if self._entry is not None and self._batch is not None and self._batch.is_open:
            return self._entry
        entry = Entry(execution_id=self.state.id, epoch=self.epoch, after=self.state.seq, rows=[])
        self._entry = entry
        self._unsettled += 1
        self._batch = self._writer.submit(entry, lambda result: self._committed(entry, result))
        return entry

    def _committed(self, entry: Entry, result: Written | HoldfastError) -> None:
        self._unsettled -= 1
        if isinstance(result, Written) and result.ok:
            self.durable_seq = entry.after + len(entry.rows)
            if self.on_durable is not None:
                self.on_durable(entry.change is not None)
            return
        self._lose(result if isinstance(result, HoldfastError) else Fenced())

    def _lose(self, error: HoldfastError) -> None:
        if self.error is not None:
            return  # what follows a failure is fenced off; only the first one says why
        self.error = error
        if self.on_lost is not None:
            self.on_lost(error)

    def compare(self, head: Head | None) -> None:
        """Whoever has raised the epoch has taken it over, whether or not we write again; and may have deleted it."""
        if head is None or head.epoch != self.epoch:
            self._lose(Fenced())

    def ahead(self) -> int:
        """Events that are folded but not yet on disk."""
        return self.state.seq - self.durable_seq

    def is_durable(self) -> bool:
        return self.durable_seq == self.state.seq and self.error is None

    async def durable(self) -> None:
        """Return when every event so far, and all that went with it, is on disk."""
        if self.error is not None:
            raise self.error
        if self._unsettled and self._batch is not None:
            # The newest batch holds all there is; what is appended while we wait is somebody else's to wait for.
            await self._wait(self._batch)
            if self.error is not None:
                raise self.error

    async def _wait(self, batch: Batch) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.waiters.append(future)
        await future


def head_change(state: Execution, wake: bool = False) -> HeadChange:
    """What lists and other processes see of the state."""
    return HeadChange(
        status=state.status,
        wake_at=0 if wake and state.status == "waiting" else wake_at(state),
        ended_at=state.ended_at,
        reasons=state.reasons,
        error=_went_wrong(state),
        failed_path=state.failed_path,
    )


def wake_at(state: Execution) -> int | None:
    """When somebody should drive this execution: 0 is now, None is not before a command."""
    match state.status:
        case "running":
            return 0
        case "queued":
            return None if state.facts().hold else 0
        case "waiting":
            return min((r.due_at for r in state.reasons if r.due_at is not None), default=None)
        case "paused":
            if state.pause_until is None or state.pause_announced:
                return state.pause_until
            return max(0, state.pause_until - PAUSE_NOTICE_US)
        case _:
            return None


def open_stored(stored: Stored) -> tuple[Execution, bytes]:
    """Fold a journal from disk, checking every digest on the way. Returns the state and the chain's end."""
    head = stored.head
    state: Execution | None = None
    chain, rows = CHAIN_START, stored.rows
    if stored.snapshot is not None:
        state = open_snapshot(stored.snapshot)
        chain = stored.snapshot.chain
        if state is None or state.id != head.id:
            raise SnapshotUnusable
    if state is None:
        state = Execution(id=head.id)
    end = verify(rows, state.seq, chain)
    for row in rows:
        apply(state, decode(row), row.seq)
    if state.seq != head.seq:
        lost = f"execution {head.id} has {state.seq} events, its head says {head.seq}"
        raise StoreCorrupted(f"{lost}; the end of its journal is lost", execution_id=head.id)
    if end != head.digest:
        raise StoreCorrupted(
            f"execution {head.id}: event {head.seq} was replaced: its head knows another digest", execution_id=head.id
        )
    check_head(head, state)
    return state, end


def check_head(head: Head, state: Execution) -> None:
    """A head is a view of its journal. No digest covers it, so what it says must be what the events say."""
    told = _told(state)
    wrong = [name for name, value in told.items() if getattr(head, name) != value]
    if head.wake_at not in _wake_times(state):
        wrong.append("wake_at")
    if wrong:
        raise StoreCorrupted(
            f"execution {head.id}: its row in the list was changed after it was written: "
            f"{wrong[0]} is {getattr(head, wrong[0])!r}, its events say {told.get(wrong[0], wake_at(state))!r}",
            execution_id=head.id,
        )


def _wake_times(state: Execution) -> set[int | None]:
    """Now is always possible: a command asks for it, even after the end. An announced pause may not be there yet."""
    times = {wake_at(state), 0, ASKED}
    if state.status == "paused" and state.pause_until is not None:
        times |= {state.pause_until, max(0, state.pause_until - PAUSE_NOTICE_US)}
    return times


async def read_state(store: Store, execution_id: str) -> tuple[Head, Execution, bytes]:
    """The state of an execution that is not ours, for looking at it or for taking it over."""
    stored = await store.load(execution_id)
    try:
        return (stored.head, *open_stored(stored))
    except SnapshotUnusable:
        _, rows = await store.events(execution_id, 0, -1)
        return (stored.head, *open_stored(Stored(stored.head, None, rows[: stored.head.seq])))


async def read_events(store: Store, execution_id: str, after: int, limit: int = -1) -> list[tuple[int, ev.AnyEvent]]:
    """Numbered events after `after`, verified."""
    chain, rows = await store.events(execution_id, after, limit)
    verify(rows, after, chain)
    return [(row.seq, decode(row)) for row in rows]


class SnapshotUnusable(Exception):
    """The snapshot is damaged or of another version; the events tell the same story."""


def first_rows(events: Sequence[ev.Event], execution_id: str) -> tuple[Execution, list[Row]]:
    """The beginning of a new journal."""
    state = Execution(id=execution_id)
    chain = CHAIN_START
    rows: list[Row] = []
    for event in events:
        row = make_row(chain, state.seq + 1, event)
        apply(state, event, row.seq)
        chain = row.digest
        rows.append(row)
    return state, rows


def new_execution(
    execution_id: str, events: Sequence[ev.Event], *, driver: str = "", blobs: Sequence[tuple[str, bytes]] = ()
) -> tuple[NewExecution, Execution]:
    """A new execution as the store takes it, claimed at once if `driver` is given, and its state."""
    state, rows = first_rows(events, execution_id)
    head = head_of(state, rows[-1].digest)
    head.epoch, head.driver = (1, driver) if driver else (0, "")
    uses = tuple(digest for row in rows for digest in references(row.body))
    return NewExecution(head=head, rows=rows, blobs=list(blobs), uses=uses), state


def head_of(state: Execution, digest: bytes) -> Head:
    """The head of an execution that nobody drives."""
    origin = state.facts().forked_from
    return Head(
        id=state.id,
        **_told(state),
        wake_at=wake_at(state),
        seq=state.seq,
        digest=digest,
        forked_from=origin.id if origin else "",
    )


def _went_wrong(state: Execution) -> str:
    """Why it failed; or, of one that completed, what failed on the way."""
    return state.failure.message if state.failure else state.failures


def _told(state: Execution) -> dict[str, Any]:
    """What a head tells of its events."""
    created = state.facts()
    concurrency = created.concurrency
    return {
        "name": created.program.name,
        "kind": created.program.kind,
        "created_at": created.at,
        "title": created.title,
        "owner": created.owner,
        "key": created.key,
        "labels": created.labels,
        "parent_id": created.parent.id if created.parent else "",
        "status": state.status,
        "reasons": state.reasons,
        "error": _went_wrong(state),
        "failed_path": state.failed_path,
        "ended_at": state.ended_at,
        "updated_at": state.last_at,
        "total": state.total,
        "ended": state.ended,
        "concurrency_key": concurrency.key if concurrency else "",
        "concurrency_limit": concurrency.limit if concurrency else 0,
    }
