"""One step: its path, its first run and its replay, what the program sees of it, and how long it may take."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, events, names, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev


async def test_completed_steps_are_answered_from_the_journal_by_the_next_engine(tmp_path: Path) -> None:
    counted, gate = Script("first"), Gate()
    work = plan(
        step("a", "script"), step("b", "gate"), step("c", "echo", **{"with": {"value": "${{ steps.a.output }}"}})
    )
    async with engine_at(tmp_path, counted.tool, gate.tool, echo, limits=holdfast.Limits(drain_s=0.01)) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, counted.tool, gate.tool, echo) as engine:
        assert await result(engine.get(run.id)) == "first"
        assert len(counted.calls) == 1
        assert len(gate.calls) == 2
        assert (await step_of(engine.get(run.id), "b")).attempt == 2


async def test_program_sees_what_the_journal_holds_not_what_the_tool_returned() -> None:
    @holdfast.tool(effect="read")
    async def pair() -> Any:
        return {"point": (1, 2), 3: "three"}

    seen_by_program: list[Any] = []

    @holdfast.function
    async def look(ctx: holdfast.Context) -> Any:
        seen_by_program.append(await ctx.call(pair))
        return seen_by_program[-1]

    async with engine_at("memory:", pair) as engine:
        run = await engine.start(look)
        assert await result(run) == {"point": [1, 2], "3": "three"}
    assert seen_by_program == [{"point": [1, 2], "3": "three"}]


async def test_values_too_large_for_an_event_come_back_whole(tmp_path: Path) -> None:
    big = "x" * 50_000
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(step("a", "echo", **{"with": {"value": big}})))
        assert await result(run) == big
        completed = [event for event in await events(run) if isinstance(event, ev.StepCompleted)]
        assert len(bytes(completed[0].output)) < 1000
        again = await engine.fork(run.id)
        assert await result(again) == big


async def test_step_started_holds_tool_arguments_and_digest() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo", **{"with": {"value": 1}})))
        await result(run)
        started = [event for event in await events(run) if isinstance(event, ev.StepStarted)]
    assert [(s.path, s.tool, bytes(s.arguments), s.attempt, s.effect) for s in started] == [
        ("a", "echo", b'{"value":1}', 1, "read")
    ]
    assert len(started[0].digest) == 32


async def test_a_step_that_another_plan_gives_another_input_begins_anew(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        first = await engine.start(plan(step("a", "echo", **{"with": {"value": 1}}), step("b", "echo")))
        await result(first)
        other = plan(
            step("a", "echo", **{"with": {"value": 2}}),
            step("b", "echo", **{"with": {"value": "${{ steps.a.output }}"}}),
        )
        second = await engine.retry(first.id, from_step="b", program=other)
        assert await result(second) == 2
        assert (await names(second)).count("step:discarded") == 1


async def test_step_that_takes_too_long_is_timed_out_and_tried_again() -> None:
    gate = Gate(timeout=0.05)
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate", retry={"max": 1, "first": 0.001}, **{"with": {"value": 7}})))
        await seen(run, "step:retrying")
        gate.open.set()
        assert await result(run) == 7
        attempts = (await step_of(run, "a")).attempts
    assert [(a.outcome, a.category) for a in attempts] == [("failed", "timeout"), ("completed", None)]
    assert attempts[0].message == "gate took longer than 0.05 s"


async def test_time_limit_of_the_step_goes_before_that_of_the_tool() -> None:
    gate = Gate(timeout=3600)
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate", timeout=0.03, retry=0)))
        with pytest.raises(holdfast.ExecutionFailed, match=r"took longer than 0\.03 s"):
            await result(run)


async def test_answer_given_in_spite_of_the_time_limit_counts() -> None:
    @holdfast.tool(effect="once", timeout=0.02)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    async with engine_at("memory:", stubborn) as engine:
        run = await engine.start(plan(step("a", "stubborn"), step("b", "stubborn")))
        assert await result(run) == "done all the same"


async def test_error_raised_in_answer_to_the_time_limit_is_the_failure() -> None:
    @holdfast.tool(effect="read", timeout=0.02)
    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise holdfast.ToolError("tidied up") from None

    async with engine_at("memory:", tidy, echo) as engine:
        run = await engine.start(plan(step("a", "tidy", critical=False), step("b", "echo")))
        await result(run)
        assert (await step_of(run, "a")).failure.message == "tidied up"  # type: ignore[union-attr]


async def test_tool_that_ends_the_interpreter_only_fails_its_step() -> None:
    @holdfast.tool(effect="read")
    async def leave() -> None:
        raise SystemExit(3)

    @holdfast.tool(effect="read")
    def leave_thread() -> None:
        raise SystemExit(4)

    async with engine_at("memory:", leave, leave_thread) as engine:
        for name in ("leave", "leave_thread"):
            run = await engine.start(plan(step("a", name)))
            with pytest.raises(holdfast.ExecutionFailed):
                await result(run)
            assert (await step_of(run, "a")).status == "failed"


async def test_holdfast_error_inside_a_tool_is_a_failure_of_its_step() -> None:
    @holdfast.tool(effect="read")
    async def nested() -> None:
        raise holdfast.Refused("the other engine said no")

    async with engine_at("memory:", nested) as engine:
        run = await engine.start(plan(step("a", "nested", on_error="fail")))
        with pytest.raises(holdfast.ExecutionFailed, match="the other engine said no"):
            await result(run)
        assert (await step_of(run, "a")).status == "failed"


async def test_notes_are_handed_to_the_next_attempt() -> None:
    notes: list[Any] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(first_s=0.001))
    async def session(call: holdfast.Call) -> str:
        notes.append(call.notes)
        await call.note({"session": len(notes)})
        if len(notes) == 1:
            raise holdfast.Transient("lost it")
        return "ok"

    async with engine_at("memory:", session) as engine:
        run = await engine.start(plan(step("a", "session")))
        assert await result(run) == "ok"
        assert "step:noted" in await names(run)
    assert notes == [None, {"session": 1}]


async def test_a_fallback_is_not_handed_what_another_tool_noted() -> None:
    notes: list[Any] = []

    @holdfast.tool(effect="once", retry=0)
    async def pages(call: holdfast.Call) -> str:
        await call.note({"page": 7})
        raise holdfast.Transient("gone", without_effect=True)

    @holdfast.tool(effect="once")
    async def other(call: holdfast.Call) -> str:
        notes.append(call.notes)
        return "ok"

    async with engine_at("memory:", pages, other) as engine:
        assert await result(await engine.start(plan(step("a", "pages", fallback="other")))) == "ok"
    assert notes == [None]


async def test_tools_that_block_run_in_threads_and_may_note_and_speak(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    def blocking(call: holdfast.Call) -> str:
        call.note("here")
        call.say("working")
        call.progress(50, "half")
        return "done"

    async with engine_at(tmp_path, blocking) as engine:
        run = await engine.start(plan(step("a", "blocking")))
        assert await result(run) == "done"
        assert "step:noted" in await names(run)


async def test_output_of_another_type_than_declared_asks_for_a_correction() -> None:
    @holdfast.tool(effect="read")
    async def count() -> int:
        return "three"  # type: ignore[return-value]

    async with engine_at("memory:", count) as engine:
        run = await engine.start(plan(step("a", "count")))
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert "count returned something else than it declares" in request.message
        await run.stop()


async def test_steps_with_an_effect_start_only_when_what_they_build_on_is_on_disk(tmp_path: Path) -> None:
    durable: list[int] = []

    @holdfast.tool(effect="once")
    async def act(call: holdfast.Call) -> None:
        rows = (await engine.services.store.events(call.execution_id, 0, -1))[1]
        durable.append(len(rows))

    async with engine_at(tmp_path, act, echo) as engine:
        run = await engine.start(plan(step("a", "echo"), step("b", "act")))
        await result(run)
        written = await events(run)
    started = next(n for n, event in enumerate(written, 1) if isinstance(event, ev.StepStarted) and event.path == "b")
    assert durable == [started]
