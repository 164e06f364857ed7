"""Checks of what is said when a process has died, or slept: who took over from whom, and what became of what ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.core.lifecycle import TASK_MOVES
from proof.simulator.case import Case, Check
from proof.simulator.history import Called, Fault
from proof.simulator.witness import Fact, Hold, Story

NAP_US = 1_000_000
LETS_GO_WITHIN_US = 400_000  # of waking up: the keeper looks ten times a second, and reads one row for each execution
# What a driver writes because its program goes on, and not because somebody said something.
_GOES_ON = (ev.StepStarted, ev.StepWaiting, ev.StepRetrying, ev.TaskWaiting, ev.TaskCompleted, ev.TaskError)


def a_takeover_is_told_first(case: Case) -> Iterator[str]:
    """Whoever takes a running execution from another says so, with both names, before it goes on with anything; and
    nobody says so who did not, or who took it from the living.
    """
    faults: dict[str, int] = {}
    for line in case.played.history.of(Fault):
        faults.setdefault(line.process, line.at_us)
    for story in case.told.stories.values():
        told = {id(story.hold_of(fact)): event for fact, event in story.events(ev.TaskRecovered)}
        for hold in story.holds:
            event = told.pop(id(hold), None)
            took_over = hold.taken_over and _status(story.facts[: hold.after]) == "running"
            if event is None:
                if took_over and (moved := _moves(story, hold)):
                    yield f"{story.id}: event {moved.seq} goes on after {hold.replaced}, and nothing says so"
            elif not took_over or (event.driver, event.lost) != (hold.driver, hold.replaced):
                yield f"{story.id}: {event.driver} says that it took over from {event.lost}; it was {hold}"
            elif (moved := _moves(story, hold)) and moved.seq < _seq(story, event):
                yield f"{story.id}: event {moved.seq} goes on before it is said that somebody took over"
        for event in told.values():
            yield f"{story.id}: {event.driver} says that it took over from {event.lost}, and had not"
        names = {hold.driver: hold.process for hold in story.holds}
        for hold in story.holds:
            process = names.get(hold.replaced, hold.process)
            if process != hold.process and faults.get(process, hold.from_us + 1) > hold.from_us:
                yield f"{story.id}: {hold.process} took it from {process}, which nothing had happened to"


def _status(facts: list[Fact]) -> str:
    moves = (TASK_MOVES.get(ev.name_of(fact.event)) for fact in reversed(facts))
    return next((move.to for move in moves if move is not None), "")


def _moves(story: Story, hold: Hold) -> Fact | None:
    """The first event of its time as the driver that shows the execution going on."""
    mine = (fact for fact in story.facts[hold.after :] if story.hold_of(fact) is hold)
    return next((fact for fact in mine if isinstance(fact.event, _GOES_ON)), None)


def _seq(story: Story, event: ev.Event) -> int:
    return next(fact.seq for fact in story.facts if fact.event is event)


def what_was_lost_with_its_process_is_called_so(case: Case) -> Iterator[str]:
    """An attempt that somebody cut off was interrupted; one that nobody did, since its process was gone, was lost."""
    for story in case.told.stories.values():
        for fact, event in story.events(ev.StepInterrupted):
            start = story.start_of(event.path, event.attempt)
            if start is None or fact.seq <= story.born:
                continue
            is_lost = story.hold_of(start) is not story.hold_of(fact)
            if event.lost != is_lost:
                what = "was left by another driver" if is_lost else "was cut off by its own driver"
                yield f"{story.id} {event.path}: event {fact.seq} says lost={event.lost}, and it {what}"


def who_lets_go_leaves_nothing_running(case: Case) -> Iterator[str]:
    """A driver that lets go, because its engine closes or for any other reason, has settled what it had begun."""
    for story in case.told.stories.values():
        state = Execution(id=story.id)
        let_go = {hold.released: hold for hold in story.holds if hold.released is not None}
        for fact in story.facts:
            apply(state, fact.event, fact.seq)
            for step in state.running_steps() if fact.seq in let_go else ():
                start = story.start_of(step.path, step.attempt)
                if step.kind in ("tool", "code") and start and story.hold_of(start) is let_go[fact.seq]:
                    yield f"{story.id} {step.path}: {let_go[fact.seq].process} let go after event {fact.seq}; it runs"


def who_slept_and_was_replaced_lets_go(case: Case) -> Iterator[str]:
    """A process that stood still looks when it wakes whether it was replaced, and does not wait until a write of it is
    refused: what it had begun then does nothing more in the world.
    """
    naps = naps_of(case.played.history.of(Fault))
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        for call in calls:
            if call.phase not in ("happened", "answered") or call.ending == "stubborn":
                continue
            for since_us, until_us in naps.get(call.process, ()):
                began = next(one for one in calls if _is_begin(one, call))
                later_us = call.at_us - until_us
                if began.at_us > since_us or later_us < LETS_GO_WITHIN_US:
                    continue
                if was_replaced(story, call.process, since_us, until_us):
                    yield f"{execution_id} {path}: {call.phase} {later_us} µs after {call.process} woke up"


def who_slept_and_was_replaced_calls_nothing(case: Case) -> Iterator[str]:
    """Also not if it wakes up to hear that its intent is on disk: that is an old word. Reads may be called."""
    naps = naps_of(case.played.history.of(Fault))
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        for call in calls:
            if call.phase != "called" or call.effect == "read" or story.holder(call.at_us) == call.process:
                continue
            for since_us, until_us in naps.get(call.process, ()):
                if call.at_us >= until_us and was_replaced(story, call.process, since_us, until_us):
                    yield f"{execution_id} {path}: {call.process} called {call.tool} after it had been replaced"


def naps_of(faults: list[Fault]) -> dict[str, list[tuple[int, int]]]:
    """From when to when each process stood still; short stops are like any other moment without a turn."""
    naps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    asleep: dict[str, int] = {}
    for line in faults:
        if line.kind == "frozen":
            asleep[line.process] = line.at_us
        elif line.kind in ("zombie", "freeze") and line.process in asleep:
            since_us = asleep.pop(line.process)
            if line.at_us - since_us >= NAP_US:
                naps[line.process].append((since_us, line.at_us))
    return naps


def _is_begin(one: Called, call: Called) -> bool:
    return one.phase == "called" and (one.attempt, one.process) == (call.attempt, call.process)


def was_replaced(story: Story, process: str, since_us: int, until_us: int) -> bool:
    return any(hold.process != process and since_us < hold.from_us < until_us for hold in story.holds)


CHECKS: tuple[Check, ...] = (
    a_takeover_is_told_first,
    what_was_lost_with_its_process_is_called_so,
    who_lets_go_leaves_nothing_running,
    who_slept_and_was_replaced_lets_go,
    who_slept_and_was_replaced_calls_nothing,
)
