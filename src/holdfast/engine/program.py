"""The port between the engine and what decides which step comes next.

A program is handed `Steps` and asks for steps; it may be killed at any await and run again from the start, and gets the
recorded outcomes back. Plans and functions live in holdfast.programs; agents and scripts will stand beside them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Child, Execution
from holdfast.core.failure import Failure
from holdfast.core.policy import DEFAULT_POLICY, Approval, StepPolicy
from holdfast.core.skips import Skip, SkipCode
from holdfast.tools.tool import Tool


class FallbackTool(msgspec.Struct, frozen=True):
    tool: Tool[..., Any]
    arguments: Mapping[str, Any] | None = None  # None: the step's own


class FailureImpact(msgspec.Struct, frozen=True, kw_only=True):
    """What a step's failure would mean: whether it can be lived with, and which steps would be skipped for it.

    Seen by the garbage collector, unlike other small structs: `affects` refers back to what holds the step.
    """

    critical: bool = True
    affects: Callable[[], tuple[str, ...]] | None = None
    is_within_optional: bool = False  # a group around it may fail, so the plan does not wait long for it either

    @property
    def may_fail(self) -> bool:
        return not self.critical or self.is_within_optional

    def described(self, failure: Failure) -> Failure:
        """The failure with what it affects and, if nobody has said so yet, what can be done now."""
        remedies = failure.remedies or (("retry",) if self.critical else ())
        return msgspec.structs.replace(failure, affects=self.skipped(), remedies=remedies)

    def skipped(self) -> tuple[str, ...]:
        """The steps that would not run without it."""
        return self.affects() if self.affects is not None else ()


SERIOUS = FailureImpact()


class Planned(NamedTuple):
    """What a step that is skipped would have been; an empty `tool` keeps what is known of it."""

    tool: str = ""
    kind: ev.StepKind = "tool"
    critical: bool = True


PLANNED = Planned()


def skipped(at: int, path: str, why: Skip, planned: Planned, by: str = "") -> ev.StepSkipped:
    return ev.StepSkipped(
        at=at, path=path, reason=why.reason, code=why.code, by=by,
        tool=planned.tool, kind=planned.kind, critical=planned.critical,
    )  # fmt: skip


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One step a program asks for. `strict` programs (functions) may not ask for another input than was recorded."""

    path: str
    tool: Tool[..., Any]
    arguments: Mapping[str, Any]
    policy: StepPolicy = DEFAULT_POLICY
    fallbacks: tuple[FallbackTool, ...] = ()
    kind: ev.StepKind = "tool"
    title: str = ""
    stakes: FailureImpact = SERIOUS
    strict: bool = False
    secrets: tuple[str, ...] = ()  # that its arguments, or its fallbacks', refer to


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a step from beginning: something in the plan that cannot be worked out."""

    path: str
    tool: str
    kind: ev.StepKind
    failure: Failure
    critical: bool
    arguments: bytes = b"null"  # of its tool: those that are known
    missing: frozenset[str] = frozenset()  # and the names of those that are not


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a step ended. `output` is JSON bytes: a program always sees decode(encode(value))."""

    status: Literal["completed", "failed", "skipped"]
    output: bytes = b"null"
    failure: Failure | None = None
    reason: str = ""
    skip_code: SkipCode = ""

    def value(self) -> Any:
        return msgspec.json.decode(self.output)


class Steps(Protocol):
    """What the engine offers a program."""

    @property
    def state(self) -> Execution: ...

    def now_us(self) -> int: ...

    @property
    def rng(self) -> Random: ...

    async def admit(self) -> None:
        """Return when the execution may go on: not while it is paused."""
        ...

    async def perform(self, call: StepCall) -> Outcome:
        """Run a tool, or answer from history."""
        ...

    def open(
        self, path: str, kind: ev.StepKind, *, total: int = 0, title: str = "", arguments: bytes = b"null"
    ) -> None:
        """Begin a step that contains others. Does nothing if it has begun already."""
        ...

    def close(self, path: str, output: bytes = b"null") -> None: ...

    def fail(self, path: str, failure: Failure, *, critical: bool = True) -> None: ...

    def skip(self, path: str, why: Skip, planned: Planned = PLANNED) -> None: ...

    async def settle_container(self, path: str, kind: ev.StepKind) -> None:
        """Before a step that contains others begins: what was copied under its path may have been something else."""
        ...

    async def settle_items(self, path: str, calls: Sequence[StepCall]) -> None:
        """Of copied items of one for_each whose input is another one now, a person is asked only once."""
        ...

    async def left_out(self, path: str, why: Skip, planned: Planned = PLANNED) -> Outcome:
        """Skip a step; but a person decides about what a `once` tool has done already."""
        ...

    async def sleep(self, path: str, due_at: int, name: str = "", digest: str = "") -> Outcome:
        """Wait until a time. The first call decides: a replay keeps the recorded one."""
        ...

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: FailureImpact = SERIOUS) -> Outcome:
        """Wait for an event from outside; one that came early is taken at once. Fails when the time is up."""
        ...

    async def approve(
        self, path: str, approval: Approval, *, title: str = "", stakes: FailureImpact = SERIOUS
    ) -> Outcome:
        """A step that is nothing but a person's yes or no."""
        ...

    async def ask(self, path: str, message: str, schema: Raw) -> Outcome:
        """Ask a person a question; the answer is the output."""
        ...

    async def start_child(self, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str = "") -> str:
        """Begin a child execution and return its id."""
        ...

    async def wait_child(self, path: str, stakes: FailureImpact = SERIOUS) -> Child:
        """Wait until the child begun at this path has ended."""
        ...

    async def correct(self, mistake: Mistake) -> Outcome | Mapping[str, Any] | None:
        """Wait for a person: the step's end, the arguments of its tool, or None to work it out once more."""
        ...

    async def value(self, raw: Raw) -> bytes:
        """The bytes behind a recorded value, fetched if they are large."""
        ...

    def keep(self, value: bytes) -> Raw: ...

    def expect(self, path: str, tool: str, name: str = "", digest: str = "") -> None:
        """Stop with a Divergence if another kind of step is recorded under this path."""
        ...

    async def dropped(self, path: str, attempted: str) -> None:
        """Stop with a Divergence: the program has begun this step, and does not ask for it any more."""
        ...

    def tell_recorded(self, told: Callable[[Sequence[ev.Event], int], None] | None) -> None:
        """Tell of the events of steps as soon as they are recorded, with the number of the last one."""
        ...

    def end_wait(self, path: str) -> None:
        """The step at this path waits for nothing any more: what waits gets Cancelled, what runs comes to its end."""
        ...

    def cancelled(self, path: str) -> None:
        """Record that the wait at this path was ended."""
        ...

    def given_up(self, path: str) -> None:
        """The program cancelled this call before it had its turn: an attempt that a crash has lost is settled."""
        ...

    async def wait_extended(self, known: int) -> None:
        """Return when more extensions than `known` have been journaled."""
        ...


class ChildTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task prepared to be handed in: everything validated, nothing written yet."""

    created: ev.TaskCreated


class Program(Protocol):
    async def run(self, steps: Steps) -> bytes:
        """Drive the steps to the end and return the output as JSON bytes. Raise StepFailed to fail the execution."""
        ...


class ProgramKind(Protocol):
    def open(self, created: ev.TaskCreated, state: Execution) -> Program:
        """The program of a recorded task. Raises NotFound if this process does not have it."""
        ...
