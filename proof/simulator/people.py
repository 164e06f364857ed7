"""What people do in a scenario: hand in tasks, watch them, wait for their results, command them, answer questions.

Everybody here is stubborn: an errand is tried on one machine after the other until one has done it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.commands import Command
from holdfast.core.errors import HoldfastError, InputInvalid, PlanInvalid
from holdfast.core.execution import Execution
from holdfast.core.lifecycle import ENDS
from holdfast.engine.commands.inbox import settle
from holdfast.engine.engine import Engine
from holdfast.journal.log import read_state
from holdfast.journal.store import Head, Query
from holdfast.testing.virtual_time import START_US
from holdfast.tools.call import Happened
from proof.simulator.history import Called, HandedIn, Ordered, Returned, Trouble, Watched
from proof.simulator.hosts import Common, Host
from proof.simulator.oddities import oddity
from proof.simulator.programs import EVENTS
from proof.simulator.scenario import Order, Task

ODD = "odd"  # who says what makes no sense
TRIES_MAX = 60
PATIENCE_S = 60.0  # for an errand that should be done at once
MOMENT_WITHIN_S = 5.0  # for a file that is just being written, or a limit that just comes
LOOKS_EVERY_S = 0.002
AGAIN_MAX = 5  # how often a person tries the same thing before giving it up
Errand = Callable[[Host], Awaitable[bool]]
Arguments = Callable[[Engine], Awaitable[dict[str, Any]]]


class People:
    def __init__(self, common: Common, hosts: list[Host]) -> None:
        self._common = common
        self._hosts = hosts
        self._loop = common.loop
        self._ids: dict[int, str] = {}
        self._said = 0
        self.errands: list[asyncio.Task[Any]] = []
        common.world.deliver = self.deliver

    def aside(self, work: Any) -> None:
        self.errands.append(self._loop.create_task(work))

    async def insist(self, errand: Errand, first: int = 0, patience_s: float | None = PATIENCE_S) -> bool:
        """Try an errand on one machine after the other, as somebody would who must get it done."""
        for attempt in range(TRIES_MAX):
            host = self._hosts[(first + attempt) % len(self._hosts)]
            if host.is_up and await self.on(host, errand, patience_s):
                return True
            await asyncio.sleep(0.3)
        return False

    async def on(self, host: Host, errand: Errand, patience_s: float | None = PATIENCE_S) -> bool:
        """Run an errand inside a machine's process, which may die under it."""

        async def run() -> bool:
            try:
                return await errand(host)
            except (PlanInvalid, InputInvalid) as error:
                self.trouble(f"the scenario makes no sense: {error}")
                return True
            except HoldfastError:
                return False
            except Exception as error:
                self.trouble(f"an errand met {error!r}")
                return True

        task, death = host.process.spawn(run()), self._loop.create_task(host.died.wait())
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED, timeout=patience_s)
        death.cancel()
        return task.done() and not task.cancelled() and task.result()

    # ---- tasks --------------------------------------------------------------------------------------------------

    async def hand_in(self, task: Task) -> None:
        async def hand_in(host: Host) -> bool:
            program, inputs = (task.plan, {}) if task.plan is not None else ("play", {"script": task.script})
            key = f"task-{task.number}"
            run = await host.engine.start(
                program or {}, inputs=inputs, key=key, title=key, owner="client", hold=task.hold, budget=task.budget,
                checkpoint=task.checkpoint,
            )  # fmt: skip
            self._write(HandedIn(at_us=self._now_us(), process=host.process.name, key=key, execution_id=run.id))
            self._ids[task.number] = run.id
            self._common.world.titles[run.id] = key
            return True

        if task.twice:  # somebody else hands in the same
            self.aside(self.insist(hand_in, task.number + 1))
        if await self.insist(hand_in, task.number) and task.watched:
            self.aside(self._watch(task))
            self.aside(self._await_result(task))

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

        await self.insist(watch, task.number + 1, None)

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

        await self.insist(wait, task.number, None)

    # ---- commands -----------------------------------------------------------------------------------------------

    async def order(self, order: Order) -> None:
        if order.among in ("saving", "expiring"):
            await self._until_there_is(order.among)
        heads = await self._common.shared.heads(Query(limit=1000))
        ended = [head for head in heads if head.status in ENDS]
        living = [head for head in heads if head.status not in ENDS]
        if order.among == "roots":
            ended = roots(ended)
        if order.verb == "retry":
            return await self._retry(ended[order.whom % len(ended)], order) if ended else None
        choice = living if living and order.whom else heads  # now and then somebody commands what is over
        if order.among == "parents":
            parents = {head.parent_id for head in living}
            choice = [head for head in living if head.id in parents]
        elif order.among == "orphans":
            choice = [head for head in living if self._common.is_gone(head.driver)]
        elif order.among:
            choice = [head for head in living if self._is_at(order.among, head)]
        elif order.task is not None:
            choice = [head for head in heads if head.key == f"task-{order.task}"]
        if not choice:
            return None
        whom = choice[order.whom % len(choice)]
        if order.odd:
            return await self._say_oddly(whom, order)
        rng = Random(f"{self._common.scenario.seed}/order/{order.number}")

        async def arguments(engine: Engine) -> dict[str, Any]:
            if order.verb == "extend" and (
                order.among or order.task is not None
            ):  # more than once, perhaps, and so each under a name of its own
                return _extension(f"extra{order.number}")
            return await _arguments(engine, whom.id, order.verb, rng)

        firsts = (order.number, order.number + 1) if order.twice else (order.number,)
        said = (self._say(whom.id, order.verb, f"order-{order.number}", arguments, first) for first in firsts)
        await asyncio.gather(*said)
        return None

    async def _until_there_is(self, moment: str) -> None:
        """Wait a while for somebody who is just there."""
        give_up_s = self._loop.time() + MOMENT_WITHIN_S
        while self._loop.time() < give_up_s:
            if any(self._is_at(moment, head) for head in self._common.shared.all_heads()):
                return
            await asyncio.sleep(LOOKS_EVERY_S)

    def _is_at(self, moment: str, head: Head) -> bool:
        """Whether a file of it is being written; or whether the time for an answer is over, and nobody has noticed."""
        if moment == "saving":
            return head.id in self._common.files.being_written
        is_asking = head.status == "waiting" and any(reason.kind == "approval" for reason in head.reasons)
        return is_asking and not head.driver and 0 < (head.wake_at or 0) <= START_US + self._now_us()

    async def _say_oddly(self, whom: Head, order: Order) -> None:
        """Written into the inbox by a client that does not look at what it sends: another version, or a broken one."""
        rng = Random(f"{self._common.scenario.seed}/odd/{order.number}")
        _, state, _ = await read_state(self._common.shared, whom.id)
        asked = next((asked.request.id for asked in state.open_requests()), "")
        command = Command(
            id=f"{ODD}-{order.number}",
            execution_id=whom.id,
            verb=order.verb,  # type: ignore[arg-type]
            at=START_US + self._now_us(),
            by=f"{ODD}-{order.number}",
            arguments=msgspec.Raw(oddity(order.verb, asked, rng)),
        )

        async def post(host: Host) -> bool:
            await host.store.commit([command])
            drivers = host.engine._keeper.drivers  # pyright: ignore[reportPrivateUsage] -- as the engine itself asks
            await settle(host.engine.services, host.liveness, command, drivers.get)
            return True

        await self.insist(post, order.number)

    async def _retry(self, whom: Head, order: Order) -> None:
        """Run again what is over, also a second time, now and then from a step on. Nobody insists: whoever retries
        twice so gets two executions."""
        host = self._hosts[order.number % len(self._hosts)]
        rng = Random(f"{self._common.scenario.seed}/retry/{order.number}")

        async def retry(host: Host) -> bool:
            steps = list((await host.engine.get(whom.id).state()).steps)
            from_step = rng.choice(steps) if steps and rng.random() < 0.5 else ""
            mended = mended_plan((await host.engine.get(whom.id).state()).facts().program, rng)
            run = await host.engine.retry(whom.id, from_step=from_step, program=mended, again=True, by="client")
            self._common.world.titles[run.id] = f"{whom.title} again"
            return True

        if host.is_up:
            await self.on(host, retry)

    async def _say(self, execution_id: str, verb: str, command_id: str, arguments: Arguments, first: int) -> None:
        async def say(host: Host) -> bool:
            given = Ordered(
                at_us=self._now_us(),
                process=host.process.name,
                command_id=command_id,
                execution_id=execution_id,
                verb=verb,
            )
            words = await arguments(host.engine)
            self._write(given)
            by = command_id.partition("-")[0]
            answer = await host.engine.command(execution_id, verb, by=by, command_id=command_id, **words)  # type: ignore[arg-type]
            self._write(msgspec.structs.replace(given, at_us=self._now_us(), answer=answer))
            return True

        await self.insist(say, first)

    def deliver(self, answer: Called) -> None:
        """A tool's answer, as the outcome of its step: `resolve` is the one other way in that takes an outcome."""

        async def arguments(_: Engine) -> dict[str, Any]:
            data = msgspec.Raw(msgspec.json.encode(answer.output))
            return {"step": answer.path, "remedy": "done", "data": data}

        command_id = f"tool-{answer.key}#{answer.attempt}"
        self.aside(self._say(answer.execution_id, "resolve", command_id, arguments, answer.attempt))

    # ---- the patient person -------------------------------------------------------------------------------------

    async def attend(self, head: Head, state: Execution) -> None:
        """Whatever an execution wants of a person, it gets."""
        for asked in list(state.open_requests()):
            verb, words = self._reply(head.id, asked.request, state)
            await self._person(head.id, verb, **words)
        if head.status in ("paused", "interrupted") or (head.status == "queued" and state.facts().hold):
            await self._person(head.id, "resume")
        for reason in head.reasons:
            if reason.kind == "event":
                await self._person(head.id, "send", name=reason.name)

    def _reply(self, execution_id: str, request: ev.Request, state: Execution) -> tuple[str, dict[str, Any]]:
        verb, words = self._answer(execution_id, request, state)
        return verb, words if verb == "budget" else {"step": request.id, **words}

    def _answer(self, execution_id: str, request: ev.Request, state: Execution) -> tuple[str, dict[str, Any]]:
        rng = Random(f"{self._common.scenario.seed}/{state.title}/{request.id}")
        match request.kind:
            case "approval":
                return ("approve", _edits(request, rng)) if rng.random() < 0.8 else ("deny", {})
            case "question":
                return "answer", {"data": msgspec.Raw(b"42")}
            case "budget" if rng.random() < 0.7:
                over = max(0, -(state.spend.room() or 0))  # a child that was there before the limit may have spent more
                return "budget", {"add_micros": over + rng.choice((60_000, 1_000_000))}
            case "doubt" if rng.random() < 0.3:  # somebody who looks before they speak
                truth = self._common.world.truth(f"{execution_id}:{request.path}")
                return "resolve", {"remedy": "done" if isinstance(truth, Happened) else "again"}
            case _:
                remedy = _remedy(request, rng)
                tired = len(state.steps[request.path].attempts) >= AGAIN_MAX
                return "resolve", {"remedy": "fail" if tired and remedy == "again" else remedy}

    async def _person(self, execution_id: str, verb: str, **words: Any) -> None:
        self._said += 1

        async def arguments(_: Engine) -> dict[str, Any]:
            return words

        await self._say(execution_id, verb, f"person-{self._said}", arguments, self._said)

    # ---- the witness --------------------------------------------------------------------------------------------

    def _now_us(self) -> int:
        return self._common.now_us()

    def _write(self, line: Any) -> None:
        self._common.history.write(line)

    def trouble(self, text: str) -> None:
        self._write(Trouble(at_us=self._now_us(), process="", text=text))


def mended_plan(program: ev.Program, rng: Random) -> dict[str, Any] | None:
    """The same plan, in which some steps have another input; None if it stays as it is."""
    if program.kind != "plan" or rng.random() < 0.5:
        return None

    def mended(step: dict[str, Any]) -> dict[str, Any]:
        if "steps" in step:
            return {**step, "steps": [mended(inner) for inner in step["steps"]]}
        if "tool" in step and "for_each" not in step and step["tool"] != "listing" and rng.random() < 0.3:
            return {**step, "with": {"value": rng.randint(100, 199)}}
        return step

    document = msgspec.json.decode(program.source)
    return {**document, "steps": [mended(step) for step in document["steps"]]}


def roots(heads: list[Head]) -> list[Head]:
    """Those that are nobody's child, and not made from another."""
    return [head for head in heads if not head.parent_id and not head.forked_from]


async def _arguments(engine: Engine, execution_id: str, verb: str, rng: Random) -> dict[str, Any]:
    """What a client would say with this verb right now."""
    if verb == "send":
        return {"name": EVENTS[0], "data": msgspec.Raw(b'"early"')}
    if verb == "budget":
        return rng.choice(({"add_micros": 30_000}, {"limit_micros": 50_000}, {"limit_micros": 500_000}))
    if verb == "extend":
        return _extension("extra")
    if verb in ("approve", "deny", "answer", "resolve"):
        state = await engine.get(execution_id).state()
        for asked in state.open_requests():
            words: dict[str, Any] = {"step": asked.request.id}
            if verb == "resolve":
                words["remedy"] = _remedy(asked.request, rng)
            return words | _edits(asked.request, rng) if verb == "approve" else words
    return {}


def _extension(step_id: str) -> dict[str, Any]:
    steps = [{"id": step_id, "tool": "look", "timeout": 4}]
    return {"data": msgspec.Raw(msgspec.json.encode(steps)), "count": 1}


def _remedy(request: ev.Request, rng: Random) -> str:
    """Any that is offered; a fallback seldom is, and is taken the more often."""
    if "fallback" in request.remedies and rng.random() < 0.6:
        return "fallback"
    return rng.choice(request.remedies)


def _edits(request: ev.Request, rng: Random) -> dict[str, Any]:
    """A yes may be for all calls of this tool, or with a change."""
    kind = rng.randrange(4)
    if kind == 1 and request.tool:
        return {"arguments": msgspec.Raw(b'{"value":"edited"}')}
    return {"sticky": True} if kind == 2 else {}
