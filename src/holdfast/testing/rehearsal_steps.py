"""What a program sees during a replay: history answers, and what it does not know is noted and never comes.

Owns the notes of what the new code asked for, beside what was recorded. Refuses to run anything of a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import Divergence
from holdfast.core.execution import Step, parent_of
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.engine.program import FallbackTool, Outcome, Program, ProgramKind, StepCall, Steps
from holdfast.engine.step import input_digest
from holdfast.testing.lab.steps import AnyTool, StandIn
from holdfast.testing.recording import Difference, NewStep
from holdfast.tools.call import Call
from holdfast.tools.values import encode


class Notes:
    """What the new code asked for, beside what was recorded."""

    def __init__(self, events: Sequence[ev.Event]) -> None:
        self.divergences: list[Difference] = []
        self.new_steps: list[NewStep] = []
        self._asked: set[str] = set()
        self._recorded: dict[str, ev.StepStarted | None] = {}
        for event in events:
            if isinstance(event, ev.StepStarted):
                self._recorded.setdefault(event.path, event)
            elif isinstance(event, ev.StepWaiting | ev.StepSkipped):
                self._recorded.setdefault(event.path, None)

    def asked(self, path: str) -> None:
        self._asked.add(path)

    def new(self, path: str, tool: str, arguments: Any = None) -> None:
        self.new_steps.append(NewStep(path, tool, arguments))

    def compare(self, call: StepCall) -> None:
        started = self._recorded.get(call.path)
        asked = encode(call.arguments, call.path)
        if started is None or not started.digest or started.digest == input_digest(call.tool.name, asked):
            return
        was = f"{started.tool} {bytes(started.arguments).decode()}"
        self.divergences.append(Difference(call.path, was, f"{call.tool.name} {asked.decode()}"))

    def diverged_with(self, error: Divergence) -> None:
        """What the engine itself noticed, such as another kind of wait."""
        if not self.divergences:
            words = [line.strip() for line in str(error).splitlines()]
            path = words[0].removeprefix("step ").partition(" ")[0]
            told = [word.partition(": ")[2].strip() for word in words[1:3]]
            self.divergences.append(Difference(path, *told))

    def left_out(self) -> list[str]:
        """Recorded steps that nobody asked for. What is inside a step goes with it."""
        return [path for path in self._recorded if not self._is_asked(path)]

    def _is_asked(self, path: str) -> bool:
        while path:
            if path in self._asked and path in self._recorded:
                return True
            path = parent_of(path)
        return False


class RehearsedKind:
    def __init__(self, kind: ProgramKind, notes: Notes) -> None:
        self._kind = kind
        self._notes = notes

    def open(self, created: ev.TaskCreated, state: Any) -> Program:
        return _RehearsedProgram(self._kind.open(created, state), self._notes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


class _RehearsedProgram:
    def __init__(self, program: Program, notes: Notes) -> None:
        self._program = program
        self._notes = notes

    async def run(self, steps: Steps) -> bytes:
        steps.state.steps = _LookedUp(steps.state.steps, self._notes)
        return await self._program.run(cast("Steps", _RehearsedSteps(steps, self._notes)))


class _LookedUp(dict[str, Step]):
    """The recorded steps. Some programs look a step up before they ask for it, and ask no more if it has ended."""

    def __init__(self, steps: dict[str, Step], notes: Notes) -> None:
        super().__init__(steps)
        self._notes = notes

    def get(self, path: str, default: Any = None) -> Any:
        self._notes.asked(path)
        return super().get(path, default)


class _RehearsedSteps:
    """History answers; what it does not know is noted and never answered."""

    def __init__(self, steps: Steps, notes: Notes) -> None:
        self._steps = steps
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    def _is_known(self, path: str) -> bool:
        step = self._steps.state.steps.get(path)
        return step is not None and step.status in STEP_ENDS

    async def _never(self, path: str, tool: str, arguments: Any = None) -> NoReturn:
        self._notes.new(path, tool, arguments)
        await _never_comes()

    async def perform(self, call: StepCall) -> Outcome:
        self._notes.compare(call)
        known = self._is_known(call.path)
        fallbacks = tuple(FallbackTool(_Untouchable(other.tool).as_tool(), other.arguments) for other in call.fallbacks)
        if not known:
            self._notes.new(call.path, call.tool.name, call.arguments)
            if call.path not in self._steps.state.steps:
                await _never_comes()  # otherwise it was begun, and perhaps with another input: the engine looks
        tool = _Untouchable(call.tool).as_tool()
        return await self._steps.perform(msgspec.structs.replace(call, tool=tool, fallbacks=fallbacks))

    async def sleep(self, path: str, due_at: int, name: str = "") -> Outcome:
        if not self._is_known(path):
            await self._never(path, "wait.timer", name or None)
        return await self._steps.sleep(path, due_at, name)

    async def wait_event(self, path: str, name: str, *given: Any, **more: Any) -> Outcome:
        if not self._is_known(path):
            await self._never(path, "wait.event", name)
        return await self._steps.wait_event(path, name, *given, **more)

    async def approve(self, path: str, *given: Any, **more: Any) -> Outcome:
        if not self._is_known(path):
            await self._never(path, "approval")
        return await self._steps.approve(path, *given, **more)

    async def ask(self, path: str, message: str, schema: Any) -> Outcome:
        if not self._is_known(path):
            await self._never(path, "human.ask", message)
        return await self._steps.ask(path, message, schema)

    async def start_child(self, path: str, *given: Any, **more: Any) -> str:
        if self._steps.state.steps.get(path) is None:
            await self._never(path, "child")
        return await self._steps.start_child(path, *given, **more)

    async def wait_child(self, path: str, *given: Any, **more: Any) -> Any:
        if not self._is_known(path):
            await self._never(path, "child")
        return await self._steps.wait_child(path, *given, **more)


class _Untouchable(StandIn):
    """A tool of which nothing runs, its hooks included."""

    can_verify = can_reduce = can_refresh = False

    def __init__(self, tool: AnyTool) -> None:
        super().__init__(tool, _never_called)


async def _never_called(tool: AnyTool, arguments: dict[str, Any], call: Call) -> Any:
    await _never_comes()


async def _never_comes() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError
