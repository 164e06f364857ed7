"""Checks of plans against what their text says: what needs what, what a failure means, that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.model import Wanted, Wish
from proof.simulator.witness import Story

_ENDED = (ev.StepCompleted, ev.StepFailed, ev.StepSkipped)
_BEGUN = (ev.StepStarted, ev.StepWaiting)


def _plans(case: Case) -> Iterator[tuple[Story, Wish]]:
    for story in case.told.stories.values():
        if case.wishes[story.id].is_plan:
            yield story, case.wishes[story.id]


def _ends(story: Story) -> dict[str, int]:
    """The number of the event that ended each step."""
    return {event.path: fact.seq for fact, event in story.events(*_ENDED)}


def a_step_begins_after_what_it_needs(case: Case) -> Iterator[str]:
    """No step of a plan begins before every step it needs has ended, and well, if that was critical; nor a last step
    before all others have.
    """
    for story, wish in _plans(case):
        ends, failed = _ends(story), {wanted.path for wanted in _critical_failures(story, wish)}
        stopping = _stopped_by_pause_limit(story)
        seen: set[str] = set()
        for fact, event in story.events(*_BEGUN):
            wanted = wish.of(event.path)
            if wanted is None or event.path in seen or fact.seq <= story.born:
                continue
            seen.add(event.path)
            is_cut_short = stopping is not None and fact.seq > stopping
            needs = [*wanted.needs, *([] if is_cut_short else _before(wish, wanted))]
            late = [need for need in needs if ends.get(need, fact.seq) >= fact.seq]
            if late:
                yield f"{story.id} {event.path}: began with event {fact.seq}, before {', '.join(late)} had ended"
            if bad := sorted(failed.intersection(wanted.needs)):
                yield f"{story.id} {event.path}: began with event {fact.seq}, though {', '.join(bad)} failed"


def _stopped_by_pause_limit(story: Story) -> int | None:
    """The number of the event from which on only `finally` steps are run."""
    return next((fact.seq for fact, event in story.events(ev.TaskResumed) if event.pause_limit == "stop"), None)


def a_pause_limit_stops_a_plan_after_its_last_steps(case: Case) -> Iterator[str]:
    """Stopped by the limit of a pause, a plan begins its `finally` steps and nothing else, and ends after them."""
    for story, wish in _plans(case):
        stopping, ends = _stopped_by_pause_limit(story), _ends(story)
        for fact, event in story.events(*_BEGUN):
            wanted = wish.of(event.path)
            if stopping is not None and fact.seq > stopping and wanted is not None and wanted.part != "finally":
                yield f"{story.id} {event.path}: event {fact.seq} begins it, though event {stopping} stops the plan"
        paused_again = any(fact.seq > (stopping or fact.seq) for fact, _ in story.events(ev.TaskPaused))
        for fact, event in story.events(ev.TaskStopped):
            last = [one.path for one in wish.steps.values() if one.part == "finally" and not one.parent]
            if event.pause_limit and not paused_again and (missing := [path for path in last if path not in ends]):
                yield f"{story.id}: event {fact.seq} stops it, and nothing became of {', '.join(missing)}"


def _before(wish: Wish, wanted: Wanted) -> list[str]:
    """`on_failure` and `finally` come when the plan's own steps have ended."""
    if wanted.part == "steps" or wanted.parent:
        return []
    return [
        other.path
        for other in wish.steps.values()
        if other.part == "steps" and not other.parent and other.path not in wish.extended
    ]


def _critical_failures(story: Story, wish: Wish) -> list[Wanted]:
    failed = [wish.of(event.path) for _, event in story.events(ev.StepFailed)]
    return [wanted for wanted in failed if wanted is not None and wanted.critical]


def a_critical_failure_fails_what_it_is_part_of(case: Case) -> Iterator[str]:
    """A plan, a milestone or a list of items does not complete when a critical part of it failed."""
    for story, wish in _plans(case):
        completed = {event.path for _, event in story.events(ev.StepCompleted)}
        end = story.end()
        for wanted in _critical_failures(story, wish):
            whole = wanted.path if wanted.each and wanted.path in completed else wanted.parent
            if whole in completed:
                yield f"{story.id}: {whole} completed, though {wanted.path} failed"
            counts = not wanted.parent and wanted.part != "on_failure"
            if counts and end is not None and isinstance(end.event, ev.TaskCompleted):
                yield f"{story.id}: completed, though {wanted.path} failed"


def every_step_of_a_plan_has_an_outcome(case: Case) -> Iterator[str]:
    """When a plan has ended by itself, each of its steps has: those that were added, and the last ones, too."""
    for story, wish in _plans(case):
        end = story.end()
        if end is None or not isinstance(end.event, ev.TaskCompleted | ev.TaskError):
            continue
        if isinstance(end.event, ev.TaskError) and wish.of(end.event.path) is None:
            continue  # not a step failed, but the plan as a whole
        ends = _ends(story)
        failed = any(not wanted.parent and wanted.part == "steps" for wanted in _critical_failures(story, wish))
        for wanted in wish.steps.values():
            expected = failed if wanted.part == "on_failure" else not wanted.parent or _has_run(story, wanted.parent)
            if expected and wanted.path not in ends:
                yield f"{story.id}: ended with event {end.seq}, and nothing became of {wanted.path}"


def _has_run(story: Story, path: str) -> bool:
    begun = any(event.path == path for _, event in story.events(ev.StepStarted))
    return begun and any(event.path == path for _, event in story.events(ev.StepCompleted, ev.StepFailed))


def every_item_has_an_outcome(case: Case) -> Iterator[str]:
    """A `for_each` that has ended has an outcome for each item, and if it completed an output for each."""
    for story, _ in _plans(case):
        ends = _ends(story)
        outputs = {event.path: event.output for _, event in story.events(ev.StepCompleted)}
        for _, event in story.events(ev.StepStarted):
            if event.kind != "for_each" or event.path not in ends:
                continue
            keys = case.value(event.arguments)["keys"]
            missing = [key for key in keys if f"{event.path}[{key}]" not in ends]
            if missing:
                yield f"{story.id} {event.path}: ended, and nothing became of its items {', '.join(missing)}"
            if event.path in outputs and len(case.value(outputs[event.path])) != len(keys):
                yield f"{story.id} {event.path}: completed with other outputs than one for each of {len(keys)} items"


def a_list_of_items_is_made_once(case: Case) -> Iterator[str]:
    """The list of a `for_each` is what the plan says or what the step it names answered, and is evaluated once."""
    for story, wish in _plans(case):
        texts = dict(_lists(wish.text.get("steps", []), ""))
        outputs = {event.path: event.output for _, event in story.events(ev.StepCompleted)}
        seen: set[str] = set()
        for fact, event in story.events(ev.StepStarted):
            if event.kind != "for_each":
                continue
            if event.path in seen:
                yield f"{story.id} {event.path}: event {fact.seq} makes its list anew"
            seen.add(event.path)
            written = texts[event.path]
            source = f"{event.path}l"  # the step that lists, in the random plans
            expected = case.value(outputs[source]) if isinstance(written, str) else written
            if case.value(event.arguments)["items"] != expected:
                yield f"{story.id} {event.path}: event {fact.seq} has other items than {expected!r}"


def _lists(steps: list[dict[str, object]], prefix: str) -> Iterator[tuple[str, object]]:
    for step in steps:
        path = f"{prefix}{step['id']}"
        if "for_each" in step:
            yield path, step["for_each"]
        yield from _lists(step.get("steps", []), f"{path}/")  # type: ignore[arg-type]


CHECKS: tuple[Check, ...] = (
    a_pause_limit_stops_a_plan_after_its_last_steps,
    a_step_begins_after_what_it_needs,
    a_critical_failure_fails_what_it_is_part_of,
    every_step_of_a_plan_has_an_outcome,
    every_item_has_an_outcome,
    a_list_of_items_is_made_once,
)
