"""The people around a task: they hand it in, follow its script, answer what it asks, and look until it is over.

A client dies with its process and starts again from the beginning. Its commands have ids that do not depend on which
life gives them, so saying something twice must be the same as saying it once. When asked whether something happened, it
looks into the ledger and tells the truth. Some tasks are handed in here and spoken to from another process: either may
die while the other lives on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

import holdfast
from holdfast.core.commands import Answer
from holdfast.core.events import Request
from holdfast.journal.store import Head, Query
from proof.crash_sweep import world
from proof.crash_sweep.programs import Open, Program, Say

LOOK_AGAIN_S = 0.05  # for what nothing tells
SEEN = "seen"  # the effect of a line that says what somebody outside was told
OVER = "over"  # the gate that somebody who speaks from elsewhere opens when there is nothing left to say


class Client:
    def __init__(self, engine: holdfast.Engine, program: Program, folder: Path) -> None:
        self._engine = engine
        self._program = program
        self._folder = folder
        self._changed = asyncio.Event()
        self._told = 0  # how much of the script was followed
        self._read: dict[str, int] = {}  # how much of each execution was read
        self.root = ""

    async def attend(self) -> None:
        """From handing the task in until every execution has ended, is let go of, and owes nobody an answer."""
        self._listen()
        run = await self._engine.start(self._program.subject, key="the one", owner="ada")
        self._note("started", run.id)
        self.root = run.id
        waiting = asyncio.ensure_future(self._await_result(run))
        try:
            await self._until(self._is_heard_out if self._program.elsewhere else self._is_over)
            await waiting
        finally:
            waiting.cancel()

    async def speak(self) -> None:
        """Speak to a task that somebody else hands in."""
        await self._until(self._is_there)
        await self._until(self._is_over)
        world.open_gate(self._folder, OVER)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        while not await is_so():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._changed.wait()

    async def _is_there(self) -> bool:
        for head in await self._engine.list(Query(limit=1, parent_id="")):
            self.root = head.id
        return bool(self.root)

    async def _is_heard_out(self) -> bool:
        self._changed.clear()
        return world.is_open(self._folder, OVER)

    def _listen(self) -> None:
        loop, tell = asyncio.get_running_loop(), self._engine.services.feed.notify

        def notify(execution_id: str, *, status: bool = True) -> None:
            tell(execution_id, status=status)
            if status:
                self._changed.set()

        self._engine.services.feed.notify = notify  # type: ignore[method-assign]
        if self._program.script:
            world.changed = lambda: loop.call_soon_threadsafe(self._changed.set)  # some tools run in threads

    async def _await_result(self, run: holdfast.Run) -> None:
        with suppress(holdfast.ExecutionFailed, holdfast.ExecutionStopped):
            await run.result()
        self._note("ended", run.id)

    async def _is_over(self) -> bool:
        self._changed.clear()
        heads = await self._engine.list(Query(limit=1000))
        for head in heads:
            if not head.ended_at and self._read.get(head.id) != head.seq:  # it may ask while other steps run
                await self._reply(head)
        if self._told < len(self._program.script):
            await self._follow(self._program.script[self._told])
        if self._told < len(self._program.script) or any(not head.ended_at or head.driver for head in heads):
            return False
        return not await self._engine.services.store.pending([head.id for head in heads])

    # ---- the script ---------------------------------------------------------------------------------------------

    async def _follow(self, act: Say | Open) -> None:
        if isinstance(act, Open):
            world.open_gate(self._folder, act.gate)
        else:
            marks = {line.key.partition(":")[2] for line in world.read_ledger(self._folder)}
            if not marks.issuperset(act.after.split()):
                return
            await self._say(self.root, act.verb, f"script-{self._told}", dict(act.arguments))
        self._told += 1
        self._changed.set()

    # ---- requests -----------------------------------------------------------------------------------------------

    async def _reply(self, head: Head) -> None:
        state = await self._engine.get(head.id).state()
        self._read[head.id] = state.seq
        for asked in list(state.open_requests()):
            request = asked.request
            verb, arguments = self._reply_to(head.id, request)
            about = {} if verb == "budget" else {"step": request.id}
            await self._say(head.id, verb, f"{head.id}:{request.id}", {**arguments, **about})

    def _reply_to(self, execution_id: str, request: Request) -> tuple[str, dict[str, Any]]:
        if request.kind != "doubt":
            return self._program.replies[request.path]
        key = f"{execution_id}:{request.path}"
        for line in world.read_ledger(self._folder):
            if line.key == key and line.effect == "once":
                return "resolve", {"remedy": "done", "data": line.output}
        return "resolve", {"remedy": "again"}

    async def _say(self, execution_id: str, verb: Any, command_id: str, arguments: dict[str, Any]) -> None:
        if (
            verb == "extend"
        ):  # its driver checks it; looking before would find it applied already, if it was said before
            steps = arguments.pop("steps")
            arguments |= {"data": steps, "count": len(steps)}
        for name in ("arguments", "data"):
            if name in arguments and not isinstance(arguments[name], Raw):
                arguments[name] = Raw(msgspec.json.encode(arguments[name]))
        answer: Answer | None = None
        while answer is None or answer.outcome == "queued":  # its driver is dead or slow: nobody has been told anything
            answer = await self._engine.command(execution_id, verb, by="ada", command_id=command_id, **arguments)
        self._note("answered", command_id, answer.outcome, answer.seq)

    def _note(self, *what: Any) -> None:
        """Somebody outside knows this now: the journal must know it, too, whatever happens next."""
        world.write_line(self._folder, world.Line(SEEN, what[0], what[1:]))
