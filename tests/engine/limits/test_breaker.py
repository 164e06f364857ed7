"""A tool that keeps failing is left alone, tried by a single call, and used again when that succeeds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import FAST, echo, engine_at, events, names, plan, result, seen, settled, step, step_of, until
from holdfast.core import events as ev
from holdfast.engine.limits import guards
from holdfast.engine.limits.breaker import Breaker
from holdfast.tools.tool import Tool

REST_S = 0.15
QUICK = holdfast.Limits(breaker_failures=3, breaker_rest_s=REST_S)


class Flaky:
    """A tool that is down until it is mended, and knows what its breaker said whenever it was called."""

    def __init__(self, effect: Any = "read", error: Exception | None = None, **options: Any) -> None:
        self.is_down = True
        self.error = error or holdfast.Transient("the line is dead")
        self.states: list[str] = []
        self.trying = self.most_trying = 0  # calls under way while the breaker was half open
        self.engine: holdfast.Engine | None = None

        @holdfast.tool(name="flaky", effect=effect, retry=holdfast.Retry(max=50, first_s=0.001, factor=1), **options)
        async def flaky(value: Any = None) -> Any:
            return await self.answer(value)

        self.tool = flaky

    async def answer(self, value: Any) -> Any:
        assert self.engine is not None
        state = breaker_of(self.engine, self.tool).state
        self.states.append(state)
        self.trying += state == "half_open"
        self.most_trying = max(self.most_trying, self.trying)
        await asyncio.sleep(0.001)
        self.trying -= state == "half_open"
        if self.is_down:
            raise self.error
        return value


def breaker_of(engine: holdfast.Engine, tool: Tool[..., Any]) -> Breaker:
    breaker = engine.services.guards.of(tool, b"{}").breaker
    assert breaker is not None
    return breaker


@pytest.mark.parametrize("effect", ["read", "idempotent", "once"])
async def test_after_it_opened_not_one_call_reaches_the_tool_until_a_single_one_tries(
    tmp_path: Path, effect: str
) -> None:
    """The outcome of a `once` call that could not connect is known: nothing happened."""
    error = holdfast.Transient("the line is dead", without_effect=True)
    flaky = Flaky(effect, error)
    async with engine_at(tmp_path, flaky.tool, limits=QUICK) as engine:
        flaky.engine = engine
        breaker = breaker_of(engine, flaky.tool)
        runs = [await engine.start(plan(step("a", "flaky", **{"with": {"value": n}}))) for n in range(60)]
        await until(lambda: breaker.state == "open")
        called = len(flaky.states)
        await until(lambda: breaker.state == "half_open")
        await until(lambda: breaker.state == "open")
        assert set(flaky.states[called:]) == {"half_open"}
        assert flaky.most_trying == 1
        flaky.is_down = False
        assert [await result(run) for run in runs] == list(range(60))
    assert "open" not in flaky.states
    assert flaky.states.count("half_open") >= 2


async def test_a_call_in_a_thread_is_held_back_too(tmp_path: Path) -> None:
    """More calls than threads: those that wait for one find the breaker open when they get it."""
    began: list[str] = []

    @holdfast.tool(effect="read", retry=holdfast.Retry(max=50, first_s=0.001, factor=1))
    def blocking() -> str:
        began.append(breaker_of(engine, blocking).state)
        if len(began) < 100:
            raise holdfast.Transient("the line is dead")
        return "well"

    async with engine_at(tmp_path, blocking, limits=QUICK) as engine:
        breaker = breaker_of(engine, blocking)
        runs = [await engine.start(plan(step("a", "blocking"))) for _ in range(90)]
        await until(lambda: breaker.state == "open")
        for run in runs:
            await run.stop()
    assert "open" not in began


async def test_a_step_that_waits_for_its_tool_says_so_and_goes_on_by_itself(tmp_path: Path) -> None:
    flaky = Flaky()
    async with engine_at(tmp_path, flaky.tool, limits=QUICK) as engine:
        flaky.engine = engine
        run = await engine.start(plan(step("a", "flaky")))
        waiting = await seen(run, "task:waiting", lambda event: event.reasons[0].kind == "breaker")
        reason = waiting.event.reasons[0]  # type: ignore[union-attr]
        assert (reason.path, reason.name) == ("a", "flaky")
        assert (reason.due_at or 0) > waiting.event.at
        flaky.is_down = False
        await result(run)


async def test_an_execution_that_sleeps_through_the_rest_is_woken_for_its_next_try(tmp_path: Path) -> None:
    flaky = Flaky()
    limits = holdfast.Limits(breaker_failures=2, breaker_rest_s=0.05, passivate_after_s=0.0)
    async with engine_at(tmp_path, flaky.tool, limits=limits) as engine:
        flaky.engine = engine
        run = await engine.start(plan(step("a", "flaky")))
        await seen(run, "task:waiting", lambda event: event.reasons[0].kind == "breaker")
        flaky.is_down = False
        await result(run)
        assert "task:started" in (await names(run))[3:]


async def test_while_its_tool_rests_a_step_goes_to_its_fallback_at_once_and_says_so(tmp_path: Path) -> None:
    flaky = Flaky()
    async with engine_at(tmp_path, flaky.tool, echo, limits=QUICK) as engine:
        flaky.engine = engine
        first = await engine.start(plan(step("a", "flaky", critical=False, retry=FAST, fallback="echo")))
        await result(first)
        called = len(flaky.states)
        assert breaker_of(engine, flaky.tool).state == "open"
        second = await engine.start(
            plan(step("a", "flaky", **{"with": {"value": 7}}, fallback=["nobody", "echo"], optional=True))
        )
        assert await result(second) == 7
        assert len(flaky.states) == called
        started, completed = [event for event in await events(second) if getattr(event, "path", "") == "a"]
        assert isinstance(started, ev.StepStarted)
        assert (started.tool, started.fallback, started.attempt) == ("echo", 2, 1)
        assert isinstance(completed, ev.StepCompleted)
        assert completed.tool == "echo"
        assert (await step_of(second, "a")).fallback == 2


@pytest.mark.parametrize(
    "error",
    [
        holdfast.RateLimited("slow down", retry_after_s=0.0),
        holdfast.InvalidCall("no such thing"),
        holdfast.NotPermitted("not you"),
        holdfast.ResourceShort("no room"),
        ValueError("a mistake of the tool"),
    ],
)
async def test_what_the_tool_answers_does_not_open_its_breaker(tmp_path: Path, error: Exception) -> None:
    flaky = Flaky(error=error)
    async with engine_at(tmp_path, flaky.tool, limits=HURRY_ONCE) as engine:
        flaky.engine = engine
        runs = [
            await engine.start(plan(step("a", "flaky", critical=False, on_error="fail"), budget={"usd": 1}))
            for _ in range(3)
        ]
        await until(lambda: len(flaky.states) >= 3)
        assert breaker_of(engine, flaky.tool).state == "closed"
        flaky.is_down = False
        for run in runs:
            await settled(run)


HURRY_ONCE = holdfast.Limits(breaker_failures=1, interrupt_grace_s=0.2, drain_s=0.05)


async def test_half_of_the_latest_calls_failing_opens_it_though_some_come_through() -> None:
    async def outcome(breaker: Breaker, failed: bool) -> None:
        from holdfast.core.failure import Failure

        if failed:
            breaker.failed(object(), Failure(category="transient", message="gone"))
        else:
            breaker.succeeded(object())

    import random

    changes: list[str] = []
    breaker = Breaker(5, 30.0, random.Random(1), lambda: changes.append(breaker.state))
    for _ in range(9):
        await outcome(breaker, True)
        await outcome(breaker, False)
    assert breaker.state == "closed"
    await outcome(breaker, True)
    assert breaker.state == "open"
    assert changes == ["open"]


async def test_a_probe_that_was_cut_off_leaves_the_trying_to_the_next(tmp_path: Path) -> None:
    flaky = Flaky()
    stuck: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    plain = flaky.answer

    async def answer(value: Any) -> Any:
        assert flaky.engine is not None
        if breaker_of(flaky.engine, flaky.tool).state == "half_open" and not stuck.done():
            stuck.set_result(holdfast.current_call().execution_id)
            await asyncio.sleep(3600)
        return await plain(value)

    flaky.answer = answer  # type: ignore[method-assign]
    async with engine_at(tmp_path, flaky.tool, limits=QUICK) as engine:
        flaky.engine = engine
        one = await engine.start(plan(step("a", "flaky")))
        two = await engine.start(plan(step("a", "flaky")))
        probing = await asyncio.wait_for(stuck, 60)
        flaky.is_down = False
        await engine.get(probing).stop()
        await result(two if probing == one.id else one)
        assert breaker_of(engine, flaky.tool).state == "closed"


async def test_hosts_that_are_kept_apart_do_not_suffer_for_each_other(tmp_path: Path) -> None:
    calls: list[str] = []

    @holdfast.tool(
        effect="read", retry=0, breaker=holdfast.Breaker(failures=1, rest_s=60, by=lambda given: given["host"])
    )
    async def ask(host: str) -> str:
        calls.append(host)
        if host == "bad":
            raise holdfast.Transient("nobody there")
        return host

    async with engine_at(tmp_path, ask) as engine:
        bad = plan(step("a", "ask", **{"with": {"host": "bad"}}))
        good = plan(step("a", "ask", **{"with": {"host": "good"}}))
        assert await settled(await engine.start(bad)) == "failed"
        assert await result(await engine.start(good)) == "good"
        waiting = await engine.start(bad)
        await seen(waiting, "task:waiting")
        assert calls == ["bad", "good"]
        await waiting.stop()


async def test_a_tool_may_do_without_a_breaker(tmp_path: Path) -> None:
    calls = 0

    @holdfast.tool(effect="read", retry=0, breaker=False)
    async def ask() -> None:
        nonlocal calls
        calls += 1
        raise holdfast.Transient("nobody there")

    async with engine_at(tmp_path, ask, limits=HURRY_ONCE) as engine:
        for _ in range(8):
            assert await settled(await engine.start(plan(step("a", "ask")))) == "failed"
    assert calls == 8


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"failures": 0}, "a breaker opens after 1 to 20 failures in a row, got 0"),
        ({"rest_s": 0}, "a breaker rests for more than 0 and at most 86400 seconds, got 0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        holdfast.Breaker(**rule)


async def test_a_fallback_with_arguments_of_its_own_is_judged_by_them(tmp_path: Path) -> None:
    """The same tool for another host: that the first host is down says nothing about the second."""
    asked: list[str] = []

    def host(arguments: Any) -> str:
        return str(arguments["host"])

    @holdfast.tool(effect="read", breaker=holdfast.Breaker(failures=1, rest_s=3600, by=host), retry=0)
    async def fetch(host: str) -> str:
        asked.append(host)
        if host == "down":
            raise holdfast.Transient("the line is dead")
        return host

    own = {"tool": "fetch", "with": {"host": "fine"}}
    work = plan(step("a", "fetch", fallback=[own], **{"with": {"host": "down"}}))
    async with engine_at(tmp_path, fetch) as engine:
        assert [await result(await engine.start(work)) for _ in range(2)] == ["fine", "fine"]
    assert asked == ["down", "fine", "fine"]


async def test_who_is_left_alone_is_not_forgotten_for_however_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "APART_MAX", 10)
    asked: list[str] = []

    @holdfast.tool(
        effect="read", retry=0, breaker=holdfast.Breaker(failures=1, rest_s=3600, by=lambda given: given["host"])
    )
    async def fetch(host: str) -> None:
        asked.append(host)
        if host.startswith("down"):
            raise holdfast.Transient("nobody there")

    def ask(host: str) -> dict[str, Any]:
        return plan(step("a", "fetch", **{"with": {"host": host}}))

    def known() -> dict[str, Breaker]:
        return {host: breaker for name, host, breaker in engine.services.guards.breakers() if name == "fetch"}

    async with engine_at("memory:", fetch) as engine:
        for number in range(3):
            assert await settled(await engine.start(ask(f"down{number}"))) == "failed"
        for number in range(30):  # while there are others to forget, those are
            assert await settled(await engine.start(ask(f"fine{number}"))) == "completed"
        for number in range(3, 10):
            assert await settled(await engine.start(ask(f"down{number}"))) == "failed"
        assert sorted(known()) == [f"down{number}" for number in range(10)]
        for host in ("down10", "fine"):  # whoever comes when nobody can be forgotten is asked all the same
            await settled(await engine.start(ask(host)))
        assert asked[-2:] == ["down10", "fine"]
        assert len(known()) == 10
        waiting = await engine.start(ask("down0"))
        await seen(waiting, "task:waiting")
        assert asked.count("down0") == 1
        await waiting.stop()
        known()["down1"].probe_at = 0  # its rest is over, and nobody asked for it since
        await settled(await engine.start(ask("fine")))
        assert "down1" not in known()
        assert "fine" in known()
