"""Retention: an engine that recovers deletes by itself what ended long ago, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from engine.kit import HURRY, broken, echo, engine_at, plan, result, seen, settled, step, until
from holdfast.core import events as ev
from holdfast.core.errors import StoreUnavailable
from holdfast.engine import retention
from holdfast.journal import deletion as journal_tidying
from holdfast.journal.deletion import DeletedPage, prune
from holdfast.journal.log import new_execution
from holdfast.journal.store import NewExecution, Query
from holdfast.testing.store_contract.samples import sample_id

AT_ONCE = '[retention]\nolder_than = "0s"\n'


@pytest.fixture
def looked_through(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the engine has once looked at everything that may go."""
    done = asyncio.Event()

    async def watched(*arguments: Any) -> AsyncGenerator[DeletedPage]:
        async for bite in prune(*arguments):
            yield bite
        done.set()

    monkeypatch.setattr(retention, "prune", watched)
    monkeypatch.setattr(retention, "BITE_S", 0.0)
    return done


async def filled(folder: Path) -> tuple[str, str, str]:
    """One execution that completed, one that failed, one that waits: made by an engine that deletes nothing."""
    async with engine_at(folder, echo, broken, limits=HURRY, recover="family") as engine:
        completed, failed = [await engine.start(plan(step("a", tool))) for tool in ("echo", "broken")]
        waiting = await engine.start(plan({"id": "w", "wait": {"event": "go"}}))
        await result(completed)
        assert await settled(failed) == "failed"
        await seen(waiting, "task:waiting")
        return completed.id, failed.id, waiting.id


async def left(folder: Path, looked_through: asyncio.Event) -> set[str]:
    """Who is there after an engine has tidied up."""
    looked_through.clear()  # whoever filled it has looked, too
    async with engine_at(folder, echo, broken, limits=HURRY) as engine, asyncio.timeout(60):
        await looked_through.wait()
        return {head.id for head in await engine.services.store.heads(Query())}


async def test_what_has_ended_goes_and_what_has_not_stays(tmp_path: Path, looked_through: asyncio.Event) -> None:
    (tmp_path / "holdfast.toml").write_text(AT_ONCE)
    completed, failed, waiting = await filled(tmp_path)
    files = tmp_path / ".holdfast" / "executions"
    files.mkdir()
    for execution_id in (completed, failed, waiting):
        (files / f"{execution_id}.3.json").write_text("{}")
    assert await left(tmp_path, looked_through) == {waiting}
    assert [path.name for path in files.iterdir()] == [f"{waiting}.3.json"]


async def test_only_the_named_ends_go(tmp_path: Path, looked_through: asyncio.Event) -> None:
    (tmp_path / "holdfast.toml").write_text(f'{AT_ONCE}status = ["completed"]\n')
    _, failed, waiting = await filled(tmp_path)
    assert await left(tmp_path, looked_through) == {failed, waiting}


async def test_what_ended_lately_stays(tmp_path: Path, looked_through: asyncio.Event) -> None:
    (tmp_path / "holdfast.toml").write_text('[retention]\nolder_than = "1h"\n')
    everybody = await filled(tmp_path)
    assert await left(tmp_path, looked_through) == set(everybody)


@pytest.mark.parametrize(("toml", "recover"), [("", "all"), (AT_ONCE, "family"), (AT_ONCE, "none")])
async def test_nothing_goes_unless_the_settings_say_so_and_the_engine_recovers(
    tmp_path: Path, toml: str, recover: Any
) -> None:
    (tmp_path / "holdfast.toml").write_text(toml)
    async with engine_at(tmp_path, recover=recover):
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-tidier"]


async def test_who_drives_one_and_ends_tidies_up_a_little_and_spares_what_has_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text(AT_ONCE)
    monkeypatch.setattr(journal_tidying, "PAGE_HEADS", 2)
    async with engine_at(tmp_path, echo, recover="none") as engine:
        await engine.services.store.commit([_ended_long_ago(number) for number in range(3)])

    async def count() -> int:
        async with engine_at(tmp_path, echo, recover="none") as engine:
            return await engine.services.store.count(Query())

    assert await count() == 3
    async with engine_at(tmp_path, echo, recover="family") as engine:
        await result(await engine.start(plan(step("a", "echo"))))
    assert await count() == 2  # one bite of two; and what it has driven itself stays


def _ended_long_ago(number: int) -> NewExecution:
    program = ev.Program(kind="plan", name="old")
    events = [ev.TaskCreated(at=number + 1, program=program), ev.TaskStopped(at=number + 2)]
    return new_execution(sample_id(number), events)[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StoreUnavailable("the disk is full"), "what ended long ago cannot be deleted: the disk is full"),
        (RuntimeError("odd"), "the tidier stumbled"),
    ],
)
async def test_trouble_with_tidying_is_logged_and_stops_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, text: str
) -> None:
    (tmp_path / "holdfast.toml").write_text(AT_ONCE)

    async def fails(*_: object) -> AsyncGenerator[list[str]]:
        raise error
        yield []

    monkeypatch.setattr(retention, "prune", fails)
    async with engine_at(tmp_path, echo) as engine:
        await until(lambda: text in caplog.text)
        assert await result(await engine.start(plan(step("a", "echo", **{"with": {"value": 1}})))) == 1
