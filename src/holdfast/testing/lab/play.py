"""Conducts one run: hands the task in, restarts what was killed, and does what people and the outside do.

Stands outside of all processes, so that nothing it does dies with one of them. Whatever it asks of an engine it asks
again, under the same id, of the next one if the first was killed before it answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core.commands import Verb
from holdfast.core.events import Request
from holdfast.core.lifecycle import ENDS
from holdfast.engine.at_rest import PEOPLE, moved_by
from holdfast.journal.log import read_state
from holdfast.journal.store import Head, Query
from holdfast.programs.prepare import Subject
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.outcome import QUERY_MAX, Outcome, outcome_of
from holdfast.testing.lab.script import Actor, Later, Nothing, ScriptedCommand, as_answer, resolve, send
from holdfast.testing.lab.world import Host, World

T = TypeVar("T")
RESTART_S = 1.0  # how long a killed process stays away
LOOK_S = 1.0  # how soon to look at what should be driven and is not
LOOK_S_MAX = 3600.0  # when looking has not helped for long


class Task(msgspec.Struct, kw_only=True):
    program: Subject
    inputs: Mapping[str, Any] | None = None
    budget: float | Mapping[str, float] | None = None
    resources: Mapping[str, Any] | None = None
    patience_s: float = 0.0
    limit_s: float = 0.0
    seed: str = ""
    tell_truth: bool = False  # settle doubts as they are, unless the script says otherwise


class Play:
    def __init__(self, world: World, task: Task, actor: Actor) -> None:
        self._world = world
        self._task = task
        self._actor = actor
        self._hosts: list[Host] = []
        self._host: Host
        self._heard: set[tuple[str, str]] = set()  # requests and waits that were attended to
        self._due: list[tuple[float, str, ScriptedCommand, str]] = []  # when, which execution, what, said as
        self._sent = 0
        self._root = ""
        self._stuck_since: float | None = None
        self._look_s = LOOK_S
        world.on_event = self._on_event

    async def run(self) -> Outcome:
        try:
            await self._boot()
            self._root = await self._insist(self._hand_in)
            await self._conduct()
            world = self._world
            outcome = await outcome_of(world.store, self._root, world.calls, world.clock.now_us())
            outcome.crashes = world.crashes.reached
            outcome.commits = world.commits
            return outcome
        finally:
            self._world.is_over = True
            self._world.loop.ended_s = self._world.loop.time()
            self._world.loop.set_exception_handler(_ignore)
            for host in self._hosts:
                host.process.kill()
                await host.process.bury()

    async def _conduct(self) -> None:
        while True:
            self._check()
            heads = await self._heads()
            await self._attend(heads)
            heads = await self._heads()
            if await self._is_over(heads):
                return
            await self._wait(heads)

    async def _heads(self) -> list[Head]:
        return await self._world.store.heads(Query(limit=QUERY_MAX))

    def _check(self) -> None:
        if self._world.fault is not None:
            raise self._world.fault
        if self._world.loop.time() > self._task.limit_s:
            days = self._task.limit_s / 86400
            raise LabError(
                f"it is not over after {days:g} days of virtual time; if it is meant to take that long, "
                'say so with Lab(limit="…"), otherwise look for a wait that repeats for ever'
            )

    # ---- processes ----------------------------------------------------------------------------------------------

    async def _boot(self) -> None:
        self._host = Host(self._world, f"{self._task.seed}/{len(self._hosts)}")
        self._hosts.append(self._host)
        await self._host.process.spawn(self._host.boot())  # it writes nothing yet, so nothing kills it

    async def _insist(self, errand: Callable[[], Awaitable[T]]) -> T:
        """Run an errand inside the process, and again in the next one if it was killed before the end."""
        while True:
            asked = self._host.process.spawn(cast("Any", errand()))
            if await self._done(asked):
                return asked.result()
            self._check()
            await self._reboot()

    async def _done(self, task: asyncio.Task[Any]) -> bool:
        death = asyncio.ensure_future(self._host.died.wait())
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        return task.done()

    async def _reboot(self) -> None:
        await asyncio.sleep(RESTART_S)
        await self._boot()

    async def _hand_in(self) -> str:
        task = self._task
        run = await self._host.engine.start(
            task.program, inputs=task.inputs, budget=task.budget, resources=task.resources, key="lab"
        )
        return run.id

    # ---- what people do -----------------------------------------------------------------------------------------

    def _on_event(self, execution_id: str, event: str, path: str) -> None:
        for said in self._actor.due_events(event, path):
            self._say(execution_id, said)

    def _say(self, execution_id: str, said: ScriptedCommand, after_s: float = 0.0, what: str = "") -> None:
        self._due.append((self._world.loop.time() + after_s, execution_id, said, what or said.verb))

    async def _attend(self, heads: list[Head]) -> None:
        if self._host.died.is_set():
            await self._reboot()
        for head in heads:
            if head.status not in ENDS:
                self._host.engine.raise_problem(head.id)
                await self._hear(head)
        now_s = self._world.loop.time()
        timed, self._actor.timed = self._actor.timed, []
        for at_s, when, said in timed:
            if at_s > now_s:
                self._actor.timed.append((at_s, when, said))
            else:
                self._say(self._root, said, what=f'commands["{when}"]')
        due, self._due = [one for one in self._due if one[0] <= now_s], [one for one in self._due if one[0] > now_s]
        for _, execution_id, said, what in due:
            await self._command(execution_id, said, what)

    async def _hear(self, head: Head) -> None:
        """Answer what is asked, and send what is waited for, if the script says so."""
        kinds = {reason.kind for reason in head.reasons}
        if kinds.isdisjoint((*PEOPLE, "event")):
            return
        _, state, _ = await read_state(self._world.store, head.id)
        for step in state.steps.values():  # the head lists only some
            if step.status != "waiting" or step.reason != "event":
                continue
            if self._is_new(head.id, f"{step.path}/{step.name}"):
                given = self._actor.event(step.name)
                after_s, data = _delayed(given)
                if given is not Nothing:
                    self._say(head.id, send(step.name, data), after_s, f'events["{step.name}"]')
        if not kinds.isdisjoint(PEOPLE):
            for asked in state.open_requests():
                if self._is_new(head.id, asked.request.id):
                    self._answer(head.id, asked.request)

    def _answer(self, execution_id: str, request: Request) -> None:
        given = self._actor.answer(request.path)
        after_s, said = _delayed(given)
        if given is Nothing:
            if request.kind != "doubt" or not self._task.tell_truth:
                return
            said = self._truth(execution_id, request.path)
        self._say(execution_id, _about(request, as_answer(request, said)), after_s, f'answers["{request.path}"]')

    def _truth(self, execution_id: str, path: str) -> ScriptedCommand:
        """What a person finds who goes and looks."""
        for call in reversed(self._world.calls):
            if (call.execution_id, call.path, call.ended) == (execution_id, path, "returned"):
                return resolve("done", output=call.output)
        return resolve("again")

    def _is_new(self, execution_id: str, what: str) -> bool:
        is_new = (execution_id, what) not in self._heard
        self._heard.add((execution_id, what))
        return is_new

    async def _command(self, execution_id: str, said: ScriptedCommand, what: str) -> None:
        self._sent += 1
        command_id = f"said-{self._sent}"

        async def command() -> Any:
            return await self._host.engine.command(
                execution_id, cast("Verb", said.verb), by="person", command_id=command_id, **said.arguments
            )

        answer = await self._insist(command)
        if answer.outcome == "refused":
            raise LabError(f"{what} was refused: {answer.text}")

    # ---- time ---------------------------------------------------------------------------------------------------

    async def _is_over(self, heads: list[Head]) -> bool:
        """Nothing moves by itself any more, and nobody has anything left to say."""
        if self._host.died.is_set() or self._due or self._world.fault is not None:
            return False
        if any(self._moves(head) for head in heads) or await self._world.store.pending():
            self._stuck_since = None
            return False
        if all(head.status in ENDS for head in heads):
            return True
        if self._actor.timed:
            return False
        now_s = self._world.loop.time()
        self._stuck_since = now_s if self._stuck_since is None else self._stuck_since
        return now_s - self._stuck_since >= self._task.patience_s

    def _moves(self, head: Head) -> bool:
        """Whether something will become of it by itself. The end of a child is in the inbox."""
        if head.driver and head.status not in ("queued", "running", "waiting"):
            return True  # its driver has not released it yet
        movers = moved_by(head, self._world.clock.now_us(), self._world.liveness.is_dead)
        return not movers.isdisjoint({"driver", "time"})

    async def _wait(self, heads: list[Head]) -> None:
        """Until something is written, or the next one's time has come."""
        now_s, now_us = self._world.loop.time(), self._world.clock.now_us()
        times = [self._task.limit_s + LOOK_S, *(at for at, *_ in self._due), *(at for at, *_ in self._actor.timed)]
        if self._stuck_since is not None:
            times.append(self._stuck_since + self._task.patience_s)
        for head in heads:
            if head.status not in ENDS and head.wake_at is not None and not head.driver:
                times.append(now_s + ((head.wake_at - now_us) / 1e6 if head.wake_at > now_us else self._look_s))
        self._look_s = min(self._look_s * 2, LOOK_S_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(times) - now_s)):
                await self._world.changed.wait()
                self._look_s = LOOK_S
        self._world.changed.clear()
        self._host.engine.look()


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the dying say is of no interest."""


def _delayed(given: Any) -> tuple[float, Any]:
    return (given.delay_s, given.what) if isinstance(given, Later) else (0.0, given)


def _about(request: Request, said: ScriptedCommand) -> ScriptedCommand:
    if said.verb == "budget":
        return said  # it is about the whole execution
    return msgspec.structs.replace(said, arguments={**said.arguments, "step": request.id})
