"""Functions: the paths of their steps, what is the same on every replay, and what they may not do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, broken, echo, engine_at, names, result, seen, step_of
from holdfast.core.errors import InputInvalid, UsageError


async def paths_of(function: Any, *tools: Any, **inputs: Any) -> list[str]:
    async with engine_at("memory:", *tools, functions=[function]) as engine:
        run = await engine.start(function, inputs=inputs)
        await result(run)
        return list((await run.state()).steps)


async def failure_of(function: Any, **inputs: Any) -> str:
    async with engine_at("memory:", functions=[function]) as engine:
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await result(await engine.start(function, inputs=inputs))
        return str(failed.value)


# ---- paths ---------------------------------------------------------------------------------------------------------


async def test_path_is_scope_name_and_occurrence() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        await ctx.call(echo, 1)
        await ctx.call(echo, 2)
        await ctx.call("echo", value=3, name="third")
        await ctx.gather(ctx.call(echo, 4), ctx.call(echo, 5))
        await ctx.gather(inside, inside)
        await ctx.gather(inside)
        inner = ctx.branch("side")
        await inner.call(echo, 6)
        await ctx.run("plain", lambda: 7)
        ctx.now()
        ctx.now()

    async def inside(ctx: holdfast.Context) -> None:
        await ctx.call(echo, 0)
        await ctx.call(echo, 0)

    paths = await paths_of(program, echo)
    assert sorted(paths) == sorted([
        "echo", "echo~2", "third", "echo~3", "echo~4",
        "gather~2[0]/echo", "gather~2[1]/echo", "gather~2[0]/echo~2", "gather~2[1]/echo~2",
        "gather~3[0]/echo", "gather~3[0]/echo~2", "side/echo", "plain", "now", "now~2",
    ])  # fmt: skip


async def test_call_from_another_task_needs_a_name() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        async def elsewhere() -> None:
            await ctx.call(echo, 1)

        with pytest.raises(UsageError) as refused:
            await asyncio.create_task(elsewhere())

        async def named() -> Any:
            return await ctx.call(echo, 2, name="mine")

        assert await asyncio.create_task(named()) == 2
        branch = ctx.branch("free")
        assert await asyncio.create_task(branch.call(echo, 3)) == 3  # type: ignore[arg-type]
        return str(refused.value)

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        assert await result(run) == (
            "echo: a step asked for from another asyncio task needs a name, because tasks run in any order; "
            "pass name=…, or use ctx.gather or ctx.branch"
        )
        assert list((await run.state()).steps) == ["mine", "free/echo"]


@pytest.mark.parametrize("name", ["a/b", "a[1]", "a~2", "a#1", ""])
async def test_names_with_a_meaning_in_paths_are_refused(name: str) -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context, name: str) -> None:
        await ctx.run(name, lambda: None)

    text = await failure_of(program, name=name)
    assert text == f'"{name}" cannot name a step; use letters, digits, dots, dashes and underscores'


async def test_only_tools_can_be_called_and_only_known_names() -> None:
    async def plain() -> None: ...

    @holdfast.function
    async def program(ctx: holdfast.Context, known: bool) -> None:
        await ctx.call("nothing.like.it" if known else plain)  # type: ignore[arg-type]

    assert "decorate it with @tool, or use ctx.run for code" in await failure_of(program, known=False)
    assert 'no tool called "nothing.like.it"' in await failure_of(program, known=True)


# ---- replay --------------------------------------------------------------------------------------------------------


async def test_arguments_reach_a_tool_whose_parameters_are_named_like_those_of_call() -> None:
    @holdfast.tool(name="label", effect="read")
    def label(name: str, policy: str = "", arguments: str = "") -> str:
        return f"{name} {policy} {arguments}"

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        more = {"policy": "strict", "arguments": "all"}
        return await ctx.call(label, "Ada", name="step", arguments=more)

    async with engine_at("memory:", label, functions=[program]) as engine:
        run = await engine.start(program)
        assert await result(run) == "Ada strict all"
        assert list((await run.state()).steps) == ["step"]

    async def failed(call: Any) -> str:
        @holdfast.function
        async def wrong(ctx: holdfast.Context) -> None:
            await call(ctx)

        return await failure_of(wrong)

    assert 'give that one with arguments={"name": …}' in await failed(lambda ctx: ctx.call(label, name="Ada"))
    twice = await failed(lambda ctx: ctx.call(echo, value=1, arguments={"value": 2}))
    assert "echo: value: given twice, by name and in arguments; give it once" in twice
    given = await failed(lambda ctx: ctx.call(echo, 1, arguments={"value": 2}))
    assert "echo: value: given twice, by position and by name; give it once" in given
    assert "arguments: expected a mapping" in await failed(lambda ctx: ctx.call(echo, arguments=[1]))


async def test_time_chance_and_plain_code_are_the_same_on_every_replay(tmp_path: Path) -> None:
    runs: list[list[Any]] = []
    counter = iter(range(100))

    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[Any]:
        async def later() -> int:
            return next(counter)

        values = [
            ctx.now().isoformat(),
            ctx.random(),
            ctx.uuid(),
            await ctx.run("n", next, counter),
            await ctx.run("m", later),
        ]
        runs.append(values)
        await ctx.wait_for("go")
        return values

    async with engine_at(tmp_path, functions=[program], limits=HURRY) as engine:
        run = await engine.start(program)
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, functions=[program]) as engine:
        await engine.get(run.id).send("go")
        assert await result(engine.get(run.id)) == runs[0]
    assert len(runs) == 2
    assert runs[0] == runs[1]
    assert next(counter) == 2


async def test_failure_is_raised_again_on_a_replay_without_running_again(tmp_path: Path) -> None:
    script = Script(holdfast.ToolError("no"))

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        try:
            await ctx.call(script.tool)
        except holdfast.StepFailed as error:
            await ctx.wait_for("go")
            return f"lived with {error}"
        return ""

    async with engine_at(tmp_path, functions=[program], limits=HURRY) as engine:
        run = await engine.start(program)
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, functions=[program]) as engine:
        await engine.get(run.id).send("go")
        assert await result(engine.get(run.id)) == "lived with script: no"
    assert len(script.calls) == 1


async def test_answers_come_back_as_the_tool_declares_them(tmp_path: Path) -> None:
    @dataclass
    class Point:
        x: int
        y: int

    @holdfast.tool(effect="once")
    async def locate() -> Point:
        raise ConnectionResetError("gone")

    @holdfast.tool(effect="read")
    async def origin() -> Point:
        return Point(0, 0)

    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[Any]:
        here = await ctx.call(origin)
        assert isinstance(here, Point)
        there = await ctx.call(locate)
        return [here.x, there if isinstance(there, str) else there.x]

    async with engine_at(tmp_path, functions=[program]) as engine:
        for supplied, expected in (({"x": 5, "y": 6}, [0, 5]), ("somewhere", [0, "somewhere"])):
            run = await engine.start(program)
            await run.settled()
            try:
                await run.resolve("locate", "done", output=supplied)
            except InputInvalid:
                await run.stop()
                continue
            assert await result(run) == expected


# ---- waiting and side by side --------------------------------------------------------------------------------------


async def test_sleeping_and_waiting_for_events() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> Any:
        await ctx.sleep("1ms")
        await ctx.sleep(0.001, name="nap")
        await ctx.sleep_until(datetime.now(UTC) - timedelta(days=1))
        await ctx.sleep_until("2020-01-01T00:00:00Z")
        with pytest.raises(holdfast.StepFailed, match=r'wait_for\.never: no event "never" arrived in time'):
            await ctx.wait_for("never", timeout=0.01)
        return await ctx.wait_for("go", timeout="1h")

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await run.send("go", [1])
        assert await result(run) == [1]
        assert list((await run.state()).steps) == [
            "sleep",
            "nap",
            "sleep~2",
            "sleep~3",
            "wait_for.never",
            "wait_for.go",
        ]


async def test_gather_runs_side_by_side_and_keeps_the_order() -> None:
    one, two = Gate("one"), Gate("two")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[Any]:
        async def branch(inner: holdfast.Context) -> Any:
            return await inner.call(two.tool, 2)

        return await ctx.gather(ctx.call(one.tool, 1), branch)

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await one.wait_entered()
        await two.wait_entered()
        two.open.set()
        one.open.set()
        assert await result(run) == [1, 2]


async def test_task_group_in_a_function_fails_with_the_error_inside() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.call(broken, name="a"))  # type: ignore[arg-type]

    assert await failure_of(program) == "it is broken"


async def test_function_that_cancels_itself_fails_and_says_so() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        raise asyncio.CancelledError

    assert await failure_of(program) == "the program was cancelled from inside"


async def test_function_that_leaves_the_interpreter_only_fails_itself() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        raise SystemExit(2)

    assert await failure_of(program) == "SystemExit: 2"


async def test_suspension_is_not_swallowed_by_a_broad_except(tmp_path: Path) -> None:
    swallowed: list[BaseException] = []

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        try:
            await ctx.wait_for("go")
        except Exception as error:
            swallowed.append(error)
        return "went"

    async with engine_at(tmp_path, functions=[program], limits=HURRY) as engine:
        run = await engine.start(program)
        await seen(run, "task:waiting")
    assert swallowed == []
    async with engine_at(tmp_path, functions=[program]) as engine:
        await engine.get(run.id).send("go")
        assert await result(engine.get(run.id)) == "went"


# ---- policies, inputs, declaring -----------------------------------------------------------------------------------


async def test_policy_of_a_call_goes_before_the_tools_own() -> None:
    script = Script(holdfast.Transient("a"), holdfast.Transient("b"), "ok", effect="once")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        policy = holdfast.StepPolicy(effect="read", retry=holdfast.Retry(max=2, first_s=0.001))
        return await ctx.call(script.tool, policy=policy)

    async with engine_at("memory:", functions=[program]) as engine:
        assert await result(await engine.start(program)) == "ok"


async def test_plain_code_is_idempotent_unless_it_says_once() -> None:
    attempts: list[int] = []

    def fails() -> None:
        attempts.append(1)
        raise ConnectionResetError("gone")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        await ctx.run("risky", fails, effect="once")

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        assert (await run.settled()).status == "waiting"
        assert (await step_of(run, "risky")).status == "in_doubt"
        await run.resolve("risky", "skip")
        await result(run)
    assert len(attempts) == 1


@dataclass
class Order:
    item: str
    count: int = 1


async def test_inputs_are_checked_and_typed() -> None:
    @holdfast.function
    async def buy(ctx: holdfast.Context, order: Order, note: str = "") -> str:
        assert isinstance(order, Order)
        return f"{order.count} {order.item}{note}, {ctx.id[:2]}"

    async with engine_at("memory:", functions=[buy]) as engine:
        assert await result(await engine.start("buy", inputs={"order": {"item": "pen"}})) == "1 pen, 01"
        for inputs in ({}, {"order": {"item": 3}}, {"order": {"item": "x"}, "colour": "red"}):
            with pytest.raises(InputInvalid):
                await engine.start(buy, inputs=inputs)
        assert len(await engine.list()) == 1


async def test_annotation_that_names_nothing_is_a_clear_error() -> None:
    @holdfast.function
    async def puzzled(ctx: holdfast.Context, thing: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    async with engine_at("memory:", functions=[puzzled]) as engine:
        with pytest.raises(UsageError) as refused:
            await engine.start(puzzled, inputs={"thing": 1})
        text = (
            "puzzled: its annotations cannot be read (name 'Nothing' is not defined); import or define what they name"
        )
        assert str(refused.value) == text


async def test_output_that_is_no_json_fails_with_a_clear_text() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> Any:
        return object()

    assert "the output of program" in await failure_of(program)


async def test_function_is_declared_right_or_refused() -> None:
    with pytest.raises(UsageError, match="@function is for `async def`"):
        holdfast.function(lambda ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="a function's first parameter is its context; write"):

        @holdfast.function
        async def nothing() -> None: ...

    @holdfast.function(name="another.name")
    async def program(ctx: Any, word: str) -> str:
        return word

    assert repr(program) == "<function another.name>"
    assert await program(None, "direct") == "direct"


async def test_unknown_function_is_named_with_those_there_are() -> None:
    @holdfast.function
    async def here(ctx: holdfast.Context) -> None: ...

    async with engine_at("memory:", functions=[here]) as engine:
        with pytest.raises(holdfast.HoldfastError) as refused:
            await engine.start("there")
        text = (
            'there is no program "there": give a plan file (.yaml, .yml, .json) or the name of a function (here); '
            'did you mean "here"?'
        )
        assert str(refused.value) == text
        assert await engine.check(here) == []


async def test_events_of_a_function_tell_its_story() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> int:
        return await ctx.call(echo, 1)

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await result(run)
        assert await names(run) == ["task:created", "task:started", "step:started", "step:completed", "task:completed"]
