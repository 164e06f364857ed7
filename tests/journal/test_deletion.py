"""What has had its time is forgotten bit by bit: expired cache items, and commands of executions that are long over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.journal import memory
from holdfast.journal.memory import MemoryStore
from holdfast.journal.postgres import commit as postgres_commit
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.sqlite import commit as sqlite_commit
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import ANSWERS_KEPT_US, CacheItem, Store
from holdfast.testing.store_contract.samples import Sample, sample_answer

LATER = 10_000 + ANSWERS_KEPT_US


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore()
        case "sqlite":
            store = SqliteStore(tmp_path / "j.db")
        case _:
            store = PostgresStore(request.getfixturevalue("postgres_url"))
    yield store
    await store.close()


async def test_expired_cache_items_go_when_new_ones_come(store: Store) -> None:
    sample = Sample(1)
    items = tuple(CacheItem(f"k{number}", b"1", 50) for number in range(150))
    await store.commit([sample.new, sample.entry(at=10, cached=items)])
    await store.commit([sample.entry(at=20, cached=(CacheItem("k0", b"2", 90),))])
    assert len([n for n in range(150) if await store.cached(f"k{n}", 0)]) == 150
    for number in range(2):  # a hundred at a time
        await store.commit([sample.entry(at=60, cached=(CacheItem("new", b"%d" % number, 99),))])
    assert [n for n in range(150) if await store.cached(f"k{n}", 0)] == [0]
    assert await store.cached("k0", 60) == b"2"
    assert await store.cached("new", 60) == b"1"


async def test_answers_of_executions_that_ended_over_a_day_ago_are_forgotten(store: Store) -> None:
    over, alive, last = Sample(1), Sample(2), Sample(3)
    commands = [over.command("c1"), alive.command("c2")]
    answers = [sample_answer(command) for command in commands]
    await store.commit(
        [over.new, alive.new, last.new, *commands, over.end(answers=answers[:1]), alive.entry(answers=answers[1:])]
    )
    await store.commit([last.end(at=LATER)])
    assert await store.answer("c1") is None
    assert await store.answer("c2") == answers[1]
    assert (await store.commit([commands[0]]))[0].ok  # asked again, it is ruled on again


async def test_the_inbox_is_tidied_a_stretch_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "TIDY_ITEMS", 4)
    monkeypatch.setattr(sqlite_commit, "TIDY_ROWS", 4)
    monkeypatch.setattr(postgres_commit, "TIDY_ROWS", 4)
    over, alive = Sample(0), Sample(1)
    commands = [(over if number % 2 else alive).command(f"c{number}") for number in range(20)]
    answers = tuple(sample_answer(command) for command in commands)
    writes = [over.new, alive.new, *commands, alive.entry(answers=answers[::2]), over.end(answers=answers[1::2])]
    await store.commit(writes)
    left = [20]
    for turn in range(6):  # the stretches of a database take turns by the time of the end, at most one a second
        other = Sample(turn + 2)
        await store.commit([other.new, other.end(at=LATER - LATER % 6 + 1_000_001 * 6 * turn + turn)])
        left.append(len([c for c in commands if await store.answer(c.id)]))
    assert left[-1] == 10
    assert all(before - after <= 4 for before, after in pairwise(left))
