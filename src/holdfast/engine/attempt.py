"""The moment a tool runs: its arguments checked, its time limited, its answer encoded. And its hooks, likewise limited.

Nothing here is journaled; step.py decides what an outcome means.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core.errors import ToolError
from holdfast.core.policy import HOOK_TIMEOUT_S
from holdfast.tools.call import Call, DidNotHappen, Happened
from holdfast.tools.tool import Tool
from holdfast.tools.values import encode

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver


class CancelledInside(ToolError):
    """The tool raised a cancellation that nobody asked for; how far it came is unknown."""

    category = "timeout"


async def invoke(run: Driver, tool: Tool[..., Any], arguments: bytes, call: Call, timeout_s: float) -> bytes:
    """The tool's output as JSON bytes. Raises whatever the tool raises, and TimeoutError when its time is up."""
    validated = tool.validate(cast("dict[str, Any]", msgspec.json.decode(arguments)))
    deadlines, task = run.services.deadlines, cast("asyncio.Task[Any]", asyncio.current_task())
    deadlines.set(task, run.loop, timeout_s)
    try:
        value = await tool.invoke(validated, call)
    except asyncio.CancelledError:
        if deadlines.clear(task) and task.uncancel() == 0:
            raise TimeoutError(f"{tool.name} took longer than {timeout_s:g} s") from None
        if task.cancelling() == 0:
            raise CancelledInside(f"{tool.name} cancelled itself") from None
        raise
    except BaseException:
        if deadlines.clear(task):
            task.uncancel()
        raise
    if deadlines.clear(task):
        task.uncancel()  # it answered in the very moment its time was up; the answer counts
    return tool.output(value)


async def reduced(tool: Tool[..., Any], arguments: bytes, call: Call) -> bytes:
    """The same with less, as the tool says; a tool that cannot say is asked for the same again."""
    try:
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            return encode(await tool.run_reduce(tool.validate(msgspec.json.decode(arguments)), call))
    except Exception:
        return arguments


async def refresh(tool: Tool[..., Any], arguments: bytes, call: Call) -> None:
    with suppress(Exception):  # if it did not help, the next attempt says so
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            await tool.run_refresh(tool.validate(msgspec.json.decode(arguments)), call)


async def verified(tool: Tool[..., Any], arguments: bytes, call: Call) -> bytes | DidNotHappen | None:
    """What the tool's own check says: its output if it happened, or None if nobody can tell."""
    try:
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            verdict = await tool.run_verify(tool.validate(msgspec.json.decode(arguments)), call)
        if isinstance(verdict, Happened):
            return tool.output(verdict.output)
        return verdict if isinstance(verdict, DidNotHappen) else None
    except Exception:
        return None  # a check that fails has told us nothing
