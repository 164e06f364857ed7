"""The moment a tool runs: its arguments checked, its time limited, its answer encoded. And its hooks, likewise limited.

Nothing here is journaled; perform.py decides what an outcome means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from holdfast.core.errors import ToolError
from holdfast.core.execution import Step
from holdfast.core.policy import HOOK_TIMEOUT_S, STEP_TIMEOUT_S
from holdfast.core.secret_refs import put_in
from holdfast.engine.step.detach_stuck import Ignored, await_detachable
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown
from holdfast.tools.hooks import OutputInvalid, OutputLost
from holdfast.tools.isolated.parent import run_isolated
from holdfast.tools.json_values import NotJson, encode
from holdfast.tools.runtime.cancellation import NeverBegan, NeverCalled, StillRunning
from holdfast.tools.runtime.user_traceback import located
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


LATE_SEEN_S = 0.25  # a busy loop sees a timer late; more than this is a loop that stood still
LATE_S = 1.0  # how long an attempt whose time is up may take to say how it ended
IN_LINE_S_MAX = STEP_TIMEOUT_S  # how long a call waits for a thread or a process; that counts besides its own time
WARNING_CHARS_MAX = 1000
# An interrupted step's processes have `limits.interrupt_grace_s` to tidy up. Its tool has a little longer, to see how
# they ended, and its execution a little longer still.
TOOL_GRACE = 1.05
EXECUTION_GRACE = 1.1
LATE_KILL_S = LATE_S / 2  # for processes of an attempt whose time is up


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


class Patience(NamedTuple):
    """How long an attempt may take in all, and how long it may be silent."""

    timeout_s: float
    idle_s: float | None

    async def wait(self, loop: asyncio.AbstractEventLoop, work: asyncio.Task[Any], call: Call) -> str:
        """Until it has ended ("") or one of the limits is over: "time" or "idle"."""
        began = heard = loop.time()
        signs, waited_s = call.signs, 0.0
        look_s = self.timeout_s
        if self.idle_s is not None:
            # Looked at ten times within the limit: words come from any thread, and are not worth a timer each.
            look_s = max(self.idle_s / 10, 0.001)
        await asyncio.wait({work}, timeout=min(look_s, self.timeout_s))
        while not work.done():
            now = loop.time()
            in_line_s = min(call.waited_s(now), IN_LINE_S_MAX)  # whoever waits for a thread or a process has not begun
            if call.signs != signs or in_line_s != waited_s:
                signs, waited_s, heard = call.signs, in_line_s, now
            left_s = began + in_line_s + self.timeout_s - now
            if left_s <= 0:
                return "time"
            if self.idle_s is not None and now >= heard + self.idle_s:
                return "idle"
            await asyncio.wait({work}, timeout=min(look_s, left_s))
        return ""

    def lost(self, tool: Tool[..., Any], over: str) -> TimeoutError:
        """In words, which of the limits is over."""
        if over == "idle":
            return TimeoutError(f"{tool.name} gave no sign of life for {self.idle_s:g} s")
        return _too_long(tool, self.timeout_s)


async def invoke(
    driver: Driver, task: asyncio.Task[Any], tool: Tool[..., Any], arguments: bytes, call: Call, timeout_s: float | None
) -> bytes:
    """The tool's output as JSON bytes. Raises whatever the tool raises, and TimeoutError when its time is up.

    With a time limit of its own a tool runs in a task of its own; without, in that of its step, until it ignores its
    cancellation (detach_stuck.py). The general limit is only looked at now and then, which costs next to nothing.
    """
    given = cast("dict[str, Any]", msgspec.json.decode(arguments))
    if call.secrets or call.door is not None:
        given = await _prepared(driver, given, call)
    validated = tool.validate(given)
    called = run_isolated(tool, given, call) if call.isolated else tool.invoke(validated, call)
    idle_s = tool.idle_timeout_s
    if timeout_s is not None or idle_s is not None:
        patience = Patience(timeout_s or STEP_TIMEOUT_S, idle_s)
        return _output(driver, tool, call, await _in_own_task(driver, tool, called, call, patience))
    deadlines = driver.services.deadlines
    before = deadlines.set(task, driver.loop, STEP_TIMEOUT_S)

    def grace_s() -> float | None:
        if deadlines.is_over(task):
            call.kill_grace_s = LATE_KILL_S
            return LATE_S
        return _grace_s(driver, call) if driver.cause is not None else None

    try:
        value = await await_detachable(called, grace_s)
    except asyncio.CancelledError as error:
        if deadlines.clear(task, before) and task.uncancel() == 0:
            value = await _late(driver, call, error, LATE_S, _too_long(tool, STEP_TIMEOUT_S))
        elif task.cancelling() == 0:
            raise CancelledInside(f"{tool.name} cancelled itself") from None
        else:
            late = await _late(driver, call, error, _grace_s(driver, call), error)
            raise AnsweredLate(_output(driver, tool, call, late)) from None
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
    return _output(driver, tool, call, value)


def _grace_s(driver: Driver, call: Call) -> float:
    """How long an attempt that is cut off may take to tidy up; its processes are told before the tool is."""
    call.kill_grace_s = driver.services.limits.interrupt_grace_s
    return call.kill_grace_s * TOOL_GRACE


async def _prepared(driver: Driver, given: dict[str, Any], call: Call) -> dict[str, Any]:
    """What a call needs that few calls do. One with a process of its own waits at the door when that is ready."""
    if call.secrets:
        given = await _with_secrets(driver, given, call)
    if call.door is not None and not call.isolated:
        await call.take_turn(call.door)
    return given


async def _with_secrets(driver: Driver, given: dict[str, Any], call: Call) -> dict[str, Any]:
    """The recorded arguments as the tool gets them: this is where a reference becomes a secret, and nowhere else."""
    return cast("dict[str, Any]", put_in(given, await driver.services.secrets.fetch(call.secrets)))


async def _given(driver: Driver, arguments: bytes, call: Call) -> dict[str, Any]:
    given = cast("dict[str, Any]", msgspec.json.decode(arguments))
    return await _with_secrets(driver, given, call) if call.secrets else given


def _output(driver: Driver, tool: Tool[..., Any], call: Call, value: Any) -> bytes:
    """What the tool answered, and no secret in it. A tool that returned has happened, whatever its value looks like."""
    try:
        output = tool.output(value)
    except OutputInvalid as misfit:
        if misfit.output is None or driver.state.steps[call.path].effect == "read":
            raise
        output = misfit.output
        call.warning = masks.beginning(str(misfit), WARNING_CHARS_MAX)
    except NotJson as error:
        raise OutputLost(str(error)) from error
    return masks.json(output) if masks.active else output


async def _in_own_task(
    driver: Driver, tool: Tool[..., Any], called: Coroutine[Any, Any, Any], call: Call, patience: Patience
) -> Any:
    inner = driver.loop.create_task(called)
    began = driver.loop.time()
    try:
        over = await patience.wait(driver.loop, inner, call)
    except asyncio.CancelledError as error:
        late = await _stopped(driver, call, inner, _grace_s(driver, call), error)
        raise AnsweredLate(_output(driver, tool, call, late)) from None
    if inner.done():
        ended = driver.loop.time()
        _warn_if_blocked(tool, call, ended - began - call.waited_s(ended), patience.timeout_s)
        if inner.cancelled():
            raise CancelledInside(f"{tool.name} cancelled itself")
        return inner.result()
    call.kill_grace_s = LATE_KILL_S
    return await _stopped(driver, call, inner, LATE_S, patience.lost(tool, over))


def _warn_if_blocked(tool: Tool[..., Any], call: Call, took_s: float, limit_s: float) -> None:
    """It ended too late, and nobody could see that its time was up: something kept the event loop from running."""
    if tool.is_async and took_s > limit_s + LATE_SEEN_S:
        call.hear(
            "warning",
            f"{tool.name} took {took_s:.1f} s, and its limit of {limit_s:g} s could not be kept: the event loop was "
            "blocked, and nothing else ran meanwhile; what blocks belongs into a `def`, which runs in a thread\n",
        )


async def _stopped(
    driver: Driver, call: Call, inner: asyncio.Task[Any], grace_s: float, otherwise: BaseException
) -> Any:
    """Cancel a tool's task; its answer if there is one after all. One that will not end is left behind and counted."""
    inner.cancel()
    await _given_time(inner, grace_s, isinstance(otherwise, asyncio.CancelledError))
    if not inner.done():
        _leave_behind(driver, call, inner)
        raise otherwise
    try:
        return inner.result()
    except asyncio.CancelledError as error:
        return await _late(driver, call, error, grace_s, otherwise)
    except Exception as error:
        if isinstance(otherwise, asyncio.CancelledError):
            raise otherwise from error  # it was cut, whatever it makes of that
        if _had_no_effect(error):
            raise
        raise Overran(str(error) or str(otherwise)) from error


def _leave_behind(driver: Driver, call: Call, task: asyncio.Task[Any]) -> None:
    driver.services.leave_behind(task)
    driver.services.lives_on(call.key, task)


def _had_no_effect(error: BaseException) -> bool:
    return isinstance(error, ToolError) and error.without_effect


async def _late(
    driver: Driver, call: Call, error: asyncio.CancelledError, grace_s: float, otherwise: BaseException
) -> Any:
    """What became of a call that was not simply cancelled: nothing, an answer, or still unknown."""
    if isinstance(error, NeverBegan):
        if isinstance(otherwise, asyncio.CancelledError):
            raise error
        raise NeverCalled("it waited for its turn and never began")
    if isinstance(error, Ignored):
        _leave_behind(driver, call, error.task)
    if isinstance(error, StillRunning):
        await _given_time(error.future, grace_s, isinstance(otherwise, asyncio.CancelledError))
        if error.future.done():
            return error.future.result()
        driver.services.lives_on(call.key, error.future)
    raise otherwise


async def _given_time(work: asyncio.Future[Any], grace_s: float, is_cut: bool) -> None:
    """Wait for what may still end. Whoever is cut is often told so twice, by its driver and by its program: the second
    word must not take away the time that the first one gave."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace_s
    while not work.done() and (left_s := until - loop.time()) > 0:
        try:
            await asyncio.wait({work}, timeout=left_s)
        except asyncio.CancelledError:
            if not is_cut:
                raise


def _too_long(tool: Tool[..., Any], timeout_s: float) -> TimeoutError:
    return TimeoutError(f"{tool.name} took longer than {timeout_s:g} s")


async def reduced(tool: Tool[..., Any], arguments: bytes, call: Call) -> bytes:
    """The same with less, as the tool says; a tool that cannot say is asked for the same again.

    What it returns is journaled, so it is shown references, and no secret.
    """
    try:
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            return encode(await tool.run_reduce(tool.validate(msgspec.json.decode(arguments)), call))
    except Exception:
        return arguments


def drop_secrets(driver: Driver, names: Sequence[str], step: Step) -> None:
    """Those that were refused are fetched anew by the next attempt, unless another step has done so since."""
    refused_s = (driver.now_us() - step.attempts[-1].ended_at) / 1e6 if step.attempts else 0.0
    driver.services.secrets.forget(names, refused_s)


async def refresh(driver: Driver, tool: Tool[..., Any], arguments: bytes, call: Call) -> None:
    if not tool.can_refresh:
        return
    with suppress(Exception):  # if it did not help, the next attempt says so
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            await tool.run_refresh(tool.validate(await _given(driver, arguments, call)), call)


class CheckFailed(NamedTuple):
    """A check that said nothing: why, where, and its trace if it did not mean to raise that."""

    why: str
    trace: str


async def verified(
    driver: Driver, tool: Tool[..., Any], arguments: bytes, call: Call
) -> bytes | DidNotHappen | Unknown | CheckFailed:
    """What the tool's own check says: its output if it happened."""
    limit = asyncio.timeout(HOOK_TIMEOUT_S)
    try:
        async with limit:
            verdict = await tool.run_verify(tool.validate(await _given(driver, arguments, call)), call)
        return _output(driver, tool, call, verdict.output) if isinstance(verdict, Happened) else verdict
    except Exception as error:
        if limit.expired():
            return CheckFailed(f"it took longer than {HOOK_TIMEOUT_S:g} s", "")
        failure, trace = located(error)
        where = f" (at {failure.place})" if failure.place else ""
        is_bare = trace and not failure.message.startswith(failure.error)
        why = f"{failure.error}: {failure.message}" if is_bare else failure.message
        return CheckFailed(masks.text(f"{why}{where}"), trace)
