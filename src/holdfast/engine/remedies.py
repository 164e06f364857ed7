"""Ways out of a doubt or a failure that waits: what a tool's own check says, and what a person chose."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.failure import Failure, FallBack
from holdfast.engine.attempt import verified
from holdfast.engine.budgeting import refused_money
from holdfast.engine.failing import fail
from holdfast.engine.reckoning import doubtful, edited, retrying
from holdfast.engine.requests import ask_in_doubt
from holdfast.engine.trying import attempt
from holdfast.engine.work import Work
from holdfast.tools.call import DidNotHappen


async def verify(work: Work, step: Step) -> None:
    """Let the tool's own check say whether it happened; if that cannot tell, a person must."""
    arguments = await work.arguments_of(step)
    match await verified(work.run, work.tool_of(step), arguments, work.as_call(step)):
        case bytes() as output:
            _complete(work, step, output, verified=True)
        case DidNotHappen():
            await attempt(work, step, arguments)
        case _:
            ask_in_doubt(work.run, work.call, step)


async def remedy(work: Work, step: Step) -> None:
    """Do what a person chose."""
    run = work.run
    asked = run.state.requests[step.request_id]
    data = await run.value(asked.data) if asked.data else None
    match asked.remedy:
        case "done":
            _complete(work, step, data if data is not None else b"null", asked.by)
        case "again":
            await attempt(work, step, edited(await work.arguments_of(step), data))
        case "raised":
            await attempt(work, step, await run.value(asked.request.arguments))
        case "skip":
            reason = f"skipped by {asked.by}" if asked.by else "skipped by a person"
            critical = work.call.stakes.critical
            run.append(ev.StepSkipped(at=run.now_us(), path=step.path, reason=reason, by=asked.by, critical=critical))
        case "fallback":
            failure = step.failure or Failure(category="unknown", message=doubtful(step))
            run.append(retrying(step, FallBack(step.fallback), failure, run.now_us()))
        case _ if asked.request.kind == "budget" and step.status != "in_doubt":
            fail(work, step, refused_money(asked.by), by=asked.by)
        case _:
            failure = step.failure or Failure(category="unknown", message=doubtful(step), happened="unknown")
            fail(work, step, failure, by=asked.by)


def _complete(work: Work, step: Step, output: bytes, by: str = "", verified: bool = False) -> None:
    run = work.run
    run.append(
        ev.StepCompleted(
            at=run.now_us(), path=step.path, attempt=step.attempt, output=run.keep(output),
            started_at=step.started_at, by=by, verified=verified,
        )
    )  # fmt: skip
