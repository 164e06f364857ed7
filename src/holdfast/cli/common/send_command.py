"""Gives an order to one execution by its id, or to all that fit the filters, and tells what became of it.

It was applied as an event, changed nothing, or is queued; or it was refused: exit code 2 for one, 1 for some of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common.bulk import BulkOperation, Many, Selection, Told, do_many
from holdfast.cli.common.context import bare_engine, left_alone, settings_of, wait_for
from holdfast.cli.common.invocation import pastable
from holdfast.cli.output.format import json_line
from holdfast.core.errors import StoreCorrupted, UsageError
from holdfast.core.held import why_held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.core.commands import Answer
    from holdfast.engine.commands.builders import CommandRequest
    from holdfast.engine.engine import Engine
    from holdfast.engine.run import Run
    from holdfast.journal.store import Head, Store

MOVING = ("queued", "running", "waiting")
# As in the inbox: what runs may ask beside, and what was paused, or nobody drives, may have asked before.
ASKING = ("waiting", "running", "paused", "interrupted")
UNFINISHED = (*MOVING, "paused", "interrupted")


@dataclass(frozen=True)
class _Verb:
    """Whom an order means among many, unless a status is asked for, and whether they may go on after it."""

    done: str
    status: tuple[str, ...]
    asks: tuple[str, ...] = ()  # only those that wait for one of these
    wakes: bool = False


_VERBS = {
    "pause": _Verb("paused", MOVING),
    "interrupt": _Verb("interrupted", (*MOVING, "paused")),
    "stop": _Verb("stopped", UNFINISHED),
    "approve": _Verb("approved", ASKING, asks=("approval",), wakes=True),
    "deny": _Verb("denied", ASKING, asks=("approval",), wakes=True),
    "answer": _Verb("answered", ASKING, asks=("answer",), wakes=True),
    "resolve": _Verb("resolved", ASKING, asks=("doubt", "correction", "budget"), wakes=True),
    "send": _Verb("sent the event", UNFINISHED, wakes=True),
    "budget": _Verb("given the budget", UNFINISHED, wakes=True),
}


def give(
    context: typer.Context,
    execution: str,
    selection: Selection,
    verb: str,
    said: dict[str, Any],
    as_json: bool,
    *,
    to_one: Callable[[Run], Awaitable[Answer]] | None = None,
) -> int:
    """Send an order: what `verb` makes of `said`; `to_one` if one execution can be told more exactly."""
    import msgspec
    from msgspec import UNSET

    from holdfast.engine.at_rest import is_left_alone
    from holdfast.engine.commands import builders

    settings = settings_of(context)
    order: CommandRequest = getattr(builders, verb)(**said)
    if selection.is_meant(execution):
        _check_for_many(order)

        def make(**kept: Any) -> BulkOperation:
            return _doing(getattr(builders, verb)(**kept))

        many = Many(verb=verb, make=make, said=said, with_tools=verb == "resolve")
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def work() -> int:
        # What comes with an order must fit a tool, so the tools are needed.
        async with bare_engine(settings, with_tools=order.edits is not None or order.output is not UNSET) as engine:
            run = await engine.find(execution)
            was_alone = is_left_alone(await run.head(), engine.is_dead)
            answer = await (to_one(run) if to_one else run.give(order))
            if verb == "pause" and was_alone and answer.outcome == "applied":
                answer = msgspec.structs.replace(answer, text="paused")  # no step of it can be running
            _tell(answer, run.id, as_json)
            head = await run.head()
            if _VERBS[verb].wakes and not as_json and is_left_alone(head, engine.is_dead):
                print(left_alone(run.id, why_held(head.held)))
        return 0

    return wait_for(work())


def _check_for_many(order: CommandRequest) -> None:
    from msgspec import UNSET

    for option, given in (("--with", order.edits), ("--output", order.output)):
        if given is not None and given is not UNSET:
            raise UsageError(f"{option} goes with the ID of one execution: it is checked against the tool that asks")


def _doing(order: CommandRequest) -> BulkOperation:
    verb = _VERBS[order.verb]
    step = order.arguments.get("step", "")

    def work(engine: Engine, ids: list[str], bulk_id: str) -> Told:
        return engine.command_many(ids, order.verb, bulk_id=bulk_id, **order.arguments)

    async def asks(store: Store, head: Head) -> bool:
        """Whether a request of this kind is open. Who waits says so in the list; of others the journal is read."""
        if not verb.asks:
            return True
        asking = [(reason.kind, reason.path) for reason in head.reasons]
        if head.status != "waiting" or any(reason.more for reason in head.reasons):
            asking = await _open_requests(store, head)
        return any(kind in verb.asks and step in ("", path) for kind, path in asking)

    return BulkOperation(word=f"{verb.done} at {step}" if step else verb.done, status=verb.status, work=work, fits=asks)


async def _open_requests(store: Store, head: Head) -> list[tuple[str, str]]:
    from holdfast.journal.log import read_state

    try:
        _, state, _ = await read_state(store, head.id)
    except StoreCorrupted:
        return []  # it is the doctor who names it
    kinds = {"question": "answer"}  # what a request is, and what whoever waits for it says
    requests = [asked.request for asked in state.open_requests()]
    return [(kinds.get(request.kind, request.kind), request.path) for request in requests]


def _tell(answer: Answer, execution_id: str, as_json: bool) -> None:
    if as_json:
        said = {"id": execution_id, "outcome": answer.outcome, "text": answer.text, "seq": answer.seq or None}
        print(json_line({**said, "command_id": answer.command_id}))
    elif answer.outcome == "applied":
        print(f"applied as event {answer.seq}: {pastable(answer.text)}")
    elif answer.outcome == "queued":
        print(pastable(answer.text))
    else:
        print(f"{answer.outcome}: {pastable(answer.text)}")
