"""Checks of what is made from another execution: what that had done, and was promised, comes along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.execution import parent_of
from holdfast.engine.step.step_context import input_digest
from proof.simulator.case import Case, Check
from proof.simulator.history import Filed
from proof.simulator.witness import Fact, Story

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
    if is_ending(story, path):
        return True
    origin = story.created.forked_from
    if origin is None or not origin.at:
        return False
    from_story = case.told.stories[origin.id]
    if is_ending(from_story, path):
        return True
    own = _begun([fact for fact in from_story.facts if fact.seq > from_story.born])
    copied = _mentioned([fact for fact in from_story.facts if fact.seq <= from_story.born])
    known = own.keys() | copied.keys()
    around = [one for one in _around(path) if one in known and one not in _around(origin.at)]
    return any(_is_later(one, origin.at, own, copied) for one in (path, *around))


def _is_later(path: str, at: str, own: dict[str, int], copied: dict[str, int]) -> bool:
    if path == at:
        return True
    if path in own and at in own:
        return own[path] > own[at]
    if path in copied and at in copied:
        return copied[path] > copied[at]
    return (path in own and at in copied) or (path not in own and path not in copied)


def _mentioned(facts: list[Fact]) -> dict[str, int]:
    """The number of the event with which a copy of each step begins, or of what is known of it."""
    found: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact.event, ev.StepEvent):
            found.setdefault(fact.event.path, fact.seq)
    return found


def _around(path: str) -> Iterator[str]:
    while path := parent_of(path):
        yield path


def is_ending(story: Story, path: str) -> bool:
    """Whether it is one of the steps that run when a plan ends, or lies within one."""
    if story.created.program.kind != "plan":
        return False
    document = msgspec.json.decode(story.created.program.source)
    top = path.partition("/")[0].partition("[")[0]
    return any(step["id"] == top for part in ("finally", "on_failure") for step in document.get(part, ()))


def _begun(facts: list[Fact]) -> dict[str, int]:
    """The number of the event with which each step began; what was noted elsewhere is no beginning."""
    begun: dict[str, int] = {}
    for fact in facts:
        if (path := getattr(fact.event, "path", "")) and not isinstance(fact.event, ev.StepNoted | ev.StepCarried):
            begun.setdefault(path, fact.seq)
    return begun


def what_completed_is_not_forgotten(case: Case) -> Iterator[str]:
    """Whatever is made from an execution has the outcome of each step that had completed there, and had begun before
    the step from which all is wanted anew.
    """
    for story in case.told.stories.values():
        first = [fact.event for fact in story.facts if fact.seq <= story.born]
        born = {event.path: event for event in first if isinstance(event, ev.StepCompleted)}
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


def every_end_runs_its_steps(case: Case) -> Iterator[str]:
    """Also that of a retry: `finally` at each end of a plan, `on_failure` at each failure."""
    for story in case.told.stories.values():
        ends = [event for _, event in story.events(ev.TaskCompleted, ev.TaskError)]
        if not ends or story.created.program.kind != "plan":
            continue
        document = msgspec.json.decode(story.created.program.source)
        parts = ("finally", "on_failure") if isinstance(ends[0], ev.TaskError) else ("finally",)
        own = _begun([fact for fact in story.facts if fact.seq > story.born])
        for step in (step for part in parts for step in document.get(part, ())):
            if step["id"] not in own:
                yield f"{story.id}: it ended, and its step {step['id']} never began here"


def a_key_stays_until_its_step_completes(case: Case) -> Iterator[str]:
    """Whatever is made from an execution calls a step that began there and did not complete by the same key, as long as
    its input is the same.
    """
    for (execution_id, path), calls in case.told.calls.items():
        story = case.told.stories[execution_id]
        first = next((call for call in calls if call.phase == "called"), None)
        start = story.start_of(path, first.attempt) if first is not None else None
        before = _last_start(case, story, path)
        if first is None or start is None or before is None or not isinstance(start.event, ev.StepStarted):
            continue
        if before[0] == start.event.digest and before[1] != first.key:
            yield f"{execution_id} {path}: it was called by the key {before[1]}, and is called by {first.key} here"


def _last_start(case: Case, story: Story, path: str) -> tuple[str, str] | None:
    """The input and the key of the last call of a step, in what an execution was made from; None if it completed."""
    origin = story.created.forked_from
    copies = [fact for fact in story.facts if fact.seq <= story.born and getattr(fact.event, "path", "") == path]
    if origin is None or any(map(_is_copy, copies)):
        return None
    facts = [fact for fact in made_of(case, story) if getattr(fact.event, "path", "") == path]
    if any(isinstance(fact.event, ev.StepCompleted) for fact in facts):
        return None
    before = case.told.stories[origin.id]
    starts = [fact for fact in facts if isinstance(fact.event, ev.StepStarted) and fact.seq > before.born]
    if not starts:
        return _last_start(case, before, path)
    attempts = {
        event.attempt: event.digest for event in (fact.event for fact in starts) if isinstance(event, ev.StepStarted)
    }
    calls = [call for call in case.told.calls.get((before.id, path), []) if call.phase == "called"]
    calls = [call for call in calls if call.attempt in attempts]
    return (attempts[calls[-1].attempt], calls[-1].key) if calls else None


def _is_copy(fact: Fact) -> bool:
    return isinstance(fact.event, ev.StepCompleted | ev.StepInDoubt)


def what_is_kept_has_the_input_it_is_asked_for_with(case: Case) -> Iterator[str]:
    """In an execution that completed, no copied outcome of a tool was used for another input than it was made with;
    unless a person has said so.
    """
    for story in case.told.stories.values():
        if story.created.program.kind != "plan" or not any(story.events(ev.TaskCompleted)):
            continue
        copies = {event.path: event for fact, event in story.events(ev.StepStarted) if fact.seq <= story.born}
        copies |= {event.path: event for fact, event in story.events(ev.StepStarted) if fact.seq > story.born}
        settled = {event.path for fact, event in story.events(ev.StepDiverged, ev.StepSkipped) if fact.seq > story.born}
        done = {event.path for _, event in story.events(ev.StepCompleted)}
        for path, step in _tool_steps(msgspec.json.decode(story.created.program.source)["steps"], ""):
            copy = copies.get(path)
            if copy is None or path in settled or path not in done or copy.fallback:
                continue
            wanted = input_digest(step["tool"], msgspec.json.encode(step.get("with", {})))
            if copy.digest and copy.digest != wanted:
                yield f"{story.id} {path}: its outcome was made with another input than its plan gives it now"


def _tool_steps(steps: list[dict[str, Any]], around: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those whose input stands in the plan."""
    for step in steps:
        if "tool" in step and "for_each" not in step:
            yield f"{around}{step['id']}", step
        elif "steps" in step and "for_each" not in step:
            yield from _tool_steps(step["steps"], f"{around}{step['id']}/")


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
    every_end_runs_its_steps,
    a_key_stays_until_its_step_completes,
    what_is_kept_has_the_input_it_is_asked_for_with,
    every_fork_names_its_origin,
)
