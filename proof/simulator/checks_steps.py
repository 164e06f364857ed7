"""Checks of the steps: what ran, how often, when, and whether anybody had allowed it. The ledger is the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.core import events as ev
from holdfast.core.lifecycle import STEP_ENDS, STEP_MOVES
from proof.simulator.case import Case, Check
from proof.simulator.history import Called, Saw
from proof.simulator.witness import Story, Testimony


def _calls(told: Testimony, phase: str = "called") -> Iterator[tuple[Story, Called]]:
    for (execution_id, _), calls in told.calls.items():
        for call in calls:
            if call.phase == phase:
                yield told.stories[execution_id], call


def a_completed_step_never_runs_again(case: Case) -> Iterator[str]:
    """Once an outcome is durable, its driver never calls the tool for it again."""
    for story, call in _calls(case.told):
        ended = [
            fact
            for fact in story.of_path(call.path)
            if fact.at_us < call.at_us and (move := STEP_MOVES.get(ev.name_of(fact.event))) and move.to in STEP_ENDS
        ]
        if ended and story.holder(call.at_us) == call.process:
            yield f"{story.id} {call.path}: called at {call.at_us} µs, and had ended with event {ended[0].seq}"


def a_step_has_one_outcome(case: Case) -> Iterator[str]:
    """However often its tool answers, and by whatever way, a step ends once, and so does each of its attempts."""
    for story in case.told.stories.values():
        ends = Counter(event.path for _, event in story.events(ev.StepCompleted, ev.StepFailed, ev.StepSkipped))
        yield from (f"{story.id} {path}: ended {count} times" for path, count in ends.items() if count > 1)
        last: dict[str, int] = {}
        for fact, event in story.events(ev.StepStarted, ev.StepCompleted, ev.StepRetrying, ev.StepInterrupted):
            if isinstance(event, ev.StepStarted):
                last[event.path] = event.attempt
            elif event.attempt != last.get(event.path, event.attempt):
                yield f"{story.id} {event.path}: event {fact.seq} is of attempt {event.attempt}, which was over"


def each_attempt_calls_its_tool_once(case: Case) -> Iterator[str]:
    """Only reads may be called again under the same number: their start may have been lost with the process."""
    for (execution_id, path), calls in case.told.calls.items():
        tried = Counter(call.attempt for call in calls if call.phase == "called" and call.effect != "read")
        for attempt, count in tried.items():
            if count > 1:
                yield f"{execution_id} {path}: attempt {attempt} called its tool {count} times"


def intents_are_durable_before_effects(case: Case) -> Iterator[str]:
    """Before an idempotent or once tool is called, its start is on disk and its process knows it."""
    for story, call in _calls(case.told):
        if call.effect == "read":
            continue
        known = any(
            isinstance(fact.event, ev.StepStarted)
            and fact.event.attempt == call.attempt
            and fact.heard_us is not None
            and fact.heard_us <= call.at_us
            and fact.process == call.process
            for fact in story.of_path(call.path)
        )
        if not known:
            yield f"{story.id} {call.path}: attempt {call.attempt} called {call.tool} before its start was durable"


def keys_are_one_per_step(case: Case) -> Iterator[str]:
    """The idempotency key is the same for all attempts of a step, and no other step has it, unless in a retry of it."""
    owners: dict[str, tuple[str, str]] = {}
    for (execution_id, path), calls in case.told.calls.items():
        keys = {call.key for call in calls}
        if len(keys) > 1:
            yield f"{execution_id} {path}: its attempts had different keys: {sorted(keys)}"
        for key in keys:
            own = (_first_of(case, execution_id), path)
            owner = owners.setdefault(key, own)
            if owner != own:
                yield f"{execution_id} {path} and {owner} share the key {key}"


def _first_of(case: Case, execution_id: str) -> str:
    """The execution that this one was made from, if it was, and so on to the first."""
    while (origin := case.told.stories[execution_id].created.forked_from) is not None:
        execution_id = origin.id
    return execution_id


def nothing_begins_after_the_end(case: Case) -> Iterator[str]:
    """Whoever wrote an execution's end, or took it up after that, calls no tool for it."""
    for story, call in _calls(case.told):
        end = story.end()
        if end is None or end.at_us >= call.at_us:
            continue
        knows = end.process == call.process or any(
            hold.process == call.process and end.at_us <= hold.from_us <= call.at_us for hold in story.holds
        )
        if knows:
            yield f"{story.id} {call.path}: called at {call.at_us} µs, after the end at {end.at_us} µs"


def nothing_begins_while_held(case: Case) -> Iterator[str]:
    """A paused or interrupted execution finishes what it has begun, and begins nothing.

    The time and random numbers, which a function asks for without awaiting anything, have no input and are let pass.
    """
    for story in case.told.stories.values():
        held = 0
        kinds = (ev.TaskPaused, ev.TaskInterrupted, ev.TaskStarted, ev.StepStarted, ev.ChildStarted)
        for fact, event in story.events(*kinds):
            match event:
                case ev.TaskPaused() | ev.TaskInterrupted():
                    held = fact.seq
                case ev.TaskStarted():
                    held = 0
                case ev.StepStarted() if held and event.kind in ("tool", "code") and event.digest:
                    yield f"{story.id} {event.path}: began with event {fact.seq} while held by event {held}"
                case ev.ChildStarted() if held:
                    yield f"{story.id} {event.path}: its child began with event {fact.seq} while held by event {held}"
                case _:
                    pass


def recorded_outputs_are_what_tools_answered(case: Case) -> Iterator[str]:
    """The output in the journal is the one that the tool gave in that very attempt, the first if it gave two; what
    came by another way is recorded as what that way brought.
    """
    for story in case.told.stories.values():
        for fact, event in story.events(ev.StepCompleted):
            calls = case.told.calls.get((story.id, event.path), [])
            if event.by == "tool" and fact.seq > story.born:
                brought = [call.output for call in calls if call.phase == "delivered"]
                if case.value(event.output) not in brought:
                    yield f"{story.id} {event.path}: event {fact.seq} records what no tool has delivered"
            if event.by or event.cached or not calls:
                continue
            answers = [call.output for call in calls if call.phase == "answered" and call.attempt == event.attempt]
            output = case.value(event.output)
            if output not in answers and not str(output).startswith("found "):
                yield f"{story.id} {event.path}: event {fact.seq} records {output!r}, its tool answered {answers!r}"


def a_race_has_one_winner(case: Case) -> Iterator[str]:
    """Who came first is the same whenever and wherever a function runs again: the step after that is named after it."""
    for story in case.told.stories.values():
        named: dict[str, set[str]] = {}
        for fact, event in story.events(ev.StepStarted):
            scope, _, name = event.path.rpartition("/")
            if name.startswith("won") and scope.rpartition("/")[2].startswith("race") and fact.seq > story.born:
                named.setdefault(scope, set()).add(name)
        yield from (
            f"{story.id} {scope}: it went on as {sorted(names)}" for scope, names in named.items() if len(names) > 1
        )


def changed_code_runs_one_version(case: Case) -> Iterator[str]:
    """Whatever was deployed meanwhile, an execution begins either the old step or the new one."""
    for story in case.told.stories.values():
        begun = {event.path for fact, event in story.events(ev.StepStarted) if fact.seq > story.born}
        for path in sorted(begun):
            if path.endswith("old") and path.removesuffix("old") + "new" in begun:
                yield f"{story.id} {path}: began, and so did the step in its place in the new code"


def a_replay_sees_what_was_recorded(case: Case) -> Iterator[str]:
    """A program is given the recorded outcome, whenever and wherever it runs again."""
    for line in case.played.history.of(Saw):
        story = case.told.stories[line.execution_id]
        if story.holder(line.at_us) != line.process:
            continue  # it was taken over and does not know it yet; nothing it does is recorded
        for fact in story.of_path(line.path):
            if isinstance(fact.event, ev.StepCompleted) and fact.at_us < line.at_us:
                recorded = case.value(fact.event.output)
                if recorded != line.output:
                    yield f"{story.id} {line.path}: recorded {recorded!r}, the program was given {line.output!r}"
    for story in case.told.stories.values():
        end = story.end()
        if end is not None and isinstance(end.event, ev.TaskCompleted):
            done = {event.path for _, event in story.events(ev.StepCompleted, ev.StepSkipped)}
            seen = (line for line in case.played.history.of(Saw) if line.execution_id == story.id)
            begun_us = next(hold.from_us for hold in story.holds if hold.epoch == end.epoch)  # before, it may have lost
            for line in seen:
                if line.process == end.process and line.path not in done and begun_us <= line.at_us <= end.at_us:
                    yield f"{story.id} {line.path}: the program was given {line.output!r}, and nothing was recorded"


def an_end_tells_whether_steps_failed(case: Case) -> Iterator[str]:
    """An execution that completes without steps that failed says so, and no other does."""
    for story in case.told.stories.values():
        for fact, end in story.events(ev.TaskCompleted):
            failed = [event.path for _, event in story.events(ev.StepFailed)]
            if bool(failed) != bool(end.failures):
                yield f"{story.id}: event {fact.seq} says {end.failures!r}, and these failed: {failed}"


CHECKS: tuple[Check, ...] = (
    a_completed_step_never_runs_again,
    a_step_has_one_outcome,
    each_attempt_calls_its_tool_once,
    intents_are_durable_before_effects,
    keys_are_one_per_step,
    nothing_begins_after_the_end,
    nothing_begins_while_held,
    recorded_outputs_are_what_tools_answered,
    a_replay_sees_what_was_recorded,
    a_race_has_one_winner,
    changed_code_runs_one_version,
    an_end_tells_whether_steps_failed,
)
