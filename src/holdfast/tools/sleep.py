"""`time.sleep`: a pause inside one step. A wait that costs nothing while it lasts is the plan's `wait`, not this."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import InvalidCall
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter


@tool(name="time.sleep", effect="read", breaker=False, isolated=False)
async def sleep(seconds: float) -> None:
    """Do nothing for some seconds."""
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidCall(f"seconds: expected a number from 0 upwards, got {seconds}")
    await asyncio.sleep(seconds)


class Time(Adapter):
    """Pauses inside a step."""

    def tools(self) -> Sequence[Tool[..., Any]]:
        return (sleep,)
