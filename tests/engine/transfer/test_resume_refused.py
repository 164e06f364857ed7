"""A resume that is refused changes nothing: what would go wrong is found out before a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, echo, engine_at, events, plan, result, seen, step
from holdfast.core.errors import Divergence, Misconfigured


def function(asked: int, *, renamed: bool = False) -> Any:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> Any:
        await ctx.call("paid" if renamed else "gate", asked)
        return await ctx.wait_for("go")

    return program


@holdfast.tool(effect="once")
async def paid(value: Any = None) -> Any:
    return value


async def held(folder: Path, how: str) -> tuple[str, list[Any]]:
    gate = Gate(effect="once")
    gate.open.set()
    async with engine_at(folder, gate.tool, paid, functions=[function(1)], limits=HURRY) as engine:
        run = await engine.start("program")
        await seen(run, "step:completed")
        await getattr(run, how)()
        return run.id, await events(run)


@pytest.mark.parametrize("how", ["pause", "interrupt"])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("changed", [function(2), function(1, renamed=True)])
async def test_resume_that_would_diverge_is_refused_and_changes_nothing(
    tmp_path: Path, how: str, force: bool, changed: Any
) -> None:
    execution_id, before = await held(tmp_path, how)
    gate = Gate(effect="once")
    async with engine_at(tmp_path, gate.tool, paid, functions=[changed], limits=HURRY) as engine:
        run = engine.get(execution_id)
        with pytest.raises(Divergence, match=r"recorded:  gate \{\"value\":1\}\n  attempted: (gate|paid)"):
            await run.resume(force=force)
        assert await events(run) == before
        assert await run.status() == {"pause": "paused", "interrupt": "interrupted"}[how]
    async with engine_at(tmp_path, gate.tool, paid, functions=[function(1)], limits=HURRY) as engine:
        run = engine.get(execution_id)
        await run.resume()
        await run.send("go", 7)
        assert await result(run) == 7
        assert gate.calls == []


async def test_resume_asks_for_what_the_steps_need_as_run_does(tmp_path: Path, monkeypatch: Any) -> None:
    @holdfast.tool(effect="read", requires=["env:TIDE_KEY"])
    async def tides() -> int:
        return 3

    document = plan(step("first", "echo"), {"id": "hold", "wait": {"event": "go"}}, step("last", "tides"))
    monkeypatch.setenv("TIDE_KEY", "x")
    async with engine_at(tmp_path, tides, echo) as engine:
        run = await engine.start(document)
        await seen(run, "step:waiting")
        await run.interrupt()
        before = await events(run)
        monkeypatch.delenv("TIDE_KEY")
        with pytest.raises(Misconfigured) as refused:
            await run.resume()
        assert str(refused.value).startswith("nothing was changed, because something is missing:\n")
        assert "TIDE_KEY" in str(refused.value)
        assert await events(run) == before
        monkeypatch.setenv("TIDE_KEY", "x")
        await run.resume()
        await run.send("go")
        await result(run)
        monkeypatch.delenv("TIDE_KEY")


async def test_resume_does_not_ask_for_what_steps_needed_that_have_ended(tmp_path: Path, monkeypatch: Any) -> None:
    @holdfast.tool(effect="read", requires=["env:TIDE_KEY"])
    async def tides() -> int:
        return 3

    document = plan(step("first", "tides"), {"id": "hold", "wait": {"event": "go"}})
    monkeypatch.setenv("TIDE_KEY", "x")
    async with engine_at(tmp_path, tides, echo) as engine:
        run = await engine.start(document)
        await seen(run, "step:waiting")
        await run.interrupt()
        monkeypatch.delenv("TIDE_KEY")
        await run.resume()
        await run.send("go")
        await result(run)


async def test_outlook_says_where_an_execution_would_go_on(tmp_path: Path) -> None:
    execution_id, before = await held(tmp_path, "pause")
    gate = Gate(effect="once")
    async with engine_at(tmp_path, gate.tool, paid, functions=[function(1)], recover="none") as engine:
        told = await engine.outlook(execution_id)
        assert (told.problems, told.goes_on_with) == ((), ("wait_for.go",))
    async with engine_at(tmp_path, paid, functions=[function(1, renamed=True)], recover="none") as engine:
        told = await engine.outlook(execution_id)
        assert [problem.partition("\n")[0] for problem in told.problems] == [
            "step gate was begun, and the code does not ask for it any more; nothing was changed"
        ]
    async with engine_at(tmp_path, recover="none") as engine:
        told = await engine.outlook(execution_id)
        assert len(told.problems) == 1
        assert "program" in told.problems[0]
        assert await events(engine.get(execution_id)) == before
