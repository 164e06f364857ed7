"""After a compensation, a retry knows what was undone and runs it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, engine_at, plan, result, settled, step
from holdfast.core.policy import StepPolicy

NO = holdfast.ToolError("no")


async def test_a_plan_runs_again_what_its_on_failure_steps_took_back(tmp_path: Path) -> None:
    make, other = Script(name="make", effect="once"), Script(name="other", effect="once")
    work, remove = Script(NO, "fine", name="work"), Script(name="remove", effect="once")
    document = plan(
        step("make", "make"), step("other", "other"), step("work", "work"),
        on_failure=[step("remove", "remove", undoes="make")],
    )  # fmt: skip
    async with engine_at(tmp_path, make.tool, other.tool, work.tool, remove.tool) as engine:
        run = await engine.start(document)
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await result(again) == "fine"
        assert [call.key for call in make.calls] == [f"{run.id}:make", f"{again.id}:make"]
    assert (len(other.calls), len(remove.calls)) == (1, 1)


async def test_items_are_taken_back_one_by_one(tmp_path: Path) -> None:
    make, work, remove = Script(name="make", effect="once"), Script(NO, "fine", name="work"), Script(name="remove")
    value = {"with": {"value": "${{ item }}"}}
    document = plan(
        step("make", "make", for_each=["a", "b"], key="${{ item }}", **value), step("work", "work"),
        on_failure=[step("remove", "remove", for_each=["b"], key="${{ item }}", undoes=["make"], **value)],
    )  # fmt: skip
    async with engine_at(tmp_path, make.tool, work.tool, remove.tool) as engine:
        run = await engine.start(document)
        assert await settled(run) == "failed"
        await result(await engine.retry(run.id))
    assert make.arguments == ["a", "b", "b"]


async def test_a_function_runs_again_what_it_took_back(tmp_path: Path) -> None:
    make, work, remove = Script(name="make", effect="once"), Script(NO, "fine", name="work"), Script(name="remove")

    @holdfast.function
    async def job(ctx: holdfast.Context) -> Any:
        await ctx.call(make.tool)
        try:
            return await ctx.call(work.tool)
        except holdfast.StepFailed:
            await ctx.call(remove.tool, policy=StepPolicy(undoes=("make",)))
            raise

    async with engine_at(tmp_path, make.tool, work.tool, remove.tool, functions=[job]) as engine:
        run = await engine.start(job)
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id)) == "fine"
    assert (len(make.calls), len(remove.calls)) == (2, 1)


async def test_what_may_have_been_taken_back_is_in_doubt(tmp_path: Path) -> None:
    make, work = Script(name="make", effect="once"), Script(NO, "fine", name="work")
    remove = Script(TimeoutError("no answer"), name="remove", effect="once")
    document = plan(
        step("make", "make"), step("work", "work"), on_failure=[step("remove", "remove", undoes="make")]
    )  # fmt: skip
    async with engine_at(tmp_path, make.tool, work.tool, remove.tool) as engine:
        run = await engine.start(document)
        assert await settled(run) == "waiting"
        await run.stop()
        again = await engine.retry(run.id)
        assert await settled(again) == "waiting"
        await again.resolve("make", "done", output="there")
        assert await result(again) == "fine"
    assert len(make.calls) == 1


async def test_a_plan_that_takes_back_an_unknown_step_is_refused(tmp_path: Path) -> None:
    make = Script(name="make")
    document = plan(step("make", "make"), on_failure=[step("remove", "make", undoes="mke")])
    async with engine_at(tmp_path, make.tool) as engine:
        with pytest.raises(holdfast.HoldfastError, match=r'on_failure\[0\].undoes: no step called "mke"'):
            await engine.start(document)
