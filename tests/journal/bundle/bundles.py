"""Bundles for tests: small histories with and without large values, and files that were tampered with knowingly."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.journal.blobs import digest_of
from holdfast.journal.bundle.write import Bundle, open_rows, write
from holdfast.journal.log import first_rows

ROOT, CHILD = "0198aaaa-0000-7000-8000-000000000001", "0198aaaa-0000-7000-8000-000000000002"
LARGE = msgspec.json.encode({"tide": "high " * 2000})


def created(**values: Any) -> ev.TaskCreated:
    program = ev.Program(kind="plan", name="report", source=Raw(b'{"name":"report","steps":[]}'))
    given: dict[str, Any] = {"at": 1, "program": program, **values}
    return ev.TaskCreated(**given)


def reference_to(value: bytes) -> Raw:
    return Raw(msgspec.json.encode(ev.Blob(digest=digest_of(value), bytes=len(value))))


def bundle_of(*events: ev.Event, large: bytes = b"", **values: Any) -> Bundle:
    """An execution that was created with `values` and has these events."""
    _, rows = first_rows([created(**values), *events], ROOT)
    return Bundle([open_rows(ROOT, rows)], {digest_of(large): large} if large else {})


def finished(large: bytes = LARGE) -> Bundle:
    """One step with a large output, and the end."""
    return bundle_of(
        ev.TaskStarted(at=2, because="created"),
        ev.StepStarted(at=3, path="look", tool="look"),
        ev.StepCompleted(at=4, path="look", output=reference_to(large)),
        ev.TaskCompleted(at=5, output=Raw(b'"done"')),
        large=large,
        owner="ann",
        title="Tides",
        labels={"sea": "north"},
    )


def family() -> Bundle:
    """A parent that waits for a child, which has ended without its parent having heard of it."""
    _, rows = first_rows(
        [
            created(),
            ev.TaskStarted(at=2, because="created"),
            ev.ChildStarted(at=3, path="c", child_id=CHILD),
        ],
        ROOT,
    )
    parent = ev.Parent(id=ROOT, path="c")
    _, others = first_rows(
        [created(parent=parent), ev.TaskStarted(at=3, because="created"), ev.TaskCompleted(at=4, output=Raw(b"7"))],
        CHILD,
    )
    return Bundle([open_rows(ROOT, rows), open_rows(CHILD, others)], {})


def file_of(bundle: Bundle) -> bytes:
    return b"".join(write(bundle, "0.1.0"))


def resealed(data: bytes) -> bytes:
    """The same file with a digest that fits: what somebody could forge, and no accident could."""
    body = re.sub(rb',\n"digest":"[0-9a-f]{32}"\}\s*\Z', b"", data)
    return body + b',\n"digest":"%b"}\n' % blake2b(body, digest_size=16).hexdigest().encode()


def forged(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file whose content was changed, and whose digest fits all the same."""
    document: dict[str, Any] = msgspec.json.decode(data)
    document.pop("digest")
    change(document)
    return resealed(msgspec.json.encode(document)[:-1])
