"""Calls that wait for a thread, and tools that do not end when they are told to."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import holdfast
from engine.kit import engine_at, plan, result, seen, settled, step, step_of, until
from holdfast.engine.step import invoke
from holdfast.tools import tool as tool_module
from holdfast.tools.runtime.thread_pool import ThreadPool


async def test_time_in_line_for_a_thread_is_no_time_that_the_tool_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it tell anything about the tool: its breaker stays closed."""
    monkeypatch.setattr(tool_module, "pool", ThreadPool(1, 0))
    go, entered = threading.Event(), threading.Event()

    @holdfast.tool(effect="read")
    def occupy() -> None:
        entered.set()
        go.wait(60)

    @holdfast.tool(effect="read", timeout=0.02, idle_timeout=0.01, retry=0, breaker=holdfast.Breaker(failures=1))
    def quick() -> int:
        return 1

    async with engine_at("memory:", occupy, quick) as engine:
        slow = await engine.start(plan(step("a", "occupy")))
        await asyncio.to_thread(entered.wait, 60)
        run = await engine.start(plan(step("a", "quick")))
        await seen(run, "step:started")
        loop = asyncio.get_running_loop()
        enough_at = loop.time() + 0.1  # five times what the tool may take
        await until(lambda: loop.time() > enough_at)
        assert await run.status() == "running"
        go.set()
        assert await settled(run) == "completed"
        await result(slow)


async def test_a_call_that_never_got_a_thread_does_not_open_the_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engine.step import invoke

    monkeypatch.setattr(tool_module, "pool", ThreadPool(1, 0))
    monkeypatch.setattr(invoke, "IN_LINE_S_MAX", 0.0)
    go, entered = threading.Event(), threading.Event()

    @holdfast.tool(effect="read")
    def occupy() -> None:
        entered.set()
        go.wait(60)

    @holdfast.tool(effect="read", timeout=0.02, retry=holdfast.Retry(max=0), breaker=holdfast.Breaker(failures=1))
    def quick() -> None: ...

    async with engine_at("memory:", occupy, quick) as engine:
        slow = await engine.start(plan(step("a", "occupy")))
        await asyncio.to_thread(entered.wait, 60)
        run = await engine.start(plan(step("a", "quick", critical=False)))
        await result(run)
        failure = (await step_of(run, "a")).failure
        assert failure is not None
        assert failure.error == "NeverCalled"
        assert [breaker.state for name, _, breaker in engine.services.guards.breakers() if name == "quick"] == [
            "closed"
        ]
        go.set()
        await result(slow)


class Deaf:
    """An async tool without a time limit that swallows every cancellation until it may end."""

    def __init__(self) -> None:
        self.entered, self.may_end = asyncio.Event(), asyncio.Event()
        self.told = 0

        @holdfast.tool(name="deaf", effect="once", retry=0)
        async def deaf() -> str:
            self.entered.set()
            while not self.may_end.is_set():
                try:
                    await self.may_end.wait()
                except asyncio.CancelledError:
                    self.told += 1
            return "late"

        self.tool = deaf


async def test_a_tool_that_ignores_its_cancellation_is_left_behind_and_the_stop_goes_on(tmp_path: Path) -> None:
    deaf = Deaf()
    limits = holdfast.Limits(interrupt_grace_s=1.0)
    async with engine_at(tmp_path, deaf.tool, limits=limits, check=False) as engine:
        run = await engine.start(plan(step("a", "deaf")))
        await deaf.entered.wait()
        driver = engine.driver(run.id)
        assert driver is not None
        await run.stop()
        assert await settled(run) == "stopped"
        assert (await step_of(run, "a")).status == "in_doubt"
        assert engine.holdings()["left_behind"] == 1
        assert not driver._stubborn  # its step's own task has ended: nothing else had to be given up
        deaf.may_end.set()
        await until(lambda: not engine.holdings()["left_behind"])
    assert deaf.told


async def test_the_general_time_limit_ends_a_tool_that_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoke, "STEP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(invoke, "LATE_S", 0.05)
    deaf = Deaf()
    async with engine_at(tmp_path, deaf.tool) as engine:
        run = await engine.start(plan(step("a", "deaf")))
        doubt = await seen(run, "step:in_doubt")
        assert "took longer than 0.05 s" in doubt.event.why  # type: ignore[union-attr]
        deaf.may_end.set()
        await until(lambda: not engine.holdings()["left_behind"])
        await run.stop()


async def test_a_tool_that_tidies_up_slowly_after_its_own_time_limit_is_not_cut() -> None:
    """Tools cancel what they do by themselves, and go on: that is nobody's business."""

    @holdfast.tool(effect="read", retry=0)
    async def careful() -> str:
        try:
            async with asyncio.timeout(0.01):
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await asyncio.sleep(0.05)
            return "tidy"
        return "?"

    async with engine_at("memory:", careful, limits=holdfast.Limits(interrupt_grace_s=0.01)) as engine:
        assert await result(await engine.start(plan(step("a", "careful"), output="${{ steps.a.output }}"))) == "tidy"
