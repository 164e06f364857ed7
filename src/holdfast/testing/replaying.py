"""The replay itself: the recorded journal in a store of its own, the real engine on it, and tools that never answer.

The end of the recording is left out, so that the program runs once more to where it ended. Every step that history does
not answer is noted and stays open; nothing beyond it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any, NoReturn, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import Divergence, ExecutionFailed
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.engine.program import Outcome, Program, ProgramKind, StepCall, Steps
from holdfast.engine.services import Limits, Pace
from holdfast.engine.step import input_digest
from holdfast.journal.liveness import InProcess
from holdfast.journal.log import new_execution
from holdfast.journal.memory import MemoryStore
from holdfast.programs.function import Function
from holdfast.programs.prepare import Subject
from holdfast.testing.assembled import AssembledEngine
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import Fake, FakeOptions
from holdfast.testing.lab.steps import AnyTool, StandIn
from holdfast.testing.replay import Difference, NewStep, Recording, Replayed
from holdfast.testing.virtual import VirtualClock, VirtualLoop
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.call import Call
from holdfast.tools.registry import Registry
from holdfast.tools.values import encode

ENDS = (ev.TaskCompleted, ev.TaskError, ev.TaskStopped)
PATIENCE_S = 60.0  # of virtual time: history answers at once, so whatever still waits then waits for something new
NEVER_S = 1e9


class Rehearsal:
    def __init__(
        self,
        loop: VirtualLoop,
        recording: Recording,
        program: Subject | None,
        tools: Sequence[AnyTool],
        functions: Sequence[Function[..., Any]],
    ) -> None:
        self._loop = loop
        self._recording = recording
        self._program = program
        self._registry = _Everything()
        faked = {tool.name for tool in tools}
        for tool in (*tools, *(tool for tool in builtin_tools() if tool.name not in faked)):
            self._registry.add(tool)
        for function in functions:
            self._registry.add_function(function)
        self.notes = _Notes(recording.events)

    async def run(self) -> Replayed:
        engine = self._make_engine(max(event.at for event in self._recording.events))
        events = self._without_end(self._created(engine))
        new, _ = new_execution(self._recording.id, events, blobs=self._recording.blobs)
        await engine.services.store.commit([new])
        await engine.open()
        try:
            return await self._judge(engine)
        finally:
            await engine.close()

    def _make_engine(self, start_us: int) -> AssembledEngine:
        engine = AssembledEngine(
            store=MemoryStore(),
            liveness=InProcess(),
            registry=self._registry,
            clock=VirtualClock(self._loop, start_us),
            dice=Random("replay"),
            limits=Limits(passivate_after_s=NEVER_S, interrupt_grace_s=0.0, drain_s=0.0),
            pace=Pace(look_s=PATIENCE_S),
        )
        services = engine.services
        services.programs = {name: _RehearsedKind(kind, self.notes) for name, kind in services.programs.items()}
        return engine

    def _created(self, engine: AssembledEngine) -> ev.TaskCreated:
        """The recorded task, of the new program and under today's circumstances."""
        recorded = cast("ev.TaskCreated", self._recording.events[0])
        subject: Any = self._program
        if subject is None and recorded.program.kind == "plan":
            subject = msgspec.json.decode(recorded.program.source)
        if subject is None:
            raise LabError(f"this is a recording of the function {recorded.program.name}; hand it over as program=…")
        prepared = engine.preparer.prepare(subject, msgspec.json.decode(recorded.inputs))
        return msgspec.structs.replace(
            recorded, program=prepared.program, engine=prepared.engine, folder=prepared.folder, tools={}, hold=False
        )

    def _without_end(self, created: ev.TaskCreated) -> list[ev.Event]:
        events: list[ev.Event] = [created, *self._recording.events[1:]]
        if isinstance(events[-1], ENDS):
            events.pop()
        _, state = new_execution(self._recording.id, events)
        if state.status != "running":
            because: ev.Because = {"queued": "created", "waiting": "woken"}.get(state.status, "resumed")  # type: ignore[assignment]
            events.append(ev.TaskStarted(at=state.last_at, because=because))
        return events

    async def _judge(self, engine: AssembledEngine) -> Replayed:
        recorded, was = _end_of(self._recording.events[-1])
        ended, now = "unfinished", None
        running = asyncio.ensure_future(engine.get(self._recording.id).result())
        await asyncio.wait({running}, timeout=PATIENCE_S)
        if running.done():
            try:
                ended, now = "completed", running.result()
            except ExecutionFailed as error:
                ended, now = "failed", error.failure.message
            except Divergence as error:
                self.notes.diverged_with(error)
        else:
            running.cancel()
        return Replayed(
            recorded=recorded,
            ended=ended,
            divergences=self.notes.divergences,
            new_steps=self.notes.new_steps,
            left_out=self.notes.left_out() if ended != "unfinished" else [],
            results=(was, now),
        )


def _end_of(event: ev.Event) -> tuple[str, Any]:
    match event:
        case ev.TaskCompleted():
            return "completed", msgspec.json.decode(event.output)
        case ev.TaskError():
            return "failed", event.failure.message
        case _:
            return "unfinished", None


class _Notes:
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
        return [path for path in self._recorded if path not in self._asked]


class _RehearsedKind:
    def __init__(self, kind: ProgramKind, notes: _Notes) -> None:
        self._kind = kind
        self._notes = notes

    def open(self, created: ev.TaskCreated, state: Any) -> Program:
        return _RehearsedProgram(self._kind.open(created, state), self._notes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


class _RehearsedProgram:
    def __init__(self, program: Program, notes: _Notes) -> None:
        self._program = program
        self._notes = notes

    async def run(self, steps: Steps) -> bytes:
        return await self._program.run(cast("Steps", _RehearsedSteps(steps, self._notes)))


class _RehearsedSteps:
    """History answers; what it does not know is noted and never answered."""

    def __init__(self, steps: Steps, notes: _Notes) -> None:
        self._steps = steps
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    def _is_known(self, path: str) -> bool:
        self._notes.asked(path)
        step = self._steps.state.steps.get(path)
        return step is not None and step.status in STEP_ENDS

    async def _never(self, path: str, tool: str, arguments: Any = None) -> NoReturn:
        self._notes.new(path, tool, arguments)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def perform(self, call: StepCall) -> Outcome:
        self._notes.compare(call)
        known = self._is_known(call.path)
        untouchable = StandIn(call.tool, _never_called).as_tool()
        if not known and (call.path not in self._steps.state.steps or not call.strict):
            await self._never(call.path, call.tool.name, call.arguments)
        if not known:  # begun, and perhaps with another input: the engine says so
            self._notes.new(call.path, call.tool.name, call.arguments)
        return await self._steps.perform(msgspec.structs.replace(call, tool=untouchable))

    def open(self, path: str, kind: ev.StepKind, **more: Any) -> None:
        self._notes.asked(path)
        self._steps.open(path, kind, **more)

    def fail(self, path: str, *given: Any, **more: Any) -> None:
        self._notes.asked(path)
        self._steps.fail(path, *given, **more)

    def skip(self, path: str, reason: str) -> None:
        self._notes.asked(path)
        self._steps.skip(path, reason)

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
        self._notes.asked(path)
        if path not in self._steps.state.steps:
            await self._never(path, "child")
        return await self._steps.start_child(path, *given, **more)

    async def wait_child(self, path: str, *given: Any, **more: Any) -> Any:
        if not self._is_known(path):
            await self._never(path, "child")
        return await self._steps.wait_child(path, *given, **more)


async def _never_called(tool: AnyTool, arguments: dict[str, Any], call: Call) -> Any:
    await asyncio.get_running_loop().create_future()


class _Everything(Registry):
    """A registry that has every tool anybody asks for: they are never called, so their names are enough."""

    def get(self, name: str) -> AnyTool:
        if name not in super().names():
            self.add(Fake(name, None, FakeOptions()).tool_for())
        return super().get(name)

    def names(self) -> Collection[str]:
        return _AllNames(super().names())


class _AllNames:
    def __init__(self, known: Collection[str]) -> None:
        self._known = known

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
