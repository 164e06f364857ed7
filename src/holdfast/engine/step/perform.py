"""One step, from the program's asking to its outcome.

The story is a loop over the step's status: each turn does what that status calls for and journals one move, until the
step has ended. A first run enters with no status, a replay with whatever the journal says; nothing else differs.

    nothing yet → gates → attempt → completed | failed | retrying | in doubt | waiting for a correction
    lost in a crash → read and idempotent: another attempt; once: in doubt

admission.py stands before an attempt, attempt.py makes it, after_failure.py and resolution.py are the ways on from
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast.core import events as ev
from holdfast.core.execution import Asked, Step
from holdfast.core.failure import Failure
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.core.policy import LOSSES_MAX
from holdfast.engine.program import Outcome, StepCall
from holdfast.engine.step import parking
from holdfast.engine.step.admission import cache_s, is_answered_from_cache, wants_approval, wants_approval_of_fallback
from holdfast.engine.step.after_failure import fail, give_up_after_losses
from holdfast.engine.step.attempt import attempt
from holdfast.engine.step.human_requests import ask_in_doubt, denied
from holdfast.engine.step.invoke import drop_secrets, reduced, refresh
from holdfast.engine.step.kept import settle_call
from holdfast.engine.step.resolution import changed_input, remedy, verify, why_not_again
from holdfast.engine.step.secret_substitution import hidden
from holdfast.engine.step.step_context import StepContext, input_digest
from holdfast.engine.step.step_history import doubtful, edited, losses
from holdfast.tools.json_values import encode
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver

__all__ = ["input_digest", "outcome_of", "perform"]


async def perform(driver: Driver, call: StepCall) -> Outcome:
    """Answer from history, or take the step from where it stands to its end."""
    steps = driver.state.steps
    step = steps.get(call.path)
    asked = encode(call.arguments, call.path)
    digest = input_digest(call.tool.name, asked)
    if step is not None and step.kept:
        step = await settle_call(driver, call, digest, asked)
    elif step is not None and (step.digest != digest if step.digest else step.kind != call.kind):
        await _diverged(driver, call, step, digest, asked)
    if call.kind == "tool" and (masks.active if step is None else step.status not in STEP_ENDS):
        call, asked = await hidden(driver, call, asked, step)
    if call.kind == "tool" and call.tool.signature.lenient:
        asked = call.tool.coerce_lenient(asked)  # what people are asked to agree to is what is called
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    work = StepContext(driver, call, digest, asked, task)
    while step is None or step.status not in STEP_ENDS:
        if driver.must_wait():
            await driver.admit()
        before = driver.busy(task)
        try:
            await _MOVES[step.status if step is not None else "pending"](work, step)
        finally:
            driver.idle(task, before)
        step = steps.get(call.path)
        if step is not None and step.kept:  # a doubt that turned out to have happened, with the input it had then
            step = await settle_call(driver, call, digest, asked)
    return await outcome_of(driver, step)


async def outcome_of(driver: Driver, step: Step) -> Outcome:
    """An ended step as its program sees it."""
    if step.status == "completed":
        return Outcome(status="completed", output=await driver.value(step.output))
    if step.status == "failed":
        return Outcome(status="failed", failure=step.failure)
    return Outcome(status="skipped", reason=step.reason, skip_code=step.skip_code)


# ---- one move per status ---------------------------------------------------------------------------------------


async def _begin(work: StepContext, step: Step | None) -> None:
    """Nothing has happened yet: a person's yes, a cached answer, or the first attempt."""
    if wants_approval(work) or (cache_s(work) and not work.is_fresh and await is_answered_from_cache(work)):
        return
    await attempt(work, step, work.asked)


async def _go_on_waiting(work: StepContext, step: Step | None) -> None:
    """It waits for a person: for a yes, or for a way out of a failure."""
    assert step is not None
    run = work.driver
    await parking.answer(run, step)
    asked = run.state.requests[step.request_id]
    if asked.remedy == "again" and not step.attempt:  # it has not begun: its input could not be worked out
        await _begin(work, step)
    elif asked.request.kind != "approval":
        await remedy(work, step)
    elif asked.remedy == "granted":
        edits = await run.value(asked.data) if asked.data else None
        shown = await run.value(asked.request.arguments)  # what was agreed to, and nothing else
        await attempt(work, step, edited(shown, edits))
    else:
        fail(work, step, denied(asked.remedy, asked.by, asked.why), by=asked.by)


async def _retry(work: StepContext, step: Step | None) -> None:
    """Wait for the time of the next attempt, then make it."""
    assert step is not None
    await parking.due(work.driver, step)
    arguments = await work.arguments_of(step)
    if step.refreshed and step.failure is not None and step.failure.category == "permission":
        drop_secrets(work.driver, work.call.secrets, step)
    if step.fallback:
        if wants_approval_of_fallback(work, work.tool_of(step), arguments):
            return
    elif step.failure is not None:  # the hooks are those of the step's own tool
        if step.reduced and step.failure.category == "resource":
            arguments = await reduced(work.call.tool, arguments, work.as_call(step))
        elif step.refreshed and step.failure.category == "permission":
            await refresh(work.driver, work.call.tool, arguments, work.as_call(step))
    await attempt(work, step, arguments)


async def _again_after_loss(work: StepContext, step: Step | None) -> None:
    """Its driver died, or a person interrupted it: what may run again does, what must not is in doubt."""
    assert step is not None
    if step.status == "running" and step.effect == "once":
        why = "its process ended, or lost its journal, while it ran"
        work.driver.append(ev.StepInDoubt(at=work.driver.now_us(), path=step.path, why=why, attempt=step.attempt))
    elif step.status == "running" and losses(step) >= LOSSES_MAX:
        give_up_after_losses(work, step)
    else:
        await attempt(work, step, await work.arguments_of(step))


async def _settle_doubt(work: StepContext, step: Step | None) -> None:
    """A `once` step that may have happened: its policy decides, and by default a person does."""
    assert step is not None
    tool = work.tool_of(step)
    policy = work.call.policy.in_doubt or tool.in_doubt
    asked = work.driver.state.requests[step.request_id] if step.request_id else None
    can_verify = tool.can_verify and tool.name == step.tool
    if can_verify and (policy == "verify" if asked is None else _may_tell_more(work, step, asked)):
        await verify(work, step)
    elif asked is not None:
        await parking.answer(work.driver, step)
        await remedy(work, step)
    elif policy == "fail":
        fail(work, step, Failure(category="unknown", message=doubtful(step), happened="unknown"))
    elif policy == "retry" and not why_not_again(work, step):
        await attempt(work, step, await work.arguments_of(step))
    else:
        bound = why_not_again(work, step) if policy == "retry" else ""
        now = changed_input(work, step)
        ask_in_doubt(work, step, can_verify=can_verify, bound=bound, now=now)


def _may_tell_more(work: StepContext, step: Step, asked: Asked) -> bool:
    """Whether the tool's check failed in another process, or before a restart: this one may have other code."""
    return bool(asked.request.check_failed) and not asked.answered and work.verified_attempt != step.attempt


_Move = Callable[[StepContext, Step | None], Awaitable[None]]
_MOVES: dict[str, _Move] = {
    "pending": _begin,
    "waiting": _go_on_waiting,
    "retrying": _retry,
    "running": _again_after_loss,
    "interrupted": _again_after_loss,
    "in_doubt": _settle_doubt,
}


async def _diverged(driver: Driver, call: StepCall, step: Step, digest: str, asked: bytes) -> None:
    """The program asks for something else than it did. A function must not go on; in a plan, what happened counts."""
    if not call.strict:
        if not step.diverged:
            driver.append(ev.StepDiverged(at=driver.now_us(), path=call.path, recorded=step.digest, attempted=digest))
        return
    recorded = await recorded_text(driver, call.path)
    raise driver.diverged(call.path, recorded, f"{call.tool.name} {short(masks.json(asked))}")


async def recorded_text(driver: Driver, path: str) -> str:
    """What the journal says a step was asked: its tool and its arguments."""
    first = await driver.recorded_start(path)
    return f"{first.tool} {short(bytes(first.arguments))}" if first is not None else driver.state.steps[path].tool


def short(value: bytes, limit: int = 200) -> str:
    text = value.decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "…"
