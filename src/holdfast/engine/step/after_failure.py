"""What follows a failed attempt: it is tried again, left in doubt, asked about, or given up.

The rule is `decide` in core/failure.py; here it is journaled.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.failure import AskForCorrection, Doubt, Failure, GiveUp, RecoveryOptions, decide
from holdfast.core.policy import LOSSES_MAX, Effect
from holdfast.core.resources import Usage
from holdfast.engine.step.budget_gate import bill, bill_of_cut
from holdfast.engine.step.human_requests import ask_for_correction
from holdfast.engine.step.step_context import StepContext
from holdfast.engine.step.step_history import retrying, tally
from holdfast.tools.call import Call
from holdfast.tools.tool import Tool


def after_failure(
    work: StepContext, failure: Failure, tool: Tool[..., Any], tried: Call, started_at: int, duration_us: int
) -> None:
    run, call = work.driver, work.call
    step = run.state.steps[call.path]
    failure = _with_less(step, failure)
    decision = decide(failure, means(work, tool, work.effect_of(tool)), tally(step), run.services.rng.random())
    at, spent = run.now_us(), bill(tool, tried, failure)
    failure = _of_reading(step, failure)
    if work.effect_of(tool) == "once" and failure.happened != "nothing":
        untried = tuple(other.tool.name for other in call.fallbacks[step.fallback :])
        failure = msgspec.structs.replace(failure, untried=untried)
    match decision:
        case Doubt():
            spent = bill_of_cut(tool, tried)
            run.append(
                ev.StepInDoubt(
                    at=at, path=call.path, attempt=tried.attempt, why=failure.message, spent_micros=spent,
                    used=tried.used, failure=failure if failure.limit else None,
                )
            )  # fmt: skip
        case AskForCorrection():
            ask_for_correction(run, call, step, call.stakes.described(failure), spent, tried.used)
        case GiveUp():
            fail(
                work, step, failure, started_at=started_at, duration_us=duration_us, spent_micros=spent, used=tried.used
            )
        case _:
            run.append(retrying(step, decision, failure, at, started_at, duration_us, spent, tried.used))


def means(work: StepContext, tool: Tool[..., Any], effect: Effect) -> RecoveryOptions:
    policy, is_agreed_to = work.call.policy, _is_agreed_to(work, tool)
    return RecoveryOptions(
        effect=effect,
        retry=policy.retry or tool.retry,
        fallbacks=len(work.call.fallbacks),
        can_reduce=tool.can_reduce and not is_agreed_to,
        only_people_reduce=tool.can_reduce and is_agreed_to,
        can_refresh=tool.can_refresh or work.driver.services.secrets.can_renew(work.call.secrets),
        on_error=policy.on_error,
        repeats_known=policy.retry is not None and not policy.retry_is_default,
    )


def _is_agreed_to(work: StepContext, tool: Tool[..., Any]) -> bool:
    """Whether a person said yes to this very input: then nobody makes another one of it but a person."""
    approval = work.call.policy.approval or tool.approval
    return approval is not None and tool.name not in work.driver.state.sticky


def give_up_after_losses(work: StepContext, step: Step) -> None:
    """A step that takes its process down with it would otherwise do so for ever."""
    message = f"its process ended {LOSSES_MAX} times while it ran"
    failure = _of_reading(step, Failure(category="unknown", message=message, happened="unknown"))
    if work.call.policy.on_error == "ask":
        ask_for_correction(work.driver, work.call, step, work.call.stakes.described(failure))
    else:
        fail(work, step, failure)


def _of_reading(step: Step, failure: Failure) -> Failure:
    """Whoever only reads has done nothing, however it ended. Before a fallback, another tool was tried."""
    if step.effect == "read" and not step.fallback and failure.happened == "unknown":
        return msgspec.structs.replace(failure, happened="nothing")
    return failure


def _with_less(step: Step, failure: Failure) -> Failure:
    """A limit that was met only because it had been made smaller must not be taken for a mistake of the plan."""
    before = step.failure
    is_met = step.reduced and not step.fallback and failure.error in ("InvalidCall", "TooLarge")
    if not is_met or before is None or before.category != "resource":
        return failure
    message = f"{failure.message}\nit ran with less, because the attempt before ran short: {before.message}"
    return msgspec.structs.replace(failure, message=message, category="resource")


def fail(  # noqa: PLR0913 -- one parameter per fact
    work: StepContext, step: Step, failure: Failure, *, by: str = "", started_at: int = 0, duration_us: int = 0,
    spent_micros: int | None = None, used: Usage | None = None,
) -> None:  # fmt: skip
    stakes = work.call.stakes
    work.driver.append(
        ev.StepFailed(
            at=work.driver.now_us(),
            path=step.path,
            failure=stakes.described(failure),
            attempt=step.attempt or 1,
            critical=stakes.critical,
            started_at=started_at,
            duration_us=duration_us,
            by=by,
            spent_micros=spent_micros,
            used=used,
        )
    )
