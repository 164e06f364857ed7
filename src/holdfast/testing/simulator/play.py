"""Plays a scenario: war, in which things break while tasks are handed in and commanded, and then peace, in which a
patient person answers every question until everything has ended. Returns the history, for the checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import HoldfastError, InputInvalid, PlanInvalid
from holdfast.core.execution import Execution
from holdfast.core.lifecycle import ENDS
from holdfast.engine.engine import Engine
from holdfast.journal.log import read_state
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Head, Query
from holdfast.testing.simulator.history import HandedIn, History, Ordered, Returned, Trouble, Watched
from holdfast.testing.simulator.hosts import Common, Host
from holdfast.testing.simulator.processes import SimulatedLoop
from holdfast.testing.simulator.programs import EVENTS
from holdfast.testing.simulator.scenario import WAR_S, Breakage, Order, Scenario, Task
from holdfast.tools.call import Happened

PEACE_S = 400.0  # long enough for every wait, retry and pause of a scenario
TRIES_MAX = 60
Errand = Callable[[Host], Awaitable[bool]]


class Played(msgspec.Struct):
    scenario: Scenario
    history: History
    store: MemoryStore
    seconds: float  # of virtual time


def play(scenario: Scenario, store: Callable[[], MemoryStore] = MemoryStore) -> Played:
    """Play a scenario to its end, in virtual time. `store` is for those who want to break it on purpose."""
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_Conductor(loop, scenario, store()).conduct())


class _Conductor:
    """Stands outside of all processes, and sees everything."""

    def __init__(self, loop: SimulatedLoop, scenario: Scenario, shared: MemoryStore) -> None:
        self._loop = loop
        self._scenario = scenario
        self._shared = shared
        self._common: Common
        self._hosts: list[Host] = []
        self._ids: dict[int, str] = {}
        self._side: list[asyncio.Task[Any]] = []
        self._sends = 0

    async def conduct(self) -> Played:
        self._common = Common(self._loop, self._scenario, self._shared)
        listener = _TroubleLog(self._trouble)
        logger = logging.getLogger("holdfast")
        logger.addHandler(listener)
        propagate, logger.propagate = logger.propagate, False
        self._loop.set_exception_handler(lambda _, context: self._trouble(f"loop: {_told(context)}"))
        try:
            self._hosts = [Host(self._common, number) for number in range(self._scenario.hosts)]
            for host in self._hosts:
                host.boot()
            await self._war()
            await self._peace()
            await self._close()
        finally:
            self._common.history.is_open = False
            logger.removeHandler(listener)
            logger.propagate = propagate
        await self._bury()
        return Played(self._scenario, self._common.history, self._shared, self._loop.time())

    # ---- war ----------------------------------------------------------------------------------------------------

    async def _war(self) -> None:
        scenario = self._scenario
        timeline: list[tuple[float, int, Any]] = [
            (item.at_s, place, item)
            for place, item in enumerate((*scenario.tasks, *scenario.orders, *scenario.breakages))
        ]
        for at_s, _, item in sorted(timeline, key=lambda entry: entry[:2]):
            await asyncio.sleep(max(0.0, at_s - self._loop.time()))
            match item:
                case Task():
                    self._aside(self._hand_in(item))
                case Order():
                    self._aside(self._order(item))
                case _:
                    self._aside(self._break(item))
        await asyncio.sleep(max(0.0, WAR_S - self._loop.time()))

    def _aside(self, work: Any) -> None:
        self._side.append(self._loop.create_task(work))

    async def _break(self, what: Breakage) -> None:
        host = self._hosts[what.host]
        match what.kind:
            case "kill":
                host.kill(what.turns)
                await host.died.wait()
                await self._reboot(host, what.for_s)
            case "power":
                for each in self._hosts:
                    each.process.kill()
                await asyncio.gather(*(self._reboot(each, what.for_s) for each in self._hosts))
            case "freeze" | "zombie":
                host.note(what.kind)
                host.process.freeze()
                host.liveness.is_deposed = what.kind == "zombie"
                await asyncio.sleep(what.for_s)
                host.process.thaw()
                host.note("thawed")
                await asyncio.sleep(0.5)
                host.liveness.is_deposed = False
            case "depose":
                host.note("taken for dead")
                host.liveness.is_deposed = True
                await asyncio.sleep(what.for_s)
                host.liveness.is_deposed = False
            case "disk_fails" | "disk_lies" | "disk_late" | "disk_slow":
                await self._bad_weather(host, what)
            case "clock":
                host.note("its clock jumps")
                host.clock.offset_us += int((what.amount - 0.5) * 20e6)

    async def _bad_weather(self, host: Host, what: Breakage) -> None:
        match what.kind:
            case "disk_fails":
                host.weather(lost_before=what.amount, read_fails=what.amount / 2)
            case "disk_lies":
                host.weather(lost_after=what.amount)
            case "disk_late":
                host.weather(late=what.amount)
            case _:
                host.weather(commit_s=what.amount, read_s=what.amount / 10)
        await asyncio.sleep(what.for_s)
        host.fair_weather()

    async def _reboot(self, host: Host, after_s: float) -> None:
        dead = host.process
        await asyncio.sleep(after_s)
        if host.process is dead:
            host.boot()

    # ---- what people do -----------------------------------------------------------------------------------------

    async def _insist(self, errand: Errand, first: int = 0) -> bool:
        """Try an errand on one machine after the other, as somebody would who must get it done."""
        for attempt in range(TRIES_MAX):
            host = self._hosts[(first + attempt) % len(self._hosts)]
            if host.is_up and await self._on(host, errand):
                return True
            await asyncio.sleep(0.3)
        return False

    async def _on(self, host: Host, errand: Errand) -> bool:
        """Run an errand inside a machine's process, which may die under it."""

        async def run() -> bool:
            try:
                return await errand(host)
            except (PlanInvalid, InputInvalid) as error:
                self._trouble(f"the scenario makes no sense: {error}")
                return True
            except HoldfastError:
                return False
            except Exception as error:
                self._trouble(f"an errand met {error!r}")
                return True

        task, death = host.process.spawn(run()), self._loop.create_task(host.died.wait())
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        death.cancel()
        return task.done() and task.result()

    async def _hand_in(self, task: Task) -> None:
        async def hand_in(host: Host) -> bool:
            program, inputs = (task.plan, {}) if task.plan is not None else ("play", {"script": task.script})
            key = f"task-{task.number}"
            run = await host.engine.start(program or {}, inputs=inputs, key=key, title=key, owner="client")
            self._write(HandedIn(at_us=self._now_us(), process=host.process.name, key=key, execution_id=run.id))
            self._ids[task.number] = run.id
            self._common.world.titles[run.id] = key
            return True

        if task.twice:  # somebody else hands in the same
            self._aside(self._insist(hand_in, task.number + 1))
        if await self._insist(hand_in, task.number) and task.watched:
            self._aside(self._watch(task))
            self._aside(self._await_result(task))

    async def _watch(self, task: Task) -> None:
        execution_id, last = self._ids[task.number], 0

        async def watch(host: Host) -> bool:
            nonlocal last
            async for shown in host.engine.get(execution_id).watch(last):
                if shown.seq is not None:
                    last = shown.seq
                    self._write(
                        Watched(
                            at_us=self._now_us(),
                            process=host.process.name,
                            watcher=f"w{task.number}",
                            execution_id=execution_id,
                            seq=shown.seq,
                            body=msgspec.json.encode(shown.event),
                        )
                    )
            return True

        await self._insist(watch, task.number + 1)

    async def _await_result(self, task: Task) -> None:
        execution_id = self._ids[task.number]

        async def wait(host: Host) -> bool:
            run = host.engine.get(execution_id)
            try:
                status, output = "completed", await run.result()
            except HoldfastError as error:
                status, output = type(error).__name__, str(error)
                if status not in ("ExecutionFailed", "ExecutionStopped"):
                    return False
            line = Returned(
                at_us=self._now_us(), process=host.process.name, execution_id=execution_id, status=status, output=output
            )
            self._write(line)
            return True

        await self._insist(wait, task.number)

    async def _order(self, order: Order) -> None:
        heads = await self._shared.heads(Query(limit=1000))
        if not heads:
            return
        living = [head for head in heads if head.status not in ENDS]
        choice = living if living and order.whom else heads  # now and then somebody commands what is over
        whom = choice[order.whom % len(choice)]
        command_id = f"order-{order.number}"
        orders = [self._command(whom.id, order.verb, command_id, order.number)]
        if order.twice:
            orders.append(self._command(whom.id, order.verb, command_id, order.number + 1))
        await asyncio.gather(*orders)

    async def _command(self, execution_id: str, verb: str, command_id: str, first: int) -> None:
        async def command(host: Host) -> bool:
            arguments = await _arguments(host.engine, execution_id, verb)
            given = Ordered(
                at_us=self._now_us(),
                process=host.process.name,
                command_id=command_id,
                execution_id=execution_id,
                verb=verb,
            )
            self._write(given)
            answer = await host.engine.command(execution_id, verb, by="client", command_id=command_id, **arguments)  # type: ignore[arg-type]
            self._write(msgspec.structs.replace(given, at_us=self._now_us(), answer=answer))
            return True

        await self._insist(command, first)

    # ---- peace --------------------------------------------------------------------------------------------------

    async def _peace(self) -> None:
        """Nothing breaks any more, every dead machine is up again, and a person attends to whatever waits."""
        self._common.world.is_peaceful = True
        for host in self._hosts:
            host.fair_weather()
            host.liveness.is_deposed = False
            host.process.thaw()
        end_s = self._loop.time() + PEACE_S
        while self._loop.time() < end_s:
            for host in self._hosts:
                if not host.process.is_alive:
                    await self._reboot(host, 0)
            unfinished = [head for head in await self._shared.heads(Query(limit=10_000)) if head.status not in ENDS]
            if not unfinished and all(side.done() for side in self._side):
                return
            await asyncio.gather(*(self._attend(head) for head in unfinished))
            await asyncio.sleep(1.0)

    async def _attend(self, head: Head) -> None:
        try:
            _, state, _ = await read_state(self._shared, head.id)
        except HoldfastError as error:
            self._trouble(f"{head.id} cannot be read: {error}")
            return
        for asked in list(state.open_requests()):
            await self._answer(head.id, asked.request, state)
        if head.status in ("paused", "interrupted"):
            await self._person(head.id, "resume")
        for reason in head.reasons:
            if reason.kind == "event":
                await self._person(head.id, "send", name=reason.name)

    async def _answer(self, execution_id: str, request: ev.Request, state: Execution) -> None:
        match request.kind:
            case "approval":
                await self._person(execution_id, "approve", step=request.id)
            case "question":
                await self._person(execution_id, "answer", step=request.id, data=msgspec.Raw(b"42"))
            case "doubt":
                truth = self._common.world.truth(f"{execution_id}:{request.path}")
                remedy = "done" if isinstance(truth, Happened) else "again"
                await self._person(execution_id, "resolve", step=request.id, remedy=remedy)
            case _:
                tries = len(state.steps[request.path].attempts)
                await self._person(execution_id, "resolve", step=request.id, remedy="again" if tries < 5 else "fail")

    async def _person(self, execution_id: str, verb: str, **arguments: Any) -> None:
        self._sends += 1
        command_id = f"person-{self._sends}"

        async def say(host: Host) -> bool:
            given = Ordered(
                at_us=self._now_us(),
                process=host.process.name,
                command_id=command_id,
                execution_id=execution_id,
                verb=verb,
            )
            self._write(given)
            answer = await host.engine.command(execution_id, verb, by="person", command_id=command_id, **arguments)  # type: ignore[arg-type]
            self._write(msgspec.structs.replace(given, at_us=self._now_us(), answer=answer))
            return True

        await self._insist(say, self._sends)

    # ---- the end ------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Every engine closes as it would in a clean shutdown, and must then hold nothing."""
        for side in self._side:
            side.cancel()
        await asyncio.sleep(10)  # a stubborn tool has its time

        async def close(host: Host) -> bool:
            held = await host.close()
            if held:
                self._trouble(f"after closing, {host.process.name} still holds {held}")
            return True

        for host in self._hosts:
            if not host.is_up or not await self._on(host, close):
                self._trouble(f"{host.process.name} could not be closed")

    async def _bury(self) -> None:
        for process in self._common.processes:
            process.kill()
            await process.bury()

    def _now_us(self) -> int:
        return self._common.now_us()

    def _write(self, line: Any) -> None:
        self._common.history.write(line)

    def _trouble(self, text: str) -> None:
        self._write(Trouble(at_us=self._now_us(), process="", text=text))


async def _arguments(engine: Engine, execution_id: str, verb: str) -> dict[str, Any]:
    """What a client would say with this verb right now."""
    if verb == "send":
        return {"name": EVENTS[0], "data": msgspec.Raw(b'"early"')}
    if verb == "extend":
        steps = [{"id": "extra", "tool": "look", "timeout": 4}]
        return {"data": msgspec.Raw(msgspec.json.encode(steps)), "count": 1}
    if verb in ("approve", "deny", "answer", "resolve"):
        state = await engine.get(execution_id).state()
        for asked in state.open_requests():
            remedy = {"remedy": asked.request.remedies[-1]} if verb == "resolve" else {}
            return {"step": asked.request.id, **remedy}
    return {}


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
