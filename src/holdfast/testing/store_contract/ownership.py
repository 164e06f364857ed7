"""The contract of ownership: one driver at a time, places under a concurrency key, and who is due to be driven."""

from __future__ import annotations

import asyncio

from holdfast.journal.store import Claim, HeadChange, Hold, Quarantine, Store, Written
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample


class OwnershipContract(Opening):
    async def test_a_claim_makes_a_driver_and_raises_the_epoch(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            assert await _claim(store, sample, "d1") == Written(ok=True, epoch=1)
            head = await store.head(sample.id)
            assert (head.driver, head.epoch) == ("d1", 1)

    async def test_every_claim_raises_the_epoch_also_one_by_the_same_driver(self) -> None:
        """What a driver wrote before it let go must not count after it has come back."""
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            assert await _claim(store, sample, "d1", replacing="d1") == Written(ok=True, epoch=2)
            late = sample.entry(release=True)
            assert not (await store.commit([late]))[0].ok
            late.epoch = 2
            assert (await store.commit([late]))[0].ok
            assert await _claim(store, sample, "d1") == Written(ok=True, epoch=3)
            late = sample.entry()
            late.epoch = 2
            assert not (await store.commit([late]))[0].ok
            late.epoch = 3
            assert (await store.commit([late]))[0].ok

    async def test_of_two_claims_in_one_commit_the_first_wins(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            claims = [Claim(execution_id=sample.id, driver=driver) for driver in ("d1", "d2")]
            assert [written.ok for written in await store.commit(claims)] == [True, False]
            assert (await store.head(sample.id)).driver == "d1"

    async def test_of_many_claims_at_once_exactly_one_wins(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            other = await self.beside(store)
            claims = [_claim((store, other)[number % 2], sample, f"d{number}") for number in range(6)]
            results = await asyncio.gather(*claims)
            assert sum(written.ok for written in results) == 1
            winner = next(number for number, written in enumerate(results) if written.ok)
            assert (await store.head(sample.id)).driver == f"d{winner}"
            if other is not store:
                await other.close()

    async def test_a_held_execution_is_claimed_only_from_the_driver_who_is_named(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            assert not (await _claim(store, sample, "d2")).ok
            assert not (await _claim(store, sample, "d2", replacing="d3")).ok
            assert (await store.head(sample.id)).epoch == 1
            assert await _claim(store, sample, "d2", replacing="d1") == Written(ok=True, epoch=2)

    async def test_an_unknown_execution_cannot_be_claimed(self) -> None:
        async with self.opened() as store:
            assert not (await _claim(store, Sample(1), "d1")).ok

    async def test_whoever_was_replaced_is_fenced(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            await _claim(store, sample, "d2", replacing="d1")
            zombie = sample.entry()
            assert not (await store.commit([zombie]))[0].ok
            zombie.epoch = 2
            assert (await store.commit([zombie]))[0].ok

    async def test_a_released_execution_is_free_and_its_old_driver_still_fenced_after_the_next_claim(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new, sample.entry(release=True)) as store:
            assert (await store.head(sample.id)).driver == ""
            assert await _claim(store, sample, "d2") == Written(ok=True, epoch=2)
            assert not (await store.commit([sample.entry()]))[0].ok

    async def test_a_release_and_a_claim_fit_into_one_commit(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new) as store:
            release, claim = sample.entry(release=True), Claim(execution_id=sample.id, driver="d2")
            assert [written.ok for written in await store.commit([release, claim])] == [True, True]
            assert (await store.head(sample.id)).driver == "d2"

    async def test_a_concurrency_key_has_so_many_places(self) -> None:
        one, two, three = (Sample(number, limit=("gpu", 2)) for number in (1, 2, 3))
        async with self.opened(one.new, two.new, three.new) as store:
            assert (await _claim(store, one, "d1")).ok
            assert (await _claim(store, two, "d1")).ok
            assert not (await _claim(store, three, "d1")).ok
            one.epoch = 1
            await store.commit([one.entry(release=True)])
            assert (await _claim(store, three, "d1")).ok

    async def test_places_are_counted_within_one_commit(self) -> None:
        one, two = Sample(1, limit=("gpu", 1)), Sample(2, limit=("gpu", 1))
        async with self.opened(one.new, two.new) as store:
            claims = [Claim(execution_id=sample.id, driver="d1") for sample in (one, two)]
            assert [written.ok for written in await store.commit(claims)] == [True, False]

    async def test_places_of_another_key_do_not_count(self) -> None:
        one, two, free = Sample(1, limit=("gpu", 1)), Sample(2, limit=("disk", 1)), Sample(3)
        async with self.opened(one.new, two.new, free.new) as store:
            for sample in (one, two, free):
                assert (await _claim(store, sample, "d1")).ok

    async def test_whoever_replaces_a_driver_takes_over_the_place(self) -> None:
        one = Sample(1, limit=("gpu", 1))
        async with self.opened(one.new) as store:
            await _claim(store, one, "d1")
            assert (await _claim(store, one, "d2", replacing="d1")).ok

    async def test_a_commander_needs_no_place(self) -> None:
        one, two = Sample(1, limit=("gpu", 1)), Sample(2, limit=("gpu", 1))
        async with self.opened(one.new, two.new) as store:
            await _claim(store, one, "d1")
            assert not (await _claim(store, two, "d2")).ok
            assert (await _claim(store, two, "d2", to_drive=False)).ok

    async def test_those_due_are_listed_longest_due_first(self) -> None:
        samples = [Sample(number) for number in range(1, 6)]
        waits = [sample.wait(wake) for sample, wake in zip(samples, (40, 10, 99, None, 10), strict=True)]
        async with self.opened(*(sample.new for sample in samples), *waits) as store:
            due = await store.claimable(50, [""], 10)
            assert [head.id for head in due] == [samples[1].id, samples[4].id, samples[0].id]
            assert [head.id for head in await store.claimable(50, [""], 2)] == [samples[1].id, samples[4].id]
            assert samples[2].id in {head.id for head in await store.claimable(99, [""], 10)}

    async def test_only_what_the_named_drivers_hold_is_listed_as_due(self) -> None:
        free, dead, alive = Sample(1), Sample(2, driver="dead"), Sample(3, driver="alive")
        async with self.opened(free.new, dead.new, alive.new) as store:
            assert [head.id for head in await store.claimable(50, [""], 10)] == [free.id]
            assert [head.id for head in await store.claimable(50, ["dead"], 10)] == [dead.id]
            assert {head.id for head in await store.claimable(50, ["", "dead"], 10)} == {free.id, dead.id}
            assert await store.claimable(50, [], 10) == []

    async def test_what_the_named_drivers_hold_is_listed_though_it_is_not_due(self) -> None:
        """Otherwise it would be held for good, and keep its place under a concurrency key."""
        asleep, over, free = Sample(1, driver="dead"), Sample(2, driver="dead"), Sample(3)
        sleep = asleep.entry(change=HeadChange(status="waiting", wake_at=None))
        end = over.entry(change=HeadChange(status="completed", wake_at=None, ended_at=9))
        async with self.opened(asleep.new, over.new, free.new, sleep, end, free.wait(None)) as store:
            assert {head.id for head in await store.claimable(50, ["", "dead"], 10)} == {asleep.id, over.id}

    async def test_what_has_ended_or_is_held_back_is_never_due(self) -> None:
        ended, held = Sample(1), Sample(2, hold=True)
        async with self.opened(ended.new, held.new, ended.end()) as store:
            assert await store.claimable(10**18, [""], 10) == []

    async def test_what_has_no_place_now_is_not_due_but_a_dead_drivers_is(self) -> None:
        running, queued = Sample(1, limit=("gpu", 1), driver="d1"), Sample(2, limit=("gpu", 1))
        async with self.opened(running.new, queued.new) as store:
            assert await store.claimable(50, [""], 10) == []
            assert [head.id for head in await store.claimable(50, ["", "d1"], 10)] == [running.id]
            change = HeadChange(status="completed", wake_at=None, ended_at=9)
            await store.commit([running.entry(change=change, release=True)])
            assert [head.id for head in await store.claimable(50, [""], 10)] == [queued.id]

    async def test_everybody_who_holds_something_is_a_driver(self) -> None:
        samples = [Sample(1, driver="d1"), Sample(2, driver="d2"), Sample(3, driver="d1"), Sample(4)]
        async with self.opened(*(sample.new for sample in samples), samples[1].entry(release=True)) as store:
            assert sorted(await store.drivers()) == ["d1"]

    async def test_a_quarantined_execution_is_listed_but_nobody_gets_it(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            await store.commit([Quarantine(execution_id=sample.id, why="event 3 was changed")])
            assert (await store.head(sample.id)).quarantined == "event 3 was changed"
            assert await store.claimable(50, [""], 10) == []
            assert not (await _claim(store, sample, "d1")).ok
            await store.commit([Quarantine(execution_id=sample.id, why="")])
            assert [head.id for head in await store.claimable(50, [""], 10)] == [sample.id]
            assert (await _claim(store, sample, "d1")).ok

    async def test_to_quarantine_an_unknown_execution_changes_nothing(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            await store.commit([Quarantine(execution_id="nobody", why="why")])
            assert (await store.head(sample.id)).quarantined == ""

    async def test_what_is_held_is_never_due_and_nobody_drives_it(self) -> None:
        free, held, orphan = Sample(1), Sample(2), Sample(3, driver="dead")
        async with self.opened(free.new, held.new, orphan.new) as store:
            await store.commit([Hold(execution_ids=(held.id, orphan.id, "nobody"), why="restored from a backup")])
            assert (await store.head(held.id)).held == "restored from a backup"
            assert [head.id for head in await store.claimable(50, ["", "dead"], 10)] == [free.id]
            assert not (await _claim(store, held, "d1")).ok
            assert not (await _claim(store, orphan, "d1", replacing="dead")).ok
            await store.commit([Hold(execution_ids=(held.id,), why="")])
            assert (await store.head(held.id)).held == ""
            assert {head.id for head in await store.claimable(50, ["", "dead"], 10)} == {free.id, held.id}
            assert (await _claim(store, held, "d1")).ok

    async def test_a_commander_may_claim_what_is_held_and_it_stays_held(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            await store.commit([Hold(execution_ids=(sample.id,), why="imported")])
            assert await _claim(store, sample, "d1", to_drive=False) == Written(ok=True, epoch=1)
            sample.epoch = 1
            change = HeadChange(status="running", wake_at=0)
            assert (await store.commit([sample.entry(change=change, release=True), sample.command("c1")]))[0].ok
            assert (await store.head(sample.id)).held == "imported"
            assert await store.claimable(50, [""], 10) == []

    async def test_what_is_driven_or_over_can_be_left_out_of_a_hold(self) -> None:
        free, orphan, driven = Sample(1), Sample(2, driver="dead"), Sample(3, driver="d1")
        async with self.opened(free.new, orphan.new, driven.new) as store:
            everybody = [free.id, orphan.id, driven.id, "nobody"]
            await store.commit([Hold(execution_ids=tuple(everybody), why="first", unless_driven=("dead",))])
            assert [(await store.head(one.id)).held for one in (free, orphan, driven)] == ["first", "first", ""]
            assert (await _claim(store, free, "d2", to_drive=False)).ok  # for a command: nobody can drive it
            await store.commit([Hold(execution_ids=tuple(everybody), why="second", unless_driven=())])
            assert [(await store.head(one.id)).held for one in (free, orphan, driven)] == ["second", "second", ""]
            end = HeadChange(status="completed", wake_at=None, ended_at=9)
            assert (await store.commit([driven.entry(change=end, release=True)]))[0].ok
            await store.commit([Hold(execution_ids=(driven.id,), why="third", unless_driven=())])
            assert (await store.head(driven.id)).held == ""

    async def test_an_execution_can_be_created_held(self) -> None:
        sample = Sample(1)
        sample.new.head.held = "imported"
        async with self.opened(sample.new) as store:
            assert (await store.head(sample.id)).held == "imported"
            assert await store.claimable(50, [""], 10) == []


async def _claim(store: Store, sample: Sample, driver: str, *, replacing: str = "", to_drive: bool = True) -> Written:
    claim = Claim(execution_id=sample.id, driver=driver, replacing=replacing, to_drive=to_drive)
    [written] = await store.commit([claim])
    return written
