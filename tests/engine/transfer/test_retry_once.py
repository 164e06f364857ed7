"""Retry is for what has ended, and once: nobody pays twice for having typed the same a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, plan, result, settled, step
from holdfast.core.errors import NotFound


async def test_what_has_not_ended_is_not_retried(tmp_path: Path) -> None:
    pay, gate = Script(ConnectionResetError("gone"), "paid", name="pay", effect="once"), Gate()
    async with engine_at(tmp_path, pay.tool, gate.tool) as engine:
        waiting = await engine.start(plan(step("pay", "pay")))
        assert await settled(waiting) == "waiting"
        running = await engine.start(plan(step("gate", "gate")))
        await gate.wait_entered()
        for run, status in ((waiting, "waiting"), (running, "running")):
            for from_step, again in (("", False), ("", True), ("pay", False)):
                with pytest.raises(holdfast.Refused) as refused:
                    await engine.retry(run.id, from_step=from_step, again=again)
                assert str(refused.value) == (
                    f"the execution is {status} and has not ended, and a retry would do beside it what it has still to "
                    f"do; nothing was started. To go on with it: holdfast resume {run.id}. "
                    f"To begin anew: holdfast stop {run.id} first, then retry it"
                )
        assert len(await engine.list()) == 2
        copy = await engine.fork(waiting.id)  # which says itself that it makes another one beside it
        assert await settled(copy) == "waiting"
        gate.open.set()
        await result(running)


async def test_what_was_retried_is_retried_once_more_only_if_somebody_says_so(tmp_path: Path) -> None:
    pay = Script(*[holdfast.ToolError("no")] * 3, "paid", name="pay", effect="once", retry=0)
    async with engine_at(tmp_path, pay.tool) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        assert await settled(run) == "failed"
        first = await engine.retry(run.id)
        assert await settled(first) == "failed"
        with pytest.raises(holdfast.Refused) as refused:
            await engine.retry(run.id)
        assert str(refused.value) == (
            f"execution {run.id} was retried or forked before, as {first.id}, which is failed; nothing was started. "
            f"To go on with that one: holdfast retry {first.id}. "
            f"To retry the first one all the same: holdfast retry {run.id} --again"
        )
        assert len(pay.calls) == 2
        assert await settled(await engine.retry(run.id, from_step="pay")) == "failed"
        last = await engine.retry(run.id, again=True)
        assert await result(last) == "paid"
        with pytest.raises(holdfast.Refused, match=f"as {last.id}, which is completed; .* holdfast show {last.id}"):
            await engine.retry(run.id)
    assert len(pay.calls) == 4


async def test_a_step_that_is_nowhere_near_any_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(*(step(f"s{number}", "echo") for number in range(7))))
        await result(run)
        with pytest.raises(NotFound) as unknown:
            await engine.retry(run.id, from_step="elsewhere")
        assert str(unknown.value) == (
            'there is no step "elsewhere" in this execution; there are: s0, s1, s2, s3, s4 and 2 more'
        )


async def test_a_piece_of_an_id_that_fits_many_is_answered_with_some_of_them_and_how_many(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        ids = [(await engine.start(plan(step("a", "echo")), hold=True)).id for _ in range(7)]
        named = ", ".join(reversed(ids[2:]))
        with pytest.raises(NotFound) as many:
            await engine.find(ids[0][:3])
        assert str(many.value) == (
            f'"{ids[0][:3]}" fits more than one execution: {named} and 2 more; give more of the id'
        )
