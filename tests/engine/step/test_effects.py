"""Effects and doubt: what a `once` step may do after an unknown outcome, and who decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from engine.kit import (
    HURRY,
    Gate,
    Script,
    echo,
    engine_at,
    events,
    names,
    plan,
    quiet,
    result,
    seen,
    settled,
    step,
    step_of,
)
from holdfast.core import events as ev

ONCE = plan(step("pay", "script", **{"with": {"value": 5}}), step("after", "echo", **{"with": {"value": "went on"}}))


async def in_doubt(run: holdfast.Run) -> ev.Request:
    assert await settled(run) == "waiting"
    state = await run.state()
    assert state.steps["pay"].status == "in_doubt"
    assert [reason.kind for reason in state.reasons] == ["doubt"]
    return next(state.open_requests()).request


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("late"), holdfast.Transient("who knows")])
async def test_once_step_whose_outcome_is_unknown_is_in_doubt_and_not_repeated(error: Exception) -> None:
    script = Script(error, effect="once")
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        request = await in_doubt(run)
        assert request.message == f"script may or may not have happened: {error}"
        assert request.remedies == ("done", "again", "skip", "fail")
        assert len(script.calls) == 1
        await run.resolve("pay", "done", output=7)
        assert await result(run) == "went on"
        assert len(script.calls) == 1


@pytest.mark.parametrize("how", ["no answer", "hangs up"])
async def test_once_step_whose_client_lost_the_answer_is_in_doubt_also_in_a_fork(how: str) -> None:
    """The exceptions of HTTP clients are their own: no TimeoutError, no OSError."""
    posted = 0

    async def shop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal posted
        await reader.readuntil(b"\r\n\r\n")
        posted += 1  # and that is the effect
        if how == "no answer":
            await reader.read()  # until the client gives up
        writer.close()

    server = await asyncio.start_server(shop, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    @holdfast.tool(effect="once")
    async def script(value: int) -> int:
        async with httpx.AsyncClient(timeout=0.2, trust_env=False) as client:
            return (await client.post(url)).status_code

    async with engine_at("memory:", script, echo) as engine:
        run = await engine.start(ONCE)
        request = await in_doubt(run)
        assert ("ReadTimeout" if how == "no answer" else "disconnected") in request.message
        await run.stop()
        again = await engine.fork(run.id)
        await in_doubt(again)
        await again.stop()
        server.close()
        await server.wait_closed()
    assert posted == 1


async def test_mistake_of_a_once_tool_is_no_doubt_whatever_its_program_was_handling() -> None:
    pay = Script(RuntimeError("declined"), name="pay", effect="once")

    @holdfast.function
    async def shop(ctx: holdfast.Context) -> str:
        try:
            raise TimeoutError("of the program")
        except TimeoutError:
            try:
                await ctx.call(pay.tool, 1, name="pay")
            except holdfast.StepFailed as failed:
                return failed.failure.message
        return "paid"

    async with engine_at("memory:", pay.tool, functions=[shop]) as engine:
        run = await engine.start(shop)
        assert await result(run) == "declined"
        assert (await step_of(run, "pay")).status == "failed"


async def test_time_limit_of_a_once_step_leaves_a_doubt() -> None:
    gate = Gate("script", effect="once", timeout=0.03)
    async with engine_at("memory:", gate.tool, echo) as engine:
        run = await engine.start(ONCE)
        assert "took longer than 0.03 s" in (await in_doubt(run)).message
        assert gate.cancelled == 1
        await run.stop()


async def test_interrupting_a_once_step_leaves_a_doubt_a_read_step_runs_again(tmp_path: Path) -> None:
    pay, look = Gate("script", effect="once"), Gate("look")
    work = plan(step("pay", "script"), step("look", "look", needs=[]))
    async with engine_at(tmp_path, pay.tool, look.tool) as engine:
        run = await engine.start(work)
        await pay.wait_entered()
        await look.wait_entered()
        await run.interrupt(by="ada", why="wrong shop")
        state = await run.state()
        assert state.status == "interrupted"
        assert (state.steps["pay"].status, state.steps["look"].status) == ("in_doubt", "interrupted")
        assert state.steps["pay"].reason == "interrupted by ada while it ran"
        assert (pay.cancelled, look.cancelled) == (1, 1)
        pay.open.set()
        look.open.set()
        await run.resume()
        assert await settled(run) == "waiting"
        await run.resolve("pay", "again")
        await result(run)
        assert (len(pay.calls), len(look.calls)) == (2, 2)
        assert len(set(pay.calls)) == 1


@pytest.mark.parametrize(
    "error", [holdfast.RateLimited("slow down", retry_after_s=0), holdfast.Transient("x", without_effect=True)]
)
async def test_once_step_that_failed_without_effect_is_tried_again(error: Exception) -> None:
    script = Script(error, "paid", effect="once", retry=holdfast.Retry(first_s=0.001))
    async with engine_at("memory:", script.tool, echo) as engine:
        assert await result(await engine.start(ONCE)) == "went on"
    assert len(script.calls) == 2


async def test_known_failure_of_a_once_step_is_repeated_only_if_its_author_wrote_retry() -> None:
    failing = [holdfast.ToolError("exit code 1"), "paid"]
    silent = Script(*failing, effect="once")
    async with engine_at("memory:", silent.tool, echo) as engine:
        run = await engine.start(ONCE)
        with pytest.raises(holdfast.ExecutionFailed, match="exit code 1"):
            await result(run)
    written = Script(*failing, effect="once")
    async with engine_at("memory:", written.tool, echo) as engine:
        await result(await engine.start(plan(step("pay", "script", retry={"max": 1, "first": 0.001}))))
    assert (len(silent.calls), len(written.calls)) == (1, 2)


async def test_known_failure_of_a_once_step_does_not_fall_back() -> None:
    script, other = Script(holdfast.ToolError("exit code 1"), effect="once"), Script("other", name="other")
    async with engine_at("memory:", script.tool, other.tool) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match="exit code 1"):
            await result(await engine.start(plan(step("pay", "script", fallback="other"))))
    assert other.calls == []


async def test_doubt_policy_retry_runs_the_step_again_with_the_same_key() -> None:
    script = Script(ConnectionResetError("gone"), "paid", effect="once", in_doubt="retry")
    async with engine_at("memory:", script.tool) as engine:
        assert await result(await engine.start(plan(step("pay", "script")))) == "paid"
    assert len({call.key for call in script.calls}) == 1
    assert [call.attempt for call in script.calls] == [1, 2]


async def test_doubt_policy_fail_ends_it_and_says_why() -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("pay", "script", in_doubt="fail")))
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await result(run)
        assert str(failed.value) == "it may or may not have happened (gone)"
        assert failed.value.failure.happened == "unknown"


VERDICTS = {
    "happened": (lambda: holdfast.Happened("found it"), "found it", 1),
    "did not happen": (holdfast.DidNotHappen, "paid", 2),
}


@pytest.mark.parametrize("name", VERDICTS)
async def test_doubt_policy_verify_asks_the_tool_itself(name: str) -> None:
    verdict, output, calls = VERDICTS[name]
    script = Script(ConnectionResetError("gone"), "paid", effect="once", in_doubt="verify")
    asked: list[Any] = []

    @script.tool.verify
    async def verify(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        asked.append((call.key, arguments))
        return verdict()

    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("pay", "script", **{"with": {"value": 5}})))
        assert await result(run) == output
        assert asked == [(f"{run.id}:pay", {"value": 5})]
    assert len(script.calls) == calls


async def unknown() -> Any:
    return holdfast.Unknown()


async def raising() -> Any:
    raise RuntimeError("no answer")


async def nonsense() -> Any:
    return "maybe"


@pytest.mark.parametrize("check", [unknown, raising, nonsense])
async def test_check_that_cannot_tell_leaves_it_to_a_person(check: Callable[[], Awaitable[Any]]) -> None:
    script = Script(ConnectionResetError("gone"), effect="once", in_doubt="verify")

    @script.tool.verify
    async def verify(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        return await check()

    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        await in_doubt(run)
        await run.resolve("pay", "skip", by="ada")
        assert await result(run) == "went on"
        assert (await step_of(run, "pay")).reason == "skipped by ada"


async def test_again_with_edits_runs_with_the_edited_arguments_and_the_same_key() -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        await in_doubt(run)
        await run.resolve("pay", "again", arguments={"value": 6})
        await result(run)
        assert bytes((await step_of(run, "pay")).output) == b"6"
    assert script.arguments == [5, 6]
    assert len({call.key for call in script.calls}) == 1


async def test_resolving_with_the_fallback_uses_the_other_tool_under_the_same_key() -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    other = Script("other", name="other", effect="once")
    work = plan(step("pay", "script", fallback={"tool": "other", "with": {"value": 9}}))
    async with engine_at("memory:", script.tool, other.tool) as engine:
        run = await engine.start(work)
        assert "fallback" in (await in_doubt(run)).remedies
        await run.resolve("pay", "fallback")
        assert await result(run) == "other"
        completed = [event for event in await events(run) if isinstance(event, ev.StepCompleted)]
    assert completed[0].tool == "other"
    assert other.arguments == [9]
    assert script.calls[0].key == other.calls[0].key


async def test_resolving_with_fail_fails_the_step_by_name_of_who_said_so() -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        await in_doubt(run)
        await run.resolve("pay", "fail", by="ada")
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        assert (await step_of(run, "pay")).by == "ada"


async def test_resolve_refuses_what_is_not_offered_and_what_is_not_open() -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        await in_doubt(run)
        with pytest.raises(
            holdfast.Refused, match="pay can be resolved with done, again, skip, fail; not with fallback"
        ):
            await run.resolve("pay", "fallback")
        with pytest.raises(
            holdfast.Refused, match="there is no doubt, correction or budget request for nowhere; open: pay"
        ):
            await run.resolve("nowhere", "skip")
        with pytest.raises(holdfast.HoldfastError, match='edited arguments go with remedy "again"'):
            await run.resolve("pay", "done", arguments={"value": 1})
        assert (await names(run)).count("request:answered") == 0
        await run.resolve("pay", "skip")
        await result(run)
        assert (await run.resolve("pay", "skip")).outcome == "unchanged"
        with pytest.raises(holdfast.Refused, match="the execution is completed"):
            await run.resolve("pay", "done")


async def test_doubt_survives_a_restart(tmp_path: Path) -> None:
    script = Script(ConnectionResetError("gone"), effect="once")
    async with engine_at(tmp_path, script.tool, echo, limits=HURRY) as engine:
        run = await engine.start(ONCE)
        await in_doubt(run)
    async with engine_at(tmp_path, script.tool, echo) as engine:
        again = engine.get(run.id)
        await again.resolve("pay", "done", output={"receipt": 1})
        assert await result(again) == "went on"
    assert len(script.calls) == 1


async def test_closing_the_engine_while_a_once_step_runs_leaves_a_doubt(tmp_path: Path) -> None:
    gate = Gate("script", effect="once")
    async with engine_at(tmp_path, gate.tool, echo, limits=HURRY) as engine:
        run = await engine.start(ONCE)
        await gate.wait_entered()
    async with engine_at(tmp_path, gate.tool, echo) as engine:
        message = (await in_doubt(engine.get(run.id))).message
        assert message == "script may or may not have happened: the engine was closed while it ran"
        await engine.get(run.id).stop()
    assert len(gate.calls) == 1


async def test_step_that_its_program_cancels_is_settled_in_the_journal() -> None:
    pay, look = Gate("pay", effect="once"), Gate("look")

    @holdfast.tool(effect="read")
    async def fails() -> None:
        await asyncio.gather(pay.entered.wait(), look.entered.wait())
        raise holdfast.ToolError("no")

    @holdfast.function
    async def race(ctx: holdfast.Context) -> str:
        calls = [ctx.call(pay.tool, name="pay"), ctx.call(look.tool, name="look")]
        tasks = [asyncio.ensure_future(call) for call in calls]
        with pytest.raises(holdfast.StepFailed):
            await ctx.call(fails)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return "lived with it"

    async with engine_at("memory:", functions=[race]) as engine:
        run = await engine.start(race)
        with pytest.raises(holdfast.ExecutionFailed, match=r"in doubt whether it happened .* without settling that"):
            await result(run)
        steps = (await run.state()).steps
        assert {path: s.status for path, s in steps.items()} == {
            "pay": "in_doubt", "look": "interrupted", "fails": "failed",
        }  # fmt: skip
        assert steps["pay"].reason == "its program cancelled it while it ran"


async def test_effect_written_in_the_step_goes_before_that_of_the_tool() -> None:
    script = Script(ConnectionResetError("gone"), "read it", effect="once", retry=holdfast.Retry(first_s=0.001))
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("pay", "script", effect="read")))
        await seen(run, "step:completed")
        assert await result(run) == "read it"
        assert (await step_of(run, "pay")).effect == "read"


async def test_nothing_is_called_again_after_a_pause_that_came_while_it_was_verified() -> None:
    asked, told = asyncio.Event(), asyncio.Event()
    script = Script(ConnectionResetError("gone"), effect="once", in_doubt="verify")

    @script.tool.verify
    async def verify(call: holdfast.Call, arguments: dict[str, Any]) -> holdfast.DidNotHappen:
        asked.set()
        await told.wait()
        return holdfast.DidNotHappen()

    async with engine_at("memory:", script.tool, echo) as engine:
        run = await engine.start(ONCE)
        async with asyncio.timeout(60):
            await asked.wait()
        assert (await run.pause()).outcome == "applied"
        told.set()
        await quiet(engine)
        assert ((await names(run))[-1], len(script.calls)) == ("task:paused", 1)
        await run.resume()
        assert await result(run) == "went on"
    assert len(script.calls) == 2
