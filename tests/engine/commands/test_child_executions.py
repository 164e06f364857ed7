"""Parents and children: linked in one transaction, held and stopped together, and a child's end reaches its parent."""

from __future__ import annotations

import asyncio
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
    step_of,
    until,
)
from holdfast.core import events as ev
from holdfast.engine.drive.activity import QUIET_S
from holdfast.engine.step import durable_waits
from holdfast.engine.transfer import forks
from holdfast.journal.store import Entry, Query


@holdfast.function
async def double(ctx: holdfast.Context, number: int) -> int:
    return 2 * await ctx.call(echo, number)


@holdfast.function
async def parent(ctx: holdfast.Context, number: int) -> dict[str, Any]:
    child = await ctx.start(double, {"number": number})
    return {"child": child.id, "result": await child.result()}


async def child_of(run: holdfast.Run) -> holdfast.Run:
    started = await seen(run, "child:started")
    return run._engine.get(started.event.child_id)  # type: ignore[union-attr]


async def test_child_gives_its_result_to_its_parent() -> None:
    async with engine_at("memory:", functions=[double, parent]) as engine:
        run = await engine.start(parent, inputs={"number": 4}, owner="ada")
        output = await result(run)
        assert output["result"] == 8
        head = await engine.get(output["child"]).head()
        assert (head.parent_id, head.owner, head.name) == (run.id, "ada", "double")
        created = (await engine.get(output["child"]).state()).facts()
        assert created.parent == ev.Parent(id=run.id, path="start.double")
        assert [h.id for h in await engine.list(Query(parent_id=run.id))] == [output["child"]]
        assert [(child.path, child.status) for child in (await run.state()).children.values()] == [
            ("start.double", "completed")
        ]


async def test_plan_starts_a_plan_file_and_a_function(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(
        "inputs: {word: string}\nsteps:\n  - {id: a, tool: echo, with: {value: '${{ inputs.word }}'}}\n"
    )
    work = plan(
        {"id": "one", "start": "inner.yaml", "with": {"word": "hi"}},
        {"id": "two", "start": "double", "with": {"number": 3}},
        step("both", "echo", **{"with": {"value": ["${{ steps.one.output }}", "${{ steps.two.output }}"]}}),
    )
    async with engine_at(tmp_path, echo, functions=[double]) as engine:
        assert await result(await engine.start(work)) == ["hi", 6]


async def test_wrong_inputs_for_a_child_fail_the_step_that_starts_it() -> None:
    async with engine_at("memory:", echo, functions=[double]) as engine:
        work = plan({"id": "two", "start": "double", "with": {"number": "many"}, "critical": False}, step("a", "echo"))
        run = await engine.start(work)
        await result(run)
        failed = await step_of(run, "two")
        assert (failed.status, "number" in failed.failure.message) == ("failed", True)  # type: ignore[union-attr]


async def test_failed_child_fails_the_step_and_the_parent_may_live_with_it() -> None:
    @holdfast.function
    async def bad(ctx: holdfast.Context) -> None:
        raise ValueError("not today")

    @holdfast.function
    async def tolerant(ctx: holdfast.Context) -> str:
        child = await ctx.start(bad)
        try:
            await child.result()
        except holdfast.StepFailed as error:
            return f"{error.path}: {error.failure.message}"
        return ""

    async with engine_at("memory:", functions=[bad, tolerant]) as engine:
        assert await result(await engine.start(tolerant)) == "start.bad: not today"
        run = await engine.start(plan({"id": "c", "start": "bad"}))
        with pytest.raises(holdfast.ExecutionFailed, match="not today"):
            await result(run)


async def test_what_kind_of_failure_a_child_had_reaches_its_parent() -> None:
    script = Script(holdfast.NotPermitted("the harbour is closed"))

    @holdfast.function
    async def sail(ctx: holdfast.Context) -> None:
        await ctx.call(script.tool)

    async with engine_at("memory:", script.tool, functions=[sail]) as engine:
        run = await engine.start(plan({"id": "c", "start": "sail"}))
        with pytest.raises(holdfast.ExecutionFailed, match="the harbour is closed") as failed:
            await result(run)
        assert failed.value.failure.category == "permission"
        assert (await step_of(run, "c")).failure == (await run.state()).children["c"].failure


async def test_end_of_a_child_wakes_a_parent_that_was_put_to_sleep(tmp_path: Path) -> None:
    gate = Gate()

    @holdfast.function
    async def slow(ctx: holdfast.Context) -> str:
        await ctx.call(gate.tool)
        return "slow"

    async with engine_at(tmp_path, functions=[slow], limits=HURRY) as engine:
        run = await engine.start(plan({"id": "c", "start": "slow"}))
        waiting = await seen(run, "task:waiting")
        assert [reason.kind for reason in waiting.event.reasons] == ["child"]  # type: ignore[union-attr]
        await gate.wait_entered()
        await until(lambda: not engine.drives(run.id))
        gate.open.set()
        assert await result(run) == "slow"


async def test_many_quick_children_of_sleeping_parents_are_never_lost(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, functions=[double, parent], limits=HURRY) as engine:
        runs = [await engine.start(parent, inputs={"number": n}) for n in range(20)]
        assert [(await result(run))["result"] for run in runs] == [2 * n for n in range(20)]


async def test_pause_and_resume_pass_down_to_the_children(tmp_path: Path) -> None:
    gate, family = Gate(), plan({"id": "c", "start": "inner.json"})
    (tmp_path / "inner.json").write_text('{"steps": [{"id": "a", "tool": "gate"}, {"id": "b", "tool": "gate"}]}')
    async with engine_at(tmp_path, gate.tool, limits=HURRY) as engine:
        run = await engine.start(family)
        child = await child_of(run)
        await gate.wait_entered()
        await run.pause(by="ada")
        await seen(child, "task:paused")
        gate.open.set()
        assert (await child.state()).by == "ada"
        await quiet(engine)
        await run.resume(by="ada")
        await result(run)
        assert await child.status() == "completed"
    assert len(gate.calls) == 2


async def test_interrupt_and_stop_pass_down_to_the_children(tmp_path: Path) -> None:
    gate, family = Gate(), plan({"id": "c", "start": "inner.json"})
    (tmp_path / "inner.json").write_text('{"steps": [{"id": "a", "tool": "gate"}]}')
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(family)
        child = await child_of(run)
        await gate.wait_entered()
        await run.interrupt()
        await seen(child, "task:interrupted")
        assert gate.cancelled == 1
        gate.entered.clear()
        await run.resume()
        await gate.wait_entered()
        await run.stop(why="enough")
        await seen(child, "task:stopped")
        assert gate.cancelled == 2


async def test_parent_that_fails_stops_its_children(tmp_path: Path) -> None:
    gate = Gate()

    @holdfast.function
    async def forever(ctx: holdfast.Context) -> None:
        await ctx.call(gate.tool)

    @holdfast.function
    async def careless(ctx: holdfast.Context) -> None:
        await ctx.start(forever)
        await ctx.run("wait", gate.wait_entered)
        raise ValueError("oops")

    async with engine_at(tmp_path, functions=[forever, careless]) as engine:
        run = await engine.start(careless)
        child = await child_of(run)
        with pytest.raises(holdfast.ExecutionFailed, match="oops"):
            await result(run)
        with pytest.raises(holdfast.ExecutionStopped):
            await result(child)


async def test_stopped_child_fails_the_step_of_its_parent() -> None:
    gate = Gate()

    @holdfast.function
    async def inner(ctx: holdfast.Context) -> None:
        await ctx.call(gate.tool)

    async with engine_at("memory:", functions=[inner]) as engine:
        run = await engine.start(plan({"id": "c", "start": "inner"}))
        child = await child_of(run)
        await gate.wait_entered()
        await child.stop()
        with pytest.raises(holdfast.ExecutionFailed, match="the child execution was stopped"):
            await result(run)


async def test_child_stopped_by_its_pause_limit_tells_its_parent(tmp_path: Path) -> None:
    gate = Gate()
    (tmp_path / "inner.json").write_text(
        '{"steps": [{"id": "a", "tool": "gate"}, {"id": "b", "tool": "gate"}], "pause_timeout": 0.05}'
    )
    async with engine_at(tmp_path, gate.tool) as engine:
        run = await engine.start(plan({"id": "c", "start": "inner.json"}))
        child = await child_of(run)
        await gate.wait_entered()
        await child.pause()
        gate.open.set()
        with pytest.raises(holdfast.ExecutionFailed, match="the child execution was stopped"):
            await result(run)
        assert (await child.state()).why == "the pause limit was reached"


async def test_child_outlives_its_parents_restart_and_is_not_started_twice(tmp_path: Path) -> None:
    gate = Gate()
    (tmp_path / "inner.json").write_text('{"steps": [{"id": "a", "tool": "gate", "with": {"value": "done"}}]}')
    async with engine_at(tmp_path, gate.tool, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "c", "start": "inner.json"}))
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, gate.tool) as engine:
        assert await result(engine.get(run.id)) == "done"
        assert len(await engine.list()) == 2
        assert (await names(engine.get(run.id))).count("child:started") == 1


async def test_child_created_and_parents_event_are_one_transaction(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, functions=[double, parent]) as engine:
        run = await engine.start(parent, inputs={"number": 1})
        await result(run)
        written = await events(run)
        child_id = next(event.child_id for event in written if isinstance(event, ev.ChildStarted))
        created = (await events(engine.get(child_id)))[0]
        assert isinstance(created, ev.TaskCreated)
        assert created.key == f"{run.id}:start.double"


async def test_execution_names_a_child_also_if_the_disk_is_slow_to_create_it() -> None:
    """Otherwise lists would not say, for as long as it waits for both, that it waits for the child."""
    gate = Gate()

    @holdfast.function
    async def busy(ctx: holdfast.Context) -> None:
        await ctx.call(gate.tool)

    async with engine_at("memory:", gate.tool, functions=[busy]) as engine:
        store: Any = engine.services.store
        commit = store.commit

        async def slow(writes: Any) -> Any:
            if any(isinstance(write, Entry) and write.creates for write in writes):
                await asyncio.sleep(3 * QUIET_S)  # longer than nothing may move before it counts as waiting
            return await commit(writes)

        store.commit = slow
        run = await engine.start(plan({"id": "a", "wait": {"event": "go"}}, {"id": "b", "start": "busy", "needs": []}))
        waiting: Any = (await seen(run, "task:waiting")).event
        assert [(reason.kind, reason.path) for reason in waiting.reasons] == [("event", "a"), ("child", "b")]
        gate.open.set()
        await run.send("go")
        await result(run)


async def test_one_place_is_enough_for_a_parent_and_its_child() -> None:
    async with engine_at("memory:", functions=[double, parent], limits=holdfast.Limits(executions=1)) as engine:
        assert (await result(await engine.start(parent, inputs={"number": 5})))["result"] == 10


async def test_family_engine_drives_its_own_and_their_children_and_nothing_else(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, functions=[double, parent], recover="none") as engine:
        foreign = await engine.start(double, inputs={"number": 1}, hold=True)
        await foreign.resume()
    async with engine_at(tmp_path, echo, functions=[double, parent], recover="family") as engine:
        run = await engine.start(parent, inputs={"number": 2})
        assert (await result(run))["result"] == 4
        assert await engine.get(foreign.id).status() == "running"
        await engine.get(foreign.id).resume()
        assert await result(engine.get(foreign.id)) == 2


async def test_child_that_waits_for_a_person_is_answered_by_itself(tmp_path: Path) -> None:
    (tmp_path / "inner.json").write_text('{"steps": [{"id": "ok", "approval": true}]}')
    async with engine_at(tmp_path, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "c", "start": "inner.json"}))
        child = await child_of(run)
        assert await settled(child) == "waiting"
        await child.approve()
        assert await result(run) is True


async def test_stopping_a_sleeping_parent_stops_the_child_that_nobody_drives(tmp_path: Path) -> None:
    @holdfast.function
    async def child(ctx: holdfast.Context) -> None:
        await ctx.ask("?")

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> None:
        await (await ctx.start(child)).result()

    async with engine_at(tmp_path, functions=[parent, child], limits=HURRY) as engine:
        run = await engine.start(parent)
        await seen(run, "task:waiting")
        child_id = next(iter((await run.state()).children.values())).id
        await settled(engine.get(child_id))
    async with engine_at(tmp_path, recover="none") as engine:
        await engine.get(run.id).stop()
        assert await engine.get(child_id).status() == "stopped"


async def test_no_child_is_born_after_a_pause_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, found = asyncio.Event(), asyncio.Event()
    inherited = forks.inherited

    async def slow_disk(*given: Any) -> Any:
        looking.set()
        await found.wait()
        return await inherited(*given)

    monkeypatch.setattr(durable_waits, "inherited", slow_disk)
    async with engine_at("memory:", echo, functions=[double, parent]) as engine:
        run = await engine.start(parent, inputs={"number": 4})
        async with asyncio.timeout(60):
            await looking.wait()
        assert (await run.pause()).outcome == "applied"
        found.set()
        await quiet(engine)
        assert (await names(run))[-1] == "task:paused"
        assert await engine.list(Query(parent_id=run.id)) == []
        await run.resume()
        assert (await result(run))["result"] == 8


async def test_a_parent_that_completes_stops_the_children_that_still_run(tmp_path: Path) -> None:
    gate = Gate()

    @holdfast.function
    async def slow(ctx: holdfast.Context) -> None:
        await ctx.call(gate.tool)

    @holdfast.function
    async def hasty(ctx: holdfast.Context) -> str:
        return (await ctx.start(slow, name="child")).id

    async with engine_at(tmp_path, gate.tool, functions=[slow, hasty]) as engine:
        child = engine.get(await result(await engine.start(hasty)))
        with pytest.raises(holdfast.ExecutionStopped, match="its parent completed"):
            await result(child)
