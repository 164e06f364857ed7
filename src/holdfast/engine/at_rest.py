"""When an execution is at rest, and what moves it if it is not. Everybody who waits for executions asks here.

`moved_by` is the rule for one execution, a pure function of its head. `is_at_rest` also looks into the children that it
waits for; `Run.settled`, `holdfast run` and `holdfast worker --until-idle` end when it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Literal

from holdfast.core.lifecycle import ENDS
from holdfast.journal.store import Head, Microseconds

if TYPE_CHECKING:
    from holdfast.core.events import Reason
    from holdfast.engine.engine import Engine

PEOPLE = frozenset({"approval", "answer", "correction", "doubt", "budget"})  # reasons that only a person removes
LOOKED_AT_MAX = 10_000  # executions that may still be due one day
FAR_US = 2**62  # later than any time an execution can wait for

Mover = Literal["driver", "time", "event", "child", "person"]
IsDead = Callable[[str], bool]


# ---- of one execution, by its head -----------------------------------------------------------------------------------


def moved_by(head: Head, now_us: Microseconds, is_dead: IsDead) -> frozenset[Mover]:
    """What can move it next; nothing, if it has ended. Its driver, if it only has to be driven."""
    if head.status in ENDS:
        return frozenset()
    if head.quarantined or head.status == "interrupted" or is_held(head):
        return frozenset({"person"})
    if head.status == "paused":  # its driver leaves when the running steps have finished
        return frozenset({"person" if is_undriven(head, is_dead) else "driver"})
    if head.status != "waiting" or is_due(head, now_us):
        return frozenset({"driver"})
    return frozenset(mover_of(reason) for reason in head.reasons)


def mover_of(reason: Reason) -> Mover:
    """What removes this reason to wait. An event that has a time limit comes, or its time does."""
    if reason.kind in PEOPLE:
        return "person"
    if reason.kind == "child":
        return "child"
    return "event" if reason.kind == "event" and reason.due_at is None else "time"


def is_held(head: Head) -> bool:
    """Started, imported or restored to be driven only after a person resumes it."""
    return bool(head.held) or is_held_from_start(head)


def is_held_from_start(head: Head) -> bool:
    """Started with `hold`: it is queued, and no time is set at which it should be driven."""
    return head.status == "queued" and head.wake_at is None


def is_due(head: Head, now_us: Microseconds) -> bool:
    """Its time has come, or a command has come in."""
    return head.wake_at is not None and head.wake_at <= now_us


def is_undriven(head: Head, is_dead: IsDead) -> bool:
    return not head.driver or is_dead(head.driver)


def is_left_alone(head: Head, is_dead: IsDead) -> bool:
    """It should move, and no living process drives it."""
    return not head.ended_at and head.status not in ("paused", "interrupted") and is_undriven(head, is_dead)


# ---- with its children -----------------------------------------------------------------------------------------------


async def is_at_rest(engine: Engine, head: Head) -> bool:
    """Ended, or only a person can move it or the children it waits for."""
    if head.status in ENDS or head.quarantined or is_held(head):
        return True
    movers = moved_by(head, engine.services.clock.now_us(), engine.is_dead)
    if not movers or not movers <= {"person", "child"}:
        return False
    for child_id in await waited_children(engine, head):
        engine.raise_problem(child_id)
        child = await engine.get(child_id).head()
        if child.status in ENDS or not await is_at_rest(engine, child):
            return False
    return not await _is_answered(engine, head)


async def waited_children(engine: Engine, head: Head) -> list[str]:
    """The children it waits for. If the head lists only some of them, all that have not ended."""
    waited_for = [reason for reason in head.reasons if reason.kind == "child"]
    if not any(reason.more for reason in waited_for):
        return [reason.name for reason in waited_for]
    state = await engine.get(head.id).state()
    return [child.id for child in state.children.values() if child.status not in ENDS]


async def _is_answered(engine: Engine, head: Head) -> bool:
    """A person has just answered, and its driver is about to go on."""
    waited_for = [reason for reason in head.reasons if reason.kind in PEOPLE]
    if not waited_for:
        return False
    unanswered = {asked.request.id for asked in (await engine.get(head.id).state()).open_requests()}
    if any(reason.name not in unanswered for reason in waited_for):
        return True
    return len(waited_for) + sum(reason.more for reason in waited_for) > len(unanswered)


# ---- of all that one process drives ----------------------------------------------------------------------------------


async def is_all_waiting(engine: Engine) -> bool:
    """Nothing is due, and all that runs here waits, for whatever it is."""
    driven = engine.driven()
    heads = await _heads(engine, driven)
    return all(head.status not in ("queued", "running") for head in heads) and await _is_unchanged(engine, driven)


async def is_idle(engine: Engine) -> bool:
    """Nothing is due, and all that runs here or will be due one day is at rest."""
    driven = engine.driven()
    heads = [*await _heads(engine, driven), *await engine.due(FAR_US, LOOKED_AT_MAX)]
    return all([await is_at_rest(engine, head) for head in heads]) and await _is_unchanged(engine, driven)


async def _is_unchanged(engine: Engine, driven: Collection[str]) -> bool:
    """Asked last: what was let go of meanwhile is due again, and what was taken up is in hand or driven."""
    if await engine.due(engine.services.clock.now_us(), 1):
        return False
    return not engine.services.has_in_hand() and set(engine.driven()) <= set(driven)


async def _heads(engine: Engine, execution_ids: Iterable[str]) -> list[Head]:
    return [await engine.get(execution_id).head() for execution_id in execution_ids]
