"""Simulated machines: each runs one engine process at a time, and boots a new one after a death."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec

from holdfast.engine.services import Limits, Pace
from holdfast.journal.memory import MemoryStore
from holdfast.testing.engine_from_parts import AssembledEngine
from holdfast.testing.simulated_processes import Process
from holdfast.testing.virtual_time import VirtualClock
from holdfast.tools.registry import Registry
from proof.simulator.disk import FAIR, DiskWeather, SimulatedLiveness, SimulatedStore
from proof.simulator.files import FOLDER, Files, FilesLoop
from proof.simulator.history import Fault, History, Saw
from proof.simulator.programs import player
from proof.simulator.scenario import Scenario
from proof.simulator.world import Toolbox, World


class Common:
    """What all machines share."""

    def __init__(self, loop: FilesLoop, scenario: Scenario, shared: MemoryStore) -> None:
        self.loop = loop
        self.scenario = scenario
        self.shared = shared
        self.history = History()
        self.files = Files(loop, scenario.seed, self.history)
        self.world = World(str(scenario.seed), scenario.trouble, self.history)
        self.liveness: dict[str, SimulatedLiveness] = {}
        self.processes: list[Process] = []
        self.stores: list[SimulatedStore] = []

    def is_gone(self, driver: str) -> bool:
        """Whether the process behind this name is dead, whoever has noticed."""
        return driver in self.liveness and not self.liveness[driver].is_alive

    def now_us(self) -> int:
        return round(self.loop.time() * 1e6)


class Host:
    def __init__(self, common: Common, number: int) -> None:
        self.number = number
        self._common = common
        self._boots = 0
        self.clock = VirtualClock(common.loop)
        self.died = asyncio.Event()
        self.process: Process
        self.store: SimulatedStore
        self.liveness: SimulatedLiveness
        self.engine: AssembledEngine
        self.is_up = False
        self._dies_of = ""

    def boot(self) -> None:
        common = self._common
        self._boots += 1
        name = f"{self.number}.{self._boots}"
        rng = Random(f"{common.scenario.seed}/{name}")
        self.process = Process(common.loop, name)
        self.process.when_killed = self._down
        common.processes.append(self.process)
        self.store = SimulatedStore(common.shared, self.process, common.history, rng)
        common.stores.append(self.store)
        self.liveness = SimulatedLiveness(common.liveness, self.process, rng, common.scenario.death_noticed_s)
        self.died = asyncio.Event()
        self.is_up = False
        self.process.spawn(self._start(rng))

    async def _start(self, rng: Random) -> None:
        box = Toolbox(self._common.world, self.process, self._common.history)
        registry = Registry()
        for tool in box.tools():
            registry.add(tool)
        registry.add_function(player(self._saw))
        scenario = self._common.scenario
        self.engine = AssembledEngine(
            store=self.store,
            liveness=self.liveness,
            registry=registry,
            clock=self.clock,
            rng=rng,
            limits=Limits(
                executions=scenario.executions,
                passivate_after_s=scenario.passivate_s,
                interrupt_grace_s=2.0,
                drain_s=2.0,
            ),
            pace=Pace(look_s=0.1, sweep_changed_s=0.2, sweep_s=0.5, snapshot_events_min=scenario.snapshot_events_min),
        )
        self.engine.services.data_folder = FOLDER  # set here: what else would be written there is no part of this
        await self.engine.open()
        self.is_up = True

    def _saw(self, execution_id: str, path: str, output: Any) -> None:
        if self.process.is_alive:
            line = Saw(
                at_us=self._common.now_us(),
                process=self.process.name,
                execution_id=execution_id,
                path=path,
                output=output,
            )
            self._common.history.write(line)

    def _down(self) -> None:
        self.is_up = False
        self.note(self._dies_of, "died")
        self.died.set()

    def note(self, kind: str, text: str = "") -> None:
        line = Fault(at_us=self._common.now_us(), process=self.process.name, kind=kind, text=text)
        self._common.history.write(line)

    def kill(self, kind: str, turns: int = 0) -> None:
        """Let its process die, at once or after some turns more."""
        self._dies_of = kind
        if turns:
            self.process.kill_in(turns)
        else:
            self.process.kill()

    def freeze(self) -> None:
        self.note("frozen")
        self.process.freeze()

    def thaw(self, kind: str) -> None:
        if missed := self.process.thaw():
            self.note(kind, f"missed {missed} turns")

    def weather(self, kind: str, **changes: Any) -> None:
        self.store.weather = msgspec.structs.replace(FAIR, kind=kind, **changes)

    def fair_weather(self) -> None:
        self.store.weather = DiskWeather()

    async def close(self) -> dict[str, int]:
        """Close its engine as a person would; returns what it still held."""
        await self.engine.close()
        return {name: held for name, held in self.engine.holdings().items() if held}
