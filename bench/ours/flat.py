"""The cost of a step does not grow with history: CPU of the last thousand of many steps against the first thousand."""

from __future__ import annotations

import argparse
import asyncio
import time
from itertools import pairwise
from statistics import median

from common import print_result, read, scratch_engine

import holdfast

WINDOW = 1000
marks: list[float] = []


@holdfast.function
async def long(ctx: holdfast.Context, steps: int) -> int:
    for i in range(steps):
        if i % WINDOW == 0:
            marks.append(time.process_time())
        await ctx.call(read, i)
    marks.append(time.process_time())
    return steps


async def measure(steps: int) -> None:
    async with scratch_engine() as engine:
        run = await engine.start(long, inputs={"steps": steps})
        await run.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000, help="steps in the one execution")
    steps: int = parser.parse_args().executions
    asyncio.run(measure(steps))
    windows = [later - earlier for earlier, later in pairwise(marks)]
    # A window of a thousand is short and a neighbour's noise long: the middle one of ten on each side.
    first, last = median(windows[:10]), median(windows[-10:])
    print_result(
        system="Holdfast",
        version=holdfast.__version__,
        steps=steps,
        first_us=round(first / WINDOW * 1e6, 1),
        last_us=round(last / WINDOW * 1e6, 1),
        growth=round(last / first, 3),
    )


if __name__ == "__main__":
    main()
