"""What executions cost that wait for a person: memory, tasks and threads of the process that started them."""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time

from common import print_result, scratch_engine

import holdfast
from holdfast.journal.store import Query

BATCH = 2000
APPROVAL = {"name": "approval", "steps": [{"id": "ask", "approval": "Go on?"}]}


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(executions: int) -> dict[str, object]:
    async with scratch_engine(executions=500, passivate_after_s=0.0) as engine:
        started = time.perf_counter()
        for first in range(0, executions, BATCH):
            await asyncio.gather(*(engine.start(APPROVAL) for _ in range(min(BATCH, executions - first))))
        limit_s = time.perf_counter() + 600
        while engine.holdings()["drivers"] or await engine.list(Query(status=("queued", "running"), limit=1)):
            if time.perf_counter() > limit_s:
                raise SystemExit("not all executions came to wait in ten minutes")
            await asyncio.sleep(0.2)
        return {
            "resident_mb": round(resident_mb(), 1),
            "asyncio_tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "seconds": round(time.perf_counter() - started, 1),
            **engine.holdings(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000)
    executions: int = parser.parse_args().executions
    held = asyncio.run(measure(executions))
    print_result(system="Holdfast", version=holdfast.__version__, waiting=executions, **held)


if __name__ == "__main__":
    main()
