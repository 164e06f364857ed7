"""What a new execution copies from the journal of another one. Pure: events in, events out.

    completed                  its outcome, which counts as long as its input stays the same (kept.py)
    in doubt                   the doubt, with the key it was called with: nobody may forget that it may have happened
    begun, and not completed   no outcome, but its idempotency key and its notes: it is the same effect, tried again
    containers                 nothing: what they give is made anew, from what is in them
    undone since               nothing: a rollback, or a step that says `undoes`, took it back
    finally and on_failure     nothing but the key of what did not complete: they belong to one run

From a step on (`at_step`), that step and whatever began after it is wanted anew. What was added to a plan comes along,
and so do events that no step has taken.

Copies stand in the order in which it all happened, so that a fork of a fork finds what was before a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import NotFound
from holdfast.core.execution import Execution, Step, call_key, parent_of
from holdfast.core.fold import apply

STEPS_NAMED = 5
CONTAINERS = ("plan", "for_each")
_ATTEMPTS = ("tool", "code")
_NO_BEGINNING = (
    ev.StepNoted, ev.StepLogged, ev.StepDiverged, ev.StepCarried, ev.StepDiscarded, ev.StepUndone,
)  # fmt: skip


def kept_events(
    events: Sequence[ev.AnyEvent], execution_id: str, now_us: int, at_step: str = "", endings: Collection[str] = ()
) -> list[ev.Event]:
    """The copies, as events of the new execution. `endings` are the ending steps of the program it is to have."""
    source = _Source(events, execution_id)
    anew = _anew(source, at_step) if at_step else set[str]()
    own_endings = endings_of(source.state.facts().program)
    never = {path for path in source.paths() if _top(path) in own_endings or _top(path) in endings}
    undone, unsure = _undone(source)
    doubts = _doubts(source, anew | never | undone, unsure - anew - never, now_us)
    kept = source.completed.keys() - anew - never - undone - unsure - source.containers
    found: list[tuple[int, ev.Event]] = []
    for path in source.paths():
        place, begun = source.place(path), source.begun.get(path)
        if path in kept and begun is not None:
            found += _outcome(source, path, begun, now_us)
        elif path in doubts and begun is not None:
            found.append((place, _at(begun, now_us)))
            if note := _note(source, path, now_us):
                found.append((place, note))
            found.append((source.last[path], doubts[path]))
        elif carried := _carried(source, path, now_us, is_fresh=path in anew | never):
            found.append((place, carried))
    found += _brought(source, anew, source.first.get(at_step, len(events) + 1), now_us)
    return [event for _, event in sorted(found, key=lambda one: one[0])]


def endings_of(program: ev.Program) -> frozenset[str]:
    """The steps that run when a plan ends: each run of it has its own."""
    if program.kind != "plan":
        return frozenset()
    document = _document(program)
    return frozenset(step["id"] for part in ("on_failure", "finally") for step in document.get(part) or ())


def _document(program: ev.Program) -> dict[str, Any]:
    return msgspec.json.decode(program.source) or {}


class _Source:
    """A history, with what is needed of each of its steps."""

    def __init__(self, events: Sequence[ev.AnyEvent], execution_id: str) -> None:
        self.events = events
        self.state = Execution(id=execution_id)
        self.begun: dict[str, ev.StepStarted | ev.StepWaiting] = {}
        self.completed: dict[str, tuple[int, ev.StepCompleted]] = {}
        self.decided: dict[str, tuple[int, ev.StepDiverged]] = {}
        self.first: dict[str, int] = {}  # where each step begins
        self.last: dict[str, int] = {}
        self.copied: dict[str, int] = {}  # where a copy of it stands, or what was carried of it
        self.own: dict[str, int] = {}  # where it began in this execution itself
        for seq, event in enumerate(events, start=1):
            apply(self.state, event, seq)
            if isinstance(event, ev.StepEvent):
                self._step(seq, event)
        self.containers = {path for path, event in self.begun.items() if event.kind in CONTAINERS}

    def _step(self, seq: int, event: ev.StepEvent) -> None:
        path = event.path
        if isinstance(event, ev.StepDiscarded):
            for known in (self.begun, self.completed, self.decided):
                known.pop(path, None)
            return
        self.last[path] = seq
        if not self.state.started_at:
            self.copied.setdefault(path, seq)
        if isinstance(event, ev.StepDiverged) and event.kept:
            self.decided[path] = seq, event
        if isinstance(event, _NO_BEGINNING):
            return
        self.first.setdefault(path, seq)
        if self.state.started_at:
            self.own.setdefault(path, seq)
        if isinstance(event, ev.StepStarted) or (
            isinstance(event, ev.StepWaiting) and not isinstance(self.begun.get(path), ev.StepStarted)
        ):
            self.begun[path] = event
        elif isinstance(event, ev.StepCompleted):
            self.completed[path] = seq, event

    def paths(self) -> list[str]:
        return list({**self.copied, **self.own})

    def place(self, path: str) -> int:
        """Where it stands in the order of things: where it began here, or else where it was copied to."""
        return self.own.get(path) or self.copied[path]

    def key_of(self, step: Step) -> str:
        return step.call_key or call_key(self.state.id, step.path)

    def child_of(self, path: str) -> str:
        """The child begun by a step; or, if there is none yet, the one whose outcomes it would have kept."""
        child = self.state.children.get(path)
        return child.id if child is not None else self.state.steps[path].child_id


def _outcome(
    source: _Source, path: str, begun: ev.StepStarted | ev.StepWaiting, now_us: int
) -> list[tuple[int, ev.Event]]:
    seq, completed = source.completed[path]
    copy = _at(begun, now_us)
    if isinstance(copy, ev.StepStarted) and copy.kind == "child":
        copy = msgspec.structs.replace(copy, child_id=source.child_of(path))
    found: list[tuple[int, ev.Event]] = [
        (source.place(path), copy),
        (seq, _at(msgspec.structs.replace(completed, consumed=0), now_us)),
    ]
    if path in source.decided:
        at, decided = source.decided[path]
        found.append((max(at, seq), _at(decided, now_us)))
    return found


def _note(source: _Source, path: str, now_us: int) -> ev.StepNoted | None:
    step = source.state.steps[path]
    if not step.notes:
        return None
    return ev.StepNoted(
        at=now_us, path=path, data=step.notes, attempt=step.attempt or 1, tool=step.noted_by or step.tool,
        call_key=source.key_of(step),
    )  # fmt: skip


def _carried(source: _Source, path: str, now_us: int, *, is_fresh: bool) -> ev.StepCarried | None:
    """Of a step that begins anew: where it had begun, and what belongs to an effect that is tried again."""
    step, known = source.state.steps.get(path), source.state.carried.get(path)
    if known is not None and (step is None or not step.attempt):  # it has not come to begin here
        return ev.StepCarried(
            at=now_us, path=path, tool=known.tool, digest=known.digest, call_key=known.call_key,
            notes=msgspec.UNSET if is_fresh else known.notes, child_id="" if is_fresh else known.child_id,
        )  # fmt: skip
    if step is not None and step.attempt and step.kind in _ATTEMPTS and step.status != "completed":
        return ev.StepCarried(
            at=now_us, path=path, tool=step.noted_by or step.tool, digest=step.digest, call_key=source.key_of(step),
            notes=msgspec.UNSET if is_fresh else step.notes,
        )  # fmt: skip
    if is_fresh:
        return None
    is_child = step is not None and step.kind == "child" and step.status != "completed"
    return ev.StepCarried(at=now_us, path=path, child_id=source.child_of(path) if is_child else "")


def _brought(source: _Source, anew: set[str], cut: int, now_us: int) -> Iterator[tuple[int, ev.Event]]:
    """What was added to the plan, and the events that no step has taken; from a step on, those from before it."""
    taken = {
        event.consumed for event in source.events if isinstance(event, ev.StepCompleted) and event.path not in anew
    }
    for seq, event in enumerate(source.events, start=1):
        if isinstance(event, ev.PlanExtended) or (
            isinstance(event, ev.EventReceived) and seq not in taken and seq < cut
        ):
            yield seq, _at(event, now_us)


# ---- from a step on --------------------------------------------------------------------------------------------


def _anew(source: _Source, at_step: str) -> set[str]:
    """The step, what began after it, and what a plan has after it; with all that is in those.

    Of two steps that ran here, that order counts; of two that were copied, the order of the copies.
    """
    known = [path for path in source.paths() if path in source.first or path in source.copied]
    if at_step not in known:
        raise NotFound(f'there is no step "{at_step}" in this execution{did_you_mean(at_step, known) or _some(known)}')
    own, copied = source.own.get(at_step), source.copied.get(at_step)
    after = _after_in_plan(source.state, at_step)

    def is_later(path: str) -> bool:
        if path == at_step or path in after:
            return True
        here, there = source.own.get(path), source.copied.get(path)
        if here is not None and own is not None:
            return here > own
        if there is not None and copied is not None:
            return there > copied
        # One of them was only copied. If that is `at_step`, it was asked for before what first ran here.
        return here is not None and at_step in source.first

    around = set(_around(at_step))
    later = {path for path in known if path not in around and is_later(path)}
    return {path for path in known if path in later or later.intersection(_around(path))}


def _after_in_plan(state: Execution, at_step: str) -> set[str]:
    """The steps of the outermost list that need the one that is meant, however far; none for other programs."""
    program = state.facts().program
    if program.kind != "plan":
        return set()
    steps: list[dict[str, Any]] = list(_document(program).get("steps") or ())
    for raw in state.extensions:
        steps += msgspec.json.decode(raw, type=list[dict[str, Any]])
    dependents: dict[str, list[str]] = {}
    for previous, step in zip(["", *(step["id"] for step in steps)], steps, strict=False):
        needs: Any = step.get("needs", [previous])
        for need in [needs] if isinstance(needs, str) else cast("list[str]", needs):
            dependents.setdefault(need, []).append(step["id"])
    found: set[str] = set()
    left = [_top(at_step)]
    while left:
        new = [after for after in dependents.get(left.pop(), ()) if after not in found]
        found.update(new)
        left += new
    return found


def _some(paths: Sequence[str]) -> str:
    """Of its steps, in the order they came."""
    if not paths:
        return "; none of its steps has begun"
    more = f" and {len(paths) - STEPS_NAMED} more" if len(paths) > STEPS_NAMED else ""
    return f"; there are: {', '.join(paths[:STEPS_NAMED])}{more}"


# ---- what does not stand any more ------------------------------------------------------------------------------


def _undone(source: _Source) -> tuple[set[str], set[str]]:
    """The steps whose outcome was taken back, and the completed ones of which that is not known."""
    undone = {path for path, step in source.state.steps.items() if step.undone}
    unsure: set[str] = set()
    for path, begun in source.begun.items():
        step = source.state.steps[path]
        if not isinstance(begun, ev.StepStarted) or not begun.undoes or step.kept:
            continue
        taken_back = {inner for target in begun.undoes for inner in _of(source, target, path)}
        if step.status == "completed":
            undone |= {path, *taken_back}  # done again, it may have to be taken back again
        elif step.status != "skipped" and (step.failure is None or step.failure.happened != "nothing"):
            unsure |= taken_back
    return undone, unsure - undone


def _of(source: _Source, target: str, by: str) -> Iterator[str]:
    """What is meant: of items, the one with the same key as the item that takes it back."""
    key = by[len(parent_of(by)) :] if by.endswith("]") else ""
    one = target + key if target + key in source.begun else target
    for path, (seq, _) in source.completed.items():
        if (path == one or one in _around(path)) and seq < source.last[by]:
            yield path


def _doubts(source: _Source, without: set[str], unsure: set[str], now_us: int) -> dict[str, ev.StepInDoubt]:
    """`once` steps that may have happened. A new execution is no reason to forget that: it settles them anew."""
    last: dict[str, ev.AnyEvent] = {}
    tool_of: dict[str, int] = {}  # by path: the step's own (0) or its n-th fallback
    for event in source.events:
        if not isinstance(event, ev.StepEvent):
            continue
        if isinstance(event, ev.StepDiscarded):
            last.pop(event.path, None)
        if isinstance(event, _NO_BEGINNING):
            continue
        if isinstance(event, ev.StepFailed | ev.StepSkipped) and isinstance(last.get(event.path), ev.StepInDoubt):
            continue  # whoever went on over the doubt did not know either
        if isinstance(event, ev.StepStarted | ev.StepRetrying):
            doubted = isinstance(last.get(event.path), ev.StepInDoubt)
            if doubted and event.fallback != tool_of.get(event.path, 0):
                continue  # another tool was tried instead, which says nothing about the first one
            tool_of[event.path] = event.fallback
        last[event.path] = event
    doubts: dict[str, ev.StepInDoubt] = {}
    for path, event in last.items():
        step = source.state.steps.get(path)
        if path in without or step is None:
            continue
        key = source.key_of(step)
        if isinstance(event, ev.StepInDoubt):
            doubts[path] = msgspec.structs.replace(event, at=now_us, spent_micros=None, call_key=key)
        elif isinstance(event, ev.StepStarted) and event.effect == "once" and event.kind in _ATTEMPTS:
            why = "it was running in the execution that this one was made from"
            doubts[path] = ev.StepInDoubt(at=now_us, path=path, why=why, attempt=step.attempt, call_key=key)
        elif path in unsure and step.effect == "once" and step.kind in _ATTEMPTS:
            why = "it completed, and the step that undoes it may or may not have happened"
            doubts[path] = ev.StepInDoubt(at=now_us, path=path, why=why, attempt=step.attempt, call_key=key)
    return doubts


# ---- words -----------------------------------------------------------------------------------------------------


def _top(path: str) -> str:
    """The outermost step around it: the id that stands in the plan."""
    return path.partition("/")[0].partition("[")[0]


def _around(path: str) -> Iterator[str]:
    while path := parent_of(path):
        yield path


def _at(event: Any, now_us: int) -> Any:
    """A copy takes place now and costs nothing here; what it says about durations stays."""
    match event:
        case ev.StepStarted():
            return msgspec.structs.replace(event, at=now_us, reserved_micros=0)
        case ev.StepCompleted() | ev.StepWaiting() | ev.StepInDoubt():
            return msgspec.structs.replace(event, at=now_us, spent_micros=None)
        case _:
            return msgspec.structs.replace(event, at=now_us)
