"""The system's clock is set back and forward under a running engine with real timers: what comes, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import holdfast
from disk.house import HURRY, TOOLS, plan, step
from engine.kit import events, seen, until
from holdfast.core import events as ev
from holdfast.engine.services import SystemClock

HOUR_US = 3600 * 1_000_000
DAY_US = 24 * HOUR_US


class Shifted(SystemClock):
    """The real clock, moved by somebody."""

    def __init__(self, by_us: int = 0) -> None:
        self.by_us = by_us

    def now_us(self) -> int:
        return super().now_us() + self.by_us


def engine_at(folder: Path, clock: Shifted, limits: holdfast.Limits = HURRY) -> holdfast.Engine:
    engine = holdfast.Engine(folder=folder, tools=TOOLS, limits=limits)
    engine.services.clock = clock
    return engine


async def never_back(run: holdfast.Run) -> None:
    times = [event.at for event in await events(run)]
    assert all(one <= other for one, other in pairwise(times)), times


async def status(run: holdfast.Run, wanted: str) -> None:
    async with asyncio.timeout(60):
        while await run.status() != wanted:  # noqa: ASYNC110 -- there is nothing to wait for but the fact
            await asyncio.sleep(0.005)


async def test_set_back_a_wait_comes_when_the_clock_has_reached_its_time(tmp_path: Path) -> None:
    clock = Shifted()
    async with engine_at(tmp_path, clock) as engine:
        run = await engine.start(plan("nap", {"id": "nap", "wait": 0.3}, step("a", "pay", 1)))
        await seen(run, "step:waiting")
        clock.by_us = -HOUR_US
        other = await engine.start(plan("other", step("a", "pay", 2)))
        assert await other.result() == 2  # nobody else is held up
        await looked(engine, 4)
        assert await run.status() == "waiting"  # an hour and a bit is left
        clock.by_us = 0
        assert await run.result() == 1
        await never_back(run)


async def test_set_forward_everything_that_is_due_comes_at_once(tmp_path: Path) -> None:
    clock = Shifted()
    async with engine_at(tmp_path, clock) as engine:
        nap = await engine.start(plan("nap", {"id": "nap", "wait": "1h"}, step("a", "pay", 1)))
        asked = await engine.start(plan("ask", {"id": "a", "approval": {"message": "Now?", "expires": "2h"}}))
        paused = await engine.start(plan("paused", step("a", "pay", 3), pause_timeout="1d"), hold=True)
        await paused.pause()
        for run, wanted in ((nap, "waiting"), (asked, "waiting"), (paused, "paused")):
            await status(run, wanted)
        clock.by_us = 40 * DAY_US
        assert await nap.result() == 1
        await seen(asked, "approval:expired")
        await status(paused, "stopped")
        kinds = [type(event) for event in await events(paused)]
        assert kinds.index(ev.TaskPauseExpiring) < kinds.index(ev.TaskStopped)  # announced before it acts
        for run in (nap, asked, paused):
            await never_back(run)


async def test_set_forward_a_wait_in_memory_does_not_sleep_on(tmp_path: Path) -> None:
    clock = Shifted()
    async with engine_at(tmp_path, clock, holdfast.Limits(passivate_after_s=600)) as engine:
        nap = await engine.start(plan("nap", {"id": "nap", "wait": "1h"}, step("a", "pay", 1)))
        await status(nap, "waiting")
        assert engine.drives(nap.id)
        clock.by_us = DAY_US
        assert await nap.result() == 1


async def test_set_back_events_keep_the_time_of_the_last_one(tmp_path: Path) -> None:
    clock = Shifted()
    async with engine_at(tmp_path, clock) as engine:
        run = await engine.start(plan("go", {"id": "w", "wait": {"event": "go"}}, step("a", "pay", 1)))
        await status(run, "waiting")
        clock.by_us = -DAY_US
        await run.send("go", 1)
        assert await run.result() == 1
        await never_back(run)
        last = [event.at for event in await events(run)]
        assert len(set(last[-4:])) == 1


async def test_a_new_engine_whose_clock_is_behind_goes_on(tmp_path: Path) -> None:
    async with engine_at(tmp_path, Shifted()) as engine:
        run = await engine.start(
            plan("go", step("b", "pay", 0), {"id": "w", "wait": {"event": "go"}}, step("a", "pay", 1))
        )
        await status(run, "waiting")
    async with engine_at(tmp_path, Shifted(-30 * DAY_US)) as engine:
        again = engine.get(run.id)
        await again.send("go")
        assert await again.result() == 1
        await never_back(again)


async def test_no_clock_makes_a_living_engine_look_dead(tmp_path: Path) -> None:
    """Who is alive is told by a lock and not by a lease, so a jump takes nobody's executions away."""
    clock = Shifted()
    async with engine_at(tmp_path, clock) as engine:
        run = await engine.start(plan("go", {"id": "w", "wait": {"event": "go"}}))
        await status(run, "waiting")
        async with engine_at(tmp_path, Shifted(365 * DAY_US)) as other:
            assert not other.is_dead(engine.services.driver)
            await looked(other)
        clock.by_us = -365 * DAY_US
        await run.send("go", 7)
        assert await run.result() == 7
        assert not [event for event in await events(run) if isinstance(event, ev.TaskRecovered)]


async def looked(engine: holdfast.Engine, times: int = 2) -> None:
    """Wait until the engine has looked for the dead and the due."""
    asked: list[Any] = []
    drivers: Callable[[], Any] = engine.services.store.drivers

    async def counted() -> list[str]:
        asked.append(1)
        return await drivers()

    engine.services.store.drivers = counted  # type: ignore[method-assign]
    await until(lambda: len(asked) >= times)
