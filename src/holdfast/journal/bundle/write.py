"""One execution ⇄ one portable JSON file, with its descendants and its large values.

Owns the format and how it is written; read.py checks what comes from outside. Events stand in the file as the
journal has them, byte for byte, as JSON objects: so that `jq` can look into them, and the chain of digests still fits.
The price is that formatting the file counts as editing it.

    {"holdfast":"bundle","format":1,"schema":1,"engine":"0.1.0","id":"…","executions":[
    {"id":"…","status":"running",…,"events":[
    {"seq":1,"version":1,"digest":"…","body":{…}},
    …
    ]},
    …
    ],"blobs":{
    "…":{"json":…}
    },
    "digest":"…"}

The last line is a digest of all bytes before it: of what is told about an execution, too, which no chain covers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from holdfast.core.errors import Refused
from holdfast.core.events import SCHEMA_VERSION, AnyEvent, Blob
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.blobs import MARK, large_values
from holdfast.journal.codec import CHAIN_START, DIGEST_BYTES, Row, decode, verify

FORMAT = 1
BUNDLE_BYTES_MAX = 1024**3  # it is read and checked in memory
EXECUTIONS_MAX = 1000  # one execution and its descendants


class ExportedExecution(NamedTuple):
    """One execution: its events as they are stored, and the state they fold to."""

    rows: list[Row]
    state: Execution


class Bundle(NamedTuple):
    """The execution it is about first, then its descendants, parents before children."""

    executions: list[ExportedExecution]
    blobs: dict[str, bytes]

    @property
    def root(self) -> ExportedExecution:
        return self.executions[0]

    def blobs_of(self, carried: ExportedExecution) -> list[tuple[str, bytes]]:
        return [(digest, self.blobs[digest]) for digest in wanted_blobs(carried.rows)]


def open_rows(execution_id: str, rows: list[Row], check: Callable[[AnyEvent], None] | None = None) -> ExportedExecution:
    """Verify and fold a whole journal; `check` looks at each event before it is folded."""
    verify(rows, 0, CHAIN_START)
    state = Execution(id=execution_id)
    for row in rows:
        event = decode(row)
        if check is not None:
            check(event)
        apply(state, event, row.seq)
    return ExportedExecution(rows, state)


def wanted_blobs(rows: Sequence[Row]) -> dict[str, Blob]:
    """The large values that events refer to, each once."""
    return {blob.digest: blob for row in rows if MARK in row.body for blob in large_values(decode(row))}


# ---- writing -----------------------------------------------------------------------------------------------------


def write(bundle: Bundle, engine: str) -> list[bytes]:
    """The file, piece by piece."""
    digest, size, pieces = blake2b(digest_size=DIGEST_BYTES), 0, list[bytes]()
    for piece in _pieces(bundle, engine):
        digest.update(piece)
        pieces.append(piece)
        size += len(piece)
        if size > BUNDLE_BYTES_MAX:
            raise Refused(
                f"execution {bundle.root.state.id} is larger than {BUNDLE_BYTES_MAX // 1024**2:,} MB with its "
                "descendants and large values; that does not fit into one file"
            )
    pieces.append(b',\n"digest":"%b"}\n' % digest.hexdigest().encode())
    return pieces


def _pieces(bundle: Bundle, engine: str) -> Iterator[bytes]:
    identity = bundle.root.state.id
    start: dict[str, Any] = {"holdfast": "bundle", "format": FORMAT, "schema": SCHEMA_VERSION}
    yield _open(start | {"engine": engine, "id": identity}) + b',"executions":[\n'
    for number, carried in enumerate(bundle.executions):
        yield (b",\n" if number else b"") + _open(told_of(carried.state)) + b',"events":[\n'
        yield b",\n".join(
            b'{"seq":%d,"version":%d,"digest":"%b","body":%b}' % (seq, version, digest.hex().encode(), body)
            for seq, version, body, digest in carried.rows
        )
        yield b"\n]}"
    yield b'\n],"blobs":{\n'
    for number, (digest, body) in enumerate(sorted(bundle.blobs.items())):
        yield b'%b"%b":%b' % (b",\n" if number else b"", digest.encode(), _packed(body))
    yield b"\n}"


def _open(told: dict[str, Any]) -> bytes:
    """A JSON object that is not closed yet."""
    return msgspec.json.encode(told)[:-1]


def told_of(state: Execution) -> dict[str, Any]:
    """What is told of it before its events: for people. Whoever reads a file compares it with them."""
    created = state.facts()
    return {
        "id": state.id,
        "owner": created.owner,
        "status": state.status,
        "seq": state.seq,
        "title": created.title,
        "labels": created.labels,
        "key": created.key,
        "parent": created.parent,
        "forked_from": created.forked_from,
        "created_at": created.at,
        "started_at": state.started_at,
        "updated_at": state.last_at,
        "ended_at": state.ended_at,
        "engine": created.engine,
        "folder": created.folder,
        "tools": created.tools,
        "program": created.program,
        "inputs": created.inputs,
    }


def _packed(body: bytes) -> bytes:
    """A large value: as the JSON it is if that gives the same bytes again, as text, or else in base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return msgspec.json.encode({"base64": base64.b64encode(body).decode()})
    try:
        if bytes(msgspec.json.decode(body, type=Raw)) == body:
            return b'{"json":%b}' % body
    except (msgspec.MsgspecError, RecursionError):
        pass
    return msgspec.json.encode({"text": text})
