"""A kept outcome counts only while its input is the recorded one (rule 20)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, echo, engine_at, events, plan, result, settled, step, step_of
from holdfast.core import events as ev

NO = holdfast.ToolError("no")


def using(step_id: str, tool: str, value: str, **others: Any) -> dict[str, Any]:
    return step(step_id, tool, **{"with": {"value": value}}, **others)


def tools_named(*names: str, effect: str = "read") -> list[Script]:
    return [Script(name=name, effect=effect) for name in names]


async def ask_of(run: holdfast.Run) -> ev.Request:
    (asked,) = (await run.state()).open_requests()
    return asked.request


# ---- what follows a changed step is run again ------------------------------------------------------------------


async def test_retry_runs_again_what_used_the_null_of_a_failed_step(tmp_path: Path) -> None:
    first, last = Script(NO, "found", name="first"), Script(NO, "done", name="last")
    work = plan(
        step("a", "first", critical=False), using("b", "echo", "${{ steps.a.output }}"), step("c", "last"),
        output="${{ steps.b.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, first.tool, last.tool, echo) as engine:
        run = await engine.start(work)
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id)) == "found"


async def test_retry_runs_again_what_used_the_list_with_a_failed_item(tmp_path: Path) -> None:
    pages, last = Script("p0", NO, "p2", "p1", name="page"), Script(NO, name="last")
    work = plan(
        using("pages", "page", "${{ item }}", for_each=[0, 1, 2], max_parallel=1, critical=False),
        using("all", "echo", "${{ steps.pages.output }}"), step("c", "last"),
        output="${{ steps.all.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, pages.tool, last.tool, echo) as engine:
        run = await engine.start(work)
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id)) == ["p0", "p1", "p2"]
    assert pages.arguments == [0, 1, 2, 1]


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("way", ["retry", "from", "fork"])
async def test_other_inputs_run_again_what_they_reach_and_nothing_else(tmp_path: Path, effect: Any, way: str) -> None:
    a, b, c = tools_named("a", "b", "c", effect=effect)
    last = Script(NO, "end", name="last")
    work = plan(
        using("a", "a", "${{ inputs.x }}"), using("b", "b", "fixed"), using("c", "c", "${{ steps.a.output }}"),
        step("last", "last"), output="${{ steps.c.output }}", inputs={"x": "integer"},
    )  # fmt: skip
    async with engine_at(tmp_path, a.tool, b.tool, c.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, from_step="last" if way != "retry" else "", inputs={"x": 2})
        assert await result(again) == 2
        if way == "fork":
            assert await result(await engine.fork(again.id, at="last")) == 2
    assert (a.arguments, b.arguments, c.arguments) == ([1, 2], ["fixed"], [1, 2])


async def test_a_plan_with_another_input_for_a_step_runs_it_again(tmp_path: Path) -> None:
    a, last = Script(name="a"), Script(NO, "end", name="last")
    async with engine_at(tmp_path, a.tool, last.tool) as engine:
        run = await engine.start(plan(using("a", "a", "old"), step("last", "last")))
        assert await settled(run) == "failed"
        again = await engine.retry(
            run.id, program=plan(using("a", "a", "new"), step("last", "last"), output="${{ steps.a.output }}")
        )
        assert await result(again) == "new"
    assert a.arguments == ["old", "new"]


async def test_a_function_with_other_inputs_runs_again_what_they_reach(tmp_path: Path) -> None:
    a, b, last = Script(name="a"), Script(name="b"), Script(NO, "end", name="last")

    @holdfast.function
    async def work(ctx: holdfast.Context, x: int) -> Any:
        found = await ctx.call(a.tool, x)
        await ctx.call(b.tool, "fixed")
        await ctx.call(last.tool)
        return found

    async with engine_at(tmp_path, a.tool, b.tool, last.tool, functions=[work]) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id, inputs={"x": 2})) == 2
    assert (a.arguments, b.arguments) == ([1, 2], ["fixed"])


async def test_retry_from_a_step_of_a_retry_runs_again_what_came_after_it_in_the_first_run(tmp_path: Path) -> None:
    """The failed step has no copy, so the outcomes that came after it stand before its first attempt in the retry."""
    b, d, last = Script(NO, "b1", "b2", name="b"), Script(name="d"), Script(NO, NO, "end", name="last")
    work = plan(step("b", "b", critical=False), step("d", "d"), step("last", "last"))
    async with engine_at(tmp_path, b.tool, d.tool, last.tool) as engine:
        run = await engine.start(work)
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "failed"
        assert len(d.calls) == 1
        assert await result(await engine.retry(again.id, from_step="b")) == "end"
    assert (len(b.calls), len(d.calls)) == (3, 2)


async def test_retry_from_a_step_of_a_function_runs_again_what_came_after_it_in_the_first_run(tmp_path: Path) -> None:
    b, d, last = Script(NO, "b1", "b2", name="b"), Script(name="d"), Script(NO, NO, "end", name="last")

    @holdfast.function
    async def work(ctx: holdfast.Context) -> None:
        with suppress(holdfast.StepFailed):
            await ctx.call(b.tool)
        await ctx.call(d.tool)
        await ctx.call(last.tool)

    async with engine_at(tmp_path, b.tool, d.tool, last.tool, functions=[work]) as engine:
        run = await engine.start(work)
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "failed"
        await result(await engine.retry(again.id, from_step="b"))
    assert (len(b.calls), len(d.calls)) == (3, 2)


# ---- a once step that has another input now waits for a person -------------------------------------------------


def paying(value: str = "${{ inputs.x }}", **others: Any) -> dict[str, Any]:
    return plan(
        using("pay", "pay", value, **others), step("last", "last"), output="${{ steps.pay.output }}",
        inputs={"x": "integer"},
    )  # fmt: skip


async def test_a_completed_once_step_with_another_input_waits_for_a_person_who_sees_both(tmp_path: Path) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, "end", name="last")
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        run = await engine.start(paying(), inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
        asked = await ask_of(again)
        assert (asked.kind, asked.path, asked.remedies) == ("correction", "pay", ("done", "again", "skip"))
        assert (bytes(asked.recorded), bytes(asked.arguments)) == (b'{"value":1}', b'{"value":2}')
        assert '{"value":1}' in asked.message
        assert '{"value":2}' in asked.message
    assert pay.arguments == [1]


@pytest.mark.parametrize(("remedy", "output", "paid"), [("done", 1, [1]), ("again", 2, [1, 2]), ("skip", None, [1])])
async def test_what_a_person_says_about_a_changed_once_step_is_done(
    tmp_path: Path, remedy: str, output: Any, paid: list[int]
) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, "end", name="last")
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        run = await engine.start(paying(), inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
        await again.resolve("pay", remedy)
        assert await result(again) == output
        keys = {call.key for call in pay.calls}
    assert pay.arguments == paid
    assert len(keys) == len(paid)


async def test_an_answer_about_a_changed_once_step_holds_for_the_retry_of_the_retry(tmp_path: Path) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, NO, "end", name="last")
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        run = await engine.start(paying(), inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
        await again.resolve("pay", "done")
        assert await settled(again) == "failed"
        assert await result(await engine.retry(again.id)) == 1
        third = await engine.retry(again.id, inputs={"x": 3}, again=True)
        assert await settled(third) == "waiting"
    assert pay.arguments == [1]


async def test_a_question_about_a_changed_once_step_survives_a_restart(tmp_path: Path) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, "end", name="last")
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        run = await engine.start(paying(), inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        again = engine.get(again.id)
        assert await settled(again) == "waiting"
        await again.resolve("pay", "again")
        assert await result(again) == 2
        kinds = [type(event) for event in await events(again)]
    assert kinds.count(ev.RequestOpened) == 1


async def test_the_items_of_one_for_each_are_one_request(tmp_path: Path) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, "end", name="last")
    work = paying("${{ item * inputs.x }}", for_each=[1, 2, 3])
    async with engine_at(tmp_path, pay.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        kept = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(kept) == "waiting"
        asked = await ask_of(kept)
        assert (asked.path, asked.remedies) == ("pay", ("done", "again"))
        for item in range(3):
            assert f"pay[{item}]" in asked.message
        await kept.resolve("pay", "done")
        assert await result(kept) == [1, 2, 3]
        assert len(pay.calls) == 3
        again = await engine.retry(run.id, inputs={"x": 2}, again=True)
        assert await settled(again) == "waiting"
        await again.resolve("pay", "again")
        assert await result(again) == [2, 4, 6]
    assert len(pay.calls) == 6


async def test_a_function_asks_about_a_changed_once_step(tmp_path: Path) -> None:
    pay, last = Script(name="pay", effect="once"), Script(NO, "end", name="last")

    @holdfast.function
    async def work(ctx: holdfast.Context, x: int) -> Any:
        paid = await ctx.call(pay.tool, x)
        await ctx.call(last.tool)
        return paid

    async with engine_at(tmp_path, pay.tool, last.tool, functions=[work]) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
        await again.resolve("pay", "again")
        assert await result(again) == 2


# ---- conditions, lists, waits, people, children ----------------------------------------------------------------


async def test_a_condition_that_is_false_now_skips_a_kept_read_and_asks_about_a_kept_once_step(tmp_path: Path) -> None:
    look, pay, last = Script(name="look"), Script(name="pay", effect="once"), Script(NO, "end", name="last")
    work = plan(
        using("look", "look", "1", when="${{ inputs.x == 1 }}"), using("pay", "pay", "1", when="${{ inputs.x == 1 }}"),
        step("last", "last"), inputs={"x": "integer"}, output="${{ steps.look.status + steps.pay.status }}",
    )  # fmt: skip
    async with engine_at(tmp_path, look.tool, pay.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(again) == "waiting"
        assert (await ask_of(again)).remedies == ("done", "skip")
        await again.resolve("pay", "skip")
        assert await result(again) == "skippedskipped"
        kept = await engine.retry(run.id, inputs={"x": 2}, again=True)
        assert await settled(kept) == "waiting"
        await kept.resolve("pay", "done")
        assert await result(kept) == "skippedcompleted"
    assert (len(look.calls), len(pay.calls)) == (1, 1)


async def test_items_are_matched_by_key_when_the_list_changes(tmp_path: Path) -> None:
    page, last = Script(name="page"), Script(NO, "end", name="last")
    work = plan(
        using("pages", "page", "${{ item }}", for_each="${{ inputs.names }}", key="${{ item }}"), step("last", "last"),
        inputs={"names": "list"}, output="${{ steps.pages.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, page.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"names": ["a", "b", "c"]})
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id, inputs={"names": ["c", "d", "a"]})) == ["c", "d", "a"]
    assert page.arguments == ["a", "b", "c", "d"]


async def test_an_approval_of_something_else_is_asked_for_again(tmp_path: Path) -> None:
    last = Script(NO, NO, "end", name="last")
    work = plan(
        {"id": "ok", "approval": {"message": "spend ${{ inputs.x }}?"}}, step("last", "last"), inputs={"x": "integer"}
    )
    async with engine_at(tmp_path, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "waiting"
        await run.approve()
        assert await settled(run) == "failed"
        same = await engine.retry(run.id)
        assert await settled(same) == "failed"
        other = await engine.retry(same.id, inputs={"x": 2})
        assert await settled(other) == "waiting"
        assert (await ask_of(other)).message == "spend 2?"
        await other.approve()
        assert await result(other) == "end"


@pytest.mark.parametrize("kind", ["plan", "ask", "wait"])
async def test_another_question_is_asked_again(tmp_path: Path, kind: str) -> None:
    last = Script(NO, "end", name="last")

    @holdfast.function
    async def work(ctx: holdfast.Context, x: str) -> Any:
        said = await ctx.ask(x, name="q") if kind == "ask" else await ctx.wait_for(x, name="q")
        await ctx.call(last.tool)
        return said

    asking = plan(
        {"id": "q", "tool": "human.ask", "with": {"question": "${{ inputs.x }}"}}, step("last", "last"),
        inputs={"x": "string"}, output="${{ steps.q.output }}",
    )  # fmt: skip

    async def tell(run: holdfast.Run, said: str, name: str) -> None:
        if kind == "wait":
            await run.send(name, said)
        else:
            assert await settled(run) == "waiting"
            await run.answer("q", said)

    async with engine_at(tmp_path, last.tool, functions=[work]) as engine:
        run = await engine.start(asking if kind == "plan" else work, inputs={"x": "one"})
        await tell(run, "first", "one")
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"x": "two"})
        await tell(again, "second", "two")
        assert await result(again) == "second"


@pytest.mark.parametrize("is_plan", [True, False])
async def test_a_child_with_other_inputs_runs_again_and_asks_about_what_it_had_done_once(
    tmp_path: Path, is_plan: bool
) -> None:
    look, pay, put = Script(name="look"), Script(name="pay", effect="once"), Script(name="put", effect="idempotent")
    last = Script(NO, "end", name="last")

    @holdfast.function
    async def inner(ctx: holdfast.Context, x: int) -> Any:
        await ctx.call(look.tool, "fixed")
        await ctx.call(pay.tool, "fixed")
        return await ctx.call(put.tool, x)

    @holdfast.function
    async def outer(ctx: holdfast.Context, x: int) -> Any:
        found = await (await ctx.start(inner, {"x": x})).result()
        await ctx.call(last.tool)
        return found

    work = plan(
        {"id": "c", "start": "inner", "with": {"x": "${{ inputs.x }}"}}, step("last", "last"),
        inputs={"x": "integer"}, output="${{ steps.c.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, look.tool, pay.tool, put.tool, last.tool, functions=[inner, outer]) as engine:
        run = await engine.start(work if is_plan else outer, inputs={"x": 1})
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id, inputs={"x": 2})) == 2
    assert (len(look.calls), len(pay.calls), put.arguments) == (1, 1, [1, 2])


async def test_a_child_is_found_through_a_retry_that_never_came_to_it(tmp_path: Path) -> None:
    pay, bad = Script(name="pay", effect="once"), Script(NO, NO, "fine", name="bad")
    a = Script("a", holdfast.ToolError("again"), "a", name="a")

    @holdfast.function
    async def inner(ctx: holdfast.Context) -> Any:
        await ctx.call(pay.tool)
        return await ctx.call(bad.tool)

    work = plan(using("a", "a", "${{ inputs.x }}"), {"id": "c", "start": "inner"}, inputs={"x": "integer"})
    bad.answers = [NO, "fine"]
    async with engine_at(tmp_path, pay.tool, bad.tool, a.tool, functions=[inner]) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        second = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(second) == "failed"
        third = await engine.retry(second.id)
        assert await result(third) == "fine"
    assert len(pay.calls) == 1


# ---- doubts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ask", "retry"])
@pytest.mark.parametrize(("remedy", "paid"), [("done", [1]), ("again", [1, 2])])
async def test_a_doubt_about_another_input_is_settled_by_a_person_who_sees_both(
    tmp_path: Path, policy: str, remedy: str, paid: list[int]
) -> None:
    pay = Script(TimeoutError("no answer"), name="pay", effect="once", in_doubt="ask")
    work = plan(using("pay", "pay", "${{ inputs.x }}"), inputs={"x": "integer"})
    mended = plan(using("pay", "pay", "${{ inputs.x }}", in_doubt=policy), inputs={"x": "integer"})
    async with engine_at(tmp_path, pay.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "waiting"
        await run.stop()
        again = await engine.retry(run.id, program=mended, inputs={"x": 2})
        assert await settled(again) == "waiting"
        asked = await ask_of(again)
        assert (asked.kind, bytes(asked.recorded), bytes(asked.arguments)) == (
            "doubt", b'{"value":1}', b'{"value":2}',
        )  # fmt: skip
        await again.resolve("pay", remedy, output="by hand" if remedy == "done" else None)
        assert await result(again) == ("by hand" if remedy == "done" else 2)
        keys = [call.key for call in pay.calls]
    assert pay.arguments == paid
    assert len(set(keys)) == len(paid)


@pytest.mark.parametrize("happened", [True, False])
async def test_a_check_is_asked_about_the_input_in_doubt_and_not_about_the_new_one(
    tmp_path: Path, happened: bool
) -> None:
    pay = Script(TimeoutError("no answer"), name="pay", effect="once", in_doubt="verify")
    checked: list[tuple[str, Any]] = []
    is_down = True

    @pay.tool.verify
    async def check(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        if is_down:
            return holdfast.Unknown()
        checked.append((call.key, arguments["value"]))
        return holdfast.Happened("paid") if happened else holdfast.DidNotHappen()

    work = plan(using("pay", "pay", "${{ inputs.x }}"), inputs={"x": "integer"})
    async with engine_at(tmp_path, pay.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "waiting"
        await run.stop()
        is_down = False
        again = await engine.retry(run.id, inputs={"x": 2})
        if happened:  # with the input of then: a person decides whether that is enough
            assert await settled(again) == "waiting"
            assert (await ask_of(again)).kind == "correction"
            await again.resolve("pay", "done")
        assert await result(again) == ("paid" if happened else 2)
    assert checked == [(f"{run.id}:pay", 1)]
    assert pay.arguments == ([1] if happened else [1, 2])


# ---- other ways ------------------------------------------------------------------------------------------------


async def test_the_outcome_of_a_fallback_counts_only_for_the_input_of_that_fallback(tmp_path: Path) -> None:
    first, other, last = Script(NO, NO, name="first"), Script(name="other"), Script(NO, "end", name="last")
    work = plan(
        step("a", "first", fallback={"tool": "other", "with": {"value": "${{ inputs.x }}"}}), step("last", "last"),
        inputs={"x": "integer"}, output="${{ steps.a.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, first.tool, other.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        assert await result(await engine.retry(run.id, inputs={"x": 2})) == 2
    assert other.arguments == [1, 2]


async def test_a_longer_wait_waits_again(tmp_path: Path) -> None:
    last = Script(NO, NO, "end", name="last")
    work = plan({"id": "w", "wait": "${{ inputs.x }}"}, step("last", "last"), inputs={"x": "number"})
    async with engine_at(tmp_path, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 0.001})
        assert await settled(run) == "failed"
        same = await engine.retry(run.id)
        assert await settled(same) == "failed"
        assert (await step_of(same, "w")).kept
        other = await engine.retry(same.id, inputs={"x": 0.002})
        assert await result(other) == "end"
        assert not (await step_of(other, "w")).kept


async def test_a_step_that_became_something_else_is_not_answered_with_what_it_was(tmp_path: Path) -> None:
    look, pay, last = Script("old", name="look"), Script(name="pay", effect="once"), Script(NO, "end", name="last")
    async with engine_at(tmp_path, look.tool, pay.tool, last.tool, echo) as engine:
        run = await engine.start(plan(step("a", "look"), step("b", "pay"), step("last", "last")))
        assert await settled(run) == "failed"
        mended = plan(
            using("a", "echo", "${{ item }}", for_each=[1, 2]), {"id": "b", "steps": [using("c", "echo", "new")]},
            step("last", "last"), output="${{ {'a': steps.a.output, 'b': steps.b.output} }}",
        )  # fmt: skip
        again = await engine.retry(run.id, program=mended)
        assert await settled(again) == "waiting"
        await again.resolve("b", "again")
        assert await result(again) == {"a": [1, 2], "b": "new"}


async def test_after_a_critical_failure_kept_outcomes_are_not_asked_for(tmp_path: Path) -> None:
    """A once step that would need a person now is left for the next retry."""
    first, pay = Script(NO, name="first"), Script(name="pay", effect="once")
    first.answers = ["one", holdfast.ToolError("no"), "two"]
    last = Script(NO, "end", name="last")
    work = plan(
        using("a", "first", "${{ inputs.x }}"), using("pay", "pay", "${{ inputs.x }}"), step("last", "last"),
        inputs={"x": "integer"},
    )  # fmt: skip
    async with engine_at(tmp_path, first.tool, pay.tool, last.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        second = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(second) == "failed"
        third = await engine.retry(second.id)
        assert await settled(third) == "waiting"
        await third.resolve("pay", "done")
        assert await result(third) == "end"
    assert pay.arguments == [1]
