"""Large values: an event carries a reference, the bytes lie in the store under their digest.

A reference is written exactly as `Blob` encodes. A value of the user's that happens to begin the same way is stored as
a blob itself, so that a reference is never mistaken.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Raw

from holdfast.core.errors import StoreCorrupted
from holdfast.core.events import Blob
from holdfast.core.policy import INLINE_BYTES_MAX
from holdfast.journal.store import Store

_MARK = b'{"holdfast":"blob"'
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
        if len(value) <= INLINE_BYTES_MAX and not value.startswith(_MARK):
            return Raw(value)
        digest = digest_of(value)
        self.fresh.append((digest, value))
        self._near_bytes += len(value)
        if self._near_bytes > _NEAR_BYTES_MAX:
            self._near.clear()
            self._near_bytes = len(value)
        self._near[digest] = value
        return Raw(msgspec.json.encode(Blob(digest=digest, bytes=len(value))))

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


def reference(value: Raw) -> Blob | None:
    body = bytes(value)
    if not body.startswith(_MARK):
        return None
    try:
        return msgspec.json.decode(body, type=Blob)
    except msgspec.MsgspecError as error:
        raise StoreCorrupted(f"a reference to a blob cannot be read: {error}") from error


async def fetch_blob(store: Store, blob: Blob) -> bytes:
    body = await store.blob(blob.digest)
    if digest_of(body) != blob.digest:
        raise StoreCorrupted(f"blob {blob.digest} was changed after it was written: its digest does not match")
    return body


async def fetch_value(store: Store, value: Raw) -> bytes:
    """Like `Blobs.fetch`, for readers who hold no open execution."""
    blob = reference(value)
    return bytes(value) if blob is None else await fetch_blob(store, blob)
