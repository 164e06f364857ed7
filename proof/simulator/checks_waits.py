"""Checks of what a step waits for: a person's yes, a time, an event, another try. None is taken for granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.history import Called
from proof.simulator.model import RETRIES
from proof.simulator.visits import CERTAIN
from proof.simulator.witness import Fact, Story
from proof.simulator.world import EFFECTS

_DECISIONS = (ev.ApprovalGranted, ev.ApprovalDenied, ev.ApprovalExpired)
_Decision = ev.ApprovalGranted | ev.ApprovalDenied | ev.ApprovalExpired


def _decisions(story: Story, path: str) -> list[tuple[Fact, _Decision, ev.Request]]:
    """What was decided about a step, and about what exactly."""
    asked = {event.request.id: event.request for _, event in story.events(ev.ApprovalRequested)}
    decided = [(fact, event, asked[event.request_id]) for fact, event in story.events(*_DECISIONS)]
    return [(fact, event, request) for fact, event, request in decided if request.path == path]


def what_wants_a_yes_is_called_after_it(case: Case) -> Iterator[str]:
    """A tool that wants an approval is called only after a person's yes to this tool with this input, or a lasting yes
    to the tool; never after a no, and silence is a no.
    """
    for (execution_id, path), calls in case.told.calls.items():
        story, wanted = case.told.stories[execution_id], case.wishes[execution_id].of(path)
        for call in calls:
            own = wanted is not None and wanted.approval and call.tool == wanted.tool
            if call.phase == "called" and (own or call.tool == "ask_first"):
                yield from _unapproved(story, call)


def _unapproved(story: Story, call: Called) -> Iterator[str]:
    where = f"{story.id} {call.path}: attempt {call.attempt} called {call.tool}"
    start = story.start_of(call.path, call.attempt)  # reads may run ahead of the disk, but not of the journal
    if start is None:
        return
    before = [item for item in _decisions(story, call.path) if item[0].seq < start.seq]
    if not before:
        if not _has_lasting_yes(story, call, start):
            yield f"{where}, and nobody had said yes"
        return
    _, decision, request = before[-1]
    if not isinstance(decision, ev.ApprovalGranted):
        yield f"{where} after {ev.name_of(decision)}"
    elif request.tool != call.tool:
        yield f"{where}, the yes was to {request.tool}"
    else:
        edits = _object(decision.arguments) if decision.arguments else {}
        approved = (_object(request.arguments) | edits).get("value")
        if approved != call.value:
            yield f"{where} with {call.value!r}, the yes was to {approved!r}"


def _has_lasting_yes(story: Story, call: Called, start: Fact) -> bool:
    asked = {event.request.id: event.request.tool for _, event in story.events(ev.ApprovalRequested)}
    granted = story.events(ev.ApprovalGranted)
    return any(e.sticky and asked[e.request_id] == call.tool and fact.seq < start.seq for fact, e in granted)


def _object(raw: Any) -> dict[str, Any]:
    return Case.plain(raw) or {}


def a_no_ends_a_step(case: Case) -> Iterator[str]:
    """What was denied, or expired, neither begins nor completes; what is nothing but an approval needs a yes."""
    for story in case.told.stories.values():
        alone = {event.path for _, event in story.events(ev.StepWaiting) if event.kind == "approval"}
        for fact, event in story.events(ev.StepStarted, ev.StepCompleted):
            before = [item for item in _decisions(story, event.path) if item[0].seq < fact.seq]
            said_no = bool(before) and not isinstance(before[-1][1], ev.ApprovalGranted)
            unasked = event.path in alone and not before and fact.seq > story.born
            if said_no or unasked:
                yield f"{story.id} {event.path}: event {fact.seq} is {ev.name_of(event)}, and nobody said yes"


def an_answer_comes_before_its_limit(case: Case) -> Iterator[str]:
    """Silence is a no: once the time for an answer is over, nobody's yes counts any more."""
    for story in case.told.stories.values():
        asked = {event.request.id: event.request for _, event in story.events(ev.ApprovalRequested)}
        for fact, event in story.events(ev.ApprovalGranted, ev.ApprovalDenied):
            until = asked[event.request_id].expires_at
            if until is not None and event.at >= until and fact.seq > story.born:
                yield f"{story.id}: event {fact.seq} answers {event.request_id} {event.at - until} µs after its limit"


def nothing_is_early(case: Case) -> Iterator[str]:
    """No timer rings, no limit acts and no further attempt begins before its time, by the clock of its machine."""
    for story in case.told.stories.values():
        due: dict[str, int] = {}
        for fact in story.facts:
            match fact.event:
                case ev.StepWaiting() | ev.StepRetrying() if fact.event.due_at is not None:
                    due[fact.event.path] = fact.event.due_at
                case ev.ApprovalRequested() if fact.event.request.expires_at is not None:
                    due[fact.event.request.id] = fact.event.request.expires_at
                case ev.TaskPaused() if fact.event.until is not None:
                    due["pause"] = fact.event.until
                case _ if fact.seq > story.born:  # what a fork copied came in time, or not, where it happened
                    name = _acts(story, fact)
                    if name in due and case.latest_us(fact.process, fact.at_us) < due.pop(name):
                        yield f"{story.id}: event {fact.seq} {ev.name_of(fact.event)} {name} came before its time"
                case _:
                    pass


def _acts(story: Story, fact: Fact) -> str:
    """The limit or time that this event acts on, if it does."""
    match event := fact.event:
        case ev.StepCompleted() if not event.consumed and not event.by:
            return event.path if _is_wait(story, event.path, "timer") else ""
        case ev.StepFailed() if event.failure.category == "timeout" and _is_wait(story, event.path, "event"):
            return event.path
        case ev.StepStarted():
            retried = [f.event for f in story.of_path(event.path) if f.seq < fact.seq]
            return event.path if retried and isinstance(retried[-1], ev.StepRetrying) else ""
        case ev.ApprovalExpired():
            return event.request_id
        case ev.TaskStopped() | ev.TaskResumed() if event.by == "holdfast" and not story.head.parent_id:
            return "pause"
        case _:
            return ""


def _is_wait(story: Story, path: str, reason: str) -> bool:
    return any(isinstance(fact.event, ev.StepWaiting) and fact.event.reason == reason for fact in story.of_path(path))


def an_event_satisfies_one_wait(case: Case) -> Iterator[str]:
    """A wait for an event completes with one that came, was meant for it, and was taken by nobody else."""
    for story in case.told.stories.values():
        received = {fact.seq: event for fact, event in story.events(ev.EventReceived)}
        awaited = {event.path: event.name for _, event in story.events(ev.StepWaiting) if event.reason == "event"}
        taken: set[int] = set()
        for fact, event in story.events(ev.StepCompleted):
            if event.path not in awaited or fact.seq <= story.born:
                continue
            came = received.get(event.consumed)
            if came is None or event.consumed > fact.seq:
                yield f"{story.id} {event.path}: completed with event {event.consumed}, which had not come"
            elif came.name != awaited[event.path] or came.data != event.output:
                yield f"{story.id} {event.path}: took event {event.consumed} {came.name}, or gave another value"
            elif event.consumed in taken:
                yield f"{story.id} {event.path}: event {event.consumed} was taken twice"
            taken.add(event.consumed)


def retries_are_bounded(case: Case) -> Iterator[str]:
    """As many retries as were written, or three; a rate limit is no failure, and what cannot help is not tried."""
    for story in case.told.stories.values():
        counted: Counter[tuple[str, int]] = Counter()
        started: dict[str, ev.StepStarted] = {}
        for fact, event in story.events(ev.StepStarted, ev.StepRetrying):
            if isinstance(event, ev.StepStarted):
                started[event.path] = event
                continue
            last = started[event.path]
            changed = (last.fallback, last.reduced, last.refreshed) != (event.fallback, event.reduced, event.refreshed)
            ending = _ending(case, story, event)
            if changed or ending == "rate_limited":
                continue
            counted[event.path, event.fallback] += 1
            wanted = case.wishes[story.id].of(event.path)
            allowed = RETRIES if wanted is None or wanted.retries is None else wanted.retries
            if counted[event.path, event.fallback] > allowed:
                yield f"{story.id} {event.path}: event {fact.seq} is more than the {allowed} retries allowed"
            if ending in CERTAIN:
                yield f"{story.id} {event.path}: event {fact.seq} tries again what ended as {ending}"


def _ending(case: Case, story: Story, event: ev.StepRetrying) -> str:
    """How the attempt really ended; "" if the world never said."""
    lines = case.told.calls.get((story.id, event.path), [])
    return next((line.ending for line in lines if line.phase == "raised" and line.attempt == event.attempt), "")


def only_reads_are_answered_from_the_cache(case: Case) -> Iterator[str]:
    """What was taken from the cache is what the same read really answered before."""
    answers = [line for line in case.played.history.of(Called) if line.phase == "answered"]
    for story in case.told.stories.values():
        tools = {event.path: event.tool for _, event in story.events(ev.StepStarted)}
        for fact, event in story.events(ev.StepCompleted):
            if not event.cached or fact.seq <= story.born:
                continue
            tool, output = tools[event.path], case.value(event.output)
            known = any(a.tool == tool and a.output == output and a.at_us <= fact.at_us for a in answers)
            if EFFECTS[tool] != "read" or not known:
                yield f"{story.id} {event.path}: event {fact.seq} took {output!r} of {tool} from the cache"


def notes_are_handed_back(case: Case) -> Iterator[str]:
    """An attempt is given what the one before it noted, if that was the same tool; also before a retry."""
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        for call in calls:
            start = story.start_of(path, call.attempt)
            if call.phase != "called" or start is None:
                continue
            noted = [event for fact, event in story.events(ev.StepNoted) if event.path == path and fact.seq < start.seq]
            is_own = noted and _noted_by(story, noted[-1]) == call.tool
            expected = Case.plain(noted[-1].data) if is_own else None if noted else _carried_notes(story, start.event)
            if call.notes != expected:
                yield f"{execution_id} {path}: attempt {call.attempt} was handed {call.notes!r}, noted was {expected!r}"


def _carried_notes(story: Story, start: ev.Event) -> Any:
    """What the execution that this one was made from had noted about the same step with the same input."""
    if not isinstance(start, ev.StepStarted):
        return None
    for _, event in story.events(ev.StepCarried):
        if (event.path, event.tool, event.digest) == (start.path, start.tool, start.digest) and event.notes:
            return Case.plain(event.notes)
    return None


def _noted_by(story: Story, note: ev.StepNoted) -> str:
    start = story.start_of(note.path, note.attempt)
    return note.tool or (start.event.tool if start is not None and isinstance(start.event, ev.StepStarted) else "")


CHECKS: tuple[Check, ...] = (
    what_wants_a_yes_is_called_after_it,
    a_no_ends_a_step,
    an_answer_comes_before_its_limit,
    nothing_is_early,
    an_event_satisfies_one_wait,
    retries_are_bounded,
    only_reads_are_answered_from_the_cache,
    notes_are_handed_back,
)
