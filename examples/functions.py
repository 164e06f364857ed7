"""Function: a program in plain Python. Every call is journaled by name, and answered from the journal after a crash.

holdfast run survey -i 'places=["harbour", "pier"]'
holdfast show @last
"""

import holdfast
from tools import measure, send


@holdfast.function
async def survey(ctx: holdfast.Context, places: list[str]) -> dict[str, float]:
    """Measure some places side by side, and post a letter if one of them is high."""
    levels = await ctx.gather(*(ctx.call(measure, place) for place in places))
    found = dict(zip(places, levels, strict=True))
    highest = max(found, key=lambda place: found[place])
    if found[highest] > 2:
        await ctx.call(send, f"high water at the {highest}", name="warn")
    return found
