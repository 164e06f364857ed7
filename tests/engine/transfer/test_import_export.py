"""Executions that are carried to another journal: the same history, the same end, and nobody who drives it unasked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, echo, engine_at, names, plan, quiet, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.core.differences import Difference
from holdfast.core.errors import BundleInvalid, ImportMismatch, NotFound, ResumeMismatch, StoreCorrupted
from holdfast.core.held import IMPORTED
from holdfast.engine.drive import claims
from holdfast.engine.transfer import export as transfer_export
from holdfast.engine.transfer import restore as transfer_restore
from holdfast.journal.bundle.read import read
from holdfast.journal.bundle.write import Bundle, open_rows
from holdfast.journal.codec import decode
from holdfast.journal.log import read_events
from holdfast.journal.store import Hold
from journal.bundle.bundles import bundle_of, family, file_of
from journal.support import run_python, sql

WAITS = {"id": "w", "wait": {"event": "go"}}


def two(tmp_path: Path) -> tuple[Path, Path]:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    return here, there


async def waiting(folder: Path, *steps: Any, tools: Any = (echo,), **options: Any) -> tuple[str, bytes]:
    """An execution that has done some steps and waits, and its export."""
    async with engine_at(folder, *tools) as engine:
        run = await engine.start(plan(*steps, WAITS), **options)
        await seen(run, "task:waiting")
        return run.id, await engine.export(run.id)


async def rows(engine: holdfast.Engine, execution_id: str) -> Any:
    return await engine.services.store.events(execution_id, 0, -1)


async def test_what_is_imported_is_what_was_exported(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    large = "high tide " * 2000
    identity, data = await waiting(here, step("a", "echo", **{"with": {"value": large}}), key="k", labels={"x": "y"})
    async with engine_at(here, recover="none") as first, engine_at(there, echo) as second:
        restored = await second.restore(data, force=True)
        assert (restored.id, restored.outcome, restored.status) == (identity, "imported", "waiting")
        assert await rows(first, identity) == await rows(second, identity)
        assert await second.export(identity) == data
        before, after = await first.get(identity).head(), await second.get(identity).head()
        same = msgspec.structs.replace(after, epoch=before.epoch, held="")
        assert same == before
        assert (await second.get(identity).state()).steps["a"].output  # the reference; the value came along
        await second.resume(identity, force=True)
        await second.get(identity).send("go", 7)
        assert await result(second.get(identity)) == 7


async def test_what_came_before_the_file_was_written_and_moved_nobody_moves_it_elsewhere(tmp_path: Path) -> None:
    identity, _ = await waiting(tmp_path, step("a", "echo"))
    async with engine_at(tmp_path, recover="none") as engine:
        await engine.get(identity).send("go", 7)
        data = await engine.export(identity)
    async with holdfast.Engine(tmp_path / "other.db", folder=tmp_path, tools=[echo]) as other:
        await other.restore(data)
        await other.resume(identity)
        assert await result(other.get(identity)) == 7


async def test_a_file_is_checked_and_made_ready_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history takes a second to read, to fold and to rehearse, and other executions go on meanwhile."""
    here, there = two(tmp_path)
    identity, data = await waiting(here, step("a", "echo"))
    threads: dict[str, int] = {}
    for room, name in (
        (transfer_restore, "read"),
        (transfer_restore, "wire_state"),
        (transfer_restore, "head_of"),
        (transfer_export, "wanted_blobs"),
    ):
        real = getattr(room, name)

        def noted(*arguments: Any, name: str = name, real: Any = real) -> Any:
            threads[name] = threading.get_ident()
            return real(*arguments)

        monkeypatch.setattr(room, name, noted)
    async with engine_at(there, echo) as engine:
        await engine.restore(data, force=True)
        assert await engine.export(identity) == data
    assert len(threads) == 4
    assert threading.get_ident() not in threads.values()


async def test_nobody_drives_what_was_imported_until_a_person_resumes(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    gate = Gate(effect="idempotent")
    async with engine_at(here, gate.tool, limits=HURRY, check=False) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        data = await engine.export(run.id)  # running, with a step in the middle
        gate.open.set()
        await result(run)
    tool = Script(5, name="gate", effect="idempotent")
    async with engine_at(there, tool.tool) as engine:
        await engine.restore(data, force=True)
        carried, other = engine.get(run.id), await engine.start(plan(step("a", "gate")))
        assert await result(other) == 5  # the engine has looked around since
        head = await carried.head()
        assert (head.status, head.held, head.driver) == ("running", IMPORTED, "")
        with pytest.raises(ResumeMismatch):
            await carried.resume()
        assert (await carried.head()).held
        await carried.resume(force=True)
        await result(carried)
        assert (await carried.head()).held == ""
        assert (await names(carried)).count("task:started") == 1  # it never stopped running, as after a crash


async def test_a_once_step_that_was_running_is_in_doubt_after_it_was_carried(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    gate = Gate("pay", effect="once")
    async with engine_at(here, gate.tool, limits=HURRY, check=False) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        await gate.wait_entered()
        data = await engine.export(run.id)
        gate.open.set()
        await result(run)
    again = Script("paid twice", name="pay", effect="once")
    async with engine_at(there, again.tool) as engine:
        await engine.restore(data, force=True)
        await engine.resume(run.id, force=True)
        assert await settled(engine.get(run.id)) == "waiting"
        assert (await step_of(engine.get(run.id), "pay")).status == "in_doubt"
        await engine.get(run.id).resolve("pay", "done", output="paid")
        assert await result(engine.get(run.id)) == "paid"
    assert again.calls == []


async def test_an_ended_execution_is_an_archive_that_needs_no_tools(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    async with engine_at(here, echo) as engine:
        run = await engine.start(plan(step("a", "echo", **{"with": {"value": 3}})))
        await result(run)
        data = await engine.export(run.id)
    async with engine_at(there) as engine:
        restored = await engine.restore(data)
        assert (restored.outcome, restored.differences) == ("imported", ())
        assert await result(engine.get(run.id)) == 3
        assert (await engine.get(run.id).head()).held == ""


async def test_what_is_other_here_is_said_each_by_itself(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    script = Script(1)
    _, data = await waiting(here, step("a", "echo"), step("b", "script"), tools=(echo, script.tool))

    @holdfast.tool(name="script", effect="read")
    async def other(value: int, more: int = 0) -> int:
        return value

    async with engine_at(there, other) as engine:
        with pytest.raises(ImportMismatch) as refused:
            await engine.restore(data)
        assert str(refused.value).splitlines() == [
            "this execution was recorded under other circumstances:",
            f"  it was started in {here}, this is {there}",
            "  its tool echo is not here",
            "  its tool script has other parameters or another version now",
            "nothing was changed; put them right, or import it with --force",
        ]
        assert await engine.list() == []
        engine.services.version = "9.0"
        with pytest.raises(ImportMismatch, match=r"it was started by Holdfast 0\.\S+, this is Holdfast 9\.0"):
            await engine.restore(data)
        restored = await engine.restore(data, force=True)
        assert len(restored.differences) == 4


@pytest.mark.parametrize(
    ("theirs", "ours", "differ"),
    [
        ("0.1.0", "0.1.7", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.2.0", "1.3.0", False),
        ("1.9", "2.0", True),
    ],
)
async def test_before_1_0_the_second_number_of_the_version_counts_too(
    tmp_path: Path, theirs: str, ours: str, differ: bool
) -> None:
    data = file_of(bundle_of(engine=theirs))
    async with engine_at(tmp_path) as engine:
        engine.services.version = ours
        found = (await engine.restore(data, force=True)).differences
        assert (Difference(code="engine_changed", was=theirs, now=ours) in found) == differ


async def test_another_folder_can_be_accepted_by_itself_and_nothing_else_with_it(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    identity, data = await waiting(here, step("a", "echo"))
    async with engine_at(there) as engine:
        with pytest.raises(ImportMismatch) as refused:
            await engine.restore(data, other_folder=True)
        assert refused.value.differences == [Difference(code="tool_missing", name="echo")]
    async with engine_at(there, echo) as engine:
        with pytest.raises(ImportMismatch, match="or import it with --other-folder"):
            await engine.restore(data)
        await engine.restore(data, other_folder=True)
        with pytest.raises(ResumeMismatch, match="or resume with --other-folder to go on regardless"):
            await engine.resume(identity)
    async with engine_at(there) as engine:
        with pytest.raises(ResumeMismatch) as left:
            await engine.resume(identity, other_folder=True)
        assert left.value.differences == [Difference(code="tool_missing", name="echo")]
    async with engine_at(there, echo) as engine:
        await engine.resume(identity, other_folder=True)
        await engine.get(identity).send("go", 1)
        await result(engine.get(identity))


async def test_the_original_is_as_it_was(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    identity, data = await waiting(here)
    async with engine_at(there) as engine:
        await engine.restore(data, other_folder=True)
    async with engine_at(here, recover="none") as engine:
        assert (await engine.get(identity).head()).held == ""


async def test_a_function_that_is_not_here_is_said(tmp_path: Path) -> None:
    here, there = two(tmp_path)

    @holdfast.function
    async def lonely(ctx: holdfast.Context) -> None:
        await ctx.wait_for("go")

    async with engine_at(here, functions=[lonely]) as engine:
        run = await engine.start(lonely)
        await seen(run, "task:waiting")
        data = await engine.export(run.id)
    async with engine_at(there) as engine:
        with pytest.raises(ImportMismatch, match="lonely"):
            await engine.restore(data)
        engine.services.programs.clear()
        with pytest.raises(ImportMismatch, match="nothing here can run a program of kind function"):
            await engine.restore(data)


# ---- what is here already ------------------------------------------------------------------------------------------


async def test_the_same_execution_again_changes_nothing(tmp_path: Path) -> None:
    identity, data = await waiting(tmp_path, step("a", "echo"))
    async with engine_at(tmp_path, recover="none") as engine:
        before = await engine.get(identity).head()
        restored = await engine.restore(data)
        assert (restored.id, restored.outcome, restored.status) == (identity, "unchanged", "waiting")
        assert await engine.get(identity).head() == before


async def test_an_execution_that_is_further_here_is_left_as_it_is(tmp_path: Path) -> None:
    identity, data = await waiting(tmp_path, step("a", "echo"))
    async with engine_at(tmp_path, echo) as engine:
        await engine.get(identity).send("go", 1)
        await result(engine.get(identity))
        await quiet(engine)
        with pytest.raises(
            holdfast.Refused, match=rf"{identity} is here, and further: it has \d+ events, the file has"
        ):
            await engine.restore(data, force=True)
        assert await engine.get(identity).status() == "completed"


async def test_history_is_never_rewritten_by_a_file_that_has_gone_another_way(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    identity, data = await waiting(here, step("a", "echo"))
    async with engine_at(there, echo) as engine:
        await engine.restore(data, force=True)
        await engine.resume(identity, force=True)
        await engine.get(identity).send("go", 1)
        await result(engine.get(identity))
        further = await engine.export(identity)
    async with engine_at(here, echo, recover="none") as engine:
        before = await rows(engine, identity)
        await engine.get(identity).pause()
        with pytest.raises(holdfast.Refused) as refused:
            await engine.restore(further, force=True)
        said = "is here with 7 events, and the file has gone another way to 11; nothing was changed"
        assert said in str(refused.value)
        assert "to have both, import the file under a new id with --as-new" in str(refused.value)
        assert (await engine.get(identity).head()).held == ""
        assert (await rows(engine, identity))[1][:-1] == before[1]


async def test_an_import_while_the_original_runs_here_is_refused(tmp_path: Path) -> None:
    gate = Gate(effect="idempotent")
    async with engine_at(tmp_path, gate.tool) as engine, engine_at(tmp_path, gate.tool, recover="none") as other:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        data = await engine.export(run.id)
        for one in (engine, other):
            with pytest.raises(
                holdfast.Refused, match="a process drives it now: the original runs; nothing was changed"
            ):
                await one.restore(data, force=True)
        gate.open.set()
        await result(run)


async def test_a_key_or_a_child_that_is_here_already_keeps_the_file_out(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    _, data = await waiting(here, key="monthly", owner="ann")
    async with engine_at(there, echo) as engine:
        mine = await engine.start(plan(WAITS), key="monthly", owner="ann")
        with pytest.raises(holdfast.Refused, match=f'the key "monthly" belongs to execution {mine.id} here; nothing'):
            await engine.restore(data, force=True)
        bundle = family()
        await engine.restore(file_of(bundle._replace(executions=[bundle.executions[1]])), force=True)
        child = bundle.executions[1].state.id
        with pytest.raises(holdfast.Refused, match=f"execution {child}, which is in the file, is here already"):
            await engine.restore(file_of(bundle), force=True)
        assert {head.id for head in await engine.list()} == {mine.id, child}


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as engine:
        with pytest.raises(BundleInvalid, match=r"gone\.json cannot be read: No such file or directory"):
            await engine.restore(tmp_path / "gone.json")
        with pytest.raises(BundleInvalid, match="cannot be read: embedded null byte"):
            await engine.restore("a\0b")
        (tmp_path / "x.json").write_bytes(b"{}")
        with pytest.raises(BundleInvalid, match=r"x\.json is JSON, but not an execution that Holdfast exported"):
            await engine.restore(tmp_path / "x.json")


KILLED = """
import asyncio, os, signal, sys
import holdfast
from holdfast.journal.sqlite.commit import Committer

folder, file, when = sys.argv[1:]
insert = Committer._insert_events

def insert_and_die(self, rows):
    insert(self, rows)
    if rows and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)

async def work():
    async with holdfast.Engine(folder=folder, recover="none") as engine:
        Committer._insert_events = insert_and_die
        await engine.restore(file, force=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(work())
"""


@pytest.mark.parametrize(("when", "expected"), [("before", 0), ("after", 2)])
async def test_a_killed_import_leaves_nothing_or_all_of_it(tmp_path: Path, when: str, expected: int) -> None:
    file = tmp_path / "family.json"
    file.write_bytes(file_of(family()))
    _, said = run_python(KILLED, tmp_path, file, when).communicate()
    assert not said
    async with engine_at(tmp_path, recover="none") as engine:
        assert len(await engine.list()) == expected
        assert len(await engine.services.store.pending()) == expected // 2  # what the child has to tell
        restored = await engine.restore(file, force=True)
        assert restored.outcome == ("unchanged" if expected else "imported")


# ---- under a new id ------------------------------------------------------------------------------------------------


async def test_a_copy_under_a_new_id_keeps_what_was_done_and_waits_for_a_person(tmp_path: Path) -> None:
    large = "ebb " * 5000
    identity, data = await waiting(tmp_path, step("a", "echo", **{"with": {"value": large}}), key="k")
    calls: list[Any] = []

    @holdfast.tool(name="echo", effect="read")
    async def other(value: Any = None, more: int = 0) -> None:
        calls.append(value)

    async with engine_at(tmp_path, other) as engine:
        with pytest.raises(ImportMismatch, match="its tool echo has other parameters"):
            await engine.restore(data, as_new=True)
        assert len(await engine.list()) == 1
        restored = await engine.restore(data, as_new=True, force=True)
        copy = engine.get(restored.id)
        assert restored.id != identity
        assert await copy.status() == "queued"
        state = await copy.state()
        assert (state.facts().forked_from.id, state.facts().key) == (identity, "")  # type: ignore[union-attr]
        await copy.resume(force=True)
        await seen(copy, "task:waiting")
        await copy.send("go", 2)
        assert await result(copy) == 2
        assert await engine.get(identity).status() == "waiting"
    assert calls == []


async def test_a_copy_cannot_leave_a_child_behind(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as engine:
        with pytest.raises(
            holdfast.Refused, match="has a child that has not completed, or of whose end it has made nothing yet"
        ):
            await engine.restore(file_of(family()), as_new=True)


async def test_a_copy_takes_nothing_from_a_child_that_its_living_origin_started_after_the_file_was_made() -> None:
    script = Script("mine", "yours", effect="once")

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> str:
        await ctx.wait_for("go")
        return await (await ctx.start(kid, name="kid")).result()

    @holdfast.function
    async def kid(ctx: holdfast.Context) -> str:
        answer = await ctx.call("script")
        await ctx.wait_for("more")
        return answer

    async with engine_at("memory:", script.tool, functions=[parent, kid]) as engine:
        run = await engine.start(parent)
        await seen(run, "task:waiting")
        restored = await engine.restore(await engine.export(run.id), as_new=True, force=True)
        copy = engine.get(restored.id)
        await run.send("go")
        await seen(run, "child:started")
        first = engine.get((await run.state()).children["kid"].id)
        await seen(first, "task:waiting")
        await copy.resume(force=True)
        await copy.send("go")
        await seen(copy, "child:started")
        second = engine.get((await copy.state()).children["kid"].id)
        assert (await second.state()).facts().forked_from is None
        for one in (first, second):
            await seen(one, "task:waiting")
            await one.send("more")
        assert (await result(run), await result(copy)) == ("mine", "yours")


# ---- families ------------------------------------------------------------------------------------------------------


async def start_family(folder: Path, engine: holdfast.Engine) -> holdfast.Run:
    (folder / "child.yaml").write_text(
        "name: child\nsteps:\n  - {id: first, tool: echo, with: {value: 1}}\n  - {id: w, wait: {event: go}}\n"
    )
    return await engine.start(plan({"id": "c", "start": "child.yaml"}))


async def test_a_parent_takes_its_children_along_and_goes_on_with_them(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    async with engine_at(here, echo) as engine:
        run = await start_family(here, engine)
        await seen(run, "task:waiting")
        child = (await run.state()).children["c"].id
        await seen(engine.get(child), "task:waiting")
        data = await engine.export(run.id)
        alone = await engine.export(child)
    assert [carried.state.id for carried in read(data).executions] == [run.id, child]
    script = Script(name="echo")
    async with engine_at(there, script.tool) as engine:
        restored = await engine.restore(data, force=True)
        assert restored.executions == 2
        assert {head.held for head in await engine.list()} == {IMPORTED}
        await engine.resume(run.id, force=True)
        assert {head.held for head in await engine.list()} == {""}
        await engine.get(child).send("go", 9)
        assert await result(engine.get(run.id)) == 9
    assert script.calls == []
    (tmp_path / "third").mkdir()
    async with engine_at(tmp_path / "third", echo) as engine:  # a child alone is an execution like any other
        await engine.restore(alone, force=True)
        await engine.resume(child, force=True)
        await engine.get(child).send("go", 3)
        assert await result(engine.get(child)) == 3


async def test_a_child_that_had_ended_unheard_is_heard_of_after_the_import(tmp_path: Path) -> None:
    here, there = two(tmp_path)
    async with engine_at(here, echo) as engine:
        run = await start_family(here, engine)
        await seen(run, "task:waiting")
        child = (await run.state()).children["c"].id
        before = await engine.services.store.events(run.id, 0, -1)
        await engine.get(child).send("go", 9)
        await result(run)
        whole = await transfer_export.gather(engine.services.store, run.id, through=len(before[1]))
    assert [carried.state.status for carried in whole.executions] == ["waiting", "completed"]
    async with engine_at(there, echo) as engine:
        await engine.restore(file_of(whole), force=True)
        assert await engine.get(run.id).status() == "waiting"
        await engine.resume(run.id, force=True)
        assert await result(engine.get(run.id)) == 9


async def test_a_stop_that_was_on_its_way_to_a_child_arrives_after_the_import(tmp_path: Path) -> None:
    [parent, child] = family().executions
    stopped = bundle_of(*map(decode, parent.rows[1:]), ev.TaskStopped(at=9, by="ann", why="enough")).root
    alive = open_rows(child.state.id, child.rows[:-1])
    async with engine_at(tmp_path, recover="none") as engine:
        restored = await engine.restore(file_of(Bundle([stopped, alive], {})), force=True)
        assert (restored.outcome, restored.status) == ("imported", "stopped")
        state = await engine.get(alive.state.id).state()
        assert (state.status, state.by) == ("stopped", "ann")


@pytest.mark.parametrize("source", [b"null", b"{}", b'{"steps":7}', b'{"steps":[{"id":1}]}', b'{"steps":["a"]}'])
async def test_a_plan_that_cannot_be_shown_is_refused(tmp_path: Path, source: bytes) -> None:
    program = ev.Program(kind="plan", name="report", source=msgspec.Raw(source))
    async with engine_at(tmp_path, recover="none") as engine:
        with pytest.raises(BundleInvalid, match="could not be shown: its plan or its events are not as Holdfast wri"):
            await engine.restore(file_of(bundle_of(program=program)), force=True)
        assert await engine.list() == []


async def test_a_child_that_is_gone_is_missed_only_if_it_is_still_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await start_family(tmp_path, engine)
        await seen(run, "task:waiting")
        child = (await run.state()).children["c"].id
        real = engine.services.store.load

        async def load(execution_id: str) -> Any:
            if execution_id == child:
                raise NotFound(f"there is no execution {child}")
            return await real(execution_id)

        monkeypatch.setattr(engine.services.store, "load", load)
        with pytest.raises(NotFound):
            await engine.export(run.id)
        monkeypatch.undo()
        await engine.get(child).send("go", 9)
        await result(run)
        monkeypatch.setattr(engine.services.store, "load", load)
        assert len(read(await engine.export(run.id)).executions) == 1


async def test_too_many_descendants_do_not_fit_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_export, "EXECUTIONS_MAX", 1)
    async with engine_at(tmp_path, echo) as engine:
        run = await start_family(tmp_path, engine)
        await seen(run, "task:waiting")
        with pytest.raises(holdfast.Refused, match="has more than 0 descendants, which do not fit into one file"):
            await engine.export(run.id)


# ---- checkpoints on command ----------------------------------------------------------------------------------------


async def test_a_checkpoint_of_a_running_execution_is_journaled_by_its_driver(tmp_path: Path) -> None:
    gate = Gate(effect="idempotent")
    async with engine_at(tmp_path, gate.tool) as engine, engine_at(tmp_path, recover="none") as other:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        path = await other.get(run.id).checkpoint(by="ann")
        assert path == tmp_path / ".holdfast" / "executions" / f"{run.id}.3.json"
        assert read(path.read_bytes()).root.state.status == "running"
        assert (await names(run))[-1] == "checkpoint:saved"
        assert (await run.state()).checkpoint.file == str(path)  # type: ignore[union-attr]
        gate.open.set()
        await result(run)
        assert gate.calls == [f"{run.id}:a"]


async def test_a_checkpoint_wakes_nobody_up(tmp_path: Path) -> None:
    identity, _ = await waiting(tmp_path, step("a", "echo"))
    async with engine_at(tmp_path, echo) as engine:
        run = engine.get(identity)
        before = await names(run)
        await run.checkpoint()
        await run.checkpoint()
        await result(await engine.start(plan(step("a", "echo"))))  # the engine has looked around since
        assert await names(run) == [*before, "checkpoint:saved", "checkpoint:saved"]
        assert (await run.head()).wake_at is None


async def test_a_checkpoint_of_an_ended_execution_adds_nothing_to_its_journal(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        saved, answer = await engine.checkpoint(run.id)
        assert saved.file.endswith(f"{run.id}.{saved.through}.json")
        assert (answer.outcome, answer.text) == (
            "unchanged", "saved; the execution is completed, and its journal ends with that",
        )  # fmt: skip
        assert (await names(run))[-1] == "task:completed"


async def test_a_checkpoint_command_that_says_nothing_is_refused(tmp_path: Path) -> None:
    identity, _ = await waiting(tmp_path)
    async with engine_at(tmp_path, recover="none") as engine:
        answer = await engine.command(identity, "checkpoint")
        assert answer.outcome == "refused"
        assert answer.text.startswith("checkpoint: what was saved cannot be read: ")


async def test_a_damaged_execution_is_not_exported(tmp_path: Path) -> None:
    identity, _ = await waiting(tmp_path, step("a", "echo"))
    sql(tmp_path / ".holdfast" / "journal.db", "UPDATE events SET body = replace(body, 'echo', 'ohce') WHERE seq = 3")
    async with engine_at(tmp_path, recover="none") as engine:
        with pytest.raises(StoreCorrupted, match="event 3 was changed after it was written"):
            await engine.export(identity)
        assert len(await read_events(engine.services.store, identity, 3)) > 1


# ---- what its children had done ------------------------------------------------------------------------------------


@holdfast.function
async def paying(ctx: holdfast.Context, broken: bool) -> str:
    await ctx.call("pay")
    if broken:
        await ctx.call("fail")
    return "paid"


async def test_a_retry_that_has_still_to_start_its_child_is_not_carried_away(tmp_path: Path) -> None:
    """It would keep what the child had done; where its origin is not, nobody could tell, and it would be done again."""
    pay, fail = Script("paid", name="pay", effect="once"), Script(holdfast.ToolError("no"), name="fail")

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> str:
        return await (await ctx.start(paying, {"broken": True}, name="kid")).result()

    async with engine_at(tmp_path, pay.tool, fail.tool, functions=[parent, paying], check=False) as engine:
        run = await engine.start(parent)
        assert await settled(run) == "failed"
        again = await engine.fork(run.id, drive=False)
        with pytest.raises(holdfast.Refused, match=rf"is a retry of {run.id} and has still to start kid"):
            await engine.export(again.id)
    assert len(pay.calls) == 1


async def test_a_copy_needs_no_child_whose_end_it_has_made_nothing_of(tmp_path: Path) -> None:
    pay = Script("paid", name="pay", effect="once")

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> str:
        child = await ctx.start(paying, {"broken": False}, name="kid")
        await ctx.wait_for("go")
        return await child.result()

    async with engine_at(tmp_path, pay.tool, functions=[parent, paying], check=False) as engine:
        run = await engine.start(parent)
        await seen(run, "child:ended")
        data = await engine.export(run.id)
        with pytest.raises(holdfast.Refused, match="or of whose end it has made nothing yet"):
            await engine.restore(data, as_new=True, force=True)
    assert len(pay.calls) == 1


async def test_a_person_lets_all_children_go_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CHILDREN_MAX", 2)

    @holdfast.function
    async def many(ctx: holdfast.Context) -> None:
        children = [await ctx.start(waiting, name=f"kid{number}") for number in range(5)]
        for child in children:
            await child.result()

    @holdfast.function
    async def waiting(ctx: holdfast.Context) -> None:
        await ctx.wait_for("go")

    async with engine_at(tmp_path, functions=[many, waiting], check=False) as engine:
        run = await engine.start(many)
        await seen(run, "task:waiting", lambda event: event.reasons[0].kind == "child")
        store = engine.services.store
        ids = tuple(head.id for head in await engine.list())
        await store.commit([Hold(execution_ids=ids, why="restored from a backup")])
        await engine.resume(run.id)
        assert [head.held for head in await engine.list()] == [""] * 6
