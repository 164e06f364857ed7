"""Checks of checkpoints: what lies in the files, and what the journal says of them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.history import SavedFile


def a_checkpoint_holds_the_journal_up_to_its_event(case: Case) -> Iterator[str]:
    """A file holds what is durable, and nothing else, up to the event it names; the journal speaks of no other file."""
    saved: set[tuple[str, int]] = set()
    for line in case.played.history.of(SavedFile):
        if line.error:
            continue
        saved.add((line.execution_id, line.through))
        story = case.told.stories[line.execution_id]
        durable = [fact for fact in story.facts[: line.through] if fact.at_us <= line.at_us]
        if len(durable) != line.through or durable[-1].row.digest != line.digest:
            yield f"{story.id}: its file holds other events than the first {line.through} that were durable then"
    for story in case.told.stories.values():
        for fact, event in story.events(ev.CheckpointSaved):
            if fact.seq > story.born and ((story.id, event.through) not in saved or event.through >= fact.seq):
                yield f"{story.id}: event {fact.seq} speaks of a file up to {event.through}, which nobody has written"


CHECKS: tuple[Check, ...] = (a_checkpoint_holds_the_journal_up_to_its_event,)
