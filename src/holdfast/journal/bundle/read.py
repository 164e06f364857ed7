"""A bundle from outside, checked from end to end before anything is believed of it.

Owns every refusal of a file: cut short, edited, of another shape, from a newer Holdfast, with a journal or a large
value that does not fit its digest. Whether its execution may be restored here is decided by engine/transfer/restore.py.
"""

# sentences of others: msgspec

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.core.errors import BundleInvalid, HoldfastError, InputInvalid, StoreCorrupted
from holdfast.core.events import SCHEMA_VERSION, AnyEvent, name_of
from holdfast.core.execution import Execution
from holdfast.core.labels import check_labels, check_title
from holdfast.core.lifecycle import ENDS
from holdfast.journal.blobs import digest_of
from holdfast.journal.bundle.write import (
    BUNDLE_BYTES_MAX,
    EXECUTIONS_MAX,
    FORMAT,
    Bundle,
    ExportedExecution,
    open_rows,
    told_of,
    wanted_blobs,
)
from holdfast.journal.codec import DIGEST_BYTES, Row
from holdfast.journal.log import head_of

TIME_US_MAX = 253_370_764_800_000_000  # the year 9999: what a calendar can show, whatever the time zone
COUNT_MAX = 2**53
SHOWN_CHARS_MAX = 80  # of what is told and is not so
PROBLEM_CHARS_MAX = 500  # of what is wrong with it: a forged file may have a hundred thousand mistakes

_START = re.compile(rb'\{"holdfast":"bundle","format":([0-9]{1,9}),')
_END = re.compile(rb',\n"digest":"([0-9a-f]{32})"\}\s*\Z')
_END_BYTES = 64  # and some room for an editor that adds a line
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")  # it becomes part of a file's name
_TIMES = ("due_at", "until", "expires_at", "started_at", "request", "reasons")
_Broken = (LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError)


class _Event(msgspec.Struct, frozen=True, gc=False):
    seq: int
    version: int
    digest: str
    body: Raw


_Told = Raw | msgspec.UnsetType


class _Execution(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of it, which must be what its events say, and those. A newer Holdfast may tell more."""

    id: str
    status: str
    seq: int
    owner: _Told = msgspec.UNSET
    title: _Told = msgspec.UNSET
    labels: _Told = msgspec.UNSET
    key: _Told = msgspec.UNSET
    parent: _Told = msgspec.UNSET
    forked_from: _Told = msgspec.UNSET
    created_at: _Told = msgspec.UNSET
    started_at: _Told = msgspec.UNSET
    updated_at: _Told = msgspec.UNSET
    ended_at: _Told = msgspec.UNSET
    engine: _Told = msgspec.UNSET
    folder: _Told = msgspec.UNSET
    tools: _Told = msgspec.UNSET
    program: _Told = msgspec.UNSET
    inputs: _Told = msgspec.UNSET
    events: list[_Event]


class _Blob(msgspec.Struct, frozen=True):
    json: Raw | msgspec.UnsetType = msgspec.UNSET
    text: str | None = None
    base64: str | None = None


class _File(msgspec.Struct, frozen=True):
    schema: int
    id: str
    executions: list[_Execution]
    blobs: dict[str, _Blob]


def read(data: bytes, name: str = "the bundle") -> Bundle:
    """Check a file from end to end. Raises BundleInvalid, which says what is wrong with `name`."""
    try:
        return _checked(_parsed(data))
    except BundleInvalid as error:
        raise BundleInvalid(f"{name} {error}; nothing was changed") from error
    except StoreCorrupted as error:
        raise BundleInvalid(f"{name} holds a damaged journal: {error}; nothing was changed") from error


def _parsed(data: bytes) -> _File:
    """From the outside in: is it one at all, one of ours, whole, and as it was written?"""
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleInvalid(f"is larger than {BUNDLE_BYTES_MAX // 1024**2:,} MB")
    start = _START.match(data)
    if start is None:
        raise BundleInvalid(_no_bundle(data))
    if int(start[1]) > FORMAT:
        raise BundleInvalid(f"has format {int(start[1])}, this Holdfast knows {FORMAT}: upgrade Holdfast to read it")
    end = _END.search(data, max(0, len(data) - _END_BYTES))
    if end is None:
        raise BundleInvalid("is cut short, or was edited: it does not end with its digest; copy it once more")
    if blake2b(memoryview(data)[: end.start()], digest_size=DIGEST_BYTES).hexdigest().encode() != end[1]:
        raise BundleInvalid("was edited: its digest does not match; copy it once more from where it was written")
    try:
        data.decode()
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleInvalid(f"is not shaped like a bundle: {error}") from error
    if file.schema > SCHEMA_VERSION:
        raise BundleInvalid(
            f"has events of schema version {file.schema}, this Holdfast knows {SCHEMA_VERSION}: "
            "upgrade Holdfast to read it"
        )
    return file


def _no_bundle(data: bytes) -> str:
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        said = str(error).removeprefix("JSON is malformed: ")
        return f"is not JSON: {said[:1].lower()}{said[1:]}"
    if isinstance(found, dict) and "holdfast" in found:
        return "was edited or formatted, and its digests do not fit any more; take the file as it was written"
    return "is JSON, but not an execution that Holdfast exported"


def _checked(file: _File) -> Bundle:
    ids = [one.id for one in file.executions]
    if not ids or len(ids) > EXECUTIONS_MAX or ids[0] != file.id or len(set(ids)) < len(ids):
        raise BundleInvalid(f"is not shaped like a bundle: from 1 to {EXECUTIONS_MAX:,} executions, each once")
    executions = [_opened(one) for one in file.executions]
    _check_family(executions)
    blobs = {digest: _unpacked(digest, blob) for digest, blob in file.blobs.items()}
    wanted = {digest: blob for carried in executions for digest, blob in wanted_blobs(carried.rows).items()}
    for digest, blob in wanted.items():
        if digest not in blobs:
            raise BundleInvalid(f"lacks the large value {digest}, which one of its events refers to")
        if len(blobs[digest]) != blob.bytes:
            raise BundleInvalid(f"holds a large value {digest} that was changed: it has another length")
    if unknown := sorted(set(blobs) - set(wanted)):
        raise BundleInvalid(f"holds a large value {unknown[0]} that none of its events refers to")
    return Bundle(executions, blobs)


def _opened(told: _Execution) -> ExportedExecution:
    if not _ID.fullmatch(told.id):
        raise BundleInvalid("is not shaped like a bundle: an id has letters, digits and hyphens, at most 100")
    try:
        rows = [Row(one.seq, one.version, bytes(one.body), bytes.fromhex(one.digest)) for one in told.events]
        carried = open_rows(told.id, rows, _check_times)
        head = head_of(carried.state, rows[-1].digest if rows else b"")
        check_labels(head.labels)
        check_title(head.title)
    except BundleInvalid:
        raise
    except InputInvalid as error:
        problem = " ".join(str(error).split())[:PROBLEM_CHARS_MAX]
        raise BundleInvalid(f"holds an execution {told.id} that could not be started like this: {problem}") from error
    except HoldfastError as error:
        raise BundleInvalid(f"holds a damaged journal: {error}") from error
    except _Broken as error:
        raise BundleInvalid(f"holds a damaged journal of execution {told.id}: {error!r}") from error
    if (head.status, head.seq) != (told.status, told.seq):
        raise BundleInvalid(
            f"says that execution {told.id} is {told.status} at event {told.seq}; "
            f"its events say {head.status} at {head.seq}"
        )
    _check_told(told, carried.state)
    counts = (head.total, head.ended, head.concurrency_limit)
    if not 0 <= (head.wake_at or 0) <= TIME_US_MAX or not all(0 <= count <= COUNT_MAX for count in counts):
        raise BundleInvalid(f"holds a time or a number of execution {told.id} that cannot be")
    return carried


def _check_told(told: _Execution, state: Execution) -> None:
    """People read what is told of it, and nobody must be told what is not so."""
    for name, value in told_of(state).items():
        said = getattr(told, name)
        if not isinstance(said, Raw):
            continue
        found, so = bytes(said), msgspec.json.encode(value)
        if found != so and _in_order(found) != _in_order(so):
            raise BundleInvalid(
                f"says of execution {told.id} that its {name} is {_shown(found)}; its events say {_shown(so)}"
            )


def _in_order(value: bytes) -> bytes:
    """The same whatever the order of names and the spaces between them; a number is not taken for true."""
    try:
        return msgspec.json.encode(msgspec.json.decode(value), order="deterministic")
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return value


def _shown(value: bytes) -> str:
    text = value.decode(errors="replace")
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _check_times(event: AnyEvent) -> None:
    """Every moment that an event names can be shown on a calendar."""
    if not 0 < event.at <= TIME_US_MAX:
        raise BundleInvalid(f"holds an event {name_of(event)} at a time that cannot be, {event.at}")
    for name in _times_of(type(event)):
        found: Any = getattr(event, name)
        for one in cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,):
            at = one if isinstance(one, int | None) else getattr(one, "due_at", None) or getattr(one, "expires_at", 0)
            if not 0 <= (at or 0) <= TIME_US_MAX:
                raise BundleInvalid(f"holds an event {name_of(event)} with a time that cannot be, {at}")


@cache
def _times_of(kind: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in _TIMES)


def _check_family(executions: Sequence[ExportedExecution]) -> None:
    """Only descendants may travel along, each known to its parent as its child, and all that parents still wait for."""
    known: dict[str, Execution] = {}
    keys: dict[tuple[str, str], str] = {}
    for state in (carried.state for carried in executions):
        facts = state.facts()
        _check_parent(state, known)
        known[state.id] = state
        if facts.forked_from is not None and facts.forked_from.id == state.id:
            raise BundleInvalid(f"holds execution {state.id}, which says that it was made from itself")
        if facts.key and (other := keys.setdefault((facts.owner, facts.key), state.id)) != state.id:
            raise BundleInvalid(f'holds the key "{facts.key}" twice, of executions {other} and {state.id}')
    root = executions[0].state
    above = root.facts().parent
    if above is not None and above.id in known:
        raise BundleInvalid(f"holds a family that goes in a circle: {root.id}, the first, is a child of {above.id}")
    for state in known.values():
        for path, child in state.children.items():
            if child.id in known:
                parent = known[child.id].facts().parent
                if parent is None or (parent.id, parent.path) != (state.id, path):
                    raise BundleInvalid(f"says that execution {child.id} is a child of {state.id}; it says otherwise")
            elif child.status not in ENDS:
                raise BundleInvalid(f"lacks execution {child.id}, a child that has not ended")


def _check_parent(state: Execution, known: Mapping[str, Execution]) -> None:
    """Parents come first in a file, so that nobody can be above himself."""
    if not known:
        return
    parent = state.facts().parent
    if parent is None or parent.id not in known:
        raise BundleInvalid(f"holds execution {state.id}, which is no descendant of the first one")
    child = known[parent.id].children.get(parent.path)
    if child is None or child.id != state.id:
        raise BundleInvalid(
            f"holds execution {state.id}, which says that {parent.id} started it at {parent.path}; that one did not"
        )


def _unpacked(digest: str, blob: _Blob) -> bytes:
    try:
        if blob.json is not msgspec.UNSET:
            body = bytes(blob.json)
        elif blob.text is not None:
            body = blob.text.encode()
        else:
            body = base64.b64decode(blob.base64 or "", validate=True)
    except ValueError as error:
        raise BundleInvalid(f"holds a large value {digest} that cannot be read: {error}") from error
    if digest_of(body) != digest:
        raise BundleInvalid(f"holds a large value {digest} that was changed: its digest does not match")
    return body
