"""Reads, writes and syncs that fail with an I/O error: an error with a text, nothing half-written, and on it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from disk.house import engine_in, paid, plan, step, store_of
from disk.recorder import BELOW
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.log import read_events
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.testing.store_contract.samples import Sample

NAME = "holdfast-failing"


class Trouble:
    """Which operations fail, and on which files. `after` lets so many through first."""

    def __init__(self) -> None:
        self.kind = ""
        self.on = ""
        self.after = 0
        self.hits = 0

    def now(self, kind: str, on: str = "", after: int = 0) -> None:
        self.kind, self.on, self.after, self.hits = kind, on, after, 0

    def over(self) -> None:
        self.kind = ""

    def meet(self, kind: str, file: str) -> None:
        if kind != self.kind or not file.endswith(self.on):
            return
        if self.after:
            self.after -= 1
            return
        self.hits += 1
        raise apsw.IOError(f"{kind} of {file.rpartition('/')[2]}: Input/output error")


class _File(apsw.VFSFile):
    def __init__(self, trouble: Trouble, name: Any, flags: list[int]) -> None:
        super().__init__(BELOW, name, flags)
        self._trouble = trouble
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._trouble.meet("read", self._name)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._trouble.meet("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._trouble.meet("sync", self._name)
        super().xSync(flags)


class _Disk(apsw.VFS):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(NAME, BELOW, makedefault=True)
        self._trouble = trouble

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._trouble, name, flags)


@contextmanager
def failing_disk() -> Generator[Trouble]:
    trouble = Trouble()
    disk = _Disk(trouble)
    try:
        yield trouble
    finally:
        disk.unregister()


@pytest.fixture
def trouble() -> Generator[Trouble]:
    with failing_disk() as trouble:
        yield trouble


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("kind", "after"), [("write", 0), ("write", 1), ("write", 3), ("sync", 0)])
async def test_a_commit_that_meets_an_error_writes_nothing_and_the_next_one_goes_through(
    tmp_path: Path, trouble: Trouble, kind: str, after: int
) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    sample = Sample(1)
    await store.commit([sample.new])
    trouble.now(kind, "-wal", after)
    with pytest.raises(StoreUnavailable, match=r"j\.db cannot be read or written \(.*\); check the disk, then resume"):
        await store.commit([sample.entry(3, blobs=(("b", b"x" * 20_000),))])
    assert trouble.hits
    trouble.over()
    assert (await store.head(sample.id)).seq == 1
    again = Sample(1)
    assert (await store.commit([again.entry(2)]))[0].ok
    await store.close()
    store = SqliteStore(path)
    assert (await store.load(sample.id)).rows == again.rows
    assert await store.check() == []
    await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["read", "write", "sync"])
async def test_a_file_that_cannot_be_read_or_written_is_named_when_it_is_opened(
    tmp_path: Path, trouble: Trouble, kind: str
) -> None:
    path = tmp_path / "j.db"
    if kind == "read":
        await SqliteStore(path).close()
    trouble.now(kind)
    with pytest.raises(StoreUnavailable, match=r"j\.db .*; check the disk, then resume"):
        SqliteStore(path)
    trouble.over()
    store = SqliteStore(path)
    assert (await store.commit([Sample(1).new]))[0].ok
    await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_a_checkpoint_that_fails_costs_nothing(tmp_path: Path, trouble: Trouble, kind: str) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    sample = Sample(1)
    await store.commit([sample.new, sample.entry(5)])
    trouble.now(kind, "j.db")
    await store.close()  # the last one to close moves the log into the file
    assert trouble.hits
    trouble.over()
    store = SqliteStore(path)
    assert (await store.load(sample.id)).rows == sample.rows
    await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("after", range(0, 12, 2))
async def test_an_engine_goes_on_by_itself_when_the_disk_works_again(
    tmp_path: Path, trouble: Trouble, kind: str, after: int
) -> None:
    paid.clear()
    async with engine_in(tmp_path) as engine:
        run = await engine.start(
            plan("spend", step("a", "put", 1), step("b", "pay", 2), step("c", "pay", 3)), hold=True
        )
        trouble.now(kind, "journal.db-wal", after)
        resuming = asyncio.ensure_future(_resume(engine, run))
        async with asyncio.timeout(60):
            while not trouble.hits and not resuming.done():  # noqa: ASYNC110 -- the disk tells nobody
                await asyncio.sleep(0.002)
        trouble.over()
        await resuming
        output, doubts = await _finish(engine, run.id)
        assert output == 3
        assert set(paid.values()) == {1}
        assert doubts <= 1
        numbers = [seq for seq, _ in await read_events(engine.services.store, run.id, 0)]
        assert numbers == list(range(1, len(numbers) + 1))
    assert store_of(tmp_path).exists()


async def _resume(engine: holdfast.Engine, run: holdfast.Run) -> None:
    try:
        await run.resume()
    except StoreUnavailable as error:
        assert "check the disk" in str(error)  # noqa: PT017 -- it may fail or not, but never without a text


async def _finish(engine: holdfast.Engine, execution_id: str) -> tuple[Any, int]:
    """To the end, as a person would who sees that what is in doubt has happened."""
    run, doubts = engine.get(execution_id), 0
    async with asyncio.timeout(60):
        while (state := await run.state()).status != "completed":
            if state.status == "queued":
                await _resume(engine, run)
            for asked in state.open_requests():
                doubts += 1
                await run.resolve(asked.request.path, "done", output=3)
            await asyncio.sleep(0.01)
    return await run.result(), doubts
