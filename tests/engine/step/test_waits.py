"""Waiting: for time, events, people; what an execution says it waits for, and that it holds nothing meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    turns,
    until,
)
from holdfast.core import events as ev
from holdfast.engine.step.parking import listed

FOR_GO = plan({"id": "go", "wait": {"event": "go"}}, step("a", "echo", **{"with": {"value": "${{ steps.go.output }}"}}))


async def test_event_that_comes_is_the_output_of_the_wait() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(FOR_GO)
        await seen(run, "task:waiting")
        state = await run.state()
        assert [(reason.kind, reason.name, reason.path) for reason in state.reasons] == [("event", "go", "go")]
        await run.send("go", {"who": "ada"})
        assert await result(run) == {"who": "ada"}


async def test_event_that_comes_early_is_kept_and_each_is_taken_once() -> None:
    gate = Gate()
    waits = [{"id": name, "wait": {"event": "go"}} for name in ("one", "two")]
    async with engine_at("memory:", gate.tool, echo) as engine:
        both = step("both", "echo", **{"with": {"value": ["${{ steps.one.output }}", "${{ steps.two.output }}"]}})
        run = await engine.start(plan(step("first", "gate"), *waits, both))
        await gate.wait_entered()
        await run.send("go", 1)
        await run.send("go", 2)
        assert (await names(run)).count("event:received") == 2
        gate.open.set()
        assert await result(run) == [1, 2]


async def test_one_event_for_two_waits_is_taken_by_one_and_the_other_waits_on() -> None:
    limited, unlimited = {"event": "go", "timeout": "1h"}, {"event": "go"}
    waits = {"a": limited, "b": limited, "c": unlimited}
    async with engine_at("memory:") as engine:
        run = await engine.start(plan(*({"id": name, "wait": wait, "needs": []} for name, wait in waits.items())))
        for number in (1, 2):
            await seen(run, "task:waiting", lambda event, left=4 - number: len(event.reasons) == left)
            await run.send("go", number)
        await seen(run, "task:waiting", lambda event: [reason.path for reason in event.reasons] == ["c"])
        assert "step:failed" not in await names(run)
        await run.send("go", 3)
        assert await result(run) == 3


async def test_event_that_does_not_come_in_time_fails_the_wait() -> None:
    async with engine_at("memory:") as engine:
        run = await engine.start(plan({"id": "go", "wait": {"event": "go", "timeout": 0.02}}))
        with pytest.raises(holdfast.ExecutionFailed, match='no event "go" arrived in time'):
            await result(run)


async def test_event_after_the_end_is_refused() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        with pytest.raises(holdfast.Refused, match="the execution is completed"):
            await run.send("go")


async def test_execution_waits_only_when_nothing_runs_and_names_every_reason() -> None:
    gate = Gate()
    work = plan(
        {"id": "go", "wait": {"event": "go"}},
        {"id": "ok", "approval": True, "needs": []},
        {"id": "nap", "wait": 3600, "needs": []},
        step("busy", "gate", needs=[]),
    )
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
        await seen(run, "step:waiting", lambda event: event.path == "nap")
        await turns()
        assert await run.status() == "running"
        gate.open.set()
        await seen(run, "task:waiting")
        head = await run.head()
        assert [(reason.kind, reason.path) for reason in head.reasons] == [
            ("event", "go"),
            ("timer", "nap"),
            ("approval", "ok"),
        ]
        assert engine.holdings()["slots"] == 0
        await run.stop()


async def test_wait_that_is_over_quickly_is_not_worth_an_event() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan({"id": "nap", "wait": 0.001}, step("a", "echo")))
        await result(run)
        assert await names(run, "task:") == ["task:created", "task:started", "task:completed"]


async def test_waiting_execution_is_put_to_sleep_and_wakes_on_its_timer(tmp_path: Path) -> None:
    script = Script("once")
    async with engine_at(tmp_path, script.tool, echo, limits=HURRY) as engine:
        work = plan(
            step("a", "script"),
            {"id": "nap", "wait": 0.1},
            step("b", "echo", **{"with": {"value": "${{ steps.a.output }}"}}),
        )
        run = await engine.start(work)
        await seen(run, "task:waiting")
        await quiet(engine)
        assert not any(engine.holdings().values()), engine.holdings()
        assert await result(run) == "once"
        assert await names(run, "task:") == [
            "task:created", "task:started", "task:waiting", "task:started", "task:completed",
        ]  # fmt: skip
    assert len(script.calls) == 1


async def test_sleeping_execution_keeps_the_time_recorded_first(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "nap", "wait": 0.2}))
        await seen(run, "task:waiting")
        first = (await run.state()).steps["nap"].due_at
    async with engine_at(tmp_path, echo) as engine:
        await result(engine.get(run.id))
        written = await events(engine.get(run.id))
    waiting = [event for event in written if isinstance(event, ev.StepWaiting)]
    assert [event.due_at for event in waiting] == [first]
    assert written[-1].at >= (first or 0)


async def test_sleeping_execution_wakes_on_an_event_and_on_a_yes_from_another_engine(tmp_path: Path) -> None:
    async with (
        engine_at(tmp_path, echo, limits=HURRY) as engine,
        engine_at(tmp_path, echo, recover="none") as other,
    ):
        run = await engine.start(plan({"id": "go", "wait": {"event": "go"}}, {"id": "ok", "approval": True}))
        await seen(run, "task:waiting")
        await quiet(engine)
        await other.get(run.id).send("go")
        assert await settled(run) == "waiting"
        await quiet(engine)
        await other.get(run.id).approve("ok")
        assert await result(run) is True
        assert other.holdings()["drivers"] == 0


async def test_items_deep_in_a_plan_that_is_put_to_sleep_are_not_taken_for_done() -> None:
    items = {"id": "items", "for_each": ["one", "two"], "wait": {"event": "${{ item }}"}}
    deep = {"id": "outer", "steps": [{"id": "inner", "steps": [{"id": "last", "steps": [items]}]}]}
    async with engine_at("memory:", limits=HURRY) as engine:
        run = await engine.start(plan(deep))
        await until(lambda: not engine.drives(run.id))
        assert await names(run, "step:completed") == []
        for name in ("one", "two"):
            await run.send(name, name)
        assert await result(run) == ["one", "two"]


async def test_too_many_waiting_executions_are_put_to_sleep_at_once() -> None:
    limits = holdfast.Limits(parked=1, passivate_after_s=3600)
    async with engine_at("memory:", limits=limits) as engine:
        runs = [await engine.start(FOR_GO_ONLY) for _ in range(4)]
        for run in runs:
            await seen(run, "task:waiting")
        await until(lambda: engine.holdings()["drivers"] <= 2)
        for run in runs:
            await run.send("go", 1)
            assert await result(run) == 1


FOR_GO_ONLY = plan({"id": "go", "wait": {"event": "go"}})


async def test_wait_until_a_moment_that_has_passed_is_over_at_once() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan({"id": "past", "wait": {"until": "2020-01-01T00:00:00Z"}}))
        assert await result(run) is None


async def test_question_is_answered_by_a_person(tmp_path: Path) -> None:
    @holdfast.function
    async def ask(ctx: holdfast.Context) -> Any:
        return await ctx.ask("How many?", type="integer")

    async with engine_at(tmp_path, functions=[ask], limits=HURRY) as engine:
        run = await engine.start(ask)
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert (request.kind, request.message, bytes(request.schema)) == (
            "question",
            "How many?",
            b'{"type":"integer"}',
        )
        assert [reason.kind for reason in (await run.state()).reasons] == ["answer"]
        answer = await run.answer("ask", 3, by="ada")
        assert answer.text == "answered ask"
        assert await result(run) == 3


async def test_time_of_events_never_goes_back() -> None:
    async with engine_at("memory:", echo) as engine:
        clock = engine.services.clock
        run = await engine.start(FOR_GO)
        await seen(run, "task:waiting")
        now = clock.now_us()

        class Behind:
            def now_us(self) -> int:
                return now - 3_600_000_000

        engine.services.clock = Behind()
        await run.send("go", 1)
        await result(run)
        times = [event.at for event in await events(run)]
    assert times == sorted(times)


# ---- many at once ----------------------------------------------------------------------------------------------------


def _fan_out(count: int, **inner: Any) -> dict[str, Any]:
    return plan({"id": "all", "for_each": list(range(count)), "max_parallel": count, **inner})


async def test_thousands_that_wait_together_are_counted_and_the_first_of_each_kind_listed() -> None:
    async with engine_at("memory:", echo) as engine:
        waits = {"steps": [{"id": "go", "wait": {"event": "go"}}]}
        run = await engine.start(_fan_out(500, **waits))
        waiting = (await seen(run, "task:waiting")).event
        assert isinstance(waiting, ev.TaskWaiting)
        assert len(waiting.reasons) == 20
        assert [reason.more for reason in waiting.reasons] == [0] * 19 + [480]
        shown: Any = await run.show()
        assert len(shown["reasons"]) == 20
        assert sum(1 + reason["more"] for reason in shown["reasons"]) == 500
        for number in range(500):
            await run.send("go", number)
        await result(run)
        largest = max(len(e.reasons) for e in await events(run) if isinstance(e, ev.TaskWaiting))
        assert largest <= 20


def test_the_listed_reasons_hold_every_kind_and_the_time_that_comes_first() -> None:
    timers = [ev.Reason(kind="timer", path=f"t/{number:03}", due_at=1000 - number) for number in range(500)]
    asked = [ev.Reason(kind="approval", path="z", name="r1")]
    few = listed([*timers, *asked])
    assert len(few) == 21
    assert min(reason.due_at for reason in few if reason.due_at) == 501  # the last, by its path
    assert [reason for reason in few if reason.kind == "approval"] == asked
    assert sum(reason.more for reason in few) == 480
    assert listed(timers[:20]) == tuple(timers[:20])
