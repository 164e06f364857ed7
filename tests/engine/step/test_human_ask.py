"""`human.ask`: a step that waits for a person, whatever becomes of the process meanwhile, and takes only what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import holdfast
from engine.kit import HURRY, echo, engine_at, names, plan, result, seen, settled, step
from holdfast.core import events as ev
from holdfast.core.commands import Command, encode_arguments, rule
from holdfast.core.errors import PlanInvalid, Refused
from holdfast.core.failure import describe

FORM = {
    "colour": {"choices": ["red", "blue"], "description": "of the door"},
    "count": {"type": "integer", "default": 1},
}


def ask(**asked: Any) -> dict[str, Any]:
    return step("ask", "human.ask", **{"with": {"question": "Which?", **asked}})


def then() -> dict[str, Any]:
    return step("a", "echo", **{"with": {"value": "${{ steps.ask.output }}"}})


async def test_the_answer_is_checked_completed_and_the_output_of_the_step() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(ask(form=FORM), then()))
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert (request.kind, request.message, request.expires_at) == ("question", "Which?", None)
        with pytest.raises(Refused) as refused:
            await run.answer("ask", {"colour": "green", "count": "two"})
        assert str(refused.value).splitlines() == [
            "ask: the answer does not fit:",
            '  colour: expected one of "red", "blue", got the string "green"',
            '  count: expected a whole number, got the string "two"',
        ]
        with pytest.raises(Refused, match='ask: colour: is missing: expected one of "red", "blue" \\(of the door\\)'):
            await run.answer("ask", {})
        assert (await run.state()).status == "waiting"
        await run.answer("ask", {"colour": "blue"}, by="ada")
        assert await result(run) == {"colour": "blue", "count": 1}
        assert (await run.state()).steps["ask"].by == "ada"


async def test_it_waits_through_restarts_and_holds_nothing(tmp_path: Path) -> None:
    asking = plan(ask(form=FORM), then())
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(asking)
        assert await settled(run) == "waiting"
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = engine.get(run.id)
        await run.answer("ask", {"colour": "red", "count": 3})
        assert await result(run) == {"colour": "red", "count": 3}
        assert (await names(run)).count("request:opened") == 1


async def test_silence_fails_the_step_or_takes_the_defaults() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(ask(type="string", expires="20ms")))
        with pytest.raises(holdfast.ExecutionFailed, match="nobody answered in time") as failed:
            await run.result()
        assert failed.value.failure.category == "timeout"
        run = await engine.start(plan(ask(default="red", expires="20ms", on_expiry="default"), then()))
        assert await result(run) == "red"
        form = {"colour": {"default": "red"}, "note": {"required": False}}
        run = await engine.start(plan(ask(form=form, expires="20ms", on_expiry="default"), then()))
        assert await result(run) == {"colour": "red", "note": None}
        assert "approval:expired" not in await names(run)


async def test_an_answer_in_time_keeps_silence_from_counting_and_a_late_one_is_refused() -> None:
    async with engine_at("memory:") as engine:
        run = await engine.start(plan(ask(type="string", expires="1h")))
        await seen(run, "task:waiting")
        state = await run.state()
        said = encode_arguments(step="ask", data=Raw(b'"blue"'))
        late = Command(id="x", execution_id=run.id, verb="answer", at=0, arguments=said)
        ruling = rule(state, late, state.steps["ask"].due_at or 0)
        assert (ruling.outcome, ruling.text) == ("refused", "ask expired before it was answered")
        (event,) = ruling.events
        assert isinstance(event, ev.RequestAnswered)
        assert event.remedy == "expired"
        await run.answer("ask", "blue")
        assert await result(run) == "blue"


async def test_a_failure_that_may_happen_does_not_end_the_plan() -> None:
    async with engine_at("memory:", echo) as engine:
        asking = {**ask(expires="10ms"), "critical": False}
        after = step("b", "echo", **{"with": {"value": "${{ steps.ask.status }}"}})
        assert await result(await engine.start(plan(asking, after))) == "failed"


async def test_each_item_asks_its_own_question() -> None:
    each = {**ask(question="${{ item }}?", type="integer"), "for_each": ["one", "two"]}
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(each, then()))
        assert await settled(run) == "waiting"
        for asked in list((await run.state()).open_requests()):
            await run.answer(asked.request.path, 1 if asked.request.message == "one?" else 2)
        assert await result(run) == [1, 2]


async def test_functions_ask_with_a_form_too(tmp_path: Path) -> None:
    @holdfast.function
    async def order(ctx: holdfast.Context) -> Any:
        first = await ctx.ask("Which?", form=FORM, expires="1d", name="first")
        second = await ctx.call("human.ask", "How many?", type="integer", choices=[1, 2], name="second")
        return [first, second]

    async with engine_at(tmp_path, functions=[order], limits=HURRY) as engine:
        run = await engine.start(order)
        assert await settled(run) == "waiting"
        await run.answer("first", {"colour": "red"})
        assert await settled(run) == "waiting"
        with pytest.raises(Refused, match="second: expected one of 1, 2, got the number 3"):
            await run.answer("second", 3)
        await run.answer("second", 2)
        assert await result(run) == [{"colour": "red", "count": 1}, 2]


async def test_a_function_that_asks_something_else_on_replay_is_stopped(tmp_path: Path) -> None:
    changed = False

    @holdfast.function
    async def order(ctx: holdfast.Context) -> Any:
        return await ctx.ask("Which?", form={"colour": "string"} if not changed else {"size": "string"})

    async with engine_at(tmp_path, functions=[order], limits=HURRY) as engine:
        run = await engine.start(order)
        assert await settled(run) == "waiting"
    changed = True
    async with engine_at(tmp_path, functions=[order], limits=HURRY, check=False) as engine:
        run = engine.get(run.id)
        await run.answer("ask", {"colour": "red"})
        with pytest.raises(holdfast.HoldfastError, match=r"human\.ask"):
            await run.result()


async def test_what_an_expression_makes_of_a_question_is_checked_when_it_is_due() -> None:
    async with engine_at("memory:", echo) as engine:
        given = plan(step("a", "echo", **{"with": {"value": "colour"}}), ask(type="${{ steps.a.output }}"))
        run = await engine.start(given)
        assert await settled(run) == "waiting"
        [asked] = (await run.state()).open_requests()
        assert asked.request.kind == "correction"
        assert 'human.ask: type: expected one of "string"' in asked.request.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"with": {}}, "steps[0].with.question: is missing: expected a string"),
        ({"with": {"question": " "}}, "steps[0].with.question: expected a question, got nothing"),
        ({"with": {"question": "?", "form": {}}}, "steps[0].with.form: expected 1 to 50 fields, got 0"),
        ({"with": {"question": "?", "form": {"a": "colour"}}}, "steps[0].with.form"),
        ({"with": {"question": "?", "form": {"a": {"tpye": "string"}}}}, "steps[0].with.form"),
        (
            {"with": {"question": "?", "form": {"a": {"type": "integer", "choices": [1, "b"]}}}},
            'steps[0].with.form.a.choices[1]: expected a whole number, got the string "b"',
        ),
        (
            {"with": {"question": "?", "form": {"a": {"choices": ["x"], "default": "y"}}}},
            'steps[0].with.form.a.default: expected one of "x", got the string "y"',
        ),
        ({"with": {"question": "?", "choices": []}}, "steps[0].with.choices: expected 1 to 200 choices, got 0"),
        (
            {"with": {"question": "?", "type": "boolean", "choices": [True]}},
            "steps[0].with.choices: boolean has none; leave them out",
        ),
        (
            {"with": {"question": "?", "form": {"a": "string"}, "default": 1}},
            "steps[0].with.form: the fields have types, choices and defaults of their own; say them there",
        ),
        ({"with": {"question": "?", "expires": "soon"}}, "steps[0].with.expires: expected a duration such as"),
        (
            {"with": {"question": "?", "on_expiry": "default"}},
            'steps[0].with.default: is missing: with on_expiry "default" silence is answered by it',
        ),
        (
            {"with": {"question": "?", "default": 1, "on_expiry": "default"}},
            "steps[0].with.on_expiry: goes with expires; say after how long",
        ),
        (
            {"with": {"question": "?"}, "timeout": 5},
            "steps[0].timeout: goes with tools that act, and human.ask waits for a person; "
            "say expires among its arguments",
        ),
        ({"with": {"question": "?"}, "approval": True}, "steps[0].approval: goes with tools that act"),
        (
            {"tool": "echo", "with": {"value": 1}, "fallback": "human.ask"},
            "steps[0].fallback: human.ask waits for a person and cannot stand in for a tool; make it a step of its own",
        ),
    ],
)
async def test_mistakes_are_found_before_anything_starts(changed: dict[str, Any], said: str) -> None:
    async with engine_at("memory:", echo) as engine:
        with pytest.raises(PlanInvalid) as invalid:
            await engine.check(plan({"id": "ask", "tool": "human.ask", **changed}))
    assert said in str(invalid.value)


async def test_it_is_listed_like_any_tool_and_says_why_it_cannot_be_called(tmp_path: Path) -> None:
    async with engine_at("memory:") as engine:
        tool = engine.services.registry.get("human.ask")
        assert (tool.effect, tool.schema()["required"]) == ("read", ["question"])
        assert tool.description.startswith("Ask a person.")
        with pytest.raises(
            holdfast.ToolError, match=r"human.ask waits for a person, so it only works as a step"
        ) as caught:
            await tool("?")
        assert describe(caught.value).category == "tool"
