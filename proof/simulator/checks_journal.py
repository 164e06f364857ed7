"""Checks of the journals themselves: numbers, epochs, chains, statuses, times, folds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.core.lifecycle import NEW, STEP_MOVES, TASK_MOVES
from holdfast.journal.codec import CHAIN_START, link, make_snapshot, open_snapshot
from proof.simulator.case import Case, Check
from proof.simulator.witness import Story


def numbers_without_gaps(case: Case) -> Iterator[str]:
    """Every durable event has the next number, and the store keeps exactly what was committed."""
    for story in case.told.stories.values():
        yield from (text for name, text in story.wrongs if name == "numbers_without_gaps")
        kept = case.played.store.rows_of(story.id)
        if story.deleted_us is None and [fact.row for fact in story.facts] != kept:
            yield f"{story.id}: {len(story.facts)} events were committed, the store has {len(kept)} or others"


def only_the_driver_appends(case: Case) -> Iterator[str]:
    """No append without the current epoch, and every claim raises it by one."""
    for story in case.told.stories.values():
        yield from (f"{story.id}: {text}" for name, text in story.wrongs if name == "only_the_driver_appends")


def the_chain_holds(case: Case) -> Iterator[str]:
    """Each event's digest follows from the one before it."""
    for story in case.told.stories.values():
        chain = CHAIN_START
        for fact in story.facts:
            chain = link(chain, fact.row.version, fact.row.body)
            if chain != fact.row.digest:
                yield f"{story.id}: event {fact.seq} does not follow the one before it"
                break


def statuses_move_along_the_table(case: Case) -> Iterator[str]:
    """Executions and steps move only along the tables, and what lists show is what the journal says."""
    for story in case.told.stories.values():
        status, steps = NEW, dict[str, str]()
        for fact in story.facts:
            kind = ev.name_of(fact.event)
            move = TASK_MOVES.get(kind)
            if move is not None:
                if status not in move.frm:
                    yield f"{story.id}: event {fact.seq} {kind} while {status}"
                status = move.to
            if isinstance(fact.event, ev.StepDiscarded):
                steps.pop(fact.event.path, None)
            move = STEP_MOVES.get(kind)
            if move is not None:
                path = str(getattr(fact.event, "path", ""))
                if steps.get(path, "pending") not in move.frm:
                    yield f"{story.id}: event {fact.seq} {kind} {path} while {steps.get(path, 'pending')}"
                steps[path] = move.to
        if story.deleted_us is not None:
            continue
        head = case.played.store.head_of(story.id)
        if (head.status, head.seq) != (status, len(story.facts)):
            yield f"{story.id} is {status} after {len(story.facts)} events, the list says {head.status}, {head.seq}"


def time_never_goes_back(case: Case) -> Iterator[str]:
    """An event is never older than the one before it, whatever the clock does."""
    for story in case.told.stories.values():
        last = 0
        for fact in story.facts:
            if fact.event.at < last:
                yield f"{story.id}: event {fact.seq} is {last - fact.event.at} µs older than the one before it"
            last = fact.event.at


def a_prefix_and_the_rest_fold_to_the_whole(case: Case) -> Iterator[str]:
    """Folding from a snapshot taken anywhere gives the same state as folding everything."""
    for story in case.told.stories.values():
        cut = Random(f"{case.played.scenario.seed}/{story.id}").randint(1, len(story.facts))
        whole, part = _folded(story, 0, Execution(id=story.id)), _folded(story, 0, Execution(id=story.id), cut)
        part.snapshot_seq = part.seq
        opened = open_snapshot(make_snapshot(part, story.facts[cut - 1].row.digest))
        if opened is None:
            yield f"{story.id}: a snapshot at {cut} cannot be opened"
            continue
        opened.snapshot_seq = 0
        if _written(_folded(story, cut, opened)) != _written(whole):
            yield f"{story.id}: the first {cut} events and the rest do not fold to the same state as all of them"


def a_snapshot_is_what_its_events_amount_to(case: Case) -> Iterator[str]:
    """Every snapshot that was written opens to the state of the events before it, and stands at the last of them."""
    for story in case.told.stories.values():
        for snapshot in story.snapshots:
            opened, facts = open_snapshot(snapshot), story.facts[: snapshot.seq]
            if opened is None or (opened.id, opened.snapshot_seq) != (story.id, snapshot.seq):
                yield f"{story.id}: the snapshot at {snapshot.seq} cannot be opened, or is of something else"
                continue
            opened.snapshot_seq = 0
            if _written(opened) != _written(_folded(story, 0, Execution(id=story.id), snapshot.seq)):
                yield f"{story.id}: the snapshot at {snapshot.seq} is not what its events amount to"
            if snapshot.chain != facts[-1].row.digest:
                yield f"{story.id}: the snapshot at {snapshot.seq} stands at another event than {facts[-1].seq}"


def _folded(story: Story, first: int, state: Execution, until: int | None = None) -> Execution:
    for fact in story.facts[first:until]:
        apply(state, fact.event, fact.seq)
    return state


def _written(state: Execution) -> bytes:
    """As it is kept: what is in another order is another state."""
    return make_snapshot(state, CHAIN_START).body


def waiting_means_that_nothing_runs(case: Case) -> Iterator[str]:
    """An execution waits only when nothing runs, and it says what for."""
    for story in case.told.stories.values():
        state = Execution(id=story.id)
        for fact in story.facts:
            apply(state, fact.event, fact.seq)
            if isinstance(fact.event, ev.TaskWaiting):
                running = [step.path for step in state.running_steps() if step.kind in ("tool", "code")]
                if running:
                    yield f"{story.id}: event {fact.seq} says it waits while {', '.join(running)} runs"
                if not fact.event.reasons:
                    yield f"{story.id}: event {fact.seq} says it waits for nothing"


def an_end_leaves_nothing_running(case: Case) -> Iterator[str]:
    """When an execution has ended, every attempt of its steps has, too."""
    for story in case.told.stories.values():
        state = Execution(id=story.id)
        for fact in story.facts:
            apply(state, fact.event, fact.seq)
        running = [step.path for step in state.running_steps() if step.kind in ("tool", "code")]
        if state.is_ended and running:
            yield f"{story.id} is {state.status} while {', '.join(running)} runs"


def only_a_person_ends_an_interrupt(case: Case) -> Iterator[str]:
    """What was interrupted stays so until somebody resumes or stops it; a pause also ends at its limit."""
    for story in case.told.stories.values():
        held = ""
        resumed = False
        for fact in story.facts:
            match fact.event:
                case ev.TaskInterrupted() | ev.TaskPaused():
                    held, resumed = ev.name_of(fact.event), False
                case ev.TaskResumed():
                    resumed = True
                case ev.TaskStarted() if held:
                    if not resumed:
                        yield f"{story.id}: event {fact.seq} goes on after {held} though nobody resumed it"
                    held = ""
                case _:
                    pass


CHECKS: tuple[Check, ...] = (
    numbers_without_gaps,
    only_the_driver_appends,
    the_chain_holds,
    statuses_move_along_the_table,
    time_never_goes_back,
    a_prefix_and_the_rest_fold_to_the_whole,
    a_snapshot_is_what_its_events_amount_to,
    waiting_means_that_nothing_runs,
    an_end_leaves_nothing_running,
    only_a_person_ends_an_interrupt,
)
