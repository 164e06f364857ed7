"""The replay itself: the recorded journal in a store of its own, the real engine on it, and tools that never answer.

The end of the recording is left out, so that the program runs once more to where it ended. Every step that history does
not answer is noted and stays open; nothing beyond it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import Divergence, ExecutionFailed
from holdfast.engine.services import Limits, Pace
from holdfast.journal.blobs import reference
from holdfast.journal.liveness import InProcess
from holdfast.journal.log import new_execution
from holdfast.journal.memory import MemoryStore
from holdfast.programs.function import Function
from holdfast.programs.prepare import PlanDocument, Subject
from holdfast.testing.engine_from_parts import AssembledEngine
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import Fake, FakeOptions
from holdfast.testing.lab.steps import AnyTool
from holdfast.testing.recordings.plan_diff import ParsedPlan, changed_steps, removed_steps
from holdfast.testing.recordings.recorded_steps import Notes
from holdfast.testing.recordings.recording import Recording, Replayed
from holdfast.testing.recordings.replay_steps import RehearsedKind
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.registry import Registry

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
        self.notes = Notes(recording.events, self._registry.really_has)
        self._removed: list[str] = []

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
            rng=Random("replay"),
            limits=Limits(passivate_after_s=NEVER_S, interrupt_grace_s=0.0, drain_s=0.0),
            pace=Pace(look_s=PATIENCE_S),
        )
        services = engine.services
        services.programs = {name: RehearsedKind(kind, self.notes) for name, kind in services.programs.items()}
        return engine

    def _created(self, engine: AssembledEngine) -> ev.TaskCreated:
        """The recorded task, of the new program and under today's circumstances."""
        recorded = cast("ev.TaskCreated", self._recording.events[0])
        subject: Any = self._program
        if subject is None and recorded.program.kind == "plan":
            subject = msgspec.json.decode(recorded.program.source)
        if subject is None:
            raise LabError(f"this is a recording of the function {recorded.program.name}; hand it over as program=…")
        found = engine.preparer.find(subject)
        for name in _tools_named_in(found.document if isinstance(found, PlanDocument) else None):
            self._registry.get(name)
        prepared = engine.preparer.prepare(found, msgspec.json.decode(recorded.inputs))
        self._compare_programs(engine, recorded.program, prepared.program)
        return msgspec.structs.replace(
            recorded, program=prepared.program, engine=prepared.engine, folder=prepared.folder, tools={}, hold=False
        )

    def _compare_programs(self, engine: AssembledEngine, recorded: ev.Program, new: ev.Program) -> None:
        if (recorded.kind, recorded.name) != (new.kind, new.name):
            self.notes.differs("", f"{recorded.kind} {recorded.name}", f"{new.kind} {new.name}")
        if recorded.kind == new.kind == "plan":
            was, now = (_written(engine, program) for program in (recorded, new))
            for changed in changed_steps(was, now, self.notes.paths):
                self.notes.differs(*changed)
            self._removed = removed_steps(was, now, self.notes.paths)

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
        recorded, was = self._recorded_end()
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
            open_steps=self.notes.open_steps,
            left_out=list(dict.fromkeys([*self._removed, *self.notes.left_out()])),
            results=(was, now),
        )

    def _recorded_end(self) -> tuple[str, Any]:
        match self._recording.events[-1]:
            case ev.TaskCompleted(output=output):
                blob = reference(output)
                large = dict(self._recording.blobs).get(blob.digest) if blob is not None else None
                return "completed", msgspec.json.decode(large or output)
            case ev.TaskError(failure=failure):
                return "failed", failure.message
            case _:
                return "unfinished", None


class _Everything(Registry):
    """A registry that has every tool anybody asks for: they are never called, so their names are enough."""

    def __init__(self) -> None:
        super().__init__()
        self._made_up: set[str] = set()

    def really_has(self, name: str) -> bool:
        return name in self.names() and name not in self._made_up

    def get(self, name: str) -> AnyTool:
        if name not in self.names():
            self._made_up.add(name)
            self.add(Fake(name, None, FakeOptions()).tool_for())
        return super().get(name)


def _written(engine: AssembledEngine, program: ev.Program) -> ParsedPlan:
    document = msgspec.json.decode(program.source)
    return ParsedPlan(engine.preparer.read(document, check_tools=False), document)


def _tools_named_in(document: Any) -> Iterator[str]:
    """Whatever a plan calls, at any depth and as a fallback, too."""
    if isinstance(document, Mapping):
        for key, value in cast("Mapping[str, Any]", document).items():
            if key == "tool" and isinstance(value, str):
                yield value
            else:
                yield from _tools_named_in(value)
    elif isinstance(document, list):
        for item in cast("list[Any]", document):
            yield from _tools_named_in(item)
