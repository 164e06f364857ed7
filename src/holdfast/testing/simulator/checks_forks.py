"""Checks of what is made from another execution: what that had done, and was promised, comes along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.core import events as ev
from holdfast.testing.simulator.case import Case, Check
from holdfast.testing.simulator.history import Filed
from holdfast.testing.simulator.witness import Fact, Story

_CONTAINERS = ("plan", "for_each")


def made_of(case: Case, story: Story) -> list[Fact]:
    """The events of its origin that were there for certain when it was made; none if it has no origin."""
    origin = story.created.forked_from
    if origin is None:
        return []
    known_us = story.facts[0].at_us
    if story.created.hold:  # a copy from a file
        known_us = min(line.at_us for line in case.played.history.of(Filed) if line.execution_id == origin.id)
    elif story.created.parent is not None:  # the child in its place may have been cut off only while it was copied
        known_us = case.told.stories[story.created.parent.id].facts[0].at_us
    return [fact for fact in case.told.stories[origin.id].facts if fact.at_us < known_us]


def is_anew(case: Case, story: Story, path: str) -> bool:
    """Whether whoever had it made wanted this step to run again, whatever had become of it."""
    origin = story.created.forked_from
    if origin is None or not origin.at:
        return False
    begun = _begun(case.told.stories[origin.id].facts)
    return path not in begun or begun[path] >= begun[origin.at]


def _begun(facts: list[Fact]) -> dict[str, int]:
    """The number of the event with which each step began; what was noted elsewhere is no beginning."""
    begun: dict[str, int] = {}
    for fact in facts:
        if (path := getattr(fact.event, "path", "")) and not isinstance(fact.event, ev.StepNoted):
            begun.setdefault(path, fact.seq)
    return begun


def what_completed_is_not_forgotten(case: Case) -> Iterator[str]:
    """Whatever is made from an execution has the outcome of each step that had completed there, and had begun before
    the step from which all is wanted anew.
    """
    for story in case.told.stories.values():
        born = {event.path: event for fact, event in story.events(ev.StepCompleted) if fact.seq <= story.born}
        facts = made_of(case, story)
        kinds = {fact.event.path: fact.event.kind for fact in facts if isinstance(fact.event, ev.StepStarted)}
        for fact in facts:
            event = fact.event
            if not isinstance(event, ev.StepCompleted) or kinds.get(event.path) in _CONTAINERS:
                continue  # what is in a milestone may be wanted anew, or may not have completed
            if is_anew(case, story, event.path):
                if event.path in born:
                    yield f"{story.id} {event.path}: its outcome came along, and was wanted anew"
            elif event.path not in born or born[event.path].output != event.output:
                yield f"{story.id} {event.path}: completed with event {fact.seq} of its origin, and that is forgotten"


def what_nobody_has_taken_comes_along(case: Case) -> Iterator[str]:
    """An event from outside that no wait had taken is there for the waits of what is made from an execution; from a
    step on, if it had come before that step.
    """
    for story in case.told.stories.values():
        origin = story.created.forked_from
        if origin is None:
            continue
        begun = _begun(made_of(case, story))
        ends = case.told.stories[origin.id].events(
            ev.StepCompleted
        )  # also later than the copy: then it may know or not
        taken = {event.consumed for _, event in ends if not is_anew(case, story, event.path)}
        left = [fact for fact in made_of(case, story) if isinstance(fact.event, ev.EventReceived)]
        left = [fact for fact in left if fact.seq not in taken and (not origin.at or fact.seq < begun[origin.at])]
        born = [event for fact, event in story.events(ev.EventReceived) if fact.seq <= story.born]
        came = Counter((event.name, bytes(event.data)) for event in born)
        for fact, event in ((fact, fact.event) for fact in left if isinstance(fact.event, ev.EventReceived)):
            came[event.name, bytes(event.data)] -= 1
            if came[event.name, bytes(event.data)] < 0:
                yield f"{story.id}: event {fact.seq} {event.name} of its origin was taken by nobody, and is forgotten"


def every_fork_names_its_origin(case: Case) -> Iterator[str]:
    """A retry of a retry names the first execution of the chain: tools file their state under it."""
    for story in case.told.stories.values():
        made_from = story.created.forked_from
        if made_from is None:
            continue
        first = made_from.id
        while (before := case.told.stories[first].created.forked_from) is not None:
            first = before.id
        if made_from.origin != first:
            yield f"{story.id}: it goes back to {first}, and names {made_from.origin or 'nothing'}"


CHECKS: tuple[Check, ...] = (
    what_completed_is_not_forgotten,
    what_nobody_has_taken_comes_along,
    every_fork_names_its_origin,
)
