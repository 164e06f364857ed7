"""Approvals: a person's yes before a step, which may edit, stick, expire, and outlives the process."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, echo, engine_at, names, plan, quiet, result, settled, step, step_of

ASKED = plan(step("send", "script", approval="Send it?", **{"with": {"value": 1}}))


async def test_step_waits_for_a_yes_and_then_runs() -> None:
    script = Script("sent")
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(ASKED)
        assert await settled(run) == "waiting"
        assert script.calls == []
        request = next((await run.state()).open_requests()).request
        assert (request.kind, request.message, request.tool) == ("approval", "Send it?", "script")
        assert bytes(request.arguments) == b'{"value":1}'
        answer = await run.approve("send", by="ada", why="looks right")
        assert (answer.outcome, answer.text) == ("applied", "approved send")
        assert await result(run) == "sent"
        assert await names(run, "approval:") == ["approval:requested", "approval:granted"]


async def test_no_fails_the_step_and_names_who_said_it() -> None:
    script = Script()
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(ASKED)
        await settled(run)
        await run.deny("send", by="ada", why="wrong address")
        with pytest.raises(holdfast.ExecutionFailed, match="denied by ada: wrong address") as failed:
            await result(run)
        assert failed.value.failure.category == "permission"
        assert (await step_of(run, "send")).by == "ada"
    assert script.calls == []


async def test_second_answer_changes_nothing_and_the_opposite_one_is_refused() -> None:
    script, gate = Script("sent"), Script(ValueError("keeps it open"), name="later")
    async with engine_at("memory:", script.tool, gate.tool) as engine:
        work = plan(step("send", "script", approval=True), step("other", "later", needs=[], approval=True))
        run = await engine.start(work)
        await settled(run)
        with pytest.raises(holdfast.Refused, match="say which step: other, send"):
            await run.approve()
        assert (await run.approve("send", by="ada")).outcome == "applied"
        with pytest.raises(holdfast.Refused, match="send"):
            await run.deny("send")
        assert (await names(run)).count("approval:granted") == 1
        await run.stop()
        with pytest.raises(holdfast.Refused, match="the execution is stopped"):
            await run.approve("other")


async def test_silence_is_a_no() -> None:
    script = Script()
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("send", "script", approval={"message": "Send?", "expires": 0.03})))
        with pytest.raises(holdfast.ExecutionFailed, match="nobody approved it in time, and silence is a no"):
            await result(run)
        assert await names(run, "approval:") == ["approval:requested", "approval:expired"]
    assert script.calls == []


async def test_expiry_is_noticed_by_an_engine_that_was_not_there_when_it_was_asked(tmp_path: Path) -> None:
    script = Script()
    async with engine_at(tmp_path, script.tool, limits=HURRY) as engine:
        run = await engine.start(plan(step("send", "script", approval={"message": "Send?", "expires": 0.2})))
        await settled(run)
    async with engine_at(tmp_path, script.tool) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match="silence is a no"):
            await result(engine.get(run.id))
    assert script.calls == []


async def test_approval_may_replace_the_arguments_without_counting_as_a_divergence() -> None:
    script = Script(holdfast.Transient("busy"))
    async with engine_at("memory:", script.tool) as engine:
        work = plan(step("send", "script", approval=True, retry={"first": 0.001}, **{"with": {"value": 1}}))
        run = await engine.start(work)
        await settled(run)
        answer = await run.approve("send", arguments={"value": 2})
        assert answer.text == "approved send with edited arguments"
        assert await result(run) == 2
        assert not (await step_of(run, "send")).diverged
    assert script.arguments == [2, 2]


async def test_edited_arguments_are_checked_like_any_others() -> None:
    @holdfast.tool(effect="once", approval=True)
    async def whole(number: int) -> int:
        return number

    async with engine_at("memory:", whole) as engine:
        run = await engine.start(plan(step("a", "whole", **{"with": {"number": 1}})))
        await settled(run)
        with pytest.raises(
            holdfast.HoldfastError, match="the edited arguments do not fit whole:\n  number: expected a"
        ):
            await run.approve("a", arguments={"number": "many"})
        assert (await names(run)).count("approval:granted") == 0
        await run.approve("a", arguments={"number": 4})
        assert await result(run) == 4


async def test_sticky_yes_covers_the_tool_for_the_rest_of_the_execution() -> None:
    script, other = Script(approval=True), Script(name="other", approval=True)
    async with engine_at("memory:", script.tool, other.tool) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "script"), step("c", "other")))
        await settled(run)
        await run.approve("a", sticky=True)
        assert await settled(run) == "waiting"
        assert [asked.request.path for asked in (await run.state()).open_requests()] == ["c"]
        await run.approve()
        await result(run)
    assert len(script.calls) == 2


async def test_approval_survives_a_restart_and_holds_nothing_meanwhile(tmp_path: Path) -> None:
    script = Script("sent")
    async with engine_at(tmp_path, script.tool, limits=HURRY) as engine:
        run = await engine.start(ASKED)
        await settled(run)
        await quiet(engine)
        assert not any(engine.holdings().values()), engine.holdings()
    async with engine_at(tmp_path, script.tool, recover="none") as engine:  # it cannot drive, and may still answer
        await engine.get(run.id).approve("send")
        assert await engine.get(run.id).status() == "waiting"
    async with engine_at(tmp_path, script.tool) as engine:
        assert await result(engine.get(run.id)) == "sent"


async def test_approval_step_is_nothing_but_a_yes_or_no() -> None:
    async with engine_at("memory:", echo) as engine:
        work = plan({"id": "ok", "approval": "Go on?"}, step("a", "echo", **{"with": {"value": "went on"}}))
        yes, no = await engine.start(work), await engine.start(work)
        for run in (yes, no):
            await settled(run)
        await yes.approve("ok", by="ada")
        await no.deny("ok", by="bob")
        assert await result(yes) == "went on"
        with pytest.raises(holdfast.ExecutionFailed, match="denied by bob"):
            await result(no)
        assert (await step_of(yes, "ok")).by == "ada"


async def test_approval_of_an_execution_that_waits_for_a_place_is_not_forgotten(tmp_path: Path) -> None:
    limits = holdfast.Limits(executions=1, passivate_after_s=0.02)

    gate, script = Gate(), Script("sent")
    async with engine_at(tmp_path, gate.tool, script.tool, limits=limits) as engine:
        asked = await engine.start(ASKED)
        await settled(asked)
        busy = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await asked.approve("send")
        gate.open.set()
        await result(busy)
        assert await result(asked) == "sent"
