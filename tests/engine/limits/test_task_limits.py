"""What a task may use of the machine: its plan says it, or whoever hands it in; every tool that can be held is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from engine.kit import engine_at, events, plan, result, seen, settled, step, step_of
from engine.step import isolated_tools as tools
from holdfast.core.errors import InputInvalid
from holdfast.core.events import StepLogged
from holdfast.core.plan.resources import limits_of
from holdfast.core.resources import Resources
from holdfast.journal.blobs import fetch_blob
from holdfast.tools.runtime.attempt_log import decode_lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

GREEDY: dict[str, dict[str, Any]] = {
    "memory": {"memory": "150MB"},
    "cpu": {"cpu": "1s"},
    "processes": {"processes": 20},
    "open_files": {"open_files": 60},
    "disk": {"disk": "2MB"},
}


def calm(step_id: str, **others: Any) -> dict[str, Any]:
    return step(step_id, "plain", **{"with": {"what": "", "folder": ""}, **others})


@holdfast.function
async def greedy(ctx: holdfast.Context, what: str, folder: str) -> int:
    return await ctx.call(tools.plain, what, folder)


@holdfast.function
async def parent(ctx: holdfast.Context, what: str, folder: str) -> Any:
    child = await ctx.start(greedy, {"what": what, "folder": folder})
    return await child.result()


@holdfast.function
async def homely(ctx: holdfast.Context) -> int:
    return await ctx.run("pid", os.getpid)


async def _told(run: holdfast.Run) -> list[str]:
    logs = [event.log for event in await events(run) if isinstance(event, StepLogged)]
    return [line.text for log in logs for line in decode_lines(await fetch_blob(run._engine.services.store, log))]


@pytest.mark.parametrize("whole", [False, True], ids=["each", "total"])
@pytest.mark.parametrize("what", GREEDY)
async def test_what_a_plan_says_holds_plain_tools_and_a_neighbour_does_not_notice(
    tmp_path: Path, what: str, whole: bool
) -> None:
    limits: dict[str, Any] = {"total": GREEDY[what]} if whole else GREEDY[what]
    attack = step("attack", "plain", **{"with": {"what": what, "folder": str(tmp_path)}})
    async with engine_at(tmp_path, tools.plain) as engine:
        neighbour = await engine.start(plan(calm("calm")))
        run = await engine.start(plan(attack, resources=limits))
        assert await settled(run) == "failed"
        failed = await step_of(run, "attack")
        assert failed.failure is not None
        assert failed.failure.category == "resource"
        assert f"raise resources.{'total.' if whole else ''}{what} of the" in failed.failure.message
        assert failed.used is not None
        assert await result(neighbour) == os.getpid()


@pytest.mark.parametrize("limits", [{"memory": "500MB"}, {"total": {"memory": "500MB"}}], ids=["each", "total"])
async def test_only_a_task_that_is_limited_moves_its_tools(tmp_path: Path, limits: dict[str, Any]) -> None:
    (tmp_path / "holdfast.toml").write_text('[resources]\nmemory = "1GB"\n')  # settings are for whatever runs apart
    async with engine_at(tmp_path, tools.plain) as engine:
        free, held = [await engine.start(plan(calm("one"), **said)) for said in ({}, {"resources": limits})]
        assert await result(free) == os.getpid()
        assert await result(held) != os.getpid()


async def test_a_function_is_held_to_what_it_was_handed_in_with_and_so_is_its_child(tmp_path: Path) -> None:
    given = {"what": "memory", "folder": ""}
    async with engine_at(tmp_path, tools.plain, functions=[greedy, parent]) as engine:
        for function in (greedy, parent):
            run = await engine.start(function, inputs=given, resources={"memory": "150MB"})
            assert await settled(run) == "failed"
            with pytest.raises(holdfast.ExecutionFailed, match=r"150 MB are allowed, so it was ended: plain"):
                await run.result()


async def test_code_of_a_function_stays_with_it(tmp_path: Path) -> None:
    async with engine_at(tmp_path, functions=[homely]) as engine:
        run = await engine.start(homely, resources={"memory": "150MB"})
        assert await result(run) == os.getpid()
        assert await _told(run) == []


async def test_whoever_hands_it_in_wins_over_the_plan_and_fills_its_gaps_from_it(tmp_path: Path) -> None:
    source = plan(calm("one"), resources={"memory": "1GB", "cpu": "2m", "total": {"disk": "1GB"}})
    given = {"memory": "500MB", "total": {"cpu": "10m"}}
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(source, resources=given)
        shown: Any = await run.show()
        each, total = [msgspec.convert(shown[name], Resources) for name in ("resources", "resources_total")]
        assert each == Resources(memory_bytes=500 * 10**6, cpu_s=120.0)
        assert total == Resources(disk_bytes=10**9, cpu_s=600.0)
        await result(run)


async def test_wrong_limits_are_refused_and_nothing_is_handed_in(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.plain) as engine:
        with pytest.raises(InputInvalid) as caught:
            await engine.start(plan(calm("one")), resources={"memroy": "1GB", "total": {"cores": 2, "cpu": "no"}})
        assert str(caught.value).splitlines() == [
            'resources.memroy: unknown key; did you mean "memory"?',
            "resources.total.cores: unknown key; known are: memory, cpu, processes, open_files, disk",
            'resources.total.cpu: expected a duration such as "250ms", "1.5s", "5m", "2h30m" or "1d", or a number of '
            'seconds, got the string "no"',
        ]
        assert await engine.list() == []


async def test_a_retry_keeps_the_limits_unless_it_is_given_others(tmp_path: Path) -> None:
    given = {"what": "memory_once", "folder": str(tmp_path)}
    async with engine_at(tmp_path, tools.plain, functions=[greedy]) as engine:
        run = await engine.start(greedy, inputs=given, resources={"memory": "150MB", "cpu": "50s"})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, inputs={"folder": str(tmp_path / "elsewhere")})
        assert (await again.state()).facts().resources == Resources(memory_bytes=150 * 10**6, cpu_s=50.0)
        assert await settled(again) == "failed"
        more = await engine.retry(run.id, resources={"memory": "2GB"}, again=True)
        assert (await more.state()).facts().resources == Resources(memory_bytes=2 * 10**9, cpu_s=50.0)
        assert await result(more) == 200


@pytest.mark.parametrize(
    ("said", "each", "total"),
    [
        ({"memory": "1GB"}, Resources(memory_bytes=10**9, cpu_s=50.0), None),
        (None, Resources(cpu_s=50.0), None),
        ({"cpu": "9m", "total": {"disk": "1GB"}}, Resources(cpu_s=50.0), Resources(disk_bytes=10**9)),
    ],
    ids=["raised", "dropped", "others"],
)
async def test_a_corrected_plan_brings_its_own_limits_and_what_a_person_said_stays(
    tmp_path: Path, said: Any, each: Resources, total: Resources | None
) -> None:
    failing = step("one", "failing", on_error="fail", **{"with": {"how": "bug"}})
    async with engine_at(tmp_path, tools.failing) as engine:
        first = plan(failing, resources={"memory": "150MB", "total": {"cpu": "1m"}})
        run = await engine.start(first, resources={"cpu": "50s"})
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, program=plan(failing, **({"resources": said} if said else {})))
        assert limits_of((await again.state()).facts()) == (each, total)
        await settled(again)


async def test_a_child_is_held_to_what_its_parent_is_and_to_less_if_its_plan_says_so(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(
        "name: child\nresources: {memory: 4GB, cpu: 9s}\nsteps: [{id: one, wait: {event: go}}]\n"
    )
    said = {"memory": "1GB", "total": {"processes": 30}}
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan({"id": "kid", "start": "child.yaml"}, resources={"cpu": "1m"}), resources=said)
        await seen(run, "child:started")
        child = engine.get(next(iter((await run.state()).children.values())).id)
        limits = limits_of((await child.state()).facts())
        assert limits == (Resources(memory_bytes=10**9, cpu_s=9.0), Resources(processes=30))
        await run.stop()


async def test_a_plan_that_was_recorded_without_its_limits_apart_keeps_them(tmp_path: Path) -> None:
    """As before they could be said by whoever hands a task in."""
    attack = step("attack", "plain", **{"with": {"what": "memory", "folder": ""}})
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(attack, resources={"memory": "150MB"}))
        created = (await run.state()).facts()
        assert (created.resources, created.resources_total) == (None, None)
        assert await settled(run) == "failed"
        assert (await step_of(run, "attack")).failure is not None


@pytest.mark.parametrize("said", [{}, {"total": {}}])
async def test_limits_that_limit_nothing_move_nothing(tmp_path: Path, said: Any) -> None:
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(calm("one", resources={}), resources=said), resources=said)
        assert await result(run) == os.getpid()


async def test_limits_are_taken_as_resources_or_as_a_plan_writes_them_and_nothing_else(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(calm("one")), resources=Resources(memory_bytes=10**9))
        assert await result(run) != os.getpid()
        with pytest.raises(InputInvalid, match=r'resources: expected a map such as .*, got the string "memory=1GB"'):
            await engine.start(plan(calm("one")), resources="memory=1GB")  # type: ignore[arg-type]


async def test_what_was_ended_for_a_limit_is_told_how_to_run_with_twice_as_much(tmp_path: Path) -> None:
    attack = step("attack", "plain", **{"with": {"what": "memory", "folder": ""}})
    own = step("attack", "plain", resources={"memory": "150MB"}, **{"with": {"what": "memory", "folder": ""}})
    for one, command in ((attack, "--resource memory=300MB"), (own, "--plan FILE")):
        async with engine_at(tmp_path, tools.plain) as engine:
            run = await engine.start(plan(one, resources={"memory": "150MB"}))
            assert await settled(run) == "failed"
            shown: Any = await run.show()
            commands = [choice["command"] for choice in shown["card"]["choices"]]
            assert f"holdfast retry {run.id} {command}" in commands
            assert (len(commands) == 3) == ("memory" in command)


async def test_a_once_tool_that_met_a_limit_is_in_doubt_and_the_way_to_more_is_told(tmp_path: Path) -> None:
    pay = step("pay", "paying_hog", **{"with": {"folder": str(tmp_path)}})
    async with engine_at(tmp_path, tools.paying_hog) as engine:
        run = await engine.start(plan(pay))
        await seen(run, "request:opened")
        shown: Any = await run.show()
        meanings = {choice["name"]: choice["meaning"] for choice in shown["requests"][0]["card"]["choices"]}
        assert meanings["again"].endswith(", under the same limit")
        assert meanings["fail"].endswith(f"; then, with twice as much: holdfast retry {run.id} --resource memory=300MB")
        await run.resolve("pay", "fail")
        assert await settled(run) == "failed"
        shown = await run.show()
        commands = [choice["command"] for choice in shown["card"]["choices"]]
        assert f"holdfast retry {run.id} --resource memory=300MB" in commands


async def test_a_tool_of_theirs_that_a_task_cannot_hold_says_so_and_one_of_ours_does_not(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    def here() -> None: ...

    write = step("two", "files.write", **{"with": {"path": "a.txt", "text": "a"}})
    async with engine_at(tmp_path, here) as engine:
        run = await engine.start(plan(step("one", "here"), write, resources={"memory": "50MB", "total": {"cpu": "9s"}}))
        await result(run)
        assert await _told(run) == ["here runs in the engine's process and is held to none of memory, cpu"]


async def test_the_limits_of_a_task_survive_its_journal(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan({"id": "go", "wait": {"event": "go"}}, calm("one"), resources={"memory": "1GB"}))
    async with engine_at(tmp_path, tools.plain) as engine:
        run = engine.get(run.id)
        await run.send("go")
        await result(run)
        assert msgspec.json.decode((await step_of(run, "one")).output) != os.getpid()
