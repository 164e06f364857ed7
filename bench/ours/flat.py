"""The cost of a step does not grow with history: a thousand steps at the end of a long execution, and a thousand at the
beginning of fresh ones, in turns, so that a machine that changes its speed changes both.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median

from common import print_result, read, scratch_engine

import holdfast

WINDOW = 1000
ROUNDS = 7


class Turns:
    """Whose turn it is, and what each window cost in CPU seconds."""

    def __init__(self) -> None:
        self.long = asyncio.Semaphore(0)
        self.fresh = asyncio.Semaphore(0)
        self.costs: dict[str, list[float]] = {"first": [], "last": []}


turns: Turns


async def window(ctx: holdfast.Context, place: str) -> None:
    started = time.process_time()
    for i in range(WINDOW):
        await ctx.call(read, i)
    turns.costs[place].append(time.process_time() - started)


@holdfast.function
async def long(ctx: holdfast.Context, steps: int) -> None:
    for i in range(steps - ROUNDS * WINDOW):
        await ctx.call(read, i)
    for _ in range(ROUNDS):
        turns.fresh.release()
        await turns.long.acquire()
        await window(ctx, "last")


@holdfast.function
async def fresh(ctx: holdfast.Context) -> None:
    await window(ctx, "first")


async def measure(steps: int) -> tuple[float, float]:
    global turns  # noqa: PLW0603 -- the functions find it by name
    turns = Turns()
    async with scratch_engine() as engine:
        run = await engine.start(long, inputs={"steps": steps})
        for _ in range(ROUNDS):
            await turns.fresh.acquire()
            await (await engine.start(fresh)).result()
            turns.long.release()
        await run.result()
    return median(turns.costs["first"]), median(turns.costs["last"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000, help="steps in the long execution")
    steps: int = parser.parse_args().executions
    first, last = asyncio.run(measure(steps))
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
