"""Pause, interrupt, resume, stop: who may, what happens to what runs, and that asking twice changes nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

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
    until,
)
from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid
from holdfast.core.policy import PAUSE_TIMEOUT_S

TWO = plan(step("a", "gate"), step("b", "script", **{"with": {"value": "b"}}))


async def test_pause_lets_the_running_step_finish_and_begins_no_other(tmp_path: Path) -> None:
    gate, script = Gate(), Script()
    async with engine_at(tmp_path, gate.tool, script.tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        answer = await run.pause(by="ada", why="lunch")
        assert (answer.outcome, answer.text) == ("applied", "paused; steps that are running finish first")
        gate.open.set()
        await seen(run, "step:completed")
        await quiet(engine)
        state = await run.state()
        assert (state.status, state.by, state.why) == ("paused", "ada", "lunch")
        assert script.calls == []
        assert gate.cancelled == 0
        assert not any(engine.holdings().values()), engine.holdings()
        await run.resume(by="bob")
        assert await result(run) == "b"
        assert len(gate.calls) == 1


async def test_second_pause_changes_nothing_and_says_so() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, Script().tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        await run.pause(by="ada")
        before = await names(run)
        answer = await run.pause(by="bob")
        assert (answer.outcome, answer.text) == ("unchanged", "already paused by ada")
        assert await names(run) == before
        await run.stop()


async def test_pause_and_resume_while_the_step_runs_leave_it_alone() -> None:
    gate, script = Gate(), Script()
    async with engine_at("memory:", gate.tool, script.tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        await run.pause()
        await run.resume()
        gate.open.set()
        assert await result(run) == "b"
        assert (len(gate.calls), gate.cancelled) == (1, 0)


async def test_step_held_back_by_a_pause_goes_on_when_resumed_at_once() -> None:
    gate, script, after = Gate(), Script(), asyncio.Event()
    async with engine_at("memory:", gate.tool, script.tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        await seen(run, "step:completed")
        await run.resume()  # perhaps before the driver let go, perhaps after: the result is the same
        assert await result(run) == "b"
    assert len(gate.calls) == 1
    assert not after.is_set()


async def test_interrupt_cancels_at_once_and_stays_until_a_person_resumes(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, Script().tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        answer = await run.interrupt(by="ada", why="wrong")
        assert answer.outcome == "applied"
        assert gate.cancelled == 1
        assert (await run.state()).status == "interrupted"
        assert (await run.interrupt()).text == "already interrupted by ada"
        assert (await run.pause()).text == "already interrupted by ada"
    async with engine_at(tmp_path, gate.tool, Script().tool) as engine:
        again = engine.get(run.id)
        assert await settled(again) == "interrupted"
        gate.open.set()
        await again.resume()
        assert await result(again) == "b"
    assert len(gate.calls) == 2


async def test_tool_that_will_not_be_cancelled_is_left_behind_and_can_write_no_more() -> None:
    entered, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @holdfast.tool(effect="read")
    async def stubborn(call: holdfast.Call) -> str:
        entered.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    limits = holdfast.Limits(interrupt_grace_s=0.02)
    async with engine_at("memory:", stubborn, limits=limits) as engine:
        run = await engine.start(plan(step("a", "stubborn")))
        await entered.wait()
        await run.interrupt()
        await quiet(engine)
        before = await names(run)
        let_go.set()
        await ended.wait()
        await asyncio.sleep(0)
        assert await names(run) == before
        assert (await run.state()).steps["a"].status == "interrupted"
        assert await result_after_resume(run) == "late"


async def result_after_resume(run: holdfast.Run) -> str:
    await run.resume()
    return await result(run)


async def test_stop_ends_it_for_good_and_result_says_who_and_why() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, Script().tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        await run.stop(by="ada", why="not needed")
        with pytest.raises(holdfast.ExecutionStopped, match="stopped by ada: not needed"):
            await result(run)
        assert gate.cancelled == 1
        assert (await run.stop()).text == "already stopped by ada"
        for refused in (run.pause(), run.resume(), run.interrupt()):
            with pytest.raises(
                holdfast.Refused, match=f"the execution is stopped; to run it again: holdfast retry {run.id}"
            ):
                await refused
        assert (await names(run))[-1] == "task:stopped"


async def test_completed_execution_cannot_be_stopped() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        with pytest.raises(holdfast.Refused, match="already completed; there is nothing to stop"):
            await run.stop()


async def test_waiting_and_paused_executions_are_stopped_without_anybody_driving(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "ok", "approval": True}))
        await settled(run)
        await run.pause()
        await quiet(engine)
        assert (await run.stop(by="ada")).outcome == "applied"
        assert await run.status() == "stopped"


async def test_resume_of_what_is_not_held_changes_nothing() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, Script().tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        assert (await run.resume()).text == "already running"
        waiting = await engine.start(plan({"id": "ok", "approval": True}))
        await settled(waiting)
        answer = await waiting.resume()
        assert answer.text.startswith("waiting for an approval (ok")
        await run.stop()
        await waiting.stop()


async def test_paused_execution_whose_wait_is_over_is_let_go_of_all_the_same() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan({"id": "nap", "wait": 0.05}, step("a", "echo")))
        waiting = (await seen(run, "step:waiting")).event
        assert isinstance(waiting, ev.StepWaiting)
        due_at = waiting.due_at or 0
        await run.pause()
        await until(lambda: time.time() * 1e6 > due_at)
        await quiet(engine)
        assert await run.status() == "paused"
        await run.resume()
        await result(run)


async def test_pause_has_a_limit_of_thirty_days_by_default() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, Script().tool) as engine:
        run = await engine.start(TWO)
        await gate.wait_entered()
        await run.pause()
        paused = next(event for event in await events(run) if isinstance(event, ev.TaskPaused))
        assert paused.until is not None
        assert paused.until - paused.at == int(PAUSE_TIMEOUT_S * 1e6)
        assert paused.on_timeout == "stop"
        await run.stop()


async def test_pause_limit_is_announced_and_then_stops_it(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "gate"), pause_timeout=0.3))
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        with pytest.raises(holdfast.ExecutionStopped, match="stopped by holdfast: the pause limit was reached"):
            await result(run)
        kinds = await names(run)
        assert kinds.index("task:paused") < kinds.index("task:pause_expiring") < kinds.index("task:stopped")


async def test_pause_limit_may_resume_instead(tmp_path: Path) -> None:
    gate = Gate()
    work = plan(
        step("a", "gate"), step("b", "gate", **{"with": {"value": 1}}), pause_timeout=0.1, on_pause_timeout="resume"
    )
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        assert await result(run) == 1
        resumed = next(event for event in await events(run) if isinstance(event, ev.TaskResumed))
        assert (resumed.by, resumed.why) == ("holdfast", "the pause limit was reached")
        kinds = await names(run)
        assert kinds.index("task:pause_expiring") < kinds.index("task:resumed")


async def test_pause_limit_that_passed_unattended_is_announced_all_the_same(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "gate"), pause_timeout=0.001))
        await gate.wait_entered()
        await run.pause()
    async with engine_at(tmp_path, gate.tool) as engine:
        with pytest.raises(holdfast.ExecutionStopped, match="the pause limit was reached"):
            await result(engine.get(run.id))
        assert "task:pause_expiring" in await names(engine.get(run.id))


async def test_command_with_the_same_id_is_done_once_and_answered_twice(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan({"id": "go", "wait": {"event": "go"}}, {"id": "more", "wait": {"event": "go"}}))
        first = await run.send("go", 1, id="same")
        second = await run.send("go", 1, id="same")
        assert (first.outcome, second.outcome) == ("applied", "applied")
        assert first.seq == second.seq
        assert (await names(run)).count("event:received") == 1
        await run.stop()


async def test_unknown_execution_is_a_clear_error() -> None:
    async with engine_at("memory:") as engine:
        for refused in (engine.get("nowhere").pause(), engine.get("nowhere").status(), engine.get("nowhere").result()):
            with pytest.raises(holdfast.HoldfastError, match="there is no execution nowhere"):
                await refused


async def test_an_endless_command_id_is_refused() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")), hold=True)
        with pytest.raises(InputInvalid, match="a command's id has 201 characters, 200 are allowed"):
            await run.send("go", id="x" * 201)
        assert await names(run) == ["task:created"]
