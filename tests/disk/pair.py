"""One of two engines that share a store under load. Started as `pair.py FOLDER NAME COUNT`.

Every tool call writes a line when it begins and one when it ends, in the order in which they happen over all processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import holdfast
from holdfast.journal.store import Query

LINES = "lines.txt"
PATIENCE_S = 60.0


def write_line(call: holdfast.Call, word: str) -> None:
    handle = os.open(call.folder / LINES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{word} {os.getpid()} {call.execution_id} {call.path}\n".encode())
    os.close(handle)


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: int) -> int:
    write_line(call, "begin")
    await asyncio.sleep(0.001)
    write_line(call, "end")
    return value


@holdfast.function
async def work(ctx: holdfast.Context, number: int) -> int:
    first, second = await ctx.gather(ctx.call(pay, 1), ctx.call(pay, number))
    await ctx.sleep(0.02)  # asleep for a moment, and woken by whichever engine sees it first
    return first + second + await ctx.call(pay, 3, name="last")


async def main(folder: Path, name: str, count: int) -> None:
    limits = holdfast.Limits(passivate_after_s=0.0)
    async with holdfast.Engine(folder=folder, tools=[pay], functions=[work], limits=limits) as engine:
        for number in range(count):
            held = number % 2 == 0
            run = await engine.start(work, inputs={"number": number}, key=f"{name}-{number}", hold=held)
            if held:
                await run.resume()
        async with asyncio.timeout(PATIENCE_S):
            while await engine.list(Query(status=("queued", "running", "waiting"), limit=1)):  # noqa: ASYNC110 -- the other engine tells nobody
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
