"""Checks of what is done with whole executions: what is deleted, what is held, what comes back."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as ev
from holdfast.journal.bundle.write import wanted_blobs
from proof.simulator.case import Case, Check
from proof.simulator.history import Called, Copied, Held, Ordered
from proof.simulator.witness import COMES_BACK, MADE_OF, Story


def deleting_takes_nothing_that_has_not_ended(case: Case) -> Iterator[str]:
    """What goes has ended, and so have its parent and its children; a fork that goes on keeps what it was made from."""
    stories = case.told.stories
    for line, execution_id in case.told.deletions:
        story = stories[execution_id]
        forks = [other for other in stories.values() if _origin(other) == story.id]
        parent = stories.get(story.head.parent_id)
        children = [stories[event.child_id] for _, event in story.events(ev.ChildStarted)]
        for other in (story, *forks, *([parent] if parent else []), *children):
            if _lives(other, line.at_us):
                who = "it" if other is story else other.id
                yield f"{story.id} was deleted at {line.at_us} µs, and {who} had not ended"


def _origin(story: Story) -> str:
    origin = story.created.forked_from
    return origin.id if origin is not None else ""


def _lives(story: Story, at_us: int) -> bool:
    """Whether it was there, and not over."""
    end = story.end()
    is_there = story.facts[0].at_us < at_us and not story.is_away(at_us)
    return is_there and (end is None or end.at_us > at_us)


def what_was_deleted_does_not_come_back(case: Case) -> Iterator[str]:
    """Nobody drives it, writes to it or hears from it again; only an import brings it back, with the events it had."""
    there = {head.id for head in case.played.store.all_heads()}
    for story in case.told.stories.values():
        yield from (f"{story.id} was deleted: {text}" for name, text in story.wrongs if name == COMES_BACK)
        if story.deleted_us is not None and (story.id in there or case.played.store.rows_of(story.id)):
            yield f"{story.id} was deleted, and is there"
    for command in case.played.store.all_pending():
        if command.execution_id not in there:
            yield f"{command.id} ({command.verb}) waits for ever: {command.execution_id} was deleted"


def a_retry_is_made_of_what_is_there(case: Case) -> Iterator[str]:
    """Who is run again is there when that becomes durable, even if somebody deletes it at the same moment; except from
    a step on, which looks nothing up later.
    """
    for story in case.told.stories.values():
        yield from (f"{story.id}: {text}" for name, text in story.wrongs if name == MADE_OF)


def what_others_refer_to_stays(case: Case) -> Iterator[str]:
    """Every large value that a journal refers to is there, whoever wrote it first, and whoever was deleted since."""
    kept = case.played.store.all_blobs()
    for head in case.played.store.all_heads():
        for digest in wanted_blobs(case.played.store.rows_of(head.id)):
            if digest not in kept:
                yield f"{head.id}: the large value {digest} is gone"


def nobody_drives_what_is_held(case: Case) -> Iterator[str]:
    """What came from a backup or a file is claimed by no driver, and no tool called for it, before a person says so."""
    stories = case.told.stories
    for story in stories.values():
        wrongs = (text for name, text in story.wrongs if name == "nobody_drives_what_is_held")
        yield from (f"{story.id} is held: {text}" for text in wrongs)
    for line in case.played.history.of(Called):
        if line.phase == "called" and stories[line.execution_id].is_held(line.at_us):
            yield f"{line.execution_id} is held: {line.tool} was called for {line.path}"
    said = [(line.at_us, line.execution_id) for line in case.played.history.of(Ordered) if line.verb == "resume"]
    for line in case.played.history.of(Held):
        for execution_id in line.execution_ids if not line.why else ():
            family = set(_family(case, execution_id))
            if not any(at_us <= line.at_us and whom in family for at_us, whom in said):
                yield f"{execution_id} was held, and let go though nobody had said so"


def _family(case: Case, execution_id: str) -> Iterator[str]:
    """An execution and its ancestors."""
    while execution_id:
        yield execution_id
        execution_id = case.told.stories[execution_id].head.parent_id


def what_is_handed_in_on_hold_begins_when_a_person_says_so(case: Case) -> Iterator[str]:
    """Also a copy that was made from a file: its history is there, and nothing is added to it before a resume."""
    copies = {line.execution_id for line in case.played.history.of(Copied)}
    for story in case.told.stories.values():
        if story.created.hold or story.id in copies:
            resumed = min((fact.seq for fact, _ in story.events(ev.TaskResumed)), default=len(story.facts) + 1)
            for fact, event in story.events(ev.TaskStarted, ev.StepStarted):
                if story.born < fact.seq < resumed:
                    yield f"{story.id}: event {fact.seq} {ev.name_of(event)}, and nobody had resumed it"


CHECKS: tuple[Check, ...] = (
    deleting_takes_nothing_that_has_not_ended,
    what_was_deleted_does_not_come_back,
    a_retry_is_made_of_what_is_there,
    what_others_refer_to_stays,
    nobody_drives_what_is_held,
    what_is_handed_in_on_hold_begins_when_a_person_says_so,
)
