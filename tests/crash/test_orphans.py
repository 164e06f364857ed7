"""No subprocess outlives its engine, and an engine that dies at work is replaced without anybody asking."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from engine.kit import engine_at, names, seen, settled, step_of, until
from holdfast.core.policy import LOSSES_MAX

ENGINE = """
import asyncio, sys
import holdfast

async def main():
    async with holdfast.Engine(folder=sys.argv[1]) as engine:
        command = "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 300' & sleep 300"
        step = {"id": "a", "tool": "shell.run", "with": {"command": command}}
        run = await engine.start({"name": "long", "steps": [step]})
        print(run.id, flush=True)
        await run.result()

asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_children_and_runaway_grandchildren_die_with_a_killed_engine(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    pids = tmp_path / "pids"
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    children = [int(pid) for pid in pids.read_text().split()]
    assert all(is_alive(pid) for pid in children)
    process.kill()
    await process.wait()
    await until(lambda: not any(is_alive(pid) for pid in children))
    async with engine_at(tmp_path) as engine:
        run = engine.get(run_id)
        assert await settled(run) == "waiting"
        assert (await step_of(run, "a")).status == "in_doubt"
        assert (await step_of(run, "a")).reason == "its process ended, or lost its journal, while it ran"
        assert "task:recovered" in await names(run)
        await run.stop()


async def test_living_engine_takes_over_from_one_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    async with engine_at(tmp_path) as engine:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        run = engine.get((await process.stdout.readline()).decode().strip())
        await seen(run, "step:started")
        assert not engine.drives(run.id)
        os.kill(process.pid, 9)
        await process.wait()
        await seen(run, "step:in_doubt")
        assert (await run.state()).recoveries == 1
        await run.stop()


DEADLY = """
import asyncio, os, signal, sys
import holdfast

@holdfast.tool(effect="read")
async def good():
    return 1

@holdfast.tool(effect="read")
async def deadly():
    with open("deaths", "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    steps = [{"id": "a", "tool": "good"}, {"id": "b", "tool": "deadly"}]
    async with holdfast.Engine(folder=".", tools=[good, deadly]) as engine:
        run = await engine.start({"name": "deadly", "steps": steps}, key="one")
        await run.settled()

asyncio.run(main())
"""


async def test_a_read_that_kills_its_process_at_once_is_given_up_like_any_other(tmp_path: Path) -> None:
    """It may begin before its start is on disk, and so it would be as if it had never begun, for ever."""
    script = tmp_path / "deadly.py"
    script.write_text(DEADLY)
    codes: list[int | None] = []
    while codes[-1:] != [0] and len(codes) < LOSSES_MAX + 3:
        life = await asyncio.create_subprocess_exec(sys.executable, str(script), cwd=tmp_path)
        codes.append(await life.wait())
    assert codes[-1] == 0
    # The first death is not on disk, and shows only in that a driver is missing. From then on each one counts.
    assert LOSSES_MAX <= len((tmp_path / "deaths").read_text()) <= LOSSES_MAX + 1
    async with engine_at(tmp_path, recover="none") as engine:
        (head,) = await engine.list()
        run = engine.get(head.id)
        request = next((await run.state()).open_requests()).request
        assert request.message == f"deadly failed: its process ended {LOSSES_MAX} times while it ran"
        assert (await step_of(run, "a")).status == "completed"
