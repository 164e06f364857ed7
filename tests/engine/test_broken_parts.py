"""When the store, the clock, the program or the tool misbehaves: nothing is lost, and somebody hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, names, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid, NotFound, StoreUnavailable, UsageError
from holdfast.engine.drive.slots import Slot, Slots
from holdfast.journal.store import Write, Written


def fail_commits(engine: holdfast.Engine, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the next commits fail as on a full disk."""
    commit, left = engine.services.store.commit, count

    async def failing(writes: Sequence[Write]) -> list[Written]:
        nonlocal left
        if left:
            left -= 1
            raise StoreUnavailable("the disk is full")
        return await commit(writes)

    monkeypatch.setattr(engine.services.store, "commit", failing)


async def test_task_that_cannot_be_written_is_refused_and_holds_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_at(tmp_path, echo) as engine:
        fail_commits(engine, monkeypatch, 1)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await engine.start(plan(step("a", "echo")))
        assert engine.holdings()["slots"] == 0
        assert await engine.list() == []
        await result(await engine.start(plan(step("a", "echo"))))


async def test_step_with_an_effect_is_not_called_when_its_intent_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, pay = Gate(), Script("paid", name="pay", effect="once")
    async with engine_at(tmp_path, gate.tool, pay.tool) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "pay")))
        await gate.wait_entered()
        fail_commits(engine, monkeypatch, 1)
        gate.open.set()
        await seen(run, "task:completed")
        assert "step:in_doubt" not in await names(run)
    assert len(pay.calls) == 1


async def test_keeper_that_cannot_read_goes_on_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    troubles: list[Exception] = [StoreUnavailable("locked"), RuntimeError("odd")]

    async with engine_at(tmp_path, echo) as engine:
        drivers = engine.services.store.drivers

        async def failing() -> list[str]:
            if troubles:
                raise troubles.pop(0)
            return await drivers()

        monkeypatch.setattr(engine.services.store, "drivers", failing)
        with caplog.at_level(logging.WARNING, "holdfast"):
            run = await engine.start(plan(step("a", "echo")), hold=True)
            await run.resume()
            await result(run)
    assert "the journal cannot be read: locked" in caplog.text
    assert "the keeper stumbled" in caplog.text


async def test_program_of_an_unknown_kind_is_left_for_one_who_knows_it(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        created = engine.preparer.prepare(plan(step("a", "echo")))
        foreign = msgspec.structs.replace(created, program=ev.Program(kind="dream", name="x"))
        run = await engine.create(foreign)
        with pytest.raises(NotFound, match="nothing here can run a program of kind dream"):
            await result(run)
        with pytest.raises(NotFound, match="nothing here can run a program of kind dream"):
            await engine.fork(run.id)
        assert await names(run) == ["task:created"]


async def test_tool_that_cancels_itself_fails_like_one_that_timed_out() -> None:
    script = Script(asyncio.CancelledError(), "then it works", retry=holdfast.Retry(first_s=0.001))
    once = Script(asyncio.CancelledError(), name="once", effect="once")
    async with engine_at("memory:", script.tool, once.tool) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "once")))
        assert await settled(run) == "waiting"
        assert (await step_of(run, "a")).attempts[0].message == "script cancelled itself"
        assert (await step_of(run, "b")).reason == "once cancelled itself"
        await run.stop()


async def test_output_supplied_by_a_person_must_fit_what_the_tool_returns() -> None:
    @holdfast.tool(effect="once")
    async def count() -> int:
        raise ConnectionResetError("gone")

    async with engine_at("memory:", count) as engine:
        run = await engine.start(plan(step("a", "count")))
        await settled(run)
        with pytest.raises(InputInvalid, match="the output does not fit what count returns"):
            await run.resolve("a", "done", output="many")
        await run.resolve("a", "done", output=3)
        assert await result(run) == 3


async def test_step_asked_for_while_another_branch_waits_wakes_the_execution() -> None:
    quiet_long_enough = asyncio.Event()

    @holdfast.function
    async def program(ctx: holdfast.Context) -> list[Any]:
        async def later(inner: holdfast.Context) -> Any:
            await quiet_long_enough.wait()  # not a step: the engine cannot see that something is going on
            return await inner.call(echo, 1)

        return await ctx.gather(ctx.wait_for("go"), later)

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        await seen(run, "task:waiting")
        quiet_long_enough.set()
        await seen(run, "step:completed")
        await run.send("go", 2)
        assert await result(run) == [2, 1]


async def test_timer_is_looked_at_again_when_the_clock_was_set_back() -> None:
    async with engine_at("memory:", echo) as engine:
        clock = engine.services.clock
        shift = 0

        class Shifting:
            def now_us(self) -> int:
                return clock.now_us() + shift

        engine.services.clock = Shifting()
        run = await engine.start(plan({"id": "nap", "wait": 0.05}))
        await seen(run, "step:waiting")
        shift = -40_000
        await result(run)
        state = await run.state()
        assert state.steps["nap"].ended_at - state.steps["nap"].started_at >= 0


async def test_question_of_an_unknown_type_is_refused() -> None:
    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        with pytest.raises(UsageError, match="ask: there is no type 'colour'; there are: "):
            await ctx.ask("Which?", type="colour")  # type: ignore[arg-type]

    async with engine_at("memory:", functions=[program]) as engine:
        await result(await engine.start(program))


async def test_slot_asked_for_twice_is_held_once() -> None:
    slots = Slots(limit=1, parked_max=1)
    busy, slot = Slot(slots), Slot(slots)
    await busy.acquire()
    both = [asyncio.ensure_future(slot.acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    busy.release()
    await asyncio.wait(both, timeout=0.01)
    slot.release()
    await asyncio.gather(*both)
    slot.release()
    assert (slots.used, slots.free) == (0, 1)


async def test_fallback_of_a_function_step_takes_over() -> None:
    script, other = Script(holdfast.ToolError("no")), Script("other", name="other")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> str:
        policy = msgspec.convert({"fallback": [{"tool": "other"}]}, holdfast.StepPolicy)
        return await ctx.call(script.tool, policy=policy)

    async with engine_at("memory:", script.tool, other.tool, functions=[program]) as engine:
        assert await result(await engine.start(program)) == "other"
