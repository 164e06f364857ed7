"""Executions that save themselves: how many files and events each policy makes, and what a full disk does to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, events, names, plan, quiet, result, seen, settled, step, until
from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid
from holdfast.core.policy import Checkpoints
from holdfast.engine.transfer import auto_checkpoint
from holdfast.engine.transfer import export as transfer_export
from holdfast.journal.bundle.read import read
from holdfast.journal.liveness import InProcess
from holdfast.journal.memory import MemoryStore
from holdfast.testing.engine_from_parts import AssembledEngine
from holdfast.testing.lab.loop import ExactDeadlines
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop, run_virtually
from holdfast.tools.registry import Registry

STEPS = [step(f"s{number}", "echo") for number in range(7)]


def files(folder: Path) -> list[Path]:
    """Newest first."""
    found = (folder / ".holdfast" / "executions").glob("*.json")
    return sorted(found, key=lambda path: int(path.name.split(".")[1]), reverse=True)


def saved_state(file: Path) -> Any:
    return read(file.read_bytes()).root.state


async def saved(run: holdfast.Run) -> list[ev.CheckpointSaved]:
    return [event for event in await events(run) if isinstance(event, ev.CheckpointSaved)]


def ended_steps(state: Any) -> int:
    return sum(one.status == "completed" for one in state.steps.values())


async def test_every_so_many_steps_there_is_one_and_three_are_kept(tmp_path: Path) -> None:
    for every, steps, expected in ((1, 3, 3), (2, 7, 3), (3, 7, 2), (7, 7, 1), (8, 7, 0)):
        folder = tmp_path / str(every)
        folder.mkdir()
        async with engine_at(folder, echo) as engine:
            run = await engine.start(plan(*STEPS[:steps], checkpoint={"every_steps": every}))
            await result(run)
            found = await saved(run)
        assert [event.ended for event in found] == [every * n for n in range(1, expected + 1)]
        assert len(files(folder)) == min(3, expected)
        for event, file in zip(reversed(found), files(folder), strict=False):
            assert (str(file), file.stat().st_size) == (event.file, event.bytes)
            assert (saved_state(file).seq, ended_steps(saved_state(file))) == (event.through, event.ended)


async def test_steps_inside_steps_count(tmp_path: Path) -> None:
    each = step("each", "echo", for_each=[1, 2, 3])
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(each, checkpoint={"every_steps": 2}))
        await result(run)
        assert len(await saved(run)) == 2  # three items and the list


async def test_nothing_is_saved_without_a_policy(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        for policy in ({}, {"checkpoint": {}}):
            run = await engine.start(plan(*STEPS, **policy))
            await result(run)
            assert await saved(run) == []
    assert not (tmp_path / ".holdfast" / "executions").exists()


async def test_a_pause_saves_the_execution_as_it_rests(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, echo) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "echo"), checkpoint={"on": ["pause"]}))
        await gate.wait_entered()
        await run.pause()
        assert files(tmp_path) == []  # running steps finish first
        gate.open.set()
        assert await settled(run) == "paused"
        await quiet(engine)
        [file] = files(tmp_path)
        assert (saved_state(file).status, ended_steps(saved_state(file))) == ("paused", 1)
        assert [event.through for event in await saved(run)] == [saved_state(file).seq]
        await run.resume()
        await result(run)
        assert len(files(tmp_path)) == 1


async def test_a_pause_of_what_nobody_drives_is_saved_by_whoever_pauses(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as engine:
        run = await engine.start(
            plan(step("a", "echo"))
            | {"steps": [{"id": "w", "wait": {"event": "go"}}], "checkpoint": {"on": ["pause", "end"]}}
        )
        assert await seen(run, "task:waiting")
    async with engine_at(tmp_path, recover="none") as engine:
        run = engine.get(run.id)
        await run.pause()
        await run.pause()
        assert [saved_state(file).status for file in files(tmp_path)] == ["paused"]
        assert (await names(run))[-2:] == ["task:paused", "checkpoint:saved"]
        await run.stop()
        assert [saved_state(file).status for file in files(tmp_path)] == ["stopped", "paused"]
        assert (await names(run))[-1] == "task:stopped"


async def test_an_interrupt_saves_what_it_cut_off(tmp_path: Path) -> None:
    gate = Gate(effect="once")
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(plan(step("pay", "gate"), checkpoint={"on": ["interrupt"]}))
        await gate.wait_entered()
        await run.interrupt()
        await quiet(engine)
        [file] = files(tmp_path)
        assert (saved_state(file).status, saved_state(file).steps["pay"].status) == ("interrupted", "in_doubt")
        assert (await names(run))[-2:] == ["task:interrupted", "checkpoint:saved"]
        assert (await run.head()).driver == ""


@pytest.mark.parametrize("end", ["completed", "failed", "stopped"])
async def test_an_end_is_saved_and_stays_the_last_event(tmp_path: Path, end: str) -> None:
    gate = Gate()
    tool = Script(*([holdfast.ToolError("no")] if end == "failed" else [1])).tool
    async with engine_at(tmp_path, tool, gate.tool) as engine:
        work = plan(step("a", "gate" if end == "stopped" else "script"), checkpoint={"on": ["end"]})
        run = await engine.start(work)
        if end == "stopped":
            await gate.wait_entered()
            await run.stop()
        assert await settled(run) == end
        await quiet(engine)
        [file] = files(tmp_path)
        assert saved_state(file).status == end
        assert await saved(run) == []
        assert (await names(run))[-1] in ("task:completed", "task:error", "task:stopped")


async def test_several_rules_together_each_make_their_own(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, echo) as engine:
        policy = {"every_steps": 2, "on": ["interrupt", "pause", "end"]}
        run = await engine.start(plan(*STEPS[:3], step("g", "gate"), checkpoint=policy))
        await gate.wait_entered()
        await seen(run, "checkpoint:saved")
        await run.interrupt()
        await quiet(engine)
        assert [event.ended for event in await saved(run)] == [2, 3]
        gate.open.set()
        await run.resume()
        await result(run)
        await quiet(engine)
    assert [ended_steps(saved_state(file)) for file in files(tmp_path)] == [4, 4, 3]  # the fourth step, and the end


async def test_a_checkpoint_that_a_dead_process_owed_is_made_up_for(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(*STEPS[:2], {"id": "w", "wait": {"event": "go"}}, checkpoint={"every_steps": 2}))
        await seen(run, "task:waiting")
        await seen(run, "checkpoint:saved")
    # As if it had died before it wrote the file: the journal says nothing of it.
    store = MemoryStore()
    bundle = read_without_checkpoint(await exported(tmp_path, run.id))
    async with assembled(store, tmp_path / "other", echo) as engine:
        restored = await engine.restore(bundle, force=True)
        again = engine.get(restored.id)
        await again.resume(force=True)
        await again.send("go")
        await result(again)
        assert [event.ended for event in await saved(again)] == [2]


async def exported(folder: Path, execution_id: str) -> bytes:
    async with engine_at(folder, recover="none") as engine:
        return await engine.export(execution_id)


def read_without_checkpoint(data: bytes) -> bytes:
    from holdfast.journal.bundle.write import Bundle, open_rows, write
    from holdfast.journal.codec import decode
    from holdfast.journal.log import first_rows

    root = read(data).root
    kept = [event for row in root.rows if not isinstance(event := decode(row), ev.CheckpointSaved)]
    _, rows = first_rows(kept, root.state.id)
    return b"".join(write(Bundle([open_rows(root.state.id, rows)], {}), "0.1.0"))


# ---- by the clock --------------------------------------------------------------------------------------------------


class AtOnce(VirtualLoop):
    """Files are written here and now: in virtual time, a thread would take no time or for ever."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()
        future.set_result(func(*args))
        return future


@asynccontextmanager
async def assembled(
    store: MemoryStore, folder: Path, *tools: Any, passivate_after_s: float = 1e6
) -> AsyncIterator[AssembledEngine]:
    from random import Random

    from holdfast.engine.services import Pace, SystemClock

    registry = Registry()
    for tool in tools:
        registry.add(tool)
    loop = asyncio.get_running_loop()
    is_virtual = isinstance(loop, VirtualLoop)
    clock = VirtualClock(loop) if isinstance(loop, VirtualLoop) else SystemClock()
    engine = AssembledEngine(
        store=store, liveness=InProcess(), registry=registry, clock=clock, rng=Random(1),
        limits=holdfast.Limits(passivate_after_s=passivate_after_s),
        pace=Pace(look_s=3600.0, sweep_changed_s=3600.0, sweep_s=3600.0) if is_virtual else Pace(),
    )  # fmt: skip
    engine.services.data_folder = folder / ".holdfast"
    if is_virtual:
        engine.services.deadlines = ExactDeadlines()
    async with engine:
        yield engine


@holdfast.tool(effect="read")
async def minute(value: int = 0) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("passivate_after_s", [1e6, 30.0], ids=["driven", "parked"])
def test_every_so_often_there_is_one_as_long_as_something_happens(tmp_path: Path, passivate_after_s: float) -> None:
    async def play() -> tuple[list[float], float, int]:
        async with assembled(MemoryStore(), tmp_path, minute, passivate_after_s=passivate_after_s) as engine:
            steps = [step(f"s{number}", "minute") for number in range(10)]
            run = await engine.start(plan(*steps, {"id": "w", "wait": {"for": "1h"}}, checkpoint={"every_s": "150s"}))
            await run.result()
            first, *_ = found = await events(run)
            woke = max(event.at for event in found if isinstance(event, ev.TaskStarted))
            moments = [(event.at - first.at) / 1e6 for event in await saved(run)]
            return moments, (woke - first.at) / 1e6, len(files(tmp_path))

    moments, woke, kept = run_virtually(play(), AtOnce())
    # What led up to the wait is saved in time, though nobody may drive it by then. During the hour nothing happens, and
    # nothing is written; what wakes it up is long overdue.
    assert moments == [150, 300, 450, 600, 750, woke]
    assert woke >= 4200
    assert kept == 3


def test_what_is_owed_is_not_saved_twice(tmp_path: Path) -> None:
    """By hand while it was parked, or by whoever drives it again."""

    async def play() -> tuple[int, int]:
        async with assembled(MemoryStore(), tmp_path, minute, passivate_after_s=30.0) as engine:
            waits = plan(step("a", "minute"), {"id": "w", "wait": {"event": "go"}}, checkpoint={"every_s": "10m"})
            by_hand, woken = await engine.start(waits), await engine.start(waits)
            await asyncio.sleep(300)
            assert engine.driven() == []
            await by_hand.checkpoint()
            await woken.send("go")
            await woken.result()
            await asyncio.sleep(3600)
            return len(await saved(by_hand)), len(await saved(woken))

    assert run_virtually(play(), AtOnce()) == (1, 0)


# ---- trouble -------------------------------------------------------------------------------------------------------


async def test_a_checkpoint_that_cannot_be_written_is_told_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    async with engine_at(tmp_path, echo) as engine:
        (tmp_path / ".holdfast" / "executions").write_text("a file in its place")
        run = await engine.start(plan(*STEPS[:2], checkpoint={"every_steps": 1, "on": ["end"]}))
        watching = asyncio.create_task(frames(run))
        await result(run)
        await quiet(engine)
        assert await saved(run) == []
        assert await run.status() == "completed"
        await watching
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 3
    assert all(text.startswith(f"execution {run.id}: no checkpoint was saved: ") for text in warned)
    assert all("cannot be written: " in text and "what is in the journal is safe" in text for text in warned)


async def frames(run: holdfast.Run) -> list[str]:
    return [watched.type async for watched in run.watch()]


async def test_a_disk_that_does_not_answer_does_not_keep_an_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = asyncio.Event()

    async def never(*_: Any) -> None:
        stuck.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(auto_checkpoint, "save", never)
    monkeypatch.setattr(auto_checkpoint, "SETTLE_S", 0.05)
    async with engine_at(tmp_path, echo, check=False) as engine:
        run = await engine.start(plan(*STEPS[:2], checkpoint={"every_steps": 1}))
        await result(run)
        assert stuck.is_set()
        [left] = engine.services.left_behind
        left.cancel()
        await until(lambda: not engine.services.left_behind)


async def test_nor_does_it_keep_one_that_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(auto_checkpoint, "save", never)
    monkeypatch.setattr(auto_checkpoint, "SETTLE_S", 0.05)
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate"), checkpoint={"on": ["pause", "interrupt"]}))
        await gate.wait_entered()
        await run.interrupt()
        await quiet(engine)
        assert (await names(run))[-1] == "task:interrupted"
    assert "no checkpoint was saved: the disk has not answered for 0.05 s" in caplog.text


async def test_a_slow_disk_skips_what_would_not_be_kept_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, gate = transfer_export.save, asyncio.Event()

    async def slow(*arguments: Any) -> ev.CheckpointSaved:
        await gate.wait()
        return await real(*arguments)

    monkeypatch.setattr(auto_checkpoint, "save", slow)
    last = Gate("last")
    async with engine_at(tmp_path, echo, last.tool) as engine:
        run = await engine.start(plan(*STEPS, step("last", "last"), checkpoint={"every_steps": 1}))
        await last.wait_entered()
        gate.set()
        last.open.set()
        await result(run)
        kept = [event.ended for event in await saved(run)]
    assert kept[0] == 1
    assert kept[1:4] in ([5, 6, 7], [6, 7, 8])
    assert len(files(tmp_path)) == 3


async def test_an_engine_without_a_folder_saves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    async with engine_at("memory:", echo) as engine:
        engine.services.data_folder = None
        run = await engine.start(plan(STEPS[0], checkpoint={"every_steps": 1}))
        await result(run)
        with pytest.raises(holdfast.Refused, match="this engine has no folder to save checkpoints in; export"):
            await run.checkpoint()
    assert not caplog.text


# ---- who decides ---------------------------------------------------------------------------------------------------


async def test_the_caller_comes_before_the_plan_and_the_plan_before_the_settings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[checkpoint]\nevery_steps = 3\non = ["end"]\n')
    async with engine_at(tmp_path, echo) as engine:
        for said, asked, found in (
            ({}, None, Checkpoints(every_steps=3, on=("end",))),
            ({"checkpoint": {"every_s": "5m"}}, None, Checkpoints(every_s=300.0)),
            ({"checkpoint": {"every_s": "5m"}}, {"on": ["pause"]}, Checkpoints(on=("pause",))),
            ({"checkpoint": {"every_s": "5m"}}, Checkpoints(every_steps=1), Checkpoints(every_steps=1)),
            ({"checkpoint": {}}, None, Checkpoints()),
            ({}, {}, Checkpoints()),
        ):
            run = await engine.start(plan(STEPS[0], **said), checkpoint=asked)
            await result(run)
            assert (await run.state()).facts().checkpoint == found


async def test_a_child_follows_its_own_plan_and_not_the_settings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[checkpoint]\non = ["end"]\n')
    (tmp_path / "child.yaml").write_text("name: child\nsteps:\n  - {id: a, tool: echo}\n")
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan({"id": "c", "start": "child.yaml"}))
        await result(run)
        await quiet(engine)
        [file] = files(tmp_path)
        assert len(read(file.read_bytes()).executions) == 2


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"every_steps": 0}, "checkpoint.every_steps: expected a whole number from 1 to 1000000, got the number 0"),
        ({"every_s": "soon"}, "checkpoint.every_s: expected a duration such as"),
        ({"every_s": 0.2}, "checkpoint.every_s: expected at least 1 s, got the number 0.2"),
        (
            {"on": ["puase"]},
            'checkpoint.on: expected a list of "pause", "interrupt", "end", got the string "puase"; did',
        ),
        ({"on": 3}, 'checkpoint.on: expected a list of "pause", "interrupt", "end", got the number 3'),
        ({"evry_s": 3}, 'checkpoint.evry_s: unknown key; did you mean "every_s"?'),
    ],
)
async def test_a_policy_with_a_mistake_starts_nothing(tmp_path: Path, said: Any, message: str) -> None:
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(InputInvalid) as refused:
            await engine.start(plan(STEPS[0]), checkpoint=said)
        assert str(refused.value).startswith(message)
        with pytest.raises(holdfast.HoldfastError) as refused:
            await engine.start(plan(STEPS[0], checkpoint=said))
        assert message in str(refused.value)
        assert await engine.list() == []
