"""One driver at a time: two engines on one journal, takeover, commands from the other one, and fencing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Raw

import holdfast
from engine.kit import HURRY, Gate, Script, echo, engine_at, names, plan, quiet, result, seen, settled, step, step_of
from holdfast.core.commands import Command, encode_arguments
from holdfast.core.errors import StoreUnavailable
from holdfast.engine.commands import inbox
from holdfast.engine.drive.claims import take
from holdfast.journal.store import Claim, Write, Written


async def test_execution_is_taken_over_when_its_engine_closes(tmp_path: Path) -> None:
    gate, script = Gate(), Script("once")
    async with engine_at(tmp_path, gate.tool, script.tool) as second:
        async with engine_at(tmp_path, gate.tool, script.tool, limits=HURRY) as first:
            run = await first.start(plan(step("a", "script"), step("b", "gate", **{"with": {"value": "b"}})))
            await gate.wait_entered()
            gate.entered.clear()
        gate.open.set()
        assert await result(second.get(run.id)) == "b"
    assert (len(script.calls), len(gate.calls)) == (1, 2)


async def test_two_engines_never_drive_the_same_execution(tmp_path: Path) -> None:
    script = Script(effect="idempotent")
    async with engine_at(tmp_path, script.tool) as one, engine_at(tmp_path, script.tool) as two:
        held = [await one.start(plan(step("a", "script"), step("b", "script")), hold=True) for _ in range(10)]
        resuming = (engine.get(run.id).resume() for run in held for engine in (one, two))
        said = await asyncio.gather(*resuming, return_exceptions=True)
        for run in held:
            await result(run)
    assert len(script.calls) == 20
    # The second word may come when all is over already, and only then it is refused.
    assert all("is completed" in str(word) for word in said if isinstance(word, BaseException))


async def test_commands_from_the_other_engine_reach_the_driver(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as one, engine_at(tmp_path, gate.tool) as two:
        run = await one.start(plan(step("a", "gate"), step("b", "gate")))
        await gate.wait_entered()
        there = two.get(run.id)
        assert (await there.pause(by="bob")).outcome == "applied"
        assert (await there.resume(by="bob")).outcome == "applied"
        answer = await there.interrupt(by="bob")
        assert (answer.outcome, answer.seq) == ("applied", (await run.head()).seq)
        assert gate.cancelled == 1
        gate.open.set()
        await there.resume()
        await result(run)
        with pytest.raises(holdfast.Refused):
            await there.stop()


async def test_command_for_a_busy_driver_is_queued_and_found_later(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as one, engine_at(tmp_path, gate.tool, recover="none") as two:
        run = await one.start(plan(step("a", "gate"), {"id": "go", "wait": {"event": "go"}}))
        await gate.wait_entered()
        go = encode_arguments(name="go", data=Raw(b"7"))
        command = Command(id="mine", execution_id=run.id, verb="send", at=1, arguments=go)
        answer = await inbox.send(two.services, two._liveness, command, lambda _: None, wait_s=0.0)
        assert (answer.outcome, answer.text) == (
            "queued", "queued: its driver has not answered yet and will find it in the inbox",
        )  # fmt: skip
        await seen(run, "event:received")
        gate.open.set()
        assert await result(run) == 7
        assert (await names(run)).count("event:received") == 1


async def test_fenced_driver_appends_nothing_more_and_cancels_its_tool(tmp_path: Path) -> None:
    gate, quick = Gate(effect="once"), Gate("quick")
    async with engine_at(tmp_path, gate.tool, quick.tool, recover="family") as engine:
        run = await engine.start(plan(step("slow", "gate"), step("fast", "quick", needs=[])))
        await gate.wait_entered()
        await quick.wait_entered()
        claim = Claim(execution_id=run.id, driver="another-driver", replacing=engine.services.driver)
        assert (await engine.services.store.commit([claim]))[0].ok
        before = await names(run)
        engine._keeper.family.clear()  # it would take the execution up again, for the other driver is dead
        quick.open.set()
        await quiet(engine)
        assert gate.cancelled == 1
        assert await names(run) == before
    async with engine_at(tmp_path, gate.tool, quick.tool) as engine:
        here = engine.get(run.id)
        assert await settled(here) == "waiting"
        assert (await step_of(here, "slow")).status == "in_doubt"
        assert "task:recovered" in await names(here)
        assert (await here.show())["recoveries"] == 1
        await here.resolve("slow", "skip")
        await result(here)


async def test_failed_write_stops_the_driver_and_the_engine_takes_it_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, script = Gate(), Script("ok", "ok")  # what only reads may run ahead of the disk
    async with engine_at(tmp_path, gate.tool, script.tool) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "script")))
        await gate.wait_entered()
        commit = engine.services.store.commit
        failures = 1

        async def failing(writes: Sequence[Write]) -> list[Written]:
            nonlocal failures
            if failures:
                failures -= 1
                raise StoreUnavailable("the disk is full")
            return await commit(writes)

        monkeypatch.setattr(engine.services.store, "commit", failing)
        gate.open.set()
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await result(run)
        await seen(run, "task:completed")
        assert await result(run) == "ok"
    assert len(gate.calls) == 2


async def test_engine_driving_nothing_still_answers_commands(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "go", "wait": {"event": "go"}}, step("a", "echo")))
        await seen(run, "task:waiting")
    async with engine_at(tmp_path, recover="none") as other:
        assert (await other.get(run.id).send("go")).outcome == "applied"
        assert (await other.get(run.id).head()).driver == ""
        assert (await other.get(run.id).pause()).outcome == "applied"
    async with engine_at(tmp_path, echo) as engine:
        await engine.get(run.id).resume()
        await result(engine.get(run.id))


async def test_closing_waits_for_running_steps_for_a_while(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate"), step("b", "gate")))
        await gate.wait_entered()
        asyncio.get_running_loop().call_later(0.02, gate.open.set)
    assert gate.cancelled == 0
    async with engine_at(tmp_path, gate.tool) as engine:
        await result(engine.get(run.id))
    assert len(gate.calls) == 2


async def test_closing_an_engine_with_a_queue_leaves_the_queue_for_the_next(tmp_path: Path) -> None:
    gate = Gate()
    limits = holdfast.Limits(executions=1, drain_s=0.02)
    async with engine_at(tmp_path, gate.tool, limits=limits) as engine:
        runs = [await engine.start(plan(step("a", "gate"))) for _ in range(3)]
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, gate.tool, limits=limits) as engine:
        for run in runs:
            await result(engine.get(run.id))
        assert [head.status for head in await engine.list()] == ["completed"] * 3


async def test_a_takeover_wakes_nobody_who_fell_asleep_after_somebody_looked(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        engine_at(tmp_path, gate.tool, recover="family") as one,
        engine_at(tmp_path, gate.tool, recover="none") as two,
    ):
        run = await one.start(plan(step("a", "gate"), {"id": "go", "wait": {"event": "go"}}))
        await gate.wait_entered()
        looked_at = await run.head()  # which says that it runs
        gate.open.set()
        await seen(run, "task:waiting")
        one._keeper.family.clear()
        taken = await take(two.services, looked_at)
        assert taken is not None
        assert taken.program is None
        assert (await names(run))[-1] == "task:waiting"
        assert ((await run.head()).driver, (await run.head()).wake_at) == ("", None)
