"""A retry runs `finally` and `on_failure` like any run: they belong to one run, and nothing of them is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, engine_at, plan, result, settled, step, step_of

NO = holdfast.ToolError("no")


def ending(*steps: Any, part: str, **others: Any) -> dict[str, Any]:
    return plan(step("a", "a"), step("work", "work"), **{part: list(steps)}, **others)


@pytest.mark.parametrize("effect", ["read", "idempotent", "once"])
@pytest.mark.parametrize("part", ["finally", "on_failure"])
async def test_each_retry_runs_the_ending_steps(tmp_path: Path, part: str, effect: Any) -> None:
    a, work = Script(name="a"), Script(NO, NO, NO, "fine", name="work")
    tidy = Script(name="tidy", effect=effect)
    async with engine_at(tmp_path, a.tool, work.tool, tidy.tool) as engine:
        run = await engine.start(ending(step("tidy", "tidy"), part=part))
        assert await settled(run) == "failed"
        second = await engine.retry(run.id)
        assert await settled(second) == "failed"
        third = await engine.retry(second.id, from_step="work")
        assert await settled(third) == "failed"
        assert (len(a.calls), len(tidy.calls)) == (1, 3)
        assert await settled(await engine.fork(third.id, at="work")) == "completed"
        assert len({call.key for call in tidy.calls}) == len(tidy.calls)
    assert len(tidy.calls) == (4 if part == "finally" else 3)


async def test_steps_within_an_ending_step_run_again(tmp_path: Path) -> None:
    a, work, tidy = Script(name="a"), Script(NO, "fine", name="work"), Script(name="tidy")
    inner = {"id": "all", "steps": [step("each", "tidy", for_each=[1, 2])]}
    async with engine_at(tmp_path, a.tool, work.tool, tidy.tool) as engine:
        run = await engine.start(ending(inner, part="finally"))
        assert await settled(run) == "failed"
        await result(await engine.retry(run.id))
    assert len(tidy.calls) == 4


async def test_a_step_that_another_plan_makes_an_ending_step_runs_at_that_end(tmp_path: Path) -> None:
    a, work, tidy = Script(name="a"), Script(NO, "fine", name="work"), Script(name="tidy", effect="once")
    async with engine_at(tmp_path, a.tool, work.tool, tidy.tool) as engine:
        run = await engine.start(plan(step("tidy", "tidy"), step("work", "work")))
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, program=plan(step("work", "work"), **{"finally": [step("tidy", "tidy")]}))
        assert await settled(again) == "completed"
    assert len(tidy.calls) == 2


async def test_a_doubt_about_cleaning_up_does_not_stand_in_for_the_next_cleaning_up(tmp_path: Path) -> None:
    a, work = Script(name="a"), Script(NO, "fine", name="work")
    tidy = Script(TimeoutError("no answer"), name="tidy", effect="once")
    async with engine_at(tmp_path, a.tool, work.tool, tidy.tool) as engine:
        run = await engine.start(ending(step("tidy", "tidy"), part="finally"))
        assert await settled(run) == "waiting"
        await run.stop()
        again = await engine.retry(run.id)
        assert await settled(again) == "completed"
        assert (await step_of(again, "tidy")).attempt == 1
    assert [call.key for call in tidy.calls] == [f"{run.id}:tidy"] * 2


async def test_a_child_that_goes_on_runs_its_ending_steps(tmp_path: Path) -> None:
    work, tidy = Script(NO, "fine", name="work"), Script(name="tidy", effect="once")
    inner = tmp_path / "inner.yaml"
    inner.write_text("steps:\n  - {id: w, tool: work}\nfinally:\n  - {id: tidy, tool: tidy}\n")
    async with engine_at(tmp_path, work.tool, tidy.tool) as engine:
        run = await engine.start(plan({"id": "c", "start": "inner.yaml"}))
        assert await settled(run) == "failed"
        await result(await engine.retry(run.id))
    assert len(tidy.calls) == 2
