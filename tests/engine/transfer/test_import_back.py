"""Executions that were carried away, went on there, and come back to the journal they began in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, plan, result, seen, step
from holdfast.core.errors import StoreUnavailable
from holdfast.core.held import IMPORTED
from holdfast.engine.transfer import export as transfer_export
from holdfast.journal.store import Query
from journal.bundle.bundles import file_of


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return _folder(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return _folder(tmp_path / "there")


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "child.yaml").write_text("name: child\nsteps:\n  - {id: w, wait: {event: go}}\n")
    return path


def waits_for(*names: str) -> Any:
    return plan(*({"id": name, "wait": {"event": name}} for name in names), step("end", "echo"))


async def begun(folder: Path, program: Any) -> tuple[str, bytes]:
    async with engine_at(folder, echo) as engine:
        run = await engine.start(program)
        await seen(run, "task:waiting")
        for child in (await run.state()).children.values():
            await seen(engine.get(child.id), "task:waiting")
        return run.id, await engine.export(run.id)


async def carried_on(folder: Path, data: bytes, *events: str) -> bytes:
    """Import it, let it go on, tell it so many events, and export it again."""
    async with engine_at(folder, echo) as engine:
        identity = (await engine.restore(data, other_folder=True)).id
        await engine.resume(identity, other_folder=True)
        for event in events:
            await engine.get(identity).send(event, event)
            await seen(engine.get(identity), "step:completed", lambda one, path=event: one.path == path)
        if len(events) < 2:
            await engine.get(identity).interrupt()
        else:
            await result(engine.get(identity))
        return await engine.export(identity)


async def heads(engine: holdfast.Engine) -> dict[str, tuple[str, str]]:
    return {head.id: (head.status, head.held) for head in await engine.list(Query())}


async def test_what_has_ended_elsewhere_has_ended_here_when_it_comes_home(here: Path, there: Path) -> None:
    identity, data = await begun(here, waits_for("one", "two"))
    home = await carried_on(there, data, "one", "two")
    script = Script(name="echo")
    async with engine_at(here, script.tool) as engine:
        before = (await engine.get(identity).head()).seq
        restored = await engine.restore(home)
        assert (restored.outcome, restored.status) == ("continued", "completed")
        assert await engine.export(identity) == home
        assert (await engine.get(identity).head()).seq == before + restored.added
        assert await heads(engine) == {identity: ("completed", "")}
        with pytest.raises(holdfast.Refused):
            await engine.get(identity).send("one", 1)
        assert (await engine.restore(home)).outcome == "unchanged"
    assert script.calls == []


async def test_what_has_not_ended_is_held_and_goes_on_from_where_it_came_to(here: Path, there: Path) -> None:
    identity, data = await begun(here, waits_for("one", "two"))
    home = await carried_on(there, data, "one")
    async with engine_at(here, echo) as engine:
        assert (await engine.restore(home)).outcome == "continued"
        assert await heads(engine) == {identity: ("interrupted", IMPORTED)}
        await engine.resume(identity, other_folder=True)
        await engine.get(identity).send("two", 2)
        await result(engine.get(identity))
        assert (await engine.get(identity).state()).steps["one"].status == "completed"


async def test_nothing_is_added_while_somebody_drives_it_here(here: Path, there: Path) -> None:
    gate = Gate(effect="idempotent")
    async with engine_at(here, gate.tool) as engine:
        run = await engine.start(plan({"id": "w", "wait": {"event": "go"}}, step("a", "gate")))
        await seen(run, "task:waiting")
        data = await engine.export(run.id)
        async with engine_at(there, gate.tool) as other:
            await other.restore(data, other_folder=True)
            await other.resume(run.id, other_folder=True)
            await other.get(run.id).interrupt()
            further = await other.export(run.id)
        async with engine_at(here, gate.tool, recover="none") as other:
            with pytest.raises(holdfast.Refused, match="a process drives it now: the original runs; nothing was"):
                await other.restore(further, force=True)
            assert await heads(other) == {run.id: ("waiting", "")}
        await run.send("go", 1)
        await gate.wait_entered()
        gate.open.set()
        await result(run)


async def test_what_fails_on_the_way_changes_nothing_and_can_be_done_again(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, data = await begun(here, waits_for("one", "two"))
    home = await carried_on(there, data, "one", "two")

    async def failing(_: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    async with engine_at(here, echo, recover="none") as engine:
        before = await engine.get(identity).head()
        with monkeypatch.context() as broken:
            broken.setattr(engine.services.writer, "write_together", failing)
            with pytest.raises(StoreUnavailable):
                await engine.restore(home)
        after = await engine.get(identity).head()
        assert (after.seq, after.digest, after.held, after.driver) == (before.seq, before.digest, "", "")
        assert (await engine.restore(home)).outcome == "continued"
        assert await engine.get(identity).status() == "completed"


async def test_children_come_home_with_their_parent_also_those_that_were_born_elsewhere(
    here: Path, there: Path
) -> None:
    program = plan({"id": "c", "start": "child.yaml"}, {"id": "d", "start": "child.yaml"})
    identity, data = await begun(here, program)
    async with engine_at(there, echo) as engine:
        run = engine.get((await engine.restore(data, other_folder=True)).id)
        await engine.resume(identity, other_folder=True)
        await engine.get((await run.state()).children["c"].id).send("go", 1)
        await _has_child(run, "d")
        await engine.get((await run.state()).children["d"].id).interrupt()
        home = await engine.export(identity)
    async with engine_at(here, echo) as engine:
        restored = await engine.restore(home, other_folder=True)  # that child's is another one
        assert (restored.outcome, restored.executions) == ("continued", 3)
        children = (await engine.get(identity).state()).children
        assert await heads(engine) == {
            identity: ("waiting", IMPORTED),
            children["c"].id: ("completed", ""),
            children["d"].id: ("interrupted", IMPORTED),
        }
        await engine.resume(identity, other_folder=True)
        await engine.get(children["d"].id).send("go", 2)
        assert await result(engine.get(identity)) == 2


async def _has_child(run: holdfast.Run, path: str) -> None:
    async for _ in run.watch():
        if path in (await run.state()).children:
            return


async def test_a_child_that_comes_home_alone_tells_its_parent_of_its_end(here: Path, there: Path) -> None:
    identity, _ = await begun(here, plan({"id": "c", "start": "child.yaml"}))
    async with engine_at(here, echo, recover="none") as engine:
        child = (await engine.get(identity).state()).children["c"].id
        alone = await engine.export(child)
    async with engine_at(there, echo) as engine:
        await engine.restore(alone, other_folder=True)
        await engine.resume(child, other_folder=True)
        await engine.get(child).send("go", 7)
        await result(engine.get(child))
        home = await engine.export(child)
    async with engine_at(here, echo) as engine:
        assert (await engine.restore(home)).outcome == "continued"
        assert await result(engine.get(identity)) == 7


async def test_a_child_that_has_gone_another_way_keeps_the_whole_family_out(here: Path, there: Path) -> None:
    identity, data = await begun(here, plan({"id": "c", "start": "child.yaml"}))
    async with engine_at(there, echo) as engine:
        await engine.restore(data, other_folder=True)
        await engine.resume(identity, other_folder=True)
        await engine.get((await engine.get(identity).state()).children["c"].id).send("go", 1)
        await result(engine.get(identity))
        home = await engine.export(identity)
    async with engine_at(here, echo, recover="none") as engine:
        child = (await engine.get(identity).state()).children["c"].id
        await engine.get(child).pause()
        with pytest.raises(holdfast.Refused, match=f"execution {child} is here .* another way"):
            await engine.restore(home)
        assert await heads(engine) == {identity: ("waiting", ""), child: ("paused", "")}


async def test_what_a_child_said_there_unheard_is_heard_at_home(here: Path, there: Path) -> None:
    identity, data = await begun(here, plan({"id": "c", "start": "child.yaml"}))
    async with engine_at(there, echo) as engine:
        await engine.restore(data, other_folder=True)
        before = (await engine.get(identity).head()).seq
        await engine.resume(identity, other_folder=True)
        await engine.get((await engine.get(identity).state()).children["c"].id).send("go", 9)
        await result(engine.get(identity))
        whole = await transfer_export.gather(engine.services.store, identity, through=before)
    assert [one.state.status for one in whole.executions] == ["waiting", "completed"]
    async with engine_at(here, echo) as engine:
        assert (await engine.restore(file_of(whole))).outcome == "continued"
        assert await result(engine.get(identity)) == 9
