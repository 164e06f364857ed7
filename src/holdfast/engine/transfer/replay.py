"""What today's code makes of a recorded execution: it runs against the journal, nothing is called, nothing is written.

History answers every step that has an outcome. Where it has none, the replay ends: that is where the code would go on.
A function that asks for something else than it recorded is found out here, before anything is changed. Functions only:
in a plan the recorded outcome wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import Divergence, StoreCorrupted
from holdfast.core.execution import Child, Execution
from holdfast.core.failure import Failure
from holdfast.core.fold import apply
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.core.policy import Approval
from holdfast.core.skips import Skip
from holdfast.engine.drive.driver import divergence
from holdfast.engine.program import (
    PLANNED,
    SERIOUS,
    ChildTask,
    FailureImpact,
    Mistake,
    Outcome,
    Planned,
    Program,
    StepCall,
    skipped,
)
from holdfast.engine.services import Services
from holdfast.engine.step.kept import Asked, asked_of
from holdfast.engine.step.perform import input_digest, short
from holdfast.journal.blobs import fetch_value
from holdfast.journal.log import read_events
from holdfast.tools.json_values import encode
from holdfast.tools.secrets.redaction import masks

PATIENCE_S = 5.0  # for code that waits for something else than its steps: what it would do next is then not known
TURNS_AT_END = 20  # of the event loop, in which other branches come to the end of what is recorded, too


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """`goes_on_with` are the steps where history ends, and `ended` says that the code came to its end before that."""

    divergence: str = ""
    goes_on_with: tuple[str, ...] = ()
    ended: bool = False


async def replay(services: Services, state: Execution, program: Program) -> Replayed:
    """Run the program against this state, which is used up by that."""
    steps = HistorySteps(services, state)
    running = asyncio.ensure_future(program.run(steps))
    at_end = asyncio.ensure_future(steps.at_end.wait())
    try:
        await asyncio.wait({running, at_end}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(TURNS_AT_END if steps.at_end.is_set() else 0):
            await asyncio.sleep(0)
        if steps.divergence is None and running.done() and isinstance(error := _error_of(running), Divergence):
            steps.divergence = error
        return Replayed(divergence=str(steps.divergence or ""), goes_on_with=tuple(steps.reached), ended=running.done())
    finally:
        at_end.cancel()
        running.cancel()
        await asyncio.wait({running, at_end}, timeout=services.limits.interrupt_grace_s)
        if running.done():
            _error_of(running)
        else:
            services.leave_behind(running)


def _error_of(running: asyncio.Future[bytes]) -> BaseException | None:
    with suppress(asyncio.CancelledError):
        return running.exception()
    return None


class HistorySteps:
    """The port of program.py, as a journal answers it that nobody writes."""

    def __init__(self, services: Services, state: Execution) -> None:
        self.state = state
        self.rng = Random("replay")
        self.divergence: Divergence | None = None
        self.reached: list[str] = []
        self.at_end = asyncio.Event()
        self._services = services

    def now_us(self) -> int:
        return max(self._services.clock.now_us(), self.state.last_at)

    async def admit(self) -> None: ...

    async def _never(self, path: str) -> NoReturn:
        """History ends here."""
        self.reached.append(path)
        self.at_end.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def _diverges(self, path: str, recorded: str, attempted: str, *, dropped: bool = False) -> Divergence:
        error = divergence(path, recorded, attempted, dropped=dropped)
        self.divergence = self.divergence or error
        self.at_end.set()
        return error

    async def _recorded_text(self, path: str) -> str:
        for _, event in await read_events(self._services.store, self.state.id, 0):
            if isinstance(event, ev.StepStarted) and event.path == path:
                return f"{event.tool} {short(bytes(event.arguments))}"
        return self.state.steps[path].tool

    # ---- steps with an outcome ----------------------------------------------------------------------------------

    async def perform(self, call: StepCall) -> Outcome:
        step = self.state.steps.get(call.path)
        asked = encode(call.arguments, call.path)
        digest = input_digest(call.tool.name, asked)
        if step is not None and step.kept:
            await self._settle(asked_of(call, digest, asked))
        elif step is not None and call.strict and (step.digest != digest if step.digest else step.kind != call.kind):
            recorded = await self._recorded_text(call.path)
            raise self._diverges(call.path, recorded, f"{call.tool.name} {short(masks.json(asked))}")
        return await self._outcome(call.path)

    async def _settle(self, asked: Asked) -> None:
        """A copied outcome of another input does not count; the step begins anew, or a person is asked."""
        step = self.state.steps.get(asked.path)
        if step is not None and asked.differs(step):
            await self._never(asked.path)

    async def _outcome(self, path: str) -> Outcome:
        step = self.state.steps.get(path)
        if step is None or step.status not in STEP_ENDS:
            await self._never(path)
        if step.status == "completed":
            return Outcome(status="completed", output=await self.value(step.output))
        if step.status == "failed":
            return Outcome(status="failed", failure=step.failure)
        return Outcome(status="skipped", reason=step.reason, skip_code=step.skip_code)

    async def sleep(self, path: str, due_at: int, name: str = "", digest: str = "") -> Outcome:
        await self._settle(Asked(path, "wait.timer", digest, name=name))
        return await self._outcome(path)

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: FailureImpact = SERIOUS) -> Outcome:
        return await self._outcome(path)

    async def approve(
        self, path: str, approval: Approval, *, title: str = "", stakes: FailureImpact = SERIOUS
    ) -> Outcome:
        return await self._outcome(path)

    async def ask(self, path: str, message: str, schema: Raw) -> Outcome:
        return await self._outcome(path)

    async def start_child(self, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str = "") -> str:
        child, step = self.state.children.get(path), self.state.steps.get(path)
        if child is None and (step is None or step.status not in STEP_ENDS):
            await self._never(path)
        return child.id if child is not None else ""

    async def wait_child(self, path: str, stakes: FailureImpact = SERIOUS) -> Child:
        step = self.state.steps[path]
        if step.status not in STEP_ENDS:
            await self._never(path)
        known = self.state.children.get(path)
        return known or Child(id="", path=path, status=step.status, output=step.output, failure=step.failure)

    async def value(self, raw: Raw) -> bytes:
        return await fetch_value(self._services.store, raw)

    def expect(self, path: str, tool: str, name: str = "", digest: str = "") -> None:
        step = self.state.steps.get(path)
        if step is None or not step.tool or step.kept:
            return
        if (step.tool, step.name) != (tool, name):
            raise self._diverges(path, f"{step.tool} {step.name}".rstrip(), f"{tool} {name}".rstrip())
        if digest and step.digest and digest != step.digest:
            raise self._diverges(path, f"{tool} with other inputs", tool)

    async def dropped(self, path: str, attempted: str) -> None:
        raise self._diverges(path, await self._recorded_text(path), attempted, dropped=True)

    # ---- what is only noted in memory ---------------------------------------------------------------------------

    def keep(self, value: bytes) -> Raw:
        return Raw(value)

    def open(
        self, path: str, kind: ev.StepKind, *, total: int = 0, title: str = "", arguments: bytes = b"null"
    ) -> None:
        step = self.state.steps.get(path)
        if step is None or step.status not in ("running", *STEP_ENDS):
            self._note(ev.StepStarted(at=self.now_us(), path=path, tool=kind, kind=kind, total=total, title=title))

    def close(self, path: str, output: bytes = b"null") -> None:
        if self.state.steps[path].status != "completed":
            self._note(ev.StepCompleted(at=self.now_us(), path=path, output=Raw(output)))

    def fail(self, path: str, failure: Failure, *, critical: bool = True) -> None:
        self._note(ev.StepFailed(at=self.now_us(), path=path, failure=failure, critical=critical))

    def skip(self, path: str, why: Skip, planned: Planned = PLANNED) -> None:
        self._note(skipped(self.now_us(), path, why, planned))

    async def left_out(self, path: str, why: Skip, planned: Planned = PLANNED) -> Outcome:
        self.skip(path, why, planned)
        return Outcome(status="skipped", reason=why.reason, skip_code=why.code)

    async def correct(self, mistake: Mistake) -> Outcome | Mapping[str, Any] | None:
        await self._never(mistake.path)

    async def settle_container(self, path: str, kind: ev.StepKind) -> None:
        await self._settle(Asked(path, kind))

    async def settle_items(self, path: str, calls: Sequence[StepCall]) -> None: ...

    def _note(self, event: ev.Event) -> None:
        with suppress(StoreCorrupted):
            apply(self.state, event, self.state.seq + 1)

    def tell_recorded(self, told: Callable[[Sequence[ev.Event], int], None] | None) -> None: ...

    def end_wait(self, path: str) -> None: ...

    def cancelled(self, path: str) -> None: ...

    def given_up(self, path: str) -> None: ...

    async def wait_extended(self, known: int) -> None:
        await asyncio.get_running_loop().create_future()
