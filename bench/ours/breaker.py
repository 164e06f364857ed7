"""How many calls reach a tool whose breaker is open, while many executions want to call it. There may be none.

The tool always fails, so that the breaker is open most of the time; now and then a single call tries it, the probe.
"""

from __future__ import annotations

import argparse
import asyncio

from common import print_result

import holdfast

REST_S = 0.02
PROBES = 5


class Down:
    """A tool that is never there, and counts who came in which state of its breaker."""

    def __init__(self) -> None:
        self.came = {"closed": 0, "open": 0, "half_open": 0}
        self.engine: holdfast.Engine | None = None
        self.has_rested = asyncio.Event()
        rule = holdfast.Breaker(failures=5, rest_s=REST_S)

        @holdfast.tool(name="down", effect="read", retry=holdfast.Retry(max=20, first_s=0.001), breaker=rule)
        async def down() -> None:
            assert self.engine is not None
            [state] = [breaker.state for _, _, breaker in self.engine.services.guards.breakers()]
            self.came[state] += 1
            if self.came["half_open"] >= PROBES:
                self.has_rested.set()
            raise holdfast.Transient("nobody is here")

        self.tool = down


async def measure(executions: int) -> dict[str, int]:
    down = Down()
    async with holdfast.Engine("memory:", tools=[down.tool]) as engine:
        down.engine = engine
        plan = {"name": "call", "steps": [{"id": "one", "tool": "down"}]}
        runs = [await engine.start(plan) for _ in range(executions)]
        await down.has_rested.wait()
        for run in runs:
            await run.stop()
    return down.came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=200)
    executions = parser.parse_args().executions
    came = asyncio.run(measure(executions))
    print_result(
        system="Holdfast", version=holdfast.__version__, executions=executions, leaked=came["open"],
        before=came["closed"], probes=came["half_open"],
    )  # fmt: skip


if __name__ == "__main__":
    main()
