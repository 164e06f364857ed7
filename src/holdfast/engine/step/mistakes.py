"""A step that cannot begin because what its plan says cannot be worked out: it waits for a person's correction.

    again        it is worked out once more; of a tool, with the arguments that the person gives
    done         it counts as completed, with the output that the person gives
    skip, fail

The program evaluates first and comes here when that fails, also on a replay: so the answer is found in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import StepFailed
from holdfast.core.execution import Asked, Step
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.core.skips import by_person
from holdfast.engine.program import Mistake, Outcome
from holdfast.engine.step.human_requests import request_id
from holdfast.engine.step.parking import answer, moving
from holdfast.engine.step.perform import outcome_of
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver

REMEDIES = ("again", "done", "skip", "fail")


async def correct(driver: Driver, mistake: Mistake) -> Outcome | Mapping[str, Any] | None:
    """How the step ended, the arguments to call it with, or None: then it is to be worked out once more."""
    step = driver.state.steps.get(mistake.path)
    if step is not None and step.kept and step.status == "completed":
        step = _discard(driver, mistake, step)
    if step is not None and step.status in STEP_ENDS:
        return await outcome_of(driver, step)
    asked = driver.state.requests.get(step.request_id) if step is not None else None
    if step is not None and mistake.kind == "tool" and (step.attempt or _is_approval(asked)):
        recorded = step.arguments if step.attempt else asked.request.arguments if asked is not None else None
        return msgspec.json.decode(await driver.value(recorded)) if recorded else {}
    if asked is not None and asked.remedy == "again" and (given := await _given(driver, mistake, asked)) is not None:
        return given
    await driver.admit()
    if asked is None or asked.remedy == "again":  # which has led here once more
        _ask(driver, mistake)
    return await moving(driver, _answered(driver, mistake))


def _discard(driver: Driver, mistake: Mistake, step: Step) -> Step | None:
    """What was copied from another execution counts for the input it had, and nobody can tell what that is now."""
    if step.effect == "once":
        raise StepFailed(mistake.path, mistake.failure)
    driver.append(ev.StepDiscarded(at=driver.now_us(), path=step.path, why="its input cannot be worked out now"))
    return None


def _is_approval(asked: Asked | None) -> bool:
    return asked is not None and asked.request.kind == "approval"


def _ask(driver: Driver, mistake: Mistake) -> None:
    at = driver.now_us()
    tool = mistake.tool if mistake.kind == "tool" else ""
    failure = msgspec.structs.replace(masks.failure(mistake.failure), remedies=REMEDIES)
    request = ev.Request(
        id=request_id(driver, mistake.path),
        kind="correction",
        path=mistake.path,
        message=f"cannot begin: {failure.message}",
        tool=tool,
        arguments=driver.keep(masks.json(mistake.arguments)),
        remedies=REMEDIES,
        failure=failure,
        wants_output=driver.services.wants_output(driver.state, mistake.path, tool),
    )
    waiting = ev.StepWaiting(at=at, path=mistake.path, reason="correction", tool=mistake.tool, kind=mistake.kind)
    driver.append(waiting, ev.RequestOpened(at=at, request=request))


async def _answered(driver: Driver, mistake: Mistake) -> Outcome | Mapping[str, Any] | None:
    step = driver.state.steps[mistake.path]
    await answer(driver, step)
    asked, at = driver.state.requests[step.request_id], driver.now_us()
    match asked.remedy:
        case "again":
            return await _given(driver, mistake, asked)
        case "done":
            driver.append(
                ev.StepCompleted(at=at, path=step.path, output=asked.data or driver.keep(b"null"), by=asked.by)
            )
        case "skip":
            why = by_person(asked.by)
            driver.append(ev.StepSkipped(at=at, path=step.path, reason=why.reason, code=why.code, by=asked.by))
        case _:
            failure = masks.failure(mistake.failure)
            driver.append(ev.StepFailed(at=at, path=step.path, failure=failure, critical=mistake.critical, by=asked.by))
    return await outcome_of(driver, driver.state.steps[mistake.path])


async def _given(driver: Driver, mistake: Mistake, asked: Asked) -> Mapping[str, Any] | None:
    """The arguments that were known and those that a person gave, if none is missing any more."""
    edits: Any = msgspec.json.decode(await driver.value(asked.data)) if asked.data else None
    if mistake.kind != "tool" or not mistake.missing or not isinstance(edits, dict):
        return None
    named = cast("dict[str, Any]", edits)
    if not mistake.missing <= named.keys():
        return None
    return {**cast("dict[str, Any]", msgspec.json.decode(mistake.arguments)), **named}
