"""What a program sees during a replay: history answers, and what it does not know is noted and never comes.

Refuses to run anything of a tool, and to let anything happen that is still open: not even a limit that would be up.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.engine.program import SERIOUS, FailureImpact, FallbackTool, Outcome, Program, ProgramKind, StepCall, Steps
from holdfast.testing.lab.steps import AnyTool, StandIn
from holdfast.testing.recordings.recorded_steps import Notes
from holdfast.tools.call import Call


class RehearsedKind:
    def __init__(self, kind: ProgramKind, notes: Notes) -> None:
        self._kind = kind
        self._notes = notes

    def open(self, created: ev.TaskCreated, state: Any) -> Program:
        return _RehearsedProgram(self._kind.open(created, state), self._notes, created.program.kind == "plan")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


class _RehearsedProgram:
    def __init__(self, program: Program, notes: Notes, is_plan: bool) -> None:
        self._program = program
        self._notes = notes
        self._is_plan = is_plan

    async def run(self, steps: Steps) -> bytes:
        steps.state.steps = _LookedUp(steps.state.steps, self._notes)
        return await self._program.run(cast("Steps", _RehearsedSteps(steps, self._notes, self._is_plan)))


class _LookedUp(dict[str, Step]):
    """The recorded steps. Some programs look a step up before they ask for it, and ask no more if it has ended."""

    def __init__(self, steps: dict[str, Step], notes: Notes) -> None:
        super().__init__(steps)
        self._notes = notes

    def get(self, path: str, default: Any = None) -> Any:
        self._notes.asked(path)
        return super().get(path, default)


class _RehearsedSteps:
    """History answers; what it does not know is noted and never answered.

    What a plan says about its waits is compared in its documents, where it stands in its author's words.
    """

    def __init__(self, steps: Steps, notes: Notes, is_plan: bool) -> None:
        self._steps = steps
        self._notes = notes
        self._is_plan = is_plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    async def _answered(self, path: str, tool: str, arguments: Any = None) -> None:
        """Return if the step has ended. Otherwise it is open, or new, and stays so."""
        step = self._steps.state.steps.get(path)
        if step is not None and step.status in STEP_ENDS:
            return
        if step is None:
            self._notes.new(path, tool, arguments)
        else:
            self._notes.still_open(path, tool, arguments)
        await _never_comes()

    async def dropped(self, path: str, attempted: str) -> None:
        """Nothing to stop: it stands among the steps that are left out, beside what is asked for in their place."""

    async def perform(self, call: StepCall) -> Outcome:
        self._notes.compare_call(call)
        await self._answered(call.path, call.tool.name, call.arguments)
        fallbacks = tuple(FallbackTool(_Untouchable(other.tool).as_tool(), other.arguments) for other in call.fallbacks)
        tool = _Untouchable(call.tool).as_tool()
        return await self._steps.perform(msgspec.structs.replace(call, tool=tool, fallbacks=fallbacks))

    async def sleep(self, path: str, due_at: int, name: str = "", digest: str = "") -> Outcome:
        if not self._is_plan:
            self._notes.compare_sleep(path, due_at, name)
        await self._answered(path, "wait.timer", name or None)
        return await self._steps.sleep(path, due_at, name, digest)

    async def wait_event(self, path: str, name: str, due_at: int | None, stakes: FailureImpact = SERIOUS) -> Outcome:
        if not self._is_plan:
            self._notes.compare_timeout(path, None if due_at is None else due_at - self._steps.now_us())
        await self._answered(path, "wait.event", name)
        return await self._steps.wait_event(path, name, due_at, stakes)

    async def approve(self, path: str, *given: Any, **more: Any) -> Outcome:
        await self._answered(path, "approval")
        return await self._steps.approve(path, *given, **more)

    async def ask(self, path: str, message: str, schema: Raw) -> Outcome:
        self._notes.compare_question(path, schema)
        await self._answered(path, "human.ask", message)
        return await self._steps.ask(path, message, schema)

    async def start_child(self, path: str, *given: Any, **more: Any) -> str:
        if self._steps.state.steps.get(path) is None:
            await self._answered(path, "child")
        return await self._steps.start_child(path, *given, **more)

    async def wait_child(self, path: str, *given: Any, **more: Any) -> Any:
        await self._answered(path, "child")
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
