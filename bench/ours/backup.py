"""How long an engine stands still while `holdfast backup` copies its store, against the same without a backup.

One commit after the other, each on disk; the longest of them is what a step would have had to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import print_result
from listing import fill, new_of
from msgspec import Raw

import holdfast
from holdfast.core.events import EventReceived
from holdfast.journal.log import Log, read_state
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.writer import Writer

QUIET_S = 3.0  # how long it is measured without a backup


async def longest_ms(log: Log, is_over: asyncio.Event) -> tuple[float, int]:
    longest, commits = 0.0, 0
    while not is_over.is_set():
        started = time.perf_counter()
        log.append(EventReceived(at=log.state.last_at, name="tide", data=Raw(b"1")))
        await log.durable()
        longest, commits = max(longest, time.perf_counter() - started), commits + 1
    return longest * 1e3, commits


async def measured(path: Path, number: int) -> dict[str, float]:
    store = SqliteStore(path)
    writer = Writer(store)
    new = new_of(number)
    await writer.write(new)
    _, state, chain = await read_state(store, new.head.id)
    log = Log(store, writer, state, chain, 0)
    alone = asyncio.Event()
    asyncio.get_running_loop().call_later(QUIET_S, alone.set)
    without_ms, _ = await longest_ms(log, alone)
    copied = asyncio.Event()
    commands = [sys.executable, "-m", "holdfast.cli", "--store", str(path), "backup", str(path.with_name("copy.db"))]

    async def copy() -> float:
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(*commands, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0
        copied.set()
        return time.perf_counter() - started

    (with_ms, commits), took_s = await asyncio.gather(longest_ms(log, copied), copy())
    await writer.close()
    await store.close()
    return {
        "longest_ms": round(with_ms, 1),
        "longest_without_ms": round(without_ms, 1),
        "commits_meanwhile": commits,
        "backup_s": round(took_s, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000)
    executions: int = parser.parse_args().executions
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "journal.db"
        asyncio.run(fill(path, executions))
        found = asyncio.run(measured(path, executions + 1))
        size = round(path.stat().st_size / 1e6)
        print_result(system="Holdfast", version=holdfast.__version__, file_mb=size, **found)


if __name__ == "__main__":
    main()
