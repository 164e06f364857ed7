"""Asking people: every request has one shape, is journaled before anybody sees it, and survives restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.failed_steps import failures_by_name
from holdfast.core.failure import Failure
from holdfast.core.forms import ASK
from holdfast.core.policy import Approval
from holdfast.core.resources import Usage
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver
    from holdfast.engine.program import FailureImpact, StepCall
    from holdfast.engine.step.step_context import StepContext

NOTE_CHARS_SHOWN = 300


def request_id(driver: Driver, path: str) -> str:
    """Stable and unique within the execution: the number of the event that will open it."""
    return f"{path}#{driver.state.seq + 2}"


def ask_for_approval(
    driver: Driver, call: StepCall, tool: Tool[..., Any], approval: Approval, arguments: bytes, digest: str
) -> None:
    """`digest` is of what the step was asked to do: what a person agreed to must not become something else."""
    at = driver.now_us()
    due_at = at + int(approval.expires_s * 1e6)
    request = ev.Request(
        id=request_id(driver, call.path),
        kind="approval",
        path=call.path,
        message=approval.message or f"run {tool.name}?",
        tool=tool.name,
        arguments=driver.keep(arguments),
        remedies=("approve", "deny"),
        expires_at=due_at,
        affects=call.stakes.skipped(),
        secrets=call.secrets,
        failed=failures_by_name(driver.state),
    )
    waiting = ev.StepWaiting(
        at=at, path=call.path, reason="approval", tool=tool.name, kind=call.kind, due_at=due_at, digest=digest
    )
    driver.append(waiting, ev.ApprovalRequested(at=at, request=request))


def ask_for_correction(
    driver: Driver, call: StepCall, step: Step, failure: Failure, spent_micros: int | None = None,
    used: Usage | None = None,
) -> None:  # fmt: skip
    """A failure that no retry can mend: somebody has to change something."""
    at = driver.now_us()
    remedies = ("again", "done", "skip", *_fallback(call, step), "fail")
    failure_ = msgspec.structs.replace(failure, remedies=remedies)
    request = ev.Request(
        id=request_id(driver, call.path),
        kind="correction",
        path=call.path,
        message=f"{step.tool} failed: {failure.message}",
        tool=step.tool,
        arguments=step.arguments or Raw(b"null"),
        remedies=remedies,
        failure=failure_,
        wants_output=driver.services.wants_output(driver.state, step.path, step.tool),
    )
    driver.append(
        ev.StepWaiting(
            at=at,
            path=call.path,
            reason="correction",
            tool=step.tool,
            kind=call.kind,
            spent_micros=spent_micros,
            used=used,
        ),
        ev.RequestOpened(at=at, request=request),
    )


def ask_in_doubt(
    work: StepContext, step: Step, *, can_verify: bool, check: str = "", check_failed: str = "", bound: str = "",
    now: bytes = b"",
) -> None:  # fmt: skip
    """`check` is what the tool's own check says, `bound` why the step is not run again by itself.

    `now` is what it would be called with, if that is another input than the one in doubt.
    """
    run, call, at = work.driver, work.call, work.driver.now_us()
    verify = ("verify",) if can_verify else ()
    remedies = ("done", "again", *verify, "skip", *_fallback(call, step), "fail")
    known = [
        f"its check failed: {check_failed}" if check_failed else check,
        f"{bound}, so it is not run again by itself" if bound and not now else "",
        "it is to be called with another input now, and again does that" if now else "",
    ]
    told = "".join(f"\n{line}" for line in known if line)
    request = ev.Request(
        id=f"{step.path}#{run.state.seq + 1}",
        kind="doubt",
        path=call.path,
        message=f"{step.tool} may or may not have happened: {step.reason}{told}{_noted(step)}",
        tool=step.tool,
        arguments=run.keep(now) if now else step.arguments or Raw(b"null"),
        recorded=step.arguments or Raw(b"null") if now else Raw(b"null"),
        remedies=remedies,
        failure=call.stakes.described(
            Failure(
                category="unknown", message=step.reason, happened="unknown", remedies=remedies,
                limit=step.failure.limit if step.failure is not None else "",
            )
        ),
        wants_output=run.services.wants_output(run.state, step.path, step.tool),
        check_failed=check_failed,
    )  # fmt: skip
    run.append(ev.RequestOpened(at=at, request=request))


def _noted(step: Step) -> str:
    """How far it had come by its own word: another attempt begins there, and not at the beginning."""
    if not step.notes:
        return ""
    noted = bytes(step.notes).decode()
    shown = noted if len(noted) <= NOTE_CHARS_SHOWN else f"{noted[:NOTE_CHARS_SHOWN]}…"
    return f"\nwhat is known: it had noted {shown}, and another attempt is given that to go on from"


def ask_question(
    driver: Driver, path: str, message: str, schema: Raw, expires_s: float | None = None, digest: str = ""
) -> None:
    at = driver.now_us()
    due_at = None if expires_s is None else at + int(expires_s * 1e6)
    request = ev.Request(
        id=request_id(driver, path), kind="question", path=path, message=message, schema=schema, remedies=("answer",),
        expires_at=due_at,
    )  # fmt: skip
    waiting = ev.StepWaiting(
        at=at, path=path, reason="answer", tool=ASK, kind="wait", name=message, due_at=due_at, digest=digest
    )
    driver.append(waiting, ev.RequestOpened(at=at, request=request))


def ask_alone(driver: Driver, path: str, approval: Approval, message: str, digest: str, stakes: FailureImpact) -> None:
    """An approval step: nothing but a person's yes or no."""
    at = driver.now_us()
    due_at = at + int(approval.expires_s * 1e6)
    request = ev.Request(
        id=request_id(driver, path),
        kind="approval",
        path=path,
        message=message,
        remedies=("approve", "deny"),
        expires_at=due_at,
        affects=stakes.skipped(),
        failed=failures_by_name(driver.state),
    )
    waiting = ev.StepWaiting(
        at=at, path=path, reason="approval", tool="approval", kind="approval", due_at=due_at, digest=digest
    )
    driver.append(waiting, ev.ApprovalRequested(at=at, request=request))


def denied(remedy: str, by: str, why: str) -> Failure:
    """The failure of a step that a person, or silence, said no to."""
    if remedy == "expired":
        message = "nobody approved it in time, and silence is a no"
    else:
        message = f"denied{f' by {by}' if by else ''}{f': {why}' if why else ''}"
    return Failure(category="permission", message=message, error="Denied", happened="nothing")


def _fallback(call: StepCall, step: Step) -> tuple[str, ...]:
    return ("fallback",) if step.fallback < len(call.fallbacks) else ()
