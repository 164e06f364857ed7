"""The journals of all executions, as the witness pieced them together from the commits, without asking the store.

The checks read these stories; they decide nothing from what the store or the engine says about itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.events import (
    AnyEvent,
    Event,
    StepDiscarded,
    StepStarted,
    TaskCompleted,
    TaskCreated,
    TaskError,
    TaskStopped,
)
from holdfast.journal.codec import Row, Snapshot, decode
from holdfast.journal.store import Claim, Entry, Head, NewExecution
from proof.simulator.history import Called, Committed, Deleted, Held, History, Wiped

E = TypeVar("E", bound=Event)
COMES_BACK = "what_was_deleted_does_not_come_back"
MADE_OF = "a_retry_is_made_of_what_is_there"
TASK_ENDS = (TaskCompleted, TaskError, TaskStopped)


class Fact(msgspec.Struct, frozen=True):
    """One event as it became durable: when, and when the process that wrote it heard of that."""

    seq: int
    event: AnyEvent
    row: Row
    at_us: int
    heard_us: int | None
    process: str
    epoch: int


class Hold(msgspec.Struct):
    """A stretch of time in which a process was the driver."""

    process: str
    epoch: int
    from_us: int
    to_us: int | None = None
    to_drive: bool = True
    taken_over: bool = False
    driver: str = ""  # the name under which the process drives
    replaced: str = ""  # whom it took the execution from
    after: int = 0  # the number of the last event before it
    released: int | None = None  # the number of the event with which it let go


class Answered(msgspec.Struct, frozen=True):
    """An answer as it became durable: after which event, and in which status."""

    answer: Answer
    seq: int
    status: str
    process: str
    epoch: int
    at_us: int


class Story(msgspec.Struct):
    """Everything the witness knows of one execution."""

    id: str
    head: Head
    epoch: int = 0
    facts: list[Fact] = []
    holds: list[Hold] = []
    born: int = 0  # events it was created with: a fork's are copies of what its origin did
    listed: list[tuple[int, str]] = []  # (number, status): what its drivers wrote into the list, and after which event
    wakes: list[tuple[int, int | None]] = []  # (number, time): when its drivers wanted it to be looked at again
    answered: list[Answered] = []
    snapshots: list[Snapshot] = []  # in the order in which they were written
    wrongs: list[tuple[str, str]] = []  # (check, what was wrong), noticed while writing down
    deleted_us: int | None = None  # since when it is gone
    was_deleted: bool = False  # then or before it was brought back
    away: list[tuple[int, int]] = []  # from when to when it was not there, before it was brought back
    held: list[tuple[int, int | None]] = []  # from when to when nobody might drive it

    def is_away(self, at_us: int) -> bool:
        gone = self.deleted_us is not None and self.deleted_us <= at_us
        return gone or any(since <= at_us < until for since, until in self.away)

    def is_held(self, at_us: int) -> bool:
        return any(since <= at_us and (until is None or at_us <= until) for since, until in self.held)

    def let_go(self, at_us: int) -> None:
        self.held = [(since, until or at_us) for since, until in self.held]

    def go(self, at_us: int) -> None:
        """It is deleted, and comes back without what the store knew of it."""
        self.deleted_us, self.was_deleted = at_us, True
        self.let_go(at_us)

    def holder(self, at_us: int) -> str:
        """The process that drove it at this moment."""
        for hold in reversed(self.holds):
            if hold.from_us <= at_us and (hold.to_us is None or at_us <= hold.to_us):
                return hold.process
        return ""

    def hold_of(self, fact: Fact) -> Hold | None:
        """Under which claim this was written; None for what it was created with."""
        mine = (hold for hold in reversed(self.holds) if hold.epoch == fact.epoch and hold.after < fact.seq)
        return next(mine, None)

    def events(self, *kinds: type[E]) -> list[tuple[Fact, E]]:
        """The events of these kinds, each with its fact."""
        found = [(fact, fact.event) for fact in self.facts if isinstance(fact.event, kinds)]
        gone = self.discarded
        return [(fact, event) for fact, event in found if not _is_gone(fact, gone)] if gone else found

    @property
    def discarded(self) -> dict[str, int]:
        """The steps whose copies counted no more, and since which event."""
        if not self.created.forked_from:
            return {}
        return {fact.event.path: fact.seq for fact in self.facts if isinstance(fact.event, StepDiscarded)}

    @property
    def created(self) -> TaskCreated:
        event = self.facts[0].event
        assert isinstance(event, TaskCreated)
        return event

    def end(self) -> Fact | None:
        """The fact that ended it."""
        return next((fact for fact in self.facts if isinstance(fact.event, TASK_ENDS)), None)

    def start_of(self, path: str, attempt: int) -> Fact | None:
        """The fact that began this attempt."""
        starts = self.events(StepStarted)
        return next((fact for fact, event in starts if (event.path, event.attempt) == (path, attempt)), None)

    def of_path(self, path: str) -> list[Fact]:
        found = [fact for fact in self.facts if getattr(fact.event, "path", None) == path]
        gone = self.discarded
        return [fact for fact in found if not _is_gone(fact, gone)] if gone else found


def _is_gone(fact: Fact, discarded: dict[str, int]) -> bool:
    return fact.seq < discarded.get(getattr(fact.event, "path", ""), 0)


class Testimony(msgspec.Struct):
    stories: dict[str, Story] = {}
    commands: dict[str, Command] = {}
    posted_us: dict[str, int] = {}  # when each command was
    answers: dict[str, list[tuple[int, Answer]]] = {}
    blobs: dict[str, bytes] = {}
    deletions: list[tuple[Deleted, str]] = []  # each with whom it took
    calls: dict[tuple[str, str], list[Called]] = {}  # by execution and path


def testify(history: History) -> Testimony:
    told = Testimony()
    answers: dict[str, list[tuple[int, Answer]]] = defaultdict(list)
    for line in history.lines:
        if isinstance(line, Deleted | Held | Wiped):
            _kept(told, line)
        if not isinstance(line, Committed):
            continue
        for write, result in zip(line.writes, line.results, strict=True):
            match write:
                case NewExecution() if result.ok:
                    for new in (write, *write.family):
                        _create(told, new, line)
                case Claim() if result.ok:
                    _claim(told.stories[write.execution_id], write, result.epoch, line)
                case Command() if result.ok:
                    told.commands[write.id] = write
                    told.posted_us.setdefault(write.id, line.at_us)
                case Entry() if result.ok:
                    _append(told, write, line)
                    for answer in write.answers:
                        answers[answer.command_id].append((line.at_us, answer))
                case _:
                    pass
    told.answers = dict(answers)
    for call in history.of(Called):
        told.calls.setdefault((call.execution_id, call.path), []).append(call)
    return told


def _kept(told: Testimony, line: Deleted | Held | Wiped) -> None:
    for story in (told.stories[execution_id] for execution_id in line.execution_ids):
        match line:
            case Deleted():
                told.deletions.append((line, story.id))
                story.go(line.at_us)
            case Wiped():
                story.go(line.at_us)
                for hold in story.holds[-1:]:
                    hold.to_us = hold.to_us or line.at_us
            case Held() if line.why:
                story.held.append((line.at_us, None))
            case Held():
                story.let_go(line.at_us)


def _create(told: Testimony, new: NewExecution, line: Committed) -> None:
    if new.head.id in told.stories:
        _bring_back(told.stories[new.head.id], new, line)
        return
    origin = told.stories.get(new.head.forked_from)
    story = Story(id=new.head.id, head=new.head, epoch=new.head.epoch, born=len(new.rows))
    told.stories[story.id] = story
    told.blobs.update(new.blobs)
    if new.head.driver:
        hold = Hold(line.process, new.head.epoch, line.at_us, driver=new.head.driver, after=len(new.rows))
        story.holds.append(hold)
    _write_down(story, new.rows, new.head.epoch, line)
    made = story.created
    is_done_with = made.hold or (made.forked_from and made.forked_from.at)  # from a file or a step on: nothing is asked
    if origin is not None and origin.deleted_us is not None and not is_done_with:
        story.wrongs.append((MADE_OF, f"it was made of {origin.id}, which had been deleted"))


def _bring_back(story: Story, new: NewExecution, line: Committed) -> None:
    """What was deleted may be imported again, with the very events that it had; what had not ended is held then."""
    if story.deleted_us is not None:
        story.away.append((story.deleted_us, line.at_us))
        story.deleted_us, story.epoch = None, new.head.epoch
        if [fact.row for fact in story.facts] != new.rows:
            story.wrongs.append((COMES_BACK, "it was imported, and has other events than before"))
        if story.end() is None:
            story.held.append((line.at_us, None))


def _check_there(story: Story, line: Committed, what: str) -> None:
    if story.deleted_us is not None:
        story.wrongs.append((COMES_BACK, f"{line.process} {what} {line.at_us - story.deleted_us} µs after that"))


def _claim(story: Story, claim: Claim, epoch: int, line: Committed) -> None:
    _check_there(story, line, "claimed it")
    if claim.to_drive and story.is_held(line.at_us):
        story.wrongs.append(("nobody_drives_what_is_held", f"{line.process} claimed it to drive it"))
    before = story.holds[-1] if story.holds else None
    if epoch != story.epoch + 1:
        story.wrongs.append(("only_the_driver_appends", f"epoch {epoch} follows {story.epoch}"))
    story.epoch = epoch
    if before is not None and before.to_us is None:
        before.to_us = line.at_us
    hold = Hold(
        line.process,
        epoch,
        line.at_us,
        to_drive=claim.to_drive,
        taken_over=bool(claim.replacing),
        driver=claim.driver,
        replaced=claim.replacing,
        after=len(story.facts),
    )
    story.holds.append(hold)


def _append(told: Testimony, entry: Entry, line: Committed) -> None:
    story = told.stories[entry.execution_id]
    _check_there(story, line, "appended to it")
    hold = story.holds[-1] if story.holds else None
    if hold is None or hold.to_us is not None or (hold.epoch, hold.process) != (entry.epoch, line.process):
        text = f"{line.process} appended with epoch {entry.epoch} while the driver was {hold}"
        story.wrongs.append(("only_the_driver_appends", text))
    _write_down(story, entry.rows, entry.epoch, line)
    told.blobs.update(entry.blobs)
    if entry.snapshot is not None:
        story.snapshots.append(entry.snapshot)
    if entry.change is not None:
        story.listed.append((len(story.facts), entry.change.status))
        story.wakes.append((len(story.facts), entry.change.wake_at))
        now = (len(story.facts), entry.change.status, line.process, entry.epoch, line.at_us)
        story.answered.extend(Answered(answer, *now) for answer in entry.answers)
    for new in entry.creates:
        _create(told, new, line)
    for command in entry.posts:
        told.commands.setdefault(command.id, command)
        told.posted_us.setdefault(command.id, line.at_us)
    if entry.release and hold is not None:
        hold.to_us, hold.released = line.at_us, len(story.facts)


def _write_down(story: Story, rows: list[Row], epoch: int, line: Committed) -> None:
    for row in rows:
        expected = story.facts[-1].seq + 1 if story.facts else 1
        if row.seq != expected:
            story.wrongs.append(("numbers_without_gaps", f"event {row.seq} came where {expected} should be"))
        fact = Fact(row.seq, decode(row), row, line.at_us, line.acknowledged_us, line.process, epoch)
        story.facts.append(fact)
