"""The tools of `holdfast demo`: harmless, a little slow, and each writes a line to a file when it runs.

That file is the demo's witness: it says what really ran, whatever the journal claims.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.core.errors import InvalidCall, Transient
from holdfast.tools.call import Call
from holdfast.tools.tool import tool

WITNESS = "what-ran.txt"


def _testify(call: Call) -> None:
    """One line per run: the step, the attempt, the process."""
    with (call.folder / WITNESS).open("a") as witness:
        witness.write(f"{call.path} {call.attempt} {os.getpid()}\n")


@tool(name="demo.measure", effect="once", timeout=30)
async def measure(place: str, seconds: float, call: Call) -> dict[str, object]:
    """Pretend to measure the tide at a place; must never happen twice."""
    _testify(call)
    await asyncio.sleep(seconds)
    return {"place": place, "metres": 1 + len(place) / 10}


@tool(name="demo.flaky", effect="idempotent", timeout=30)
async def flaky(call: Call) -> str:
    """Ask a service that is down twice before it answers."""
    _testify(call)
    await asyncio.sleep(0.2)
    if call.attempt <= 2:
        raise Transient("the almanac is not answering")
    return "new moon"


@tool(name="demo.broken", effect="read", timeout=30)
def broken(call: Call) -> str:
    """Fail every time, for good."""
    _testify(call)
    raise InvalidCall("there is no picture of the sea today")


@tool(name="demo.write", effect="idempotent", timeout=30)
async def write(name: str, lines: list[str], seconds: float, call: Call) -> str:
    """Write a small report, slowly enough to be caught in the middle."""
    _testify(call)
    await asyncio.sleep(seconds)
    await asyncio.to_thread((Path(call.folder) / name).write_text, "\n".join(lines) + "\n")
    return name
