"""A handle on one execution: look at it, watch it, command it, wait for it. Holds nothing but its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from holdfast.core.commands import Answer
from holdfast.core.errors import ExecutionFailed, ExecutionStopped, InputInvalid, Refused
from holdfast.core.events import Request
from holdfast.core.execution import Execution
from holdfast.core.lifecycle import ENDS
from holdfast.engine import orders
from holdfast.engine.feed import Watched, watch
from holdfast.engine.fitting import edits_objection
from holdfast.engine.orders import Order
from holdfast.engine.wire import is_handed_in_only, resolved, wire_state
from holdfast.journal.blobs import fetch_value
from holdfast.journal.log import read_state
from holdfast.journal.store import ASKED, Head
from holdfast.tools.values import encode

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

PEOPLE = frozenset({"approval", "answer", "correction", "doubt", "budget"})


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

    def watch(self, since: int = 0) -> AsyncIterator[Watched]:
        """Durable events after number `since`, and live frames, until the execution ends."""
        if since < 0:
            raise InputInvalid(f"watch: since must be the number of an event, 0 for all; got {since}")
        services = self._engine.services
        return watch(services.feed, services.store, self.id, since, lambda: self._engine.drives(self.id))

    async def result(self) -> Any:
        """The output, once completed. Raises ExecutionFailed or ExecutionStopped."""
        state = await self._ended_state()
        if state.failure is not None:
            raise ExecutionFailed(state.failure)
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
        await self._wait(lambda head: head.status in ENDS)
        return await self.state()

    async def settled(self) -> Head:
        """Wait until the execution has ended or only a person can move it."""
        return await self._wait(lambda head: is_settled(head, self._engine.is_dead))

    async def _wait(self, enough: Callable[[Head], bool]) -> Head:
        services = self._engine.services
        subscription = services.feed.subscribe(self.id, status_only=True)
        try:
            while True:
                subscription.changed.clear()
                head = await services.store.head(self.id)
                if enough(head):
                    return head
                self._engine.raise_problem(self.id)
                await subscription.changed.wait()
        finally:
            services.feed.unsubscribe(self.id, subscription)

    # ---- commanding ---------------------------------------------------------------------------------------------

    async def command(self, verb: Any, *, by: str = "", id: str = "", **arguments: Any) -> Answer:
        """Give a command and wait for its answer; `id` makes giving it twice the same as once."""
        return await self._engine.command(self.id, verb, by=by, command_id=id, **arguments)

    async def give(self, order: Order, *, by: str = "", id: str = "") -> Answer:
        """Give an order. What comes with it must fit the tool of the step that asks. Raises Refused, if it was."""
        if order.edits is not None:
            await self._check_edits(order.arguments["step"], order.edits)
        if order.output is not UNSET:
            await self._check_output(order.arguments["step"], order.output)
        return self._insist(await self.command(order.verb, by=by, id=id, **order.arguments))

    async def pause(self, *, by: str = "", why: str = "", now: bool = False) -> Answer:
        """Hold it at the next step; running steps finish first. With `now` they are cut off, as by `interrupt`."""
        return await self.give(orders.pause(why=why, now=now), by=by)

    async def resume(self, *, by: str = "", why: str = "", force: bool = False, other_folder: bool = False) -> Answer:
        """Go on after a pause or an interrupt. Raises ResumeMismatch if the world changed, unless that is accepted."""
        return await self._engine.resume(self.id, by=by, why=why, force=force, other_folder=other_folder)

    async def interrupt(self, *, by: str = "", why: str = "") -> Answer:
        return await self.give(orders.interrupt(why=why), by=by)

    async def stop(self, *, by: str = "", why: str = "") -> Answer:
        return await self.give(orders.stop(why=why), by=by)

    async def approve(
        self, step: str = "", *, by: str = "", why: str = "", arguments: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> Answer:  # fmt: skip
        """Say yes. `arguments` are laid over the step's own; `sticky` says yes to this tool from now on."""
        return await self.give(orders.approve(step, why=why, arguments=arguments, sticky=sticky), by=by)

    async def deny(self, step: str = "", *, by: str = "", why: str = "") -> Answer:
        return await self.give(orders.deny(step, why=why), by=by)

    async def answer(self, step: str, value: Any, *, by: str = "") -> Answer:
        return await self.give(orders.answer(step, value), by=by)

    async def resolve(
        self, step: str, remedy: str, *, by: str = "", output: Any = None, arguments: Mapping[str, Any] | None = None
    ) -> Answer:
        """Settle a doubt, a failure or an empty budget: done, again, skip, fallback or fail, as the request offers."""
        return await self.give(orders.resolve(step, remedy, output=output, arguments=arguments), by=by)

    async def send(self, name: str, data: Any = None, *, by: str = "", id: str = "") -> Answer:
        """Hand an event to the execution; it is kept if nobody waits for it yet."""
        return await self.give(orders.send(name, data), by=by, id=id)

    async def extend(self, steps: list[Mapping[str, Any]], *, by: str = "") -> Answer:
        """Add steps to a running plan."""
        raw = await self._engine.check_extension(self.id, steps)
        return self._insist(await self.command("extend", by=by, data=raw, count=len(steps)))

    async def budget(self, *, add: float | None = None, limit: float | None = None, by: str = "") -> Answer:
        """Raise what it may spend by `add`, or set it to `limit`, in US dollars. Steps that now have room go on."""
        return await self.give(orders.budget(add=add, limit=limit), by=by)

    async def checkpoint(self, *, by: str = "") -> Path:
        """Save it as a file in the data folder, as it is on disk now; `Engine.restore` reads it."""
        saved, _ = await self._engine.checkpoint(self.id, by=by)
        return Path(saved.file)

    async def _check_edits(self, step: str, edits: Mapping[str, Any]) -> None:
        """What a person changes must fit the tool, as what a program asks for must."""
        request = await self._request(step)
        if request is not None:
            own = await fetch_value(self._engine.services.store, request.arguments)
            _object(edits_objection(self._engine.known_tool(request.tool), own, encode(edits, "the edited arguments")))

    async def _check_output(self, step: str, output: Any) -> None:
        request = await self._request(step)
        if request is not None:
            said = encode(output, "the output")
            _object(self._engine.services.output_objection(await self.state(), request, said))

    async def _request(self, step: str) -> Request | None:
        """The open request meant by a step's path, a request's id, or nothing if there is only one."""
        open_requests = [asked.request for asked in (await self.state()).open_requests()]
        fitting = [request for request in open_requests if not step or step in (request.id, request.path)]
        return fitting[0] if len(fitting) == 1 else None

    @staticmethod
    def _insist(answer: Answer) -> Answer:
        if answer.outcome == "refused":
            raise Refused(answer.text)
        return answer


def _object(text: str) -> None:
    if text:
        raise InputInvalid(text)


def is_settled(head: Head, is_dead: Callable[[str], bool]) -> bool:
    """Ended, held until a person says so, or waiting for nothing but people."""
    if head.status in ENDS or head.status == "interrupted" or head.quarantined or head.held or is_handed_in_only(head):
        return True
    if head.status == "paused":  # its driver leaves when the steps that were running have finished
        return not head.driver or is_dead(head.driver)
    if head.status != "waiting" or head.wake_at in (0, ASKED):  # something has come, and somebody is about to see to it
        return False
    return bool(head.reasons) and all(reason.kind in PEOPLE for reason in head.reasons)
