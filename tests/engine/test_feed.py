"""Watching: durable events by number, exact and in order, live frames never before the event they belong to."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, names, plan, result, seen, settled, step, turns
from holdfast.core.errors import InputInvalid
from holdfast.engine.feed import FRAMES_MAX, Watched
from holdfast.engine.json_view import SHOWN_VALUE_BYTES_MAX
from journal.support import sql

THREE = plan(step("a", "echo"), step("b", "echo"), step("c", "echo"))


async def watched(run: holdfast.Run, since: int = 0) -> list[Watched]:
    """All that a watcher is shown: no frame before the event it belongs to, whatever is watched."""
    shown: list[Watched] = []
    async with asyncio.timeout(60), aclosing(run.watch(since)) as watching:  # type: ignore[type-var]
        async for item in watching:
            if item.seq is not None:
                since = item.seq
            else:
                assert item.event.after <= since, f"{item} was shown after event {since}"  # type: ignore[union-attr]
            shown.append(item)
    return shown


async def test_watcher_sees_every_durable_event_once_and_in_order_from_any_number(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(THREE)
        live = await watched(run)
        numbers = [item.seq for item in live if item.seq is not None]
        assert numbers == list(range(1, len(numbers) + 1))
        assert [item.type for item in live if item.seq is not None] == await names(run)
        for since in range(len(numbers) + 1):
            assert [item.seq for item in await watched(run, since) if item.seq] == numbers[since:]


async def test_watching_an_ended_execution_from_its_end_ends_at_once(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(THREE)
        await result(run)
        last = (await run.head()).seq
        assert await watched(run, last) == []


async def test_watch_until_settled_ends_when_only_a_person_can_move_it(tmp_path: Path) -> None:
    asks = plan(step("a", "echo"), {"id": "agree", "approval": "Shall we?"}, step("b", "echo"))
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(asks)
        async with asyncio.timeout(10):
            shown = [item async for item in run.watch(until="settled") if item.seq is not None]
        assert [item.type for item in shown] == await names(run)
        assert shown[-1].type == "task:waiting"
        await run.approve("agree")
        last = shown[-1].seq
        assert last is not None
        async with asyncio.timeout(10):
            rest = [item.type async for item in run.watch(last, until="settled") if item.seq is not None]
        assert rest[-1] == "task:completed"
        with pytest.raises(InputInvalid, match='until must be "ended" or "settled"'):
            run.watch(until="waiting")  # type: ignore[arg-type]


async def test_watch_until_settled_looks_into_the_children_it_waits_for(tmp_path: Path) -> None:
    @holdfast.function
    async def parent(ctx: holdfast.Context) -> None:
        await (await ctx.start(asking)).result()

    @holdfast.function
    async def asking(ctx: holdfast.Context) -> None:
        await ctx.ask("which colour?")

    async with engine_at(tmp_path, functions=[parent, asking]) as engine:
        run = await engine.start(parent)
        async with asyncio.timeout(10):
            shown = [item.type async for item in run.watch(until="settled") if item.seq is not None]
        assert shown[-1] == "task:waiting"
        (child,) = (await run.state()).children.values()
        assert await engine.get(child.id).status() == "waiting"
        await run.stop()
        await result_or_end(run)


async def result_or_end(run: holdfast.Run) -> None:
    with pytest.raises(holdfast.ExecutionStopped):
        await result(run)


async def test_query_finds_executions_and_refuses_what_can_find_nothing(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        await result(await engine.start(THREE, labels={"team": "harbour"}))
        await result(await engine.start(THREE))
        found = await engine.list(holdfast.Query(status=("completed",), labels={"team": "harbour"}))
        assert [head.labels for head in found] == [{"team": "harbour"}]
        assert await engine.list(holdfast.Query(status=("failed", "stopped"))) == []
    with pytest.raises(InputInvalid, match=r'status takes several, such as status=\("failed",\)'):
        holdfast.Query(status="failed")  # type: ignore[arg-type]
    with pytest.raises(InputInvalid, match='no such status: "done"; there are: queued, running'):
        holdfast.Query(status=("done",))


async def test_events_are_on_disk_before_a_watcher_sees_them(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine, engine_at(tmp_path, echo, recover="none") as other:
        run = await engine.start(THREE)
        async with aclosing(run.watch()) as watching:  # type: ignore[type-var]
            async for item in watching:
                if item.seq is not None:
                    assert (await other.get(run.id).head()).seq >= item.seq


async def test_frames_come_after_the_event_they_belong_to() -> None:
    gate = Gate()

    @holdfast.tool(effect="read")
    async def talk(call: holdfast.Call) -> None:
        call.say("hello", role="assistant", streaming=True)
        call.progress(150, "nearly")
        await gate.open.wait()

    async with engine_at("memory:", talk) as engine:
        run = await engine.start(plan(step("a", "talk"), title="t"))
        shown: list[Watched] = []
        started = False
        async with asyncio.timeout(60), aclosing(run.watch()) as watching:  # type: ignore[type-var]
            async for item in watching:
                shown.append(item)
                started = started or item.type == "step:started"
                if item.type in ("task:message", "task:tool_call"):
                    assert started
                if item.type == "task:message":
                    gate.open.set()
        frames = {item.type: item.as_dict() for item in shown if item.seq is None}
        message = frames["task:message"]
        assert message["task_id"] == run.id
        assert (message["role"], message["content"], message["streaming"], message["path"]) == (
            "assistant",
            "hello",
            True,
            "a",
        )
        call = frames["task:tool_call"]
        assert (call["tool"], call["arguments"], call["call_id"]) == ("talk", {}, f"{run.id}:a")
        said = next(item.as_dict() for item in shown if item.as_dict().get("text") == "nearly")
        assert (said["step"], said["phase"], said["step_percent"]) == ("a", "running", 100.0)
        assert shown[-1].type in ("task:completed", "task:progress_update")


async def test_frame_of_a_step_that_runs_ahead_of_the_disk_waits_for_its_event() -> None:
    """A read begins before its own beginning is on disk, and may speak at once."""
    disk, said = asyncio.Event(), asyncio.Event()
    disk.set()

    @holdfast.tool(effect="read")
    async def stop_the_disk() -> None:
        disk.clear()

    @holdfast.tool(effect="read")
    async def talk(call: holdfast.Call) -> None:
        call.say("hello")
        said.set()

    async with engine_at("memory:", stop_the_disk, talk) as engine:
        store: Any = engine.services.store
        commit = store.commit

        async def slow(writes: Any) -> Any:
            await disk.wait()
            return await commit(writes)

        store.commit = slow
        run = await engine.start(plan(step("a", "stop_the_disk"), step("b", "talk")), hold=True)
        watching = asyncio.ensure_future(watched(run))
        await turns()
        await run.resume()
        async with asyncio.timeout(60):
            await said.wait()
        await turns()  # the watcher has been told by now
        disk.set()
        shown = [item.type for item in await watching]
    assert "task:message" in shown
    assert shown.index("task:message") > [place for place, kind in enumerate(shown) if kind == "step:started"][1]


async def test_progress_goes_through_its_phases() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo"), {"id": "ok", "approval": True}), hold=True)

        async def answer() -> None:
            await run.resume()
            await settled(run)
            await run.approve()

        answering = asyncio.ensure_future(answer())
        progress = [item.event for item in await watched(run) if item.type == "task:progress_update"]
        await answering
    phases: list[str] = [frame.phase for frame in progress]  # type: ignore[union-attr]
    assert [phase for phase, before in zip(phases, ["", *phases], strict=False) if phase != before] == [
        "preparing", "running", "waiting", "running", "finishing",
    ]  # fmt: skip
    waiting = next(frame for frame in progress if frame.phase == "waiting")  # type: ignore[union-attr]
    assert waiting.waiting_for == ("approval",)  # type: ignore[union-attr]
    percents = [frame.percent for frame in progress]  # type: ignore[union-attr]
    assert percents == sorted(percents)
    assert percents[-1] == 100.0


async def test_slow_watcher_loses_old_frames_and_no_event() -> None:
    @holdfast.tool(effect="read")
    async def chatty(call: holdfast.Call) -> None:
        for number in range(FRAMES_MAX + 500):
            call.say(str(number))

    async with engine_at("memory:", chatty) as engine:
        run = await engine.start(plan(step("a", "chatty")), hold=True)
        async with aclosing(run.watch()) as watching:  # type: ignore[type-var]
            first = await anext(watching)
            await run.resume()
            await result(run)
            rest = [item async for item in watching]
    said = [item.event.content for item in rest if item.type == "task:message"]  # type: ignore[union-attr]
    assert 0 < len(said) <= FRAMES_MAX
    assert said[-1] == str(FRAMES_MAX + 499)
    durable = [item.seq for item in (first, *rest) if item.seq]
    assert durable == list(range(1, len(durable) + 1))


async def test_two_watchers_and_one_that_leaves_do_not_disturb_each_other() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await seen(run, "step:started")
        assert engine.holdings()["watchers"] == 0
        watching = asyncio.ensure_future(watched(run))
        await seen(run, "step:started")
        gate.open.set()
        assert (await watching)[-1].type in ("task:completed", "task:progress_update")


async def test_another_engine_on_the_file_sees_the_same_events(tmp_path: Path) -> None:
    gate = Gate()
    async with engine_at(tmp_path, gate.tool) as engine, engine_at(tmp_path, gate.tool) as other:
        run = await engine.start(plan(step("a", "gate"), step("b", "gate")))
        watching = asyncio.ensure_future(watched(other.get(run.id)))
        await gate.wait_entered()
        gate.open.set()
        mine = await watched(run)
        theirs = await watching
    assert [i.as_dict() for i in theirs if i.seq] == [i.as_dict() for i in mine if i.seq]


async def test_wire_form_of_events_says_how_long_each_attempt_took() -> None:
    script = Script(holdfast.Transient("busy"), "ok")
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry={"first": 0.001}, **{"with": {"value": 1}})))
        await result(run)
        wired: dict[str, Any] = {item.type: item.as_dict() for item in await watched(run) if item.seq}
    started, retrying, completed = wired["step:started"], wired["step:retrying"], wired["step:completed"]
    assert started["arguments"] == {"value": 1}
    assert (retrying["error"], retrying["category"]) == ("busy", "transient")
    assert completed["output"] == "ok"
    for event in (retrying, completed):
        assert event["started"] <= event["completed"]
        assert event["duration_s"] >= 0
    assert {event["task_id"] for event in wired.values()} == {run.id}


async def test_text_of_a_watched_event_fits_a_line() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        lines = [str(item) for item in await watched(run) if item.seq]
    assert lines[:3] == ["   1 task:created", "   2 task:started", "   3 step:started a"]


async def test_watching_what_does_not_exist_is_a_clear_error() -> None:
    async with engine_at("memory:") as engine:
        with pytest.raises(holdfast.HoldfastError, match="there is no execution nowhere"):
            await watched(engine.get("nowhere"))


DRIVER = """
import asyncio, sys
import holdfast

@holdfast.tool(effect="read")
async def talk(call: holdfast.Call) -> str:
    for number in range(10_000):
        call.say(f"word {number}")
        await asyncio.sleep(0.01)
        if (call.folder / "enough").exists():
            break
    return "said it"

async def main():
    async with holdfast.Engine(folder=sys.argv[1], tools=[talk]) as engine:
        run = await engine.start({"name": "talk", "steps": [{"id": "a", "tool": "talk"}]})
        print(run.id, flush=True)
        await run.result()

asyncio.run(main())
"""


async def test_another_process_sees_live_frames_after_their_event(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    shown: list[str] = []
    async with (
        engine_at(tmp_path, recover="none") as engine,
        asyncio.timeout(60),
        aclosing(engine.get(run_id).watch()) as watching,  # type: ignore[type-var]
    ):
        async for item in watching:
            shown.append(item.type)
            if item.type == "task:message":
                (tmp_path / "enough").touch()
    assert await process.wait() == 0
    assert "task:message" in shown
    assert shown.index("step:started") < shown.index("task:message")
    assert [kind for kind in shown if kind.startswith("step:")] == [
        "step:started",
        "step:logged",
        "step:completed",
    ]


async def test_large_values_are_shown_whole_where_they_fit_and_as_references_where_not(tmp_path: Path) -> None:
    large, huge = "x" * 9_000, "y" * (SHOWN_VALUE_BYTES_MAX + 1)
    twin = {"in": {"holdfast": "blob", "digest": "00", "bytes": 1}}  # the user's own, that only looks like a reference
    script = Script(large, huge, twin)
    work = plan(
        step("a", "script", **{"with": {"value": "${{ inputs.text }}"}}), step("b", "script"), step("c", "script"),
        inputs={"text": "string"}, output="${{ steps.a.output }}",
    )  # fmt: skip
    async with engine_at(tmp_path, script.tool) as engine:
        run = await engine.start(work, inputs={"text": large})
        await result(run)
        shown: Any = await run.show()
        outputs = {shown_step["path"]: shown_step["output"] for shown_step in shown["steps"]}
        assert shown["inputs"] == {"text": large}
        assert shown["output"] == outputs["a"] == large
        assert outputs["b"].keys() == {"holdfast", "digest", "bytes"}
        assert (outputs["b"]["holdfast"], outputs["b"]["bytes"]) == ("blob", len(huge) + 2)
        assert outputs["c"] == twin
        whole = [(await item.whole(engine.services.store)).as_dict() for item in await watched(run)]
        assert [event["output"] for event in whole if event["type"] == "step:completed"] == [large, outputs["b"], twin]
        [started] = [event for event in whole if event["type"] == "step:started" and event["path"] == "a"]
        assert started["arguments"] == {"value": large}
        bare = next(item.as_dict() for item in await watched(run) if item.type == "step:completed")
        assert bare["output"] == {"holdfast": "blob", "digest": ANY, "bytes": 9_002}


async def test_large_values_are_shown_up_to_a_limit_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.json_view.SHOWN_BYTES_MAX", 20_000)
    script = Script("x" * 9_000, "y" * 9_000, "z" * 9_000)
    async with engine_at(tmp_path, script.tool) as engine:
        run = await engine.start(plan(*(step(name, "script") for name in "abc"), output=1))
        await result(run)
        shown: Any = await run.show()
        assert sorted(isinstance(shown_step["output"], str) for shown_step in shown["steps"]) == [False, True, True]


async def test_execution_with_a_lost_value_can_still_be_looked_at(tmp_path: Path) -> None:
    script = Script("x" * 9_000)
    async with engine_at(tmp_path, script.tool) as engine:
        run = await engine.start(plan(step("a", "script"), output=1))
        await result(run)
        sql(tmp_path / ".holdfast" / "journal.db", "DELETE FROM blobs")
        shown: Any = await run.show()
        assert shown["steps"][0]["output"]["holdfast"] == "blob"
