"""What really came about in played histories, as labels; and all the labels that the generator has to bring about.

A thing counts when it happened, not when it was planned: a fate when a tool met it, a breakage when it struck, a
command when it was answered, a remedy when it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.journal.store import Entry, NewExecution
from proof.simulator import Played, draw, play
from proof.simulator.checks_deaths import naps_of, was_replaced
from proof.simulator.history import (
    AnyLine,
    Called,
    ClockSet,
    Committed,
    Deleted,
    Fault,
    Held,
    LeftAlone,
    Reopened,
    SavedFile,
    Wiped,
)
from proof.simulator.people import ODD
from proof.simulator.scenario import FAULTS, MONEY_VERB, VERBS
from proof.simulator.visits import AFTER_EFFECT, STRANGE, WITHOUT_EFFECT
from proof.simulator.witness import Story, Testimony, testify
from proof.simulator.world import EFFECTS

SEEDS_MAX = 300  # what is not reached within so many histories is as good as never reached
REMEDIES = ("done", "again", "skip", "fallback", "fail")
# The moment in which a call that ends so has met its fate; "raised" for those that are not here.
_MET = {
    "ok": "answered",
    "hangs": "cut",
    "stubborn": "answered",
    "late": "happened",
    "lingers": "talked_on",
    "answers_twice": "delivered",
}
_OTHERS = (
    "a late answer settled a doubt",
    "a second answer was turned down",
    "opened from a snapshot alone",
    "opened from a snapshot and the events after it",
    "the clock was set back",
    "the clock was set forward",
    "a write came too late and was refused",
    "everybody was left alone",
    "something was deleted",
    "something was wanted to be deleted and stayed",
    "something deleted was brought back",
    "a copy was made from a file",
    "something restored was held",
    "something held was let go",
    "everything moved, and came back from files",
    "something imported was held",
    "a child's end was lost on its way, and told again",
    "a stop was lost on its way, and told again",
    "a program ended before a step that it had begun",
    "an attempt was lost with its process",
    "a running execution was taken over",
    "somebody slept through its replacement",
    "a checkpoint was saved",
    "there was no room for a checkpoint",
    "a plan was added to while a file of it was written",
    "a plan was added to while it was held and all its steps had ended",
    "what makes no sense was turned down",
    "a yes came too late",
    "something was run again from a step on",
    "a retry was run again from a step on",
    "added steps came along into a retry",
    "an event came along into a retry",
)


class Census(NamedTuple):
    """How many histories it took until everything was reached, and what never was."""

    histories: int
    missing: frozenset[str]


def expected() -> frozenset[str]:
    return frozenset((
        *(f"fate {ending}" for ending in ("ok", *WITHOUT_EFFECT, *AFTER_EFFECT, *STRANGE)),
        *(f"tool {name}" for name in EFFECTS),
        *(f"verified {verdict}" for verdict in ("Happened", "DidNotHappen", "Unknown")),
        *(f"breakage {kind}" for kind in (*FAULTS, "restored", "moved")),
        *(f"{verb} applied" for verb in (*VERBS, MONEY_VERB)),
        *(f"{verb} turned down" for verb in (*VERBS, MONEY_VERB) if verb != "retry"),  # which is no command
        *(f"{remedy} for a {kind}" for remedy, kind in product(REMEDIES, ("doubt", "correction"))),
        *(f"tried again {how}" for how in ("later", "with a fallback", "reduced", "refreshed")),
        *_OTHERS,
    ))  # fmt: skip


def census(first: int = 0) -> Census:
    missing = expected()
    for number in range(1, SEEDS_MAX + 1):
        missing -= set(reached(play(draw(first + number - 1))))
        if not missing:
            return Census(number, missing)
    return Census(SEEDS_MAX, missing)


def reached(played: Played) -> Iterator[str]:
    for line in played.history.lines:
        yield from _in_line(line)
    told = testify(played.history)
    yield from _in_commands(told)
    for process, naps in naps_of(played.history.of(Fault)).items():
        if any(was_replaced(story, process, *nap) for story in told.stories.values() for nap in naps):
            yield "somebody slept through its replacement"
    files = {(line.execution_id, line.through): line.at_us for line in played.history.of(SavedFile)}
    for story in told.stories.values():
        yield from _in_journal(story)
        yield from _in_copies(story, told)
        yield from _in_extensions(story, files)


def _in_line(line: AnyLine) -> Iterator[str]:
    match line:
        case Called():
            yield from _in_call(line)
        case Fault():
            yield f"breakage {line.kind}"
        case ClockSet():
            yield "breakage clock"
            yield f"the clock was set {'back' if line.offset_us < 0 else 'forward'}"
        case Reopened():
            yield f"opened from a snapshot {'and the events after it' if line.events else 'alone'}"
        case Committed():
            writes = zip(line.writes, line.results, strict=True)
            if any(isinstance(write, Entry) and not result.ok for write, result in writes):
                yield "a write came too late and was refused"
            yield from _in_imports(line)
        case Deleted():
            yield "something was deleted" if line.execution_ids else "something was wanted to be deleted and stayed"
        case Held() if line.execution_ids:
            yield "something restored was held" if line.why else "something held was let go"
        case Wiped() if line.execution_ids:
            yield "everything moved, and came back from files"
        case SavedFile():
            yield "there was no room for a checkpoint" if line.error else "a checkpoint was saved"
        case LeftAlone():
            yield "everybody was left alone"
        case _:
            pass


def _in_imports(line: Committed) -> Iterator[str]:
    created = [new for write in line.writes if isinstance(write, NewExecution) for new in (write, *write.family)]
    for new in created:
        if new.head.held:
            yield "something imported was held"
        for command in new.posts:
            what = {"child_ended": "a child's end", "stop": "a stop"}[command.verb]
            yield f"{what} was lost on its way, and told again"


def _in_call(line: Called) -> Iterator[str]:
    yield f"tool {line.tool}"
    if line.phase == "verified":
        yield f"verified {line.output}"
    elif line.phase == _MET.get(line.ending, "raised"):
        yield f"fate {line.ending}"


def _in_commands(told: Testimony) -> Iterator[str]:
    for command_id, answers in told.answers.items():
        command, is_applied = told.commands.get(command_id), answers[0][1].outcome == "applied"
        if command is None:
            continue
        yield f"{command.verb} {'applied' if is_applied else 'turned down'}"
        if command.by == "tool":
            yield "a late answer settled a doubt" if is_applied else "a second answer was turned down"
        if command.by.startswith(ODD) and not is_applied:
            yield "what makes no sense was turned down"
        if command.verb == "approve" and answers[0][1].seq and not is_applied:
            yield "a yes came too late"


def _in_journal(story: Story) -> Iterator[str]:
    asked = {event.request.id: event.request.kind for _, event in story.events(ev.RequestOpened)}
    for _, event in story.events(ev.RequestAnswered):
        yield f"{event.remedy} for a {asked[event.request_id]}"
    if story.created.forked_from is not None:
        yield "a copy was made from a file" if story.created.hold else "retry applied"
    if any(event.lost for _, event in story.events(ev.StepInterrupted)):
        yield "an attempt was lost with its process"
    if story.events(ev.TaskRecovered):
        yield "a running execution was taken over"
    ended = {event.path for _, event in story.events(ev.StepCompleted, ev.StepFailed, ev.StepSkipped)}
    if story.end() and any(
        "behind" in event.path and event.path not in ended for _, event in story.events(ev.StepStarted)
    ):
        yield "a program ended before a step that it had begun"
    if story.was_deleted and story.deleted_us is None:
        yield "something deleted was brought back"
    started: dict[str, ev.StepStarted] = {}
    for _, event in story.events(ev.StepStarted, ev.StepRetrying):
        if isinstance(event, ev.StepStarted):
            started[event.path] = event
        else:
            yield f"tried again {_how(started[event.path], event)}"


def _in_copies(story: Story, told: Testimony) -> Iterator[str]:
    origin = story.created.forked_from
    if origin is not None and origin.at:
        yield "something was run again from a step on"
        if told.stories[origin.id].created.forked_from is not None:
            yield "a retry was run again from a step on"
    copies = [fact.event for fact in story.facts[: story.born]]
    if any(isinstance(event, ev.PlanExtended) for event in copies):
        yield "added steps came along into a retry"
    if any(isinstance(event, ev.EventReceived) for event in copies):
        yield "an event came along into a retry"


def _in_extensions(story: Story, files: dict[tuple[str, int], int]) -> Iterator[str]:
    """When a plan was added to: beside a file of it, or when there was nothing left to do for it."""
    status, live = "", set[str]()
    for fact in story.facts:
        match event := fact.event:
            case ev.TaskPaused():
                status = "paused"
            case ev.TaskStarted():
                status = "running"
            case ev.StepStarted():
                live.add(event.path)
            case ev.StepCompleted() | ev.StepFailed():
                live.discard(event.path)
            case ev.PlanExtended() if status == "paused" and not live and fact.seq > story.born:
                yield "a plan was added to while it was held and all its steps had ended"
            case ev.CheckpointSaved() if fact.seq > story.born:
                begun_us = files.get((story.id, event.through), fact.at_us)
                added = story.events(ev.PlanExtended)
                if any(begun_us < other.at_us and other.seq < fact.seq for other, _ in added):
                    yield "a plan was added to while a file of it was written"
            case _:
                pass


def _how(before: ev.StepStarted, event: ev.StepRetrying) -> str:
    if event.fallback != before.fallback:
        return "with a fallback"
    if event.reduced != before.reduced:
        return "reduced"
    return "refreshed" if event.refreshed != before.refreshed else "later"
