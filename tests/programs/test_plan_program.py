"""Plans as they run: order, conditions, items, milestones, what may fail, and endings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, broken, echo, engine_at, events, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.core import skips
from holdfast.core.policy import FOR_EACH_ITEMS_MAX
from holdfast.testing import Lab


def val(value: Any) -> dict[str, Any]:
    return {"with": {"value": value}}


async def statuses(run: holdfast.Run) -> dict[str, str]:
    return {path: s.status for path, s in (await run.state()).steps.items()}


# ---- order and conditions ------------------------------------------------------------------------------------------


async def test_steps_run_in_order_and_side_by_side_where_needs_say_so() -> None:
    left, right = Gate("left"), Gate("right")
    work = plan(
        step("start", "echo", **val(1)),
        step("l", "left", needs=["start"]),
        step("r", "right", needs=["start"]),
        step("end", "echo", needs=["l", "r"], **val("${{ steps.start.output + 1 }}")),
    )
    async with engine_at("memory:", echo, left.tool, right.tool) as engine:
        run = await engine.start(work)
        await left.wait_entered()
        await right.wait_entered()
        left.open.set()
        right.open.set()
        assert await result(run) == 2


async def test_condition_skips_with_its_text_as_the_reason_and_the_next_step_goes_on() -> None:
    work = plan(
        step("a", "echo", **val(1)),
        step("b", "broken", when="steps.a.output > 1"),
        step("c", "echo", **val("${{ steps.b.status }}")),
    )
    async with engine_at("memory:", echo, broken) as engine:
        run = await engine.start(work)
        assert await result(run) == "skipped"
        assert (await step_of(run, "b")).reason == "its condition is false: steps.a.output > 1"


async def test_condition_is_not_asked_again_once_the_step_has_begun(tmp_path: Path) -> None:
    script, gate = Script(True, False), Gate()
    async with engine_at(tmp_path, script.tool, gate.tool, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "gate", when="steps.a.output")))
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, script.tool, gate.tool) as engine:
        await result(engine.get(run.id))
        assert (await step_of(engine.get(run.id), "b")).status == "completed"


async def test_expression_that_cannot_be_evaluated_fails_its_step_with_a_clear_text() -> None:
    work = plan(step("a", "echo", **val({"x": 1})), step("b", "echo", critical=False, **val("${{ steps.a.output.y }}")))
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(work)
        await result(run)
        failed = await step_of(run, "b")
        assert failed.status == "failed"
        assert "y" in failed.failure.message  # type: ignore[union-attr]


async def test_wait_whose_duration_makes_no_sense_fails_its_step() -> None:
    work = plan({"id": "w", "wait": "${{ inputs.d }}", "critical": False}, step("a", "echo"), inputs={"d": "string"})
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(work, inputs={"d": "a while"})
        await result(run)
        assert (await step_of(run, "w")).status == "failed"


# ---- what may fail -------------------------------------------------------------------------------------------------


async def test_critical_failure_skips_the_rest_with_the_reason() -> None:
    async with engine_at("memory:", echo, broken) as engine:
        run = await engine.start(plan(step("a", "broken"), step("b", "echo"), step("c", "echo")))
        with pytest.raises(holdfast.ExecutionFailed, match="it is broken"):
            await result(run)
        assert await statuses(run) == {"a": "failed", "b": "skipped", "c": "skipped"}
        assert (await run.state()).failed_path == "a"


async def test_critical_failure_lets_running_steps_finish() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, broken) as engine:
        run = await engine.start(plan(step("slow", "gate"), step("a", "broken", needs=[]), step("b", "broken")))
        await seen(run, "step:failed")
        gate.open.set()
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        assert await statuses(run) == {"slow": "completed", "a": "failed", "b": "skipped"}


async def test_failure_that_is_not_critical_is_lived_with() -> None:
    work = plan(
        step("a", "broken", critical=False),
        step("b", "echo", **val("${{ steps.a.error }}")),
        step("c", "echo", optional=True, needs=["a"]),
    )
    async with engine_at("memory:", echo, broken) as engine:
        run = await engine.start(work)
        assert await result(run) == "it is broken"
        assert await statuses(run) == {"a": "failed", "b": "completed", "c": "skipped"}
        assert (await step_of(run, "c")).reason == 'needs "a", which failed'


async def test_logic_failure_that_is_not_critical_asks_nobody() -> None:
    script = Script(ValueError("odd"))
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(plan(step("a", "script", critical=False), step("b", "echo")))
        await result(run)
        assert (await step_of(run, "a")).status == "failed"


async def test_optional_step_without_its_tool_is_skipped_and_so_is_what_needs_it(tmp_path: Path) -> None:
    gate = Gate()
    work = plan(
        step("a", "not.here", optional=True),
        step("b", "echo", optional=True, needs=["a"]),
        step("d", "gate", needs=["a"]),
        step("c", "echo", optional=True, needs=["a", "d"]),
    )
    async with engine_at(tmp_path, echo, gate.tool, limits=HURRY) as engine:
        run = await engine.start(work)
        await seen(run, "step:skipped", lambda event: event.path == "b")
        await gate.wait_entered()
        first = await step_of(run, "a")
        assert first.reason.startswith('its tool is not there: no tool called "not.here"')
        assert (await step_of(run, "b")).reason == 'needs "a", whose tool could not be used'
    gate.open.set()
    async with engine_at(tmp_path, echo, gate.tool) as engine:
        await result(engine.get(run.id))
        assert (await step_of(engine.get(run.id), "c")).reason == 'needs "a", whose tool could not be used'


async def test_nothing_is_decided_by_the_wording_of_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skips, "tool_missing", lambda error: skips.Skip("tool_missing", "reworded"))
    work = plan(step("a", "not.here", optional=True), step("b", "echo", optional=True, needs=["a"]))
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(work)
        await result(run)
        assert (await step_of(run, "a")).reason == "reworded"
        assert (await step_of(run, "b")).reason == 'needs "a", whose tool could not be used'
        codes = {event.path: event.code for event in await events(run) if isinstance(event, ev.StepSkipped)}
        assert codes == {"a": "tool_missing", "b": "need_lost"}


async def test_on_failure_and_finally_run_after_a_failure_and_know_it() -> None:
    script = Script(name="told")
    work = plan(
        step("a", "broken"),
        on_failure=[
            step("mend", "told", **val("${{ failure.step }}: ${{ failure.message }} (${{ failure.category }})"))
        ],
        **{"finally": [step("tidy", "told", **val("${{ steps.a.status }}"))]},
    )
    async with engine_at("memory:", script.tool, broken) as engine:
        run = await engine.start(work)
        with pytest.raises(holdfast.ExecutionFailed, match="it is broken"):
            await result(run)
    assert script.arguments == ["a: it is broken (tool)", "failed"]


async def test_finally_runs_after_success_and_its_failure_counts() -> None:
    work = plan(step("a", "echo", **val(1)), **{"finally": [step("tidy", "echo", **val("${{ failure == null }}"))]})
    failing = plan(step("a", "echo"), on_failure=[step("mend", "broken")], **{"finally": [step("tidy", "broken")]})
    async with engine_at("memory:", echo, broken) as engine:
        run = await engine.start(work)
        assert await result(run) == 1
        assert bytes((await step_of(run, "tidy")).output) == b"true"
        with pytest.raises(holdfast.ExecutionFailed, match="it is broken"):
            await result(await engine.start(failing))


# ---- items ---------------------------------------------------------------------------------------------------------


async def test_items_run_side_by_side_up_to_the_bound_and_keep_their_order() -> None:
    inside = most = 0

    @holdfast.tool(effect="read")
    async def crowd(value: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.002 * (5 - value % 5))
        inside -= 1
        return value * 10

    work = plan(
        step("each", "crowd", for_each="${{ inputs.list }}", max_parallel=3, **val("${{ item + index }}")),
        inputs={"list": "list"},
    )
    async with engine_at("memory:", crowd) as engine:
        run = await engine.start(work, inputs={"list": list(range(10))})
        assert await result(run) == [20 * n for n in range(10)]
        assert list((await run.state()).steps) == ["each", *(f"each[{n}]" for n in range(10))]
    assert most == 3


async def test_items_are_named_by_their_key_and_two_of_one_name_are_refused() -> None:
    work = plan(
        step(
            "each",
            "echo",
            for_each="${{ inputs.list }}",
            key="${{ item.id }}",
            on_error="fail",
            **val("${{ item.id }}"),
        ),
        inputs={"list": "list"},
    )
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(work, inputs={"list": [{"id": "a/b"}, {"id": "c"}]})
        assert await result(run) == ["a/b", "c"]
        assert list((await run.state()).steps) == ["each", "each[a%2Fb]", "each[c]"]
        with pytest.raises(holdfast.ExecutionFailed, match='for_each: two items have the key "c"; keys must differ'):
            await result(await engine.start(work, inputs={"list": [{"id": "c"}, {"id": "c"}]}))


async def test_list_of_items_is_evaluated_once_also_across_a_restart(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    async def stop_at(call: holdfast.Call, value: str) -> str:
        seen_paths.append(call.path)
        if value == "b":
            await gate.tool(call)
        return value

    gate, seen_paths, lister = Gate(), list[str](), Script(["a", "b", "c"])
    work = plan(
        step("l", "script"),
        step("each", "stop_at", for_each="${{ steps.l.output }}", max_parallel=1, **val("${{ item }}")),
    )
    async with engine_at(tmp_path, stop_at, lister.tool, limits=HURRY) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, stop_at, lister.tool) as engine:
        assert await result(engine.get(run.id)) == ["a", "b", "c"]
        started = [e for e in await events(engine.get(run.id)) if isinstance(e, ev.StepStarted) and e.path == "each"]
        assert len(started) == 1
    assert seen_paths == ["each[0]", "each[1]", "each[1]", "each[2]"]


async def test_failed_item_skips_those_not_begun_unless_items_may_fail() -> None:
    script = Script(1, holdfast.ToolError("second"), 3)
    each = step("each", "script", for_each=[1, 2, 3], max_parallel=1)
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(each))
        with pytest.raises(holdfast.ExecutionFailed, match="second"):
            await result(run)
        assert await statuses(run) == {
            "each": "failed",
            "each[0]": "completed",
            "each[1]": "failed",
            "each[2]": "skipped",
        }
        assert (await step_of(run, "each[2]")).reason == "another item failed"
        script.answers = [1, holdfast.ToolError("second"), 3]
        assert await result(await engine.start(plan({**each, "critical": False}))) == [1, None, 3]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("words", "for_each needs a list, got str: words"),
        (list(range(FOR_EACH_ITEMS_MAX + 1)), "for_each got 100,001 items, at most 100,000 are allowed"),
    ],
)
async def test_list_that_is_none_or_too_long_fails_the_step(given: Any, text: str) -> None:
    work = plan(step("each", "echo", for_each="${{ inputs.list }}", on_error="fail"), inputs={"list": "any"})
    async with engine_at("memory:", echo) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match=text):
            await result(await engine.start(work, inputs={"list": given}))


async def test_items_may_be_milestones_waits_approvals_and_expressions_that_fail() -> None:
    work = plan(
        {"id": "m", "for_each": [1, 2], "steps": [step("in_m", "echo", **val("${{ item * 2 }}"))]},
        {"id": "w", "for_each": [0.001], "wait": "${{ item }}"},
        {"id": "ok", "for_each": ["x"], "approval": "Is ${{ item }} right?"},
        step("bad", "echo", for_each=[{}], critical=False, **val("${{ item.no }}")),
        output="${{ steps.m.output }}",
    )
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(work)
        await settled(run)
        assert next((await run.state()).open_requests()).request.message == "Is x right?"
        await run.approve("ok[0]")
        assert await result(run) == [2, 4]
        assert (await step_of(run, "bad[0]")).status == "failed"


# ---- milestones, output, titles ------------------------------------------------------------------------------------


async def test_milestone_has_a_status_and_a_percentage_of_its_own() -> None:
    gate = Gate()
    inner = [step("a", "echo", **val(1)), step("b", "gate", **val(2))]
    async with engine_at("memory:", echo, gate.tool) as engine:
        run = await engine.start(
            plan({"id": "m", "title": "Half", "steps": inner}, step("c", "echo", **val("${{ steps.m.output }}")))
        )
        await gate.wait_entered()
        shown: Any = await run.show()
        by_path = {s["path"]: s for s in shown["steps"]}
        assert (by_path["m"]["status"], by_path["m"]["percent"], by_path["m"]["title"]) == ("running", 50.0, "Half")
        assert shown["percent"] == 25.0
        gate.open.set()
        assert await result(run) == 2
        assert (await run.show())["percent"] == 100.0
        assert list((await run.state()).steps) == ["m", "m/a", "m/b", "c"]


async def test_failed_milestone_fails_the_plan_unless_it_may_fail() -> None:
    milestone = {"id": "m", "steps": [step("a", "broken"), step("b", "echo")]}
    async with engine_at("memory:", echo, broken) as engine:
        run = await engine.start(plan(milestone))
        with pytest.raises(holdfast.ExecutionFailed, match="it is broken"):
            await result(run)
        assert await statuses(run) == {"m": "failed", "m/a": "failed", "m/b": "skipped"}
        tolerant = await engine.start(plan({**milestone, "critical": False}, step("c", "echo", **val("on"))))
        assert await result(tolerant) == "on"


async def test_output_is_what_the_plan_says_or_that_of_its_last_step() -> None:
    steps = [step("a", "echo", **val(1)), step("b", "echo", **val(2))]
    async with engine_at("memory:", echo) as engine:
        assert await result(await engine.start(plan(*steps))) == 2
        both = plan(*steps, output={"a": "${{ steps.a.output }}", "b": "${{ steps.b.output }}"})
        assert await result(await engine.start(both)) == {"a": 1, "b": 2}
        assert await result(await engine.start(plan(step("a", "echo", when="false")))) is None


def test_items_that_had_begun_when_a_process_died_are_taken_to_their_end_though_another_failed(lab: Lab) -> None:
    async def pay(value: str) -> str | None:
        if value == "slow":
            await asyncio.sleep(60)
        elif value == "fails":
            await asyncio.sleep(1)
            raise holdfast.ToolError("no money")
        return value

    paid = lab.fake("pay", effect="once", does=pay)
    items = ["quick", "fails", "quick", "quick", "slow", "slow", "slow"]
    each = step("each", "pay", for_each=items, max_parallel=3, **val("${{ item }}"))
    outcome = lab.run(plan(each), crash_at="step:failed each[1]", answers={"each[4]": "done", "each[5]": "done"})
    assert outcome.status == "failed"
    assert outcome.doubts == ["each[4]", "each[5]"]
    assert outcome.steps["each[6]"]["status"] == "skipped"
    assert [call.path for call in paid.calls] == [f"each[{index}]" for index in range(6)]
