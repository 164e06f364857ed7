"""Ways around the rules, closed: approvals of something else, disguised cuts, calls that live on, borrowed ids."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from engine.kit import (
    FAST,
    HURRY,
    Gate,
    Script,
    echo,
    engine_at,
    names,
    plan,
    result,
    seen,
    settled,
    step,
    step_of,
    until,
)
from holdfast.core.errors import Divergence, InputInvalid, Refused
from holdfast.core.execution import ATTEMPTS_KEPT


async def test_what_a_person_agreed_to_cannot_become_something_else(tmp_path: Path) -> None:
    pay, burn = Script(name="pay", effect="once", approval=True), Script(name="burn", effect="once", approval=True)

    def program(tool: Any, amount: int) -> Any:
        @holdfast.function(name="order")
        async def order(ctx: holdfast.Context) -> Any:
            return await ctx.call(tool, amount, name="x")

        return order

    async with engine_at(tmp_path, functions=[program(pay.tool, 10)], limits=HURRY) as engine:
        run = await engine.start("order")
        assert await settled(run) == "waiting"
    async with engine_at(tmp_path, functions=[program(burn.tool, 1000)], limits=HURRY, check=False) as engine:
        again = engine.get(run.id)
        await again.approve("x")
        with pytest.raises(Divergence, match="recorded:  pay"):
            await result(again)
    assert (pay.calls, burn.calls) == ([], [])


# ---- cut off ---------------------------------------------------------------------------------------------------


def disguised(seen_by: list[int]) -> Any:
    @holdfast.tool(effect="once", timeout=0.02)
    async def pay(call: holdfast.Call) -> None:
        seen_by.append(call.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("something else") from None

    return pay


async def test_once_step_whose_time_was_up_is_in_doubt_whatever_its_tool_raises() -> None:
    calls: list[int] = []
    async with engine_at("memory:", disguised(calls)) as engine:
        run = await engine.start(plan(step("a", "pay", retry=FAST)))
        assert await settled(run) == "waiting"
        found = await step_of(run, "a")
        assert (found.status, found.reason) == ("in_doubt", "something else")
        await run.resolve("a", "skip")
        await settled(run)
    assert calls == [1]


async def test_once_step_that_was_interrupted_is_in_doubt_whatever_its_tool_raises() -> None:
    began = asyncio.Event()

    @holdfast.tool(effect="once")
    async def pay() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("something else") from None

    async with engine_at("memory:", pay, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "pay", retry=FAST)))
        await began.wait()
        await run.interrupt()
        assert (await step_of(run, "a")).status == "in_doubt"


@pytest.mark.parametrize("how", ["interrupt", "stop", "close"])
async def test_step_asked_for_from_a_task_of_the_functions_own_is_cut_with_it(how: str) -> None:
    gate = Gate(effect="once")

    @holdfast.function
    async def two(ctx: holdfast.Context) -> None:
        beside = asyncio.ensure_future(ctx.call(gate.tool, name="beside"))
        await ctx.wait_for("never")
        await beside

    async with engine_at("memory:", functions=[two], limits=HURRY) as engine:
        run = await engine.start(two)
        await gate.wait_entered()
        if how != "close":
            await getattr(run, how)()
            assert gate.cancelled == 1
            assert (await step_of(run, "beside")).status == "in_doubt"
    assert gate.cancelled == 1


async def test_a_check_that_says_no_is_not_trusted_while_the_call_still_runs() -> None:
    go_on = threading.Event()

    async def did_not(call: holdfast.Call, arguments: Any) -> holdfast.DidNotHappen:
        return holdfast.DidNotHappen()

    @holdfast.tool(effect="once", timeout=0.02, in_doubt="verify", verify=did_not)
    def pay() -> str:
        go_on.wait()
        return "paid"

    async with engine_at("memory:", pay, check=False) as engine:
        run = await engine.start(plan(step("a", "pay")))
        try:
            assert await settled(run) == "waiting"
            [asked] = (await run.state()).open_requests()
            assert "a call of it that was cut off still runs here" in asked.request.message
            assert "step:in_doubt" in await names(run)
        finally:
            go_on.set()
        await until(lambda: not engine.services.is_living(f"{run.id}:a"))
        await run.resolve("a", "done", output="paid")
        assert await result(run) == "paid"


@pytest.mark.parametrize("retries", [3, 2 * ATTEMPTS_KEPT])
@pytest.mark.parametrize("policy", ["retry", "verify"])
async def test_doubts_in_a_row_end_with_a_person(policy: Any, retries: int) -> None:
    calls: list[int] = []

    async def did_not(call: holdfast.Call, arguments: Any) -> holdfast.DidNotHappen:
        return holdfast.DidNotHappen()

    again = holdfast.Retry(max=retries)

    @holdfast.tool(effect="once", in_doubt=policy, verify=did_not, retry=again, breaker=False)
    async def pay(call: holdfast.Call) -> None:
        calls.append(call.attempt)
        if len(calls) > 3 * ATTEMPTS_KEPT:
            raise holdfast.ToolError("nobody stopped it")
        raise ConnectionResetError("lost")

    async with engine_at("memory:", pay) as engine:
        run = await engine.start(plan(step("a", "pay")))
        assert await settled(run) == "waiting"
        assert calls == list(range(1, retries + 2))  # three, as for every failure, or as many as its tool says
        await run.resolve("a", "fail")
        await settled(run)


# ---- doubts that were passed over ------------------------------------------------------------------------------


@pytest.mark.parametrize("remedy", ["skip", "fail"])
async def test_doubt_that_was_skipped_or_failed_comes_back_when_it_is_retried(remedy: str) -> None:
    pay = Script(ConnectionResetError("lost"), name="pay", effect="once")
    async with engine_at("memory:", pay.tool) as engine:
        run = await engine.start(plan(step("a", "pay")))
        await settled(run)
        await run.resolve("a", remedy)
        await settled(run)
        again = await engine.retry(run.id)
        assert await settled(again) == "waiting"
        assert (await step_of(again, "a")).status == "in_doubt"
        await again.resolve("a", "done", output=1)
        await settled(again)
    assert len(pay.calls) == 1


async def test_retried_parent_does_not_repeat_what_its_child_had_done() -> None:
    pay, broken = Script(name="pay", effect="once"), Script(holdfast.ToolError("no"), name="broken")

    @holdfast.function
    async def child(ctx: holdfast.Context, amount: int) -> Any:
        await ctx.call(pay.tool, amount)
        return await ctx.call(broken.tool, 5)

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> Any:
        return await (await ctx.start(child, {"amount": 10})).result()

    async with engine_at("memory:", functions=[parent, child]) as engine:
        run = await engine.start(parent)
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await result(again) == 5
        [first] = (await run.state()).children.values()
        [second] = (await again.state()).children.values()
        forked = (await engine.get(second.id).state()).facts().forked_from
        assert forked is not None
        assert forked.id == first.id
        anew = await engine.retry(again.id, from_step="start.child")
        assert await result(anew) == 5
    assert len(pay.calls) == 2  # once, and once more because somebody said: from that step on


async def test_mistake_of_a_once_tool_is_not_repeated_because_its_step_retries() -> None:
    pay = Script(KeyError("a bug"), name="pay", effect="once")
    async with engine_at("memory:", pay.tool) as engine:
        run = await engine.start(plan(step("a", "pay", retry=FAST, on_error="fail")))
        assert await settled(run) == "failed"
    assert len(pay.calls) == 1


# ---- who is asked ----------------------------------------------------------------------------------------------


async def test_command_id_that_was_used_for_something_else_is_refused() -> None:
    async with engine_at("memory:", recover="none") as engine:
        one = await engine.start(plan({"id": "a", "wait": {"event": "go"}}), hold=True)
        other = await engine.start(plan({"id": "a", "wait": {"event": "go"}}), hold=True)
        await one.command("interrupt", id="x")
        with pytest.raises(Refused, match=f'the command id "x" was used for interrupt of execution {one.id}'):
            await other.command("stop", id="x")
        assert await other.status() == "queued"
        assert (await one.command("interrupt", id="x")).outcome == "applied"  # the same again: the same answer
        with pytest.raises(InputInvalid, match='may not begin with "holdfast:"'):
            await one.command("stop", id=f"holdfast:{other.id}:ended")


async def test_command_id_that_was_used_with_other_values_is_refused() -> None:
    async with engine_at("memory:", recover="none") as engine:
        run = await engine.start(plan({"id": "a", "wait": {"event": "go"}}), hold=True)
        await run.command("send", id="x", name="tide", data=1)
        with pytest.raises(Refused, match='the command id "x" was used for send with other values'):
            await run.command("send", id="x", name="tide", data=2)
        assert (await run.command("send", id="x", name="tide", data=1)).outcome == "applied"
        told = [answer async for _, answer in engine.command_many([run.id], "pause", bulk_id="b", why="one")]
        told += [answer async for _, answer in engine.command_many([run.id], "pause", bulk_id="b", why="two")]
        assert [answer.outcome for answer in told] == ["applied", "refused"]
        assert "was used for pause with other values; that was not changed; use another id" in told[1].text


# ---- one of many -----------------------------------------------------------------------------------------------


async def test_one_that_is_gone_answers_for_itself_and_the_others_are_settled() -> None:
    async with engine_at("memory:", recover="none") as engine:
        runs = [await engine.start(plan({"id": "a", "wait": {"event": "go"}}), hold=True) for _ in range(4)]
        ids = [run.id for run in runs]
        await runs[1].stop()
        assert (await engine.delete([ids[1]]))[0] == [ids[1]]
        told = {one: answer async for one, answer in engine.command_many(ids, "stop", bulk_id="b")}
        assert [told[one].outcome for one in ids] == ["applied", "refused", "applied", "applied"]
        assert "there is no execution" in told[ids[1]].text
        assert await engine.services.store.pending() == []
        assert "there is no execution" in (await engine.hold(ids, "why"))[ids[1]]
        gone, kept = await engine.delete(ids)
        assert (sorted(gone), list(kept)) == (sorted({*ids} - {ids[1]}), [ids[1]])
        assert "there is no execution" in kept[ids[1]]


async def test_one_that_is_damaged_answers_for_itself_and_the_others_are_settled(tmp_path: Path) -> None:
    async with engine_at(tmp_path, recover="none") as engine:
        runs = [await engine.start(plan({"id": "a", "wait": {"event": "go"}}), hold=True) for _ in range(3)]
        ids, path = [run.id for run in runs], engine.settings.store
    which = "execution = (SELECT num FROM executions WHERE id = ?)"
    with closing(apsw.Connection(path)) as connection:
        connection.execute(f"UPDATE events SET body = CAST(body || x'20' AS BLOB) WHERE seq = 1 AND {which}", (ids[1],))
    async with engine_at(tmp_path, recover="none") as engine:
        told = {one: answer async for one, answer in engine.command_many(ids, "pause", bulk_id="b")}
        assert [told[one].outcome for one in ids] == ["applied", "refused", "applied"]
        assert "was changed after it was written" in told[ids[1]].text
        told = {one: answer async for one, answer in engine.command_many(ids, "stop", bulk_id="c")}
        assert [told[one].outcome for one in ids] == ["applied", "refused", "applied"]
        assert f"execution {ids[1]} was set aside, because its journal is damaged" in told[ids[1]].text
        with pytest.raises(Refused, match="was set aside, because its journal is damaged"):
            await engine.get(ids[1]).stop()
        assert [command.verb for command in await engine.services.store.pending()] == ["pause"]  # before it was known


# ---- closing ---------------------------------------------------------------------------------------------------


async def test_execution_that_queued_for_a_place_when_its_engine_closed_is_woken_by_the_next(tmp_path: Path) -> None:
    gate = Gate()
    one_place = holdfast.Limits(executions=1, passivate_after_s=60, drain_s=0.0, interrupt_grace_s=0.1)
    async with engine_at(tmp_path, gate.tool, echo, limits=one_place) as engine:
        waiting = await engine.start(plan({"id": "news", "wait": {"event": "go"}}))
        growing = await engine.start(plan({"id": "news", "wait": {"event": "go"}}))
        for run in (waiting, growing):
            await seen(run, "task:waiting")
        await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await waiting.send("go", 7)
        await growing.extend([step("more", "echo", needs=[])])
    async with engine_at(tmp_path, gate.tool, echo) as engine:
        assert await result(engine.get(waiting.id)) == 7
        await seen(engine.get(growing.id), "step:completed", lambda event: event.path == "more")


async def test_engine_that_closes_while_a_task_is_handed_in_leaves_nothing_behind() -> None:
    for turns in range(8):
        async with engine_at("memory:", echo) as engine:
            starting = asyncio.ensure_future(engine.start(plan(step("a", "echo"))))
            for _ in range(turns):
                await asyncio.sleep(0)
            await engine.close()
            assert not any(engine.holdings().values())
            await asyncio.wait({starting})
            assert starting.exception() is None or isinstance(starting.exception(), holdfast.HoldfastError)
