"""Tools in processes of their own: held to their limits, ended with their step, and otherwise as if they were here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from engine.kit import engine_at, events, plan, result, settled, step, step_of, until
from engine.step import isolated_tools as tools
from holdfast.core.events import StepCompleted, StepLogged
from holdfast.journal.blobs import fetch_blob
from holdfast.tools.runtime.attempt_log import decode_lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_memory_hog_is_ended_and_its_neighbour_completes(tmp_path: Path) -> None:
    calm = step("calm", "plain", **{"with": {"what": "", "folder": ""}}, needs=[])
    async with engine_at(tmp_path, tools.hog, tools.plain) as engine:
        run = await engine.start(plan(step("hog", "hog", needs=[], critical=False), calm))
        await settled(run)
        hog, neighbour = await step_of(run, "hog"), await step_of(run, "calm")
        assert hog.failure is not None
        assert hog.failure.category == "resource"
        assert (
            "150 MB are allowed, so it was ended: hog;\nif it needs more, raise resources.memory" in hog.failure.message
        )
        assert hog.used is not None
        assert (hog.used.memory_bytes or 0) > 150 * 10**6
        assert neighbour.status == "completed"
        assert neighbour.used is None  # it ran in the engine's own process


@pytest.mark.parametrize(
    ("what", "limits"),
    [
        ("memory", {"memory": "150MB"}),
        ("cpu", {"cpu": "1s"}),
        ("processes", {"processes": 20}),
        ("open_files", {"open_files": 40}),
        ("disk", {"disk": "2MB"}),
    ],
)
async def test_a_step_that_says_resources_holds_a_plain_tool_to_them(tmp_path: Path, what: str, limits: Any) -> None:
    attack = step("attack", "plain", resources=limits, **{"with": {"what": what, "folder": str(tmp_path)}})
    async with engine_at(tmp_path, tools.plain) as engine:
        run = await engine.start(plan(attack))
        assert await settled(run) == "failed"
        failed = await step_of(run, "attack")
        assert failed.failure is not None
        assert failed.failure.category == "resource"
        assert f"raise resources.{what} of the step, the task or the tool" in failed.failure.message


async def test_arguments_have_their_types_and_results_their_shape(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.typed) as engine:
        run = await engine.start(plan(step("one", "typed", **{"with": {"day": "2026-02-28", "count": 3}})))
        assert await result(run) == {"day": "2026-03-01", "count": 3}


async def test_a_call_works_there_and_no_secret_is_in_its_command_line(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "holdfast.toml").write_text('[secrets]\nDEEP_TOKEN = {env = "DEEP_TOKEN"}\n')
    monkeypatch.setenv("DEEP_TOKEN", "pale-horse-cavalry")
    given = {"with": {"token": "${{ secrets.DEEP_TOKEN }}"}}
    async with engine_at(tmp_path, tools.talking) as engine:
        run = await engine.start(plan(step("one", "talking", **given)))
        assert await result(run) == ["one", 1, False]
        done = await step_of(run, "one")
        assert msgspec.json.decode(done.notes or b"") == {"seen": 1}
        completed = next(event for event in await events(run) if isinstance(event, StepCompleted))
        assert (completed.spent_micros, completed.used is not None) == (250_000, True)
        store = run._engine.services.store
        logs = [event.log for event in await events(run) if isinstance(event, StepLogged)]
        told = [line.text for log in logs for line in decode_lines(await fetch_blob(store, log))]
        assert "said" in told
        assert any(line.startswith("printed") and "horse" not in line for line in told)


@pytest.mark.parametrize(
    ("how", "category", "error", "message"),
    [
        ("bug", "logic", "ZeroDivisionError", "nothing to divide by"),
        ("nameless", "tool", "", "ended before it had answered (killed by signal 40); how far it came is unknown"),
        ("nonsense", "tool", "", "ended before it had answered (killed by SIGKILL); how far it came is unknown"),
        ("long", "tool", "", "ended before it had answered (exit code 5); how far it came is unknown\nxxx"),
        ("deaf", "tool", "", "the process of failing ended before it had answered (exit code 1); how far it came is"),
        (
            "die",
            "tool",
            "",
            "the process of failing ended before it had answered (exit code 3); how far it came is unkn",
        ),
    ],
)
async def test_errors_are_told_as_those_of_tools_here(
    tmp_path: Path, how: str, category: str, error: str, message: str
) -> None:
    async with engine_at(tmp_path, tools.failing) as engine:
        run = await engine.start(plan(step("one", "failing", on_error="fail", **{"with": {"how": how}})))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "one")).failure
        assert failure is not None
        assert (failure.category, failure.error) == (category, error)
        assert message in failure.message
        assert len(failure.message) < 2000
        assert ("isolated_tools.py:" in failure.place) == (how == "bug")


async def test_a_once_tool_whose_process_died_is_in_doubt(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.dying) as engine:
        run = await engine.start(plan(step("one", "dying")))
        await settled(run)
        assert (await step_of(run, "one")).status == "in_doubt"


async def test_whoever_is_stopped_is_ended(tmp_path: Path) -> None:
    async with engine_at(tmp_path, tools.waiting) as engine:
        run = await engine.start(plan(step("one", "waiting", **{"with": {"folder": str(tmp_path)}})))
        await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        pid = int((tmp_path / "pid").read_text())
        await run.stop()
        await until(lambda: not Path(f"/proc/{pid}").exists())


def test_what_no_other_process_finds_is_refused_where_it_is_declared() -> None:
    with pytest.raises(
        holdfast.HoldfastError, match=r"inside test_what_no.*; define it at the top of a module, or say isolated=False"
    ):

        @holdfast.tool(resources={"memory": "1GB"})
        def inner() -> None: ...

    with pytest.raises(holdfast.HoldfastError, match="it is a lambda"):
        holdfast.tool(name="short", isolated=True)(lambda: None)


SCRIPT = """
import asyncio, os, holdfast

@holdfast.tool(effect="read", isolated=True)
def elsewhere() -> int:
    return os.getpid()

async def main():
    async with holdfast.Engine("memory:", tools=[elsewhere]) as engine:
        run = await engine.start({"name": "x", "steps": [{"id": "a", "tool": "elsewhere", "on_error": "fail"}]})
        await run.settled()
        step = (await run.state()).steps["a"]
        print(step.status, step.failure.message if step.failure else "")
"""


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ('if __name__ == "__main__":\n    asyncio.run(main())', "completed"),
        ("asyncio.run(main())", 'put what starts it below if __name__ == "__main__":'),
    ],
    ids=["guarded", "unguarded"],
)
def test_a_tool_of_a_script_is_found_without_running_the_script_again(tmp_path: Path, start: str, told: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + start)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert told in done.stdout
