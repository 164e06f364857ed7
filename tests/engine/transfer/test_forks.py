"""Fork and retry: what was done is copied, the rest is done anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, broken, echo, engine_at, names, plan, result, settled, step, step_of


async def test_retry_runs_only_what_did_not_complete(tmp_path: Path) -> None:
    good, bad = Script("good"), Script(holdfast.ToolError("no"), "better", name="bad")
    async with engine_at(tmp_path, good.tool, bad.tool) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "bad"), title="T", labels={"x": "y"}), owner="ada")
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        again = await engine.retry(run.id)
        assert await result(again) == "better"
        assert (await run.status(), await again.status()) == ("failed", "completed")
        shown: Any = await again.show()
        assert shown["forked_from"] == {"id": run.id, "at": "", "origin": run.id}
        assert (shown["title"], shown["labels"], shown["owner"]) == ("T", {"x": "y"}, "ada")
        assert (await step_of(again, "a")).status == "completed"
    assert (len(good.calls), len(bad.calls)) == (1, 2)


async def test_fork_at_a_step_runs_from_there(tmp_path: Path) -> None:
    scripts = [Script(name=name) for name in ("one", "two", "three")]
    async with engine_at(tmp_path, *(script.tool for script in scripts)) as engine:
        run = await engine.start(plan(*(step(name, name) for name in ("one", "two", "three"))))
        await result(run)
        await result(await engine.fork(run.id, at="two", by="bob"))
    assert [len(script.calls) for script in scripts] == [1, 2, 2]


async def test_fork_at_an_unknown_step_says_which_was_meant(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(step("search", "echo")))
        await result(run)
        with pytest.raises(
            holdfast.HoldfastError, match='there is no step "serach" in this execution; did you mean "search"'
        ):
            await engine.fork(run.id, at="serach")


async def test_retry_with_other_inputs_keeps_the_rest_of_them(tmp_path: Path) -> None:
    work = plan(
        step("a", "echo", **{"with": {"value": "${{ inputs.x }}${{ inputs.y }}"}}),
        inputs={"x": "string", "y": "string"},
        title="${{ inputs.x }}",
    )
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(work, inputs={"x": "1", "y": "2"})
        await result(run)
        again = await engine.retry(run.id, from_step="a", inputs={"x": "3"})
        assert await result(again) == "32"
        assert (await again.head()).title == "3"


async def test_retry_of_a_plan_file_without_a_name_takes_other_inputs(tmp_path: Path) -> None:
    (tmp_path / "unnamed.yaml").write_text(
        "inputs: {x: string}\nsteps:\n  - {id: a, tool: echo, with: {value: '${{ inputs.x }}'}}\n"
    )
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start("unnamed.yaml", inputs={"x": "1"})
        await result(run)
        assert (await run.head()).name == "unnamed"
        again = await engine.retry(run.id, from_step="a", inputs={"x": "2"})
        assert await result(again) == "2"
        assert (await again.head()).name == "unnamed"


async def test_retry_with_another_plan_keeps_what_has_the_same_path(tmp_path: Path) -> None:
    script = Script("kept")
    async with engine_at(tmp_path, script.tool, broken, echo) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "broken")))
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        mended = plan(step("a", "script"), step("b", "echo", **{"with": {"value": "${{ steps.a.output }}"}}))
        assert await result(await engine.retry(run.id, program=mended)) == "kept"
    assert len(script.calls) == 1


async def test_retry_goes_back_into_milestones_and_items(tmp_path: Path) -> None:
    script = Script(1, 2, holdfast.ToolError("third"), 3)
    inner = {"id": "m", "steps": [step("each", "script", for_each=["x", "y", "z"], max_parallel=1)]}
    async with engine_at(tmp_path, script.tool) as engine:
        run = await engine.start(plan(inner))
        with pytest.raises(holdfast.ExecutionFailed, match="third"):
            await result(run)
        assert await result(await engine.retry(run.id)) == [1, 2, 3]
    assert len(script.calls) == 4


async def test_retry_runs_again_what_a_completed_milestone_lived_without(tmp_path: Path) -> None:
    script = Script(holdfast.ToolError("first time"), "second time")
    work = plan(
        {
            "id": "m",
            "steps": [step("a", "script", critical=False), step("b", "echo")],
            "output": "${{ steps.a.output }}",
        },
        step("c", "broken"),
    )
    mended = {**work, "steps": [work["steps"][0], step("c", "echo", **{"with": {"value": "${{ steps.m.output }}"}})]}
    async with engine_at(tmp_path, script.tool, echo, broken) as engine:
        run = await engine.start(work)
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        assert await result(await engine.retry(run.id, program=mended)) == "second time"


async def test_fork_keeps_waits_answers_and_children(tmp_path: Path) -> None:
    calls = Script(name="inner_tool")

    @holdfast.function
    async def inner(ctx: holdfast.Context) -> str:
        await ctx.call(calls.tool)
        return "from the child"

    @holdfast.function
    async def outer(ctx: holdfast.Context, fail: bool) -> list[Any]:
        got = await ctx.wait_for("go")
        await ctx.sleep(0.001)
        child = await ctx.start(inner)
        output = await child.result()
        await ctx.call(last.tool)
        return [got, output, ctx.now().year > 2000]

    last = Script(holdfast.ToolError("at the end"), "fine", name="last")
    work = plan({"id": "c", "start": "inner"}, step("l", "last"), output="${{ steps.c.output }}")
    async with engine_at(tmp_path, last.tool, functions=[inner, outer]) as engine:
        run = await engine.start(outer, inputs={"fail": True})
        await run.send("go", "went")
        with pytest.raises(holdfast.ExecutionFailed, match="at the end"):
            await result(run)
        again = await engine.retry(run.id)
        assert await result(again) == ["went", "from the child", True]
        assert len(calls.calls) == 1
        last.answers = [holdfast.ToolError("again"), "fine"]
        planned = await engine.start(work)
        with pytest.raises(holdfast.ExecutionFailed, match="again"):
            await result(planned)
        assert await result(await engine.retry(planned.id)) == "from the child"
        assert len(calls.calls) == 2


async def test_fork_of_a_running_execution_leaves_it_alone(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(step("a", "echo"), {"id": "ok", "approval": True}))
        await run.settled()
        before = await names(run)
        fork = await engine.fork(run.id, at="ok")
        assert (await fork.settled()).status == "waiting"
        assert await names(run) == before
        await fork.approve()
        assert await result(fork) is True
        await run.stop()


async def test_a_retry_is_refused_if_its_origin_is_deleted_in_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would find nothing of what its children had done, and do it again."""
    good = Script("good")
    async with engine_at(tmp_path, good.tool, broken) as engine:
        run = await engine.start(plan(step("good", "script"), step("bad", "broken")))
        await settled(run)
        store, write = engine.services.store, engine.services.writer.write

        async def too_late(new: Any) -> Any:
            assert await store.delete([run.id])
            return await write(new)

        monkeypatch.setattr(engine.services.writer, "write", too_late)
        with pytest.raises(holdfast.Refused, match="what it is made from was deleted in this moment; nothing was star"):
            await engine.retry(run.id)
        assert await engine.list() == []
        assert engine.holdings()["slots"] == 0
    assert len(good.calls) == 1


async def test_a_doubt_that_a_fallback_was_tried_instead_of_is_not_forgotten_by_a_retry(tmp_path: Path) -> None:
    """Whether the first tool happened is as unknown as before: the retry asks, and does not call it again."""
    pay = Script(TimeoutError("no answer"), "paid", name="pay", effect="once")
    other = Script(holdfast.ToolError("no"), name="other")
    async with engine_at(tmp_path, pay.tool, other.tool) as engine:
        run = await engine.start(plan(step("p", "pay", fallback="other", on_error="fail")))
        assert await settled(run) == "waiting"
        await run.resolve("p", "fallback")
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "waiting"
        assert (await step_of(again, "p")).status == "in_doubt"
    assert len(pay.calls) == 1


async def test_a_retry_gives_a_tool_what_it_had_noted_and_the_key_it_was_called_with(tmp_path: Path) -> None:
    """What happened by then has happened, in whichever execution: another attempt goes on from there."""
    heard: list[tuple[Any, str]] = []

    @holdfast.tool(effect="once", retry=0)
    async def pages(call: holdfast.Call) -> str:
        heard.append((call.notes, call.key))
        if len(heard) < 3:
            await call.note({"page": len(heard)})
            raise holdfast.ToolError("no")
        return "done"

    async with engine_at(tmp_path, pages) as engine:
        run = await engine.start(plan(step("p", "pages")))
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "failed"
        assert await result(await engine.retry(again.id)) == "done"
    key = f"{run.id}:p"
    assert heard == [(None, key), ({"page": 1}, key), ({"page": 2}, key)]


async def test_what_one_tool_noted_is_not_given_to_another_of_the_same_place(tmp_path: Path) -> None:
    heard: list[tuple[Any, str]] = []

    @holdfast.tool(effect="once", retry=0)
    async def first(call: holdfast.Call) -> str:
        await call.note({"page": 1})
        raise holdfast.ToolError("no")

    @holdfast.tool(effect="once")
    async def second(call: holdfast.Call) -> str:
        heard.append((call.notes, call.key))
        return "done"

    async with engine_at(tmp_path, first, second) as engine:
        run = await engine.start(plan(step("p", "first")))
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, program=plan(step("p", "second")))
        assert await result(again) == "done"
    assert heard == [(None, f"{again.id}:p")]


async def test_a_doubt_that_came_along_is_checked_by_the_key_it_was_called_with(tmp_path: Path) -> None:
    """Whoever is asked "did this key happen?" knows the key of the call, and none of an execution made later."""
    happened: list[str] = []
    is_down = True

    @holdfast.tool(effect="once", in_doubt="verify")
    async def pay(call: holdfast.Call) -> str:
        happened.append(call.key)
        raise TimeoutError("no answer")

    @pay.verify
    async def check(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        if is_down:
            return holdfast.Unknown()
        return holdfast.Happened("paid") if call.key in happened else holdfast.DidNotHappen()

    async with engine_at(tmp_path, pay) as engine:
        run = await engine.start(plan(step("p", "pay")))
        assert await settled(run) == "waiting"
        await run.stop()
        is_down = False
        assert await result(await engine.retry(run.id)) == "paid"
    assert len(happened) == 1
