"""What the guards around a call cost: CPU of a step with them, and of the same step without, taken in turns."""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from typing import Any
from unittest.mock import patch

from common import print_result, read

import holdfast
from holdfast.engine.step import attempt, perform

STEPS = 2000


@holdfast.function
async def reads(ctx: holdfast.Context, steps: int) -> int:
    for i in range(steps):
        await ctx.call(read, i)
    return steps


async def bare(work: Any, found: Any, arguments: bytes) -> None:
    """The attempt alone: no breaker, no places, no rate."""
    await attempt._try(work, found, work.call.tool, 0, arguments, None)


async def measure(steps: int) -> float:
    """Microseconds of CPU a step; in memory, so that the disk has no say."""
    async with holdfast.Engine("memory:", functions=[reads]) as engine:
        run = await engine.start(reads, inputs={"steps": 100})
        await run.result()
        began = time.process_time()
        run = await engine.start(reads, inputs={"steps": steps})
        await run.result()
        return (time.process_time() - began) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=15, help="rounds")
    rounds = parser.parse_args().executions
    guarded: list[float] = []
    unguarded: list[float] = []
    for _ in range(rounds):
        guarded.append(asyncio.run(measure(STEPS)))
        with patch.object(perform, "attempt", bare):
            unguarded.append(asyncio.run(measure(STEPS)))
    print_result(
        system="Holdfast",
        version=holdfast.__version__,
        overhead_us=round(median(guarded) - median(unguarded), 2),
        guarded_us=round(median(guarded), 1),
        bare_us=round(median(unguarded), 1),
        rounds=rounds,
        steps=STEPS,
    )


if __name__ == "__main__":
    main()
