"""What `shell.run` adds to a command: milliseconds over starting it with the standard library, and what comes first.

Commands take turns with bare ones, and of each kind the fastest tenth counts: a busy neighbour disturbs the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from common import print_result

import holdfast
from holdfast.tools.call import Call
from holdfast.tools.shell.tool import Config, Shell
from holdfast.tools.toolset import HERE

COMMAND = ["true"]


async def bare() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await process.communicate()
    return (time.perf_counter() - began) * 1000


async def ours(folder: Path) -> float:
    (tool,) = Shell(Config(), HERE).tools()
    call = Call("execution", "step", 1, "key", folder)
    began = time.perf_counter()
    await tool.invoke(tool.validate({"command": COMMAND}), call)
    return (time.perf_counter() - began) * 1000


async def measure(runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = await ours(folder)  # starts the process that keeps all commands
        pairs = [(await bare(), await ours(folder)) for _ in range(runs)]
    bare_ms, ours_ms = (statistics.quantiles(times, n=10)[0] for times in zip(*pairs, strict=True))
    median_ms = statistics.median(ours for _, ours in pairs) - statistics.median(bare for bare, _ in pairs)
    return {
        "bare_ms": round(bare_ms, 2),
        "ours_ms": round(ours_ms, 2),
        "overhead_ms": round(ours_ms - bare_ms, 2),
        "median_overhead_ms": round(median_ms, 2),
        "first_ms": round(first, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=200, help="commands of each kind")
    runs: int = parser.parse_args().executions
    os.environ.setdefault("PATH", os.defpath)
    print_result(system="Holdfast", version=holdfast.__version__, **asyncio.run(measure(runs)))


if __name__ == "__main__":
    main()
