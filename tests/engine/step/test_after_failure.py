"""What follows a failure, by its category: how often, how soon, with what, and when a person is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import (
    FAST,
    HURRY,
    Script,
    broken,
    echo,
    engine_at,
    events,
    names,
    plan,
    result,
    seen,
    settled,
    step,
    step_of,
)
from holdfast.core import events as ev
from holdfast.core.policy import RETRIES


async def test_transient_failures_are_retried_three_times_by_default_and_then_given_up() -> None:
    script = Script(*[holdfast.Transient("busy")] * 5)
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry={"first": 0.001})))
        with pytest.raises(holdfast.ExecutionFailed, match="busy"):
            await result(run)
        assert await names(run, "step:") == ["step:started", "step:retrying"] * RETRIES + [
            "step:started",
            "step:failed",
        ]
    assert len(script.calls) == 1 + RETRIES


@pytest.mark.parametrize(("written", "calls"), [({}, 1), ({"retry": {"max": 1, "first": 0.001}}, 2)])
async def test_known_failure_of_a_once_step_is_repeated_only_if_the_step_says_so(
    written: dict[str, Any], calls: int
) -> None:
    """What the tool says about retries is for failures without an effect; only who wrote the step knows this use."""
    own = holdfast.Retry(max=2, first_s=0.001)
    script = Script(*[holdfast.ToolError("exit code 3")] * 3, effect="once", retry=own)
    async with engine_at("memory:", script.tool) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match="exit code 3"):
            await result(await engine.start(plan(step("a", "script", **written))))
    assert len(script.calls) == calls


async def test_rate_limit_waits_as_told_and_is_not_counted_among_the_retries() -> None:
    limited = [holdfast.RateLimited("slow down", retry_after_s=0.001)] * 6
    script = Script(*limited, holdfast.Transient("busy"), "ok")
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry={"max": 1, "first": 0.001})))
        assert await result(run) == "ok"
        assert ((await step_of(run, "a")).rate_limit_waits, (await step_of(run, "a")).retries) == (6, 1)
        retrying = [event for event in await events(run) if isinstance(event, ev.StepRetrying)]
    assert [event.due_at - event.at for event in retrying[:6]] == [1000] * 6


async def test_backoff_grows_and_half_of_it_is_certain() -> None:
    script = Script(*[holdfast.Transient("busy")] * 3, "ok")
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry={"max": 3, "first": 0.004, "factor": 2})))
        await result(run)
        delays = [(e.due_at - e.at) / 1e6 for e in await events(run) if isinstance(e, ev.StepRetrying)]
    for delay, full in zip(delays, (0.004, 0.008, 0.016), strict=True):
        assert full / 2 <= delay <= full


async def test_resource_failure_runs_once_more_with_less() -> None:
    script = Script(holdfast.ResourceShort("no memory"), "ok")

    @script.tool.reduce
    async def reduce(call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"value": arguments["value"] // 2}

    async with engine_at("memory:", script.tool) as engine:
        assert await result(await engine.start(plan(step("a", "script", **{"with": {"value": 100}})))) == "ok"
        script.answers = [MemoryError("no memory"), MemoryError("still none")]
        with pytest.raises(holdfast.ExecutionFailed, match="still none"):
            await result(await engine.start(plan(step("a", "script", **{"with": {"value": 100}}))))
    assert script.arguments == [100, 50, 100, 50]


@pytest.mark.parametrize("sticky", [False, True])
async def test_what_a_person_agreed_to_is_reduced_only_after_a_lasting_yes(sticky: bool) -> None:
    script = Script(holdfast.ResourceShort("no room"), "done", approval="Shall we?")

    @script.tool.reduce
    async def reduce(call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"value": arguments["value"] // 2}

    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", on_error="ask", **{"with": {"value": 8}})))
        await seen(run, "approval:requested")
        await run.approve("a", sticky=sticky)
        if sticky:
            assert await result(run) == "done"
            assert script.arguments == [8, 4]
        else:
            await seen(run, "request:opened")
            assert script.arguments == [8]
            await run.stop()


async def test_reduce_hook_that_fails_asks_for_the_same_again() -> None:
    script = Script(holdfast.ResourceShort("no memory"), "ok")

    @script.tool.reduce
    def reduce(call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("cannot say")

    async with engine_at("memory:", script.tool) as engine:
        assert await result(await engine.start(plan(step("a", "script", **{"with": {"value": 9}})))) == "ok"
    assert script.arguments == [9, 9]


async def test_permission_failure_is_tried_once_more_after_the_refresh_hook() -> None:
    script = Script(holdfast.NotPermitted("token expired"), "ok")
    refreshed: list[str] = []

    @script.tool.refresh
    async def refresh(call: holdfast.Call, arguments: dict[str, Any]) -> None:
        refreshed.append(call.path)
        raise RuntimeError("it may fail, too")

    async with engine_at("memory:", script.tool) as engine:
        assert await result(await engine.start(plan(step("a", "script")))) == "ok"
        script.answers = [holdfast.NotPermitted("no"), holdfast.NotPermitted("still no")]
        with pytest.raises(holdfast.ExecutionFailed, match="still no"):
            await result(await engine.start(plan(step("a", "script"))))
    assert refreshed == ["a", "a"]


async def test_retries_are_counted_after_a_refresh_as_before() -> None:
    script = Script(holdfast.NotPermitted("token"), *[holdfast.Transient("busy")] * 20)

    @script.tool.refresh
    async def refresh(call: holdfast.Call, arguments: dict[str, Any]) -> None: ...

    async with engine_at("memory:", script.tool) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match="busy"):
            await result(await engine.start(plan(step("a", "script", retry=FAST))))
    assert len(script.calls) == 2 + RETRIES


async def test_hooks_of_the_tool_are_not_run_for_its_fallback() -> None:
    script = Script(holdfast.ResourceShort("one"), holdfast.ResourceShort("two"))
    other = Script("other", name="other")
    reduced: list[Any] = []

    @script.tool.reduce
    async def reduce(call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        reduced.append(arguments["value"])
        return {"value": 1}

    async with engine_at("memory:", script.tool, other.tool) as engine:
        work = plan(step("a", "script", fallback={"tool": "other", "with": {"value": 8}}, **{"with": {"value": 2}}))
        assert await result(await engine.start(work)) == "other"
    assert (reduced, other.arguments) == ([2], [8])


async def test_fallback_takes_over_with_its_own_retries_and_the_same_key() -> None:
    script = Script(*[holdfast.Transient("busy")] * 2)
    other = Script(holdfast.Transient("busy too"), "from the other", name="other")
    async with engine_at("memory:", script.tool, other.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry={"max": 1, "first": 0.001}, fallback=["other"])))
        assert await result(run) == "from the other"
        history = [(attempt.number, attempt.tool) for attempt in (await step_of(run, "a")).attempts]
    assert history == [(1, "script"), (2, "script"), (3, "other"), (4, "other")]
    assert {call.key for call in script.calls} == {call.key for call in other.calls}


async def test_logic_failure_of_a_plan_waits_for_a_correction() -> None:
    script = Script(ValueError("negative"))
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(plan(step("a", "script", **{"with": {"value": -1}}), step("b", "echo")))
        assert await settled(run) == "waiting"
        state = await run.state()
        request = next(state.open_requests()).request
        assert (request.kind, request.message) == ("correction", "script failed: negative")
        assert request.remedies == ("again", "done", "skip", "fail")
        assert request.failure is not None
        assert request.failure.affects == ("b",)
        assert [reason.kind for reason in state.reasons] == ["correction"]
        await run.resolve("a", "again", arguments={"value": 1})
        await result(run)
    assert script.arguments == [-1, 1]


async def test_correction_may_be_made_twice_and_survives_a_restart(tmp_path: Path) -> None:
    script = Script(ValueError("negative"), ValueError("still"))
    async with engine_at(tmp_path, script.tool, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "script")))
        await settled(run)
        await run.resolve("a", "again")
        assert await settled(run) == "waiting"
    async with engine_at(tmp_path, script.tool) as engine:
        await engine.get(run.id).resolve("a", "done", output="by hand", by="ada")
        assert await result(engine.get(run.id)) == "by hand"
        assert (await step_of(engine.get(run.id), "a")).by == "ada"


async def test_wrong_arguments_are_refused_before_the_tool_is_called() -> None:
    called: list[int] = []

    @holdfast.tool(effect="once")
    async def whole(number: int) -> int:
        called.append(number)
        return number

    async with engine_at("memory:", echo, whole) as engine:
        values = step("a", "echo", **{"with": {"value": "many"}})
        run = await engine.start(plan(values, step("b", "whole", **{"with": {"number": "${{ steps.a.output }}"}})))
        assert await settled(run) == "waiting"
        assert "number" in next((await run.state()).open_requests()).request.message
        await run.resolve("b", "again", arguments={"number": 3})
        assert await result(run) == 3
    assert called == [3]


async def test_logic_failure_in_a_function_is_an_exception_there() -> None:
    @holdfast.tool(effect="read")
    async def picky() -> None:
        raise ValueError("no")

    @holdfast.function
    async def careful(ctx: holdfast.Context) -> str:
        try:
            await ctx.call(picky)
        except holdfast.StepFailed as error:
            return f"{error.path} {error.failure.category} {error.failure.message}"
        return ""

    async with engine_at("memory:") as engine:
        assert await result(await engine.start(careful)) == "picky logic no"


async def test_failure_says_what_it_affects_and_what_can_be_done() -> None:
    async with engine_at("memory:", broken, echo) as engine:
        run = await engine.start(plan(step("a", "broken"), step("b", "echo"), step("c", "echo")))
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await result(run)
        assert failed.value.failure.affects == ("b", "c")
        assert failed.value.failure.remedies == ("retry",)
        head = await run.head()
        assert (head.error, head.failed_path) == ("it is broken", "a")
        assert (await step_of(run, "b")).reason == '"a" failed'


async def test_waiting_for_the_next_attempt_survives_a_restart(tmp_path: Path) -> None:
    script = Script(holdfast.Transient("busy"), "ok")
    work = plan(step("a", "script", retry={"max": 2, "first": 0.3}))
    async with engine_at(tmp_path, script.tool, limits=HURRY) as engine:
        run = await engine.start(work)
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, script.tool) as engine:
        assert await result(engine.get(run.id)) == "ok"
    assert [call.attempt for call in script.calls] == [1, 2]
