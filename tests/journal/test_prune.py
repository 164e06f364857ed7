"""Pruning: who goes, that nothing of them is left in the file or beside it, and that the file gets smaller."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from holdfast.core.events import ForkedFrom, Parent
from holdfast.journal.deletion import PAGE_HEADS, prune, remove_files
from holdfast.journal.memory import MemoryStore
from holdfast.journal.sqlite import delete as sqlite_delete
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import CacheItem, DeletableStore, Hold, Query, Write
from holdfast.testing.store_contract.samples import Sample, sample_answer, sample_id
from journal.older import as_older
from journal.support import sql

FOR_EVER = Query(ended_before=10**18)
TABLES = ("executions", "events", "snapshots", "blobs", "blob_uses", "inbox")


async def pruned(
    store: DeletableStore, query: Query = FOR_EVER, data_folder: Path | None = None, **options: bool
) -> list[str]:
    return [gone async for some in prune(store, query, data_folder, **options) for gone in some.gone]


def writes_of(sample: Sample, events: int = 40, blob: bytes = b"") -> list[Write]:
    """An ended execution with one of each thing that hangs on one."""
    command = sample.command(f"c{sample.id}")
    blobs = ((f"digest-{sample.id}", blob or sample.id.encode() * 2_000),)
    entry = sample.entry(events, blobs=blobs, answers=(sample_answer(command),))
    return [sample.new, command, entry, sample.end()]


def rows_of(path: Path) -> dict[str, int]:
    return {table: sql(path, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


async def test_nothing_of_the_pruned_is_left_and_the_file_is_small_again(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    kept = Sample(0)
    await store.commit(writes_of(kept))
    await store.close()
    small, rows = path.stat().st_size, rows_of(path)

    store = SqliteStore(path)
    for number in range(1, 101):
        await store.commit(writes_of(Sample(number, name="other")))
    await store.close()
    large = path.stat().st_size
    assert large > 40 * small

    store = SqliteStore(path)
    gone = await pruned(store, Query(name="other"))
    assert len(gone) == 100
    await store.close()
    assert rows_of(path) == rows
    assert path.stat().st_size < small + 0.02 * large
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    store = SqliteStore(path)
    assert (await store.load(kept.id)).rows == kept.rows
    await store.close()


async def test_the_file_shrinks_as_well_while_another_process_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store, other = SqliteStore(path), SqliteStore(path)
    for number in range(50):
        await store.commit(writes_of(Sample(number)))
    before = await other.room()
    await pruned(store)
    after = await other.room()
    assert after.total < before.total / 10
    assert after.free == 0
    await other.close()
    await store.close()


async def test_deletions_are_made_in_bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "j.db")
    bites: list[int] = []
    delete = sqlite_delete.Deleter.delete

    def counted(self: sqlite_delete.Deleter, wanted: list[str]) -> object:
        some, left = delete(self, wanted)
        bites.append(len(some))
        return some, left

    monkeypatch.setattr(sqlite_delete.Deleter, "delete", counted)
    monkeypatch.setattr(sqlite_delete, "EVENTS_AT_ONCE", 120)
    monkeypatch.setattr(sqlite_delete, "PAGES_AT_ONCE", 1)
    for number in range(10):
        await store.commit(writes_of(Sample(number)))
    assert len(await pruned(store)) == 10
    assert bites == [3, 3, 3, 1]  # of 42 events each, and a head that counts for ten
    assert (await store.room()).free == 0
    await store.close()


# ---- who goes ----------------------------------------------------------------------------------------------------


async def test_children_go_with_their_parents_and_never_alone() -> None:
    store = MemoryStore()
    parent = Sample(1)
    child = Sample(2, name="page", parent=Parent(id=parent.id, path="pages"))
    stray = Sample(3, name="page", parent=Parent(id="gone-long-ago", path="pages"))
    for sample in (parent, child, stray):
        await store.commit([sample.new, sample.end()])
    assert await pruned(store, Query(name="page", ended_before=10**18)) == [stray.id]
    assert await pruned(store) == [child.id, parent.id]


async def test_more_than_a_page_is_pruned_though_many_must_stay() -> None:
    store = MemoryStore()
    samples = [Sample(number) for number in range(3 * PAGE_HEADS)]
    for sample in samples:
        await store.commit([sample.new, sample.end()])
    for number in range(100, 220):  # each is still needed by a child
        child = Sample(1000 + number, parent=Parent(id=sample_id(number), path="c"))
        await store.commit([child.new])
    expected = {sample.id for number, sample in enumerate(samples) if not 100 <= number < 220}
    assert set(await pruned(store, rehearse=True)) == expected
    assert await store.count(Query()) == 420
    assert set(await pruned(store)) == expected
    assert await store.count(Query()) == 240


async def test_what_has_not_ended_is_never_asked_for() -> None:
    store = MemoryStore()
    alive, over = Sample(1), Sample(2)
    await store.commit([alive.new, over.new, over.end("failed")])
    assert await pruned(store, Query()) == [over.id]
    assert await pruned(store, Query(status=("queued",))) == []


# ---- files beside the store -----------------------------------------------------------------------------------------


async def test_files_of_the_pruned_go_too_and_no_others(tmp_path: Path) -> None:
    store = MemoryStore()
    over, alive = Sample(1), Sample(2)
    await store.commit([over.new, alive.new, over.end()])
    names = (f"{over.id}.12.json", f"{over.id}.20.json", f"{alive.id}.3.json", f"{sample_id(9)}.1.json", "notes.txt")
    files = tmp_path / "executions"
    files.mkdir()
    for name in names:
        (files / name).write_text("{}")
    await pruned(store, data_folder=tmp_path)
    assert set(os.listdir(files)) == set(names[2:])
    assert await store.deleted() == []


async def test_files_that_a_killed_process_left_go_with_the_next_prune(tmp_path: Path) -> None:
    """It had deleted the execution, and was killed before it came to the files."""
    files = tmp_path / "executions"
    files.mkdir()
    (files / f"{sample_id(1)}.7.json").write_text("{}")
    (tmp_path / "before" / sample_id(1) / "images").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"{sample_id(1)}.log.1").write_text("what a detached process said")
    store = SqliteStore(tmp_path / "j.db")
    sample = Sample(1)
    await store.commit([sample.new, sample.end()])
    await store.delete([sample.id])
    await store.close()
    assert list(files.iterdir())

    store = SqliteStore(tmp_path / "j.db")
    assert await pruned(store, data_folder=tmp_path) == []
    assert list(files.iterdir()) == []
    assert not (tmp_path / "before" / sample_id(1)).exists()
    assert not (tmp_path / "logs" / f"{sample_id(1)}.log.1").exists()
    assert await store.deleted() == []
    await store.close()


async def test_a_folder_that_is_not_there_holds_no_files(tmp_path: Path) -> None:
    store = MemoryStore()
    sample = Sample(1)
    await store.commit([sample.new, sample.end()])
    await store.delete([sample.id])
    await remove_files(store, tmp_path / "nothing")
    assert await store.deleted() == []


# ---- stores of earlier releases -------------------------------------------------------------------------------------

MARK = '{"holdfast":"blob","digest":"%s","bytes":9000}'


@pytest.mark.parametrize("version", [1, 2])
async def test_a_store_of_an_earlier_release_is_upgraded_whole(tmp_path: Path, version: int) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    sample = Sample(1, labels={"env": "prod"})
    await store.commit([sample.new, sample.entry(3, cached=(CacheItem("k", b"1", 10**15),)), sample.command("c1")])
    await store.close()
    as_older(path, version)

    store = SqliteStore(path)
    [head] = await store.heads(Query(labels={"env": "prod"}))
    assert (head.id, head.held, head.forked_from, head.seq) == (sample.id, "", "", 4)
    assert (await store.load(sample.id)).rows == sample.rows
    assert await store.pending() == [sample.command("c1")]
    assert await store.cached("k", 0) == b"1"
    await store.commit([Hold(execution_ids=(sample.id,), why="imported")])
    assert (await store.head(sample.id)).held == "imported"
    await store.close()


async def test_an_upgrade_counts_references_that_nobody_counted(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    child, parent = Sample(1), Sample(2)
    digests = [f"{number:032x}" for number in range(3)]
    blobs = tuple((digest, b"large") for digest in digests)
    await store.commit([child.new, parent.new, child.end(blobs=blobs), parent.end()])
    await store.close()
    connection = apsw.Connection(str(path))
    body = f"{{{MARK % digests[0]}, {MARK % digests[1]}, {MARK % ('f' * 32)}}}".encode()
    connection.execute("UPDATE events SET body = ? WHERE execution = 2 AND seq = 2", (body,))
    connection.close()
    as_older(path, 2)

    store = SqliteStore(path)
    uses = sql(path, "SELECT digest FROM blob_uses WHERE execution = 2 ORDER BY digest")
    assert uses == [(digests[0],), (digests[1],)]
    await store.delete([child.id])
    assert sql(path, "SELECT digest FROM blobs ORDER BY digest") == [(digests[0],), (digests[1],)]
    await store.close()


async def test_an_upgrade_knows_what_was_forked_from_what(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    origin, fork = Sample(1), Sample(2, forked_from=ForkedFrom(id=sample_id(1)))
    await store.commit([origin.new, origin.end(), fork.new])
    await store.close()
    as_older(path, 2)
    store = SqliteStore(path)
    assert (await store.head(fork.id)).forked_from == origin.id
    assert await store.delete([origin.id]) == []
    await store.close()


async def test_a_file_of_an_earlier_release_shrinks_when_it_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    for number in range(50):
        await store.commit(writes_of(Sample(number)))
    await store.close()
    as_older(path, 2)
    large = path.stat().st_size

    store = SqliteStore(path)
    await pruned(store)
    room = await store.room()
    assert (room.can_shrink, room.free > large / 2) == (False, True)
    await store.rebuild()
    room = await store.room()
    assert (room.can_shrink, room.free) == (True, 0)
    await store.close()
    assert path.stat().st_size < large / 10
    await SqliteStore(path).close()  # which finds nothing wrong with it
