"""Changed code of a function never runs beside what the old code did: dropped steps, and `ctx.patched`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, engine_at, events, result, seen
from holdfast.core.errors import Divergence


@holdfast.tool(effect="once")
async def charge(amount: int) -> str:
    return f"charged {amount}"


@holdfast.tool(effect="once")
async def bill(amount: int) -> str:
    return f"billed {amount}"


@holdfast.tool(effect="read")
async def look() -> str:
    return "seen"


Body = Callable[[holdfast.Context], Any]


def written(body: Body) -> Any:
    @holdfast.function(name="program")
    async def program(ctx: holdfast.Context) -> Any:
        return await body(ctx)

    return program


async def begun(folder: Path, body: Body) -> str:
    async with engine_at(folder, charge, bill, functions=[written(body)], limits=HURRY) as engine:
        run = await engine.start("program")
        await seen(run, "task:waiting")
        return run.id


async def goes_on(folder: Path, execution_id: str, body: Body) -> Any:
    """With the new code, after what it waits for has come."""
    async with engine_at(folder, charge, bill, functions=[written(body)], limits=HURRY) as engine:
        run = engine.get(execution_id)
        await run.send("go")
        return await result(run)


async def old(ctx: holdfast.Context) -> Any:
    await ctx.call(charge, 3)
    return await ctx.wait_for("go")


async def renamed(ctx: holdfast.Context) -> Any:
    await ctx.call(bill, 3)
    return await ctx.wait_for("go")


async def ends_early(ctx: holdfast.Context) -> Any:
    await ctx.wait_for("go")
    return "done"


async def fails_early(ctx: holdfast.Context) -> Any:
    await ctx.wait_for("go")
    raise ValueError("no")


async def without_branches(ctx: holdfast.Context) -> Any:
    await ctx.call(bill, 4)
    return await ctx.wait_for("go")


async def in_branches(ctx: holdfast.Context) -> Any:
    await ctx.gather(lambda c: c.call(charge, 3), lambda c: c.call(look))
    return await ctx.wait_for("go")


async def fewer_branches(ctx: holdfast.Context) -> Any:
    await ctx.gather(lambda c: c.call(look))
    return await ctx.call(bill, 4)


async def in_a_task(ctx: holdfast.Context) -> Any:
    await asyncio.gather(ctx.call(charge, 3, name="charge"), ctx.call(look, name="look"))
    return await ctx.wait_for("go")


async def other_task(ctx: holdfast.Context) -> Any:
    await asyncio.gather(ctx.call(bill, 3, name="bill"), ctx.call(look, name="look"))
    return await ctx.wait_for("go")


@pytest.mark.parametrize(
    ("before", "after", "path", "attempted"),
    [
        (old, renamed, "charge", 'bill {"amount":3}'),
        (old, ends_early, "charge", "the end of program"),
        (old, fails_early, "charge", "the end of program"),
        (in_branches, without_branches, "gather[0]/charge", 'bill {"amount":4}'),
        (in_a_task, other_task, "charge", 'bill {"amount":3}'),
    ],
)
async def test_dropped_step_is_a_divergence_told_with_both_names(
    tmp_path: Path, before: Body, after: Body, path: str, attempted: str
) -> None:
    execution_id = await begun(tmp_path, before)
    with pytest.raises(Divergence) as diverged:
        await goes_on(tmp_path, execution_id, after)
    assert str(diverged.value) == (
        f"step {path} was begun, and the code does not ask for it any more; nothing was changed\n"
        '  recorded:  charge {"amount":3}\n'
        f"  attempted: {attempted}\n"
        'put the code back, keep both versions with `if ctx.patched("…")`, or start a new execution'
    )
    async with engine_at(tmp_path, recover="none") as engine:
        told = [type(event).__name__ for event in await events(engine.get(execution_id))]
        assert told[-2:] == ["EventReceived", "TaskStarted"] or told[-1] == "StepCompleted"
        assert sum(name == "StepStarted" for name in told) == 1 + (before is not old)
    assert await goes_on(tmp_path, execution_id, before) is None


async def test_step_that_only_reads_may_be_dropped(tmp_path: Path) -> None:
    async def reads(ctx: holdfast.Context) -> Any:
        await ctx.call(look)
        return await ctx.wait_for("go")

    async def reads_no_more(ctx: holdfast.Context) -> Any:
        await ctx.call(bill, 1)
        return await ctx.wait_for("go")

    execution_id = await begun(tmp_path, reads)
    assert await goes_on(tmp_path, execution_id, reads_no_more) is None


async def test_step_kept_from_another_execution_may_be_dropped(tmp_path: Path) -> None:
    async def fails(ctx: holdfast.Context) -> Any:
        await ctx.call(charge, 3)
        raise ValueError("no")

    async def mended(ctx: holdfast.Context) -> Any:
        return await ctx.call(bill, 4)

    async with engine_at(tmp_path, charge, functions=[written(fails)]) as engine:
        run = await engine.start("program")
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
    async with engine_at(tmp_path, charge, bill, functions=[written(mended)]) as engine:
        assert await result(await engine.retry(run.id)) == "billed 4"


async def test_step_that_a_task_asks_for_late_is_not_dropped(tmp_path: Path) -> None:
    """It waits for something outside of the execution, which the journal knows nothing about."""

    async def slow(ctx: holdfast.Context) -> Any:
        async def later() -> None:
            await asyncio.sleep(0.05)
            await ctx.call(charge, 3, name="late")

        task = asyncio.create_task(later())
        await ctx.wait_for("go")
        billed = await ctx.call(bill, 4)
        await task
        return billed

    async with engine_at(tmp_path, charge, bill, functions=[written(slow)]) as engine:
        run = await engine.start("program")
        await seen(run, "step:completed")
    async with engine_at(tmp_path, charge, bill, functions=[written(slow)]) as engine:
        await engine.get(run.id).send("go")
        assert await result(engine.get(run.id)) == "billed 4"


# ---- patched -----------------------------------------------------------------------------------------------------


async def patched(ctx: holdfast.Context) -> Any:
    if ctx.patched("bill"):
        await ctx.call(bill, 3)
    else:
        await ctx.call(charge, 3)
    await ctx.wait_for("go")
    return [ctx.patched("bill"), ctx.patched("later")]


async def test_patched_code_runs_the_old_version_where_it_had_begun(tmp_path: Path) -> None:
    execution_id = await begun(tmp_path, old)
    assert await goes_on(tmp_path, execution_id, patched) == [False, True]


async def test_patched_code_runs_the_new_version_where_nothing_had_begun(tmp_path: Path) -> None:
    execution_id = await begun(tmp_path, patched)
    assert await goes_on(tmp_path, execution_id, patched) == [True, True]
    async with engine_at(tmp_path, recover="none") as engine:
        state = await engine.get(execution_id).state()
        assert [*state.steps] == ["patched.bill", "bill", "wait_for.go", "patched.later"]


async def test_patched_looks_at_the_steps_of_its_scope(tmp_path: Path) -> None:
    async def before(ctx: holdfast.Context) -> Any:
        await ctx.gather(lambda c: c.call(charge, 3), lambda c: c.wait_for("go"))

    async def after(ctx: holdfast.Context) -> Any:
        async def one(inner: holdfast.Context) -> bool:
            answer = inner.patched("inside")
            await inner.call(charge, 3)
            return answer

        async def other(inner: holdfast.Context) -> bool:
            await inner.wait_for("go")
            return inner.patched("after")

        return [ctx.patched("outside"), await ctx.gather(one, other)]

    execution_id = await begun(tmp_path, before)
    assert await goes_on(tmp_path, execution_id, after) == [False, [False, True]]
