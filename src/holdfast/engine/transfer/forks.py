"""A new execution from an old one: what was done before a step is copied, the rest is done anew.

Fork and retry are the same: a fork stops copying at a named step, a retry at whatever did not complete. What is copied
is in copies.py; when it counts is in kept.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import Misconfigured, NotFound, Refused
from holdfast.core.execution import Execution, origin_of
from holdfast.core.lifecycle import ENDS
from holdfast.engine.transfer.copies import endings_of, kept_events
from holdfast.journal.blobs import fetch_blob, large_values
from holdfast.journal.log import read_events
from holdfast.journal.store import Head, Query, Store

if TYPE_CHECKING:
    from holdfast.engine.services import Services

CHILDREN_PAGE = 1000


async def check_retry(store: Store, execution_id: str, *, again: bool) -> None:
    """Refuses what would do the same work a second time beside the first: retry is for what has ended, and once."""
    head = await store.head(execution_id)
    if text := not_ended(head):
        raise Refused(text)
    if not again and (before := await newest_fork(store, execution_id)):
        raise Refused(
            f"execution {execution_id} was retried or forked before, as {before.id}, which is {before.status}; "
            f"nothing was started. To go on with that one: holdfast {_onward(before)}. "
            f"To retry the first one all the same: holdfast retry {execution_id} --again"
        )


def not_ended(head: Head) -> str:
    """Why it cannot be retried yet; "" if it can. What was set aside never ends, and may be copied as it is."""
    if head.status in ENDS or head.quarantined:
        return ""
    return (
        f"the execution is {head.status} and has not ended, and a retry would do beside it what it has still to do; "
        f"nothing was started. To go on with it: holdfast resume {head.id}. "
        f"To begin anew: holdfast stop {head.id} first, then retry it"
    )


async def newest_fork(store: Store, execution_id: str) -> Head | None:
    """What was made of it last, by a retry, a fork, or as a copy."""
    found = await store.heads(Query(forked_from=execution_id, limit=1))
    return found[0] if found else None


def _onward(head: Head) -> str:
    """What can be done with it: look at what is done, and otherwise go on."""
    if head.status == "completed":
        return f"show {head.id}"
    return f"retry {head.id}" if head.status in ENDS else f"resume {head.id}"


async def copied_events(
    store: Store, execution_id: str, at_step: str, now_us: int, program: ev.Program | None = None
) -> tuple[ev.TaskCreated, list[ev.Event]]:
    """The task of an execution, and the events of the steps whose outcome the new one keeps; for its `program`."""
    numbered = await read_events(store, execution_id, 0)
    events = [event for _, event in numbered]
    created = events[0]
    assert isinstance(created, ev.TaskCreated)
    endings = endings_of(program) if program is not None else ()
    return created, kept_events(events, execution_id, now_us, at_step, endings)


async def inherited(
    store: Store, child_id: str, created: ev.TaskCreated
) -> tuple[ev.TaskCreated, list[ev.Event], list[tuple[str, bytes]]]:
    """A child keeps what the child in its place had done, also with other inputs: each step's own input decides."""
    if not child_id:
        return created, [], []
    try:
        task, copied = await copied_events(store, child_id, "", created.at, created.program)
    except NotFound:
        raise Misconfigured(
            f"what its child {child_id} had done was deleted, so nobody could tell what to do again; "
            "to do all of it again, retry from this step on, with --from"
        ) from None
    if bytes(task.program.source) != bytes(created.program.source):  # what was added fits the plan it was added to
        copied = [event for event in copied if not isinstance(event, ev.PlanExtended)]
    fork = msgspec.structs.replace(created, forked_from=forked_from(task, child_id))
    return fork, copied, await blobs_of(store, copied)


def forked_from(created: ev.TaskCreated, execution_id: str, at: str = "") -> ev.ForkedFrom:
    """What a fork of this execution records."""
    return ev.ForkedFrom(id=execution_id, at=at, origin=origin_of(created, execution_id))


async def looked_up_later(store: Store, origin_id: str, copied: Sequence[ev.Event]) -> tuple[str, ...]:
    """Whom a retry needs until its end: its origin, that one's children, and those that its own children go on from."""
    found = dict.fromkeys([origin_id])
    page = await store.heads(Query(parent_id=origin_id, limit=CHILDREN_PAGE))
    while page:
        found |= dict.fromkeys(head.id for head in page)
        page = await store.heads(Query(parent_id=origin_id, before=page[-1].id, limit=CHILDREN_PAGE))
    found |= dict.fromkeys(event.child_id for event in copied if isinstance(event, ev.StepCarried) and event.child_id)
    return tuple(found)


def task_of(created: ev.TaskCreated) -> tuple[str, str, bytes, bytes]:
    """What makes two tasks the same: program, its document and the inputs."""
    program = created.program
    return program.kind, program.name, bytes(program.source), bytes(created.inputs)


def suited(services: Services, created: ev.TaskCreated, copied: Sequence[ev.Event]) -> list[ev.Event]:
    """What was copied, for another program than it was made with.

    An added step that a new plan names itself is the plan's now; the others are added to it. Functions take none.
    """
    is_plan = created.program.kind == "plan"
    named = _named(msgspec.json.decode(created.program.source)) if is_plan else frozenset[str]()
    plan = Execution(id="", created=created)
    kept: list[ev.Event] = []
    for event in copied:
        if not isinstance(event, ev.PlanExtended):
            kept.append(event)
            continue
        steps: list[dict[str, Any]] = msgspec.json.decode(event.steps)
        left = [step for step in steps if step["id"] not in named]
        if not left or not is_plan:
            continue
        added = msgspec.structs.replace(event, steps=Raw(msgspec.json.encode(left)), count=len(left))
        if said := services.validation_error(plan, [added]):
            names = ", ".join(step["id"] for step in left)
            raise Refused(
                f"{said}\nthese steps were added to the old plan while it ran, and cannot be added to the new one: "
                f"{names}; write them into the new plan as they should be; nothing was started"
            )
        plan.extensions.append(added.steps)
        kept.append(added)
    return kept


def _named(document: dict[str, Any]) -> frozenset[str]:
    return frozenset(step["id"] for part in ("steps", "on_failure", "finally") for step in document.get(part, ()))


async def blobs_of(store: Store, events: Sequence[ev.Event]) -> list[tuple[str, bytes]]:
    """The large values that copied events refer to; the new execution holds them too."""
    found: dict[str, bytes] = {}
    for event in events:
        for blob in large_values(event):
            if blob.digest not in found:
                found[blob.digest] = await fetch_blob(store, blob)
    return list(found.items())
