"""Events ⇄ bytes, and the digest chain that makes silent damage visible.

Bytes are never rewritten: an old event is verified as it was stored and then lifted to today's shape by upcasters.
Each digest covers the one before it, the event's schema version and its bytes, so that a changed, missing, swapped or
inserted event breaks the chain at its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from holdfast.core.errors import SchemaTooNew, StoreCorrupted
from holdfast.core.events import SCHEMA_VERSION, AnyEvent, Event
from holdfast.core.execution import Execution

DIGEST_BYTES = 16
SNAPSHOT_VERSION = 3  # raise it when the fold changes its meaning: older snapshots are then folded anew from the events
CHAIN_START = b"\0" * DIGEST_BYTES

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# An entry lifts the body of an event from schema version n to n + 1. Never edit one that was released.
UPCASTERS: dict[int, Upcaster] = {}

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_snapshot_decoder = msgspec.json.Decoder(Execution)

encode = _encoder.encode


class Row(NamedTuple):
    """One stored event: its number, the schema version it was written with, its bytes and its link in the chain."""

    seq: int
    version: int
    body: bytes
    digest: bytes


def link(previous: bytes, version: int, body: bytes) -> bytes:
    """The digest of an event that follows `previous`. Its number is covered, too: it is how many links came before."""
    return blake2b(body, digest_size=DIGEST_BYTES, key=previous, person=b"%d" % version).digest()


_PERSON = b"%d" % SCHEMA_VERSION


def make_row(previous: bytes, seq: int, event: Event) -> Row:
    body = encode(event)
    # `link` written out: this is the hottest line of the engine.
    return Row(
        seq, SCHEMA_VERSION, body, blake2b(body, digest_size=DIGEST_BYTES, key=previous, person=_PERSON).digest()
    )


def decode(row: Row, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> AnyEvent:
    """The event of a row whose digest has been checked."""
    try:
        if row.version == SCHEMA_VERSION:
            return _decoder.decode(row.body)
        if row.version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"event {row.seq} has schema version {row.version}, this Holdfast knows {SCHEMA_VERSION}; upgrade it"
            )
        body = json.loads(row.body)  # not msgspec's: an integer of any length must come through as it was
        for version in range(row.version, SCHEMA_VERSION):
            body = upcasters[version](body)
        return _decoder.decode(json.dumps(body))  # as text once more: values are kept as JSON, not as what JSON means
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise StoreCorrupted(f"event {row.seq} cannot be read: {error}") from error


def verify(rows: Iterable[Row], after: int, chain: bytes) -> bytes:
    """Check numbers and digests of consecutive rows; returns the chain's new end."""
    for row in rows:
        after += 1
        if row.seq != after:
            raise StoreCorrupted(f"event {after} is missing (found {row.seq})")
        try:
            chain = link(chain, row.version, row.body)
        except (TypeError, ValueError) as error:  # edited into something that is not even bytes, or not a digest
            raise StoreCorrupted(f"event {row.seq} was changed after it was written: {error}") from error
        if chain != row.digest:
            raise StoreCorrupted(f"event {row.seq} was changed after it was written: its digest does not match")
    return chain


# ---- snapshots: the folded state, written down -----------------------------------------------------------------


class Snapshot(NamedTuple):
    """`chain` is the digest of the event the snapshot stands at; `digest` covers the snapshot itself."""

    seq: int
    version: int
    chain: bytes
    body: bytes
    digest: bytes


def make_snapshot(state: Execution, chain: bytes) -> Snapshot:
    """The same events give the same bytes in every process: sets, which have no order, are written in one."""
    ordered: dict[str, Any] = {"open_steps": sorted(state.open_steps), "sticky": sorted(state.sticky)}
    body = encode(msgspec.structs.replace(state, **ordered))
    return Snapshot(state.seq, SNAPSHOT_VERSION, chain, body, _snapshot_digest(state.seq, chain, body))


def open_snapshot(snapshot: Snapshot) -> Execution | None:
    """The state, or None if the snapshot is of another schema version or damaged: the events tell the same story."""
    if snapshot.version != SNAPSHOT_VERSION:
        return None
    try:
        if _snapshot_digest(snapshot.seq, snapshot.chain, snapshot.body) != snapshot.digest:
            return None
        state = _snapshot_decoder.decode(snapshot.body)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return None
    return state if state.seq == state.snapshot_seq == snapshot.seq else None


def _snapshot_digest(seq: int, chain: bytes, body: bytes) -> bytes:
    return blake2b(b"%d:%b%b" % (seq, chain, body), digest_size=DIGEST_BYTES).digest()
