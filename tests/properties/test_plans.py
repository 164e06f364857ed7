"""Whatever document is handed in, reading it gives a plan or its mistakes, each with its place; nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.plan.plans import CEL, Tools, read
from holdfast.core.errors import PlanInvalid
from holdfast.core.expressions import Condition, Template
from holdfast.core.plan.model import Plan
from holdfast.core.plan.parse import PLAN_KEYS, read_extension
from holdfast.core.plan.parse_steps import STEP_KEYS
from holdfast.programs.plan_files import read_document
from holdfast.tools.json_values import encode
from properties.strategies import examples, mutated, odd_values, outcome, places, plans, steps

_PLACE = re.compile(r'(?:^|\.)([A-Za-z_][\w-]*)|\[(\d+)\]|\[("(?:\\.|[^"\\])*")\]')


def shape(value: Any) -> Any:
    """A plan as plain data, so that two of them can be compared."""
    if isinstance(value, Template):
        return ["template", value.source, value.dynamic, sorted(value.references)]
    if isinstance(value, Condition):
        return ["condition", value.text, sorted(value.references)]
    if dataclasses.is_dataclass(value):
        return {field.name: shape(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return value


def misplaced(document: Any, place: str) -> str:
    """Why a problem's place cannot be found in the document; its last part may be what is missing."""
    keys = [name or (int(number) if number else json.loads(text)) for name, number, text in _PLACE.findall(place)]
    for depth, key in enumerate(keys):
        is_last = depth == len(keys) - 1
        holds = key < len(document) if isinstance(document, list) and isinstance(key, int) else False
        if holds or (isinstance(document, dict) and key in document):
            document = document[key]
        elif not is_last:
            return f"{place}: there is no {key!r}"
    return ""


def plan_or_mistakes(document: Any) -> Plan | None:
    """The plan, or None after a look at its mistakes. Any other error goes on its way and fails the test."""
    plan = outcome(lambda: read(document), PlanInvalid)
    if not isinstance(plan, PlanInvalid):
        return plan if isinstance(plan, Plan) else None
    assert plan.problems
    for problem in plan.problems:
        assert problem.message.strip()
        if isinstance(document, dict):
            assert not misplaced(document, problem.place)
    str(plan).encode()
    return None


# Documents of the right words in the wrong places.
_WORDS = st.sampled_from(
    [
        "a",
        "b",
        "search.web",
        "child.yaml",
        "1s",
        "required",
        "ask",
        "${{ steps.a.output }}",
        "${{ item }}",
        "${{",
        "}}",
        "inputs.x",
        "string",
        "true",
        "${{ 1 + 1 }}",
    ]
)
_KEYS = st.sampled_from([*PLAN_KEYS, *STEP_KEYS, "for", "until", "event", "max", "first", "type", "default", "limit"])
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _WORDS
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=3), inner, max_size=6),
    max_leaves=25,
)
_STEP = st.dictionaries(_KEYS, _JSON, max_size=5).map(lambda step: {"id": "a", **step})
_PLAN = st.fixed_dictionaries({"name": st.just("x"), "steps": st.lists(_STEP, max_size=3)}, optional={"inputs": _JSON})


@examples(100)
@given(_JSON | _PLAN | odd_values | odd_values.map(lambda value: {"name": "report", "steps": [value]}))
def test_any_document_gives_a_plan_or_its_mistakes(document: Any) -> None:
    plan_or_mistakes(document)


@examples(60)
@given(plans)
def test_valid_plans_are_read_and_come_back_the_same_from_what_is_stored(document: dict[str, Any]) -> None:
    plan = read(document)
    stored = encode(document, "the plan")
    assert shape(read(json.loads(stored))) == shape(plan)
    assert json.loads(stored) == document


@examples(80)
@given(mutated())
def test_a_plan_with_something_changed_in_it_is_a_plan_or_has_mistakes(document: Any) -> None:
    plan = plan_or_mistakes(document)
    if plan is not None:
        assert shape(read(json.loads(encode(document, "the plan")))) == shape(plan)


@examples(20)
@given(plans, mutated(steps("x")) | steps("x"))
def test_any_extension_is_added_or_refused_with_its_mistakes(document: dict[str, Any], added: Any) -> None:
    plan = read(document)
    known = {"expressions": CEL, "tools": Tools(), "programs": lambda name: name == "child.yaml"}
    read_on = outcome(lambda: read_extension(added, plan, **known), PlanInvalid)
    assert not isinstance(read_on, PlanInvalid) or read_on.problems


_PIECES = (
    "name: a", "steps:", "  - ", "{", "}", "[", "]", "*a", "&a ", "<<: ", "? ", ": ", "!!python/x ", "!!binary ",
    "!!timestamp ", "!!int ", "!!float ", "!!set ", "!!omap ", "2026-02-30", ".inf", "0x1f", "1_000:30", "|", "\n",
    "\t",
    "'", '"', "---", "%TAG ! x", "- &b [*b]", "\x00", "\u2028", "é", "=", "~", "- ", "a: ", "1", "[1]: ", "{a: b}: ",
)  # fmt: skip
_YAML = st.lists(st.sampled_from(_PIECES) | st.text(max_size=5), max_size=12).map("".join)


@examples(120)
@given(_YAML, st.sampled_from([".yaml", ".json"]))
def test_any_file_gives_a_plan_or_its_mistakes(text: str, ending: str) -> None:
    _read_file(text.encode("utf-8", "surrogatepass"), ending)


@examples(40)
@given(st.binary(max_size=30), st.sampled_from([".yaml", ".json"]))
def test_any_bytes_give_a_plan_or_its_mistakes(content: bytes, ending: str) -> None:
    _read_file(content, ending)


@examples(25)
@given(plans, st.data())
def test_a_plan_file_that_was_cut_or_damaged_gives_a_plan_or_its_mistakes(
    plan: dict[str, Any], data: st.DataObject
) -> None:
    text = yaml.safe_dump(plan) if data.draw(st.booleans()) else json.dumps(plan)
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    _read_file(damaged.encode("utf-8", "surrogatepass"), data.draw(st.sampled_from([".yaml", ".json"])))


def _read_file(content: bytes, ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"plan{ending}"
        file.write_bytes(content)
        document = outcome(lambda: read_document(file), PlanInvalid)
    if isinstance(document, PlanInvalid):
        assert str(document).strip()
    else:
        plan_or_mistakes(document)


def test_the_strategy_reaches_every_kind_of_step() -> None:
    """What is never drawn is never tested."""
    seen: set[Any] = set()

    @examples(50)
    @given(plans)
    def look(plan: dict[str, Any]) -> None:
        seen.update(where[-1] for where in places(plan["steps"]) if where)

    look()
    assert {"tool", "steps", "wait", "start", "approval", "for_each", "retry", "when", "event"} <= seen
