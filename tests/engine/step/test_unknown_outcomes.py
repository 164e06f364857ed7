"""Writes whose outcome nobody knows: reported as failed and written all the same, or written and never heard of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, echo, engine_at, names, plan, quiet, result, seen, settled, step, step_of
from holdfast.core.commands import Command
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.store import Claim, Entry, NewExecution, Write


class LyingDisk:
    """Writes everything, and says of the first write that fits that it failed."""

    def __init__(self, engine: holdfast.Engine, fits: Callable[[Write], bool]) -> None:
        self._commit = engine.services.store.commit
        self._fits = fits
        self.lied = False
        engine.services.store.commit = self.commit  # type: ignore[method-assign]

    async def commit(self, writes: Sequence[Write]) -> Any:
        written = await self._commit(writes)
        if not self.lied and any(self._fits(write) for write in writes):
            self.lied = True
            raise StoreUnavailable("the disk failed")
        return written


async def test_task_that_was_written_though_its_start_failed_is_driven() -> None:
    async with engine_at("memory:", echo) as engine:
        disk = LyingDisk(engine, lambda write: isinstance(write, NewExecution))
        with pytest.raises(StoreUnavailable):
            await engine.start(plan(step("a", "echo", **{"with": {"value": 1}})), key="k")
        assert disk.lied
        [head] = await engine.list()
        assert await result(engine.get(head.id)) == 1


async def test_claim_that_was_written_though_it_failed_is_found_and_driven(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, recover="none") as engine:
        held = await engine.start(plan(step("a", "echo", **{"with": {"value": 1}})), hold=True)
        await held.resume()
    async with engine_at(tmp_path, echo) as engine:
        disk = LyingDisk(engine, lambda write: isinstance(write, Claim))
        assert await result(engine.get(held.id)) == 1
        assert disk.lied


async def test_execution_whose_release_failed_is_taken_up_again_when_its_time_comes() -> None:
    async with engine_at("memory:", limits=HURRY) as engine:
        disk = LyingDisk(engine, lambda write: isinstance(write, Entry) and write.release)
        run = await engine.start(plan({"id": "rest", "wait": 0.3}))
        await seen(run, "task:completed")
        assert disk.lied


async def test_command_reaches_an_execution_whose_claim_was_never_heard_of() -> None:
    async with engine_at("memory:", recover="none") as engine:
        run = await engine.start(plan({"id": "agree", "approval": "go on?"}), hold=True)
        disk = LyingDisk(engine, lambda write: isinstance(write, Claim))
        with pytest.raises(StoreUnavailable):
            await run.interrupt()
        assert disk.lied
        assert (await run.head()).driver == engine.services.driver  # held by us, and driven by nobody
        assert (await run.interrupt()).outcome in ("applied", "unchanged")
        assert await run.status() == "interrupted"


# ---- commands that nobody waits for any more -------------------------------------------------------------------


async def post(engine: holdfast.Engine, run: holdfast.Run, command_id: str, verb: Any = "pause") -> None:
    """A command from a client that dies before it can see to it."""
    await engine.services.store.commit([Command(id=command_id, execution_id=run.id, verb=verb, at=1)])


async def answered(engine: holdfast.Engine, command_id: str) -> Any:
    async with asyncio.timeout(60):
        while (answer := await engine.services.store.answer(command_id)) is None:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.01)
    return answer


async def test_command_to_an_ended_execution_is_answered_though_its_client_died() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        await quiet(engine)
        await post(engine, run, "late")
        answer = await answered(engine, "late")
        assert answer.outcome == "refused"
        assert "the execution is completed" in answer.text
        assert (await run.head()).wake_at is None


async def test_command_that_came_just_before_the_end_is_answered() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        driver = engine.driver(run.id)
        assert driver is not None
        driver.deliver = lambda commands: None  # type: ignore[method-assign] -- it ends before it looks
        await post(engine, run, "close")
        gate.open.set()
        await result(run)
        assert (await answered(engine, "close")).outcome == "refused"


# ---- words after the end ---------------------------------------------------------------------------------------


async def test_what_a_tool_notes_after_its_answer_is_refused_and_not_kept() -> None:
    calls: list[holdfast.Call] = []

    @holdfast.tool(effect="read")
    async def talk(call: holdfast.Call) -> str:
        calls.append(call)
        return "done"

    gate = Gate()
    async with engine_at("memory:", talk, gate.tool) as engine:
        run = await engine.start(plan(step("a", "talk"), step("b", "gate")))
        await gate.wait_entered()
        with pytest.raises(holdfast.ToolError, match="a: attempt 1 is over; what it notes now cannot be kept"):
            await calls[0].note({"late": True})
        gate.open.set()
        await result(run)
        with pytest.raises(holdfast.ToolError, match="attempt 1 is over"):
            await calls[0].note({"later": True})
        kinds = await names(run)
        assert "step:noted" not in kinds
        assert kinds[-1] == "task:completed"


# ---- cut off before it began -----------------------------------------------------------------------------------


async def test_once_step_cut_off_before_its_tool_is_called_is_not_in_doubt() -> None:
    pay = Script(name="pay", effect="once")

    @holdfast.function
    async def impatient(ctx: holdfast.Context) -> str:
        paying = asyncio.ensure_future(ctx.call(pay.tool))
        while "pay" not in ctx._steps.state.steps:  # noqa: ASYNC110 -- a task that always has a turn to come
            await asyncio.sleep(0)
        paying.cancel()  # its start is on its way to the disk
        await asyncio.wait({paying})
        return "never mind"

    async with engine_at("memory:", functions=[impatient]) as engine:
        run = await engine.start(impatient)
        assert await result(run) == "never mind"
        assert pay.calls == []
        assert (await step_of(run, "pay")).status == "interrupted"


# ---- a queue for places ----------------------------------------------------------------------------------------


async def test_execution_that_queued_for_a_place_when_its_process_died_is_woken_by_the_next(tmp_path: Path) -> None:
    gate = Gate()
    one_place = holdfast.Limits(executions=1, passivate_after_s=60, drain_s=0.0, interrupt_grace_s=0.1)
    async with engine_at(tmp_path, gate.tool, echo, limits=one_place, check=False) as engine:
        waiting = await engine.start(plan({"id": "news", "wait": {"event": "go"}}))
        await seen(waiting, "task:waiting")
        busy = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await waiting.send("go", 7)  # it could go on, and there is no place
        assert (await waiting.head()).wake_at == 0
        gate.open.set()
        assert await result(waiting) == 7
        await result(busy)


async def test_branches_that_wake_together_share_one_place() -> None:
    gate = Gate()

    @holdfast.function
    async def two(ctx: holdfast.Context) -> list[Any]:
        return await ctx.gather(ctx.wait_for("one"), ctx.wait_for("two"))

    places = holdfast.Limits(executions=1, passivate_after_s=60)
    async with engine_at("memory:", gate.tool, functions=[two], limits=places) as engine:
        run = await engine.start(two)
        await seen(run, "task:waiting")
        busy = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await run.send("one", 1)
        await run.send("two", 2)
        gate.open.set()
        assert await result(run) == [1, 2]
        await result(busy)
        kinds = await names(run, "task:started")
        assert len(kinds) == 2  # created, and woken once for both
        assert await settled(run) == "completed"
