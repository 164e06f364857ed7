"""A new execution from an old one: what was done before a step is copied, the rest is done anew.

Fork and retry are the same: a fork stops copying at a named step, a retry at whatever did not complete. Of a step that
may have happened, or happened in part, the doubt and the notes are copied, and the key it was called with: it is the
same effect that is settled or gone on with, and whoever is asked about it must be asked by that name. What was added to
a plan belongs to the task, and an event that nobody has taken was promised to whoever waits for it: both come along.

Copies stand in the order in which it all happened, so that a fork of a fork finds what was before a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import NotFound, Refused
from holdfast.core.execution import Execution, call_key, origin_of, parent_of
from holdfast.core.lifecycle import ENDS
from holdfast.core.suggest import did_you_mean
from holdfast.journal.blobs import fetch_blob, large_values
from holdfast.journal.log import read_events, read_state
from holdfast.journal.store import Head, Query, Store

if TYPE_CHECKING:
    from holdfast.engine.services import Services

CHILDREN_PAGE = 1000
STEPS_NAMED = 5
_CONTAINERS = ("plan", "for_each")


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
    store: Store, execution_id: str, at_step: str, now_us: int
) -> tuple[ev.TaskCreated, list[ev.Event]]:
    """The task of an execution, and the events of the steps whose outcome the new one keeps."""
    numbered = await read_events(store, execution_id, 0)
    events = [event for _, event in numbered]
    created = events[0]
    assert isinstance(created, ev.TaskCreated)
    return created, kept_events(events, execution_id, now_us, at_step)


async def inherited(
    store: Store, parent: Execution, path: str, created: ev.TaskCreated
) -> tuple[ev.TaskCreated, list[ev.Event], list[tuple[str, bytes]]]:
    """A child of a retried execution keeps what the child in its place had done, if it is the same task."""
    origin = parent.facts().forked_from
    if origin is None or not is_retry(parent):
        return created, [], []
    try:
        _, before, _ = await read_state(store, origin.id)
        child = before.children[path]
        task, copied = await copied_events(store, child.id, "", created.at)
    except (NotFound, KeyError):
        return created, [], []
    if task_of(task) != task_of(created):
        return created, [], []
    fork = msgspec.structs.replace(created, forked_from=forked_from(task, child.id))
    return fork, copied, await blobs_of(store, copied)


def forked_from(created: ev.TaskCreated, execution_id: str, at: str = "") -> ev.ForkedFrom:
    """What a fork of this execution records."""
    return ev.ForkedFrom(id=execution_id, at=at, origin=origin_of(created, execution_id))


async def looked_up_later(store: Store, origin_id: str) -> tuple[str, ...]:
    """Whom a retry needs until its end: its origin, and those of its children that are there to be looked up."""
    found = [origin_id]
    page = await store.heads(Query(parent_id=origin_id, limit=CHILDREN_PAGE))
    while page:
        found += [head.id for head in page]
        page = await store.heads(Query(parent_id=origin_id, before=page[-1].id, limit=CHILDREN_PAGE))
    return tuple(found)


def is_retry(state: Execution) -> bool:
    """Whether it goes on from what its origin has left.

    Not from a step on, where everything is wanted anew; and not what was copied from a file, on hold: it knows what the
    file knew, and if its origin lives on, what that does meanwhile is not the copy's.
    """
    origin = state.facts().forked_from
    return origin is not None and not origin.at and not state.facts().hold


def task_of(created: ev.TaskCreated) -> tuple[str, str, bytes, bytes]:
    """What makes two tasks the same: program, its document and the inputs."""
    program = created.program
    return program.kind, program.name, bytes(program.source), bytes(created.inputs)


def _some(paths: Sequence[str]) -> str:
    """Of its steps, in the order they came."""
    if not paths:
        return "; none of its steps has begun"
    more = f" and {len(paths) - STEPS_NAMED} more" if len(paths) > STEPS_NAMED else ""
    return f"; there are: {', '.join(paths[:STEPS_NAMED])}{more}"


def kept_events(events: Sequence[ev.AnyEvent], execution_id: str, now_us: int, at_step: str = "") -> list[ev.Event]:
    """Of a whole history, in its order: completed steps with their last attempt, and the containers that were open
    around them; what the others had noted, and their doubts; what was added, and what nobody has taken.
    """
    numbered = list(enumerate(events, start=1))
    if at_step:
        numbered = _before(numbered, at_step)
        events = [event for _, event in numbered]
    started = {event.path: event for event in events if isinstance(event, ev.StepStarted)}
    completed = {event.path: event for event in events if isinstance(event, ev.StepCompleted)}
    begun = {event.path: event for event in events if isinstance(event, ev.StepWaiting)} | started
    done = {path for path in completed if not _has_undone_inside(path, started, completed)}
    taken = {event.consumed for event in completed.values()}
    keys = _Keys(execution_id, events)
    notes = _notes(events, done, keys, now_us)
    doubts = _doubts(events, started, keys, now_us)
    containers = {path for path, event in started.items() if event.kind in _CONTAINERS}
    wanted = begun.keys() & (done | doubts.keys() | containers)
    kept: list[ev.Event] = []
    opened: set[str] = set()
    for seq, event in numbered:
        if isinstance(event, ev.PlanExtended) or (isinstance(event, ev.EventReceived) and seq not in taken):
            kept.append(_at(event, now_us))
        path = getattr(event, "path", "")
        if path in wanted and path not in opened and isinstance(event, ev.StepStarted | ev.StepWaiting):
            opened.add(path)
            kept.append(_at(begun[path], now_us))
        if path in notes and (path in opened or path not in wanted):
            kept.append(notes.pop(path))
        if path in doubts and path in opened:
            kept.append(doubts.pop(path))
        if isinstance(event, ev.StepCompleted) and path in done and path in opened:
            kept.append(_at(_without_event(event), now_us))
    return kept


_Numbered = list[tuple[int, ev.AnyEvent]]


def _before(numbered: _Numbered, at_step: str) -> _Numbered:
    """What came before a step, and what became since of the steps that had begun before it: a recorded outcome is not
    forgotten because another step began meanwhile. So it does not matter either that in a fork of an older release all
    copied steps begin before the first of them ends.
    """
    begun: dict[str, int] = {}
    noted: set[str] = set()  # what was carried here stands before its step has begun
    for seq, event in numbered:
        if isinstance(event, ev.StepNoted):
            noted.add(event.path)
        elif path := getattr(event, "path", ""):
            begun.setdefault(path, seq)
    if at_step not in begun and at_step not in noted:
        known = [*begun, *sorted(noted - begun.keys())]
        raise NotFound(f'there is no step "{at_step}" in this execution{did_you_mean(at_step, known) or _some(known)}')
    cut = begun.get(at_step, len(numbered) + 1)
    unfinished = {outer for path, seq in begun.items() if seq >= cut for outer in _around(path)}

    def is_kept(seq: int, event: ev.AnyEvent) -> bool:
        path = getattr(event, "path", "")
        if path == at_step or at_step in _around(path) or (isinstance(event, ev.StepCompleted) and path in unfinished):
            return False
        return seq < cut or begun.get(path, cut) < cut or isinstance(event, ev.PlanExtended)

    return [(seq, event) for seq, event in numbered if is_kept(seq, event)]


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
        if said := services.objection(plan, [added]):
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


class _Keys:
    """The idempotency key of each step: its own, or the one that came along when its execution was made."""

    def __init__(self, execution_id: str, events: Sequence[ev.AnyEvent]) -> None:
        self._id = execution_id
        copied = (event for event in events if isinstance(event, ev.StepNoted | ev.StepInDoubt))
        self._copied = {event.path: event.call_key for event in copied if event.call_key}

    def of(self, path: str) -> str:
        return self._copied.get(path) or call_key(self._id, path)


def _notes(events: Sequence[ev.AnyEvent], done: set[str], keys: _Keys, now_us: int) -> dict[str, ev.StepNoted]:
    """The last note of each step that is not done: what it had done by then must not be done again."""
    tools: dict[str, str] = {}
    last: dict[str, ev.StepNoted] = {}
    for event in events:
        if isinstance(event, ev.StepStarted):
            tools[event.path] = event.tool
        elif isinstance(event, ev.StepNoted) and event.path not in done:
            tool, key = event.tool or tools[event.path], keys.of(event.path)
            last[event.path] = msgspec.structs.replace(event, at=now_us, tool=tool, call_key=key)
    return last


def _doubts(
    events: Sequence[ev.AnyEvent], started: dict[str, ev.StepStarted], keys: _Keys, now_us: int
) -> dict[str, ev.StepInDoubt]:
    """`once` steps that may have happened. A new execution is no reason to forget that: it settles them anew."""
    last: dict[str, ev.AnyEvent] = {}
    tool_of: dict[str, int] = {}  # by path: the step's own (0) or its n-th fallback
    for event in events:
        if not isinstance(event, ev.StepEvent) or isinstance(event, ev.StepNoted | ev.StepLogged | ev.StepDiverged):
            continue
        if isinstance(event, ev.StepFailed | ev.StepSkipped) and isinstance(last.get(event.path), ev.StepInDoubt):
            continue  # whoever went on over the doubt did not know either
        if isinstance(event, ev.StepStarted | ev.StepRetrying):
            doubted = isinstance(last.get(event.path), ev.StepInDoubt)
            if doubted and event.fallback != tool_of.get(event.path, 0):
                continue  # another tool was tried instead, which says nothing about the first one
            tool_of[event.path] = event.fallback
        last[event.path] = event
    why = "it was running in the execution that this one was made from"
    doubts: dict[str, ev.StepInDoubt] = {}
    for path, event in last.items():
        if isinstance(event, ev.StepInDoubt):
            doubts[path] = msgspec.structs.replace(event, at=now_us, spent_micros=None, call_key=keys.of(path))
        elif isinstance(event, ev.StepStarted) and event.effect == "once" and event.kind in ("tool", "code"):
            attempt = started[path].attempt
            doubts[path] = ev.StepInDoubt(at=now_us, path=path, why=why, attempt=attempt, call_key=keys.of(path))
    return doubts


def _has_undone_inside(path: str, started: dict[str, ev.StepStarted], completed: dict[str, ev.StepCompleted]) -> bool:
    if path not in started or started[path].kind not in _CONTAINERS:
        return False
    return any(other not in completed and path in _around(other) for other in started)


def _around(path: str) -> Iterator[str]:
    while path := parent_of(path):
        yield path


def _at(event: ev.Event, now_us: int) -> ev.Event:
    """A copy takes place now and costs nothing here; what it says about durations stays."""
    match event:
        case ev.StepStarted():
            return msgspec.structs.replace(event, at=now_us, reserved_micros=0)
        case ev.StepCompleted() | ev.StepWaiting() | ev.StepInDoubt():
            return msgspec.structs.replace(event, at=now_us, spent_micros=None)
        case _:
            return msgspec.structs.replace(event, at=now_us)


def _without_event(event: ev.StepCompleted) -> ev.StepCompleted:
    return msgspec.structs.replace(event, consumed=0)


async def blobs_of(store: Store, events: Sequence[ev.Event]) -> list[tuple[str, bytes]]:
    """The large values that copied events refer to; the new execution holds them too."""
    found: dict[str, bytes] = {}
    for event in events:
        for blob in large_values(event):
            if blob.digest not in found:
                found[blob.digest] = await fetch_blob(store, blob)
    return list(found.items())
