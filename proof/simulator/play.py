"""Plays a scenario: war, in which things break while tasks are handed in and commanded, and then peace. At first nobody
does anything, for what should move by itself must; then a patient person answers every question until everything has
ended. Returns the history, for the checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.held import RESTORED
from holdfast.core.lifecycle import ENDS
from holdfast.journal.log import read_state
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Head, Hold, Query
from proof.simulator.files import FilesLoop
from proof.simulator.history import ClockSet, CutShort, Held, History, LeftAlone
from proof.simulator.hosts import Common, Host
from proof.simulator.keeping import Keeping
from proof.simulator.moving import bring_back, lose_all_but_files, something_is_on_its_way
from proof.simulator.people import People
from proof.simulator.scenario import KEEPING_VERBS, WAR_S, Breakage, Order, Scenario, Task

ALONE_S = 60  # how long nobody does anything when peace has come: what can go on by itself must
PEACE_S = 400.0  # long enough for every wait, retry and pause of a scenario
TURNS_MAX = 300_000  # of all processes together; a history takes some thousands


class Played(msgspec.Struct):
    scenario: Scenario
    history: History
    store: MemoryStore
    seconds: float  # of virtual time


def play(scenario: Scenario, store: Callable[[], MemoryStore] = MemoryStore) -> Played:
    """Play a scenario to its end, in virtual time. `store` is for those who want to break it on purpose."""
    loop = FilesLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_Conductor(loop, scenario, store()).conduct())


class _Conductor:
    """Stands outside of all processes, and sees everything."""

    def __init__(self, loop: FilesLoop, scenario: Scenario, shared: MemoryStore) -> None:
        self._loop = loop
        self._scenario = scenario
        self._shared = shared
        self._common: Common
        self._people: People
        self._keeping: Keeping
        self._hosts: list[Host] = []
        self._is_cut_short = False

    async def conduct(self) -> Played:
        self._common = Common(self._loop, self._scenario, self._shared)
        self._hosts = [Host(self._common, number) for number in range(self._scenario.hosts)]
        self._people = People(self._common, self._hosts)
        self._keeping = Keeping(self._common, self._hosts, self._people)
        self._loop.set_exception_handler(lambda _, context: self._people.trouble(f"loop: {_told(context)}"))
        self._loop.allow(TURNS_MAX, partial(self._cut_short, asyncio.current_task()))
        with self._common.files.in_place_of_the_disk(), _listening(self._people.trouble):
            try:
                for host in self._hosts:
                    host.boot()
                await self._war()
                await self._peace()
                await self._close()
            except asyncio.CancelledError:
                if not self._is_cut_short:
                    raise
            finally:
                self._common.history.is_open = False
            await self._bury()
        return Played(self._scenario, self._common.history, self._shared, self._loop.time())

    # ---- war ----------------------------------------------------------------------------------------------------

    async def _war(self) -> None:
        scenario, people = self._scenario, self._people
        timeline: list[tuple[float, int, Any]] = [
            (item.at_s, place, item)
            for place, item in enumerate((*scenario.tasks, *scenario.orders, *scenario.breakages))
        ]
        for at_s, _, item in sorted(timeline, key=lambda entry: entry[:2]):
            await asyncio.sleep(max(0.0, at_s - self._loop.time()))
            match item:
                case Task():
                    people.aside(people.hand_in(item))
                case Order() if item.verb in KEEPING_VERBS:
                    people.aside(self._keeping.order(item))
                case Order():
                    people.aside(people.order(item))
                case _:
                    people.aside(self._break(item))
        await asyncio.sleep(max(0.0, WAR_S - self._loop.time()))

    async def _break(self, what: Breakage) -> None:
        host = self._hosts[what.host]
        match what.kind:
            case "kill":
                host.kill("kill", what.turns)
                await host.died.wait()
                await self._reboot(host, what.for_s)
            case "power":
                for each in self._hosts:
                    each.kill("power")
                await asyncio.gather(*(self._reboot(each, what.for_s) for each in self._hosts))
            case "restored":
                await self._restore_all(what.for_s)
            case "moved":
                await self._move_all(what)
            case "close":
                await self._restart(host, what.for_s)
            case "freeze" | "zombie":
                host.freeze()
                host.liveness.is_deposed = what.kind == "zombie"
                await asyncio.sleep(what.for_s)
                host.thaw(what.kind)
                await asyncio.sleep(0.5)
                host.liveness.is_deposed = False
            case "depose":
                host.note("depose", "taken for dead")
                host.liveness.is_deposed = True
                await asyncio.sleep(what.for_s)
                host.liveness.is_deposed = False
            case "clock":
                host.clock.offset_us += int((what.amount - 0.5) * 20e6)
                line = ClockSet(at_us=self._common.now_us(), process=str(host.number), offset_us=host.clock.offset_us)
                self._common.history.write(line)
            case _:
                await self._bad_weather(host, what)

    async def _restore_all(self, after_s: float) -> None:
        """Everything breaks down, and the store comes back from a backup of that very moment: what had not ended is
        held there, as `backup` leaves it.
        """
        for each in self._hosts:
            each.kill("restored")
        why = RESTORED
        held = [head.id for head in await self._shared.heads(Query(limit=10_000)) if head.status not in ENDS]
        await self._shared.commit([Hold(execution_ids=tuple(held), why=why)])
        self._common.history.write(Held(at_us=self._common.now_us(), process="", execution_ids=held, why=why))
        await asyncio.gather(*(self._reboot(each, after_s) for each in self._hosts))

    async def _move_all(self, what: Breakage) -> None:
        if what.awaits:
            await something_is_on_its_way(self._common, what.awaits)
        for each in self._hosts:
            each.kill("moved")
        files = await lose_all_but_files(self._common)
        await asyncio.gather(*(self._reboot(each, what.for_s) for each in self._hosts))
        await bring_back(self._people, files)

    async def _bad_weather(self, host: Host, what: Breakage) -> None:
        match what.kind:
            case "disk_fails":
                host.weather(what.kind, lost_before=what.amount, read_fails=what.amount / 2)
            case "disk_unsure":
                host.weather(what.kind, lost_after=what.amount)
            case "disk_late":
                host.weather(what.kind, late=what.amount)
            case _:
                host.weather(what.kind, commit_s=what.amount, read_s=what.amount / 10)
        await asyncio.sleep(what.for_s)
        host.fair_weather()

    async def _restart(self, host: Host, after_s: float) -> None:
        """As after SIGTERM: the engine is closed, its process ends, and a new one begins."""
        if not host.is_up:
            return
        process, host.is_up = host.process, False
        host.note("closes")

        async def close(host: Host) -> bool:
            await host.close()
            return True

        await self._people.on(host, close)
        if host.process is process:  # and did not die over it
            host.kill("close")
        await self._reboot(host, after_s)

    async def _reboot(self, host: Host, after_s: float) -> None:
        dead = host.process
        await asyncio.sleep(after_s)
        if host.process is dead:
            host.boot()

    # ---- peace --------------------------------------------------------------------------------------------------

    async def _peace(self) -> None:
        """Nothing breaks any more, every dead machine is up again, and after a while a person attends to what waits."""
        self._common.world.is_peaceful = True
        for host in self._hosts:
            host.fair_weather()
            host.liveness.is_deposed = False
            host.process.thaw()
        for _ in range(ALONE_S):
            if not await self._unfinished():
                break
            await asyncio.sleep(1.0)
        else:
            self._common.history.write(LeftAlone(at_us=self._common.now_us(), process="", for_s=ALONE_S))
        end_s = self._loop.time() + PEACE_S
        while self._loop.time() < end_s:
            unfinished = await self._unfinished()
            if not unfinished and all(errand.done() for errand in self._people.errands):
                return
            await asyncio.gather(*(self._attend(head) for head in unfinished))
            await asyncio.sleep(1.0)

    async def _unfinished(self) -> list[Head]:
        for host in self._hosts:
            if not host.process.is_alive:
                await self._reboot(host, 0)
        return [head for head in await self._shared.heads(Query(limit=10_000)) if head.status not in ENDS]

    async def _attend(self, head: Head) -> None:
        try:
            _, state, _ = await read_state(self._shared, head.id)
        except HoldfastError as error:
            self._people.trouble(f"{head.id} cannot be read: {error}")
            return
        if head.held:
            await self._keeping.let_go(head)
        else:
            await self._people.attend(head, state)

    # ---- the end ------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Every engine closes as it would in a clean shutdown, and must then hold nothing."""
        for errand in self._people.errands:
            errand.cancel()
        await asyncio.sleep(10)  # a stubborn tool has its time

        async def close(host: Host) -> bool:
            held = await host.close()
            if held:
                self._people.trouble(f"after closing, {host.process.name} still holds {held}")
            return True

        for host in self._hosts:
            if not host.is_up or not await self._people.on(host, close):
                self._people.trouble(f"{host.process.name} could not be closed")

    def _cut_short(self, conducting: asyncio.Task[Any] | None) -> None:
        """Something turns in circles, perhaps while no time passes: nobody takes another turn."""
        self._is_cut_short = True
        self._common.history.write(CutShort(at_us=self._common.now_us(), process="", turns=TURNS_MAX))
        self._common.history.is_open = False
        for process in self._common.processes:
            process.kill()
        if conducting is not None:
            conducting.cancel()

    async def _bury(self) -> None:
        for process in self._common.processes:
            process.kill()
            await process.bury()


@contextmanager
def _listening(trouble: Callable[[str], None]) -> Generator[None]:
    """What the engine complains of goes into the history, and nowhere else."""
    listener, logger = _TroubleLog(trouble), logging.getLogger("holdfast")
    logger.addHandler(listener)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagate


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')} {context.get('exception')!r}"


class _TroubleLog(logging.Handler):
    """The engine's complaints about itself become part of the history."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._trouble = trouble

    def emit(self, record: logging.LogRecord) -> None:
        error = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self._trouble(f"log: {record.getMessage()}{error}")
