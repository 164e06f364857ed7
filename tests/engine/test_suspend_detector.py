"""Who stood still: a laptop that was closed, a process that was suspended. It may have been replaced meanwhile, and has
to look before it works on; and what others left running is told as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, engine_at, events, names, plan, quiet, result, step, until
from holdfast.core import events as ev
from holdfast.core.errors import StoreUnavailable
from holdfast.engine.drive.claims import take
from holdfast.engine.services import Services
from holdfast.engine.suspend_detector import SuspendDetector
from holdfast.journal.store import Claim, Entry, Write, Written


class Wristwatch:
    """A clock that was on while its machine slept."""

    def __init__(self, engine: holdfast.Engine) -> None:
        self._clock = engine.services.clock
        self._slept_us = 0
        engine.services.clock = self

    def now_us(self) -> int:
        return self._clock.now_us() + self._slept_us

    def sleep(self) -> None:
        self._slept_us += 60_000_000


def looked_at(engine: holdfast.Engine) -> float:
    standing = engine._keeper.standing
    return standing.wall_s if standing is not None else 0.0


async def looked_twice(engine: holdfast.Engine) -> None:
    """Whatever the engine does at a look, it has done once."""
    for _ in range(2):
        before = looked_at(engine)
        await until(lambda before=before: looked_at(engine) > before)


async def replace(engine: holdfast.Engine, run: holdfast.Run) -> None:
    """Somebody else becomes the driver, and this engine would not take it up again."""
    await run._engine.services.writer.write(
        Claim(execution_id=run.id, driver="another-driver", replacing=engine.services.driver)
    )
    engine._keeper.family.clear()


async def test_who_slept_and_was_replaced_cuts_its_tools_off_without_writing_first() -> None:
    gate = Gate(effect="once")
    async with engine_at("memory:", gate.tool, recover="family") as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await looked_twice(engine)
        await replace(engine, run)
        before = await names(run)
        watch.sleep()
        await until(lambda: gate.cancelled == 1)  # nothing else would tell it: the tool neither answers nor writes
        assert await names(run) == before


async def test_who_slept_and_was_not_replaced_works_on() -> None:
    gate = Gate(effect="once")
    async with engine_at("memory:", gate.tool) as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate", **{"with": {"value": 7}})))
        await gate.wait_entered()
        watch.sleep()
        await looked_twice(engine)
        gate.open.set()
        assert await result(run) == 7
        assert (gate.cancelled, len(gate.calls)) == (0, 1)
        assert "task:recovered" not in await names(run)


async def test_who_cannot_read_the_journal_on_waking_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network often comes back a little later than the machine does."""
    gate = Gate(effect="once")
    async with engine_at("memory:", gate.tool, recover="family") as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await looked_twice(engine)
        await replace(engine, run)
        store, failed = engine.services.store, asyncio.Event()
        head = store.head

        async def unreachable(execution_id: str) -> Any:
            if failed.is_set():
                return await head(execution_id)
            failed.set()
            raise StoreUnavailable("the network is not back yet")

        monkeypatch.setattr(store, "head", unreachable)
        watch.sleep()
        await until(lambda: gate.cancelled == 1)
        assert failed.is_set()


async def test_who_was_replaced_before_it_heard_that_its_intent_is_on_disk_calls_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wakes up to the good news that it may call its tool; but that is old, and the step another's to settle."""
    script = Script(effect="once")
    async with engine_at("memory:", script.tool, recover="family") as engine:
        watch, store = Wristwatch(engine), engine.services.store
        commit, slept = store.commit, list[str]()

        async def fall_asleep(writes: Sequence[Write]) -> list[Written]:
            written = await commit(writes)
            for write in writes:
                if isinstance(write, Entry) and any(b"step:started" in row.body for row in write.rows) and not slept:
                    slept.append(write.execution_id)
                    claim = Claim(execution_id=write.execution_id, driver="another", replacing=engine.services.driver)
                    await commit([claim])
                    engine._keeper.family.clear()
                    watch.sleep()
            return written

        async def look_at_nothing() -> None: ...

        monkeypatch.setattr(store, "commit", fall_asleep)
        monkeypatch.setattr(engine._keeper, "_mind_a_sleep", look_at_nothing)  # which may come too late for it
        run = await engine.start(plan(step("a", "script")))
        await until(lambda: bool(slept))
        await quiet(engine)
        assert slept == [run.id]
        assert script.calls == []


PATIENT = holdfast.Limits(drain_s=3600)  # whoever closes would wait for what runs, and the test in vain


async def test_who_wakes_up_to_be_closed_and_was_replaced_does_not_let_its_tools_finish() -> None:
    """What came while it slept, such as a signal, is heard before anything else."""
    gate = Gate(effect="once")
    async with engine_at("memory:", gate.tool, recover="family", limits=PATIENT) as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await looked_twice(engine)
        await replace(engine, run)
        watch.sleep()
        async with asyncio.timeout(60):
            await engine.close()
        assert gate.cancelled == 1


async def test_who_sleeps_while_it_closes_and_was_replaced_does_not_let_its_tools_finish() -> None:
    """Nor those that run in tasks of the program's own, which its cancellation does not reach."""
    gate = Gate(effect="once")

    @holdfast.function
    async def program(ctx: holdfast.Context) -> None:
        await asyncio.wait({asyncio.create_task(ctx.call(gate.tool))})  # type: ignore[arg-type]

    async with engine_at("memory:", gate.tool, functions=[program], recover="family", limits=PATIENT) as engine:
        watch = Wristwatch(engine)
        run = await engine.start(program)
        await gate.wait_entered()
        driver = engine.driver(run.id)
        assert driver is not None
        closing = asyncio.create_task(engine.close())
        await until(lambda: driver.cause == "closing")
        await looked_twice(engine)
        await replace(engine, run)
        watch.sleep()
        async with asyncio.timeout(60):
            await closing
        assert gate.cancelled == 1


async def test_who_slept_and_was_not_replaced_lets_its_tools_finish_while_it_closes() -> None:
    gate = Gate(effect="once")
    async with engine_at("memory:", gate.tool, limits=PATIENT) as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        watch.sleep()
        closing = asyncio.create_task(engine.close())
        await looked_twice(engine)
        gate.open.set()
        await closing
        assert gate.cancelled == 0
        assert "step:completed" in await names(run)


async def test_what_a_dead_process_left_running_is_told_as_lost_when_somebody_interrupts() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, recover="family") as engine:
        watch = Wristwatch(engine)
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await looked_twice(engine)
        await replace(engine, run)  # by one who is dead
        watch.sleep()
        await until(lambda: not engine.holdings()["drivers"])
        assert (await run.interrupt(by="ana")).outcome == "applied"
        [cut] = [event for event in await events(run) if isinstance(event, ev.StepInterrupted)]
        assert (cut.path, cut.lost, cut.duration_us) == ("a", True, 0)


async def test_what_its_own_driver_cuts_off_is_interrupted_and_not_lost() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await run.interrupt(by="ana")
        [cut] = [event for event in await events(run) if isinstance(event, ev.StepInterrupted)]
        assert not cut.lost


async def test_a_takeover_is_told_though_it_began_to_run_after_somebody_looked(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        engine_at(tmp_path, gate.tool, recover="family", limits=HURRY) as one,
        engine_at(tmp_path, gate.tool, recover="none") as two,
    ):
        run = await one.start(plan(step("a", "gate")))
        await gate.wait_entered()
        seen = msgspec.structs.replace(await run.head(), status="waiting")  # as it was a moment ago
        one._keeper.family.clear()
        taken = await take(two.services, seen)
        assert taken is not None
        assert taken.program is not None
        assert (await names(run))[-1] == "task:recovered"
        taken.log.append(release=True)
        await taken.log.durable()


@pytest.mark.parametrize("hours", [1, 0, -1])
def test_a_sleep_is_noticed_though_the_wall_clock_was_set_meanwhile(hours: int) -> None:
    clock = SimpleNamespace(now_us=lambda: 10**15)
    standing = SuspendDetector(cast("Services", SimpleNamespace(clock=clock)), 5.0)
    assert not standing.stood_still(5.1)
    clock.now_us = lambda: 10**15 + hours * 3_600_000_000
    assert standing.stood_still(7.0)
