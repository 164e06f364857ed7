"""Two executions side by side: what differs, by the path of each step. Values in, differences out.

How long something took is never the same twice; it is told apart from the differences, and only where it is striking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.execution import Execution, Step

STRIKING_FACTOR = 2.0  # this many times as long,
STRIKING_US = 1_000_000  # and by this much


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One execution, with the arguments of each step's last attempt: a state lets go of them when a step ends."""

    state: Execution
    arguments: dict[str, Raw]


class Difference(msgspec.Struct, frozen=True):
    """`path` is "" for the execution itself. A side that has nothing of the kind is None."""

    path: str
    what: str
    a: Any
    b: Any


class Comparison(msgspec.Struct, frozen=True):
    differences: list[Difference]
    durations: list[Difference]  # in microseconds


def side_of(state: Execution, events: Iterable[ev.Event]) -> Side:
    started = (event for event in events if isinstance(event, ev.StepStarted))
    return Side(state=state, arguments={event.path: event.arguments for event in started})


def compare(a: Side, b: Side) -> Comparison:
    """The execution first, then the steps in the order in which the first one, or else the second, came to them."""
    paths = list(dict.fromkeys([*a.state.steps, *b.state.steps]))
    differences = [*_of_executions(a.state, b.state)]
    durations: list[Difference] = []
    for path in paths:
        one, other = a.state.steps.get(path), b.state.steps.get(path)
        if one is None or other is None:
            differences.append(Difference(path, "step", one and one.status, other and other.status))
            continue
        differences += _of_steps(path, one, other)
        differences += _differing(path, [("arguments", a.arguments.get(path), b.arguments.get(path))])
        if _is_striking(_took_us(one), _took_us(other)):
            durations.append(Difference(path, "duration", _took_us(one), _took_us(other)))
    return Comparison(differences, durations)


def places(a: Any, b: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two decoded values differ, as deep inside as can be said; a side that has nothing there is None."""
    match a, b:
        case dict(), dict():
            one, other = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
            for key in dict.fromkeys([*one, *other]):
                yield from places(one.get(key), other.get(key), f"{place}.{key}" if place else key)
        case list(), list():
            for index, (first, second) in enumerate(zip_longest(cast("list[Any]", a), cast("list[Any]", b))):
                yield from places(first, second, f"{place}[{index}]")
        case _ if a != b:
            yield place, a, b
        case _:
            return


def _of_executions(a: Execution, b: Execution) -> list[Difference]:
    one, other = a.facts(), b.facts()
    return _differing(
        "",
        [
            ("program", f"{one.program.kind} {one.program.name}", f"{other.program.kind} {other.program.name}"),
            ("document", one.program.source, other.program.source),
            ("inputs", one.inputs, other.inputs),
            ("status", a.status, b.status),
            ("output", a.output, b.output),
            ("error", a.failure and a.failure.message, b.failure and b.failure.message),
        ],
    )


def _of_steps(path: str, a: Step, b: Step) -> list[Difference]:
    return _differing(
        path,
        [
            ("status", a.status, b.status),
            ("tool", a.tool, b.tool),
            ("output", a.output, b.output),
            ("error", a.failure and a.failure.message, b.failure and b.failure.message),
            ("attempts", a.attempt, b.attempt),
        ],
    )


def _differing(path: str, found: Iterable[tuple[str, Any, Any]]) -> list[Difference]:
    return [Difference(path, what, a, b) for what, a, b in found if not _is_same(a, b)]


def _is_same(a: Any, b: Any) -> bool:
    """JSON is the same whatever the order of its keys; large values are compared by their references."""
    if isinstance(a, Raw) and isinstance(b, Raw):
        return bytes(a) == bytes(b) or msgspec.json.decode(a) == msgspec.json.decode(b)
    return a == b


def _took_us(step: Step) -> int:
    return step.ended_at - step.started_at if step.ended_at and step.started_at else 0


def _is_striking(a_us: int, b_us: int) -> bool:
    short, long = sorted((a_us, b_us))
    return short > 0 and long - short >= STRIKING_US and long >= STRIKING_FACTOR * short
