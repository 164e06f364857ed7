"""A file that others lock: a writer that holds it for a while or for ever, a reader that never ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import holdfast
from disk.house import HURRY, TOOLS, Gate, plan, step, store_of
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.sqlite import connection as sqlite_connection
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Query
from holdfast.testing.store_contract.samples import Sample

HOLD = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


async def holder_of(path: Path) -> subprocess.Popen[str]:
    """Another process that has locked the file, and lets go when it is spoken to."""
    process = subprocess.Popen(  # noqa: ASYNC220 -- it is waited for below
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "held\n"
    return process


def engine_with(folder: Path, gate: Gate) -> holdfast.Engine:
    return holdfast.Engine(folder=folder, tools=[*TOOLS, gate.tool], limits=HURRY)


async def test_an_engine_waits_for_a_writer_that_lets_go(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_with(tmp_path, gate) as engine:
        run = await engine.start(plan("waits", {"id": "g", "tool": "gate"}, step("a", "pay", 1)))
        await gate.entered.wait()
        process = await holder_of(store_of(tmp_path))
        gate.open.set()
        assert (await engine.list())[0].status == "running"  # readers are never held up
        await asyncio.to_thread(process.communicate, "go\n", 20)
        assert await run.result() == 1


async def test_an_engine_says_who_is_to_blame_and_goes_on_when_the_writer_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_LIMIT_S", 0.05)
    gate = Gate()
    async with engine_with(tmp_path, gate) as engine:
        run = await engine.start(plan("waits", step("a", "look", 1), {"id": "g", "tool": "gate"}, step("b", "look", 2)))
        await gate.entered.wait()
        process = await holder_of(store_of(tmp_path))
        gate.open.set()
        with pytest.raises(StoreUnavailable, match=r"is locked by another process .*; find and end that process"):
            await run.result()
        process.kill()
        await asyncio.to_thread(process.communicate, None, 20)
        async with asyncio.timeout(60):
            while (await run.state()).status == "running":  # noqa: ASYNC110 -- it is taken up by itself
                await asyncio.sleep(0.01)
        # The gate is a `once` step whose outcome could not be written: whether it happened is for a person to say.
        assert (await run.state()).steps["g"].status == "in_doubt"
        await run.resolve("g", "done")
        assert await run.result() == 2


async def test_a_reader_that_never_ends_lets_the_log_grow_and_stops_nobody(tmp_path: Path) -> None:
    """Nothing can be moved into the file past what a reader still sees. When it is gone, the log is used again."""
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    store._writer.execute("PRAGMA wal_autocheckpoint=20").fetchall()  # pyright: ignore[reportPrivateUsage]
    sample = Sample(1)
    await store.commit([sample.new])
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT count(*) FROM events").fetchall()
    log = path.with_name("j.db-wal")

    async def write(times: int) -> int:
        for _ in range(times):
            await store.commit([sample.entry(blobs=((f"b{sample.seq}", bytes([sample.seq % 256]) * 9000),))])
        return log.stat().st_size

    grown = await write(60)
    assert grown > 60 * 9000
    assert reader.execute("SELECT count(*) FROM events").fetchall() == [(1,)]
    reader.execute("COMMIT")
    reader.close()
    await write(20)
    assert await write(60) < grown * 1.5  # used again from its beginning, not prolonged
    assert (await store.heads(Query()))[0].seq == sample.seq
    await store.close()
    assert not log.exists()
