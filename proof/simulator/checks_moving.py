"""Checks that things move: down a family, to their end, and by themselves where nobody is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.core import events as ev
from holdfast.core.lifecycle import ENDS
from proof.simulator.case import Case, Check
from proof.simulator.history import CutShort, Fault, LeftAlone
from proof.simulator.scenario import DEATHS
from proof.simulator.witness import Fact, Story

IDLE_US = 20_000_000  # what has had a reason to move for so long, and has not, does not move
_DECIDED = (ev.ApprovalGranted, ev.ApprovalDenied, ev.ApprovalExpired, ev.RequestAnswered)
_ENTERS = {
    "task:created": "queued",
    "task:started": "running",
    "task:waiting": "waiting",
    "task:paused": "paused",
    "task:interrupted": "interrupted",
    "task:completed": "completed",
    "task:error": "failed",
    "task:stopped": "stopped",
}
_PASSED: dict[type[ev.Event], str] = {
    ev.TaskPaused: "pause",
    ev.TaskInterrupted: "interrupt",
    ev.TaskResumed: "resume",
    ev.TaskStopped: "stop",
    ev.TaskError: "stop",
    ev.TaskCompleted: "stop",
}


def every_history_comes_to_an_end(case: Case) -> Iterator[str]:
    """Nobody turns in circles: a history that does is cut short after a number of turns, and nothing more is asked."""
    for line in case.played.history.of(CutShort):
        yield f"it was cut short after {line.turns:,} turns, {line.at_us / 1e6:.3f} s after it began"


def everything_ends_once_nothing_breaks(case: Case) -> Iterator[str]:
    """Every execution that can progress does: none is stuck after the faults have stopped."""
    for story in case.told.stories.values():
        if story.deleted_us is not None:
            continue
        head = case.played.store.head_of(story.id)
        if head.status not in ENDS:
            why = f", set aside: {head.quarantined}" if head.quarantined else ""
            reasons = [reason.kind for reason in head.reasons]
            yield f"{story.id} ({head.title or head.name}) is still {head.status} {reasons}{why}"


def what_can_go_on_does_without_a_person(case: Case) -> Iterator[str]:
    """Before anybody lifts a finger: what waits for something that has come, or for a time that has, has moved."""
    for line in case.played.history.of(LeftAlone):
        faults = [fault for fault in case.played.history.of(Fault) if fault.at_us > line.at_us - 2 * IDLE_US]
        if any(fault.kind in DEATHS and fault.at_us <= line.at_us for fault in faults):
            continue  # somebody may be about to take it up
        for story in case.told.stories.values():
            facts = [fact for fact in story.facts if fact.at_us <= line.at_us]
            if story.is_held(line.at_us) or story.is_away(line.at_us):
                continue
            if facts and facts[-1].at_us < line.at_us - IDLE_US and not story.head.concurrency_key:
                why = _could_move(case, story, facts, line.at_us)
                if why:
                    yield f"{story.id}: {why}, and it does not go on"


def _could_move(case: Case, story: Story, facts: list[Fact], at_us: int) -> str:
    """Why this execution should have moved by now, or nothing."""
    move = next(fact.event for fact in reversed(facts) if ev.name_of(fact.event) in _ENTERS)
    now_us = case.earliest_us(at_us) - IDLE_US
    match move:
        case ev.TaskStarted():
            return "it runs"
        case ev.TaskCreated() if not move.hold:
            return "it has not begun"
        case ev.TaskPaused() if move.until is not None and move.until < now_us:
            return "its pause is over"
        case ev.TaskWaiting():
            for reason in move.reasons:
                if reason.due_at is not None and reason.due_at < now_us:
                    return f"the time of {reason.path} has come"
                if _has_come(case, story, facts, reason, at_us):
                    return f"the {reason.kind} of {reason.path} has come"
        case _:
            pass
    return ""


def _has_come(case: Case, story: Story, facts: list[Fact], reason: ev.Reason, at_us: int) -> bool:
    events = [fact.event for fact in facts]
    match reason.kind:
        case "event":
            waits = {event.path: event.name for event in events if isinstance(event, ev.StepWaiting)}
            came = Counter(event.name for event in events if isinstance(event, ev.EventReceived))
            done = [event for event in events if isinstance(event, ev.StepCompleted) and event.consumed]
            came.subtract(Counter(waits[event.path] for event in done))
            return came[reason.name] > 0
        case "child":
            child = case.told.stories.get(reason.name)
            end = child.end() if child is not None else None
            return end is not None and end.at_us < at_us - IDLE_US
        case "approval" | "answer" | "correction" | "doubt" | "budget":
            return any(isinstance(event, _DECIDED) and event.request_id == reason.name for event in events)
        case _:
            return False


def each_status_is_entered_by_one_kind_of_event(case: Case) -> Iterator[str]:
    """What a driver writes into the list is the status that the last event of such a kind enters, and no other."""
    for story in case.told.stories.values():
        kinds = [ev.name_of(fact.event) for fact in story.facts]
        for seq, status in story.listed:
            entered = next((_ENTERS[kind] for kind in reversed(kinds[:seq]) if kind in _ENTERS), "")
            if status != entered:
                yield f"{story.id}: after event {seq} the list says {status}, its events say {entered}"


def what_is_said_to_a_parent_reaches_its_children(case: Case) -> Iterator[str]:
    """Pause, interrupt, resume and stop are passed down to the children that live, in the same transaction."""
    posted: set[tuple[str, str, int]] = {
        (command.execution_id, command.verb, case.told.posted_us[name]) for name, command in case.told.commands.items()
    }
    for story in case.told.stories.values():
        living: dict[str, None] = {}
        for fact in story.facts:
            match event := fact.event:
                case ev.ChildStarted():
                    living[event.child_id] = None
                case ev.ChildEnded():
                    living.pop(event.child_id, None)
                case _ if type(event) in _PASSED:
                    verb = _PASSED[type(event)]
                    if isinstance(event, ev.TaskResumed) and event.pause_limit == "stop":
                        verb = "stop"
                    for child_id in living:
                        if (child_id, verb, fact.at_us) not in posted:
                            yield f"{story.id}: event {fact.seq} ({verb}) was not passed down to {child_id}"
                case _:
                    pass


def who_takes_up_a_child_knows_of_its_parents_end(case: Case) -> Iterator[str]:
    """A parent that has ended takes its children with it: whoever takes one up later begins nothing."""
    for story in case.told.stories.values():
        parent = case.told.stories.get(story.head.parent_id)
        end = parent.end() if parent is not None else None
        if end is None:
            continue
        for fact, event in story.events(ev.StepStarted):
            hold = story.hold_of(fact)
            if hold is not None and hold.from_us > end.at_us:
                yield f"{story.id} {event.path}: event {fact.seq} begins it, and its parent has ended with {end.seq}"


CHECKS: tuple[Check, ...] = (
    every_history_comes_to_an_end,
    everything_ends_once_nothing_breaks,
    what_can_go_on_does_without_a_person,
    each_status_is_entered_by_one_kind_of_event,
    what_is_said_to_a_parent_reaches_its_children,
    who_takes_up_a_child_knows_of_its_parents_end,
)
