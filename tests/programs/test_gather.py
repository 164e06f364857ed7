"""`ctx.gather`: what becomes of the other branches when one fails, settled outcomes, and at most so many at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, echo, engine_at, names, result, seen, step_of
from holdfast.core.errors import UsageError
from holdfast.testing import Lab


@holdfast.tool(effect="once")
async def pay(amount: int) -> int:
    return amount


@holdfast.tool(effect="read")
async def refused() -> None:
    raise holdfast.ToolError("no")


def test_running_steps_of_the_other_branches_finish_and_their_waits_end(lab: Lab) -> None:
    cancelled: list[str] = []

    @holdfast.function
    async def program(ctx: holdfast.Context) -> dict[str, Any]:
        cancelled.clear()

        async def pays(inner: holdfast.Context) -> None:
            await inner.call(pay, 3)
            try:
                await inner.call(pay, 4, name="again")
            except BaseException as error:
                cancelled.append(type(error).__name__)
                with pytest.raises(holdfast.Cancelled):
                    await inner.sleep(1)
                raise

        async def waits(inner: holdfast.Context) -> None:
            try:
                await inner.wait_for("never")
            except Exception:
                cancelled.append("swallowed")

        try:
            await ctx.gather(pays, waits, lambda c: c.gather(lambda d: d.sleep("9h")), ctx.call(refused))
        except holdfast.StepFailed as error:
            await ctx.sleep("1d", name="rest")
            return {"failed": error.path, "cancelled": [*cancelled]}
        return {}

    lab.fake(pay, takes="10m", returns=3)
    lab.fake(refused, takes="1m", raises=holdfast.ToolError("no"))
    outcome = lab.run(program)
    assert outcome.output == {"failed": "refused", "cancelled": ["Cancelled"]}
    assert {path: step["status"] for path, step in outcome.steps.items()} == {
        "gather[0]/pay": "completed",
        "gather[1]/wait_for.never": "skipped",
        "gather[2]/gather[0]/sleep": "skipped",
        "refused": "failed",
        "rest": "completed",
    }
    assert outcome.steps["gather[1]/wait_for.never"]["reason"] == "another branch of the same ctx.gather failed"


def test_failing_branch_is_the_same_wherever_it_crashes(lab: Lab) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[str]:
        told: list[str] = []

        def branch(name: str, minutes: int) -> Any:
            async def run(inner: holdfast.Context) -> None:
                try:
                    await inner.run("work", lambda: name)
                    await inner.sleep(minutes * 60)
                    if name == "b":
                        raise ValueError("b failed")
                    await inner.run("more", lambda: name)
                finally:
                    told.append(name)

            return run

        try:
            await ctx.gather(branch("a", 1), branch("b", 2), branch("c", 3), branch("d", 4))
        except ValueError as error:
            told.append(str(error))
        await ctx.sleep("1h")
        return [*told, await ctx.run("last", lambda: ",".join(told))]

    outcome = lab.run(program, crash_at="everywhere")
    assert outcome.output == ["a", "b", "c", "d", "b failed", "a,b,c,d,b failed"]


async def test_once_step_of_another_branch_is_not_left_in_doubt() -> None:
    gate = Gate("pay", effect="once")

    @holdfast.tool(effect="read")
    async def fails() -> None:
        await gate.entered.wait()
        raise holdfast.ToolError("no")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        with pytest.raises(holdfast.StepFailed, match="fails: no"):
            await ctx.gather(ctx.call(gate.tool, 1), ctx.call(fails))
        return "lived with it"

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await seen(run, "step:failed")
        gate.open.set()
        assert await result(run) == "lived with it"
        assert (await step_of(run, "pay")).status == "completed"
        assert gate.cancelled == 0


async def test_approval_of_another_branch_is_not_asked_for_any_more() -> None:
    release = asyncio.Event()

    @holdfast.tool(effect="read")
    async def fails() -> None:
        await release.wait()
        raise holdfast.ToolError("no")

    @holdfast.tool(effect="once", approval="really?")
    async def risky() -> None: ...

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        with pytest.raises(holdfast.StepFailed):
            await ctx.gather(ctx.call(risky), ctx.call(fails))
        await ctx.wait_for("go")
        return "went"

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await seen(run, "approval:requested")
        release.set()
        await seen(run, "step:skipped")
        assert not list((await run.state()).open_requests())
        await run.send("go")
        assert await result(run) == "went"


async def test_doubt_of_another_branch_is_settled_first(tmp_path: Path) -> None:
    @holdfast.tool(effect="once")
    async def lost() -> None:
        raise ConnectionResetError("gone")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        async def fails(inner: holdfast.Context) -> None:
            await inner.wait_for("fail")
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await ctx.gather(ctx.call(lost), fails)
        return "lived with it"

    async with engine_at(tmp_path, functions=[program], limits=HURRY) as engine:
        run = await engine.start(program)
        await seen(run, "request:opened")
        await run.send("fail")
        await seen(run, "step:completed")
        assert (await run.settled()).status == "waiting"
        await run.resolve("lost", "done")
        assert await result(run) == "lived with it"
        assert (await step_of(run, "lost")).status == "completed"


def test_settle_returns_every_outcome(lab: Lab) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[str]:
        outcomes = await ctx.gather(ctx.call(pay, 1), ctx.call(refused), lambda c: c.sleep("1h"), settle=True)
        await ctx.sleep("1h")
        return [str(outcome) for outcome in outcomes]

    lab.use(pay, refused)
    assert lab.run(program, crash_at="everywhere").output == ["1", "refused: no", "None"]


def test_limit_runs_so_many_branches_at_a_time(lab: Lab) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[Any]:
        running: set[int] = set()
        most = 0

        def branch(number: int) -> Any:
            async def run(inner: holdfast.Context) -> int:
                nonlocal most
                running.add(number)
                most = max(most, len(running))
                await inner.sleep((7 - number) * 60)
                running.discard(number)
                return number

            return run

        numbers = await ctx.gather(*map(branch, range(5)), limit=2)
        return [numbers, most]

    assert lab.run(program, crash_at="everywhere").output == [[0, 1, 2, 3, 4], 2]


async def test_branches_that_did_not_begin_never_do() -> None:
    begun: list[int] = []

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        async def fails(inner: holdfast.Context) -> None:
            begun.append(1)
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await ctx.gather(fails, ctx.call(echo, 1), fails, limit=1)
        return "lived with it"

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        assert await result(run) == "lived with it"
        assert begun == [1]
        assert await names(run, "step") == []


async def test_limit_below_one_is_refused() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        with pytest.raises(UsageError) as error:
            await ctx.gather(limit=0)
        return f"{error.value} {await ctx.gather()}"

    async with engine_at("memory:", functions=[program]) as engine:
        assert await result(await engine.start(program)) == "ctx.gather: limit must be at least 1, not 0 []"
