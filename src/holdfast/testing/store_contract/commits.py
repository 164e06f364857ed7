"""The contract of commits: all of an entry or nothing of it, and nothing at all for whoever drives no longer."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.journal.codec import Snapshot
from holdfast.journal.store import CacheItem, Entry, HeadChange, Query, Store, Written
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample, sample_answer

SNAPSHOT = Snapshot(seq=2, version=1, chain=b"c" * 16, body=b"{}", digest=b"d" * 16)


class WritingContract(Opening):
    async def test_a_new_execution_is_read_back_as_it_was_written(self) -> None:
        sample = Sample(1, title="Tides", labels={"für": "Zoë"}, owner="ann", total=4)
        async with self.opened(sample.new) as store:
            stored = await store.load(sample.id)
            assert stored.head == sample.new.head
            assert stored.rows == sample.rows
            assert stored.snapshot is None
            assert await store.head(sample.id) == sample.new.head

    async def test_an_execution_can_be_created_and_claimed_in_one_stroke(self) -> None:
        async with self.opened() as store:
            sample = Sample(1, driver="d1")
            [written] = await store.commit([sample.new])
            assert (written.ok, written.epoch) == (True, 1)
            head = await store.head(sample.id)
            assert (head.driver, head.epoch) == ("d1", 1)

    async def test_a_family_is_created_whole_with_what_waits_in_its_inbox(self) -> None:
        parent, child = Sample(1), Sample(2, key="k", owner="ann")
        parent.new.posts = (parent.command("c1"),)
        child.new.blobs = [("b" * 32, b"large")]
        child.new.head.held = "imported"
        parent.new.family = (child.new,)
        async with self.opened(parent.new) as store:
            assert [head.id for head in await store.heads(Query())] == [child.id, parent.id]
            assert (await store.load(child.id)).rows == child.rows
            assert (await store.head(child.id)).held == "imported"
            assert [command.id for command in await store.pending([parent.id])] == ["c1"]
            assert await store.blob("b" * 32) == b"large"

    async def test_nothing_of_a_family_is_created_if_two_of_them_have_one_id_or_one_key(self) -> None:
        async with self.opened() as store:
            for parent, children in (
                (Sample(1, owner="ann", key="k"), [Sample(2, owner="ann", key="k")]),
                (Sample(1), [Sample(2, owner="ann", key="k"), Sample(3, owner="ann", key="k")]),
                (Sample(1), [Sample(2), Sample(2)]),
            ):
                parent.new.family = tuple(child.new for child in children)
                assert await store.commit([parent.new]) == [Written(ok=False, existing=children[-1].id)]
                assert await store.heads(Query()) == []
            parent, child = Sample(1, owner="ann", key="k"), Sample(2, owner="bob", key="k")  # each has his own keys
            parent.new.family = (child.new,)
            assert (await store.commit([parent.new]))[0].ok

    async def test_nothing_of_a_family_is_created_if_one_of_them_is_there(self) -> None:
        here, other = Sample(1, key="k", owner="ann"), Sample(4)
        async with self.opened(here.new) as store:
            for clashing in (Sample(1), Sample(3, key="k", owner="ann")):
                parent, child = Sample(2), Sample(5)
                parent.new.family = (child.new, clashing.new)
                [refused, written] = await store.commit([parent.new, other.new])
                assert (refused.ok, refused.existing) == (False, here.id)
                assert {head.id for head in await store.heads(Query())} == {here.id, other.id}
                assert written.ok == (clashing.id == here.id)  # others of the transaction go on; once

    async def test_an_entry_appends_its_events_and_moves_the_head(self) -> None:
        sample = Sample(1)
        change = HeadChange(status="failed", wake_at=None, ended_at=77, error="no tide", failed_path="search")
        async with self.opened(sample.new, sample.entry(3, ended=2, total=5, change=change)) as store:
            stored = await store.load(sample.id)
            head = stored.head
            assert stored.rows == sample.rows
            assert (head.seq, head.digest) == (4, sample.rows[-1].digest)
            assert (head.updated_at, head.ended, head.total) == (2_001, 2, 5)
            assert (head.status, head.wake_at, head.ended_at) == ("failed", None, 77)
            assert (head.error, head.failed_path) == ("no tide", "search")

    async def test_an_entry_without_a_change_leaves_the_status_alone(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.wait(50), sample.entry()) as store:
            head = await store.head(sample.id)
            assert (head.status, head.wake_at, head.seq) == ("waiting", 50, 3)

    async def test_every_write_gets_its_own_result_in_order(self) -> None:
        one, two = Sample(1), Sample(2)
        async with self.opened() as store:
            stale = two.entry(epoch=9)
            results = await store.commit([one.new, stale, two.new, one.command("c1"), one.command("c1")])
            assert [result.ok for result in results] == [True, False, True, True, False]
            assert await store.commit([]) == []

    async def test_later_writes_of_a_commit_see_the_earlier_ones(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(), sample.entry(2)) as store:
            assert [row.seq for row in (await store.load(sample.id)).rows] == [1, 2, 3, 4]

    async def test_an_entry_of_an_old_epoch_writes_nothing(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            await self._assert_fenced(store, sample, sample.entry(epoch=0, **_everything(sample)))

    async def test_an_entry_with_the_wrong_number_writes_nothing(self) -> None:
        for after in (0, 2):
            sample = Sample(1, driver="d1")
            async with self.opened(sample.new) as store:
                await self._assert_fenced(store, sample, sample.entry(after=after, **_everything(sample)))

    async def test_an_entry_without_events_is_fenced_all_the_same(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            await self._assert_fenced(store, sample, sample.entry(0, epoch=2, **_everything(sample)))

    async def test_an_entry_of_an_unknown_execution_is_refused(self) -> None:
        async with self.opened() as store:
            [written] = await store.commit([Sample(1).entry()])
            assert not written.ok

    async def test_one_fenced_entry_does_not_stop_the_others(self) -> None:
        zombie, healthy, late = Sample(1), Sample(2), Sample(3)
        async with self.opened(zombie.new, healthy.new) as store:
            writes = [healthy.entry(), zombie.entry(epoch=5), late.new, healthy.entry()]
            results = await store.commit(writes)
            assert [result.ok for result in results] == [True, False, True, True]
            assert (await store.head(healthy.id)).seq == 3
            assert (await store.head(zombie.id)).seq == 1
            assert (await store.head(late.id)).seq == 1

    async def test_many_entries_in_one_commit_are_fenced_one_by_one(self) -> None:
        samples = [Sample(number) for number in range(250)]
        async with self.opened(*(sample.new for sample in samples)) as store:
            stale = {3, 99, 100, 101, 249}
            entries = [sample.entry(2, epoch=7 * (number in stale)) for number, sample in enumerate(samples)]
            results = await store.commit([*entries, *(samples[number].entry(after=3) for number in (0, 3))])
            written = [number not in stale for number in range(250)]
            assert [result.ok for result in results] == [*written, True, False]
            for number in (0, 1, 3, 99, 102, 248, 249):
                stored = await store.load(samples[number].id)
                assert stored.rows == samples[number].rows[: {0: 4}.get(number, 1 if number in stale else 3)]
                assert (stored.head.seq, stored.head.digest) == (len(stored.rows), stored.rows[-1].digest)

    async def test_a_long_entry_is_written_whole_and_in_order(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(333)) as store:
            assert (await store.load(sample.id)).rows == sample.rows

    async def test_all_that_an_entry_carries_is_there_after_reopening(self) -> None:
        sample = Sample(1, driver="d1")
        asked = sample.command("asked")
        async with self.opened(sample.new, asked) as first:
            entry = sample.entry(answers=(sample_answer(asked),), **_everything(sample))
            [written] = await first.commit([entry])
            assert written.ok
            store = await self.reopen(first)
            try:
                stored = await store.load(sample.id)
                assert (stored.snapshot, stored.head.seq, stored.head.driver) == (SNAPSHOT, 2, "")
                assert await store.blob("blob-1") == b"large"
                assert await store.cached("cache-1", 0) == b"kept"
                assert [command.id for command in await store.pending()] == ["posted"]
                assert await store.answer("asked") == sample_answer(asked)
                assert (await store.head(Sample(9).id)).seq == 1
            finally:
                await store.close()

    async def test_every_character_is_kept(self) -> None:
        every = "zero \0, private \ue000\ue001\ue002, \U0001f30a, %s ' \\ \x7f\x1b\u2028"
        sample = Sample(1, title=every, owner=every, key=every, labels={every: every}, name=every)
        change = HeadChange(status="failed", wake_at=None, error=every, failed_path=every)
        command = sample.command(every, by=every)
        async with self.opened(sample.new, command, sample.entry(change=change)) as store:
            [head] = await store.heads(Query(name=every, owner=every))
            assert (head.title, head.owner, head.key, head.labels) == (every, every, every, {every: every})
            assert (head.error, head.failed_path) == (every, every)
            assert await store.pending() == [command]
            await store.commit([sample.entry(answers=(sample_answer(command, every),))])
            assert await store.answer(every) == sample_answer(command, every)

    async def test_a_key_of_any_length_is_taken_once(self) -> None:
        base = "".join(sha256(b"%d" % number).hexdigest() for number in range(200))  # nothing that compresses
        keys = [f"{base}a", f"{base}b"]
        first, other, again = (Sample(number, key=key) for number, key in enumerate((*keys, keys[0]), 1))
        async with self.opened(first.new, other.new) as store:
            [written] = await store.commit([again.new])
            assert (written.ok, written.existing) == (False, first.id)

    async def test_a_key_is_taken_once_for_each_owner(self) -> None:
        first, second = Sample(1, owner="ann", key="daily"), Sample(2, owner="ann", key="daily")
        async with self.opened(first.new, Sample(3, owner="bob", key="daily").new) as store:
            [written] = await store.commit([second.new])
            assert (written.ok, written.existing) == (False, first.id)
            assert [head.id for head in await store.heads(Query(owner="ann"))] == [first.id]

    async def test_a_key_is_taken_by_an_earlier_write_of_the_same_commit(self) -> None:
        first, second = Sample(1, key="daily"), Sample(2, key="daily")
        async with self.opened() as store:
            results = await store.commit([first.new, second.new])
            assert [(result.ok, result.existing) for result in results] == [(True, ""), (False, first.id)]

    async def test_executions_without_a_key_never_clash(self) -> None:
        async with self.opened(Sample(1).new, Sample(2).new) as store:
            assert len(await store.heads(Query())) == 2

    async def test_an_id_is_never_created_twice(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry()) as store:
            results = await store.commit([Sample(1, title="again").new, Sample(2).new])
            assert [(result.ok, result.existing) for result in results] == [(False, sample.id), (True, "")]
            stored = await store.load(sample.id)
            assert (stored.head.title, stored.rows) == ("", sample.rows)

    async def test_a_child_whose_key_exists_is_left_as_it_is(self) -> None:
        parent, child = Sample(1), Sample(2, key="child")
        again = Sample(3, key="child")
        async with self.opened(parent.new, child.new, parent.entry(creates=(again.new,))) as store:
            assert [head.id for head in await store.heads(Query())] == [child.id, parent.id]

    async def test_what_was_read_can_be_changed_without_changing_the_store(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            head = await store.head(sample.id)
            head.status = "failed"
            sample.new.head.status = "failed"
            (await store.load(sample.id)).rows.clear()
            assert (await store.head(sample.id)).status == "queued"
            assert len((await store.load(sample.id)).rows) == 1

    async def test_closing_twice_is_harmless(self) -> None:
        store = await self.make_store()
        await store.close()
        await store.close()

    async def _assert_fenced(self, store: Store, sample: Sample, entry: Entry) -> None:
        before = await store.head(sample.id)
        [written] = await store.commit([entry])
        assert not written.ok
        stored = await store.load(sample.id)
        assert (stored.head, stored.snapshot, len(stored.rows)) == (before, None, 1)
        assert await store.pending() == []
        assert await store.cached("cache-1", 0) is None
        assert [head.id for head in await store.heads(Query())] == [sample.id]
        try:
            await store.blob("blob-1")
        except HoldfastError:
            return
        raise AssertionError("a fenced entry wrote its blob")


def _everything(sample: Sample) -> dict[str, Any]:
    """One of each thing that an entry may carry."""
    return {
        "change": HeadChange(status="waiting", wake_at=None),
        "release": True,
        "blobs": (("blob-1", b"large"),),
        "posts": (sample.command("posted"),),
        "creates": (Sample(9).new,),
        "cached": (CacheItem("cache-1", b"kept", 5_000),),
        "snapshot": SNAPSHOT,
    }
