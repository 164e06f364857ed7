"""The limit of a pause: who may set it, what it does to a plan with `finally` steps, and who is told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, engine_at, events, plan, result, seen, settled, step, step_of, until
from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid, UsageError
from holdfast.core.notification_text import facts_of, notice_of

said: list[Any] = []


@holdfast.tool(name="say", effect="once")
async def say(value: Any = None) -> Any:
    said.append(value)
    return value


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    said.clear()


def guarded(gate: str = "gate", **others: Any) -> dict[str, Any]:
    tidy = step("tidy", "say", **{"with": {"value": "${{ steps.a.output }}, ${{ steps.b.status }}"}})
    a = step("a", gate, **{"with": {"value": "first"}})
    return plan(a, step("b", "say"), **{"finally": [tidy], "output": "${{ steps.b.output }}", **others})


async def test_pause_limit_runs_finally_and_then_stops() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, say) as engine:
        run = await engine.start(guarded(pause_timeout=0.05))
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        with pytest.raises(holdfast.ExecutionStopped, match="stopped by holdfast: the pause limit was reached"):
            await result(run)
        assert said == ["first, skipped"]
        state = await run.state()
        assert ("b" in state.steps, state.steps["tidy"].status) == (False, "completed")
        moves = [event for event in await events(run) if isinstance(event, ev.TaskResumed | ev.TaskStopped)]
        assert [(type(event).__name__, event.pause_limit) for event in moves] == [
            ("TaskResumed", "stop"),
            ("TaskStopped", True),
        ]


async def test_the_stop_command_runs_no_finally_steps() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, say) as engine:
        run = await engine.start(guarded())
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        assert await settled(run) == "paused"
        await run.stop()
        assert (await run.status(), said) == ("stopped", [])


async def test_a_process_that_dies_during_finally_is_followed_by_one_that_finishes_it(tmp_path: Path) -> None:
    gate, last = Gate(), Gate("last", "idempotent")
    tidy = [step("one", "say"), step("two", "last")]
    work = plan(step("a", "gate"), step("b", "say"), **{"finally": tidy, "pause_timeout": 0.05})
    async with engine_at(tmp_path, gate.tool, last.tool, say, limits=holdfast.Limits(drain_s=0.05)) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        await last.wait_entered()
        assert (await run.show())["stopping"] is True
    last.open.set()
    async with engine_at(tmp_path, gate.tool, last.tool, say) as engine:
        with pytest.raises(holdfast.ExecutionStopped, match="the pause limit was reached"):
            await result(engine.get(run.id))
    assert (len(said), len(gate.calls), len(last.calls)) == (1, 1, 2)


async def test_a_pause_during_finally_is_resumed_with_finally_alone() -> None:
    gate, last = Gate(), Gate("last")
    tidy = [step("one", "last"), step("two", "say")]
    work = plan(step("a", "gate"), step("b", "say"), **{"finally": tidy, "pause_timeout": 0.2})
    async with engine_at("memory:", gate.tool, last.tool, say) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        await last.wait_entered()
        await run.pause()
        last.open.set()
        await seen(run, "step:completed", lambda event: event.path == "one")
        await run.resume()
        with pytest.raises(holdfast.ExecutionStopped):
            await result(run)
        assert len(said) == 1


async def test_children_run_their_own_finally_before_they_are_stopped(tmp_path: Path) -> None:
    gate, last = Gate(), Gate("last")
    (tmp_path / "inner.json").write_text(
        '{"steps": [{"id": "a", "tool": "gate"}, {"id": "b", "tool": "say"}],'
        ' "finally": [{"id": "tidy", "tool": "say", "with": {"value": "child"}}]}'
    )
    work = plan({"id": "c", "start": "inner.json"}, **{"finally": [step("last", "last")], "pause_timeout": 0.2})
    async with engine_at(tmp_path, gate.tool, last.tool, say) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
        child_id = (await run.state()).children["c"].id
        await run.pause()
        await seen(engine.get(child_id), "task:paused")
        gate.open.set()
        with pytest.raises(holdfast.ExecutionStopped):
            await result(engine.get(child_id))
        last.open.set()
        with pytest.raises(holdfast.ExecutionStopped):
            await result(run)
        assert said == ["child"]


async def test_pause_limit_can_be_said_by_a_function_and_by_start() -> None:
    gate = Gate()

    @holdfast.function(pause_timeout="2h", on_pause_timeout="resume")
    async def patient(ctx: holdfast.Context) -> None:
        await ctx.call(gate.tool)

    async with engine_at("memory:", gate.tool, functions=[patient]) as engine:
        limits: list[tuple[Any, ...]] = []
        given: list[dict[str, Any]] = [{}, {"pause_timeout": "1d"}, {"pause_timeout": 5, "on_pause_timeout": "stop"}]
        for options in given:
            run = await engine.start(patient, **options)
            facts = (await run.state()).facts()
            limits.append((facts.pause_timeout_s, facts.on_pause_timeout))
            await run.stop()
        assert limits == [(7200.0, "resume"), (86400.0, "resume"), (5.0, "stop")]
        run = await engine.start(plan(step("a", "gate"), pause_timeout="1d"), on_pause_timeout="resume")
        facts = (await run.state()).facts()
        assert (facts.pause_timeout_s, facts.on_pause_timeout) == (86400.0, "resume")
        await run.stop()
        with pytest.raises(InputInvalid, match="pause_timeout: expected a duration"):
            await engine.start(patient, pause_timeout="soon")
        with pytest.raises(InputInvalid, match='on_pause_timeout: expected "stop" or "resume", got the string "end"'):
            await engine.start(patient, on_pause_timeout="end")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="patient: pause_timeout: expected a duration"):
        holdfast.function(pause_timeout="soon")(patient.coroutine)


async def test_pause_now_cuts_off_what_runs() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await run.pause(now=True, why="storm")
        state = await run.state()
        assert (state.status, state.why, gate.cancelled) == ("interrupted", "storm", 1)
        await run.stop()


@pytest.mark.parametrize(
    ("then", "title", "after"),
    [("stop", "test is stopped", "retry"), ("resume", "test goes on", "goes on")],
)
async def test_people_are_told_before_and_after_a_pause_limit_acts(then: Any, title: str, after: str) -> None:
    gate = Gate()
    told: list[tuple[str, str]] = []

    class Ear:
        def look(self, state: Any, durable_seq: int) -> None:
            for fact in facts_of(state, durable_seq):
                notice = notice_of(state, fact)
                if notice.occasion == "paused" and (notice.title, notice.text) not in told:
                    told.append((notice.title, notice.text))

        def catch_up(self) -> None: ...
        async def close(self) -> None: ...

    class Clock:
        ahead_us = 0

        def now_us(self) -> int:
            return time.time_ns() // 1000 + self.ahead_us

    async with engine_at("memory:", gate.tool) as engine:
        engine.services.notices = Ear()  # type: ignore[assignment]
        engine.services.clock = clock = Clock()
        run = await engine.start(plan(step("a", "gate"), step("b", "gate")), pause_timeout="30m", on_pause_timeout=then)
        await gate.wait_entered()
        await run.pause(by="ada")
        gate.open.set()
        await until(lambda: len(told) == 1)
        clock.ahead_us = 31 * 60 * 1_000_000
        await until(lambda: len(told) == 2)
        (before_title, before), (after_title, text) = told
        assert (before_title, after_title) == ("test: its pause is about to end", title)
        assert f"it will be {'stopped' if then == 'stop' else 'resumed'} at 20" in before
        assert before.startswith("paused by ada\n")
        assert f"holdfast resume {run.id}" in before
        assert after in text
        await asyncio.wait({asyncio.ensure_future(run.settled())}, timeout=60)
        assert (await step_of(run, "a")).status == "completed"
