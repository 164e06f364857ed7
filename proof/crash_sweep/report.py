"""What a life saw: every execution as the journal tells it, and the world as the ledger does, at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.journal.blobs import fetch_value
from holdfast.journal.log import read_events, read_state
from holdfast.journal.store import Query, Store
from proof.crash_sweep import world


class StepSeen(msgspec.Struct, kw_only=True):
    status: str
    output: Any = None
    failure: str = ""


class Seen(msgspec.Struct, kw_only=True):
    """One execution. `happened` names its events; the digest of each is in `chain`."""

    id: str
    parent: str = ""
    path: str = ""  # of the step that started it, in its parent
    status: str = ""
    driver: str = ""
    output: Any = None
    failure: str = ""
    steps: dict[str, StepSeen] = {}
    children: dict[str, tuple[str, str, Any]] = {}  # by path: id, status, output
    happened: list[str] = []
    chain: list[str] = []
    pending: list[str] = []  # commands that nobody has answered
    spent: tuple[int, int, int] = (0, 0, 0)  # micro-dollars settled, how many amounts are unknown, what is reserved
    paid: tuple[int, int] = (0, 0)  # the same two, added up from the events alone


class Survey(msgspec.Struct, kw_only=True):
    executions: dict[str, Seen] = {}
    ledger: list[world.Line] = []
    answered: dict[str, str] = {}  # what the journal says became of each command whose answer was seen


class Report(msgspec.Struct, kw_only=True):
    found: Survey = msgspec.field(default_factory=Survey)
    left: Survey = msgspec.field(default_factory=Survey)
    root: str = ""
    survived: bool = False
    stuck: bool = False
    trouble: str = ""  # what went wrong in the life itself
    counts: dict[str, int] = {}


async def survey(store: Store, folder: Path) -> Survey:
    """Reading verifies every digest and number, and raises if one does not fit."""
    ledger = world.read_ledger(folder)
    executions = [await _seen(store, head.id) for head in await store.heads(Query(limit=1000))]
    told = {line.output[0] for line in ledger if line.effect == "seen" and line.key == "answered"}
    answers = {command_id: await store.answer(command_id) for command_id in sorted(told)}
    return Survey(
        executions={seen.id: seen for seen in executions},
        ledger=ledger,
        answered={command_id: answer.outcome for command_id, answer in answers.items() if answer is not None},
    )


async def _seen(store: Store, execution_id: str) -> Seen:
    head, state, _ = await read_state(store, execution_id)
    events = await read_events(store, execution_id, 0, state.seq)
    _, rows = await store.events(execution_id, 0, state.seq)
    assert [row.seq for row in rows] == list(range(1, head.seq + 1)), "the numbers have gaps"
    parent = state.facts().parent
    return Seen(
        id=execution_id,
        parent=parent.id if parent else "",
        path=parent.path if parent else "",
        status=state.status,
        driver=head.driver,
        output=await _value(store, state.output),
        failure=state.failure.message if state.failure else "",
        steps={
            path: StepSeen(
                status=step.status,
                output=await _value(store, step.output),
                failure=step.failure.message if step.failure and step.status == "failed" else "",
            )
            for path, step in state.steps.items()
        },
        children={
            path: (child.id, child.status, await _value(store, child.output)) for path, child in state.children.items()
        },
        happened=[_named(event) for _, event in events],
        chain=[row.digest.hex() for row in rows],
        pending=[command.id for command in await store.pending([execution_id])],
        spent=(state.spend.settled_micros, state.spend.unknown, sum(state.spend.reserved.values())),
        paid=_paid([event for _, event in events]),
    )


def _paid(events: Sequence[Any]) -> tuple[int, int]:
    """What the attempts came to: what each said, or what was reserved for it if it never came to say it."""
    settled = unknown = 0
    held: dict[str, int] = {}
    for event in events:
        path = getattr(event, "path", "")
        spent: int | None = getattr(event, "spent_micros", None)
        if isinstance(event, ev.ChildEnded):
            settled, unknown = settled + (spent or 0), unknown + event.unknown
        elif isinstance(event, ev.StepEvent) and not isinstance(event, ev.StepNoted | ev.StepDiverged):
            reserved = held.pop(path, None)
            settled += spent if spent is not None else reserved or 0
            unknown += spent is None and reserved is not None
        if isinstance(event, ev.StepStarted) and event.reserved_micros:
            held[path] = event.reserved_micros
    return settled + sum(held.values()), unknown + len(held)


def _named(event: ev.AnyEvent) -> str:
    """`step:completed a`: the kind of event, and what it is about."""
    about = getattr(event, "path", "") or getattr(event, "request_id", "")
    return f"{type(event).__struct_config__.tag} {about}".rstrip()


async def _value(store: Store, raw: Any) -> Any:
    return msgspec.json.decode(await fetch_value(store, raw)) if raw else None
