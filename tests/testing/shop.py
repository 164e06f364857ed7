"""A small shop: what the tests of crashes in the lab buy from."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.testing import Lab


@holdfast.tool(effect="once")
async def charge(amount: int) -> str: ...


@holdfast.tool(effect="read")
async def look(value: int = 0) -> int: ...


@holdfast.function
async def buy(ctx: holdfast.Context) -> Any:
    price = await ctx.call(look, 1)
    receipt = await ctx.call(charge, price)
    await ctx.sleep("1d")
    return [receipt, await ctx.call(look, 2)]


def stocked(lab: Lab) -> Lab:
    lab.fake(charge, returns="charged")
    lab.fake(look, returns=3)
    return lab
