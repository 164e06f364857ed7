"""Thousands of executions at once, some of them paused or interrupted at random; then all are let go on.

`crowd` is one run; `python tests/load/crowd.py COUNT [SEED]` runs it in a process of its own and prints its report as
JSON, so that its memory is its own. The same seed makes the same crowd; how it is scheduled is the machine's business.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

import holdfast
from holdfast.core.lifecycle import ENDS
from load.people import everything_ended, everything_parked, heads, in_parallel
from load.programs import FUNCTIONS, PROGRAMS, TOOLS, any_program, check_world, read_ledger

# Few are kept in memory, so that what grows with the crowd shows, and not what is kept on purpose.
LIMITS = holdfast.Limits(executions=100, parked=50, interrupt_grace_s=1.0)
PATIENCE_S = 120.0  # and a tenth of a second for each execution

IN_MEMORY_MAX = 150  # drivers: those at work, those kept for a quick wake-up
OBJECTS_PER_DRIVER = 400  # that the collector sees for an execution kept in memory; those asleep must cost none
PARKED_BYTES_MAX = 4096  # for each execution that waits: what an allocator wastes, and no more
NOISE_BYTES = 20 * 1024**2  # caches and the allocator's own, whatever the size of the crowd


class Report(msgspec.Struct, kw_only=True):
    """`parked` waited at the height of the crowd; `parked_bytes` and `parked_objects` are what that had cost."""

    count: int
    executions: int = 0  # with the children
    held: int = 0  # paused or interrupted at the height
    parked: int = 0
    parked_bytes: int = 0
    parked_objects: int = 0  # that the garbage collector has to look at
    ended_bytes: int = 0  # what is still held when all have ended
    in_memory: int = 0  # drivers at the height
    ended: dict[str, int] = {}
    violations: list[str] = []
    holdings: dict[str, int] = {}
    seconds: float = 0.0


async def crowd(folder: Path, count: int, seed: int) -> Report:
    report, began, rng = Report(count=count), time.monotonic(), Random(seed)
    async with asyncio.timeout(PATIENCE_S + count / 10):
        engine = holdfast.Engine(folder=folder, tools=TOOLS, functions=FUNCTIONS, limits=LIMITS)
        async with engine:
            await _warm_up(engine, folder)
            before, objects = resident_bytes(), len(gc.get_objects())
            await in_parallel(_client(engine, Random(rng.random())) for _ in range(count))
            counts = await everything_parked(engine)
            report.held = counts.get("paused", 0) + counts.get("interrupted", 0)
            report.parked = sum(number for status, number in counts.items() if status not in ENDS)
            report.in_memory = engine.holdings()["drivers"]
            report.parked_bytes = resident_bytes() - before
            report.parked_objects = len(gc.get_objects()) - objects
            await everything_ended(engine, lambda: read_ledger(folder))
            while any(engine.holdings().values()):  # noqa: ASYNC110 -- the last drivers are letting go
                await asyncio.sleep(0.01)
            report.ended_bytes = resident_bytes() - before
            await _check(engine, folder, report)
        report.holdings = engine.holdings()
    report.seconds = round(time.monotonic() - began, 1)
    return report


async def _warm_up(engine: holdfast.Engine, folder: Path) -> None:
    """One of each, to its end: what is only built once does not count as growth."""
    for program in PROGRAMS:
        await engine.start(program, inputs={"value": 1})
    await everything_ended(engine, lambda: read_ledger(folder))


async def _client(engine: holdfast.Engine, rng: Random) -> None:
    """Somebody who hands a task in, and may change their mind about it a moment later."""
    run = await engine.start(any_program(rng), inputs={"value": rng.randrange(100)}, hold=rng.random() < 0.05)
    chance = rng.random()
    if chance < 0.6:
        await asyncio.sleep(rng.random() * 0.05)
        # Refusals (it may have ended already) come back as answers here.
        await run.command("pause" if chance < 0.3 else "interrupt", by="ann")
        if chance < 0.1:
            await run.command("resume", by="ann")


async def _check(engine: holdfast.Engine, folder: Path, report: Report) -> None:
    states = [await engine.get(head.id).state() async for head in heads(engine)]
    report.executions = len(states)
    report.ended = dict(Counter(state.status for state in states))
    report.violations = check_world(states, read_ledger(folder))


def resident_bytes() -> int:
    """What this process holds in memory now (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wrong_with(report: Report) -> list[str]:
    """Everything that a crowd of any size must keep, and a report that is of no crowd at all."""
    bounds = {
        f"{report.in_memory} drivers in memory": report.in_memory <= IN_MEMORY_MAX,
        f"{report.parked_objects:,} objects for {report.in_memory} drivers in memory": (
            report.parked_objects <= max(report.in_memory, 50) * OBJECTS_PER_DRIVER
        ),
        f"{report.parked_bytes:,} bytes for {report.parked:,} that wait": (
            report.parked_bytes <= report.parked * PARKED_BYTES_MAX + NOISE_BYTES
        ),
        f"{report.executions:,} executions, and they ended as {report.ended}": (
            report.executions >= report.count and report.ended == {"completed": report.executions}
        ),
        f"something is left behind: {report.holdings}": not any(report.holdings.values()),
        f"only {report.held:,} were held": report.held > report.count // 5,
        f"only {report.parked:,} waited": report.parked > report.count // 2,
    }
    return report.violations + [what for what, holds in bounds.items() if not holds]


def in_own_process(count: int, seed: int) -> Report:
    """The report of a crowd that had a process to itself."""
    command = [sys.executable, __file__, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S + count / 10 + 60, check=False)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Report)


def main(count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-crowd-") as folder:
        report = asyncio.run(crowd(Path(folder), count, seed))
    print(msgspec.json.encode(report).decode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
