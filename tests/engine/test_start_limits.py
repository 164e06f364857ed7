"""How many at once, handing in once, holding back, owners, and answers from the cache."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, names, plan, result, seen, settled, step, step_of
from holdfast.engine.drive.slots import Slot, Slots
from holdfast.journal.store import Query
from journal.support import run_python


class Crowd:
    """A tool that counts how many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0

        @holdfast.tool(name="crowd", effect="read")
        async def crowd() -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.01)
            self.inside -= 1

        self.tool = crowd


async def test_no_more_executions_run_at_once_than_allowed_and_the_rest_queue() -> None:
    crowd = Crowd()
    async with engine_at("memory:", crowd.tool, limits=holdfast.Limits(executions=2)) as engine:
        runs = [await engine.start(plan(step("a", "crowd"))) for _ in range(7)]
        assert await runs[-1].status() == "queued"
        assert engine.holdings()["slots"] == 2
        for run in runs:
            await result(run)
    assert crowd.most == 2


IN_A_CROWD = """
import asyncio, os, sys
from pathlib import Path
import holdfast

@holdfast.tool(effect="read")
async def enter(call: holdfast.Call) -> None:
    # Whoever is alone stays until two have met; whoever comes in counts those inside.
    room, met = call.folder / "room", call.folder / "met"
    (room / call.execution_id).touch()
    inside = len(list(room.iterdir()))
    with (call.folder / "counts.txt").open("a") as counts:
        counts.write(f"{os.getpid()} {inside}\\n")
    if inside == 2:
        met.touch()
    while not met.exists():
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    (room / call.execution_id).unlink()

async def main(folder: Path) -> None:
    steps = [{"id": "a", "tool": "enter"}]
    keyed = {"name": "keyed", "steps": steps, "inputs": {"who": "string"},
             "concurrency": {"key": "k-${{ inputs.who }}", "limit": 2}}
    async with holdfast.Engine(folder=folder, tools=[enter], recover="family") as engine:
        runs = [await engine.start(keyed, inputs={"who": "x"}) for _ in range(4)]
        for run in runs:
            await run.result()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_concurrency_key_limits_over_all_processes_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    processes = [run_python(IN_A_CROWD, tmp_path) for _ in range(2)]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    counts = [line.split() for line in (tmp_path / "counts.txt").read_text().splitlines()]
    assert len(counts) == 8
    assert {int(pid) for pid, _ in counts} == {process.pid for process in processes}
    assert max(int(inside) for _, inside in counts) == 2


async def test_execution_that_waits_gives_its_place_under_the_key_to_others(tmp_path: Path) -> None:
    keyed = plan({"id": "ok", "approval": True}, concurrency={"key": "k"})
    patient = holdfast.Limits(passivate_after_s=3600)  # the place is given away at once, not when it is put to sleep
    async with engine_at(tmp_path, limits=patient) as engine:
        runs = [await engine.start(keyed) for _ in range(3)]
        for run in runs:
            assert await settled(run) == "waiting"
        for run in runs:
            await run.approve()
            assert await result(run) is True


async def test_same_key_and_task_is_the_same_execution(tmp_path: Path) -> None:
    script = Script("one")
    work = plan(step("a", "script"), inputs={"n": "integer"})
    async with engine_at(tmp_path, script.tool) as engine:
        first = await engine.start(work, inputs={"n": 1}, key="k")
        second = await engine.start(work, inputs={"n": 1}, key="k")
        assert first.id == second.id
        assert await result(second) == "one"
        third = await engine.start(work, inputs={"n": 1}, key="k")
        assert third.id == first.id
        with pytest.raises(holdfast.Refused) as refused:
            await engine.start(work, inputs={"n": 2}, key="k")
        text = f'the key "k" belongs to execution {first.id}, a different task (test); use another key'
        assert str(refused.value) == text
        other = await engine.start(work, inputs={"n": 2}, key="k", owner="bob")
        assert other.id != first.id
        await result(other)
        assert engine.holdings()["slots"] == 0
    assert len(script.calls) == 2


async def test_held_execution_starts_only_when_resumed(tmp_path: Path) -> None:
    script = Script("went")
    async with engine_at(tmp_path, script.tool) as engine:
        run = await engine.start(plan(step("a", "script")), hold=True)
        await run.send("early", 1)
        other = await engine.start(plan(step("a", "script")))
        await result(other)
        assert await run.status() == "queued"
        assert len(script.calls) == 1
    async with engine_at(tmp_path, script.tool) as engine:
        assert await engine.get(run.id).status() == "queued"
        await engine.get(run.id).resume(by="ada")
        await result(engine.get(run.id))
        assert (await names(engine.get(run.id)))[:4] == [
            "task:created",
            "event:received",
            "task:resumed",
            "task:started",
        ]


async def test_owner_title_and_labels_are_kept_and_listed(tmp_path: Path) -> None:
    work = plan(
        step("a", "echo"), title="About ${{ inputs.x }}", labels={"kind": "${{ inputs.x }}"}, inputs={"x": "string"}
    )
    async with engine_at(tmp_path, echo) as engine:
        first = await engine.start(work, inputs={"x": "tides"}, owner="ada", labels={"more": "yes"})
        second = await engine.start(work, inputs={"x": "moon"}, owner="bob", title="My own")
        await result(first)
        await result(second)
        head = await first.head()
        assert (head.owner, head.title, head.labels) == ("ada", "About tides", {"kind": "tides", "more": "yes"})
        assert (await second.head()).title == "My own"
        assert [h.id for h in await engine.list()] == [second.id, first.id]
        assert [h.id for h in await engine.list(Query(owner="ada"))] == [first.id]
        assert (await engine.find(first.id[:-3])).id == first.id
        assert (await engine.find(second.id[-6:])).id == second.id
        assert (await engine.find("@last")).id == second.id


async def test_finding_says_what_is_wrong(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(
            holdfast.HoldfastError, match="there is no execution yet; start one with `holdfast run PLAN`"
        ):
            await engine.find("@last")
        first, second = [await engine.start(plan(step("a", "echo"))) for _ in range(2)]
        await result(first)
        await result(second)
        with pytest.raises(holdfast.HoldfastError, match='there is no execution "zzz"; `holdfast list` shows them'):
            await engine.find("zzz")
        with pytest.raises(holdfast.HoldfastError, match=r"fits more than one execution: .*; give more of the id"):
            await engine.find(first.id[:4])


async def test_cached_answer_is_used_for_the_same_input_of_the_same_owner_until_it_expires() -> None:
    script = Script(1, 2, 3, 4, cache=3600)

    async def ask(value: int, owner: str = "ada") -> tuple[object, bool]:
        run = await engine.start(plan(step("a", "script", **{"with": {"value": value}})), owner=owner)
        return await result(run), (await step_of(run, "a")).cached

    async with engine_at("memory:", script.tool) as engine:
        assert await ask(1) == (1, False)
        assert await ask(1) == (1, True)
        assert await ask(2) == (2, False)
        assert await ask(1, "bob") == (3, False)
        clock = engine.services.clock

        class Later:
            def now_us(self) -> int:
                return clock.now_us() + 3601 * 1_000_000

        engine.services.clock = Later()
        assert await ask(1) == (4, False)


async def test_cached_answer_is_not_used_in_another_folder_or_with_other_settings(tmp_path: Path) -> None:
    read = plan(step("a", "files.read", cache="1h", **{"with": {"path": "x.txt"}}))
    store = tmp_path / "shared.db"

    async def ask(name: str, settings: str = "") -> tuple[str, bool]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "x.txt").write_text(name)
        (folder / "holdfast.toml").write_text(f'store = "{store}"\n{settings}')
        async with engine_at(folder) as engine:
            run = await engine.start(read)
            return str(await result(run)), (await step_of(run, "a")).cached

    first, _ = await ask("one")
    assert await ask("one") == (first, True)
    other, is_cached = await ask("two")
    assert "two" in other
    assert not is_cached
    assert not (await ask("one", "[tools.files]\nhard_links = true\n"))[1]


async def test_cached_answer_of_another_version_of_the_tool_is_not_used(tmp_path: Path) -> None:
    async def ask(version: str, answer: int) -> tuple[object, bool]:
        script = Script(answer, cache=3600, version=version)
        async with engine_at(tmp_path, script.tool) as engine:
            run = await engine.start(plan(step("a", "script")))
            return await result(run), (await step_of(run, "a")).cached

    assert await ask("1", 10) == (10, False)
    assert await ask("2", 20) == (20, False)
    assert await ask("1", 30) == (10, True)


async def test_only_what_has_no_effect_is_cached() -> None:
    script = Script(1, 2, effect="idempotent")
    async with engine_at("memory:", script.tool) as engine:
        work = plan(step("a", "script", cache=True))
        assert [await result(await engine.start(work)) for _ in range(2)] == [1, 2]


async def test_answer_of_a_fallback_is_not_cached_as_the_tools_own() -> None:
    script, other = Script(holdfast.ToolError("no"), "own", cache=3600), Script("other", name="other")
    work = plan(step("a", "script", fallback="other"))
    async with engine_at("memory:", script.tool, other.tool) as engine:
        assert [await result(await engine.start(work)) for _ in range(3)] == ["other", "own", "own"]


async def test_closing_engine_takes_no_more_tasks() -> None:
    async with engine_at("memory:", echo) as engine:
        pass
    with pytest.raises(holdfast.Refused, match="the engine is closing; start the task with another one"):
        await engine.start(plan(step("a", "echo")))
    await engine.close()


async def test_place_that_was_given_to_a_cancelled_waiter_goes_to_the_next() -> None:
    slots = Slots(limit=1, parked_max=1)
    first, second, third = Slot(slots), Slot(slots), Slot(slots)
    await first.acquire()
    waiting = [asyncio.ensure_future(slot.acquire()) for slot in (second, third)]
    await asyncio.sleep(0)
    assert (slots.free, second.take_now()) == (0, False)
    first.release()
    waiting[0].cancel()  # in the very moment it was served
    await asyncio.wait(waiting)
    assert (second.held, third.held, slots.used) == (False, True, 1)
    third.release()
    assert slots.used == 0


async def test_execution_that_two_branches_wake_holds_one_place() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool, limits=holdfast.Limits(executions=1)) as engine:
        run = await engine.start(
            plan({"id": "x", "wait": {"event": "x"}}, {"id": "y", "wait": {"event": "y"}, "needs": []})
        )
        await seen(run, "task:waiting")
        busy = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        await run.send("x")
        await run.send("y")
        gate.open.set()
        await result(busy)
        await result(run)
        assert len(await names(run, "task:started")) == 2  # created, and woken once for both
