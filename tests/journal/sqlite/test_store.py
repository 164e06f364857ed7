"""What only a file can meet: other processes, full disks, forks. Damage is in test_damage.py."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.journal.codec import Row
from holdfast.journal.frame_ring import LiveRing
from holdfast.journal.sql import migrations, queries
from holdfast.journal.sqlite import connection as sqlite_connection
from holdfast.journal.sqlite.backup import back_up
from holdfast.journal.sqlite.commit import NUMS_KEPT, Committer
from holdfast.journal.sqlite.integrity import check_header
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Quarantine, Query
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.support import run_python, sql

# ---- several processes -------------------------------------------------------------------------

WRITE = """
import asyncio, sys
from pathlib import Path
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.testing.store_contract.samples import Sample

async def main(path, first, count):
    store = SqliteStore(Path(path))
    for number in range(first, first + count):
        sample = Sample(number)
        assert [w.ok for w in await store.commit([sample.new, sample.entry(2)])] == [True, True]
        assert [w.ok for w in await store.commit([sample.entry()])] == [True]
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    count = 40
    processes = [run_python(WRITE, path, first, count) for first in (0, 1000)]  # both find no file and make it
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    store = SqliteStore(path)
    heads = await store.heads(Query(limit=1000))
    assert {head.id for head in heads} == {sample_id(first + n) for first in (0, 1000) for n in range(count)}
    assert {head.seq for head in heads} == {4}
    assert await store.check() == []
    for head in heads[:5]:
        assert (await store.load(head.id)).head == head
    await store.close()


async def test_a_write_waits_while_another_process_holds_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "j.db")
    holder = apsw.Connection(str(tmp_path / "j.db"))
    holder.execute("BEGIN IMMEDIATE")
    refused = threading.Semaphore(0)
    monkeypatch.setattr(random, "uniform", lambda *_: refused.release() or 0.0005)  # asked for after each refusal
    writing = asyncio.create_task(store.commit([Sample(1).new]))
    for _ in range(5):
        await asyncio.to_thread(refused.acquire)
    assert not writing.done()
    assert await store.heads(Query()) == []  # readers are never held up
    holder.execute("COMMIT")
    assert (await writing)[0].ok
    holder.close()
    await store.close()


async def test_a_file_that_stays_locked_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_LIMIT_S", 0.02)
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"j\.db is locked by another process .*; find and end that process"):
        await store.commit([Sample(1).new])
    holder.execute("ROLLBACK")
    holder.close()
    assert (await store.commit([Sample(1).new]))[0].ok
    await store.close()


def test_a_look_at_a_new_file_waits_for_whoever_is_making_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    maker, other = apsw.Connection(str(path)), apsw.Connection(str(path))
    maker.execute("BEGIN EXCLUSIVE")  # as SQLite does while it turns a file into one with a log
    refusals: list[None] = []

    def refused(*_: float) -> float:
        refusals.append(maker.execute("COMMIT") and None)
        return 0.0

    monkeypatch.setattr(random, "uniform", refused)
    sqlite_connection.migrate(other, path, lambda: True)
    assert len(refusals) == 1
    assert other.pragma("user_version") == len(migrations("sqlite"))
    maker.close()
    other.close()


IS_LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # SQLite's, as long as the file is in use
        print("free")
    except OSError:
        print("locked")
"""


async def test_opening_a_file_twice_in_one_process_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    first = SqliteStore(path)
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")  # an empty log: the header is looked at when the file is opened
    assert run_python(IS_LOCKED, path).communicate()[0] == "locked\n"
    # Only the look: a second store has locks of its own.
    check_header(path)
    assert run_python(IS_LOCKED, path).communicate()[0] == "locked\n"
    await first.close()


# ---- all or nothing ----------------------------------------------------------------------------


async def test_a_commit_that_fails_in_the_middle_writes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    known, new = Sample(1), Sample(2)
    await store.commit([known.new])
    broken: Any = known.entry()
    broken.rows = [Row(2, 1, object(), b"d" * 16)]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        await store.commit([new.new, known.command("c1"), broken])
    assert [head.id for head in await store.heads(Query())] == [known.id]
    assert (await store.head(known.id)).seq == 1
    assert await store.pending() == []
    results = await store.commit([new.new, Sample(1).entry(), new.entry()])
    assert [written.ok for written in results] == [True, True, True]
    assert (await store.load(new.id)).rows == new.rows
    await store.close()


async def test_numbers_of_executions_are_remembered_within_bounds(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    sample = Sample(1)
    await store.commit([sample.new])
    committer = Committer(apsw.Connection(str(tmp_path / "j.db")))
    nums: dict[str, int] = committer._nums  # pyright: ignore[reportPrivateUsage]
    nums.update((str(number), number) for number in range(NUMS_KEPT))
    assert committer.write([sample.entry()])[0].ok
    assert len(nums) == 1
    await store.close()


FILL = """
import asyncio, resource, signal, sys
from pathlib import Path
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Quarantine
from holdfast.testing.store_contract.samples import Sample

async def main(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    sample = Sample(1)
    await store.commit([sample.new])
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    durable = 1
    try:
        while True:
            await store.commit([sample.entry(blobs=((f"b{sample.seq}", b"x" * 20_000),))])
            durable = sample.seq
    except StoreUnavailable as error:
        print(durable, (await store.head(sample.id)).seq)
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    again = Sample(2)
    assert (await store.commit([again.new]))[0].ok
    await store.commit([Quarantine(execution_id=again.id, why="")])
    await store.close()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_on_a_full_disk_what_was_durable_stays_and_writing_goes_on_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    process = run_python(FILL, path)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    numbers, text = output.splitlines()
    durable, seen = map(int, numbers.split())
    assert durable == seen > 1
    assert str(path) in text
    assert text.endswith(("what was recorded is safe", "check the disk, then resume"))
    store = SqliteStore(path)
    assert (await store.head(sample_id(1))).seq == durable
    assert (await store.head(sample_id(2))).seq == 1
    assert await store.check() == []
    await store.close()


# ---- threads and forks ---------------------------------------------------------------------------


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    await store.close()
    with pytest.raises(StoreUnavailable, match=r"j\.db was closed"):
        await store.heads(Query())
    with pytest.raises(StoreUnavailable, match=r"j\.db was closed"):
        await store.commit([])
    with pytest.raises(StoreUnavailable, match=r"j\.db cannot be read or written"):
        store.changes()


async def test_closing_leaves_no_thread_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    await store.commit([Sample(1).new])
    await store.heads(Query())
    await store.close()
    assert not [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("holdfast-writer", "holdfast-reader"))
    ]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_store_does_not_work_in_a_forked_child(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    await store.commit([Sample(1).new])
    await store.heads(Query())
    uses: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.commit([Sample(2).new]),
        lambda: store.heads(Query()),
        lambda: store.commit([Quarantine(execution_id="x", why="y")]),
    ]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, "\n".join(_refusal(use()) for use in uses).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        texts = pipe.read().splitlines()
    os.waitpid(child, 0)  # noqa: ASYNC222 -- it has closed its end: it is gone
    assert texts == ["this store was opened before a fork; open a new one in the child process"] * 3
    assert (await store.commit([Sample(2).new]))[0].ok
    await store.close()


def _refusal(work: Coroutine[Any, Any, object]) -> str:
    """Run a coroutine that must be refused before it first waits; no loop is needed for that, nor may one be used."""
    try:
        work.send(None)
    except StoreUnavailable as error:
        return str(error)
    return "it was not refused"


# ---- how it is written -----------------------------------------------------------------------------


async def test_every_commit_is_synced_in_full(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    for connection in (store._writer, store._reader):  # pyright: ignore[reportPrivateUsage]
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
    await store.close()


def test_queries_have_no_comments_left_and_migrations_are_in_order() -> None:
    assert all("--" not in query for query in queries("sqlite").values())
    assert "CREATE TABLE events" in migrations("sqlite")[0]


async def test_the_inbox_is_read_through_its_index(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await SqliteStore(path).close()
    plan = sql(path, "EXPLAIN QUERY PLAN " + queries("sqlite")["pending_some"].replace("?", "'[\"a\"]'"))
    assert any("inbox_pending" in row[3] for row in plan)


async def test_a_fork_waits_until_no_thread_is_inside_sqlite(tmp_path: Path) -> None:
    """Otherwise the child inherits a lock of SQLite's that nobody will ever let go of."""
    order: list[str] = []
    about_to, let_go = threading.Event(), threading.Event()

    def fork() -> None:
        about_to.set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
            child = os.fork()
        if child == 0:
            os._exit(0)
        order.append("forked")
        os.waitpid(child, 0)

    store = SqliteStore(tmp_path / "j.db")
    reading = asyncio.ensure_future(store._read(let_go.wait))
    forking = asyncio.ensure_future(asyncio.to_thread(fork))
    await asyncio.to_thread(about_to.wait)
    await asyncio.sleep(0.05)  # time enough to fork, if nothing holds it up
    order.append("let go")
    let_go.set()
    await asyncio.gather(reading, forking)
    assert order == ["let go", "forked"]
    assert await store.find("x") == []  # and the parent works on
    await store.close()


# ---- rights ------------------------------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_a_new_journal_may_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("j.db")
    store = SqliteStore(tmp_path / "link.db")
    await store.commit([Sample(1).new])
    ring = LiveRing(tmp_path / "live.db")
    ring.announce("e1")
    found = modes(tmp_path)
    assert {"j.db", "j.db-wal", "j.db-shm", "live.db", "live.db-wal"} <= set(found)
    assert set(found.values()) == {0o600}
    ring.close()
    await store.close()


async def test_files_that_are_there_keep_the_rights_that_their_owner_set(tmp_path: Path) -> None:
    path, copy = tmp_path / "j.db", tmp_path / "copy.db"
    for file in (path, copy):
        file.touch()
        file.chmod(0o640)
    store = SqliteStore(path)
    await store.commit([Sample(1).new])
    assert set(modes(tmp_path).values()) == {0o640}
    await store.close()
    back_up(path, copy, "copied")
    back_up(path, tmp_path / "new.db", "copied")
    assert modes(tmp_path) == {"j.db": 0o640, "copy.db": 0o640, "new.db": 0o600}
