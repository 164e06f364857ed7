"""How long it takes to open an execution again from disk: snapshot and tail, every digest checked."""

from __future__ import annotations

import argparse
import asyncio
import time

from common import print_result, scratch_engine, sequence

import holdfast
from holdfast.journal.log import read_state


async def reopen_ms(events: int) -> tuple[float, int]:
    async with scratch_engine() as engine:
        run = await engine.start(sequence, inputs={"steps": events // 2, "effect": "read"})
        await run.result()
        best, count = float("inf"), 0
        for _ in range(5):
            started = time.perf_counter()
            _, state, _ = await read_state(engine.services.store, run.id)
            best, count = min(best, time.perf_counter() - started), state.seq
    return best * 1e3, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1, help="not used: there are two, a short and a long one")
    parser.parse_args()
    short_ms, short_events = asyncio.run(reopen_ms(1_500))
    long_ms, long_events = asyncio.run(reopen_ms(100_000))
    print_result(
        system="Holdfast",
        version=holdfast.__version__,
        short_ms=round(short_ms, 1),
        short_events=short_events,
        long_ms=round(long_ms, 1),
        long_events=long_events,
    )


if __name__ == "__main__":
    main()
