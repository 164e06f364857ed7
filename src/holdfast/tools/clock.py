"""`time.sleep`: a pause inside one step. A wait that costs nothing while it lasts is the plan's `wait`, not this."""

from __future__ import annotations

import asyncio
import math

from holdfast.core.errors import InvalidCall
from holdfast.tools.tool import tool


@tool(name="time.sleep", effect="read")
async def sleep(seconds: float) -> None:
    """Do nothing for some seconds."""
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidCall(f"seconds: expected a number from 0 upwards, got {seconds}")
    await asyncio.sleep(seconds)
