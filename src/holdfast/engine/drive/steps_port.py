"""What a driver offers the program it runs: the port of program.py, as one execution's journal answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import Suspended
from holdfast.core.execution import Child
from holdfast.core.failure import Failure
from holdfast.core.forms import ASK
from holdfast.core.policy import Approval
from holdfast.core.skips import Skip
from holdfast.engine.program import (
    PLANNED,
    SERIOUS,
    ChildTask,
    FailureImpact,
    Mistake,
    Outcome,
    Planned,
    StepCall,
    skipped,
)
from holdfast.engine.step import durable_waits
from holdfast.engine.step.kept import Asked, asked_of, is_once_done, settle, settle_items, settle_left_out
from holdfast.engine.step.mistakes import correct
from holdfast.engine.step.perform import input_digest, outcome_of, perform, recorded_text
from holdfast.tools.human import Question
from holdfast.tools.json_values import encode
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


CANCELLED = "another branch of the same ctx.gather failed"


class DriverSteps:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.state = driver.state
        self.now_us = driver.now_us
        self.value = driver.value
        self.keep = driver.keep
        self.wait_extended = driver.wait_extended
        self.admit = driver.admit
        self.rng = driver.services.rng

    def expect(self, path: str, tool: str, name: str = "", digest: str = "") -> None:
        step = self.state.steps.get(path)
        if step is None or not step.tool:
            return
        if step.kept and tool != "code":
            return  # judged where it is asked for, and a person may have to be asked
        if step.kept and step.tool != tool and not is_once_done(step):
            self._record(ev.StepDiscarded(at=self.now_us(), path=path, why=f"it is {tool} now"))
            return
        if (step.tool, step.name) != (tool, name):
            raise self._driver.diverged(path, f"{step.tool} {step.name}".rstrip(), f"{tool} {name}".rstrip())
        if digest and step.digest and digest != step.digest:
            raise self._driver.diverged(path, f"{tool} with other inputs", tool)

    async def dropped(self, path: str, attempted: str) -> None:
        raise self._driver.diverged(path, await recorded_text(self._driver, path), attempted, dropped=True)

    def tell_recorded(self, told: Callable[[Sequence[ev.Event], int], None] | None) -> None:
        self._driver.on_recorded = told

    def end_wait(self, path: str) -> None:
        self._driver.end_wait(path)

    def cancelled(self, path: str) -> None:
        step = self.state.steps.get(path)
        if step is not None and step.kind != "child" and step.status in ("waiting", "retrying"):
            self._record(ev.StepSkipped(at=self.now_us(), path=path, reason=CANCELLED))

    def given_up(self, path: str) -> None:
        step = self.state.steps.get(path)
        if (
            step is None
            or step.status != "running"
            or step.kind not in ("tool", "code")
            or self._driver.cause is not None
        ):
            return
        at, why = self.now_us(), "its process ended while it ran, and its program then cancelled it"
        if step.effect == "once":
            self._record(ev.StepInDoubt(at=at, path=path, why=why, attempt=step.attempt))
        else:
            self._record(ev.StepInterrupted(at=at, path=path, attempt=step.attempt, lost=True))

    async def start_child(self, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str = "") -> str:
        return await durable_waits.start_child(self._driver, path, make, digest)

    async def wait_child(self, path: str, stakes: FailureImpact = SERIOUS) -> Child:
        return await durable_waits.child(self._driver, path, stakes)

    async def perform(self, call: StepCall) -> Outcome:
        if call.tool.name == ASK:
            return await durable_waits.ask(self._driver, call)
        return await perform(self._driver, call)

    def open(
        self, path: str, kind: ev.StepKind, *, total: int = 0, title: str = "", arguments: bytes = b"null"
    ) -> None:
        step = self.state.steps.get(path)
        if step is not None and step.status == "waiting" and step.attempt:
            return  # its output cannot be worked out, and a person is asked about that
        if step is None or step.status not in ("running", "completed", "failed", "skipped"):
            started = ev.StepStarted(
                at=self.now_us(), path=path, tool=kind, kind=kind, total=total, title=title,
                arguments=self.keep(arguments),
            )  # fmt: skip
            self._record(started)

    def close(self, path: str, output: bytes = b"null") -> None:
        step = self.state.steps[path]
        if step.status != "completed":
            at = self.now_us()
            self._record(
                ev.StepCompleted(
                    at=at, path=path, output=self.keep(masks.json(output)), started_at=step.started_at,
                    duration_us=max(0, at - step.started_at),
                )
            )  # fmt: skip

    def fail(self, path: str, failure: Failure, *, critical: bool = True) -> None:
        step = self.state.steps.get(path)
        if step is None or step.status != "failed":
            self._record(ev.StepFailed(at=self.now_us(), path=path, failure=masks.failure(failure), critical=critical))

    def skip(self, path: str, why: Skip, planned: Planned = PLANNED) -> None:
        step = self.state.steps.get(path)
        if step is None or step.status not in ("skipped", "completed", "failed"):
            self._record(skipped(self.now_us(), path, why, planned))

    def _record(self, event: ev.Event) -> None:
        """A program that is being let go of is cancelled in many places, and may take what was cut off for done: its
        word counts no more.
        """
        if self._driver.cause is not None:
            raise Suspended
        self._driver.append(event)

    async def correct(self, mistake: Mistake) -> Outcome | Mapping[str, Any] | None:
        if self._driver.cause is not None:
            raise Suspended
        return await correct(self._driver, mistake)

    async def settle_container(self, path: str, kind: ev.StepKind) -> None:
        await settle(self._driver, Asked(path, kind))

    async def settle_items(self, path: str, calls: Sequence[StepCall]) -> None:
        asked: list[Asked] = []
        for call in calls:
            arguments = encode(call.arguments, call.path)
            asked.append(asked_of(call, input_digest(call.tool.name, arguments), arguments))
        await settle_items(self._driver, path, asked)

    async def left_out(self, path: str, why: Skip, planned: Planned = PLANNED) -> Outcome:
        if path in self.state.steps and await settle_left_out(self._driver, path, critical=planned.critical):
            return await outcome_of(self._driver, self.state.steps[path])
        self.skip(path, why, planned)
        return Outcome(status="skipped", reason=why.reason, skip_code=why.code)

    async def sleep(self, path: str, due_at: int, name: str = "", digest: str = "") -> Outcome:
        return await durable_waits.sleep(self._driver, path, due_at, name, digest)

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: FailureImpact = SERIOUS) -> Outcome:
        return await durable_waits.event(self._driver, path, name, due_at, stakes)

    async def approve(
        self, path: str, approval: Approval, *, title: str = "", stakes: FailureImpact = SERIOUS
    ) -> Outcome:
        return await durable_waits.approval(self._driver, path, approval, title, stakes)

    async def ask(self, path: str, message: str, schema: Raw) -> Outcome:
        digest = input_digest(ASK, encode([message, msgspec.json.decode(schema)]))
        asked_for = Question(message=message, schema=msgspec.json.decode(schema))
        return await durable_waits.question(self._driver, path, asked_for, digest)
