"""Under pressure fewer steps run at once, then only critical ones begin; when it is over, all go on by themselves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, engine_at, events, names, plan, result, seen, step, until
from holdfast.core.events import PressureFelt, TaskWaiting
from holdfast.core.pressure import PressureLimits, Reading
from holdfast.engine.limits import pressure as engine_pressure
from holdfast.engine.limits.pressure import Pressure

TIGHT = Reading(memory_free=0.05)
SEVERE = Reading(memory_free=0.01)
FINE = Reading(memory_free=0.9)


class Machine:
    """A machine whose state the test decides."""

    def __init__(self) -> None:
        self.now = FINE
        self.looks = 0

    def read(self) -> Reading:
        self.looks += 1
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(engine_pressure, "LOOK_EVERY_S", 0.002)
    return Machine()


def under(engine: holdfast.Engine, machine: Machine, at_once: int = 1, calm_s: float = 0.0) -> Pressure:
    pressure = Pressure(machine.read, PressureLimits(at_once=at_once, calm_s=calm_s))
    engine.services.pressure = pressure
    return pressure


class Count:
    """A tool that stays until it is let go, and knows how many are inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.done = 0
        self.open = asyncio.Event()

        @holdfast.tool(name="count", effect="read")
        async def count(value: Any = None) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.open.wait()
            self.inside -= 1
            self.done += 1

        self.tool = count


async def test_when_it_is_tight_only_so_many_steps_run_at_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    count = Count()
    caplog.set_level(logging.WARNING, "holdfast")
    async with engine_at("memory:", count.tool) as engine:
        under(engine, machine, at_once=2)
        machine.now = TIGHT
        run = await engine.start(plan(step("all", "count", for_each=list(range(5)))))
        await seen(run, "pressure:felt")
        await until(lambda: count.inside == 2)
        count.open.set()
        await result(run)
        assert (count.most, count.done) == (2, 5)
        felt = [event for event in await events(run) if isinstance(event, PressureFelt)]
        assert [(event.stage, event.why) for event in felt] == [
            ("tight", "5.0% of the memory is free, and 10.0% is the least")
        ]
    assert "under pressure (tight): 5.0% of the memory is free, and 10.0% is the least; at most 2" in caplog.text


async def test_when_it_is_severe_only_critical_steps_begin_and_the_rest_go_on_when_it_is_over(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    count = Count()
    count.open.set()
    caplog.set_level(logging.WARNING, "holdfast")
    async with engine_at("memory:", count.tool) as engine:
        under(engine, machine)
        machine.now = SEVERE
        extra = await engine.start(plan(step("extra", "count", critical=False)))
        vital = await engine.start(plan(step("vital", "count")))
        await result(vital)
        waiting = await seen(extra, "task:waiting")
        assert isinstance(waiting.event, TaskWaiting)
        (reason,) = waiting.event.reasons
        assert (reason.kind, reason.path, reason.name) == ("pressure", "extra", "severe")
        assert count.done == 1
        machine.now = FINE
        await result(extra)
        assert count.done == 2
        assert "pressure:felt" not in await names(vital)
        assert await names(extra, "pressure:") == ["pressure:felt"]
    assert "only critical steps begin, the others wait" in caplog.text
    assert "the pressure is over: steps begin as usual" in caplog.text


async def test_it_is_over_only_after_a_while_of_calm(machine: Machine) -> None:
    async with engine_at("memory:") as engine:
        pressure = under(engine, machine, calm_s=30.0)
        loop = _Loop()
        machine.now = SEVERE
        pressure.look(loop)  # type: ignore[arg-type]
        assert pressure.stage == 2
        machine.now = FINE
        for seconds, stage in ((10, 2), (29, 2), (41, 0)):
            loop.now = seconds
            pressure.look(loop)  # type: ignore[arg-type]
            assert pressure.stage == stage
        machine.now = TIGHT
        loop.now = 50
        pressure.look(loop)  # type: ignore[arg-type]
        machine.now = FINE
        for seconds, reading, stage in ((60, FINE, 1), (80, TIGHT, 1), (85, FINE, 1), (110, FINE, 1), (116, FINE, 0)):
            machine.now, loop.now = reading, seconds
            pressure.look(loop)  # type: ignore[arg-type]
            assert pressure.stage == stage, seconds


class _Loop:
    """Enough of an event loop to look at the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, *_: Any) -> Any:
        return asyncio.TimerHandle(self.now + 1, lambda: None, (), asyncio.get_running_loop())


async def test_a_step_that_was_put_to_sleep_asks_again(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_pressure, "ASK_AGAIN_S", 0.2)
    count = Count()
    count.open.set()
    async with engine_at(tmp_path, count.tool, limits=HURRY) as engine:
        under(engine, machine)
        machine.now = SEVERE
        run = await engine.start(plan(step("extra", "count", critical=False)))
        await seen(run, "task:waiting")
        await until(lambda: not engine.holdings()["tasks"])
        machine.now = FINE
        await result(run)


async def test_a_pause_and_an_interrupt_reach_a_step_that_is_held_back(machine: Machine) -> None:
    count = Count()
    count.open.set()
    async with engine_at("memory:", count.tool) as engine:
        pressure = under(engine, machine)
        machine.now = SEVERE
        run = await engine.start(plan(step("extra", "count", critical=False)))
        await seen(run, "task:waiting")
        await run.interrupt()
        assert await run.status() == "interrupted"
        assert not pressure._held
        machine.now = FINE
        await run.resume()
        await result(run)


async def test_what_runs_already_is_left_alone_and_counts(machine: Machine) -> None:
    gate = Gate()
    count = Count()
    count.open.set()
    async with engine_at("memory:", gate.tool, count.tool) as engine:
        pressure = under(engine, machine)
        first = await engine.start(plan(step("long", "gate")))
        await gate.wait_entered()
        machine.now = TIGHT
        pressure.look(asyncio.get_running_loop())
        second = await engine.start(plan(step("short", "count")))
        await seen(second, "pressure:felt")
        assert count.done == 0
        gate.open.set()
        await result(first)
        await result(second)


async def test_code_of_a_program_is_not_held_back_with_the_step_inside_it(machine: Machine) -> None:
    @holdfast.tool(effect="read")
    async def inner() -> int:
        return 1

    @holdfast.function
    async def outer(ctx: holdfast.Context) -> int:
        return await ctx.run("around", lambda: ctx.call(inner, name="inside"))

    async with engine_at("memory:", inner, functions=[outer]) as engine:
        under(engine, machine)
        machine.now = TIGHT
        assert await result(await engine.start(outer)) == 1


async def test_without_a_reader_nothing_is_looked_at(machine: Machine) -> None:
    count = Count()
    count.open.set()
    async with engine_at("memory:", count.tool) as engine:
        assert not engine.services.pressure.is_on  # the tests' own setting
        await result(await engine.start(plan(step("one", "count"))))
        assert engine.services.pressure.stage == 0


async def test_an_engine_reads_this_machine_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PRESSURE_WATCH", "yes")
    monkeypatch.setenv("HOLDFAST_PRESSURE_DISK_TIGHT", "900TB")  # which this machine does not have
    monkeypatch.setenv("HOLDFAST_PRESSURE_DISK_SEVERE", "1B")
    monkeypatch.setenv("HOLDFAST_PRESSURE_LOAD_TIGHT", "10000")  # which it may well have
    monkeypatch.setenv("HOLDFAST_PRESSURE_LOAD_SEVERE", "10000")
    count = Count()
    count.open.set()
    async with engine_at(tmp_path, count.tool) as engine:
        await result(await engine.start(plan(step("one", "count"))))
        assert engine.services.pressure.stage == 1
        assert engine.services.pressure.why.endswith("are free on the journal's disk, and 900 TB are the least")


async def test_whom_it_was_told_is_remembered_within_bounds(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pressure, "TOLD_MAX", 3)
    count = Count()
    async with engine_at("memory:", count.tool) as engine:
        pressure = under(engine, machine)
        machine.now = SEVERE
        runs = [await engine.start(plan(step("extra", "count", critical=False))) for _ in range(5)]
        for run in runs:
            await seen(run, "pressure:felt")
        assert list(pressure._told) == [run.id for run in runs[2:]]
        machine.now = FINE
        count.open.set()
        for run in runs:
            await result(run)
            assert (await names(run)).count("pressure:felt") == 1


async def test_when_it_is_tight_steps_that_may_fail_let_critical_ones_go_first(machine: Machine) -> None:
    """Whoever came first; and none of them is skipped."""
    began: list[str] = []
    gates = {name: asyncio.Event() for name in ("first", "extra", "vital")}

    @holdfast.tool(name="stay", effect="read")
    async def stay(name: str) -> None:
        began.append(name)
        await gates[name].wait()

    async with engine_at("memory:", stay) as engine:
        under(engine, machine)
        machine.now = TIGHT

        async def start(name: str, **said: Any) -> holdfast.Run:
            return await engine.start(plan(step(name, "stay", **{"with": {"name": name}}, **said)))

        first = await start("first")
        await until(lambda: began == ["first"])
        extra = await start("extra", critical=False)
        await seen(extra, "task:waiting")
        vital = await start("vital")
        await seen(vital, "task:waiting")
        gates["first"].set()
        await until(lambda: len(began) == 2)
        assert began == ["first", "vital"]
        gates["vital"].set()
        gates["extra"].set()
        for run in (first, vital, extra):
            await result(run)
    assert began == ["first", "vital", "extra"]


async def test_a_paused_critical_step_holds_up_nobody(machine: Machine) -> None:
    count = Count()
    async with engine_at("memory:", count.tool) as engine:
        under(engine, machine)
        machine.now = TIGHT
        first = await engine.start(plan(step("first", "count")))
        await until(lambda: count.inside == 1)
        vital = await engine.start(plan(step("vital", "count")))
        await seen(vital, "task:waiting")
        extra = await engine.start(plan(step("extra", "count", critical=False)))
        await seen(extra, "task:waiting")
        await vital.pause()
        count.open.set()
        await result(first)
        await result(extra)
        await vital.resume()
        await result(vital)
