"""What a driver offers the program it runs: the port of program.py, as one execution's journal answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import Suspended
from holdfast.core.execution import Child
from holdfast.core.failure import Failure
from holdfast.core.forms import ASK
from holdfast.core.policy import Approval
from holdfast.engine import waits
from holdfast.engine.program import SERIOUS, ChildTask, Outcome, Stakes, StepCall
from holdfast.engine.step import perform
from holdfast.tools.human import Question
from holdfast.tools.masks import masks

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver


class DriverSteps:
    def __init__(self, run: Driver) -> None:
        self._run = run
        self.state = run.state
        self.now_us = run.now_us
        self.value = run.value
        self.keep = run.keep
        self.wait_extended = run.wait_extended
        self.admit = run.admit
        self.dice = run.services.dice

    def expect(self, path: str, tool: str, name: str = "", digest: str = "") -> None:
        step = self.state.steps.get(path)
        if step is None or not step.tool:
            return
        if (step.tool, step.name) != (tool, name):
            raise self._run.diverged(path, f"{step.tool} {step.name}".rstrip(), f"{tool} {name}".rstrip())
        if digest and step.digest and digest != step.digest:
            raise self._run.diverged(path, f"{tool} with other inputs", tool)

    async def start_child(self, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str = "") -> str:
        return await waits.start_child(self._run, path, make, digest)

    async def wait_child(self, path: str, stakes: Stakes = SERIOUS) -> Child:
        return await waits.child(self._run, path, stakes)

    async def perform(self, call: StepCall) -> Outcome:
        if call.tool.name == ASK:
            return await waits.ask(self._run, call)
        return await perform(self._run, call)

    def open(
        self, path: str, kind: ev.StepKind, *, total: int = 0, title: str = "", arguments: bytes = b"null"
    ) -> None:
        step = self.state.steps.get(path)
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

    def skip(
        self, path: str, reason: str, *, tool: str = "", kind: ev.StepKind = "tool", critical: bool = True
    ) -> None:
        step = self.state.steps.get(path)
        if step is None or step.status not in ("skipped", "completed", "failed"):
            at = self.now_us()
            self._record(ev.StepSkipped(at=at, path=path, reason=reason, tool=tool, kind=kind, critical=critical))

    def _record(self, event: ev.Event) -> None:
        """A program that is being let go of is cancelled in many places, and may take what was cut off for done: its
        word counts no more.
        """
        if self._run.cause is not None:
            raise Suspended
        self._run.append(event)

    async def sleep(self, path: str, due_at: int, name: str = "") -> Outcome:
        return await waits.sleep(self._run, path, due_at, name)

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: Stakes = SERIOUS) -> Outcome:
        return await waits.event(self._run, path, name, due_at, stakes)

    async def approve(self, path: str, approval: Approval, *, title: str = "", stakes: Stakes = SERIOUS) -> Outcome:
        return await waits.approval(self._run, path, approval, title, stakes)

    async def ask(self, path: str, message: str, schema: Raw) -> Outcome:
        return await waits.question(self._run, path, Question(message=message, schema=msgspec.json.decode(schema)))
