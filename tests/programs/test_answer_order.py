"""Functions with several tasks: outcomes come back in the order in which they were recorded, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, engine_at, quiet, result, seen
from holdfast.testing import Lab


@holdfast.tool(effect="idempotent")
async def note(text: str) -> str:
    return text


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.use(note)
    return lab


async def first_of(ctx: holdfast.Context) -> str:
    """A timer and an event: whoever comes first decides."""
    timer = asyncio.ensure_future(ctx.sleep("1h", name="limit"))
    event = asyncio.ensure_future(ctx.wait_for("go", name="go"))
    done, left = await asyncio.wait({timer, event}, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return "event" if event in done else "timer"


@pytest.mark.parametrize(("comes", "winner"), [("59m", "event"), ("61m", "timer")])
def test_race_of_a_timer_and_an_event_has_one_winner_wherever_it_crashes(lab: Lab, comes: str, winner: str) -> None:
    @holdfast.function
    async def race(ctx: holdfast.Context) -> list[Any]:
        won = await first_of(ctx)
        await ctx.sleep("2h", name="pause")
        return [won, await ctx.call(note, won)]

    outcome = lab.run(race, events={"go": lab.later(comes, 1)}, crash_at="everywhere")
    assert outcome.output == [winner, winner]


def test_handler_beside_the_main_routine_sees_the_same_wherever_it_crashes(lab: Lab) -> None:
    @holdfast.function
    async def beside(ctx: holdfast.Context) -> list[str]:
        heard: list[str] = []
        said: list[str] = []

        async def handle() -> None:
            for number in range(2):
                heard.append(await ctx.wait_for(f"change{number}", name=f"change{number}"))

        handler = asyncio.create_task(handle())
        for number in range(4):
            said.append(await ctx.call(note, f"{number}:{len(heard)}", name=f"note{number}"))
            await ctx.sleep("1h", name=f"pause{number}")
        await handler
        return said

    changes = {"change0": lab.later("90m", "a"), "change1": lab.later("1h", "b")}
    outcome = lab.run(beside, events=changes, crash_at="everywhere")
    assert outcome.output == ["0:0", "1:0", "2:1", "3:2"]


def _gathered(*works: Awaitable[Any]) -> Awaitable[Any]:
    return asyncio.gather(*works)


async def _grouped(*works: Awaitable[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)  # type: ignore[arg-type]


@pytest.mark.parametrize("together", [_gathered, _grouped])
def test_tasks_of_a_function_finish_in_the_recorded_order(lab: Lab, together: Callable[..., Awaitable[Any]]) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[str]:
        order: list[str] = []

        async def one(name: str, minutes: int) -> None:
            await ctx.sleep(minutes * 60, name=f"wait_{name}")
            order.append(name)
            await ctx.call(note, ",".join(order), name=f"note_{name}")

        await together(one("a", 3), one("b", 1), one("c", 2))
        return order

    assert lab.run(program, crash_at="everywhere").output == ["b", "c", "a"]


def test_branches_of_gather_finish_in_the_recorded_order(lab: Lab) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[str]:
        order: list[str] = []

        def branch(name: str, minutes: int) -> Any:
            async def run(inner: holdfast.Context) -> None:
                await inner.sleep(minutes * 60)
                order.append(name)
                await inner.call(note, ",".join(order))

            return run

        await ctx.gather(branch("a", 3), branch("b", 1), branch("c", 2))
        return order

    assert lab.run(program, crash_at="everywhere").output == ["b", "c", "a"]


@holdfast.tool(effect="read")
async def number(value: int) -> int:
    return value


@holdfast.function
async def in_sequence(ctx: holdfast.Context) -> Any:
    for value in range(2000):
        await ctx.call(number, value)
    return await ctx.wait_for("go")


@holdfast.function
async def side_by_side(ctx: holdfast.Context) -> Any:
    await ctx.gather(*(ctx.call(number, value) for value in range(1000)))
    return await ctx.wait_for("go")


@pytest.mark.parametrize(("function", "turns_max"), [(in_sequence, 300), (side_by_side, 1300)])
async def test_replay_takes_few_turns_of_the_loop(
    function: Any, turns_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, run_once = 0, asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def counted(loop: Any) -> None:
        nonlocal turns
        turns += 1
        run_once(loop)

    async with engine_at("memory:", functions=[function], limits=HURRY) as engine:
        run = await engine.start(function)
        await seen(run, "task:waiting")
        await quiet(engine)
        monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", counted)
        await run.send("go")
        await result(run)
        monkeypatch.undo()
        await asyncio.sleep(0)
        assert turns < turns_max
