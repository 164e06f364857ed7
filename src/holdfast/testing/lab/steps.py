"""Between a program and the engine: every tool a program calls goes through a stand-in, whatever kind of program it is.

A function hands its tools over as objects and a plan names them; both end in `Steps.perform`, so that is where the lab
and the replay put themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.engine.program import FallbackTool, Outcome, Program, ProgramKind, StepCall, Steps
from holdfast.tools.call import Call
from holdfast.tools.tool import Tool

AnyTool = Tool[..., Any]
StandFor = Callable[[AnyTool, ev.StepKind], AnyTool]
Invoke = Callable[[AnyTool, dict[str, Any], Call], Awaitable[Any]]


class StandIn:
    """Looks like its tool in every way, but its calls are answered by somebody else."""

    isolated = can_isolate = False  # whoever answers is here

    def __init__(self, tool: AnyTool, invoke: Invoke) -> None:
        self._tool = tool
        self._invoke = invoke

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def invoke(self, arguments: dict[str, Any], call: Call) -> Any:
        return await self._invoke(self._tool, arguments, call)

    def as_tool(self) -> AnyTool:
        return cast("AnyTool", self)


class WatchedKind:
    """A kind of program whose programs get stand-ins for their tools."""

    def __init__(self, kind: ProgramKind, stand_for: StandFor) -> None:
        self._kind = kind
        self._stand_for = stand_for

    def open(self, created: ev.TaskCreated, state: Execution) -> Program:
        return _WatchedProgram(self._kind.open(created, state), self._stand_for)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


class _WatchedProgram:
    def __init__(self, program: Program, stand_for: StandFor) -> None:
        self._program = program
        self._stand_for = stand_for

    async def run(self, steps: Steps) -> bytes:
        return await self._program.run(cast("Steps", WatchedSteps(steps, self._stand_for)))


class WatchedSteps:
    """What the engine offers, with other tools."""

    def __init__(self, steps: Steps, stand_for: StandFor) -> None:
        self._steps = steps
        self._stand_for = stand_for

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    async def perform(self, call: StepCall) -> Outcome:
        fallbacks = tuple(
            FallbackTool(self._stand_for(other.tool, call.kind), other.arguments) for other in call.fallbacks
        )
        tool = self._stand_for(call.tool, call.kind)
        return await self._steps.perform(msgspec.structs.replace(call, tool=tool, fallbacks=fallbacks))
