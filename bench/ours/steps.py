"""Many executions of ten idempotent steps in one process, every outcome on disk before the next step."""

from __future__ import annotations

import argparse
import asyncio
import time

from common import print_result, scratch_engine, sequence

import holdfast

STEPS = 10


async def measure(executions: int) -> float:
    async with scratch_engine(executions=executions) as engine:
        started = time.perf_counter()
        runs = await asyncio.gather(*(engine.start(sequence, inputs={"steps": STEPS}) for _ in range(executions)))
        results = await asyncio.gather(*(run.result() for run in runs))
        elapsed_s = time.perf_counter() - started
    if results != [STEPS] * executions:
        raise SystemExit("some executions did not complete: the rate would mean nothing")
    return executions * STEPS / elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rates = [asyncio.run(measure(arguments.executions)) for _ in range(arguments.rounds)]
    print_result(
        system="Holdfast",
        version=holdfast.__version__,
        steps_per_s=round(max(rates), 1),
        executions=arguments.executions,
        steps_per_execution=STEPS,
        rounds=[round(rate, 1) for rate in rates],
        variant="fastest of the rounds",
    )


if __name__ == "__main__":
    main()
