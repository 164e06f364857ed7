"""Large values lie beside the journal under their digest; small ones lie in it; none is mistaken for the other."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from holdfast.core.errors import StoreCorrupted
from holdfast.core.events import Blob
from holdfast.core.policy import INLINE_BYTES_MAX
from holdfast.journal import blobs as blobs_module
from holdfast.journal.blobs import Blobs, digest_of, fetch_value, reference
from holdfast.journal.memory import MemoryStore
from holdfast.testing.store_contract.samples import Sample

LOOK_ALIKE = msgspec.json.encode(Blob(digest="0" * 32, bytes=5))


def text_of(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


async def stored(blobs: Blobs, store: MemoryStore) -> None:
    sample = Sample(1)
    await store.commit([sample.new, sample.entry(blobs=tuple(blobs.take_fresh()))])


@pytest.mark.parametrize("size", [2, 100, INLINE_BYTES_MAX])
async def test_a_small_value_stays_in_its_event(size: int) -> None:
    blobs = Blobs(MemoryStore())
    kept = blobs.keep(text_of(size))
    assert (bytes(kept), blobs.fresh, reference(kept)) == (text_of(size), [], None)
    assert await blobs.fetch(kept) == text_of(size)


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX + 1, 3_000_000])
async def test_a_large_value_becomes_a_reference(size: int) -> None:
    store = MemoryStore()
    blobs = Blobs(store)
    kept = blobs.keep(text_of(size))
    assert reference(kept) == Blob(digest=digest_of(text_of(size)), bytes=size)
    assert len(bytes(kept)) < 100
    assert await blobs.fetch(kept) == text_of(size)  # before it is on disk: a program reads its own output at once
    await stored(blobs, store)
    assert blobs.fresh == []
    assert await Blobs(store).fetch(kept) == text_of(size)
    assert await fetch_value(store, kept) == text_of(size)
    assert await fetch_value(store, Raw(b"7")) == b"7"


async def test_a_value_that_looks_like_a_reference_is_not_taken_for_one() -> None:
    store = MemoryStore()
    blobs = Blobs(store)
    kept = blobs.keep(LOOK_ALIKE)
    assert bytes(kept) != LOOK_ALIKE
    await stored(blobs, store)
    assert await fetch_value(store, kept) == LOOK_ALIKE


async def test_a_changed_blob_is_found() -> None:
    store = MemoryStore()
    blobs = Blobs(store)
    kept = blobs.keep(text_of(INLINE_BYTES_MAX + 1))
    digest = digest_of(text_of(INLINE_BYTES_MAX + 1))
    sample = Sample(1)
    await store.commit([sample.new, sample.entry(blobs=((digest, b"something else"),))])
    with pytest.raises(StoreCorrupted, match=f"blob {digest} was changed after it was written"):
        await fetch_value(store, kept)


async def test_a_missing_blob_is_named() -> None:
    kept = Blobs(MemoryStore()).keep(text_of(INLINE_BYTES_MAX + 1))
    with pytest.raises(StoreCorrupted, match=r"blob [0-9a-f]{32} is missing"):
        await fetch_value(MemoryStore(), kept)


async def test_what_is_kept_at_hand_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "_NEAR_BYTES_MAX", 3 * INLINE_BYTES_MAX)
    blobs = Blobs(MemoryStore())
    kept = [blobs.keep(text_of(INLINE_BYTES_MAX + number)) for number in (1, 2, 3)]
    assert await blobs.fetch(kept[2])
    with pytest.raises(StoreCorrupted, match="is missing"):  # no longer at hand, and not on disk
        await blobs.fetch(kept[0])
