"""A process that dies: it runs a task in a fork and kills that fork with SIGKILL at a given point of its work.

Started as `worker.py PROGRAM FOLDER POINT…`; each point, such as `after-commit:7`, gets a folder of its own. Every tool
appends a line to a file there, which nothing but the file system remembers. One import serves many deaths.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import holdfast

LINES = "lines.txt"
on_line: Callable[[str], None] = lambda moment: None  # noqa: E731 -- replaced in the process that is to die


def write_line(call: holdfast.Call, effect: str) -> None:
    on_line("before")
    handle = os.open(call.folder / LINES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{effect} {call.path} {call.key} {call.execution_id}\n".encode())
    os.close(handle)
    on_line("after")


@holdfast.tool(effect="read")
async def look(call: holdfast.Call, value: Any = None) -> Any:
    write_line(call, "read")
    return value


@holdfast.tool(effect="idempotent")
async def put(call: holdfast.Call, value: Any = None) -> Any:
    write_line(call, "idempotent")
    return value


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: Any = None) -> Any:
    write_line(call, "once")
    return value


@holdfast.tool(effect="idempotent", retry=holdfast.Retry(first_s=0.004))
async def flaky(call: holdfast.Call) -> str:
    write_line(call, "idempotent")
    if call.attempt == 1:
        raise holdfast.Transient("the first time it fails")
    return "then it works"


@holdfast.function
async def inner(ctx: holdfast.Context) -> int:
    await ctx.call(put, 1)
    return await ctx.call(pay, 2)


@holdfast.function
async def family(ctx: holdfast.Context) -> list[Any]:
    first = await ctx.call(look, 1)
    child = await ctx.start(inner)
    paid, put_back = await ctx.gather(ctx.call(pay, 3), ctx.call(put, 4))
    await ctx.sleep(0.003)
    return [first, await child.result(), paid, put_back, await ctx.call(pay, 5, name="last")]


PLAN: dict[str, Any] = {
    "name": "many",
    "steps": [
        {"id": "a", "tool": "look", "with": {"value": 1}},
        {"id": "b", "tool": "put", "with": {"value": "${{ steps.a.output + 1 }}"}},
        {"id": "c", "tool": "pay", "needs": ["b"]},
        {"id": "d", "tool": "pay", "needs": ["b"]},
        {"id": "nap", "wait": 0.003, "needs": ["c", "d"]},
        {"id": "f", "tool": "flaky"},
        {"id": "each", "tool": "put", "for_each": [1, 2, 3], "max_parallel": 2, "with": {"value": "${{ item }}"}},
        {"id": "m", "steps": [{"id": "n", "tool": "pay"}]},
        {"id": "z", "tool": "look", "with": {"value": "${{ steps.each.output }}"}},
    ],
}

TOOLS = [look, put, pay, flaky]
FUNCTIONS = [inner, family]
PROGRAMS: dict[str, Any] = {"plan": PLAN, "function": "family"}


def die_at(engine: holdfast.Engine, point: str) -> None:
    """Arrange that this process is killed at `before|after-commit|line:N`."""
    global on_line  # noqa: PLW0603 -- the tools of this module look there
    moment, _, rest = point.partition("-")
    what, _, number = rest.partition(":")
    left = int(number)

    def count(happened: str) -> None:
        nonlocal left
        if happened == moment:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if what == "line":
        on_line = count
        return
    commit = engine.services.store.commit

    async def counted(writes: Sequence[Any]) -> Any:
        count("before")
        written = await commit(writes)
        count("after")
        return written

    engine.services.store.commit = counted  # type: ignore[method-assign]


async def work(program: Any, folder: Path, point: str) -> None:
    engine = holdfast.Engine(folder=folder, tools=TOOLS, functions=FUNCTIONS)
    die_at(engine, point)
    async with engine:
        run = await engine.start(program, key="the one")
        await run.result()


def main(program: str, base: str, points: Sequence[str]) -> None:
    holdfast.Engine("memory:", tools=TOOLS, functions=FUNCTIONS).preparer.prepare(
        PLAN
    )  # imported and read for all forks
    for point in points:
        folder = Path(base) / point
        folder.mkdir()
        child = os.fork()
        if child == 0:
            asyncio.run(work(PROGRAMS[program], folder, point))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(point, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
