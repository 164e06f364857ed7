"""Ways out of a doubt or a failure that waits: what a tool's own check says, and what a person chose."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.failure import Failure, FallBack
from holdfast.core.skips import by_person
from holdfast.engine.commands.validation import output_done
from holdfast.engine.program import Planned, skipped
from holdfast.engine.step.after_failure import fail, means
from holdfast.engine.step.attempt import attempt
from holdfast.engine.step.budget_gate import refused_money
from holdfast.engine.step.human_requests import ask_in_doubt
from holdfast.engine.step.invoke import CheckFailed, verified
from holdfast.engine.step.kept import is_of_another_input
from holdfast.engine.step.step_context import StepContext
from holdfast.engine.step.step_history import doubtful, edited, retrying
from holdfast.tools.call import DidNotHappen, Unknown
from holdfast.tools.secrets.redaction import masks


async def verify(work: StepContext, step: Step, by: str = "") -> None:
    """Let the tool's own check say whether it happened; if that cannot tell, a person must. `by` asked for it."""
    run, tool, attempted = work.driver, work.tool_of(step), work.as_call(step)
    work.verified_attempt = step.attempt
    asked = run.state.requests.get(step.request_id)
    arguments = await work.arguments_of(step)
    try:
        verdict = await verified(run, tool, arguments, attempted)
        if isinstance(verdict, CheckFailed) and verdict.trace:
            run.voice.keep_trace(attempted, masks.text(verdict.trace))
    finally:
        run.voice.close(attempted)
    if step.status != "in_doubt" or (asked is not None and asked.answered and asked.remedy != "verify"):
        return  # meanwhile a person settled it
    match verdict:
        case bytes() as output:
            _complete(work, step, output, by, verified=True, warning=attempted.warning)
        case DidNotHappen():
            if is_of_another_input(work, step):
                _begin_anew(work, step)
            elif bound := why_not_again(work, step):
                _ask(work, step, check="its check says that it did not happen", bound=bound)
            else:
                await attempt(work, step, arguments)
        case Unknown():
            _ask(work, step, check="its check cannot tell")
        case CheckFailed(why):
            is_told = asked is not None and not asked.answered and asked.request.check_failed == why
            if not is_told:
                _ask(work, step, check_failed=why)


def _ask(work: StepContext, step: Step, *, check: str = "", check_failed: str = "", bound: str = "") -> None:
    ask_in_doubt(
        work, step, can_verify=True, check=check, check_failed=check_failed, bound=bound,
        now=changed_input(work, step),
    )  # fmt: skip


def changed_input(work: StepContext, step: Step) -> bytes:
    """What it would be called with now, if the doubt is about another input."""
    return masks.json(work.asked) if is_of_another_input(work, step) else b""


def why_not_again(work: StepContext, step: Step) -> str:
    """Why its policy alone must not run it once more; "" if it may."""
    if is_of_another_input(work, step):
        return "it is to be called with another input now"
    if work.lives_on(step):
        return "a call of it that was cut off still runs here"
    if step.doubts > means(work, work.tool_of(step), "once").retries():
        return f"it has been in doubt {step.doubts} times in a row"
    return ""


async def remedy(work: StepContext, step: Step) -> None:
    """Do what a person chose."""
    run = work.driver
    asked = run.state.requests[step.request_id]
    data = await run.value(asked.data) if asked.data else None
    match asked.remedy:
        case "done":
            tool = run.services.known_tool(asked.request.tool)
            _complete(work, step, output_done(tool, data if data is not None else b"null"), asked.by)
        case "again" if is_of_another_input(work, step):
            _begin_anew(work, step, asked.by)
        case "again":
            await attempt(work, step, edited(await work.arguments_of(step), data))
        case "verify":
            await verify(work, step, asked.by)
        case "raised":
            await attempt(work, step, await run.value(asked.request.arguments))
        case "skip":
            planned = Planned(critical=work.call.stakes.critical)
            run.append(skipped(run.now_us(), step.path, by_person(asked.by), planned, asked.by))
        case "fallback":
            failure = step.failure or Failure(category="unknown", message=doubtful(step))
            run.append(retrying(step, FallBack(step.fallback), failure, run.now_us()))
        case _ if asked.request.kind == "budget" and step.status != "in_doubt":
            fail(work, step, refused_money(asked.by), by=asked.by)
        case _:
            failure = step.failure or Failure(category="unknown", message=doubtful(step), happened="unknown")
            fail(work, step, failure, by=asked.by)


def _begin_anew(work: StepContext, step: Step, by: str = "") -> None:
    """What was in doubt had another input: what is done now is another effect, with another key."""
    run = work.driver
    run.append(ev.StepDiscarded(at=run.now_us(), path=step.path, why="its input is another one now", by=by))


def _complete(
    work: StepContext, step: Step, output: bytes, by: str = "", verified: bool = False, warning: str = ""
) -> None:
    run, at = work.driver, work.driver.now_us()
    kept: list[ev.Event] = []
    if not verified and is_of_another_input(work, step):  # whoever said so has seen both inputs
        recorded, attempted = step.digest, work.digest
        kept = [ev.StepDiverged(at=at, path=step.path, recorded=recorded, attempted=attempted, kept=True, by=by)]
    run.append(
        ev.StepCompleted(
            at=at, path=step.path, attempt=step.attempt, output=run.keep(output), started_at=step.started_at, by=by,
            verified=verified, warning=warning,
        ),
        *kept,
    )  # fmt: skip
