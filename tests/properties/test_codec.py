"""Every event comes back as it was, no changed byte goes unnoticed, and bytes that are no event are corruption."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from core.histories import EVENT_TYPES, LONG
from holdfast.core import events as ev
from holdfast.core.errors import SchemaTooNew, StoreCorrupted
from holdfast.core.policy import INLINE_BYTES_MAX
from holdfast.journal.blobs import Blobs, fetch_value, reference
from holdfast.journal.codec import (
    CHAIN_START,
    DIGEST_BYTES,
    SNAPSHOT_VERSION,
    Row,
    Snapshot,
    decode,
    encode,
    link,
    make_row,
    open_snapshot,
    verify,
)
from holdfast.journal.memory import MemoryStore
from properties.journals import events_of
from properties.strategies import examples, json_values, outcome

any_event = st.sampled_from(EVENT_TYPES).flatmap(events_of)


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__struct_config__.tag)
@examples(15)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(kind: type[ev.Event], data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    row = make_row(CHAIN_START, 1, event)
    back = decode(row)
    assert back == event
    assert encode(back) == row.body


def chained(events: list[ev.Event]) -> list[Row]:
    rows: list[Row] = []
    for number, event in enumerate(events, 1):
        rows.append(make_row(rows[-1].digest if rows else CHAIN_START, number, event))
    return rows


@examples(100)
@given(st.data())
def test_any_changed_byte_is_found_at_its_event(data: st.DataObject) -> None:
    rows = chained([*LONG[:5], data.draw(any_event)])
    place = data.draw(st.integers(0, 5))
    row = rows[place]
    at = data.draw(st.integers(0, len(row.body) - 1))
    changed = bytes([*row.body[:at], row.body[at] ^ data.draw(st.integers(1, 255)), *row.body[at + 1 :]])
    rows[place] = row._replace(body=changed)
    with pytest.raises(StoreCorrupted, match=f"event {place + 1} was changed after it was written"):
        verify(rows, 0, CHAIN_START)


@examples(60)
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_different_bytes_or_versions_have_different_digests(one: bytes, other: bytes, first: int, second: int) -> None:
    same = (one, first) == (other, second)
    assert (link(CHAIN_START, first, one) == link(CHAIN_START, second, other)) == same


@examples(200)
@given(st.binary(max_size=60) | json_values.map(msgspec.json.encode) | st.builds(
    lambda tag, rest: msgspec.json.encode({"type": tag, "at": 1, **rest}),
    st.sampled_from([kind.__struct_config__.tag for kind in EVENT_TYPES]),
    st.dictionaries(st.sampled_from(["path", "failure", "request", "output", "at", "reasons", "program"]), json_values),
))  # fmt: skip
def test_bytes_that_are_no_event_are_corruption_and_nothing_else(body: bytes) -> None:
    read = outcome(lambda: decode(Row(7, ev.SCHEMA_VERSION, body, b"")), StoreCorrupted)
    assert isinstance(read, EVENT_TYPES) or str(read).startswith("event 7 cannot be read: ")


@examples(100)
@given(any_event, st.integers(-3, 0))
def test_older_events_are_verified_as_stored_and_then_lifted(event: ev.Event, version: int) -> None:
    """A test-only past: `by` was once `user`, and every version since then counted how often it was lifted."""
    old: dict[str, Any] = {**msgspec.json.decode(encode(event)), "lifted": 0}
    upcasters = {past: lambda body: {**body, "lifted": body["lifted"] + 1} for past in range(-3, ev.SCHEMA_VERSION)}
    upcasters[0] = lambda body: {name: value for name, value in body.items() if name != "lifted"}
    body = msgspec.json.encode(old)
    row = Row(1, version, body, link(CHAIN_START, version, body))
    assert verify([row], 0, CHAIN_START) == row.digest
    # Equal as JSON: a lifted event is made of values, not of the bytes they once had.
    lifted = decode(row, upcasters)
    assert msgspec.json.decode(encode(lifted)) == msgspec.json.decode(encode(event))
    with pytest.raises(StoreCorrupted):
        verify([row._replace(body=body.replace(b"lifted", b"Lifted"))], 0, CHAIN_START)


@examples(60)
@given(st.binary(max_size=40) | json_values.map(msgspec.json.encode), st.integers(-2, 3))
def test_old_bytes_that_are_no_event_are_corruption_too(body: bytes, version: int) -> None:
    upcasters = {past: lambda old: {**old, "by": old["user"]} for past in range(-3, ev.SCHEMA_VERSION)}
    read = outcome(lambda: decode(Row(7, version, body, b""), upcasters), StoreCorrupted, SchemaTooNew)
    assert isinstance(read, EVENT_TYPES) or str(read).startswith("event 7 ")


@examples(60)
@given(st.binary(max_size=40), st.integers(0, 3), st.binary(max_size=DIGEST_BYTES))
def test_a_snapshot_of_any_bytes_is_passed_over(body: bytes, seq: int, digest: bytes) -> None:
    assert open_snapshot(Snapshot(seq, SNAPSHOT_VERSION, CHAIN_START, body, digest)) is None


@examples(60)
@given(st.binary(max_size=50).map(lambda tail: b'{"holdfast":"blob"' + tail) | st.binary(max_size=50))
def test_no_small_value_is_ever_kept_as_something_that_reads_as_a_reference(value: bytes) -> None:
    blobs = Blobs(MemoryStore())
    kept = blobs.keep(value)
    assert (reference(kept) is None) == (bytes(kept) == value)


@examples(40)
@given(st.binary(max_size=40), st.integers(0, 2 * INLINE_BYTES_MAX))
async def test_a_value_of_any_size_comes_back_as_it_was(start: bytes, size: int) -> None:
    value = (start or b"x") * (size // max(1, len(start)) + 1)
    blobs = Blobs(MemoryStore())
    assert await blobs.fetch(blobs.keep(value)) == value


@examples(100)
@given(st.binary(max_size=60).map(lambda tail: b'{"holdfast":"blob"' + tail) | json_values.map(
    lambda value: msgspec.json.encode({"holdfast": "blob", "digest": value, "bytes": value})
))  # fmt: skip
async def test_a_damaged_reference_is_corruption(value: bytes) -> None:
    with pytest.raises(StoreCorrupted):
        await fetch_value(MemoryStore(), Raw(value))
