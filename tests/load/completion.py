"""How many plans complete without a person when the world is flaky: one call in ten fails for a moment.

By arithmetic: a step fails for good only if its first attempt and all three default retries fail, which is 0.1⁴ = 1 in
10,000. The standard plan makes eight calls, so 1 − (1 − 0.1⁴)⁸ ≈ 0.08 % of the plans fail: 99.92 % complete. One of the
eight is a `once` call whose failures say nothing about what has happened; half of them come after it has, and its tool
can look. So it fails for good more seldom than the others, and never happens twice. Of 1,000 plans that is less than
one failure on average; more than ten (below 99 %) would come by chance about once in 10¹⁰ runs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import holdfast
from load.people import in_parallel

FAILS = 0.10
RATE_MIN = 0.99
DEFAULT_RETRIES = holdfast.Retry(first_s=0.001)  # as many as by default, without the waiting

STANDARD: dict[str, Any] = {
    "name": "standard",
    "inputs": {"number": "integer"},
    "steps": [
        {"id": "search", "tool": "find", "with": {"number": "${{ inputs.number }}"}},
        {
            "id": "pages",
            "for_each": [1, 2, 3],
            "tool": "find",
            "with": {"number": "${{ inputs.number }}"},
        },
        {"id": "draft", "tool": "write", "with": {"number": "${{ inputs.number }}"}},
        {"id": "publish", "tool": "send", "with": {"number": "${{ inputs.number }}"}},
        {"id": "pay", "tool": "pay", "with": {"number": "${{ inputs.number }}"}},
        {"id": "tell", "tool": "write", "with": {"number": "${{ inputs.number }}"}},
    ],
    "output": "${{ steps.publish.output }}",
}


class Rate(NamedTuple):
    plans: int
    completed: int
    calls: int
    failed_calls: int
    paid_twice: int = 0

    @property
    def rate(self) -> float:
        return self.completed / self.plans


class World:
    """Which call fails is decided by a seed, the plan's number, the step and the attempt: the same in every run."""

    def __init__(self, seed: int, fails: float) -> None:
        self._seed = seed
        self._fails = fails
        self.calls: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()
        self.tools = [
            self._tool("find", "read"),
            self._tool("write", "idempotent"),
            self._tool("send", "once"),
            self._pay(),
        ]

    def _tool(self, name: str, effect: Any) -> Any:
        # Where most calls fail, a breaker would have everybody wait for better times, and nobody would ever give up.
        @holdfast.tool(name=name, effect=effect, retry=DEFAULT_RETRIES, breaker=self._fails <= FAILS)
        async def flaky(call: holdfast.Call, number: int) -> int:
            failed = Random(f"{self._seed}:{number}:{call.path}:{call.attempt}").random() < self._fails
            self.calls["failed" if failed else "answered"] += 1
            if failed:
                # The connection was refused, so nothing was sent: without that word, a `once` step would be in doubt.
                raise holdfast.Transient("connection refused", without_effect=True)
            return number

        return flaky

    def _pay(self) -> Any:
        """Its line breaks before or after it has done its work, and nobody says which."""

        async def look(call: holdfast.Call, arguments: dict[str, Any]) -> holdfast.Happened | holdfast.DidNotHappen:
            return holdfast.Happened(arguments["number"]) if self.paid[call.key] else holdfast.DidNotHappen()

        retry, breaker = DEFAULT_RETRIES, self._fails <= FAILS

        @holdfast.tool(effect="once", in_doubt="verify", verify=look, retry=retry, breaker=breaker)
        async def pay(call: holdfast.Call, number: int) -> int:
            rng = Random(f"{self._seed}:{number}:{call.path}:{call.attempt}")
            failed, is_late = rng.random() < self._fails, rng.random() < 0.5
            self.calls["failed" if failed else "answered"] += 1
            self.paid[call.key] += not failed or is_late
            if failed:
                raise holdfast.Transient("the line broke")
            return number

        return pay


async def completion(folder: Path, plans: int = 1000, seed: int = 1, fails: float = FAILS) -> Rate:
    """Run the plans to their ends with nobody there to help, and count those that completed."""
    world, ends = World(seed, fails), Counter[str]()
    async with holdfast.Engine(folder=folder, tools=world.tools) as engine:

        async def one(number: int) -> None:
            run = await engine.start(STANDARD, inputs={"number": number})
            ends[(await run.settled()).status] += 1

        await in_parallel(one(number) for number in range(plans))
    twice = sum(count > 1 for count in world.paid.values())
    return Rate(plans, ends["completed"], world.calls.total(), world.calls["failed"], twice)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="holdfast-completion-") as place:
        found = asyncio.run(completion(Path(place)))
    print(f"{found}: {found.rate:.2%} completed without a person")
