"""Adding steps to a plan that runs: checked like the plan itself, and never forgotten silently."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, broken, echo, engine_at, names, plan, result, seen, step, step_of, turns
from holdfast.core.errors import PlanInvalid, Refused
from holdfast.engine.transfer import auto_checkpoint
from holdfast.engine.transfer import export as transfer_export


def val(value: Any) -> dict[str, Any]:
    return {"with": {"value": value}}


async def test_plan_is_extended_while_it_runs_and_again_after_a_restart(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, echo, gate.tool, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "gate", **val(1))))
        await gate.wait_entered()
        answer = await run.extend([step("b", "echo", **val("${{ steps.a.output + 1 }}"))], by="ada")
        assert (answer.outcome, answer.text) == ("applied", "extended by 1 steps")
        assert (await run.state()).total == 2
    gate.open.set()
    async with engine_at(tmp_path, echo, gate.tool) as engine:
        here = engine.get(run.id)
        await here.extend([step("c", "echo", **val("${{ steps.b.output + 1 }}"))])
        assert await result(here) == 3


async def test_bad_extension_is_refused_with_every_place_and_changes_nothing() -> None:
    gate = Gate()
    async with engine_at("memory:", echo, gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        with pytest.raises(PlanInvalid) as invalid:
            await run.extend([step("a", "echo"), step("b", "ecko", needs=["z"])])
        places = {problem.place for problem in invalid.value.problems}
        assert places == {"steps[0].id", "steps[1].needs[0]", "steps[1].tool"}
        with pytest.raises(holdfast.Refused, match="there are no steps to add"):
            await run.extend([])
        assert "plan:extended" not in await names(run)
        gate.open.set()
        await result(run)
        with pytest.raises(
            holdfast.Refused, match="the execution is completed; a plan can only be extended before its end"
        ):
            await run.extend([step("c", "echo")])


async def test_only_plans_can_be_extended() -> None:
    @holdfast.function
    async def waits(ctx: holdfast.Context) -> None:
        await ctx.wait_for("go")

    async with engine_at("memory:", echo) as engine:
        run = await engine.start(waits)
        with pytest.raises(holdfast.Refused, match="only plans can be extended; this is a function"):
            await run.extend([step("b", "echo")])
        await run.stop()


async def test_steps_added_after_a_failure_are_skipped_and_at_the_end_refused() -> None:
    gate, last = Gate(), Gate("last")
    async with engine_at("memory:", echo, broken, gate.tool, last.tool) as engine:
        failing = await engine.start(plan(step("slow", "gate"), step("a", "broken", needs=[])))
        await seen(failing, "step:failed")
        await failing.extend([step("more", "echo", needs=[])])
        gate.open.set()
        with pytest.raises(holdfast.ExecutionFailed):
            await result(failing)
        assert (await step_of(failing, "more")).reason == '"a" failed'
        ending = await engine.start(plan(step("a", "echo"), **{"finally": [step("z", "last")]}))
        await last.wait_entered()
        with pytest.raises(Refused, match="the plan's own steps have ended, and z has begun; nothing can be added"):
            await ending.extend([step("more", "echo")])
        last.open.set()
        await result(ending)
        assert "plan:extended" not in await names(ending)


@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_steps_added_after_the_last_word_of_the_plan_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Between its last step and its end an execution waits for its checkpoint."""
    writing, go_on = asyncio.Event(), asyncio.Event()
    save = transfer_export.save

    async def slow_disk(*given: Any) -> Any:
        writing.set()
        await go_on.wait()
        return await save(*given)

    monkeypatch.setattr(auto_checkpoint, "save", slow_disk)
    added = Script("added", name="added")
    last = step("a", "echo" if end == "completed" else "broken")
    async with engine_at(tmp_path, echo, broken, added.tool) as engine:
        run = await engine.start(plan(last, checkpoint={"every_steps": 1}))
        async with asyncio.timeout(60):
            await writing.wait()
        await turns()  # the program has returned, and its driver waits for the disk
        assert (await run.extend([step("b", "added")])).outcome == "applied"
        go_on.set()
        if end == "completed":
            assert await result(run) == "added"
        else:
            with pytest.raises(holdfast.ExecutionFailed):
                await result(run)
            assert (await step_of(run, "b")).reason == '"a" failed'
        assert (await names(run)).count(f"task:{'completed' if end == 'completed' else 'error'}") == 1
    assert len(added.calls) == (end == "completed")
