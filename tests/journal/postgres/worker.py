"""An engine process on PostgreSQL that dies or stands still in the middle of a step: `worker.py MODE URL`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import holdfast


async def at_once() -> str:
    return "the successor's"


on_hold: Callable[[], Awaitable[str]] = at_once


@holdfast.tool(effect="idempotent")
async def hold() -> str:
    return await on_hold()


@holdfast.function
async def held(ctx: holdfast.Context) -> str:
    return await ctx.call(hold)


async def for_ever() -> str:
    print("holding", flush=True)
    await asyncio.Event().wait()
    return "nobody's"


async def standing_still() -> str:
    """The whole event loop, until somebody says a word."""
    print("holding", flush=True)
    sys.stdin.readline()
    return "the zombie's"


async def main(mode: str, url: str) -> None:
    global on_hold  # noqa: PLW0603 -- the tool of this module looks there
    on_hold = {"die": for_ever, "stall": standing_still}[mode]
    async with holdfast.Engine(url, tools=[hold], functions=[held]) as engine:
        run = await engine.start("held", key="the one")
        print(await run.result(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
