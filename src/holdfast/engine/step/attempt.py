"""The attempt: journal that it begins, let the tool run, journal how it ended.

What follows a failure is after_failure.py's; what must not be guessed after a cut is said here: `once` is in doubt.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import Suspended
from holdfast.core.execution import Step
from holdfast.core.failure import Failure, describe
from holdfast.core.policy import RUN_AHEAD_EVENTS_MAX, Effect
from holdfast.core.resources import Usage, beyond_reach
from holdfast.engine.limits.breaker import Breaker
from holdfast.engine.limits.guards import Guard
from holdfast.engine.step.admission import cache_s, enter, to_cache
from holdfast.engine.step.after_failure import after_failure
from holdfast.engine.step.budget_gate import bill, bill_of_cut, nothing_spent
from holdfast.engine.step.invoke import AnsweredLate, invoke
from holdfast.engine.step.step_context import StepContext, notes_for
from holdfast.engine.suspend_detector import SuspendDetector
from holdfast.tools.call import Call, HeldBack
from holdfast.tools.runtime.cancellation import NeverBegan
from holdfast.tools.runtime.user_traceback import place_of_bug, trace_of
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.tool import Tool


async def attempt(work: StepContext, step: Step | None, arguments: bytes) -> None:
    """Go through the gates, then try once, with what the step has come to; what became of it is journaled."""
    run, call = work.driver, work.call
    if run.must_wait():  # paused or let go of while a hook or a value was waited for: perform.py asks again
        return
    fallback = step.fallback if step is not None else 0
    tool = work.tool_of(step) if step is not None else call.tool
    if call.kind != "tool":  # the program's own code: it may wait for other steps, and must not keep them from running
        await _try(work, step, tool, fallback, arguments, None)
        return
    with_less = step is not None and step.reduced and not fallback
    guard, pressure = run.services.guards.of(tool, arguments, with_less=with_less), run.services.pressure
    must_wait = tool.cost_micros is not None or (pressure.is_on and not pressure.lets_begin(run, call))
    if must_wait or guard.take_now(run.places) is not None:
        entered = await enter(work, step, tool, fallback, arguments)
        if entered is None:
            return
        tool, fallback, arguments, guard = entered
    if tool.signature.lenient:
        arguments = tool.coerce_lenient(arguments)
    breaker = guard.breaker
    try:
        if breaker is not None and breaker.state != "closed":
            breaker.begin(work)
        await _try(work, step, tool, fallback, arguments, guard)
    finally:
        guard.leave(run.places)
        pressure.left()
        if breaker is not None and breaker.state != "closed":
            breaker.nothing_heard(work)


async def _try(
    work: StepContext, step: Step | None, tool: Tool[..., Any], fallback: int, arguments: bytes, guard: Guard | None
) -> None:
    run, call, breaker = work.driver, work.call, guard.breaker if guard is not None else None
    number = step.attempt + 1 if step is not None else 1
    effect = work.effect_of(tool)
    started_at = run.now_us()
    is_shaky = run.is_shaky and run.looks_shaky()
    run.append(work.started(started_at, number, tool, fallback, arguments, step, tool.cost_micros or 0))
    if effect != "read" or tool.cost_micros or run.log.ahead() > RUN_AHEAD_EVENTS_MAX or is_shaky:
        # The outcomes it builds on, and for `once` its own intent, are on disk before anything happens; and so is
        # what it may cost, or a crash would forget money that was spent. After a crash even a `read` waits: if it is
        # what takes its process down, nobody could count that otherwise.
        await _durable(work, number, started_at, tool)
    call_ = run.make_call(call.path, number, notes_for(tool, run.state.steps[call.path]))
    call_.started_as = effect if call.policy.effect is None else None
    _hold(work, call_, tool)
    if guard is not None:
        _hand_over(work, guard, call_)
    if run.state.id in run.services.feed.watched:
        run.voice.call(call_, tool.name, arguments)
    began = run.loop_time()
    handled = sys.exc_info()[1]  # by the program that asks for this step: Python would count it to the tool's errors
    try:
        output = await invoke(run, work.task, tool, arguments, call_, call.policy.timeout_s or tool.timeout_s)
    except (HeldBack, NeverBegan) as never:
        _interrupted(work, number, started_at, nothing_spent(tool), call_.used)
        if isinstance(never, NeverBegan):
            raise asyncio.CancelledError from None
        return  # and on to the breaker, which has opened meanwhile
    except AnsweredLate as late:
        _answered_late(work, late.output, call_, bill(tool, call_))
        raise asyncio.CancelledError from None
    except asyncio.CancelledError:
        _cut_off(work, effect, call_, started_at, bill_of_cut(tool, call_))
        raise
    except BaseException as error:
        if isinstance(error, Suspended | GeneratorExit):
            raise
        failure = _described(work, call_, error, handled)
        if breaker is not None:
            breaker.failed(work, failure)
        after_failure(work, failure, tool, call_, started_at, round((run.loop_time() - began) * 1e6))
        return
    finally:
        if call_.book is not None:
            run.voice.close(call_)
    _completed(work, tool, fallback, call_, output, started_at, int((run.loop_time() - began) * 1e6), breaker)


def _hold(work: StepContext, call_: Call, tool: Tool[..., Any]) -> None:
    """Say what it may use, and where it runs: nothing can be held to anything inside the engine's own process, so
    whatever its step or its task limits is moved out of it, if it can be."""
    run, own = work.driver, work.call.policy.resources
    call_.together = run.together
    call_.resources = run.services.allowed(own, run.limits.each, tool.resources)
    said = [one for one in (own, *run.limits) if one is not None]
    call_.isolated = tool.isolated or (bool(said) and tool.can_isolate)
    if said and not call_.isolated and (tool.is_theirs or own is not None) and tool.resources is None:
        call_.hear("warning", f"{tool.name} {beyond_reach(said)}\n")


def _hand_over(work: StepContext, guard: Guard, call_: Call) -> None:
    call_.turn = guard.turn
    if guard.pacer is not None:
        call_.door = guard.door(call_.isolated)
    if call_.isolated:
        call_.interpreters = work.driver.services.guards.interpreters
    if guard.breaker is not None:
        call_.gate = partial(guard.breaker.lets, work)


def _described(work: StepContext, tried: Call, error: BaseException, handled: BaseException | None) -> Failure:
    """As data; of a bug, also where it is, and its trace in the attempt's log."""
    failure = _of_the_task(work, masks.failure(describe(error, handled)))
    place = place_of_bug(error)
    if not place:
        return failure
    work.driver.voice.keep_trace(tried, trace_of(error))
    return msgspec.structs.replace(failure, place=place)


def _of_the_task(work: StepContext, failure: Failure) -> Failure:
    """A limit that the step says itself is changed in its plan, and no word of whoever retries it changes it."""
    own = work.call.policy.resources
    if not failure.limit or own is None or failure.limit.partition("=")[0] not in own.names():
        return failure
    return msgspec.structs.replace(failure, limit="")


def _completed(  # noqa: PLR0917, PLR0913 -- made for every attempt: each keyword would cost
    work: StepContext, tool: Tool[..., Any], fallback: int, tried: Call, output: bytes, started_at: int,
    duration_us: int,
    breaker: Breaker | None,
) -> None:  # fmt: skip
    run = work.driver
    if breaker is not None:
        breaker.succeeded(work)
    completed = ev.StepCompleted(
        at=run.now_us(),
        path=work.call.path,
        attempt=tried.attempt,
        output=run.keep(output),
        started_at=started_at,
        duration_us=duration_us,
        tool=tool.name if fallback else "",
        spent_micros=bill(tool, tried),
        used=tried.used,
        warning=tried.warning,
    )
    if not fallback and cache_s(work) and (tried.may_be_cached or work.call.policy.cache_s):  # the step's word wins
        run.append(completed, cached=to_cache(work, output))
    else:
        run.append(completed)


async def _durable(work: StepContext, number: int, started_at: int, tool: Tool[..., Any]) -> None:
    run = work.driver
    standing = SuspendDetector(run.services, run.loop_time())
    try:
        await run.durable()
        while standing.stood_still(run.loop_time()):
            await run.compare()  # it may be long since that was written, and another may have made of it what it could
    except asyncio.CancelledError:
        if work.driver.cause is None and work.driver.log.error is None:
            _interrupted(work, number, started_at, nothing_spent(tool))  # whatever its effect: it was never called
        raise


def _answered_late(work: StepContext, output: bytes, tried: Call, spent_micros: int | None) -> None:
    run = work.driver
    run.append(
        ev.StepCompleted(
            at=run.now_us(), path=work.call.path, attempt=tried.attempt, output=run.keep(output),
            spent_micros=spent_micros, used=tried.used, warning=tried.warning,
        )
    )  # fmt: skip


def _cut_off(work: StepContext, effect: Effect, tried: Call, started_at: int, spent_micros: int | None) -> None:
    """The program cancelled its own step, as when another branch failed. (If all is cut, the driver records it.)"""
    run, path, number = work.driver, work.call.path, tried.attempt
    if run.cause is not None or run.log.error is not None:
        run.used_by_cut[path, number] = tried.used
        return
    if effect == "once":
        why = "its program cancelled it while it ran"
        run.append(
            ev.StepInDoubt(
                at=run.now_us(), path=path, why=why, attempt=number, spent_micros=spent_micros, used=tried.used
            )
        )
    else:
        _interrupted(work, number, started_at, spent_micros, tried.used)


def _interrupted(
    work: StepContext, number: int, started_at: int, spent_micros: int | None, used: Usage | None = None
) -> None:
    run = work.driver
    run.append(
        ev.StepInterrupted(
            at=run.now_us(), path=work.call.path, attempt=number, started_at=started_at, spent_micros=spent_micros,
            used=used,
        )
    )  # fmt: skip
