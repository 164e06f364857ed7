"""What the property tests draw from: JSON, plans that are valid, plans that were, and how many examples are tried."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

T = TypeVar("T")

# `make prove` sets this to try more of everything.
FACTOR = float(os.environ.get("HOLDFAST_EXAMPLES", "0.5"))


def examples(number: int) -> settings:
    """Half as many examples in the daily run, and a multiple of them in the whole proof."""
    return settings(max_examples=max(1, int(number * FACTOR)))


def outcome(work: Callable[[], T], *documented: type[Exception]) -> T | Exception:
    """What `work` gives, or the documented error it raises. Any other goes on its way and fails the test."""
    try:
        return work()
    except documented as error:
        return error


texts = st.text(max_size=20)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
# What no JSON holds, but a YAML file or a Python caller may hand in.
odd_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=5)
    | st.dates()
    | st.datetimes()
    | st.sets(st.integers(), max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.none() | st.integers() | texts, inner, max_size=3),
    max_leaves=10,
)

# ---- plans that are valid --------------------------------------------------------------------------------------

durations = st.sampled_from(["250ms", "1.5s", "2h30m", "1d", 0, 3, 0.5])
INPUTS = {"topic": "string", "count": {"type": "integer", "default": 3}, "urls": {"type": "list", "default": []}}


@st.composite
def steps(draw: st.DrawFn, prefix: str = "s", depth: int = 0) -> list[dict[str, Any]]:
    """A list of steps. Each may need any before it, and its expressions name only what it needs."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4 if depth == 0 else 2))):
        before = [one["id"] for one in found]
        needs = draw(st.none() | st.lists(st.sampled_from(before), unique=True)) if before else None
        step: dict[str, Any] = {"id": f"{prefix}{number}"}
        if needs is not None:
            step["needs"] = needs
        ended = before[-1:] if needs is None else needs
        step |= draw(_doing(f"{step['id']}_", depth, _values(ended)))
        step |= draw(_common(ended))
        found.append(step)
    return found


def _values(ended: list[str]) -> st.SearchStrategy[str]:
    """A text, with or without expressions in it."""
    names = ["inputs.topic", "inputs.count + 1", "string(inputs.count)", *(f"steps.{one}.output" for one in ended)]
    return st.sampled_from(
        ["plain", "a $ and a }}", *(f"${{{{ {name} }}}}" for name in names), "x ${{ inputs.topic }}"]
    )


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each of these fields, or not."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def _doing(draw: st.DrawFn, prefix: str, depth: int, value: st.SearchStrategy[str]) -> dict[str, Any]:
    match draw(st.sampled_from(["tool", "write", "wait", "start", "approval", *(["steps"] * (depth < 2))])):
        case "tool":
            own = {"tool": draw(st.sampled_from(["search.web", "http.get"])), "with": {"url": draw(value)}}
            return own | draw(_policy(value))
        case "write":
            return {"tool": "files.write", "with": {"path": draw(value), "text": draw(value)}} | draw(_policy(value))
        case "wait":
            spec = st.one_of(
                durations,
                st.builds(lambda d: {"for": d}, durations),
                st.just({"until": "2026-12-01T08:00:00Z"}),
                st.builds(lambda name, limit: {"event": name, "timeout": limit}, value, durations),
            )
            return {"wait": draw(spec)}
        case "start":
            return {"start": "child.yaml", "with": {"topic": draw(value)}}
        case "steps":
            return {"steps": draw(steps(prefix, depth + 1))}
        case _:
            return {
                "approval": draw(st.sampled_from([True, "required", "Really?", {"message": "Sure?", "expires": "1h"}]))
            }


def _policy(value: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return _some(
        timeout=st.sampled_from(["1s", 5, "2h"]),
        retry=st.integers(0, 1000) | _some(max=st.integers(0, 5), first=durations, factor=st.floats(1, 100)),
        cache=st.booleans() | durations,
        effect=st.sampled_from(["read", "idempotent", "once"]),
        in_doubt=st.sampled_from(["ask", "verify", "retry", "fail"]),
        on_error=st.sampled_from(["ask", "fail"]),
        approval=st.sampled_from([True, False, "required", {"expires": "1d"}]),
    )


def _common(ended: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    conditions = [True, False, "${{ inputs.count > 3 }}", "inputs.topic == 'tides'"]
    conditions += [f"${{{{ steps.{one}.status == 'completed' }}}}" for one in ended]
    many = st.builds(
        lambda items, more: {"for_each": items, **more},
        st.sampled_from([[1, 2], [], "${{ inputs.urls }}"]),
        _some(key=st.sampled_from(["${{ item }}", "${{ string(index) }}"]), max_parallel=st.integers(1, 1000)),
    )
    rest = _some(title=texts.filter(lambda text: text.strip() and "${{" not in text), when=st.sampled_from(conditions),
                 critical=st.booleans(), optional=st.booleans())  # fmt: skip
    return st.builds(lambda left, right: {**left, **right}, many | st.just({}), rest)


plans: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda own, more: {"name": "report", "inputs": INPUTS, "steps": own, **more},
    steps(),
    _some(
        title=st.just("Report on ${{ inputs.topic }}"),
        labels=st.dictionaries(
            st.sampled_from(["team", "env/stage"]), st.sampled_from(["sea", 3, "${{ inputs.topic }}"])
        ),
        output=st.sampled_from(["${{ steps.s0.output }}", {"all": ["${{ inputs.count }}"]}, None]),
        finally_=steps("f"),
        on_failure=steps("e"),
        concurrency=st.just({"key": "reports", "limit": 2}),
        pause_timeout=durations,
        budget=st.floats(0.01, 1000)
        | st.fixed_dictionaries({"usd": st.floats(0.01, 9)}, optional={"warn_at": st.just(0.5)}),
        checkpoint=st.fixed_dictionaries(
            {},
            optional={
                "every_steps": st.integers(1, 50),
                "every_s": st.sampled_from(["5m", 60, "1h"]),
                "on": st.lists(st.sampled_from(["pause", "interrupt", "end"])),
            },
        ),
        on_pause_timeout=st.sampled_from(["stop", "resume"]),
    ),
).map(lambda plan: {key.rstrip("_"): value for key, value in plan.items()})


# ---- plans that were valid -------------------------------------------------------------------------------------


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, as the keys that lead there."""
    found = [here]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        found += places(item, (*here, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, originals: st.SearchStrategy[Any] = plans) -> Any:
    """A valid plan with one thing in it replaced, removed, doubled or renamed."""
    plan = copy.deepcopy(draw(originals))
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from(places(plan)))
        if not where:
            return draw(json_values)
        parent = plan
        for key in where[:-1]:
            parent = parent[key]
        _mutate(draw, parent, where[-1])
    return plan


def _mutate(draw: st.DrawFn, parent: Any, key: Any) -> None:
    match draw(st.sampled_from(["replace", "remove", "double", "rename"])):
        case "replace":
            parent[key] = draw(json_values | st.sampled_from(["${{", "${{ }}", "${{ steps.nowhere }}", "${{ 1 / 0 }}"]))
        case "remove":
            del parent[key]
        case "double" if isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        case _ if isinstance(parent, dict):
            parent[draw(texts | st.sampled_from(["id", "tool", "needs", "with", "wait"]))] = parent.pop(key)
        case _:
            parent[key] = None
