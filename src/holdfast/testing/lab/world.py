"""One run's world: the shared journal, the tools and what they remember, and the processes that come and go.

A killed process gets no further turn, as after SIGKILL; the world stays. The next process finds the journal as the dead
one left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NoReturn, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import StoreUnavailable
from holdfast.engine.services import Limits, Pace
from holdfast.journal.codec import decode
from holdfast.journal.liveness import InProcess
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import DeletableStore, Entry, NewExecution, Write, Written
from holdfast.testing.engine_from_parts import AssembledEngine
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import Fake, FakeStandIn, ToolCall
from holdfast.testing.lab.loop import ExactDeadlines, LabLoop, LabProcess, ThreadCall
from holdfast.testing.lab.place import LabPreparer
from holdfast.testing.lab.points import Crashes
from holdfast.testing.lab.steps import AnyTool, StandIn, WatchedKind
from holdfast.testing.lab.vault import LabVault
from holdfast.testing.virtual_time import VirtualClock
from holdfast.tools.call import Call
from holdfast.tools.registry import Registry

PACE = Pace(look_s=86400.0, sweep_changed_s=0.0, sweep_s=0.0)  # it is woken whenever there is something to see
PASSIVATED_MAX = 30  # waits after which an execution sleeps no more but stays in memory: each waking is a whole replay
NEVER_S = 1e9

Committed = Callable[[str, str, str], None]


class Toolbox:
    """What a run may call: fakes by name, and the real tools that were handed over."""

    def __init__(self, fakes: dict[str, Fake], real: dict[str, AnyTool]) -> None:
        self.fakes = fakes
        self.real = real

    def find(self, tool: AnyTool) -> tuple[AnyTool, Fake | None]:
        fake = self.fakes.get(tool.name)
        if fake is not None:
            return fake.tool_for(None if tool is fake.tool_for() else tool), fake
        if self.real.get(tool.name) is tool:
            return tool, None
        known = [*self.fakes, *self.real]
        raise LabError(
            f'the program calls the tool "{tool.name}", which is neither faked nor handed over'
            f"{did_you_mean(tool.name, known)}; lab.fake({tool.name!r}, returns=…) puts a fake in its place, "
            "lab.use(…) lets the real one run"
        )


class RunBounds(msgspec.Struct, frozen=True, kw_only=True):
    """When a run begins and how far it may go."""

    start_us: int
    limit_s: float
    events_max: int
    folder: Path | None = None  # where plan files are looked for first


class World:
    def __init__(
        self, loop: LabLoop, toolbox: Toolbox, registry: Registry, crashes: Crashes, bounds: RunBounds
    ) -> None:
        self.loop = loop
        self.folder = bounds.folder
        self.clock = VirtualClock(loop, bounds.start_us)
        self.limits = Limits()
        self.store = MemoryStore()
        self.liveness = InProcess()
        self.toolbox = toolbox
        self.registry = registry
        self.crashes = crashes
        self.calls: list[ToolCall] = []
        self.commits = 0
        self._events_left = bounds.events_max
        self._events_max = bounds.events_max
        self._waits_left = PASSIVATED_MAX
        self.changed = asyncio.Event()
        self.fault: LabError | None = None
        self.is_over = False
        self.on_event: Committed = _unheard
        loop.on_fault = self.stop_with

    def stop_with(self, error: LabError) -> None:
        """The run makes no sense any more; whoever conducts it will say why."""
        self.fault = self.fault or error
        self.changed.set()

    def committed(self, writes: Sequence[Write], results: Sequence[Written]) -> list[tuple[str, str]]:
        """Hear what was written: the events' names, and the steps they are about."""
        heard: list[tuple[str, str]] = []
        for write, result in zip(writes, results, strict=True):
            if result.ok and isinstance(write, Entry | NewExecution):
                news = [write, *write.creates] if isinstance(write, Entry) else [write]
                for new in news:
                    execution_id = new.execution_id if isinstance(new, Entry) else new.head.id
                    for row in new.rows:
                        event = decode(row)
                        heard.append((ev.name_of(event), path_of(event)))
                        self.on_event(execution_id, *heard[-1])
        self._bound(heard)
        self.changed.set()
        return heard

    def _bound(self, heard: list[tuple[str, str]]) -> None:
        self._events_left -= len(heard)
        self._waits_left -= sum(name == "task:waiting" for name, _ in heard)
        if self._waits_left < 0:
            self.limits = Limits(passivate_after_s=NEVER_S)
        if self._events_left < 0 and heard:
            last = " ".join(filter(None, heard[-1]))
            text = f"it has written {self._events_max:,} events and is not over; the last was {last}"
            self.stop_with(LabError(f"{text}. Look for a loop without an end, or say Lab(events_max=…)"))


def _unheard(execution_id: str, event: str, path: str) -> None: ...


def path_of(event: Any) -> str:
    """The step an event is about, or nothing."""
    request = getattr(event, "request", None)
    if request is not None:
        return request.path
    return getattr(event, "path", "") or getattr(event, "request_id", "").rpartition("#")[0]


class Host:
    """One process with an engine in it."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self.process = LabProcess(world.loop, seed)
        self.died = asyncio.Event()
        self.process.when_killed = self._buried
        self._one_thread = asyncio.Lock()
        self._thread: ThreadCall | None = None
        self.engine: LabEngine
        self._seed = seed

    async def boot(self) -> None:
        world = self._world
        self.engine = LabEngine(
            store=cast("DeletableStore", LabStore(world, self)),
            liveness=world.liveness,
            registry=world.registry,
            clock=world.clock,
            rng=Random(self._seed),
            limits=world.limits,
            pace=PACE,
        )
        self.engine.look_beside(world.folder)
        services = self.engine.services
        services.deadlines = ExactDeadlines()
        services.programs = {name: WatchedKind(kind, self._stand_for) for name, kind in services.programs.items()}
        await self.engine.open()

    def _buried(self) -> None:
        if hasattr(self, "engine"):
            self._world.liveness.release(self.engine.services.driver)
        if self._thread is not None:
            self._thread.let_go()
        self.died.set()
        self._world.changed.set()

    async def die(self) -> NoReturn:
        """Killed here and now. Nothing after this line ever runs."""
        self.process.kill()
        await self._world.loop.create_future()
        raise AssertionError

    # ---- tools --------------------------------------------------------------------------------------------------

    def _stand_for(self, tool: AnyTool, kind: ev.StepKind) -> AnyTool:
        if kind == "code":
            return StandIn(tool, self._call_code).as_tool()
        try:
            shaped, fake = self._world.toolbox.find(tool)
        except LabError as error:
            self._world.stop_with(error)
            self.process.kill()
            raise
        if fake is not None:
            return FakeStandIn(shaped, self._call_fake).as_tool()
        return StandIn(shaped, self._call_real).as_tool()

    async def _call_fake(self, tool: AnyTool, arguments: dict[str, Any], call: Call) -> Any:
        fake = self._world.toolbox.fakes[tool.name]
        return await self._call(tool, arguments, call, lambda: fake.answer(arguments, call, tool), fake)

    async def _call_real(self, tool: AnyTool, arguments: dict[str, Any], call: Call) -> Any:
        if tool.is_async:
            return await self._call(tool, arguments, call, lambda: tool.invoke(arguments, call))

        async def in_thread() -> Any:
            async with self._one_thread:
                self._thread = thread = ThreadCall(call, self._world.loop, self.process)
                return await thread.run(tool.invoke(arguments, thread))

        return await self._call(tool, arguments, call, in_thread)

    async def _call_code(self, tool: AnyTool, arguments: dict[str, Any], call: Call) -> Any:
        return await self._call(tool, arguments, call, lambda: tool.invoke(arguments, call))

    async def _call(
        self,
        tool: AnyTool,
        arguments: dict[str, Any],
        call: Call,
        answer: Callable[[], Awaitable[Any]],
        fake: Fake | None = None,
    ) -> Any:
        world = self._world
        if world.crashes.at_tool("before", tool.name, call.path):
            await self.die()
        made = ToolCall(
            tool=tool.name,
            path=call.path,
            arguments=dict(arguments),
            key=call.key,
            attempt=call.attempt,
            execution_id=call.execution_id,
            at_s=world.loop.time(),
            effect=tool.effect,
        )
        world.calls.append(made)
        if fake is not None:
            fake.calls.append(made)
        try:
            made.output = await answer()
        except Exception as error:
            if self.process.is_alive:
                made.ended, made.error = "raised", f"{type(error).__name__}: {error}"
            raise
        made.ended = "returned"
        if world.crashes.at_tool("after", tool.name, call.path):
            await self.die()
        return made.output


class LabEngine(AssembledEngine):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.services.secrets = LabVault()

    def look_beside(self, folder: Path | None) -> None:
        """Plan files are looked for in a test's folder first."""
        services = self.services
        self.preparer = LabPreparer(services.registry, services.folder, services.version, services.clock.now_us)
        self.preparer.beside = folder
        services.programs = self.preparer.kinds()

    def look(self) -> None:
        """Look around now: something was written, or somebody's time has come."""
        self._keeper.look()


class LabStore:
    """The shared journal, as one process sees it."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        world, host = self._world, self._host
        if world.is_over or not host.process.is_alive:
            raise StoreUnavailable("this process was killed")
        world.commits += 1
        number = world.commits
        if world.crashes.at_commit("before", number):
            await host.die()
        results = await world.store.commit(writes)
        host.process.progressed()
        heard = world.committed(writes, results)
        host.engine.services.limits = world.limits
        if world.crashes.at_commit("after", number) or world.crashes.at_events(heard):
            await host.die()
        return results
