"""A handle on one execution: look at it, watch it, command it, wait for it. Holds nothing but its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.core.commands import Answer
from holdfast.core.errors import ExecutionFailed, ExecutionStopped, InputInvalid, RecordedTrace, Refused
from holdfast.core.execution import Execution
from holdfast.core.lifecycle import ENDS
from holdfast.engine.at_rest import is_at_rest
from holdfast.engine.commands import builders
from holdfast.engine.commands.builders import CommandRequest
from holdfast.engine.feed import Watched, watch
from holdfast.engine.json_view import resolved, wire_state
from holdfast.journal.blobs import fetch_value
from holdfast.journal.log import read_state
from holdfast.journal.store import Head

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

LOOK_S = 0.5  # how often to look again: its children are not listened to


class Run:
    def __init__(self, engine: Engine, execution_id: str) -> None:
        self._engine = engine
        self.id = execution_id

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    # ---- looking ------------------------------------------------------------------------------------------------

    async def head(self) -> Head:
        return await self._engine.services.store.head(self.id)

    async def status(self) -> str:
        return (await self.head()).status

    async def state(self) -> Execution:
        """Everything durable about the execution, folded."""
        _, state, _ = await read_state(self._engine.services.store, self.id)
        return state

    async def show(self) -> dict[str, object]:
        """The same as plain data, as `holdfast show --json` prints it."""
        head, state, _ = await read_state(self._engine.services.store, self.id)
        return await resolved(self._engine.services.store, wire_state(head, state, self._engine.is_dead))

    def watch(self, since: int = 0, *, until: Literal["ended", "settled"] = "ended") -> AsyncIterator[Watched]:
        """Durable events after number `since`, and live frames, until the execution ends, or until it is settled: it
        has ended, or only a person can move it or the children it waits for.
        """
        if until not in ("ended", "settled"):  # pyright: ignore[reportUnnecessaryContains] -- not everybody checks types
            raise InputInvalid(f'watch: until must be "ended" or "settled"; got {until!r:.80}')
        if since < 0:
            raise InputInvalid(f"watch: since must be the number of an event, 0 for all; got {since}")
        services = self._engine.services
        is_settled = self._is_settled if until == "settled" else None
        return watch(services.feed, services.store, self.id, since, lambda: self._engine.drives(self.id), is_settled)

    async def result(self) -> Any:
        """The output, once completed. Raises ExecutionFailed or ExecutionStopped."""
        state = await self._ended_state()
        if state.failure is not None:
            trace = msgspec.json.decode(await fetch_value(self._engine.services.store, state.trace))
            raise ExecutionFailed(state.failure) from (RecordedTrace(trace) if trace else None)
        if state.status == "stopped":
            who, why = f" by {state.by}" if state.by else "", f": {state.why}" if state.why else ""
            raise ExecutionStopped(f"stopped{who}{why}")
        return msgspec.json.decode(await fetch_value(self._engine.services.store, state.output))

    async def _ended_state(self) -> Execution:
        driver = self._engine.driver(self.id)
        if driver is not None:
            await driver.finished.wait()
            if driver.state.is_ended and driver.log.is_durable():
                return driver.state  # it was driven here to its end, and that end is on disk
        await self._wait(self._has_ended)
        return await self.state()

    async def settled(self) -> Head:
        """Wait until the execution has ended, or only a person can move it or the children it waits for."""
        return await self._wait(partial(is_at_rest, self._engine))

    async def _is_settled(self, head: Head) -> bool:
        if await is_at_rest(self._engine, head):
            return True
        self._engine.raise_problem(self.id)
        return False

    @staticmethod
    async def _has_ended(head: Head) -> bool:
        return head.status in ENDS

    async def _wait(self, enough: Callable[[Head], Awaitable[bool]]) -> Head:
        services = self._engine.services
        subscription = services.feed.subscribe(self.id, status_only=True)
        try:
            while True:
                subscription.changed.clear()
                head = await services.store.head(self.id)
                if await enough(head):
                    return head
                self._engine.raise_problem(self.id)
                waits_for_child = any(reason.kind == "child" for reason in head.reasons)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S if waits_for_child else None):
                        await subscription.changed.wait()
        finally:
            services.feed.unsubscribe(self.id, subscription)

    # ---- commanding ---------------------------------------------------------------------------------------------

    async def command(self, verb: Any, *, by: str = "", id: str = "", **arguments: Any) -> Answer:
        """Give a command and wait for its answer; `id` makes giving it twice the same as once."""
        return await self._engine.command(self.id, verb, by=by, command_id=id, **arguments)

    async def give(self, order: CommandRequest, *, by: str = "", id: str = "") -> Answer:
        """Give an order. What comes with it must fit the tool of the step that asks. Raises Refused, if it was."""
        return self._insist(await self._engine.give(self.id, order, by=by, command_id=id))

    async def pause(self, *, by: str = "", why: str = "", now: bool = False) -> Answer:
        """Hold it at the next step; running steps finish first. With `now` they are cut off, as by `interrupt`."""
        return await self.give(builders.pause(why=why, now=now), by=by)

    async def resume(self, *, by: str = "", why: str = "", force: bool = False, other_folder: bool = False) -> Answer:
        """Go on after a pause or an interrupt. Raises ResumeMismatch if the world changed, unless that is accepted."""
        return await self._engine.resume(self.id, by=by, why=why, force=force, other_folder=other_folder)

    async def interrupt(self, *, by: str = "", why: str = "") -> Answer:
        return await self.give(builders.interrupt(why=why), by=by)

    async def stop(self, *, by: str = "", why: str = "") -> Answer:
        return await self.give(builders.stop(why=why), by=by)

    async def approve(
        self, step: str = "", *, by: str = "", why: str = "", arguments: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> Answer:  # fmt: skip
        """Say yes. `arguments` are laid over the step's own; `sticky` says yes to this tool from now on."""
        return await self.give(builders.approve(step, why=why, arguments=arguments, sticky=sticky), by=by)

    async def deny(self, step: str = "", *, by: str = "", why: str = "") -> Answer:
        return await self.give(builders.deny(step, why=why), by=by)

    async def answer(self, step: str, value: Any, *, by: str = "") -> Answer:
        return await self.give(builders.answer(step, value), by=by)

    async def resolve(
        self, step: str, remedy: str, *, by: str = "", output: Any = None, arguments: Mapping[str, Any] | None = None
    ) -> Answer:
        """Settle a doubt, a failure or an empty budget, with one of the remedies that the request offers: done, again,
        verify, skip, fallback or fail."""
        return await self.give(builders.resolve(step, remedy, output=output, arguments=arguments), by=by)

    async def send(self, name: str, data: Any = None, *, by: str = "", id: str = "") -> Answer:
        """Hand an event to the execution; it is kept if nobody waits for it yet."""
        return await self.give(builders.send(name, data), by=by, id=id)

    async def extend(self, steps: list[Mapping[str, Any]], *, by: str = "") -> Answer:
        """Add steps to a running plan."""
        return await self.give(builders.extend(steps), by=by)

    async def budget(self, *, add: float | None = None, limit: float | None = None, by: str = "") -> Answer:
        """Raise what it may spend by `add`, or set it to `limit`, in US dollars. Steps that now have room go on."""
        return await self.give(builders.budget(add=add, limit=limit), by=by)

    async def checkpoint(self, *, by: str = "") -> Path:
        """Save it as a file in the data folder, as it is on disk now; `Engine.restore` reads it."""
        saved, _ = await self._engine.checkpoint(self.id, by=by)
        return Path(saved.file)

    @staticmethod
    def _insist(answer: Answer) -> Answer:
        if answer.outcome == "refused":
            raise Refused(answer.text)
        return answer
