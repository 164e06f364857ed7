"""The contract of reading: journals in pages, ids by their ends, blobs, the cache, and being told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from unittest.mock import patch

from holdfast.core.errors import NotFound, StoreCorrupted
from holdfast.core.events import Reason
from holdfast.journal import store as port
from holdfast.journal.codec import CHAIN_START, Snapshot
from holdfast.journal.store import CacheCap, CacheItem, HeadChange, Mark, Quarantine
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample

NOTICED_S_MAX = 10.0  # for word of another writer's commit; a moment, unless it never comes


class ReadingContract(Opening):
    async def test_what_is_not_there_is_not_found_by_its_name(self) -> None:
        async with self.opened() as store:
            for reading in (store.head("nobody"), store.load("nobody"), store.events("nobody", 0, 10)):
                assert "nobody" in await _message(reading, NotFound)

    async def test_events_come_in_pages_with_the_digest_before_them(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(4)) as store:
            assert await store.events(sample.id, 0, 2) == (CHAIN_START, sample.rows[:2])
            assert await store.events(sample.id, 2, 2) == (sample.rows[1].digest, sample.rows[2:4])
            assert await store.events(sample.id, 4, 2) == (sample.rows[3].digest, sample.rows[4:])
            assert await store.events(sample.id, 5, 2) == (sample.rows[4].digest, [])
            assert (await store.events(sample.id, 6, 2))[1] == []

    async def test_a_limit_of_minus_one_is_no_limit(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(4)) as store:
            assert (await store.events(sample.id, 0, -1))[1] == sample.rows
            assert (await store.events(sample.id, 3, -1))[1] == sample.rows[3:]

    async def test_journals_of_different_executions_do_not_mix(self) -> None:
        one, two = Sample(1), Sample(2)
        async with self.opened(one.new, two.new, one.entry(2), two.entry(3), one.entry()) as store:
            assert (await store.load(one.id)).rows == one.rows
            assert (await store.load(two.id)).rows == two.rows

    async def test_loading_starts_at_the_newest_snapshot(self) -> None:
        sample = Sample(1)
        older, newer = _snapshot(2), _snapshot(4)
        entries = [sample.entry(snapshot=older), sample.entry(2, snapshot=newer), sample.entry()]
        async with self.opened(sample.new, *entries) as store:
            stored = await store.load(sample.id)
            assert stored.snapshot == newer
            assert stored.rows == sample.rows[4:]
            assert (await store.events(sample.id, 0, -1))[1] == sample.rows

    async def test_reasons_are_part_of_a_head_until_the_status_moves(self) -> None:
        sample = Sample(1)
        reasons = (Reason(kind="approval", path="publish", due_at=7), Reason(kind="event", path="go", name="tide"))
        waits = sample.entry(change=HeadChange(status="waiting", wake_at=7, reasons=reasons))
        async with self.opened(sample.new, waits) as store:
            assert (await store.head(sample.id)).reasons == reasons
            await store.commit([sample.entry(change=HeadChange(status="running", wake_at=0))])
            assert (await store.head(sample.id)).reasons == ()

    async def test_ids_are_found_by_their_beginning_and_by_their_end(self) -> None:
        one, two = Sample(0x1A), Sample(0x2B)
        async with self.opened(one.new, two.new) as store:
            assert await store.find("0198001a") == [one.id]
            assert await store.find("002b") == [two.id]
            assert await store.find(one.id) == [one.id]
            assert await store.find("0198") == [two.id, one.id]
            assert await store.find("0198", 1) == [two.id]
            assert await store.find("7000-8000") == []

    async def test_a_fragment_is_taken_literally(self) -> None:
        async with self.opened(Sample(0x1A).new) as store:
            for fragment in ("%", "_", "%a", "0198%", "00_a", "001A", "*a", "?a", "'"):
                assert await store.find(fragment) == []

    async def test_blobs_are_kept_under_their_digest(self) -> None:
        sample = Sample(1)
        large = bytes(range(256)) * 8192
        sample.new.blobs = [("first", b"one")]
        async with self.opened(sample.new, sample.entry(blobs=(("large", large), ("first", b"one")))) as store:
            assert await store.blob("first") == b"one"
            assert await store.blob("large") == large
            assert "gone" in await _message(store.blob("gone"), StoreCorrupted)

    async def test_cached_outputs_expire(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(cached=(CacheItem("k", b"1", 100),))) as store:
            assert await store.cached("k", 99) == b"1"
            assert await store.cached("k", 100) is None
            assert await store.cached("other", 0) is None
            await store.commit([sample.entry(cached=(CacheItem("k", b"2", 300),))])
            assert await store.cached("k", 200) == b"2"

    async def test_the_cache_is_bounded_and_what_expires_first_goes_first(self) -> None:
        sample = Sample(1)
        items = tuple(CacheItem(f"k{number}", b"x" * 10, 10**15 + number) for number in range(6))
        with patch.object(port, "CACHE_CAP", CacheCap(items=4, bytes=1_000, look_every=1)):
            async with self.opened(sample.new, sample.entry(cached=items)) as store:
                kept = [number for number in range(6) if await store.cached(f"k{number}", 0) is not None]
                assert kept == [2, 3, 4, 5]
                with patch.object(port, "CACHE_CAP", CacheCap(items=4, bytes=45, look_every=1)):
                    await store.commit([sample.entry(cached=(CacheItem("large", b"y" * 30, 10**16),))])
                kept = [number for number in range(6) if await store.cached(f"k{number}", 0) is not None]
                assert kept == [5]
                assert await store.cached("large", 0) is not None
                mark = Mark(key="mark", at=10**14, expires_at=10**15)  # expires before all of them, and stays
                more = sample.entry(cached=(CacheItem("more", b"z" * 10, 10**16),))
                with patch.object(port, "CACHE_CAP", CacheCap(items=1, bytes=10, look_every=1)):
                    assert [(await store.commit([write]))[0].ok for write in (mark, more, mark)] == [True, True, False]

    async def test_mark_is_given_to_one_of_all_who_ask_until_it_expires(self) -> None:
        async with self.opened() as store:
            mark = Mark(key="m", at=10, expires_at=100)
            first, second = await store.commit([mark, mark])
            assert (first.ok, second.ok) == (True, False)
            [late, other, again] = await store.commit(
                [
                    Mark(key="m", at=99, expires_at=500),
                    Mark(key="n", at=99, expires_at=500),
                    Mark(key="m", at=100, expires_at=500),
                ]
            )
            assert (late.ok, other.ok, again.ok) == (False, True, True)

    async def test_every_commit_can_be_noticed(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            before = store.changes()
            assert store.changes() == before
            await store.commit([sample.entry()])
            after = store.changes()
            assert after != before
            await store.commit([Quarantine(execution_id=sample.id, why="why")])
            assert store.changes() != after

    async def test_another_writers_commit_is_noticed_and_seen(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            other = await self.beside(store)
            try:
                before = store.changes()
                await other.commit([sample.entry()])
                async with asyncio.timeout(NOTICED_S_MAX):
                    while store.changes() == before:  # noqa: ASYNC110 -- the port is asked, it does not call
                        await asyncio.sleep(0.001)
                assert (await store.head(sample.id)).seq == 2
            finally:
                if other is not store:
                    await other.close()


def _snapshot(seq: int) -> Snapshot:
    return Snapshot(seq=seq, version=1, chain=b"c" * 16, body=b"%d" % seq, digest=b"d" * 16)


async def _message(reading: Awaitable[object], expected: type[Exception]) -> str:
    try:
        await reading
    except expected as error:
        return str(error)
    raise AssertionError(f"expected {expected.__name__}")
