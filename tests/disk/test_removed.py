"""The file or its log is taken away under an engine: nothing is reported as done that nobody would find again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from disk.house import HURRY, Gate, engine_in, look, plan, step, store_of
from holdfast.core.errors import StoreUnavailable


def log_of(folder: Path) -> Path:
    return store_of(folder).with_name("journal.db-wal")


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """As an editor or a sync program does it: the same bytes in another file."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("harm", [remove, replace])
@pytest.mark.parametrize("victim", [store_of, log_of])
async def test_nothing_is_done_or_reported_on_the_strength_of_a_file_that_is_gone(
    tmp_path: Path, victim: Callable[[Path], Path], harm: Callable[[Path], None]
) -> None:
    gate = Gate()
    async with holdfast.Engine(folder=tmp_path, tools=[gate.tool, look], limits=HURRY) as engine:
        before = await engine.start(plan("before", step("a", "look", 1)))
        assert await before.result() == 1
        paying = await engine.start(plan("paying", {"id": "a", "tool": "gate"}))
        await gate.entered.wait()
        path = victim(tmp_path)
        harm(path)
        gate.open.set()
        with pytest.raises(StoreUnavailable, match=f"{path.name} was removed or replaced while it was in use"):
            await paying.result()
        gate.entered.clear()
        with pytest.raises(StoreUnavailable, match="nothing more is recorded"):
            await engine.start(plan("after", {"id": "a", "tool": "gate"}))
        assert not gate.entered.is_set()


async def test_a_log_that_was_removed_is_saved_by_an_engine_that_closes(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine:
        before = await engine.start(plan("before", step("a", "look", 1)), key="before")
        await before.result()
        log_of(tmp_path).unlink()
        with pytest.raises(StoreUnavailable, match="do not kill it"):
            await engine.start(plan("after", step("a", "look", 2)))
    async with engine_in(tmp_path) as engine:
        again = await engine.start(plan("before", step("a", "look", 1)), key="before")
        assert again.id == before.id
        assert await again.result() == 1


async def test_a_file_that_was_only_moved_away_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    async with engine_in(tmp_path) as engine:
        await (await engine.start(plan("one", step("a", "look", 1)))).result()
        os.rename(store_of(tmp_path), elsewhere)
        with pytest.raises(StoreUnavailable, match="put the file back"):
            await engine.start(plan("two", step("a", "look", 2)))
        os.rename(elsewhere, store_of(tmp_path))
        async with asyncio.timeout(60):
            assert await (await engine.start(plan("three", step("a", "look", 3)))).result() == 3


async def test_a_store_behind_a_link_is_found_where_it_lies(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "linked.db"
    real.mkdir()
    (real / "journal.db").touch()
    link.symlink_to(real / "journal.db")
    async with holdfast.Engine(store=str(link), tools=[look]) as engine:
        assert await (await engine.start(plan("one", step("a", "look", 1)))).result() == 1
        (real / "journal.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match=r"real/journal\.db-wal was removed"):
            await engine.start(plan("two", step("a", "look", 2)))
