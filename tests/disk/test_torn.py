"""Files that lost a part: truncated and torn databases and logs, logs that are gone or of somebody else."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from disk.flip import judge
from disk.house import PAGE_BYTES, engine_in, furnish, in_memory, plan, step, store_of
from disk.look import Look, look_round
from holdfast.core.errors import StoreCorrupted
from holdfast.journal.log import read_events, read_state
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Query
from holdfast.testing.store_contract.samples import Sample

# ---- the database --------------------------------------------------------------------------------------------------


class House:
    """A furnished store, and what a look at it in one piece shows."""

    def __init__(self, folder: Path, body: bytes) -> None:
        self.folder = folder
        self.body = body
        self.whole: Look | None = None

    async def look(self, body: bytes) -> Look:
        path = store_of(self.folder)
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_bytes(body)
        return await look_round(self.folder, self.whole)

    async def judged(self, body: bytes) -> tuple[str, list[str]]:
        assert self.whole is not None
        return judge(self.whole, await self.look(body))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    with in_memory() as folder:
        house = House(folder, (await furnish(folder)).read_bytes())
        house.whole = await house.look(house.body)
        yield house


async def test_a_truncated_database_is_refused_at_every_length(house: House) -> None:
    size = len(house.body)
    lengths = [*range(PAGE_BYTES, size, PAGE_BYTES), *range(1, size, 1777), 99, 100, size - 1]
    for length in lengths:
        outcome, wrong = await house.judged(house.body[:length])
        assert (outcome, wrong) == ("refused", []), f"{length} of {size} bytes"


async def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    """As a copy that never began. There is nothing to tell it from a new one."""
    (tmp_path / "j.db").touch()
    store = SqliteStore(tmp_path / "j.db")
    assert await store.heads(Query()) == []
    await store.close()


@pytest.mark.parametrize("filling", [b"\0", b"\xa5"], ids=["zeros", "rubbish"])
async def test_a_torn_page_is_refused_or_sets_aside_what_it_held(house: House, filling: bytes) -> None:
    half = PAGE_BYTES // 2
    for first in range(half, len(house.body), PAGE_BYTES * 3):
        _, wrong = await house.judged(house.body[:first] + filling * half + house.body[first + half :])
        assert wrong == [], f"page {first // PAGE_BYTES + 1}"


# ---- the log -------------------------------------------------------------------------------------------------------


async def logged(folder: Path, numbers: Sequence[int], title: str) -> tuple[Path, list[dict[str, int]]]:
    """Files as a killed process leaves them, with a full log; and the state after each transaction."""
    live, left = folder / "live", folder / "left"
    left.mkdir(parents=True)
    store = SqliteStore(live / "j.db")
    samples = [Sample(number, title=title) for number in numbers]
    states: list[dict[str, int]] = [{}]
    for writes in ([sample.new for sample in samples], *([sample.entry(2)] for sample in samples * 5)):
        await store.commit(writes)
        seqs = states[-1] | {write.execution_id: write.after + 2 for write in writes if hasattr(write, "after")}  # type: ignore[union-attr]
        states.append(seqs if len(states) > 1 else {sample.id: 1 for sample in samples})
    for name in ("j.db", "j.db-wal"):
        shutil.copy(live / name, left / name)
    await store.close()
    return left / "j.db", states


async def contents(path: Path) -> dict[str, int]:
    """How many events each execution has; raises if anything in it is not as it was written."""
    store = SqliteStore(path)
    try:
        found: dict[str, int] = {}
        for head in await store.heads(Query(limit=1000)):
            await read_state(store, head.id)
            found[head.id] = len(await read_events(store, head.id, 0))
        await store.commit([Sample(99).new])
        return found
    finally:
        await store.close()


def damaged_logs(log: bytes) -> list[bytes]:
    rng = random.Random(1)
    cut = [log[:length] for length in (0, 1, 31, 32, *range(56, len(log), 4120), *range(500, len(log), 7001))]
    flipped = [bytearray(log) for _ in range(25)]
    for body in flipped:
        body[rng.randrange(len(body))] ^= rng.randint(1, 255)
    torn = [log[:place] + b"\0" * 512 + log[place + 512 :] for place in range(512, len(log) - 512, 9728)]
    return [*cut, *map(bytes, flipped), *torn]


async def test_a_damaged_log_ends_where_the_damage_begins(tmp_path: Path) -> None:
    """Whole transactions up to there, and none after it: as SQLite does after a power cut. Nobody can tell the two."""
    path, states = await logged(tmp_path, [1, 2, 3], "ours")
    log, database = path.with_name("j.db-wal").read_bytes(), path.read_bytes()
    for number, body in enumerate(damaged_logs(log)):
        again = tmp_path / str(number) / "j.db"
        again.parent.mkdir()
        again.write_bytes(database)
        again.with_name("j.db-wal").write_bytes(body)
        assert await contents(again) in states, f"log {number}"


async def test_a_log_that_was_removed_takes_whole_transactions_with_it(tmp_path: Path) -> None:
    path, states = await logged(tmp_path, [1, 2, 3], "ours")
    path.with_name("j.db-wal").unlink()
    assert await contents(path) == states[0]


async def test_the_index_of_the_log_is_not_needed(tmp_path: Path) -> None:
    for number, body in enumerate([b"", b"\0" * 32768, b"\xa5" * 32768, b"\xa5" * 100]):
        path, states = await logged(tmp_path / str(number), [1, 2], "ours")
        path.with_name("j.db-shm").write_bytes(body)
        assert await contents(path) == states[-1]


async def test_the_log_of_another_store_is_never_mixed_in(tmp_path: Path) -> None:
    """It is refused; or, where it holds the whole of the other store, that store is what is there."""
    ours, _ = await logged(tmp_path / "ours", range(1, 40), "ours")
    theirs, states = await logged(tmp_path / "theirs", [50, 51], "theirs")
    await contents(ours)  # now the database holds everything, and the log is gone
    shutil.copy(theirs.with_name("j.db-wal"), ours.with_name("j.db-wal"))
    try:
        found = await contents(ours)
    except StoreCorrupted:
        return
    assert found == states[-1]


async def test_an_engine_goes_on_when_the_index_of_the_log_is_removed_under_it(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine:
        first = await engine.start(plan("one", step("a", "put", 1)))
        assert await first.result() == 1
        store_of(tmp_path).with_name("journal.db-shm").unlink()
        second = await engine.start(plan("two", step("a", "pay", 2)))
        assert await second.result() == 2
    async with engine_in(tmp_path) as engine:
        assert [await engine.get(run.id).status() for run in (first, second)] == ["completed"] * 2
