"""Resuming checks that the world is still the same, and nobody drives what he cannot run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from engine.kit import HURRY, Script, echo, engine_at, events, names, plan, result, seen, settled, step
from holdfast.core import events as ev
from holdfast.core.differences import Difference
from holdfast.core.errors import Divergence, NotFound, ResumeMismatch
from holdfast.engine.transfer.compatibility import changes_of_tool

WORK = plan({"id": "ok", "approval": True}, step("a", "script", **{"with": {"value": 1}}))


@holdfast.tool(name="script", effect="read")
async def changed(value: Any = None, more: int = 0) -> str:
    return "changed"


async def paused_run(folder: Path) -> str:
    async with engine_at(folder, Script().tool, limits=HURRY) as engine:
        run = await engine.start(WORK)
        await settled(run)
        await run.pause()
    return run.id


def journal_of(folder: Path) -> str:
    return holdfast.Engine(folder=folder).settings.store


async def test_changed_tool_is_explained_and_taken_by_force(tmp_path: Path) -> None:
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, changed) as engine:
        run = engine.get(run_id)
        with pytest.raises(ResumeMismatch) as mismatch:
            await run.resume()
        assert str(mismatch.value) == (
            "this execution was recorded under other circumstances:\n"
            "  its tool script has other parameters or another version now\n"
            "put them back, or resume with --force to go on regardless"
        )
        assert await run.status() == "paused"
        await run.resume(force=True)
        assert await settled(run) == "waiting"
        await run.approve()
        assert await result(run) == "changed"
        resumed = next(event for event in await events(run) if isinstance(event, ev.TaskResumed))
        assert (resumed.accepted, resumed.forced) == ((Difference(code="tool_changed", name="script"),), ())


async def test_differences_accepted_as_texts_by_an_older_version_stay_accepted(tmp_path: Path) -> None:
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, changed) as engine:
        run = engine.get(run_id)
        await engine.command(run_id, "resume", forced=("its tool script has other parameters or another version now",))
        assert await settled(run) == "waiting"
    async with engine_at(tmp_path, changed) as engine:
        await engine.get(run_id).resume()
        await engine.get(run_id).approve()
        assert await result(engine.get(run_id)) == "changed"


async def test_a_tool_with_another_effect_is_another_tool(tmp_path: Path) -> None:
    """What may not happen twice would be repeated without a word."""
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, Script(effect="idempotent").tool) as engine:
        with pytest.raises(ResumeMismatch, match="its tool script had the effect read and has idempotent now"):
            await engine.get(run_id).resume()
        assert await engine.get(run_id).status() == "paused"


def test_a_journal_that_is_older_than_the_effect_in_a_digest_is_taken_by_the_rest_of_it() -> None:
    assert changes_of_tool("t", "5e2a", "5e2a.once") == []
    assert changes_of_tool("t", "5e2b", "5e2a.once") == [Difference(code="tool_changed", name="t")]
    assert changes_of_tool("t", "5e2a.once", "5e2a.once") == []


async def test_missing_tool_is_explained(tmp_path: Path) -> None:
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(ResumeMismatch, match="its tool script is not here"):
            await engine.get(run_id).resume()


async def test_missing_tool_taken_by_force_waits_for_a_correction_when_it_is_due(tmp_path: Path) -> None:
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, echo) as engine:
        run = engine.get(run_id)
        await run.resume(force=True)
        await settled(run)
        await run.approve()
        await seen(run, "request:opened", lambda event: event.request.kind == "correction")
        [asked] = (await run.state()).open_requests()
        assert 'no tool called "script"' in asked.request.message


async def test_other_folder_is_explained(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    run_id = await paused_run(here)
    async with engine_at(there, Script().tool, store=journal_of(here)) as engine:
        with pytest.raises(ResumeMismatch, match=f"it was started in {here}, this is {there}"):
            await engine.get(run_id).resume()


async def test_other_major_version_is_explained(tmp_path: Path) -> None:
    run_id = await paused_run(tmp_path)
    async with engine_at(tmp_path, Script().tool) as engine:
        engine.services.version = "7.0.0"
        with pytest.raises(ResumeMismatch, match=r"it was started by Holdfast 0\..*, this is Holdfast 7\.0\.0"):
            await engine.get(run_id).resume()


async def test_running_execution_with_a_changed_tool_is_left_alone_until_it_is_forced(tmp_path: Path) -> None:
    async with engine_at(tmp_path, Script().tool, limits=HURRY) as engine:
        run = await engine.start(WORK)
        await settled(run)
    async with engine_at(tmp_path, changed, limits=HURRY) as engine:
        here = engine.get(run.id)
        await here.approve()
        with pytest.raises(ResumeMismatch):
            await result(here)
        await here.resume(force=True)
        assert await result(here) == "changed"


async def test_engine_claims_only_what_it_can_run_and_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    @holdfast.function
    async def elsewhere(ctx: holdfast.Context) -> str:
        return "ran"

    async with engine_at(tmp_path, functions=[elsewhere], recover="none") as engine:
        run = await engine.start(elsewhere, hold=True)
        await run.resume()
        before = await names(run)
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(NotFound, match='no function called "elsewhere"'):
            await result(engine.get(run.id))
        assert await names(engine.get(run.id)) == before
        await result(await engine.start(plan(step("a", "echo"))))
        assert (await engine.get(run.id).head()).driver == ""
    async with engine_at(tmp_path, functions=[elsewhere]) as engine:
        assert await result(engine.get(run.id)) == "ran"


async def test_many_executions_that_cannot_be_run_here_do_not_hide_those_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.drive.scheduler.SWEEP_MAX", 3)

    @holdfast.function
    async def elsewhere(ctx: holdfast.Context) -> None: ...

    async with engine_at(tmp_path, echo, functions=[elsewhere], recover="none") as engine:
        for _ in range(8):
            run = await engine.start(elsewhere, hold=True)
            await run.resume()
        mine = await engine.start(plan(step("a", "echo")), hold=True)
        await mine.resume()
    async with engine_at(tmp_path, echo) as engine:
        await result(engine.get(mine.id))


async def test_function_that_asks_for_another_input_stops_and_appends_nothing(tmp_path: Path) -> None:
    def program(number: int) -> Any:
        @holdfast.function(name="same")
        async def same(ctx: holdfast.Context) -> int:
            value = 0
            try:
                value = await ctx.call(echo, number)
            except Exception:  # even a program that swallows everything may not go on
                value = await ctx.call(echo, -1, name="after")
            await ctx.wait_for("go")
            return value

        return same

    async with engine_at(tmp_path, functions=[program(1)], limits=HURRY) as engine:
        run = await engine.start("same")
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, functions=[program(2)]) as engine:
        here = engine.get(run.id)
        await here.send("go")
        with pytest.raises(Divergence) as diverged:
            await result(here)
        assert str(diverged.value) == (
            "step echo was recorded with another input; nothing was changed\n"
            '  recorded:  echo {"value":1}\n'
            '  attempted: echo {"value":2}\n'
            "give the changed step another name, put the code back, or start a new execution"
        )
        state = await here.state()
        assert list(state.steps) == ["echo", "wait_for.go"]
        assert not state.is_ended
    async with engine_at(tmp_path, functions=[program(1)]) as engine:
        assert await result(engine.get(run.id)) == 1


@pytest.mark.parametrize("other", ["sleep", "wait_for", "ask", "call", "start", "other event"])
async def test_function_that_asks_for_another_kind_of_step_stops(tmp_path: Path, other: str) -> None:
    @holdfast.function(name="same")
    async def first(ctx: holdfast.Context) -> None:
        if other == "wait_for":
            await ctx.sleep(3600, name="x")
        await ctx.wait_for("go", name="x")

    @holdfast.function(name="same")
    async def second(ctx: holdfast.Context) -> None:
        match other:
            case "sleep":
                await ctx.sleep(1, name="x")
            case "ask":
                await ctx.ask("?", name="x")
            case "call":
                await ctx.call(echo, 1, name="x")
            case "start":
                await ctx.start("same", name="x")
            case _:
                await ctx.wait_for("other" if other == "other event" else "go", name="x")

    async with engine_at(tmp_path, functions=[first], limits=HURRY) as engine:
        run = await engine.start("same")
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, functions=[second]) as engine:
        await engine.get(run.id).send("other")
        with pytest.raises(Divergence, match="step x was recorded with another input"):
            await result(engine.get(run.id))


async def test_damaged_execution_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        runs = [await engine.start(WORK_ECHO) for _ in range(2)]
        for run in runs:
            await settled(run)
        path = engine.settings.store
    which = "execution = (SELECT num FROM executions WHERE id = ?)"
    damage = f"UPDATE events SET body = CAST(body || x'20' AS BLOB) WHERE seq = 3 AND {which}"
    with closing(apsw.Connection(path)) as connection:
        connection.execute(damage, (runs[0].id,))
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(holdfast.HoldfastError, match="the execution was set aside, run `holdfast doctor`"):
            await engine.get(runs[0].id).resume()
        assert (await engine.get(runs[0].id).head()).quarantined
        await engine.get(runs[1].id).approve()
        await result(engine.get(runs[1].id))


WORK_ECHO = plan({"id": "ok", "approval": True}, step("a", "echo"))
