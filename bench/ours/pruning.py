"""What it costs to delete many executions: CPU of `holdfast prune`, and how long an engine stands still meanwhile.

The executions have ended and have no relatives. While retention deletes them, the longest turn of the event loop and
the longest commit are what a step would have had to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from common import print_result
from msgspec import Raw

import holdfast
from holdfast.core.events import EventReceived, Program, TaskCreated
from holdfast.journal.deletion import prune
from holdfast.journal.log import new_execution
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import NewExecution, Query

BATCH = 1_000
EVENTS = 12  # of each: about what a plan of three steps writes
LOOK_S = 0.002
RETAINED = 3  # times as many are deleted by retention


async def fill(path: Path, executions: int) -> None:
    store = SqliteStore(path)
    for first in range(0, executions, BATCH):
        await store.commit([ended(number) for number in range(first, min(executions, first + BATCH))])
    await store.close()


def ended(number: int) -> NewExecution:
    created = TaskCreated(at=number, program=Program(kind="plan", name=f"report-{number % 9}"), owner="ann")
    received = [EventReceived(at=number, name="tide", data=Raw(b"1")) for _ in range(EVENTS)]
    new, _ = new_execution(f"{number:08x}-0000-7000-8000-{number:012x}", [created, *received])
    head = new.head
    head.status, head.ended_at, head.wake_at = "completed", number + 1, None
    return new


def cpu_s(path: Path, *options: str) -> float:
    command = [sys.executable, "-m", "holdfast.cli", "--store", str(path), "prune", "--status", "completed", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def stalls_ms(path: Path) -> dict[str, float]:
    """The longest turn of the loop, and the longest commit, while what ended long ago is deleted."""
    store = SqliteStore(path)
    over = asyncio.Event()
    longest = {"loop": 0.0, "commit": 0.0}

    async def turn() -> None:
        while not over.is_set():
            started = time.perf_counter()
            await asyncio.sleep(LOOK_S)
            longest["loop"] = max(longest["loop"], time.perf_counter() - started - LOOK_S)

    async def commit() -> None:
        while not over.is_set():
            started = time.perf_counter()
            await store.commit([])
            longest["commit"] = max(longest["commit"], time.perf_counter() - started)
            await asyncio.sleep(LOOK_S)

    watching = [asyncio.create_task(turn()), asyncio.create_task(commit())]
    started, gone = time.process_time(), 0
    async with aclosing(prune(store, Query(ended_before=10**18), path.parent)) as bites:
        async for bite in bites:
            gone += len(bite.gone)
            await asyncio.sleep(0)
    took_s = time.process_time() - started
    over.set()
    await asyncio.gather(*watching)
    await store.close()
    return {
        "retained": gone,
        "retention_cpu_s": round(took_s, 2),
        "loop_ms": round(longest["loop"] * 1e3, 1),
        "commit_ms": round(longest["commit"] * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=10_000)
    executions: int = parser.parse_args().executions
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        few, many = Path(folder) / "few" / "journal.db", Path(folder) / "many" / "journal.db"
        asyncio.run(fill(few, executions))
        dry_s, prune_s = cpu_s(few, "--dry-run"), cpu_s(few)
        asyncio.run(fill(many, RETAINED * executions))
        print_result(
            system="Holdfast",
            version=holdfast.__version__,
            dry_s=round(dry_s, 2),
            prune_s=round(prune_s, 2),
            **asyncio.run(stalls_ms(many)),
        )


if __name__ == "__main__":
    main()
