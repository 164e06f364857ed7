"""The contract of deleting: whole families that are over, all that hangs on them, and nothing that others need."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import NotFound, StoreCorrupted
from holdfast.core.events import ForkedFrom, Parent
from holdfast.journal.codec import Snapshot
from holdfast.journal.store import Claim, Forget, Quarantine, Query, Store
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample, sample_answer, sample_id

SNAPSHOT = Snapshot(seq=2, version=1, chain=b"c" * 16, body=b"{}", digest=b"d" * 16)


class DeletingContract(Opening):
    async def test_an_ended_execution_goes_with_all_that_hangs_on_it(self) -> None:
        gone, stays = Sample(1, key="daily"), Sample(2)
        pending, answered = gone.command("pending"), gone.command("answered")
        gone.new.blobs = [("own", b"1")]
        extras: dict[str, Any] = {
            "blobs": (("large", b"2"),),
            "snapshot": SNAPSHOT,
            "answers": (sample_answer(answered),),
        }
        writes = [gone.new, stays.new, answered, gone.entry(**extras), gone.end(), pending, stays.command("other")]
        async with self.opened(*writes) as store:
            assert await store.delete([gone.id]) == [gone.id]
            assert [head.id for head in await store.heads(Query())] == [stays.id]
            assert await store.find(gone.id) == []
            await _assert_gone(store, gone)
            for digest in ("own", "large"):
                await _assert_no_blob(store, digest)
            assert [command.id for command in await store.pending()] == ["other"]
            assert await store.answer("answered") is None
            assert await store.command("pending") is None
            assert (await store.load(stays.id)).rows == stays.rows

    async def test_what_has_not_ended_is_left(self) -> None:
        samples = [Sample(number) for number in range(1, 5)]
        waits = [samples[1].wait(None), samples[2].wait(50), samples[3].end()]
        async with self.opened(*(sample.new for sample in samples), *waits) as store:
            asked = [*(sample.id for sample in samples), "nobody"]
            assert await store.delete(asked) == [samples[3].id]
            assert await store.count(Query()) == 3
            assert await store.delete([]) == []

    async def test_a_key_is_free_again(self) -> None:
        first, second = Sample(1, owner="ann", key="daily"), Sample(2, owner="ann", key="daily")
        async with self.opened(first.new, first.end()) as store:
            await store.delete([first.id])
            assert (await store.commit([second.new]))[0].ok

    async def test_an_id_can_come_back_and_be_driven(self) -> None:
        first, again, other = Sample(1, driver="d1"), Sample(1), Sample(2)
        async with self.opened(first.new, first.end()) as store:
            await store.delete([first.id])
            assert all(written.ok for written in await store.commit([other.new, again.new]))
            claim = Claim(execution_id=again.id, driver="d2")
            [claimed] = await store.commit([claim])
            assert (await store.commit([again.entry(epoch=claimed.epoch)]))[0].ok
            assert [len((await store.load(sample.id)).rows) for sample in (again, other)] == [2, 1]

    async def test_what_was_deleted_and_is_imported_again_has_no_files_to_remove(self) -> None:
        """Otherwise the next one to tidy up would take the files of an execution that lives."""
        first, again = Sample(1), Sample(1)
        again.new.head.held = "imported"
        async with self.opened(first.new, first.end()) as store:
            await store.delete([first.id])
            assert await store.deleted() == [first.id]
            assert (await store.commit([again.new]))[0].ok
            assert await store.deleted() == []

    async def test_whoever_slept_through_the_deletion_writes_nothing_anywhere(self) -> None:
        """Not even into an execution that came later and stands at the same epoch and number."""
        zombie = Sample(1, driver="d1")
        async with self.opened(zombie.new, zombie.end()) as store:
            late = zombie.entry()
            await store.delete([zombie.id])
            newcomer = Sample(2, driver="d2")
            await store.commit([newcomer.new, newcomer.entry()])
            assert (late.epoch, late.after) == (newcomer.epoch, newcomer.seq)
            assert not (await store.commit([late]))[0].ok
            assert (await store.load(newcomer.id)).rows == newcomer.rows

    async def test_an_ended_family_goes_as_a_whole(self) -> None:
        family = _family()
        async with self.opened(*(sample.new for sample in family), *(sample.end() for sample in family)) as store:
            asked = [family[0].id, family[1].id]
            assert sorted(await store.would_delete(asked)) == [sample.id for sample in family]
            gone = await store.delete(asked)
            assert sorted(gone) == [sample.id for sample in family]
            assert gone[-1] == family[0].id  # the root last, so that a crash in between leaves nobody behind
            assert await store.heads(Query()) == []

    async def test_what_was_set_aside_can_go_and_keeps_nobody(self) -> None:
        origin, fork = Sample(1), Sample(2, forked_from=ForkedFrom(id=sample_id(1)))
        async with self.opened(origin.new, fork.new, origin.end()) as store:
            assert await store.delete([origin.id, fork.id]) == []
            await store.commit([Quarantine(execution_id=fork.id, why="damaged")])
            assert await store.delete([origin.id]) == [origin.id]
            assert await store.delete([fork.id]) == [fork.id]

    async def test_a_family_stays_as_a_whole_as_long_as_one_of_it_has_not_ended(self) -> None:
        root, child, grandchild = _family()
        async with self.opened(root.new, child.new, grandchild.new, root.end(), child.end()) as store:
            for asking in (store.would_delete, store.delete):
                assert await asking([root.id, child.id, grandchild.id]) == []
            await store.commit([grandchild.end()])
            assert len(await store.delete([root.id])) == 3

    async def test_a_child_is_left_as_long_as_its_parent_may_need_it(self) -> None:
        root, child, grandchild = _family()
        async with self.opened(root.new, child.new, grandchild.new, grandchild.end(), child.end()) as store:
            assert await store.delete([child.id, grandchild.id]) == [grandchild.id]
            assert await store.delete([child.id]) == []
            await store.commit([root.end()])
            assert await store.delete([child.id]) == [child.id]

    async def test_what_a_fork_was_made_from_is_left_until_the_fork_has_ended(self) -> None:
        origin, fork = Sample(1), Sample(2, forked_from=ForkedFrom(id=Sample(1).id))
        async with self.opened(origin.new, origin.end("failed"), fork.new) as store:
            assert (await store.head(fork.id)).forked_from == origin.id
            assert [head.id for head in await store.heads(Query(forked_from=origin.id))] == [fork.id]
            assert await store.delete([origin.id]) == []
            await store.commit([fork.end()])
            assert await store.delete([origin.id]) == [origin.id]

    async def test_what_needs_somebody_who_is_gone_by_now_is_not_created(self) -> None:
        origin, late, free = Sample(1), Sample(2), Sample(3)
        late.new.needs = (origin.id,)
        async with self.opened(origin.new, origin.end("failed")) as store:
            await store.delete([origin.id])
            written = await store.commit([late.new, free.new])
            assert [(one.ok, one.existing) for one in written] == [(False, ""), (True, "")]
            assert [head.id for head in await store.heads(Query())] == [free.id]
            early = Sample(4)
            early.new.needs = (free.id,)
            assert [one.ok for one in await store.commit([early.new])] == [True]

    async def test_a_blob_goes_with_its_last_user(self) -> None:
        writer, reader, other = Sample(1), Sample(2), Sample(3)
        writes = [writer.end(blobs=(("shared", b"1"), ("own", b"2"))), reader.end(uses=("shared",))]
        async with self.opened(writer.new, reader.new, other.new, *writes) as store:
            await store.delete([writer.id])
            assert await store.blob("shared") == b"1"
            await _assert_no_blob(store, "own")
            await store.commit([other.end(blobs=(("shared", b"1"),))])
            await store.delete([reader.id])
            assert await store.blob("shared") == b"1"
            await store.delete([other.id])
            await _assert_no_blob(store, "shared")

    async def test_a_new_execution_counts_what_it_refers_to(self) -> None:
        writer, reader = Sample(1), Sample(2)
        reader.new.uses = ("shared",)
        async with self.opened(writer.new, writer.end(blobs=(("shared", b"1"),)), reader.new) as store:
            await store.delete([writer.id])
            assert await store.blob("shared") == b"1"

    async def test_the_deleted_are_remembered_until_they_are_forgotten(self) -> None:
        samples = [Sample(number) for number in range(1, 4)]
        async with self.opened(*(s.new for s in samples), *(s.end() for s in samples)) as first:
            assert await first.deleted() == []
            await first.delete([sample.id for sample in samples])
            store = await self.reopen(first)
            try:
                assert sorted(await store.deleted()) == [sample.id for sample in samples]
                await store.commit([Forget(execution_ids=(samples[2].id, samples[0].id, "nobody"))])
                assert await store.deleted() == [samples[1].id]
                await store.commit([Forget(execution_ids=(samples[1].id,))])
                assert await store.deleted() == []
            finally:
                await store.close()

    async def test_many_go_in_several_transactions(self) -> None:
        root = Sample(0)
        children = [Sample(number, parent=Parent(id=root.id, path=f"c{number}")) for number in range(1, 30)]
        family = [root, *children]
        writes = [*(sample.new for sample in family), *(sample.entry(300) for sample in family)]
        async with self.opened(*writes, *(sample.end() for sample in family), Sample(99).new) as store:
            assert len(await store.delete([root.id])) == 30
            assert [head.id for head in await store.heads(Query())] == [Sample(99).id]


def _family() -> list[Sample]:
    root = Sample(1)
    child = Sample(2, parent=Parent(id=root.id, path="child"))
    return [root, child, Sample(3, parent=Parent(id=child.id, path="grandchild"))]


async def _assert_gone(store: Store, sample: Sample) -> None:
    for reading in (store.head(sample.id), store.load(sample.id), store.events(sample.id, 0, -1)):
        try:
            await reading
        except NotFound:
            continue
        raise AssertionError(f"{sample.id} can still be read")


async def _assert_no_blob(store: Store, digest: str) -> None:
    try:
        await store.blob(digest)
    except StoreCorrupted:
        return
    raise AssertionError(f"blob {digest} is still there")
