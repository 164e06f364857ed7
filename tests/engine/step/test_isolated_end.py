"""How calls in processes of their own end: beyond a limit, too late, by themselves, with the engine, or never begun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import engine_at, events, plan, result, settled, step, step_of, until
from engine.step import isolated_tools as tools
from holdfast.core.events import StepLogged, StepRetrying
from holdfast.core.failure import Failure
from holdfast.journal.blobs import fetch_blob
from holdfast.tools.runtime.attempt_log import decode_lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_once_tool_that_was_ended_for_a_limit_is_in_doubt_and_not_called_again(tmp_path: Path) -> None:
    given = {"with": {"folder": str(tmp_path)}}
    async with engine_at(tmp_path, tools.paying_hog) as engine:
        run = await engine.start(plan(step("pay", "paying_hog", retry={"max": 3}, **given)))
        await settled(run)
        paid = await step_of(run, "pay")
        assert (paid.status, (tmp_path / "paid").read_text()) == ("in_doubt", "paid\n")
        assert paid.failure is not None
        assert "150 MB are allowed, so it was ended" in paid.failure.message


async def test_what_a_def_noted_before_it_died_is_there_for_the_next_attempt(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.noting) as engine:
        run = await engine.start(plan(step("one", "noting", retry={"max": 2, "first": "1ms"})))
        assert await result(run) == {"page": 3}


async def test_endless_output_ends_the_process(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.loud) as engine:
        run = await engine.start(plan(step("one", "loud")))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "one")).failure
        assert failure is not None
        assert "it printed more than 100 KB of output, which is its limit: loud" in failure.message


async def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.slow) as engine:
        run = await engine.start(plan(step("one", "slow", **{"with": {"folder": str(tmp_path)}})))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "one")).failure
        assert failure is not None
        assert failure.category == "timeout"
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_what_all_steps_may_use_together_holds_processes_of_tools(tmp_path: Path) -> None:
    given = {"with": {"what": "cpu", "folder": ""}, "resources": {"cores": 1}}
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(step("spin", "plain", **given), resources={"total": {"cpu": "1s"}}))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "spin")).failure
        assert failure is not None
        assert "raise resources.total.cpu of the task" in failure.message


@pytest.mark.parametrize(
    ("what", "limits", "told"),
    [
        ("many_files", {"disk": "2MB"}, "raise resources.disk of the step, the task or the tool"),
        ("many_files", {"total": {"disk": "2MB"}}, "raise resources.total.disk of the task"),
        ("output", {"output": "2KB"}, "raise resources.output of the step, the task or the tool"),
    ],
)
async def test_whoever_answers_before_anybody_has_looked_is_held_to_its_limits_all_the_same(
    tmp_path: Path, what: str, limits: dict[str, Any], told: str
) -> None:
    quick = step("quick", "plain", on_error="fail", **{"with": {"what": what, "folder": str(tmp_path)}})
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(quick, resources=limits))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "quick")).failure
        assert failure is not None
        assert failure.category == "resource"
        assert told in failure.message


async def _first_failure(run: holdfast.Run) -> Failure:
    async for watched in run.watch():
        if isinstance(watched.event, StepRetrying):
            return watched.event.failure
    raise AssertionError("it ended without a second try")


async def test_an_error_that_says_when_to_come_back_keeps_it(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.failing) as engine:
        run = await engine.start(plan(step("one", "failing", **{"with": {"how": "busy"}})))
        failure = await _first_failure(run)
        assert (failure.error, failure.message, failure.retry_after_s) == ("RateLimited", "come back later", 7.0)
        await run.stop()


async def test_a_class_is_made_there_and_an_object_is_refused(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.Counter) as engine:
        run = await engine.start(plan(step("one", "counter", **{"with": {"upto": 2}})))
        zero, one, pid = await result(run)
        assert (zero, one, pid != os.getpid()) == (0, 1, True)
    with pytest.raises(
        holdfast.HoldfastError, match="it belongs to an object, which is only here; define it at the top"
    ):
        holdfast.tool(name="twice", isolated=True)(tools.Scaled(2))


async def test_workers_that_a_tool_ends_do_not_end_the_tool(tmp_path: Path) -> None:
    given = {"with": {"numbers": [-1, 2, -3]}}
    async with engine_at(tmp_path, tools.sharing_work) as engine:
        run = await engine.start(plan(*(step(f"s{number}", "sharing_work", **given) for number in range(5))))
        assert await result(run) == 6


async def test_a_step_that_no_limit_can_hold_says_so_in_its_log(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    def here() -> None: ...

    async with engine_at(tmp_path, here) as engine:
        run = await engine.start(plan(step("one", "here", resources={"memory": "50MB"})))
        await result(run)
        logs = [event.log for event in await events(run) if isinstance(event, StepLogged)]
        told = [line.text for log in logs for line in decode_lines(await fetch_blob(engine.services.store, log))]
        assert told == ["here runs in the engine's process and is held to none of memory"]
