"""When an outcome that was copied from another execution counts, and what happens when it does not.

It is judged when the program asks for the step, against the input that it has by then; copies.py says what is copied.

    the recorded input                      it counts
    another one, of a `once` tool           a person sees both inputs: `done` keeps the outcome, `again` repeats it
    another one, of anything else           it is discarded, and the step begins anew

A doubt that was copied is settled in perform.py; nothing is repeated there with another input unless its check or a
person says that it did not happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.skips import by_person
from holdfast.engine.program import Planned, skipped
from holdfast.engine.step.parking import answer, moving
from holdfast.engine.step.step_context import input_digest
from holdfast.journal.log import read_events
from holdfast.tools.json_values import encode
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver
    from holdfast.engine.program import StepCall
    from holdfast.engine.step.step_context import StepContext

INPUT_CHARS_SHOWN = 120
ITEMS_SHOWN = 5
LEFT_OUT = "when"  # what stands for the input of a step whose condition is false now
_CHANGED = "its input is another one now"


class Asked(NamedTuple):
    """What a program asks for, where a copy stands."""

    path: str
    tool: str
    digest: str = ""
    arguments: bytes = b"null"
    name: str = ""
    fallbacks: tuple[str, ...] = ()  # the digests of those that have an input of their own
    critical: bool = True

    def differs(self, step: Step) -> bool:
        """Whether the copy is of something else. Where no digest was recorded, tool and name tell."""
        if not step.kept or (step.accepted and step.accepted == self.digest):
            return False
        if step.digest and self.digest:
            return step.digest != self.digest or self._is_other_fallback(step)
        return (step.tool, step.name) != (self.tool, self.name)

    def _is_other_fallback(self, step: Step) -> bool:
        if not step.fallback_digest:
            return False
        return step.fallback_digest not in self.fallbacks[step.fallback - 1 : step.fallback]


def asked_of(call: StepCall, digest: str, arguments: bytes) -> Asked:
    others = tuple(
        "" if other.arguments is None else input_digest(other.tool.name, encode(other.arguments))
        for other in call.fallbacks
    )
    return Asked(call.path, call.tool.name, digest, arguments, "", others, call.stakes.critical)


async def settle(driver: Driver, asked: Asked) -> Step | None:
    """The step as it stands once its copy counts or is gone. A doubt is left as it is, if it is of the same kind."""
    step = driver.state.steps.get(asked.path)
    if step is None or not asked.differs(step):
        return step
    await driver.admit()
    if step.status == "completed" and not _is_once(step):
        driver.append(ev.StepDiscarded(at=driver.now_us(), path=step.path, why=_CHANGED))
    elif step.status == "completed":
        await moving(driver, _ask(driver, asked.path, [asked], ("done", "again", "skip")))
    elif asked.tool != step.tool:
        await moving(driver, _ask(driver, asked.path, [asked], ("again",)))
    return driver.state.steps.get(asked.path)


async def settle_items(driver: Driver, path: str, asked: Sequence[Asked]) -> None:
    """The items of one for_each are one question to a person."""
    steps = driver.state.steps
    changed = [one for one in asked if is_once_done(steps[one.path]) and one.differs(steps[one.path])]
    if changed:
        await driver.admit()
        await moving(driver, _ask(driver, path, changed, ("done", "again")))


async def settle_call(driver: Driver, call: StepCall, digest: str, arguments: bytes) -> Step | None:
    return await settle(driver, asked_of(call, digest, arguments))


async def settle_left_out(driver: Driver, path: str, *, critical: bool = True) -> bool:
    """Of a step whose condition is false now: whether its copied outcome stays all the same."""
    step = driver.state.steps[path]
    if step.status != "completed":
        return False
    if step.accepted == LEFT_OUT:
        return True
    await driver.admit()
    if _is_once(step):
        await moving(
            driver, _ask(driver, path, [Asked(path, step.tool, LEFT_OUT, critical=critical)], ("done", "skip"))
        )
    else:
        driver.append(ev.StepDiscarded(at=driver.now_us(), path=path, why="its condition is false now"))
    step = driver.state.steps.get(path)
    return step is not None and step.status == "completed"


def is_of_another_input(work: StepContext, step: Step) -> bool:
    return step.kept and asked_of(work.call, work.digest, work.asked).differs(step)


def is_once_done(step: Step) -> bool:
    return step.kept and step.status == "completed" and _is_once(step)


def _is_once(step: Step) -> bool:
    return step.effect == "once" and step.kind in ("tool", "code")


# ---- asking a person -------------------------------------------------------------------------------------------


async def _ask(driver: Driver, path: str, asked: Sequence[Asked], remedies: tuple[str, ...]) -> None:
    """`path` is the step, or the for_each around the items."""
    step = driver.state.steps[path]
    if not step.request_id:
        request = await _request(driver, path, asked, remedies)
        driver.append(ev.RequestOpened(at=driver.now_us(), request=request))
    await answer(driver, step)
    said = driver.state.requests[step.request_id]
    at, by = driver.now_us(), said.by
    for one in asked:
        if said.remedy == "done":
            recorded = driver.state.steps[one.path].digest
            driver.append(
                ev.StepDiverged(at=at, path=one.path, recorded=recorded, attempted=one.digest, kept=True, by=by)
            )
            continue
        driver.append(ev.StepDiscarded(at=at, path=one.path, why=_CHANGED, by=by))
        if said.remedy == "skip":
            planned = Planned(one.tool, step.kind, one.critical)
            driver.append(skipped(at, one.path, by_person(by), planned, by))


async def _request(driver: Driver, path: str, asked: Sequence[Asked], remedies: tuple[str, ...]) -> ev.Request:
    recorded = await _recorded(driver, {one.path for one in asked})
    now = {one.path: masks.json(one.arguments) for one in asked}
    lines = [
        f"{one.path}: {_was(driver, one, recorded[one.path])}, {_is(one, now[one.path])}" for one in asked[:ITEMS_SHOWN]
    ]
    if len(asked) > ITEMS_SHOWN:
        lines.append(f"and {len(asked) - ITEMS_SHOWN} more")
    is_one = len(asked) == 1 and asked[0].path == path
    return ev.Request(
        id=f"{path}#{driver.state.seq + 1}",
        kind="correction",
        path=path,
        message="\n".join(["what was done before has another input now:", *lines]),
        tool=asked[0].tool,
        arguments=driver.keep(now[path] if is_one else _map_of(now)),
        recorded=driver.keep(recorded[path] if is_one else _map_of(recorded)),
        remedies=remedies,
        keeps=True,
    )


def _was(driver: Driver, asked: Asked, recorded: bytes) -> str:
    step = driver.state.steps[asked.path]
    happened = "completed" if step.status == "completed" else "may or may not have happened"
    return f"{step.tool} {happened} with {_short(recorded)}"


def _is(asked: Asked, now: bytes) -> str:
    return "and its condition is false now" if asked.digest == LEFT_OUT else f"and is to be {asked.tool} {_short(now)}"


def _map_of(values: dict[str, bytes]) -> bytes:
    return msgspec.json.encode({path: Raw(value) for path, value in values.items()})


async def _recorded(driver: Driver, paths: set[str]) -> dict[str, bytes]:
    """The input that each copied outcome had; it is in the journal alone."""
    found = dict.fromkeys(paths, b"null")
    for _, event in await read_events(driver.services.store, driver.state.id, 0):
        if isinstance(event, ev.StepStarted) and event.path in paths:
            found[event.path] = await driver.value(event.arguments)
    return found


def _short(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return text if len(text) <= INPUT_CHARS_SHOWN else text[:INPUT_CHARS_SHOWN] + "…"
