"""No subprocess outlives its engine, and an engine that dies at work is replaced without anybody asking."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from engine.kit import engine_at, names, seen, settled, step_of, until

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
