"""What asking for room costs a step that gets it at once: microseconds over a step of an engine that does not ask."""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial
from pathlib import Path

from common import print_result, scratch_engine, sequence

import holdfast
from holdfast.engine.pressure import Pressure
from holdfast.tools.machine import read_machine

ROUNDS = 9


async def step_us(steps: int, pressure: Pressure) -> float:
    async with scratch_engine() as engine:
        engine.services.pressure = pressure
        began = time.perf_counter()
        await (await engine.start(sequence, inputs={"steps": steps, "effect": "read"})).result()
        return (time.perf_counter() - began) / steps * 1e6


async def measure(steps: int) -> tuple[float, float]:
    """They take turns, and the best of the rounds counts for each."""
    plain, asking = float("inf"), float("inf")
    for _ in range(ROUNDS):
        plain = min(plain, await step_us(steps, Pressure()))
        asking = min(asking, await step_us(steps, Pressure(partial(read_machine, Path()))))
    return plain, asking


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
