"""Checks of what commands leave behind: what was refused, nothing; what was applied, what it said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.checks_forks import made_of
from proof.simulator.history import Fault
from proof.simulator.people import ODD
from proof.simulator.witness import Answered, Fact, Story

_EXPIRIES = (ev.ApprovalExpired, ev.RequestAnswered)


def what_makes_no_sense_is_refused(case: Case) -> Iterator[str]:
    """A command that nobody can read, or that does not fit what it is about, is never applied, and no event is by
    whoever gave it.
    """
    for command_id, command in case.told.commands.items():
        applied = [answer for _, answer in case.told.answers.get(command_id, []) if answer.outcome == "applied"]
        if command.by.startswith(ODD) and applied:
            yield f"{command.execution_id}: {command_id} ({command.verb}) makes no sense, and was applied"
    for story in case.told.stories.values():
        for fact in story.facts:
            if str(getattr(fact.event, "by", "")).startswith(ODD):
                yield f"{story.id}: event {fact.seq} {ev.name_of(fact.event)} is of a command that makes no sense"


def what_is_refused_changes_nothing(case: Case) -> Iterator[str]:
    """A command that was refused, or changed nothing, brought no event, except of what it came too late for; and nobody
    has let go of a running execution for it.
    """
    closings = {line.process: line.at_us for line in reversed(case.played.history.of(Fault)) if line.kind == "closes"}
    for story in case.told.stories.values():
        for answered in story.answered:
            command = case.told.commands.get(answered.answer.command_id)
            if command is None or answered.answer.outcome not in ("refused", "unchanged"):
                continue
            what = f"{story.id}: {command.id} ({command.verb}) was {answered.answer.outcome}"
            brought = answered.answer.seq and story.facts[answered.answer.seq - 1].event
            if brought and not (isinstance(brought, _EXPIRIES) and getattr(brought, "remedy", "expired") == "expired"):
                yield f"{what}, and brought event {answered.answer.seq} {ev.name_of(brought)}"
            is_closing = closings.get(answered.process, answered.at_us + 1) <= answered.at_us
            if command.verb in ("interrupt", "stop") and not is_closing and _let_go_running(story, answered):
                yield f"{what}, and {answered.process} let go of it"


def _let_go_running(story: Story, answered: Answered) -> bool:
    """Whether its driver has let go right after this, and nothing says that it waits, or is held, or has ended."""
    mine = (hold for hold in story.holds if (hold.epoch, hold.process) == (answered.epoch, answered.process))
    hold = next(mine, None)
    return bool(hold and hold.to_drive and hold.released == answered.seq and answered.status == "running")


def what_was_added_to_a_plan_is_not_lost(case: Case) -> Iterator[str]:
    """Whoever was told that a plan was extended finds it extended, and so does whoever runs it again; and when it has
    completed, there is an outcome for each step that was added.
    """
    applied: Counter[str] = Counter()
    for command_id, command in case.told.commands.items():
        answers = case.told.answers.get(command_id, [])
        applied[command.execution_id] += command.verb == "extend" and any(a.outcome == "applied" for _, a in answers)
    for story in case.told.stories.values():
        added = [fact for fact, _ in story.events(ev.PlanExtended) if fact.seq > story.born]
        if len(added) != applied[story.id]:
            yield f"{story.id}: {applied[story.id]} extensions were applied, {len(added)} are in its journal"
        copied = [bytes(event.steps) for fact, event in story.events(ev.PlanExtended) if fact.seq <= story.born]
        before = [bytes(fact.event.steps) for fact in made_of(case, story) if isinstance(fact.event, ev.PlanExtended)]
        if copied[: len(before)] != before:
            yield f"{story.id}: {len(before)} extensions were there when it was made, {len(copied)} came along"
        end = story.end()
        if added and not case.wishes[story.id].is_plan:
            yield f"{story.id}: event {added[0].seq} adds steps to what is no plan, and nothing will become of them"
        if end is None or not isinstance(end.event, ev.TaskCompleted):
            continue
        ended = {event.path for _, event in story.events(ev.StepCompleted, ev.StepFailed, ev.StepSkipped)}
        for path in case.wishes[story.id].extended:
            if path not in ended:
                yield f"{story.id}: completed with event {end.seq}, and nothing became of {path}, which was added"


def who_is_only_asked_is_not_woken(case: Case) -> Iterator[str]:
    """Nobody begins to drive what waits because of a command that was refused or changed nothing."""
    for story in case.told.stories.values():
        for hold in story.holds:
            fact = _first(story, hold.after)
            if not isinstance(fact.event, ev.TaskStarted) or fact.event.because != "woken" or hold.after == 0:
                continue
            known = [wake_at for number, wake_at in story.wakes if number <= hold.after]
            if fact.epoch != hold.epoch or not known:
                continue
            wake_at = known[-1]
            if wake_at is None or wake_at > case.latest_us(fact.process, fact.at_us):
                yield f"{story.id}: event {fact.seq} wakes it, though nothing had come and nothing was due"


def _first(story: Story, after: int) -> Fact:
    return story.facts[min(after, len(story.facts) - 1)]


CHECKS: tuple[Check, ...] = (
    what_makes_no_sense_is_refused,
    what_is_refused_changes_nothing,
    what_was_added_to_a_plan_is_not_lost,
    who_is_only_asked_is_not_woken,
)
