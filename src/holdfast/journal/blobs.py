"""Large values: an event carries a reference, the bytes lie in the store under their digest.

A reference is written exactly as `Blob` encodes. A value of the user's that happens to begin the same way is stored as
a blob itself, so that a reference is never mistaken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from msgspec import Raw

from holdfast.core.errors import StoreCorrupted
from holdfast.core.events import Blob
from holdfast.core.policy import INLINE_BYTES_MAX
from holdfast.journal.store import Store

MARK = b'{"holdfast":"blob"'
_REFERENCE = re.compile(rb'\{"holdfast":"blob","digest":"([0-9a-f]{32})"')
_NEAR_BYTES_MAX = 16 * 1024 * 1024  # recent blobs kept at hand, so that a program reads its own output at once


class Blobs:
    """The blobs of one open execution."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fresh: list[tuple[str, bytes]] = []
        self._near: dict[str, bytes] = {}
        self._near_bytes = 0

    def keep(self, value: bytes) -> Raw:
        """The value as an event carries it: itself, or a reference if it is large."""
        if len(value) <= INLINE_BYTES_MAX and not value.startswith(MARK):
            return Raw(value)
        blob = self.put(value)
        self._near_bytes += len(value)
        if self._near_bytes > _NEAR_BYTES_MAX:
            self._near.clear()
            self._near_bytes = len(value)
        self._near[blob.digest] = value
        return Raw(msgspec.json.encode(blob))

    def put(self, value: bytes) -> Blob:
        """Store a value beside the next event, whatever its size."""
        blob = Blob(digest=digest_of(value), bytes=len(value))
        self.fresh.append((blob.digest, value))
        return blob

    def take_fresh(self) -> list[tuple[str, bytes]]:
        fresh, self.fresh = self.fresh, []
        return fresh

    async def fetch(self, raw: Raw) -> bytes:
        """The bytes behind what an event carries."""
        blob = reference(raw)
        if blob is None:
            return bytes(raw)
        near = self._near.get(blob.digest)
        return near if near is not None else await fetch_blob(self._store, blob)


def digest_of(value: bytes) -> str:
    return blake2b(value, digest_size=16).hexdigest()


def references(body: bytes) -> list[str]:
    """The digests of all blobs an event refers to: whoever holds the event uses them, whoever wrote them.

    It is looked for in the bytes, wherever an event may keep a value. A user's value that looks the same somewhere
    inside counts as a use too, and does no harm by it.
    """
    return [digest.decode() for digest in _REFERENCE.findall(body)] if MARK in body else []


def reference(value: Raw) -> Blob | None:
    body = bytes(value)
    if not body.startswith(MARK):
        return None
    try:
        return msgspec.json.decode(body, type=Blob)
    except msgspec.MsgspecError as error:
        raise StoreCorrupted(f"a reference to a blob cannot be read: {error}") from error


def large_values(part: msgspec.Struct) -> Iterator[Blob]:
    """Exactly those that an event refers to, in whatever part of it: without what only looks the same."""
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, Blob):
            yield value
        elif isinstance(value, Raw):
            blob = reference(value)
            if blob is not None:
                yield blob
        elif isinstance(value, msgspec.Struct):
            yield from large_values(value)


async def fetch_blob(store: Store, blob: Blob) -> bytes:
    body = await store.blob(blob.digest)
    if digest_of(body) != blob.digest:
        raise StoreCorrupted(f"blob {blob.digest} was changed after it was written: its digest does not match")
    return body


async def fetch_value(store: Store, value: Raw) -> bytes:
    """Like `Blobs.fetch`, for readers who hold no open execution."""
    blob = reference(value)
    return bytes(value) if blob is None else await fetch_blob(store, blob)
