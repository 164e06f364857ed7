"""What must be true of a task whose process died, against the same task left alone. Pure: reports in, sentences out.

Executions are told apart by where they came from (`""` is the task itself, `good/young` a grandchild), because their
ids differ from run to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from proof.crash_sweep.programs import Program
from proof.crash_sweep.report import Report, Seen, Survey

ENDED = ("completed", "failed", "skipped")
# What people said and what was born or ended: as often as in a run that nobody killed, and no more.
COUNTED = (
    "task:created", "task:completed", "task:error", "task:stopped", "child:started", "child:ended", "plan:extended",
    "event:received", "approval:granted", "approval:denied",
)  # fmt: skip
HELD = ("task:paused", "task:resumed", "task:interrupted")  # of the first execution: its children may end before


def judge(program: Program, alone: Report, lives: Sequence[Report], deaths: int) -> list[str]:
    """`lives` are those that came after a death, the last of which went to the end."""
    last = lives[-1]
    if last.trouble:
        return [f"a life failed: {last.trouble}"]
    if last.stuck:
        stuck = {name: seen.status for name, seen in _by_name(last.left).items() if seen.status not in _ENDS}
        return [f"stuck: {stuck}", *_sound(last.left)]
    found = list(_same_end(program, alone.left, last.left))
    found += _same_world(alone.left, last.left, deaths)
    found += _sound(last.left)
    for life in lives:
        found += _nothing_forgotten(life.found)
        found += _nothing_repeated(life.found, last.left)
    return found


def story_of(survey: Survey) -> list[str]:
    """What happened, for whoever has to find out why."""
    return [f"{name or 'itself'}: {'; '.join(seen.happened)}" for name, seen in sorted(_by_name(survey).items())]


# ---- the same end -----------------------------------------------------------------------------------------------


def _same_end(program: Program, alone: Survey, killed: Survey) -> Iterator[str]:
    expected, actual = _by_name(alone), _by_name(killed)
    if len(killed.executions) != len(actual):
        yield "a step has started more than one child"
    yield from _compare("the executions", sorted(expected), sorted(actual))
    for name in expected.keys() & actual.keys():
        want, have = expected[name], actual[name]
        of = f"execution {name or 'itself'}"
        yield from _compare(f"{of}: its end", (want.status, want.output, want.failure), _end_of(have))
        yield from _compare(f"{of}: its steps", sorted(want.steps), sorted(have.steps))
        for path in want.steps.keys() & have.steps.keys() - program.chance:
            yield from _compare(f"{of}: step {path}", want.steps[path], have.steps[path])
        if have.spent[0] < want.spent[0] or (have.spent != want.spent and not have.spent[1]):
            yield f"{of}: spent {have.spent}, left alone {want.spent}"
        kinds = COUNTED if name else COUNTED + HELD
        yield from _compare(f"{of}: what happened", _counted(want, kinds), _counted(have, kinds))


def _end_of(seen: Seen) -> tuple[str, object, str]:
    return seen.status, seen.output, seen.failure


def _counted(seen: Seen, kinds: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(kind for event in seen.happened if (kind := event.split()[0]) in kinds).items()))


# ---- the same world ---------------------------------------------------------------------------------------------


def _same_world(alone: Survey, killed: Survey, deaths: int) -> Iterator[str]:
    expected, actual, cut = _effects(alone), _effects(killed), _cut_off(killed)
    for effect, name in expected.keys() | actual.keys():
        want, have = expected[effect, name], actual[effect, name]
        if effect == "once" and have != want:
            yield f"{name} is `once` and happened {have} times, not {want}"
        elif effect == "idempotent" and not have:
            yield f"{name} never happened"
        elif have > want + deaths + cut[name]:
            yield f"{name} happened {have} times with {deaths} deaths; left alone it happens {want} times"
    told = _told(alone), _told(killed)
    yield from _compare("what became of the commands", told[0], told[1])


def _effects(survey: Survey) -> Counter[tuple[str, str]]:
    names = {seen.id: name for name, seen in _by_name(survey).items()}
    found: Counter[tuple[str, str]] = Counter()
    for line in survey.ledger:
        if line.effect != "seen":
            execution_id, _, path = line.key.partition(":")
            found[line.effect, f"{names.get(execution_id, execution_id)}:{path}"] += 1
    return found


def _cut_off(survey: Survey) -> Counter[str]:
    """How often a person interrupted each step: whether an interrupt still finds it at work is a matter of moments."""
    return Counter(
        f"{name}:{event.partition(' ')[2]}"
        for name, seen in _by_name(survey).items()
        for event in seen.happened
        if event.startswith("step:interrupted")
    )


def _told(survey: Survey) -> dict[str, str]:
    """Commands of the script and their outcomes. Doubts come with deaths, so their answers are checked elsewhere."""
    return {command: outcome for command, outcome in survey.answered.items() if command.startswith("script-")}


# ---- what must always be true -----------------------------------------------------------------------------------


def _sound(survey: Survey) -> Iterator[str]:
    for name, seen in _by_name(survey).items():
        of = f"execution {name or 'itself'}"
        if seen.status not in _ENDS or seen.driver:
            yield f"{of} is {seen.status}, with the driver {seen.driver or 'gone'}"
        yield from (f"{of}: command {command} was never answered" for command in seen.pending)
        ends = Counter(event for event in seen.happened if event.startswith(_ENDINGS))
        yield from (f"{of}: {event} was recorded {count} times" for event, count in ends.items() if count > 1)
        answers = Counter(event for event in seen.happened if event.startswith(_ANSWERS))
        yield from (f"{of}: {event} was recorded {count} times" for event, count in answers.items() if count > 1)
        settled, unknown, reserved = seen.spent
        yield from _compare(f"{of}: what it spent", (*seen.paid, 0), (settled, unknown, reserved))
        yield from _family_agrees(survey, seen)
    told = [line.output for line in survey.ledger if line.effect == "seen" and line.key == "answered"]
    for command, outcome, _ in told:
        if outcome not in ("applied", "unchanged"):
            yield f"command {command} was {outcome}"


def _family_agrees(survey: Survey, parent: Seen) -> Iterator[str]:
    for path, (child_id, status, output) in parent.children.items():
        child = survey.executions.get(child_id)
        if child is None or child.parent != parent.id:
            yield f"the child of {path} is not there"
        elif parent.status != "stopped" and (status, output) != (child.status, child.output):
            yield f"the parent of {path} knows ({status}, {output!r}), the child is ({child.status}, {child.output!r})"
    if parent.parent and parent.id not in {c for c, _, _ in survey.executions[parent.parent].children.values()}:
        yield f"an execution was started at {parent.path}, and its parent does not know it"


# ---- across a death ---------------------------------------------------------------------------------------------


def _nothing_forgotten(found: Survey) -> Iterator[str]:
    """What anybody outside could know at the moment of the death is in the journal."""
    for line in found.ledger:
        if line.effect == "read":
            continue  # reads may run ahead of the disk
        if line.effect != "seen":
            execution_id, _, path = line.key.partition(":")
            seen = found.executions.get(execution_id)
            if seen is None or path not in seen.steps:
                yield f"{path} had its effect before the journal knew that it began"
        elif line.key == "answered":
            command, outcome, _ = line.output
            if found.answered.get(command) != outcome:
                yield f"command {command} was answered ({outcome}), and the journal knows nothing of it"
        elif line.output[0] not in found.executions:
            yield f"the task was {line.key}, and the journal knows nothing of it"
        elif line.key == "ended" and found.executions[line.output[0]].status not in _ENDS:
            yield "the result was handed out, and the journal knows nothing of it"


def _nothing_repeated(found: Survey, left: Survey) -> Iterator[str]:
    """History is only ever added to, and what was recorded as done is not done again."""
    new = Counter(line.key for line in left.ledger[len(found.ledger) :])
    for seen in found.executions.values():
        after = left.executions.get(seen.id)
        if after is None or after.chain[: len(seen.chain)] != seen.chain:
            yield f"the journal of {seen.id} was rewritten"
            continue
        for path, step in seen.steps.items():
            if step.status not in ENDED:
                continue
            if new[f"{seen.id}:{path}"]:
                yield f"{path} had {step.status} before the death and ran again"
            yield from _compare(f"{path}, which had ended before the death", step, after.steps.get(path))


# ---- small words ------------------------------------------------------------------------------------------------

_ENDS = ("completed", "failed", "stopped")
_ENDINGS = ("task:completed", "task:error", "task:stopped", "step:completed", "step:failed", "step:skipped")
_ANSWERS = ("request:answered", "approval:granted", "approval:denied", "approval:expired")


def _by_name(survey: Survey) -> dict[str, Seen]:
    def name(seen: Seen) -> str:
        parent = survey.executions.get(seen.parent)
        return f"{name(parent)}/{seen.path}".lstrip("/") if parent is not None else ""

    return {name(seen): seen for seen in survey.executions.values()}


def _compare(what: str, expected: object, actual: object) -> Iterator[str]:
    if expected != actual:
        yield f"{what}: expected {expected}, got {actual}"
