"""Checks of what others see: watchers, commanders, families, and everybody who waits for an end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.journal.store import TOO_LATE
from proof.simulator.case import Case, Check
from proof.simulator.history import HandedIn, Ordered, Returned, Trouble, Watched
from proof.simulator.witness import TASK_ENDS, Story

HEARD_WITHIN_US = 60_000_000  # a parent that ended this soon after its child need not have heard of it
_DECIDED = (ev.ApprovalGranted, ev.ApprovalDenied, ev.ApprovalExpired, ev.RequestAnswered)


def nobody_complains(case: Case) -> Iterator[str]:
    """No exception escapes, the engine logs no error about itself, and a closed engine holds nothing."""
    yield from (line.text for line in case.played.history.of(Trouble))


def a_key_is_one_execution(case: Case) -> Iterator[str]:
    """A task handed in twice under one key is one execution, and is on disk before it is accepted."""
    ids: dict[str, set[str]] = defaultdict(set)
    for line in case.played.history.of(HandedIn):
        ids[line.key].add(line.execution_id)
        story = case.told.stories.get(line.execution_id)
        if story is None or story.facts[0].at_us > line.at_us:
            yield f"{line.key} was accepted as {line.execution_id} before that was durable"
    for story in case.told.stories.values():
        if story.head.key.startswith("task-"):
            ids[story.head.key].add(story.id)
    for key, found in ids.items():
        first, *others = sorted((case.told.stories[one] for one in found), key=lambda story: story.facts[0].at_us)
        for other in others:  # while the one before it is deleted or lies in a file, nobody knows of it
            if not first.is_away(other.facts[0].at_us):
                yield f"{key} became {len(found)} executions"
            first = other


def watchers_see_every_event_in_order(case: Case) -> Iterator[str]:
    """Exactly the durable events, from the first to the last, none before it was on disk."""
    seen: dict[tuple[str, str], list[Watched]] = defaultdict(list)
    for line in case.played.history.of(Watched):
        seen[line.watcher, line.execution_id].append(line)
    for (watcher, execution_id), lines in seen.items():
        facts = case.told.stories[execution_id].facts
        if case.told.stories[execution_id].was_deleted:
            facts = facts[: len(lines)]  # it may have gone before its watcher had come so far
        if [line.seq for line in lines] != [fact.seq for fact in facts]:
            yield f"{watcher} saw {len(lines)} of {len(facts)} events of {execution_id}, or in another order"
        for line, fact in zip(lines, facts, strict=False):
            if line.at_us < fact.at_us:
                yield f"{watcher} saw event {fact.seq} of {execution_id} before it was durable"
            if line.body != msgspec.json.encode(fact.event):
                yield f"{watcher} was shown another event {fact.seq} of {execution_id} than was recorded"


def results_are_durable_before_they_are_told(case: Case) -> Iterator[str]:
    """Nobody hears of an end that is not on disk, or of another one than is."""
    for line in case.played.history.of(Returned):
        story = case.told.stories[line.execution_id]
        ends = story.events(*TASK_ENDS)
        if not ends or ends[0][0].at_us > line.at_us:
            yield f"{line.execution_id}: its end was told before it was durable"
            continue
        end = ends[0][1]
        told = {"completed": "task:completed", "ExecutionFailed": "task:error", "ExecutionStopped": "task:stopped"}
        if ev.name_of(end) != told[line.status]:
            yield f"{line.execution_id}: {line.status} was told, {ev.name_of(end)} was recorded"
        if isinstance(end, ev.TaskCompleted) and not _same(end.output, line.output):
            yield f"{line.execution_id}: another output was told than was recorded"


def _same(recorded: msgspec.Raw, told: Any) -> bool:
    value = msgspec.json.decode(recorded)
    return value == told or (isinstance(value, dict) and "holdfast" in value)


def every_command_gets_one_answer(case: Case) -> Iterator[str]:
    """Exactly one, the same for everybody who asks, and only after it is durable."""
    told = case.told
    late = {answer.command_id for answer in case.played.store.all_answers() if answer.text == TOO_LATE}
    for command_id, command in told.commands.items():
        answers = told.answers.get(command_id, [])
        if (whose := told.stories.get(command.execution_id)) is None or whose.was_deleted:
            continue  # what was said to it, and what it answered, has gone with it
        if len(answers) > 1:
            yield f"{command_id} ({command.verb}) was answered {len(answers)} times"
        if not answers and command_id not in late:
            yield f"{command_id} ({command.verb}) was never answered"
    for line in case.played.history.of(Ordered):
        if line.answer is None or line.answer.outcome == "queued":
            continue
        answers = told.answers.get(line.command_id, [])
        if not answers or answers[0][0] > line.at_us:
            yield f"{line.command_id} was told {line.answer.outcome} before that was durable"
        elif told.stories[line.execution_id].was_deleted:  # its answers went with it; asked again, it answered again
            if all(answer != line.answer for _, answer in answers):
                yield f"{line.command_id} was told {line.answer}, which was never recorded"
        elif answers[0][1] != line.answer:
            yield f"{line.command_id} was told {line.answer}, recorded was {answers[0][1]}"


def a_command_acts_once(case: Case) -> Iterator[str]:
    """As many events from outside as commands that brought one, and each request decided once."""
    applied: Counter[str] = Counter()
    for command_id, answers in case.told.answers.items():
        command = case.told.commands.get(command_id)
        if command is not None and command.verb == "send" and answers[0][1].outcome == "applied":
            applied[command.execution_id] += 1
    for story in case.told.stories.values():
        received = sum(fact.seq > story.born for fact, _ in story.events(ev.EventReceived))
        if received != applied[story.id]:
            yield f"{story.id}: {applied[story.id]} events were sent and applied, {received} were received"
        decided = Counter(event.request_id for _, event in story.events(*_DECIDED))
        yield from (f"{story.id}: {name} was decided {count} times" for name, count in decided.items() if count > 1)


def parent_and_child_agree(case: Case) -> Iterator[str]:
    """Each child step has one child, each child a parent that knows it, and both know the same end."""
    told = case.told
    for story in told.stories.values():
        started = {event.path: event.child_id for _, event in story.events(ev.ChildStarted)}
        if len(started) != len(story.events(ev.ChildStarted)):
            yield f"{story.id}: a step started more than one child"
        ended = {event.child_id: event for _, event in story.events(ev.ChildEnded)}
        for path, child_id in started.items():
            child = told.stories.get(child_id)
            if child is None:
                yield f"{story.id} {path}: its child {child_id} does not exist"
            else:
                yield from _agree(story, child, ended.get(child_id))
        if story.head.parent_id:
            parent = told.stories[story.head.parent_id]
            if not any(event.child_id == story.id for _, event in parent.events(ev.ChildStarted)):
                yield f"{story.id}: its parent does not know it"


def _agree(story: Story, child: Story, heard: ev.ChildEnded | None) -> Iterator[str]:
    ends = child.events(*TASK_ENDS)
    if not ends:
        return  # said by the check of progress
    fact, end = ends[0]
    status = {"task:completed": "completed", "task:error": "failed", "task:stopped": "stopped"}[ev.name_of(end)]
    if heard is None:
        own = story.events(*TASK_ENDS)
        if not own or own[0][0].at_us > fact.at_us + HEARD_WITHIN_US:
            yield f"{story.id}: never heard that its child {child.id} {status}"
    elif heard.status != status or (isinstance(end, ev.TaskCompleted) and heard.output != end.output):
        yield f"{story.id}: heard that its child {child.id} {heard.status}, it {status}"


def concurrency_keys_are_kept(case: Case) -> Iterator[str]:
    """Never more drivers under one concurrency key than its limit."""
    moments: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for story in case.told.stories.values():
        for hold in story.holds:
            if story.head.concurrency_key and hold.to_drive and not hold.taken_over:
                moments[story.head.concurrency_key].append((hold.from_us, 1, story.head.concurrency_limit))
                if hold.to_us is not None:
                    moments[story.head.concurrency_key].append((hold.to_us, -1, story.head.concurrency_limit))
    for key, changes in moments.items():
        held = 0
        for at_us, change, limit in sorted(changes):
            held += change
            if held > limit:
                yield f"{held} executions with key {key} were driven at {at_us} µs, {limit} may be"
                break


CHECKS: tuple[Check, ...] = (
    nobody_complains,
    a_key_is_one_execution,
    watchers_see_every_event_in_order,
    results_are_durable_before_they_are_told,
    every_command_gets_one_answer,
    a_command_acts_once,
    parent_and_child_agree,
    concurrency_keys_are_kept,
)
