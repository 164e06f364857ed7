"""A crash everywhere: the same run again and again, killed at another point each time, and compared with the first.

Owns what "the same" means: the same end, the same steps with the same outputs, and no `once` tool that did its work
twice, unless its step was reported in doubt and its policy said to try again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.testing.lab.errors import NotCrashSafe
from holdfast.testing.lab.needed import family_calls
from holdfast.testing.lab.outcome import Outcome
from holdfast.testing.lab.points import Point, parse_point

SHOWN_MAX = 5

CHANCE = "; it asks ctx for the time or for chance, which a crash changes: say with same=… what must not change"
LOST_COST = "; an attempt that a crash loses counts its cost: leave room for it with budget=…, or answer the request"

RunAt = Callable[[Point], Outcome]
Same = Callable[[Outcome], Any]


def sweep(left_alone: Outcome, run_at: RunAt, same: Same | None = None) -> list[str]:
    """Kill at every point of the uninterrupted run, and return the points. Raises NotCrashSafe if that mattered."""
    points = list(points_of(left_alone))
    broken: list[str] = []
    for text in points:
        try:
            killed = run_at(parse_point(text))
            wrong = [*effects(killed), *(differences(left_alone, killed) if same is None else [])]
            if same is not None and same(killed) != same(left_alone):
                wrong.append(f"it is {same(killed)!r}; left alone it is {same(left_alone)!r}")
        except HoldfastError as error:
            wrong = [str(error)]
        if wrong:
            broken.append("\n".join([f"killed at {text}:", *(indent(line, "  ") for line in wrong)]))
    if broken:
        more = [f"… and {len(broken) - SHOWN_MAX} more"] if len(broken) > SHOWN_MAX else []
        heading = f"{len(broken)} of {len(points)} crashes change what becomes of it"
        raise NotCrashSafe("\n".join([heading, *broken[:SHOWN_MAX], *more]))
    return points


def points_of(left_alone: Outcome) -> Iterator[str]:
    """Before and after every journal write, and before and after every call of a tool."""
    for number in range(1, left_alone.commits + 1):
        yield f"before:commit:{number}"
        yield f"after:commit:{number}"
    entered: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for call in family_calls(left_alone):
        entered[call.tool] += 1
        yield f"before:{call.tool}#{entered[call.tool]}"
        if call.ended == "returned":
            answered[call.tool] += 1
            yield f"after:{call.tool}#{answered[call.tool]}"


def differences(left_alone: Outcome, killed: Outcome) -> list[str]:
    """Sentences about what a crash changed. A new execution has a new id, so ids do not count."""
    return _differences(*(_without_ids(outcome, _names(outcome, "the execution")) for outcome in (left_alone, killed)))


def _names(outcome: Outcome, name: str) -> dict[bytes, bytes]:
    """What stands in the place of each id of the family."""
    found = {outcome.id.encode(): f"<id of {name}>".encode()}
    for number, child in enumerate(outcome.children, 1):
        found |= _names(child, f"child {number} of {name}")
    return found


def _without_ids(outcome: Outcome, names: dict[bytes, bytes]) -> Outcome:
    def named(value: Any) -> Any:
        text = msgspec.json.encode(value)
        for one, name in names.items():
            text = text.replace(one, name)
        return msgspec.json.decode(text)

    return msgspec.structs.replace(
        outcome,
        value=named(outcome.value),
        failure=named(outcome.failure),
        steps=named(outcome.steps),
        children=[_without_ids(child, names) for child in outcome.children],
    )


def _differences(left_alone: Outcome, killed: Outcome) -> list[str]:
    wrong: list[str] = []
    if killed.failure is not None and _failed_in_doubt(killed):
        return wrong  # its author wrote that a doubt is a failure
    if left_alone.described() != killed.described():
        hint = LOST_COST if _wants_money(killed) and not _wants_money(left_alone) else ""
        wrong.append(f"it is {killed.described()}; left alone it is {left_alone.described()}{hint}")
    elif left_alone.value != killed.value:
        hint = CHANCE if any(map(_is_chance, left_alone.steps.values())) else ""
        wrong.append(f"its output is {killed.value!r}; left alone it is {left_alone.value!r}{hint}")
    wrong += _steps(left_alone, killed)
    if len(left_alone.children) != len(killed.children):
        wrong.append(f"it has {len(killed.children)} children; left alone it has {len(left_alone.children)}")
    for one, other in zip(left_alone.children, killed.children, strict=False):
        wrong += [f"in a child: {line}" for line in _differences(one, other)]
    return wrong


def _wants_money(outcome: Outcome) -> bool:
    return any(request["kind"] == "budget" for request in outcome.requests)


def _is_chance(step: dict[str, Any]) -> bool:
    """ctx.now, ctx.random and ctx.uuid are steps, too: the same on every replay, another if it never got that far."""
    return step.get("tool") == "code" == step.get("kind")


def effects(outcome: Outcome) -> list[str]:
    """Sentences about `once` tools that did their work again though nobody had said so."""
    wrong = [line for child in outcome.children for line in effects(child)]
    done = Counter(call.path for call in outcome.calls if call.effect == "once" and call.ended == "returned")
    for path, times in done.items():
        if times > 1 and path not in outcome.doubts:
            wrong.append(f"step {path} did its work {times} times, and nobody was asked")
    return wrong


def _failed_in_doubt(outcome: Outcome) -> bool:
    return any(outcome.steps[path]["status"] == "failed" for path in outcome.doubts)


def _steps(left_alone: Outcome, killed: Outcome) -> Iterator[str]:
    for path in dict.fromkeys([*left_alone.steps, *killed.steps]):
        was, now = (_told(outcome.steps.get(path)) for outcome in (left_alone, killed))
        if was != now and not _is_chance(killed.steps.get(path, {})):
            yield f"step {path} is {now}; left alone it is {was}"


def _told(step: dict[str, Any] | None) -> str:
    if step is None:
        return "not there"
    return f"completed with {step['output']!r}" if step["status"] == "completed" else str(step["status"])
