"""Checks of effects that must not happen twice. The ledger is the judge: how a call ended is what the world says of it,
never what the engine made of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.checks_forks import is_anew
from proof.simulator.history import Called, Filed
from proof.simulator.visits import CERTAIN
from proof.simulator.witness import Fact, Story

_MOVED = (
    ev.StepRetrying,
    ev.StepFailed,
    ev.StepInterrupted,
    ev.StepStarted,
    ev.StepCompleted,
    ev.StepSkipped,
    ev.StepInDoubt,
    ev.StepWaiting,
)


def a_once_step_runs_again_only_when_allowed(case: Case) -> Iterator[str]:
    """Between two calls of a `once` step stands a true failure without effect, a written retry after a true known
    failure, a person's word, or the tool's own policy, and for `verify` its verdict.
    """
    for execution_id, path in case.told.calls:
        story = case.told.stories[execution_id]
        for one, other in pairwise(_tries(case, story, path)):
            if other.execution_id == story.id and not _is_allowed(case, story, one, other):
                ended = _tells(case, one) or "nobody knows how"
                yield f"{story.id} {path}: attempt {one.attempt} ({ended}) was followed by {other.attempt}"


def no_effect_happens_more_often_than_allowed(case: Case) -> Iterator[str]:
    """The ledger is counted: one effect for the first call, and one for each further call that was allowed."""
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        own = [call for call in calls if call.phase == "called" and call.effect == "once"]
        allowed = 1 + sum(_is_allowed(case, story, one, other) for one, other in pairwise(own))
        happened = {call.attempt for call in calls if call.phase == "happened" and call.effect == "once"}
        if len(happened) > allowed:
            yield f"{execution_id} {path}: happened in {len(happened)} attempts, {allowed} were allowed"


def what_is_unknown_is_in_doubt(case: Case) -> Iterator[str]:
    """A `once` attempt that was cut off, or whose answer was lost, is next seen in doubt, and never retried, failed
    or skipped as if nothing had been.
    """
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        for call in calls:
            if call.phase != "called" or call.effect != "once" or _tells(case, call) in ("nothing", "known"):
                continue
            if any(other.phase == "answered" and other.attempt == call.attempt for other in calls):
                continue
            after = _after_start(story, path, call.attempt)
            if after is not None and not isinstance(after.event, ev.StepInDoubt):
                what = f"event {after.seq} is {ev.name_of(after.event)}"
                yield f"{execution_id} {path}: nobody knows what attempt {call.attempt} did; {what}"


def a_person_is_asked_after_the_check(case: Case) -> Iterator[str]:
    """Whoever asks a person about a doubt has asked the tool's own check first, was not told that it happened, and says
    so if the check failed.
    """
    for story in case.told.stories.values():
        for fact, event in story.events(ev.RequestOpened):
            request = event.request
            if request.kind != "doubt" or request.tool != "pay_checked" or fact.seq <= story.born:
                continue
            verdict = _verdict_before(case, story, fact, request.path)
            if verdict in ("", "Happened") or (verdict == "raised") != bool(request.check_failed):
                said = f"says {request.check_failed!r} of its check, which said {verdict or 'nothing'}"
                yield f"{story.id} {request.path}: event {fact.seq} asks a person, and {said}"


def _verdict_before(case: Case, story: Story, asked: Fact, path: str) -> str:
    """What the check said last about the attempt that is in doubt, to the process that asks."""
    starts = [
        event.attempt for fact, event in story.events(ev.StepStarted) if event.path == path and fact.seq < asked.seq
    ]
    told = [
        str(line.output)
        for line in case.told.calls.get((story.id, path), [])
        if (line.phase, line.process, line.attempt) == ("verified", asked.process, starts[-1])
        and line.at_us <= asked.at_us
    ]
    return told[-1] if told else ""


def _tries(case: Case, story: Story, path: str) -> list[Called]:
    """The calls of a step, after those of the execution that this one was made from, unless a person wants it anew."""
    own = [call for call in case.told.calls.get((story.id, path), []) if call.phase == "called"]
    own = [call for call in own if call.effect == "once"]
    origin = story.created.forked_from
    if origin is None or is_anew(case, story, path):
        return own
    born_us = story.facts[0].at_us
    if story.created.hold:  # a copy from a file: it cannot know what its origin did after that was made
        born_us = min(line.at_us for line in case.played.history.of(Filed) if line.execution_id == origin.id)
    before = [call for call in _tries(case, case.told.stories[origin.id], path) if call.at_us < born_us]
    return [*before[-1:], *own]


def _tells(case: Case, call: Called) -> str:
    """What the world knows of how this call ended; "" if it never said."""
    mine = [
        line
        for line in case.told.calls[call.execution_id, call.path]
        if (line.attempt, line.process) == (call.attempt, call.process) and line.at_us >= call.at_us
    ]
    return next((line.tells for line in mine if line.phase == "raised"), "")


def _is_allowed(case: Case, story: Story, one: Called, other: Called) -> bool:
    tells = _tells(case, one)
    is_fork = one.execution_id != story.id
    if tells == "nothing" or (is_fork and tells == "known"):
        return True  # a retry of the whole is a person's word about what is known to have failed
    between = _between(story, one, other)
    wanted = case.wishes[story.id].of(one.path)
    is_written = wanted is not None and wanted.retries is not None and one.ending not in CERTAIN
    if tells == "known" and is_written and any(isinstance(event, ev.StepRetrying) for event in between):
        return True
    if any(isinstance(event, ev.RequestAnswered) and event.remedy in ("again", "fallback") for event in between):
        return True
    if not any(isinstance(event, ev.StepInDoubt) for event in between):
        return False
    return one.tool == "pay_bravely" or (one.tool == "pay_checked" and _was_refuted(case, story, one, other))


def _was_refuted(case: Case, story: Story, one: Called, other: Called) -> bool:
    return any(
        line.phase == "verified" and line.output == "DidNotHappen" and one.at_us <= line.at_us <= other.at_us
        for line in case.told.calls.get((story.id, one.path), [])
    )


def _between(story: Story, one: Called, other: Called) -> list[ev.Event]:
    """The events of a step from the start of one attempt to that of another, and what people said about it."""
    first = None if one.execution_id != story.id else story.start_of(one.path, one.attempt)
    last = story.start_of(other.path, other.attempt)
    facts = [*story.of_path(one.path), *_answers(story, one.path)]
    seqs = range(first.seq + 1 if first is not None else 0, last.seq if last is not None else 0)
    return [fact.event for fact in facts if fact.seq in seqs]


def _answers(story: Story, path: str) -> list[Fact]:
    asked = {event.request.id for _, event in story.events(ev.RequestOpened) if event.request.path == path}
    return [fact for fact, event in story.events(ev.RequestAnswered) if event.request_id in asked]


def _after_start(story: Story, path: str, attempt: int) -> Fact | None:
    start = story.start_of(path, attempt)
    if start is None:
        return None
    return next((f for f in story.of_path(path) if f.seq > start.seq and isinstance(f.event, _MOVED)), None)


CHECKS: tuple[Check, ...] = (
    a_once_step_runs_again_only_when_allowed,
    no_effect_happens_more_often_than_allowed,
    what_is_unknown_is_in_doubt,
    a_person_is_asked_after_the_check,
)
