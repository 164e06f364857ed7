"""The moment a tool runs: its arguments checked, its time limited, its answer encoded. And its hooks, likewise limited.

Nothing here is journaled; step.py decides what an outcome means.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core.errors import ToolError, Transient
from holdfast.core.policy import HOOK_TIMEOUT_S, STEP_TIMEOUT_S
from holdfast.tools.call import Call, DidNotHappen, Happened
from holdfast.tools.threads import NeverBegan, StillRunning
from holdfast.tools.tool import Tool
from holdfast.tools.values import encode

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver


LATE_S = 1.0  # how long an attempt whose time is up may take to say how it ended


class CancelledInside(ToolError):
    """The tool raised a cancellation that nobody asked for; how far it came is unknown."""

    category = "timeout"


class Overran(ToolError):
    """Its time was up, and it answered that with an error of its own: what it had done by then is unknown."""

    category = "timeout"


class AnsweredLate(asyncio.CancelledError):
    """The attempt was cut short from outside, but it answered all the same: that counts, and the cutting goes on."""

    def __init__(self, output: bytes) -> None:
        super().__init__()
        self.output = output


async def invoke(
    run: Driver, task: asyncio.Task[Any], tool: Tool[..., Any], arguments: bytes, call: Call, timeout_s: float | None
) -> bytes:
    """The tool's output as JSON bytes. Raises whatever the tool raises, and TimeoutError when its time is up.

    With a time limit of its own a tool runs in a task of its own, so that one that ignores its cancellation can be left
    behind. The general limit is only looked at now and then, which costs next to nothing.
    """
    validated = tool.validate(cast("dict[str, Any]", msgspec.json.decode(arguments)))
    if timeout_s is not None:
        return tool.output(await _in_own_task(run, tool, validated, call, timeout_s))
    deadlines = run.services.deadlines
    before = deadlines.set(task, run.loop, STEP_TIMEOUT_S)
    try:
        value = await tool.invoke(validated, call)
    except asyncio.CancelledError as error:
        if deadlines.clear(task, before) and task.uncancel() == 0:
            value = await _late(run, call, error, LATE_S, _too_long(tool, STEP_TIMEOUT_S))
        elif task.cancelling() == 0:
            raise CancelledInside(f"{tool.name} cancelled itself") from None
        else:
            late = await _late(run, call, error, run.services.limits.interrupt_grace_s * 0.9, error)
            raise AnsweredLate(tool.output(late)) from None
    except BaseException as error:
        if deadlines.clear(task, before):
            task.uncancel()
            if not _had_no_effect(error):
                raise Overran(str(error) or str(_too_long(tool, STEP_TIMEOUT_S))) from error
        elif task.cancelling():
            raise asyncio.CancelledError from error  # it was cut, whatever it makes of that
        raise
    else:
        if deadlines.clear(task, before):
            task.uncancel()  # it ignored that its time was up, and answered after all
    return tool.output(value)


async def _in_own_task(
    run: Driver, tool: Tool[..., Any], validated: dict[str, Any], call: Call, timeout_s: float
) -> Any:
    inner = run.loop.create_task(tool.invoke(validated, call))
    try:
        await asyncio.wait({inner}, timeout=timeout_s)
    except asyncio.CancelledError as error:
        late = await _stopped(run, call, inner, run.services.limits.interrupt_grace_s * 0.9, error)
        raise AnsweredLate(tool.output(late)) from None
    if inner.done():
        if inner.cancelled():
            raise CancelledInside(f"{tool.name} cancelled itself")
        return inner.result()
    return await _stopped(run, call, inner, LATE_S, _too_long(tool, timeout_s))


async def _stopped(run: Driver, call: Call, inner: asyncio.Task[Any], grace_s: float, otherwise: BaseException) -> Any:
    """Cancel a tool's task; its answer if there is one after all. One that will not end is left behind and counted."""
    inner.cancel()
    await asyncio.wait({inner}, timeout=grace_s)
    if not inner.done():
        run.services.leave_behind(inner)
        run.services.lives_on(call.key, inner)
        raise otherwise
    try:
        return inner.result()
    except asyncio.CancelledError as error:
        return await _late(run, call, error, grace_s, otherwise)
    except Exception as error:
        if isinstance(otherwise, asyncio.CancelledError):
            raise otherwise from error  # it was cut, whatever it makes of that
        if _had_no_effect(error):
            raise
        raise Overran(str(error) or str(otherwise)) from error


def _had_no_effect(error: BaseException) -> bool:
    return isinstance(error, ToolError) and error.without_effect


async def _late(
    run: Driver, call: Call, error: asyncio.CancelledError, grace_s: float, otherwise: BaseException
) -> Any:
    """What became of a call in a thread, which cannot be cancelled: nothing, an answer, or still unknown."""
    if isinstance(error, NeverBegan):
        if isinstance(otherwise, asyncio.CancelledError):
            raise error
        raise Transient("all threads were busy and it never began", without_effect=True)
    if isinstance(error, StillRunning):
        await asyncio.wait({error.future}, timeout=grace_s)
        if error.future.done():
            return error.future.result()
        run.services.lives_on(call.key, error.future)
    raise otherwise


def _too_long(tool: Tool[..., Any], timeout_s: float) -> TimeoutError:
    return TimeoutError(f"{tool.name} took longer than {timeout_s:g} s")


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
