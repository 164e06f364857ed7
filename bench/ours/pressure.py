"""What asking for room costs a step that gets it at once: microseconds of CPU over a step of an engine that does not.

In memory, so that the disk has no say.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import median

from common import print_result, sequence

import holdfast
from holdfast.engine.limits.pressure import Pressure
from holdfast.tools.runtime.machine_stats import read_machine

ROUNDS = 9


async def step_us(steps: int, pressure: Pressure) -> float:
    async with holdfast.Engine("memory:", functions=[sequence]) as engine:
        engine.services.pressure = pressure
        began = time.process_time()
        await (await engine.start(sequence, inputs={"steps": steps, "effect": "read"})).result()
        return (time.process_time() - began) / steps * 1e6


async def measure(steps: int) -> tuple[float, float]:
    """They take turns, and the median of the rounds counts for each."""
    plain: list[float] = []
    asking: list[float] = []
    for _ in range(ROUNDS):
        plain.append(await step_us(steps, Pressure()))
        asking.append(await step_us(steps, Pressure(partial(read_machine, Path()))))
    return median(plain), median(asking)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=2000, help="steps")
    plain, asking = asyncio.run(measure(parser.parse_args().executions))
    print_result(
        system="Holdfast", version=holdfast.__version__, plain_us=round(plain, 1), asking_us=round(asking, 1),
        overhead_us=round(asking - plain, 1),
    )  # fmt: skip


if __name__ == "__main__":
    main()
