"""Waiting that survives: timers, events, answers, children. A wait is journaled first and holds nothing.

Each function is replay-safe: it looks at the step's recorded state, journals what is missing, and sleeps until the
journal can answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Child, Step
from holdfast.core.failure import Failure
from holdfast.core.forms import ASK, answer_of_silence
from holdfast.core.lifecycle import ENDS, STEP_ENDS
from holdfast.core.policy import Approval
from holdfast.engine.program import SERIOUS, ChildTask, FailureImpact, Outcome, StepCall
from holdfast.engine.step.budget_gate import share_with_child
from holdfast.engine.step.human_requests import ask_alone, ask_question, denied
from holdfast.engine.step.kept import Asked, settle
from holdfast.engine.step.parking import answer, due, is_due, moving, park
from holdfast.engine.step.perform import input_digest, outcome_of
from holdfast.engine.transfer.forks import inherited
from holdfast.journal.log import new_execution
from holdfast.tools.human import Question, asking
from holdfast.tools.json_values import encode

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


async def _as_step(driver: Driver, asked: Asked, work: Callable[[], Awaitable[None]]) -> Outcome:
    """Answer from history, or do the work, which ends the step."""
    path = asked.path
    step = await settle(driver, asked)
    if step is None or step.status not in STEP_ENDS:
        await driver.admit()
        await moving(driver, work())
    return await outcome_of(driver, driver.state.steps[path])


async def sleep(driver: Driver, path: str, due_at: int, name: str, digest: str) -> Outcome:
    async def work() -> None:
        _begin(driver, path, "timer", due_at, name, digest)
        step = driver.state.steps[path]
        await due(driver, step)
        driver.append(ev.StepCompleted(at=driver.now_us(), path=path))

    return await _as_step(driver, Asked(path, "wait.timer", digest, name=name), work)


def _begin(
    driver: Driver, path: str, reason: ev.ReasonKind, due_at: int | None, name: str = "", digest: str = ""
) -> None:
    """Journal the wait, unless it is waiting already: then the recorded time counts."""
    step = driver.state.steps.get(path)
    if step is None or step.status != "waiting" or step.reason == "correction":
        tool = f"wait.{reason}"
        waiting = ev.StepWaiting(
            at=driver.now_us(), path=path, reason=reason, tool=tool, kind="wait", due_at=due_at, name=name,
            digest=digest,
        )  # fmt: skip
        driver.append(waiting)


async def event(driver: Driver, path: str, name: str, due_at: int | None, stakes: FailureImpact) -> Outcome:
    async def work() -> None:
        _begin(driver, path, "event", due_at, name)
        step = driver.state.steps[path]
        reason = ev.Reason(kind="event", path=path, due_at=step.due_at, name=name)

        def is_ready() -> bool:
            return bool(driver.state.mailbox.get(name)) or is_due(driver, step.due_at)

        while not is_ready():  # what came may have been taken by another wait that was woken with this one
            await park(driver, reason, is_ready)
        received = driver.state.mailbox.get(name)
        if received:
            first = received[0]
            driver.append(ev.StepCompleted(at=driver.now_us(), path=path, output=first.data, consumed=first.seq))
        else:
            message = f'no event "{name}" arrived in time'
            failure = Failure(category="timeout", message=message, error="TimeoutError", happened="nothing")
            _fail(driver, path, failure, stakes)

    return await _as_step(driver, Asked(path, "wait.event", name=name), work)


def _fail(driver: Driver, path: str, failure: Failure, stakes: FailureImpact, by: str = "") -> None:
    described = stakes.described(failure)
    driver.append(ev.StepFailed(at=driver.now_us(), path=path, failure=described, critical=stakes.critical, by=by))


async def approval(driver: Driver, path: str, wanted: Approval, title: str, stakes: FailureImpact) -> Outcome:
    message = wanted.message or title or f"go on after {path}?"
    digest = input_digest("approval", encode(message))

    async def work() -> None:
        step = driver.state.steps.get(path)
        if step is None or not step.request_id or step.reason == "correction":
            ask_alone(driver, path, wanted, message, digest, stakes)
        step = driver.state.steps[path]
        await answer(driver, step)
        asked = driver.state.requests[step.request_id]
        at = driver.now_us()
        if asked.remedy == "granted":
            driver.append(ev.StepCompleted(at=at, path=path, output=Raw(b"true"), by=asked.by))
        else:
            _fail(driver, path, denied(asked.remedy, asked.by, asked.why), stakes, asked.by)

    return await _as_step(driver, Asked(path, "approval", digest), work)


async def question(
    driver: Driver, path: str, asked_for: Question, digest: str = "", stakes: FailureImpact = SERIOUS
) -> Outcome:  # fmt: skip
    async def work() -> None:
        step = driver.state.steps.get(path)
        if step is None or not step.request_id or step.reason == "correction":
            schema = Raw(msgspec.json.encode(asked_for.schema))
            ask_question(driver, path, asked_for.message, schema, asked_for.expires_s, digest)
        step = driver.state.steps[path]
        await answer(driver, step)
        asked = driver.state.requests[step.request_id]
        if asked.remedy == "expired":
            _end_in_silence(driver, asked.request, stakes)
        else:
            driver.append(
                ev.StepCompleted(at=driver.now_us(), path=path, output=asked.data or Raw(b"null"), by=asked.by)
            )

    return await _as_step(driver, Asked(path, ASK, digest, name=asked_for.message), work)


def _end_in_silence(driver: Driver, request: ev.Request, stakes: FailureImpact) -> None:
    """Nobody answered: what counts then was journaled with the question."""
    said = answer_of_silence(msgspec.json.decode(request.schema))
    if said is not None:
        output = driver.keep(msgspec.json.encode(said[0]))
        driver.append(ev.StepCompleted(at=driver.now_us(), path=request.path, output=output))
        return
    failure = Failure(category="timeout", message="nobody answered in time", error="TimeoutError", happened="nothing")
    _fail(driver, request.path, failure, stakes)


async def ask(driver: Driver, call: StepCall) -> Outcome:
    """A step whose tool is a person. What was asked first counts, as with any step."""
    arguments = encode(call.arguments, call.path)
    digest = input_digest(call.tool.name, arguments)
    step = driver.state.steps.get(call.path)
    if step is not None and not step.kept and step.digest and step.digest != digest:
        if call.strict:
            raise driver.diverged(call.path, f"{step.tool} {step.name}", f"{call.tool.name} {call.arguments}")
        if not step.diverged:
            driver.append(ev.StepDiverged(at=driver.now_us(), path=call.path, recorded=step.digest, attempted=digest))
    return await question(driver, call.path, asking.question(call.arguments), digest, call.stakes)


async def start_child(driver: Driver, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str) -> str:
    """Create the child in the transaction that says so in the parent; both exist, or neither does."""
    child = driver.state.children.get(path)
    if child is not None:
        return child.id
    asked, step = Asked(path, "child", digest), driver.state.steps.get(path)
    is_another = step is not None and step.kind == "child" and asked.differs(step)
    if not is_another:
        step = await settle(driver, asked)
    if step is not None and step.status in STEP_ENDS and not is_another:
        return ""
    known = step if step is not None else driver.state.carried.get(path)
    before = known.child_id if known is not None else ""
    await driver.admit()
    task = await make()
    created, copied, blobs = await inherited(driver.services.store, before, task.created)
    await driver.admit()  # once more: whoever paused it meanwhile was told that nothing new begins
    at = driver.now_us()
    begun = ev.StepStarted(at=at, path=path, tool="child", kind="child", digest=digest, child_id=before)
    if is_another:
        driver.append(ev.StepDiscarded(at=at, path=path, why="its inputs are others now"), begun)
    elif step is None or step.reason == "correction":
        driver.append(begun)
    if driver.state.spend.limit_micros is not None:
        created, reserved = await moving(driver, share_with_child(driver, path, created))
    else:
        reserved = None
    new, _ = new_execution(driver.services.new_id(), [created, *copied], blobs=blobs)
    started = ev.ChildStarted(at=driver.now_us(), path=path, child_id=new.head.id, reserved_micros=reserved)
    driver.append(started, creates=[new])
    await moving(driver, driver.durable())  # nobody may say that it waits, before it can say for this child
    driver.services.on_child(new.head.id)
    return new.head.id


async def child(driver: Driver, path: str, stakes: FailureImpact) -> Child:
    step = driver.state.steps[path]
    known = driver.state.children.get(path) or _as_recorded(step)
    if step.status not in STEP_ENDS:
        reason = ev.Reason(kind="child", path=path, name=known.id)
        await moving(driver, park(driver, reason, lambda: known.status in ENDS))
        _close_child(driver, path, known, stakes)
    return known


def _as_recorded(step: Step) -> Child:
    """A fork keeps the outcome of a child step, not the child, which belongs to the execution it was forked from."""
    return Child(id="", path=step.path, status=step.status, output=step.output, failure=step.failure)


def _close_child(driver: Driver, path: str, known: Child, stakes: FailureImpact) -> None:
    if known.status == "completed":
        driver.append(ev.StepCompleted(at=driver.now_us(), path=path, output=known.output))
    else:
        message = known.failure.message if known.failure else f"the child execution was {known.status}"
        _fail(driver, path, known.failure or Failure(category="tool", message=message), stakes)
