"""What is held is driven by nobody until a person says so; commands reach it all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from engine.commands.test_child_executions import child_of
from engine.kit import HURRY, Gate, Script, echo, engine_at, names, plan, quiet, result, seen, settled, step
from holdfast.engine.drive.claims import claim
from holdfast.journal.store import Hold, Query

WHY = "restored from a backup"


@holdfast.function
async def child(ctx: holdfast.Context) -> str:
    return await ctx.wait_for("go")


@holdfast.function
async def parent(ctx: holdfast.Context) -> str:
    return await (await ctx.start(child)).result()


async def held_after_a_pause(folder: Path, *tools: holdfast.Tool) -> str:
    """An execution that was paused before its first step and is held since."""
    async with engine_at(folder, *tools, limits=HURRY) as engine:
        run = await engine.start(plan(step("a", "script")), hold=True)
        await engine.services.store.commit([Hold(execution_ids=(run.id,), why=WHY)])
        return run.id


async def test_an_engine_leaves_what_is_held_and_takes_up_the_rest(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, limits=HURRY, recover="none") as engine:
        held, free = [await engine.start(plan(step("a", "gate"))) for _ in range(2)]
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, recover="none") as engine:
        await engine.services.store.commit([Hold(execution_ids=(held.id,), why=WHY)])
    async with engine_at(tmp_path, gate.tool) as engine:
        await result(engine.get(free.id))
        await quiet(engine)
        assert (await engine.get(held.id).head()).held == WHY
        assert await settled(engine.get(held.id)) == "running"
        assert "task:recovered" not in await names(engine.get(held.id))


async def test_resume_lets_it_go_and_drives_it(tmp_path: Path) -> None:
    script = Script()
    execution_id = await held_after_a_pause(tmp_path, script.tool)
    async with engine_at(tmp_path, script.tool) as engine:
        run = engine.get(execution_id)
        await run.resume()
        await result(run)
        assert (await run.head()).held == ""
    assert len(script.calls) == 1


async def test_an_engine_that_recovers_drives_it_once_somebody_else_let_it_go(tmp_path: Path) -> None:
    script = Script()
    execution_id = await held_after_a_pause(tmp_path, script.tool)
    async with engine_at(tmp_path, script.tool) as engine:
        async with engine_at(tmp_path, script.tool, recover="none") as commander:
            await commander.resume(execution_id)
        await result(engine.get(execution_id))
    assert len(script.calls) == 1


async def test_commands_are_applied_without_letting_it_be_driven(tmp_path: Path) -> None:
    script = Script()
    execution_id = await held_after_a_pause(tmp_path, script.tool)
    async with engine_at(tmp_path, script.tool) as engine:
        run = engine.get(execution_id)
        assert (await run.pause(why="lunch")).outcome == "applied"
        assert (await run.command("resume")).outcome == "applied"  # the bare command is not the person's `resume`
        assert (await run.send("tide", 1)).outcome == "applied"
        await quiet(engine)
        assert (await run.head()).held == WHY
        assert script.calls == []
        await run.stop()
        assert await run.status() == "stopped"


async def test_a_refused_resume_lets_nothing_go(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        await engine.services.store.commit([Hold(execution_ids=(run.id,), why=WHY)])
        with pytest.raises(holdfast.Refused):
            await run.resume()
        assert (await run.head()).held == WHY


async def test_a_parent_takes_its_held_children_with_it(tmp_path: Path) -> None:
    async with engine_at(tmp_path, functions=[child, parent], limits=HURRY) as engine:
        run = await engine.start(parent)
        await seen(run, "task:waiting")
        store = engine.services.store
        everybody = [head.id for head in await store.heads(Query())]
        await quiet(engine)
        await store.commit([Hold(execution_ids=tuple(everybody), why=WHY)])
        assert len(everybody) == 2
        [kid] = [execution_id for execution_id in everybody if execution_id != run.id]
        await engine.get(kid).send("go", "now")
        assert await settled(run) == "waiting"
        await run.resume()
        assert await result(run) == "now"
        assert [head.held for head in await store.heads(Query())] == ["", ""]


@holdfast.function
async def grandparent(ctx: holdfast.Context) -> str:
    return await (await ctx.start(parent)).result()


async def test_children_are_held_and_let_go_with_their_parent(tmp_path: Path) -> None:
    functions = [child, parent, grandparent]
    async with engine_at(tmp_path, functions=functions, limits=HURRY) as engine:
        run = await engine.start(grandparent)
        other = await engine.start(child)
        middle = await child_of(run)
        kid = await child_of(middle)
        await seen(kid, "task:waiting")
        await quiet(engine)
        assert await engine.hold([run.id], WHY) == {}
        held = {head.name: head.held for head in await engine.list() if head.id != other.id}
        assert held == {"grandparent": WHY, "parent": WHY, "child": WHY}
        assert (await other.head()).held == ""
        await kid.send("go", "now")
        await quiet(engine)
        assert await settled(kid) == "waiting"  # it was told, and nobody drives it
        await run.resume()
        assert await result(run) == "now"
        assert {head.held for head in await engine.list()} == {""}


async def test_a_family_with_a_child_that_is_driven_is_not_held_at_all(tmp_path: Path) -> None:
    gate = Gate()

    @holdfast.function
    async def busy(ctx: holdfast.Context) -> str:
        return await ctx.call(gate.tool)

    @holdfast.function
    async def waits(ctx: holdfast.Context) -> list[str]:
        both = [await ctx.start(child), await ctx.start(busy)]
        return [await one.result() for one in both]

    async with engine_at(tmp_path, gate.tool, functions=[child, busy, waits], limits=HURRY) as engine:
        run = await engine.start(waits)
        await gate.wait_entered()
        await seen(run, "task:waiting")
        [driven] = await engine.list(Query(name="busy"))
        while any(head.driver for head in await engine.list() if head.id != driven.id):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        said = await engine.hold([run.id], WHY)
        assert said == {
            run.id: f"a process drives its child {driven.id} now; interrupt that: holdfast interrupt {driven.id}"
        }
        assert {head.held for head in await engine.list()} == {""}
        gate.open.set()


async def test_a_hold_that_is_refused_leaves_an_earlier_one_in_place(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool, limits=HURRY) as engine:
        driven = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await engine.services.store.commit([Hold(execution_ids=(driven.id,), why=WHY)])
        await engine.services.store.commit([Hold(execution_ids=(driven.id,), why="")])
        said = await engine.hold([driven.id, "nobody"], "another")
        assert said[driven.id] == f"a process drives it now; interrupt it: holdfast interrupt {driven.id}"
        assert "nobody" in said["nobody"]
        assert (await driven.head()).held == ""
        gate.open.set()
        await result(driven)
        await engine.services.store.commit([Hold(execution_ids=(driven.id,), why=WHY)])
        assert await engine.hold([driven.id], "another") == {
            driven.id: "the execution is completed; nobody will drive it"
        }
        assert (await driven.head()).held == WHY


async def test_a_command_that_is_applied_right_now_does_not_take_a_hold_off(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, recover="nothing") as engine:
        run = await engine.start(plan(step("a", "echo")))
        assert await engine.hold([run.id], WHY) == {}
        claimed = await claim(engine.services, await run.head(), to_drive=False)
        assert claimed is not None
        assert await engine.hold([run.id], "once more") == {}
        claimed.log.append(release=True)
        await claimed.log.durable()
        assert (await run.head()).held == "once more"


async def test_a_command_that_is_applied_right_now_does_not_keep_a_hold_from_being_set(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, recover="nothing") as engine:
        run = await engine.start(plan(step("a", "echo")))
        claimed = await claim(engine.services, await run.head(), to_drive=False)
        assert claimed is not None
        holding = asyncio.ensure_future(engine.hold([run.id], WHY))
        await asyncio.sleep(0)
        claimed.log.append(release=True)
        await claimed.log.durable()
        assert await holding == {}
        assert (await run.head()).held == WHY
