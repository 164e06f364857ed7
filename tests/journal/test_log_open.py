"""Opening a journal from disk: snapshots, damage, verified pages, and what a head tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import Raw

from core.histories import TO_STATUS, fold
from holdfast.core import events as ev
from holdfast.core.errors import NotFound, StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.core.policy import Concurrency
from holdfast.journal import log as log_module
from holdfast.journal.codec import make_snapshot, open_snapshot
from holdfast.journal.log import PAUSE_NOTICE_US, Log, new_execution, read_events, read_state, wake_at
from holdfast.journal.memory import MemoryStore
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Claim
from holdfast.journal.writer import Writer
from journal.support import created, new_log, received

SOON = 10  # events between two snapshots


async def reopened(store: Any) -> Execution:
    _, state, _ = await read_state(store, "e1")
    return state


async def test_a_snapshot_is_taken_when_due_and_opens_to_the_same_state(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    writer = Writer(store)
    log = await new_log(store, writer, snapshot_events_min=SOON)
    for number in range(9):
        log.append(received(number))
    await log.durable()
    assert (await store.load("e1")).snapshot is None
    for number in range(9, 15):
        log.append(received(number))
        await log.durable()
    stored = await store.load("e1")
    assert stored.snapshot is not None
    assert (stored.snapshot.seq, [row.seq for row in stored.rows]) == (11, [12, 13, 14, 15, 16])
    assert await reopened(store) == log.state
    without = log_module.open_stored(stored._replace(snapshot=None, rows=(await store.events("e1", 0, -1))[1]))[0]
    without.snapshot_seq = 11
    assert without == log.state
    await writer.close()
    await store.close()


async def test_a_large_state_is_written_down_less_often() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer, snapshot_events_min=SOON)
    taken: set[int] = set()
    log.append(ev.TaskStarted(at=2, because="created"))
    for number in range(60):
        log.append(ev.StepStarted(at=3, path=f"s{number}", tool="t"))
        await log.durable()
        taken.add(log.state.snapshot_seq)
    gaps = [later - earlier for earlier, later in zip(sorted(taken), sorted(taken)[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert len(gaps) <= 4
    await writer.close()


async def test_many_short_visits_lead_to_a_snapshot_as_well() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer, snapshot_events_min=SOON)
    for visit in range(8):
        log.append(*(received(number) for number in range(3)), release=True)
        await log.durable()
        written = await writer.write(Claim(execution_id="e1", driver=f"v{visit}"))
        _, state, chain = await read_state(store, "e1")
        log = Log(store, writer, state, chain, written.epoch, snapshot_events_min=SOON)
    snapshot = (await store.load("e1")).snapshot
    assert snapshot is not None
    assert snapshot.seq >= 11
    await writer.close()


async def snapshotted(path: Path) -> Execution:
    """A file with one execution of 16 events and a snapshot at 11; returns its state."""
    store = SqliteStore(path)
    writer = Writer(store)
    log = await new_log(store, writer, snapshot_events_min=SOON)
    for number in range(15):
        log.append(received(number))
        await log.durable()
    await writer.close()
    await store.close()
    return log.state


def tamper(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "damage",
    ["body = substr(body, 2)", "version = 99", "digest = zeroblob(16)", "chain = zeroblob(16)"],
    ids=lambda damage: damage.split()[0],
)
async def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, damage: str) -> None:
    state = await snapshotted(tmp_path / "j.db")
    tamper(tmp_path / "j.db", f"UPDATE snapshots SET {damage}")
    store = SqliteStore(tmp_path / "j.db")
    found = await reopened(store)
    assert found.snapshot_seq == 0  # so that a good one is taken soon
    found.snapshot_seq = state.snapshot_seq
    assert found == state
    await store.close()


async def test_a_snapshot_that_is_whole_but_not_of_this_chain_is_corruption(tmp_path: Path) -> None:
    await snapshotted(tmp_path / "j.db")
    forged = Execution(id="e1", seq=11, snapshot_seq=11)
    snapshot = make_snapshot(forged, b"x" * 16)
    connection = apsw.Connection(str(tmp_path / "j.db"))
    connection.execute(
        "UPDATE snapshots SET chain = ?, body = ?, digest = ?", (snapshot.chain, snapshot.body, snapshot.digest)
    )
    connection.close()
    store = SqliteStore(tmp_path / "j.db")
    with pytest.raises(StoreCorrupted, match="event 12 was changed after it was written"):
        await read_state(store, "e1")
    await store.close()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (
            "DELETE FROM events WHERE seq > 13",
            "execution e1 has 13 events, its head says 16; the end of its journal is lost",
        ),
        ("DELETE FROM events WHERE seq = 13", r"event 13 is missing \(found 14\)"),
        (
            "UPDATE events SET body = CAST(replace(body, '\"n\"', '\"m\"') AS BLOB) WHERE seq = 13",
            "event 13 was changed",
        ),
        (
            "UPDATE executions SET digest = zeroblob(16)",
            "execution e1: event 16 was replaced: its head knows another digest",
        ),
    ],
    ids=["truncated", "missing", "edited", "head"],
)
async def test_a_damaged_journal_is_found_when_it_is_opened(tmp_path: Path, damage: str, text: str) -> None:
    await snapshotted(tmp_path / "j.db")
    tamper(tmp_path / "j.db", damage)
    store = SqliteStore(tmp_path / "j.db")
    with pytest.raises(StoreCorrupted, match=text):
        await read_state(store, "e1")
    await store.close()


async def test_events_are_read_in_verified_pages() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    log.append(*(received(number) for number in range(5)))
    await log.durable()
    assert [seq for seq, _ in await read_events(store, "e1", 0)] == [1, 2, 3, 4, 5, 6]
    assert await read_events(store, "e1", 4, 1) == [(5, received(3))]
    assert await read_events(store, "e1", 6, 9) == []
    with pytest.raises(NotFound, match="there is no execution e9"):
        await read_events(store, "e9", 0)
    await writer.close()


# ---- heads -------------------------------------------------------------------------------------


def test_a_head_tells_all_that_was_handed_in() -> None:
    event = created(
        title="Tides",
        owner="ann",
        key="k",
        labels={"a": "b"},
        parent=ev.Parent(id="p1", path="x"),
        concurrency=Concurrency(key="gpu", limit=3),
        total=5,
    )
    new, state = new_execution("e1", [event], blobs=[("d", b"x")])
    head = new.head
    assert (head.id, head.name, head.kind, head.title, head.owner, head.key) == (
        "e1",
        "report",
        "plan",
        "Tides",
        "ann",
        "k",
    )
    assert (head.labels, head.parent_id, head.total) == ({"a": "b"}, "p1", 5)
    assert (head.concurrency_key, head.concurrency_limit) == ("gpu", 3)
    assert (head.seq, head.digest, head.epoch, head.driver) == (1, new.rows[-1].digest, 0, "")
    assert (head.status, head.wake_at, new.blobs, state.status) == ("queued", 0, [("d", b"x")], "queued")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((created(),), 0),
        ((created(hold=True),), None),
        (TO_STATUS["running"], 0),
        (TO_STATUS["interrupted"], None),
        (TO_STATUS["completed"], None),
        (TO_STATUS["failed"], None),
        (TO_STATUS["stopped"], None),
        (TO_STATUS["waiting"], None),
        (
            (
                *TO_STATUS["running"],
                ev.TaskWaiting(
                    at=3,
                    reasons=(
                        ev.Reason(kind="timer", due_at=90),
                        ev.Reason(kind="timer", due_at=50),
                        ev.Reason(kind="event"),
                    ),
                ),
            ),
            50,
        ),
        ((*TO_STATUS["running"], ev.TaskPaused(at=3)), None),
        ((*TO_STATUS["running"], ev.TaskPaused(at=3, until=50)), 0),
        ((*TO_STATUS["running"], ev.TaskPaused(at=3, until=PAUSE_NOTICE_US + 50)), 50),
        (
            (*TO_STATUS["running"], ev.TaskPaused(at=3, until=50), ev.TaskPauseExpiring(at=4, due_at=50, then="stop")),
            50,
        ),
    ],
)
def test_when_somebody_should_drive(events: tuple[ev.Event, ...], expected: int | None) -> None:
    assert wake_at(fold(events)) == expected


def test_a_value_of_a_step_survives_a_snapshot_while_the_step_runs() -> None:
    state = fold([*TO_STATUS["running"], ev.StepStarted(at=3, path="a", tool="t", arguments=Raw(b'{"x":1}'))])
    state.snapshot_seq = state.seq
    opened = open_snapshot(make_snapshot(state, b""))
    assert opened is not None
    assert opened.steps["a"].arguments == Raw(b'{"x":1}')
