"""The contract of keyed rows: versions, conditions, what is atomic with an entry, order and pages, and two writers."""

from __future__ import annotations

import asyncio

from holdfast.core.errors import InputInvalid
from holdfast.journal.keyed import KEY_BYTES_MAX, VALUE_BYTES_MAX, Conflict, KeyedRow, Put
from holdfast.journal.store import Store, Written
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample

RACERS, ROUNDS = 4, 10


class KeyedContract(Opening):
    async def test_a_row_is_read_back_with_its_version(self) -> None:
        async with self.opened() as store:
            assert await store.row("budget", "ann") is None
            assert await _put(store, "ann", b"\x00\xff") == Written(ok=True, versions=(1,))
            assert await store.row("budget", "ann") == KeyedRow("ann", 1, b"\x00\xff")
            assert await _put(store, "ann", b"") == Written(ok=True, versions=(2,))
            assert await store.row("budget", "ann") == KeyedRow("ann", 2, b"")
            assert await store.row("schedule", "ann") is None

    async def test_rows_outlive_the_store_that_wrote_them(self) -> None:
        async with self.opened() as first:
            await _put(first, "ann", b"1")
            store = await self.reopen(first)
            try:
                assert await store.row("budget", "ann") == KeyedRow("ann", 1, b"1")
            finally:
                await store.close()

    async def test_a_put_of_another_version_is_refused_and_says_which_is_there(self) -> None:
        async with self.opened() as store:
            assert await _put(store, "ann", b"1", 3) == _conflict(0)
            assert await _put(store, "ann", b"1", 0) == Written(ok=True, versions=(1,))
            assert await _put(store, "ann", b"2", 0) == _conflict(1)
            assert await _put(store, "ann", b"2", 2) == _conflict(1)
            assert await _put(store, "ann", b"2", 1) == Written(ok=True, versions=(2,))
            assert await store.row("budget", "ann") == KeyedRow("ann", 2, b"2")

    async def test_a_row_is_deleted_on_the_same_conditions(self) -> None:
        async with self.opened() as store:
            assert await _put(store, "ann", None, 1) == _conflict(0)
            assert await _put(store, "ann", None) == Written(ok=True, versions=(0,))  # it was not there
            await _put(store, "ann", b"1")
            assert await _put(store, "ann", None, 2) == _conflict(1)
            assert await _put(store, "ann", None, 1) == Written(ok=True, versions=(0,))
            assert await store.row("budget", "ann") is None
            assert await store.rows("budget") == []

    async def test_a_row_that_comes_back_has_no_version_that_it_had_before(self) -> None:
        """Somebody who has read the old one would take the new one for it."""
        async with self.opened() as store:
            for value in (b"1", b"2", None):
                await _put(store, "ann", value)
            assert await _put(store, "ann", b"new", 0) == Written(ok=True, versions=(3,))
            assert await _put(store, "ann", b"late", 2) == _conflict(3)
            first, _, again = await store.commit([_row("bob", b"1"), _row("bob", None), _row("bob", b"2", 0)])
            assert again.versions[0] > first.versions[0]
            assert [row.key for row in await store.rows("budget")] == ["ann", "bob"]

    async def test_each_put_of_a_commit_sees_those_before_it(self) -> None:
        async with self.opened() as store:
            puts = [_row("ann", b"1", 0), _row("ann", b"2", 0), _row("ann", b"3", 1), _row("bob", b"1", 0)]
            results = await store.commit(puts)
            assert [(one.ok, one.versions) for one in results] == [
                (True, (1,)), (False, ()), (True, (2,)), (True, (1,)),
            ]  # fmt: skip
            assert await store.rows("budget") == [KeyedRow("ann", 2, b"3"), KeyedRow("bob", 1, b"1")]

    async def test_rows_are_written_with_an_entry(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            await _put(store, "old", b"1")
            [written] = await store.commit([sample.entry(puts=(_row("ann", b"1", 0), _row("old", None, 1)))])
            assert written == Written(ok=True, versions=(1, 0))
            assert await store.rows("budget") == [KeyedRow("ann", 1, b"1")]
            assert (await store.load(sample.id)).rows == sample.rows

    async def test_an_entry_whose_condition_fails_is_left_out_whole_and_alone(self) -> None:
        one, two = Sample(1), Sample(2)
        async with self.opened(one.new, two.new) as store:
            refused = one.entry(puts=(_row("ann", b"1"), _row("bob", b"1", 4)), blobs=(("large", b"1"),))
            other = two.entry(puts=(_row("ann", b"2", 0),))
            first, second = await store.commit([refused, other])
            assert (first.ok, first.conflict) == (False, Conflict("budget", "bob", 0))
            assert second == Written(ok=True, versions=(1,))
            assert await store.rows("budget") == [KeyedRow("ann", 1, b"2")]
            assert (await store.head(one.id)).seq == 1
            refused.puts = (_row("bob", b"1", 0),)
            assert (await store.commit([refused]))[0].ok

    async def test_conditions_of_an_entry_are_about_the_moment_before_it(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            [written] = await store.commit([sample.entry(puts=(_row("ann", b"1", 0), _row("ann", b"2", 0)))])
            assert written.versions == (1, 2)
            assert await store.row("budget", "ann") == KeyedRow("ann", 2, b"2")

    async def test_a_fenced_entry_writes_no_row_and_is_fenced_whatever_its_conditions(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new) as store:
            late = sample.entry(puts=(_row("ann", b"1", 0),), epoch=7)
            assert await store.commit([late]) == [Written(ok=False)]
            late.puts = (_row("ann", b"1", 3),)
            assert await store.commit([late]) == [Written(ok=False)]
            assert await store.rows("budget") == []

    async def test_rows_come_by_prefix_in_the_order_of_their_code_points(self) -> None:
        keys = ["a", "a/1", "a/2", "a/é", "a/\uffff", "a/\U0010ffff", "a0", "B", "b_", "b%", "\ud7ff", "\ue000"]
        async with self.opened(*(_row(key, key.encode()) for key in keys), _row("a/1", b"", space="other")) as store:
            assert [row.key for row in await store.rows("budget")] == sorted(keys)
            for prefix in ("a", "a/", "b", "b_", "b%", "B", "x", "a/\U0010ffff", "\ud7ff"):
                wanted = sorted(key for key in keys if key.startswith(prefix))
                assert [row.key for row in await store.rows("budget", prefix)] == wanted
            assert [row.value for row in await store.rows("budget", "a/\U0010ffff")] == ["a/\U0010ffff".encode()]

    async def test_rows_come_in_pages(self) -> None:
        keys = [f"{day}/{number:02}" for day in ("mon", "tue") for number in range(7)]
        async with self.opened(*(_row(key, b"") for key in keys)) as store:
            found, after = list[str](), None
            while page := await store.rows("budget", "tue/", after=after, limit=3):
                assert len(page) <= 3
                found += [row.key for row in page]
                after = found[-1]
            assert found == keys[7:]
            assert [row.key for row in await store.rows("budget", "tue/", after="mon/03", limit=2)] == keys[7:9]
            assert await store.rows("budget", "mon/", after="tue/00") == []

    async def test_what_is_too_large_or_misnamed_is_refused_before_anything_is_written(self) -> None:
        async with self.opened() as store:
            largest = _row("k" * KEY_BYTES_MAX, b"x" * VALUE_BYTES_MAX)
            assert (await store.commit([largest]))[0].ok
            for key, value, version in (
                ("", b"", 0), ("é" * (KEY_BYTES_MAX // 2 + 1), b"", 0), ("a\0b", b"", 0), ("\ud800", b"", 0),
                ("k", b"", -1), ("k", b"x" * (VALUE_BYTES_MAX + 1), 0),
            ):  # fmt: skip
                _assert_invalid(key, value, version)
            for space in ("", "Budget", "a b", "b" * 65):
                _assert_invalid("k", b"", 0, space=space)
            assert [row.key for row in await store.rows("budget")] == ["k" * KEY_BYTES_MAX]

    async def test_of_writers_who_race_none_loses_an_update(self) -> None:
        async with self.opened() as store:
            other = await self.beside(store)
            await asyncio.gather(*(_count((store, other)[number % 2], ROUNDS) for number in range(RACERS)))
            row = await store.row("budget", "total")
            assert row is not None
            assert (row.version, row.value) == (RACERS * ROUNDS, b"%d" % (RACERS * ROUNDS))
            if other is not store:
                await other.close()

    async def test_of_writers_who_delete_and_create_none_sees_a_version_twice(self) -> None:
        async with self.opened() as store:
            other = await self.beside(store)
            seen = await asyncio.gather(*(_create_and_delete((store, other)[number % 2]) for number in range(RACERS)))
            versions = [version for some in seen for version in some]
            assert len(set(versions)) == len(versions) == RACERS * ROUNDS
            if other is not store:
                await other.close()


async def _count(store: Store, rounds: int) -> None:
    """Add one, again and again, whenever nobody was quicker."""
    while rounds:
        row = await store.row("budget", "total") or KeyedRow("total", 0, b"0")
        rounds -= (await _put(store, "total", b"%d" % (int(row.value) + 1), row.version)).ok


async def _create_and_delete(store: Store) -> list[int]:
    versions = list[int]()
    while len(versions) < ROUNDS:
        created = await _put(store, "lock", b"", 0)
        if created.ok:
            versions += created.versions
            assert (await _put(store, "lock", None, created.versions[0])).ok
    return versions


def _row(key: str, value: bytes | None, if_version: int | None = None, *, space: str = "budget") -> Put:
    return Put(space=space, key=key, value=value, if_version=if_version)


async def _put(store: Store, key: str, value: bytes | None, if_version: int | None = None) -> Written:
    [written] = await store.commit([_row(key, value, if_version)])
    return written


def _conflict(version: int) -> Written:
    return Written(ok=False, conflict=Conflict("budget", "ann", version))


def _assert_invalid(key: str, value: bytes, if_version: int, *, space: str = "budget") -> None:
    try:
        _row(key, value, if_version, space=space)
    except InputInvalid:
        return
    raise AssertionError(f"{space}/{key!r} was accepted")
