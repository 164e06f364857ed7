"""How many calls at once and how often, fair between executions; whoever waits for its turn holds nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, echo, engine_at, events, names, plan, result, seen, settled, step, step_of, until
from holdfast.core import events as ev
from holdfast.testing import Lab


class Counted:
    """A tool that knows how many are inside, and in which order executions came."""

    def __init__(self, name: str = "counted", hold_s: float = 0.002, **options: Any) -> None:
        self.inside = self.most = 0
        self.came: list[str] = []
        self.at: list[float] = []

        @holdfast.tool(name=name, effect="read", **options)
        async def counted(call: holdfast.Call, value: Any = None) -> Any:
            self.came.append(call.execution_id)
            self.at.append(asyncio.get_running_loop().time())
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(hold_s)
            self.inside -= 1
            return value

        self.tool = counted


def each(items: int, tool: str = "counted") -> dict[str, Any]:
    return plan({"id": "a", "for_each": list(range(items)), "tool": tool, "max_parallel": 50})


async def test_no_more_calls_of_a_tool_at_once_than_it_declares_over_all_executions() -> None:
    counted = Counted(concurrency=3)
    async with engine_at("memory:", counted.tool) as engine:
        runs = [await engine.start(each(10)) for _ in range(5)]
        for run in runs:
            await result(run)
    assert (counted.most, len(counted.came)) == (3, 50)


async def test_no_more_calls_at_once_in_a_process_than_the_settings_say() -> None:
    one, two = Counted("one"), Counted("two")
    async with engine_at("memory:", one.tool, two.tool, limits=holdfast.Limits(steps=2)) as engine:
        runs = [await engine.start(each(10, name)) for name in ("one", "two", "one")]
        await until(lambda: one.inside + two.inside == 2)
        for run in runs:
            await result(run)
        assert engine.services.guards.everybody.used == 0
    assert one.most <= 2
    assert two.most <= 2


async def test_no_more_calls_at_once_in_an_execution_than_its_plan_says() -> None:
    counted = Counted()
    async with engine_at("memory:", counted.tool) as engine:
        await result(await engine.start({**each(20), "max_parallel": 2}))
    assert counted.most == 2


async def test_an_execution_with_many_calls_does_not_starve_one_with_few() -> None:
    counted = Counted(concurrency=1, hold_s=0.005)
    async with engine_at("memory:", counted.tool) as engine:
        many = await engine.start(each(40))
        await until(lambda: len(counted.came) == 2)
        few = await engine.start(each(2))
        await result(few)
        assert len(counted.came) < 20
        await result(many)


async def test_calls_come_no_faster_than_the_rate_that_a_tool_declares() -> None:
    counted = Counted(rate="100/s")
    async with engine_at("memory:", counted.tool) as engine:
        runs = [await engine.start(each(10)) for _ in range(3)]
        for run in runs:
            await result(run)
    gaps = [after - before for before, after in zip(counted.at, counted.at[10:], strict=False)]
    assert min(gaps) > 0.05  # ten calls take a tenth of a second; a loop that was late may catch up a little


async def test_code_of_the_program_itself_takes_no_place_and_may_wait_for_steps() -> None:
    @holdfast.function
    async def nested(ctx: holdfast.Context) -> Any:
        async def inside() -> Any:
            return await ctx.call(echo, 5, name="inner")

        return await ctx.run("outer", inside)

    async with engine_at("memory:", echo, functions=[nested], limits=holdfast.Limits(steps=1)) as engine:
        assert await result(await engine.start(nested)) == 5


async def test_whoever_stands_in_line_says_so_and_gives_its_place_among_the_running_away() -> None:
    gate = Gate(concurrency=1)
    async with engine_at("memory:", gate.tool, echo, limits=holdfast.Limits(executions=2)) as engine:
        first = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        second = await engine.start(plan(step("b", "gate")))
        waiting = await seen(second, "task:waiting")
        assert isinstance(waiting.event, ev.TaskWaiting)
        reason = waiting.event.reasons[0]
        assert (reason.kind, reason.path, reason.name) == ("limit", "b", "gate")
        third = await engine.start(plan(step("c", "echo")))
        await result(third)
        gate.open.set()
        await result(first)
        await result(second)


@pytest.mark.parametrize("word", ["interrupt", "stop"])
async def test_whoever_stands_in_line_can_be_cut_and_is_never_called(word: str) -> None:
    gate = Gate(concurrency=1)
    async with engine_at("memory:", gate.tool) as engine:
        first = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        second = await engine.start(plan(step("b", "gate")))
        await seen(second, "task:waiting")
        await getattr(second, word)()
        gate.open.set()
        await result(first)
        assert "step:started" not in await names(second)
        if word == "interrupt":
            await engine.resume(second.id)
            await result(second)
    assert len(gate.calls) == (2 if word == "interrupt" else 1)


async def test_a_turn_that_comes_during_a_pause_goes_to_the_next_in_line() -> None:
    """The paused execution is still in memory, because another step of it runs."""
    gate, slow = Gate(concurrency=1), Gate("slow")
    both = plan(step("s", "slow", needs=[]), step("b", "gate", needs=[]))
    async with engine_at("memory:", gate.tool, slow.tool) as engine:
        first = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        paused = await engine.start(both)
        await slow.wait_entered()
        third = await engine.start(plan(step("c", "gate")))
        await seen(third, "task:waiting")
        await paused.pause()
        gate.open.set()
        await result(first)
        await result(third)
        assert len(gate.calls) == 2
        await engine.resume(paused.id)
        slow.open.set()
        await result(paused)
    assert len(gate.calls) == 3


async def test_who_waits_for_its_turn_holds_no_money() -> None:
    """The dear step waits for its tool; the cheap one beside it still has all the room there is."""
    gate = Gate(concurrency=1, cost=0.6)
    cheap = Gate("cheap", cost=0.6)
    cheap.open.set()
    both = plan(step("dear", "gate", needs=[]), step("cheap", "cheap", needs=[]), budget={"usd": 1.5})
    async with engine_at("memory:", gate.tool, cheap.tool) as engine:
        first = await engine.start(plan(step("a", "gate"), budget={"usd": 1}))
        await gate.wait_entered()
        run = await engine.start(both)
        await cheap.wait_entered()
        await seen(run, "task:waiting")
        state = await run.state()
        assert state.spend.reserved == {}
        assert state.spend.settled_micros == 600_000
        gate.open.set()
        await result(first)
        await result(run)


async def test_a_place_that_came_when_the_money_was_gone_is_given_back() -> None:
    gate = Gate(concurrency=1, cost=0.6)
    spender = Gate("spender", cost=0.6)
    both = plan(step("dear", "gate", needs=[]), step("other", "spender", needs=[]), budget={"usd": 1})
    async with engine_at("memory:", gate.tool, spender.tool) as engine:
        first = await engine.start(plan(step("a", "gate"), budget={"usd": 1}))
        await gate.wait_entered()
        run = await engine.start(both)  # `dear` is asked for first, finds room, and waits in line
        await spender.wait_entered()  # and now there is no room
        third = await engine.start(plan(step("c", "gate"), budget={"usd": 1}))
        await seen(third, "task:waiting")
        gate.open.set()
        await result(first)
        await result(third)
        spender.open.set()
        await seen(run, "budget:exhausted")
        await run.stop()


# ---- silence ---------------------------------------------------------------------------------------------------


async def test_a_tool_that_gives_no_sign_of_life_is_ended_like_one_whose_time_is_up() -> None:
    @holdfast.tool(effect="read", idle_timeout=0.05, retry=0)
    async def silent() -> None:
        await asyncio.sleep(3600)

    async with engine_at("memory:", silent) as engine:
        run = await engine.start(plan(step("a", "silent")))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "a")).failure
        assert failure is not None
        assert (failure.category, failure.message) == ("timeout", "silent gave no sign of life for 0.05 s")


@pytest.mark.parametrize("sign", ["say", "progress", "note", "print"])
def test_every_sign_of_life_counts(sign: str, lab: Lab) -> None:
    @holdfast.tool(effect="read", idle_timeout=30, retry=0)
    async def talking(call: holdfast.Call) -> str:
        for number in range(8):
            await asyncio.sleep(20)
            match sign:
                case "say":
                    call.say(f"{number}")
                case "progress":
                    call.progress(number)
                case "note":
                    await call.note(number)
                case _:
                    print(number)
        return "done"

    lab.use(talking)
    outcome = lab.run(plan(step("a", "talking")))
    assert (outcome.output, outcome.seconds) == ("done", 160)


# ---- fallbacks that a tool declares ----------------------------------------------------------------------------


@holdfast.tool(effect="read", retry=0, fallbacks=["broken_too", "second"])
async def first_choice(value: int) -> str:
    raise holdfast.Transient("not today")


@holdfast.tool(effect="read", retry=0)
async def broken_too(value: int) -> str:
    raise holdfast.Transient("neither")


@holdfast.tool(effect="read")
async def second(value: int, unit: str = "m") -> str:
    return f"{value} {unit}"


async def test_tools_that_a_tool_names_are_tried_in_order_in_plans_and_functions() -> None:
    @holdfast.function
    async def ask(ctx: holdfast.Context) -> str:
        return await ctx.call(first_choice, 4)

    async with engine_at("memory:", first_choice, broken_too, second, functions=[ask]) as engine:
        run = await engine.start(plan(step("a", "first_choice", **{"with": {"value": 3}})))
        assert await result(run) == "3 m"
        assert [event.tool for event in await events(run) if isinstance(event, ev.StepStarted)] == [
            "first_choice", "broken_too", "second",
        ]  # fmt: skip
        assert await result(await engine.start(ask)) == "4 m"


async def test_a_step_that_names_fallbacks_of_its_own_does_not_use_those_of_its_tool() -> None:
    async with engine_at("memory:", first_choice, broken_too, second, echo) as engine:
        run = await engine.start(plan(step("a", "first_choice", **{"with": {"value": 3}}, fallback="echo")))
        assert await result(run) == 3


async def test_a_plan_whose_arguments_do_not_fit_a_tools_fallback_is_refused() -> None:
    @holdfast.tool(effect="read", fallbacks=["strict"])
    async def loose(value: Any) -> None: ...

    @holdfast.tool(effect="read")
    async def strict(value: int) -> None: ...

    async with engine_at("memory:", loose, strict) as engine:
        with pytest.raises(holdfast.HoldfastError, match=r"with\.value: for its fallback strict: expected"):
            await engine.start(plan(step("a", "loose", **{"with": {"value": "x"}})))


@pytest.mark.parametrize(
    ("names_", "text"),
    [
        (["nobody"], "its fallback nobody does not exist"),
        (["second_"], 'its fallback second_ does not exist; did you mean "second"?'),
        (["echo2"], "its fallback echo2 cannot be called in its place: it takes no argument called value"),
        (["more"], "its fallback more cannot be called in its place: it needs the argument also, which may be missing"),
    ],
)
async def test_a_fallback_that_does_not_fit_is_told_when_the_engine_opens_and_stops_nobody_else(
    names_: list[str], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.tool(effect="read", fallbacks=names_)
    async def main(value: int) -> None: ...

    @holdfast.tool(effect="read")
    async def echo2(other: int = 0) -> None: ...

    @holdfast.tool(effect="read")
    async def more(value: int, also: int) -> None: ...

    async with engine_at("memory:", main, echo2, more, second) as engine:
        assert f"tool main at {main.place}: {text}" in caplog.text
        assert await (await engine.start(plan(step("a", "echo2")))).result() is None


# ---- without the cache -----------------------------------------------------------------------------------------


async def test_without_the_cache_every_tool_is_asked_anew_and_its_answer_is_kept_for_others(tmp_path: Path) -> None:
    answers = iter(range(10))

    @holdfast.tool(effect="read", cache="1h")
    async def clock() -> int:
        return next(answers)

    told = plan(step("a", "clock"))
    async with engine_at(tmp_path, clock) as engine:
        assert await result(await engine.start(told)) == 0
        assert await result(await engine.start(told)) == 0
        assert await result(await engine.start(told, cache=False)) == 1
        cached = await engine.start(told)
        assert await result(cached) == 1
        assert (await step_of(cached, "a")).cached
