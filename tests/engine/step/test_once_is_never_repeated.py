"""Where carelessness would cost somebody money: fallbacks, late answers, forks and loops around `once` steps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import FAST, HURRY, Gate, Script, engine_at, names, plan, result, seen, settled, step, step_of, until
from holdfast.core import events as ev
from holdfast.core.errors import Divergence, Refused
from holdfast.core.policy import LOSSES_MAX


async def test_a_doubt_after_a_fallback_is_the_fallbacks_to_settle() -> None:
    first = Script(
        holdfast.Transient("down", without_effect=True), name="first", effect="once", retry=holdfast.Retry(max=0)
    )

    @first.tool.verify
    async def verify(call: holdfast.Call, arguments: dict[str, Any]) -> holdfast.DidNotHappen:
        return holdfast.DidNotHappen()  # true of the first tool, and says nothing about the second

    second = Script(ConnectionResetError("gone"), name="second", effect="once", in_doubt="ask")
    async with engine_at("memory:", first.tool, second.tool) as engine:
        run = await engine.start(plan(step("pay", "first", fallback="second")))
        assert await settled(run) == "waiting"
        assert (await step_of(run, "pay")).status == "in_doubt"
        assert len(second.calls) == 1
        await run.stop()


async def test_a_fallback_that_needs_approval_is_asked_for_like_any_other() -> None:
    first = Script(holdfast.ToolError("no", without_effect=True), name="first")
    deploy = Script("deployed", name="deploy", approval="Deploy?")
    async with engine_at("memory:", first.tool, deploy.tool) as engine:
        run = await engine.start(plan(step("a", "first", fallback="deploy")))
        assert await settled(run) == "waiting"
        assert deploy.calls == []
        request = next((await run.state()).open_requests()).request
        assert (request.message, request.tool) == ("Deploy?", "deploy")
        await run.approve("a")
        assert await result(run) == "deployed"


async def test_a_fallback_is_called_with_what_the_person_agreed_to_and_not_with_what_failed() -> None:
    first = Script(holdfast.ToolError("no", without_effect=True), name="first")
    wire = Script(name="wire", effect="once", approval="Wire it?")
    fallback = {"tool": "wire", "with": {"value": 50}}
    async with engine_at("memory:", first.tool, wire.tool) as engine:
        run = await engine.start(plan(step("a", "first", fallback=fallback, **{"with": {"value": 1}})))
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert bytes(request.arguments) == b'{"value":50}'
        await run.approve("a")
        assert await result(run) == 50
    assert (first.arguments, wire.arguments) == ([1], [50])


async def test_an_approval_that_has_expired_cannot_be_granted_any_more() -> None:
    gate = Gate("deploy")
    async with engine_at("memory:", gate.tool, recover="none") as engine:
        created = engine.preparer.prepare(plan(step("a", "deploy", approval="Deploy?")))
        at = created.at
        request = ev.Request(id="a#3", kind="approval", path="a", message="Deploy?", tool="deploy", expires_at=at)
        asked = [
            ev.StepWaiting(at=at, path="a", reason="approval", tool="deploy", kind="tool", due_at=at),
            ev.ApprovalRequested(at=at, request=request),
        ]
        run = await engine.create(created, copied=asked)  # and nobody has looked at it since
        with pytest.raises(Refused, match="a expired before it was answered, and silence is a no"):
            await run.approve("a")
        assert "approval:expired" in await names(run)
    assert gate.calls == []


@pytest.mark.parametrize("how", ["retry", "fork"])
async def test_a_doubt_travels_into_the_execution_that_is_made_from_it(how: str) -> None:
    pay = Script(ConnectionResetError("gone"), name="pay", effect="once")
    async with engine_at("memory:", pay.tool) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        assert await settled(run) == "waiting"
        await run.stop()
        again = await (engine.retry(run.id) if how == "retry" else engine.fork(run.id))
        assert await settled(again) == "waiting"
        assert (await step_of(again, "pay")).status == "in_doubt"
        assert len(pay.calls) == 1
        await again.resolve("pay", "done", output="paid by hand")
        assert await result(again) == "paid by hand"
    assert len(pay.calls) == 1


async def test_an_extension_that_was_acknowledged_is_run(tmp_path: Path) -> None:
    gate, added = Gate(), Script("added", name="added")
    async with engine_at(tmp_path, gate.tool, added.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await run.pause()
        gate.open.set()
        await seen(run, "step:completed")
        extended, _ = await asyncio.gather(run.extend([step("b", "added")]), run.resume())
        assert extended.outcome == "applied"
        assert await result(run) == "added"


async def test_of_two_extensions_with_the_same_step_the_second_is_refused() -> None:
    gate, added = Gate(), Script(name="added")
    async with engine_at("memory:", gate.tool, added.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        both = [run.extend([step("b", "added")]), run.extend([step("b", "added")])]
        answers = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Answer", "Refused"]
        refusal = next(answer for answer in answers if isinstance(answer, Refused))
        assert 'steps[0].id: another step is already called "b"; ids must differ' in str(refusal)
        gate.open.set()
        await result(run)
        assert len(added.calls) == 1


@pytest.mark.parametrize("kind", ["ask", "sleep", "start"])
async def test_a_wait_that_asks_for_something_else_than_recorded_is_a_divergence(tmp_path: Path, kind: str) -> None:
    changed = False

    @holdfast.function
    async def child(ctx: holdfast.Context, of: str) -> str:
        return of

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> Any:
        if kind == "ask":
            await ctx.ask("Delete production?" if changed else "Delete staging?")
        elif kind == "sleep":
            await ctx.sleep("2ms" if changed else "1ms")
        else:
            await (await ctx.start(child, {"of": "b" if changed else "a"})).result()
        await ctx.wait_for("go")

    async with engine_at(tmp_path, functions=[parent, child], limits=HURRY) as engine:
        run = await engine.start(parent)
        if kind == "ask":
            await settled(run)
            await run.answer("ask", "yes")
        await seen(run, "step:waiting", lambda event: event.reason == "event")
        await until(lambda: not engine.holdings()["drivers"])
        changed = True
        before = await names(run)
        await run.send("go")
        with pytest.raises(Divergence, match="was recorded with another input; nothing was changed"):
            await result(run)
        assert [name for name in await names(run) if name.startswith("step:")] == [
            name for name in before if name.startswith("step:")
        ]


async def test_a_step_that_takes_its_process_down_is_not_tried_for_ever(tmp_path: Path) -> None:
    gate = Gate(effect="idempotent")
    run_id = ""
    for _ in range(LOSSES_MAX):
        engine = holdfast.Engine(folder=tmp_path, tools=[gate.tool], limits=HURRY)
        await engine.open()
        gate.entered.clear()
        if not run_id:
            run_id = (await engine.start(plan(step("a", "gate", retry=FAST)))).id
        await gate.wait_entered()
        # As a crash leaves it: the process is gone, and its journal says that the step runs.
        driver = engine.driver(run_id)
        assert driver is not None
        await driver.log.durable()
        driver._lost(holdfast.HoldfastError("the process died"))
        await until(lambda engine=engine: not engine.holdings()["drivers"])
        engine._keeper._closing = True
        engine._liveness.release(engine.services.driver)
        await engine.services.writer.close()
        await engine.services.store.close()
    async with engine_at(tmp_path, gate.tool) as engine:
        run = engine.get(run_id)
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert request.message == f"gate failed: its process ended {LOSSES_MAX} times while it ran"
        assert len(gate.calls) == LOSSES_MAX
        await run.stop()
