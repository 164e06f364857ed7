"""`--step`: holds every step before it begins, until the person at the terminal lets it through.

Stands between a program and the engine. A step that is held has not begun: nothing of it is in the journal, so that a
process which dies while it asks leaves an execution that is resumed like any other. What has begun once is not asked
about again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from holdfast.cli.foreground.prompt import read_line
from holdfast.cli.output.format import is_terminal, paint, value
from holdfast.core import events as ev
from holdfast.core.errors import UsageError
from holdfast.core.execution import Execution
from holdfast.core.skips import AT_TERMINAL
from holdfast.engine.program import SERIOUS, ChildTask, FailureImpact, Outcome, Program, ProgramKind, StepCall, Steps
from holdfast.engine.run import Run

Word = Literal["go", "skip", "rest", "stop"]
_WORDS: Mapping[str, Word] = {
    "y": "go", "yes": "go", "s": "skip", "skip": "skip", "r": "rest", "rest": "rest", "h": "stop", "hold": "stop",
}  # fmt: skip
_CHOICES = "go on? [y]es, [s]kip it, run the [r]est without asking, [h]old here: "


def refuse_without_terminal(is_blind: bool) -> None:
    if is_blind or not is_terminal() or not is_terminal(sys.stdin):
        raise UsageError("--step asks before each step, and there is no terminal to ask at; type it at a terminal")


@dataclass(eq=False)
class Held:
    """A step that wants to begin."""

    path: str
    what: str
    arguments: Any
    word: asyncio.Future[Word] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class StepConfirmer:
    """Lets steps through one at a time. `tell` is called when one has come; whoever asks the person takes it."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None
        self._held: deque[Held] = deque()
        self._is_open = False

    def stand_before(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """The same kinds of program, whose steps have to come through here."""
        return {name: _SteppedKind(kind, self) for name, kind in kinds.items()}

    @property
    def is_wanted(self) -> bool:
        return any(not held.word.done() for held in self._held)

    async def pass_through(self, path: str, what: str, arguments: Any) -> bool:
        """True when the step may begin, False when it is to be left out."""
        if self._is_open:
            return True
        held = Held(path, what, arguments)
        self._held.append(held)
        self.tell()
        return await held.word != "skip"

    async def ask(self, run: Run, stop: asyncio.Event) -> None:
        """Put the first step that waits to the person, and do what they say."""
        held = self._held.popleft()
        if held.word.done():
            return  # its program has been put to sleep; it will come again
        print(paint(f"\nnext: {held.path}", "bold"))
        print(f"  {held.what} {value(held.arguments)}" if held.arguments is not None else f"  {held.what}")
        match await self._word(held, stop):
            case "stop":
                await run.pause(why=f"held before {held.path}")
            case "rest":
                self._is_open = True
                for one in (held, *self._held):
                    _let(one, "go")
            case "go" | "skip" as word:
                _let(held, word)
            case None:
                self._held.appendleft(held)  # asked again, unless it has gone away

    async def _word(self, held: Held, stop: asyncio.Event) -> Word | None:
        async def is_open() -> bool:
            return not held.word.done()

        while (line := await read_line(_CHOICES, is_open, stop)) is not None:
            word = _WORDS.get(line.strip().lower()) if line else "stop"
            if word is not None:
                return word
        return None


def _let(held: Held, word: Word) -> None:
    if not held.word.done():
        held.word.set_result(word)


class _SteppedKind:
    def __init__(self, kind: ProgramKind, turnstile: StepConfirmer) -> None:
        self._kind = kind
        self._turnstile = turnstile

    def open(self, created: ev.TaskCreated, state: Execution) -> Program:
        whose = f"{created.program.name}: " if created.parent is not None else ""
        return _SteppedProgram(self._kind.open(created, state), self._turnstile, whose)

    def open_for_replay(self, created: ev.TaskCreated, state: Execution) -> Program:
        """Nothing of it runs, so nobody is asked."""
        return self._kind.open(created, state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


class _SteppedProgram:
    def __init__(self, program: Program, turnstile: StepConfirmer, whose: str) -> None:
        self._program = program
        self._turnstile = turnstile
        self._whose = whose

    async def run(self, steps: Steps) -> bytes:
        return await self._program.run(cast("Steps", _SteppedSteps(steps, self._turnstile, self._whose)))


class _SteppedSteps:
    """What the engine offers, behind the turnstile. Approvals and questions are put to the person anyway."""

    def __init__(self, steps: Steps, turnstile: StepConfirmer, whose: str) -> None:
        self._steps = steps
        self._turnstile = turnstile
        self._whose = whose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    async def perform(self, call: StepCall) -> Outcome:
        effect = call.policy.effect or call.tool.effect
        what = f"{call.tool.name} ({effect})"
        return await self._held(call.path, what, call.arguments, lambda: self._steps.perform(call))

    async def sleep(self, path: str, due_at: int, name: str = "", digest: str = "") -> Outcome:
        return await self._held(path, "wait", None, lambda: self._steps.sleep(path, due_at, name, digest))

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: FailureImpact = SERIOUS) -> Outcome:
        what = f"wait for the event {name}"
        return await self._held(path, what, None, lambda: self._steps.wait_event(path, name, due_at, stakes))

    async def start_child(self, path: str, make: Callable[[], Awaitable[ChildTask]], digest: str = "") -> str:
        if await self._may_begin(path, "start a child execution", None):
            return await self._steps.start_child(path, make, digest)
        self._steps.skip(path, AT_TERMINAL)
        return ""

    async def _held(self, path: str, what: str, arguments: Any, go: Callable[[], Awaitable[Outcome]]) -> Outcome:
        if await self._may_begin(path, what, arguments):
            return await go()
        self._steps.skip(path, AT_TERMINAL)
        return Outcome(status="skipped", reason=AT_TERMINAL.reason, skip_code=AT_TERMINAL.code)

    async def _may_begin(self, path: str, what: str, arguments: Any) -> bool:
        if path in self._steps.state.steps:
            return True
        await self._steps.admit()  # nobody is asked about a step that could not begin
        return await self._turnstile.pass_through(self._whose + path, what, arguments)
