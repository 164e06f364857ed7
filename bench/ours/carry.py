"""How long it takes to carry an execution of 100,000 events: exported to a file, checked, and imported elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from common import print_result, scratch_engine, sequence

import holdfast
from holdfast.journal.checkpoint_files import write_file

EVENTS = 100_000


async def longest_ms() -> float:
    """For how long, at most, the loop did nothing else, until it is cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest * 1e3


async def carry(events: int) -> dict[str, float]:
    async with scratch_engine() as here, scratch_engine() as there:
        run = await here.start(sequence, inputs={"steps": events // 2, "effect": "read"})
        await run.result()
        file = Path(here.settings.root) / "carried.json"
        standing_still = asyncio.create_task(longest_ms())
        started = time.perf_counter(), time.process_time()
        size = write_file(file, [await here.export(run.id)])
        exported = time.perf_counter(), time.process_time()
        restored = await there.restore(file)
        imported = time.perf_counter(), time.process_time()
        count = (await there.get(restored.id).head()).seq
        standing_still.cancel()
        loop_ms = await standing_still
    return {
        "export_s": round(exported[0] - started[0], 2),
        "import_s": round(imported[0] - exported[0], 2),
        "export_cpu_s": round(exported[1] - started[1], 2),
        "import_cpu_s": round(imported[1] - exported[1], 2),
        "loop_stands_still_ms": round(loop_ms),
        "events": count,
        "megabytes": round(size / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1, help="not used: there is one, and it is long")
    parser.parse_args()
    print_result(system="Holdfast", version=holdfast.__version__, **asyncio.run(carry(EVENTS)))


if __name__ == "__main__":
    main()
