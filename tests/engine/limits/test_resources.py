"""What a step may use of the machine: who says so, what becomes of whoever takes more, and what is recorded.

Each attack runs beside an execution of the same engine that must not notice.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import engine_at, events, plan, result, seen, settled, step, step_of, until
from holdfast.core.errors import Misconfigured
from holdfast.core.events import StepCompleted, StepFailed, StepInDoubt, StepInterrupted, StepRetrying
from holdfast.core.plan.resources import limits_of
from holdfast.core.resources import DEFAULTS, Resources, all_used
from holdfast.engine.limits.guards import together_of
from holdfast.engine.services import Limits
from holdfast.tools.processes.spawn import spawn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PYTHON = [sys.executable, "-I", "-S", "-c"]

# Every attack is bounded, should its limit not hold.
ATTACKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "memory": ("x = [b'%d' % i * 10**7 for i in range(50)]\nimport time; time.sleep(60)", {"memory": "60MB"}, "memory"),
    "cpu": ("import time\nwhile time.process_time() < 60: pass", {"cpu": "300ms"}, "cpu"),
    "processes": (
        "import os, time\nfor _ in range(8): os.fork()\ntime.sleep(60)",
        {"processes": 20},
        "processes",
    ),
    "open_files": ("x = [open('/dev/null') for _ in range(3000)]", {"open_files": 40}, "open_files"),
    "disk": ("open('big', 'wb').write(b'x' * 10**8)", {"disk": "2MB"}, "disk"),
    "output": ("for _ in range(10**5): print('x' * 10000)", {"output": "200KB"}, "output"),
}  # fmt: skip


def shell(step_id: str, command: Any, **others: Any) -> dict[str, Any]:
    return step(step_id, "shell.run", **{"with": {"command": command}, **others})


@pytest.mark.parametrize("name", ATTACKS)
async def test_whoever_takes_more_than_allowed_fails_alone(tmp_path: Path, name: str) -> None:
    program, limits, told = ATTACKS[name]
    async with engine_at(tmp_path) as engine:
        neighbour = await engine.start(plan(shell("calm", "while [ ! -e over ]; do sleep 0.02; done; echo fine")))
        await seen(neighbour, "step:started")
        attacker = await engine.start(plan(shell("attack", [*PYTHON, program], resources=limits)))
        async with asyncio.timeout(50):
            assert (await attacker.settled()).status == "failed"
        failed = await step_of(attacker, "attack")
        assert failed.failure is not None
        assert failed.failure.category == "resource"
        assert f"raise resources.{told} of the step, the task or the settings" in failed.failure.message
        assert failed.used is not None
        (tmp_path / "over").touch()
        assert (await result(neighbour))["stdout"] == "fine\n"


async def test_a_command_that_ignores_its_cancellation_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    stubborn = "trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 0.05; done"
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(shell("deaf", stubborn, timeout="500ms", in_doubt="fail")))
        assert await settled(run) == "failed"
        failed = await step_of(run, "deaf")
        assert failed.failure is not None
        assert "shell.run took longer than 0.5 s" in failed.failure.message
        pid = (tmp_path / "pid").read_text().strip()
        await until(lambda: not Path(f"/proc/{pid}").exists() and not engine.holdings()["left_behind"])


async def test_what_was_used_is_recorded_with_the_outcome_and_shown(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as engine:
        run = await engine.start(
            plan(shell("good", "sleep 0.3; echo hello"), shell("bad", "echo oops; exit 1", critical=False, needs=[]))
        )
        await result(run)
        outcomes = [event for event in await events(run) if isinstance(event, StepCompleted | StepFailed)]
        used = {event.path: event.used for event in outcomes}
        assert used["good"] is not None
        assert used["bad"] is not None
        assert (used["good"].output_bytes, used["bad"].output_bytes) == (6, 5)
        assert used["good"].cpu_s is not None
        assert (used["good"].memory_bytes or 0) > 100_000
        shown: Any = await run.show()
        assert shown["steps"][0]["used"]["output_bytes"] == 6
        assert (await step_of(run, "good")).used == used["good"]


async def test_the_attempts_of_a_step_are_counted_together(tmp_path: Path) -> None:
    again = shell("twice", "echo once more; test -e done || { touch done; exit 1; }", retry={"max": 1, "first": 0.001})
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(again))
        await result(run)
        used = (await step_of(run, "twice")).used
        assert used is not None
        assert used.output_bytes == 2 * len("once more\n")


async def test_a_step_wins_over_the_plan_the_plan_over_the_tool_and_the_tool_over_the_settings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[resources]\nmemory = "1GB"\ncpu = "5m"\nprocesses = 99\n')
    found: dict[str, Resources] = {}

    @holdfast.tool(effect="read", resources={"memory": "2GB", "cpu": "2m"}, isolated=False)
    async def modest(call: holdfast.Call) -> None:
        found[call.path] = call.resources

    steps = (step("plain", "modest"), step("own", "modest", resources={"cpu": "7s", "open_files": 20}))
    async with engine_at(tmp_path, modest) as engine:
        await result(await engine.start(plan(*steps, resources={"cpu": "30s"})))
        assert found["plain"] == Resources(memory_bytes=2 * 10**9, cpu_s=30.0, processes=99).over(DEFAULTS)
        assert found["own"] == Resources(memory_bytes=2 * 10**9, cpu_s=7.0, processes=99, open_files=20).over(DEFAULTS)


async def test_what_a_tool_starts_by_itself_is_held_to_the_same(tmp_path: Path) -> None:
    @holdfast.tool(effect="read", resources={"open_files": 33}, isolated=False)
    async def count() -> str:
        process = await spawn(["sh", "-c", "ulimit -n"], cwd="/", env=dict(os.environ))
        try:
            text = await process.stdout.read()
            await process.wait()
        finally:
            process.close()
        return text.decode().strip()

    async with engine_at(tmp_path, count) as engine:
        run = await engine.start(plan(step("one", "count")))
        assert await result(run) == "33"
        assert (await step_of(run, "one")).used is not None


async def test_a_tool_inside_the_engine_has_no_figures_of_its_own(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    async def inside() -> int:
        return 1

    async with engine_at(tmp_path, inside) as engine:
        run = await engine.start(plan(step("one", "inside")))
        await result(run)
        assert (await step_of(run, "one")).used is None  # unknown, which is not zero


async def test_a_handle_leak_inside_the_engine_is_a_shortage_of_resources(tmp_path: Path) -> None:
    @holdfast.tool(effect="read")
    async def leak() -> None:
        raise OSError(24, os.strerror(24), "/dev/null")

    async with engine_at(tmp_path, leak) as engine:
        run = await engine.start(plan(step("one", "leak")))
        assert await settled(run) == "failed"
        failed = await step_of(run, "one")
        assert failed.failure is not None
        assert failed.failure.category == "resource"


def test_wrong_resources_of_a_tool_are_refused_where_it_is_declared() -> None:
    with pytest.raises(holdfast.HoldfastError, match=r"tool greedy at .*: resources\.memory: expected a size such as"):

        @holdfast.tool(resources={"memory": "plenty"})
        async def greedy() -> None: ...


# ---- what the steps of an execution may use together ---------------------------------------------------------------

# No step is beyond a limit of its own; all of them together are. Each holds what it took until it is told to end.
_KEEP = "\nimport os, time\nend = time.monotonic() + 60\nwhile not os.path.exists('end') and time.monotonic() < end: "
SHARED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "memory": ("x = b'x' * 2 * 10**7" + _KEEP + "time.sleep(0.02)", "x = b'x' * 7 * 10**7", {"memory": "70MB"}),
    "processes": (
        "import os\nfor _ in range(5):\n  if os.fork() == 0: break" + _KEEP + "time.sleep(0.02)",
        "import os\nfor _ in range(9):\n  if os.fork() == 0: break",
        {"processes": 12},
    ),
    "open_files": (
        "x = [open('/dev/null') for _ in range(20)]" + _KEEP + "time.sleep(0.02)",
        "x = [open('/dev/null') for _ in range(60)]",
        {"open_files": 70},
    ),
}


@pytest.mark.parametrize("name", SHARED)
async def test_a_total_ends_whoever_holds_the_most_and_leaves_the_others(tmp_path: Path, name: str) -> None:
    modest, greedy, total = SHARED[name]
    steps = (
        shell("modest", [*PYTHON, modest], needs=[]),
        shell("greedy", [*PYTHON, greedy + _KEEP + "time.sleep(0.02)"], needs=[], critical=False),
    )
    async with engine_at(tmp_path) as engine:
        neighbour = await engine.start(plan(shell("calm", [*PYTHON, greedy + _KEEP + "time.sleep(0.02)"])))
        await seen(neighbour, "step:started")
        run = await engine.start(plan(*steps, resources={"total": total}))
        await seen(run, "step:failed")
        (tmp_path / "end").touch()
        await result(run)
        failed = await step_of(run, "greedy")
        assert failed.failure is not None
        assert failed.failure.category == "resource"
        assert failed.failure.message.startswith("all commands of this execution together ")
        assert "are allowed; this one had the most, so it was ended: " in failed.failure.message
        assert f"raise resources.total.{name} of the task" in failed.failure.message
        assert (await step_of(run, "modest")).status == "completed"
        await result(neighbour)  # it did the same under a total of its own, which is none


@pytest.mark.parametrize(
    ("name", "program", "total"),
    [
        ("cpu", "import time\nwhile time.process_time() < 0.3: pass", {"cpu": "500ms"}),
        ("disk", "with open('big', 'wb') as file: file.write(b'x' * 10**6)", {"disk": "1.5MB"}),
    ],
    ids=["cpu", "disk"],
)
async def test_what_is_used_up_counts_over_all_steps_and_restarts(
    tmp_path: Path, name: str, program: str, total: dict[str, Any]
) -> None:
    steps = [shell(f"part{number}", [*PYTHON, program], critical=False) for number in range(3)]
    gated = [steps[0], {"id": "pause", "wait": {"event": "go"}}, *steps[1:]]
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(*gated, resources={"total": total}))
        await seen(run, "task:waiting")
    async with engine_at(tmp_path) as engine:
        neighbour = await engine.start(plan(shell("calm", [*PYTHON, program])))
        run = engine.get(run.id)
        await run.send("go")
        await result(run)
        await result(neighbour)
        first, second, third = [await step_of(run, f"part{number}") for number in range(3)]
        assert first.status == "completed"
        assert second.failure is not None  # it went beyond what the first had left, in an earlier process
        assert third.failure is not None
        assert (second.failure.category, third.failure.category) == ("resource", "resource")
        assert second.failure.message.startswith("all commands of this execution together ")
        assert f"raise resources.total.{name} of the task" in second.failure.message
        assert "so this one was not begun" in third.failure.message
        shown: Any = await run.show()
        assert shown["resources_total"] is not None
        used = all_used([first.used, second.used])
        assert (shown["used"]["cpu_s"], shown["used"]["disk_bytes"]) == (used.cpu_s, used.disk_bytes)


SPENDS = "import time\nwhile time.process_time() < 0.3: pass\nopen('spent', 'w').close()\ntime.sleep(60)"


@pytest.mark.parametrize("cut", ["interrupted", "closed", "timed out"])
@pytest.mark.parametrize("effect", ["once", "read"])
async def test_what_a_cut_off_attempt_used_is_recorded_and_counts_after_a_restart(
    tmp_path: Path, cut: str, effect: str
) -> None:
    work = shell("work", [*PYTHON, SPENDS], effect=effect, timeout="2s" if cut == "timed out" else "1h")
    async with engine_at(tmp_path, limits=Limits(drain_s=0)) as engine:
        run = await engine.start(plan(work, resources={"total": {"cpu": "1h"}}))
        await until((tmp_path / "spent").exists)
        if cut == "interrupted":
            await run.interrupt()
        elif cut == "timed out":
            await seen(run, "step:in_doubt" if effect == "once" else "step:retrying")
    async with engine_at(tmp_path, recover="none") as engine:
        run = engine.get(run.id)
        ended = [one for one in await events(run) if isinstance(one, StepInterrupted | StepInDoubt | StepRetrying)]
        assert ended[0].used is not None
        assert (ended[0].used.cpu_s or 0) >= 0.3
        together = together_of(state := await run.state(), limits_of(state.facts()).total)
        assert together is not None
        assert together.as_order()["spent"]["cpu"] >= 0.3


async def test_what_a_failed_attempt_used_counts_while_a_person_is_asked(tmp_path: Path) -> None:
    @holdfast.tool(effect="read", resources={}, isolated=False)
    async def odd() -> None:
        process = await spawn(["sh", "-c", "sleep 0.1"], cwd="/", env=dict(os.environ))
        await process.wait()
        process.close()
        raise Misconfigured("somebody has to change something")

    async with engine_at(tmp_path, odd) as engine:
        run = await engine.start(plan(step("one", "odd", on_error="ask")))
        await seen(run, "request:opened")
        used = (await step_of(run, "one")).used
        assert used is not None
        assert used.processes
