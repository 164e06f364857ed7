"""Events to bytes and back, versions, and the chain that shows every kind of damage at its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from core.histories import ENDINGS, LONG, fold, running, step
from holdfast.core import events as ev
from holdfast.core.errors import SchemaTooNew, StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.journal.codec import (
    CHAIN_START,
    DIGEST_BYTES,
    Row,
    decode,
    link,
    make_row,
    make_snapshot,
    open_snapshot,
    verify,
)


def test_a_value_keeps_the_bytes_it_was_written_with() -> None:
    output = b'{"b": 1.0,  "a": [ 1 ],"big":123456789012345678901234567890}'
    back = decode(make_row(CHAIN_START, 1, ev.StepCompleted(at=1, path="a", output=Raw(output))))
    assert isinstance(back, ev.StepCompleted)
    assert bytes(back.output) == output


# ---- versions ----------------------------


def old_row(version: int, body: dict[str, Any]) -> Row:
    raw = msgspec.json.encode(body)
    return Row(1, version, raw, link(CHAIN_START, version, raw))


def test_old_events_are_lifted_step_by_step_after_their_bytes_were_verified() -> None:
    def from_minus_one(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "who": body.pop("user")}

    def from_zero(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "type": "task:stopped", "by": body.pop("who")}

    row = old_row(-1, {"type": "task:ended", "at": 5, "user": "ann"})
    verify([row], 0, CHAIN_START)
    assert decode(row, {-1: from_minus_one, 0: from_zero}) == ev.TaskStopped(at=5, by="ann")


def test_an_old_event_without_its_upcaster_cannot_be_read() -> None:
    with pytest.raises(StoreCorrupted, match=r"^event 1 cannot be read: 0$"):
        decode(old_row(0, {"type": "task:stopped", "at": 5}), {})


def test_an_event_from_the_future_asks_for_an_upgrade() -> None:
    with pytest.raises(SchemaTooNew, match="event 1 has schema version 2, this Holdfast knows 1; upgrade it"):
        decode(old_row(2, {"type": "task:stopped", "at": 5}))


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"type":"task:flown","at":1}', b'{"at":1}', b'{"type":"task:stopped","at":"x"}', b'"\xff"']
)
def test_bytes_that_are_no_event_are_corruption(body: bytes) -> None:
    with pytest.raises(StoreCorrupted, match="event 7 cannot be read: "):
        decode(Row(7, ev.SCHEMA_VERSION, body, b""))


# ---- the chain ----------------------------


def chained(events: tuple[ev.Event, ...] = LONG[:6]) -> list[Row]:
    rows: list[Row] = []
    for number, event in enumerate(events, 1):
        rows.append(make_row(rows[-1].digest if rows else CHAIN_START, number, event))
    return rows


def test_a_whole_chain_verifies_to_its_last_digest() -> None:
    rows = chained()
    assert verify(rows, 0, CHAIN_START) == rows[-1].digest
    assert verify(rows[3:], 3, rows[2].digest) == rows[-1].digest
    assert verify([], 4, b"x") == b"x"
    assert all(len(row.digest) == DIGEST_BYTES for row in rows)


def test_a_body_that_is_no_longer_bytes_is_found() -> None:
    rows = chained()
    rows[2] = rows[2]._replace(body="text")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreCorrupted, match="event 3 was changed after it was written: "):
        verify(rows, 0, CHAIN_START)


def test_a_changed_version_or_digest_is_found() -> None:
    for change in ({"version": 0}, {"digest": b"\1" * DIGEST_BYTES}):
        rows = chained()
        rows[2] = rows[2]._replace(**change)
        with pytest.raises(StoreCorrupted, match="event 3 was changed after it was written: its digest does not match"):
            verify(rows, 0, CHAIN_START)


def test_a_missing_event_is_found() -> None:
    rows = chained()
    with pytest.raises(StoreCorrupted, match=r"event 3 is missing \(found 4\)"):
        verify([*rows[:2], *rows[3:]], 0, CHAIN_START)


def test_a_missing_event_is_found_even_if_the_rest_was_renumbered() -> None:
    rows = chained()
    renumbered = [row._replace(seq=number) for number, row in enumerate([*rows[:2], *rows[3:]], 1)]
    with pytest.raises(StoreCorrupted, match="event 3 was changed"):
        verify(renumbered, 0, CHAIN_START)


def test_swapped_events_are_found() -> None:
    rows = chained()
    rows[1], rows[2] = rows[2]._replace(seq=2), rows[1]._replace(seq=3)
    with pytest.raises(StoreCorrupted, match="event 2 was changed"):
        verify(rows, 0, CHAIN_START)


def test_an_inserted_event_is_found_at_the_one_after_it() -> None:
    rows = chained()
    forged = make_row(rows[1].digest, 3, ev.TaskStopped(at=9))  # even with the right digest of its own
    later = [row._replace(seq=row.seq + 1) for row in rows[2:]]
    with pytest.raises(StoreCorrupted, match="event 4 was changed"):
        verify([*rows[:2], forged, *later], 0, CHAIN_START)


def test_the_written_out_link_is_the_link() -> None:
    row = make_row(b"p" * DIGEST_BYTES, 5, ev.TaskStopped(at=9))
    assert row.digest == link(b"p" * DIGEST_BYTES, row.version, row.body)


# ---- snapshots ----------------------------


@pytest.mark.parametrize("state", [fold(LONG), *(fold([*LONG, end]) for end in ENDINGS), running(step("a"))])
def test_a_snapshot_opens_to_the_state_it_was_taken_of(state: Execution) -> None:
    state.snapshot_seq = state.seq
    snapshot = make_snapshot(state, b"c" * DIGEST_BYTES)
    assert (snapshot.seq, snapshot.chain) == (state.seq, b"c" * DIGEST_BYTES)
    assert open_snapshot(snapshot) == state


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 99},
        {"seq": 3},
        {"chain": b"d" * DIGEST_BYTES},
        {"digest": b"d" * DIGEST_BYTES},
        {"body": b"{}"},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_damaged_snapshot_is_not_opened(damage: dict[str, Any]) -> None:
    state = running()
    state.snapshot_seq = state.seq
    assert open_snapshot(make_snapshot(state, CHAIN_START)._replace(**damage)) is None


def test_a_snapshot_that_is_whole_but_not_a_state_is_not_opened() -> None:
    class Impostor(msgspec.Struct):
        seq: int = 2
        id: int = 7
        open_steps: tuple[str, ...] = ()
        sticky: tuple[str, ...] = ()

    impostor: Any = Impostor()
    assert open_snapshot(make_snapshot(impostor, CHAIN_START)) is None
