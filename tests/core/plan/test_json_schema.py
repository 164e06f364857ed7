"""The schema of plans: valid itself, as lenient as the reader, and strict where an editor can be."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.plan.plans import SCHEMA, mistakes, plan, read, schema_mistakes, tool
from holdfast.core.errors import PlanInvalid
from holdfast.core.plan.json_schema import ToolShape, plan_schema
from holdfast.tools.human import asking
from holdfast.tools.registry import Registry
from holdfast.tools.tool import tool as make_tool
from properties.strategies import examples, json_values, mutated, outcome, plans


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    schema = plan_schema({})
    Draft202012Validator.check_schema(schema)
    Draft202012Validator.check_schema(SCHEMA.schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


WRONG: list[object] = [
    "text",
    {"name": "no steps"},
    {"name": "", "steps": [tool()]},
    {"name": "x" * 201, "steps": [tool()]},
    plan(),
    plan(tool(), nmae="typo"),
    plan(tool(), title=3),
    plan(tool(), labels={"team": None}),
    plan(tool(), inputs=["topic"]),
    plan(tool(), inputs={"two words": "string"}),
    plan(tool(), inputs={"topic": "text"}),
    plan(tool(), inputs={"topic": {"type": "string", "default": 3}}),
    plan(tool(), inputs={"topic": {"default": "x", "required": True}}),
    plan(tool(), inputs={"topic": {"typ": "string"}}),
    plan(tool(), concurrency={"limit": 2}),
    plan(tool(), concurrency={"key": "x", "limit": 0}),
    plan(tool(), pause_timeout="soon"),
    plan(tool(), on_pause_timeout="explode"),
    plan("search"),
    plan({"tool": "search.web"}),
    plan(tool("Big Words")),
    plan(tool("in")),
    plan({"id": "nothing"}),
    plan({"id": "no", "approval": False}),
    plan({"id": "both", "tool": "search.web", "wait": "1s"}),
    plan({"id": "misplaced", "wait": "1s", "timeout": "3s"}),
    plan(tool(tools="typo")),
    plan(tool(tool="serach.web")),
    plan(tool(**{"with": {"ulr": "x"}})),
    plan(tool(**{"with": {"url": 3}})),
    plan(tool(**{"with": "no map"})),
    plan(tool(needs=3)),
    plan(tool(when=3)),
    plan(tool(for_each="list")),
    plan(tool(key="${{ item }}")),
    plan(tool(for_each=[1], key="same")),
    plan(tool(for_each=[1], max_parallel=0)),
    plan(tool(critical="yes")),
    plan(tool(timeout=0)),
    plan(tool(timeout="-1s")),
    plan(tool(retry=-1)),
    plan(tool(retry={"times": 3})),
    plan(tool(cache="tomorrow")),
    plan(tool(effect="twice")),
    plan(tool(in_doubt="guess")),
    plan(tool(on_error="panic")),
    plan(tool(approval="")),
    plan(tool(approval={"expires": "never"})),
    plan(tool(fallback="no.such")),
    plan(tool(fallback={"with": {}})),
    plan(tool(fallback=["http.get"] * 11)),
    plan({"id": "w", "wait": {}}),
    plan({"id": "w", "wait": {"for": "1s", "event": "x"}}),
    plan({"id": "w", "wait": {"for": "1s", "timeout": "1s"}}),
    plan({"id": "w", "wait": {"until": "2030-01-01T08:00:00"}}),
    plan({"id": "w", "wait": "a while"}),
    plan({"id": "c", "start": "${{ inputs.x }}"}),
    plan({"id": "n", "steps": []}),
    plan({"id": "n", "steps": [{"id": "inner"}]}),
]


@pytest.mark.parametrize("document", WRONG, ids=str)
def test_a_wrong_plan_is_refused_by_the_schema_as_by_the_reader(document: object) -> None:
    assert mistakes(document)
    assert schema_mistakes(document)


RIGHT: list[object] = [
    plan(tool(optional=True, tool="not.here", fallback="nor.this")),
    plan(tool(**{"with": "${{ {'url': 'x'} }}"})),
    plan(tool(**{"with": {"url": {"deep": ["${{ 1 }}"]}}})),
    plan(tool(fallback=["http.get", {"tool": "files.write", "with": {"path": "x", "text": "y"}}])),
    plan({"id": "w", "wait": "${{ '1s' }}"}, {"id": "v", "wait": {"until": "${{ '2030-01-01T08:00:00Z' }}"}}),
    plan(tool(approval=False), on_failure=[], **{"finally": []}),
]


@pytest.mark.parametrize("document", RIGHT, ids=str)
def test_what_the_reader_accepts_the_schema_accepts(document: object) -> None:
    read(document)  # which compares the two


@examples(60)
@given(plans | mutated())
def test_no_plan_that_the_reader_accepts_fails_against_the_schema(document: Any) -> None:
    outcome(lambda: read(document), PlanInvalid)  # which compares the two


# ---- tools -----------------------------------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    label: str = ""


@dataclasses.dataclass
class Tree:
    name: str
    parts: list[Tree] = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    inner: dict[str, int] = {}
    point: tuple[int, int] | None = None


KINDS: list[Any] = [
    str, int, float, bool, None, list[int], dict[str, float], tuple[int, str], set[str], int | None, str | list[int],
    Literal["a", "b"], Point, Tree, Model, Path, bytes, datetime.datetime, datetime.timedelta, Any,
]  # fmt: skip


def schema_with(kind: Any) -> tuple[Registry, Draft202012Validator]:
    def takes(value: Any, more: Any = None) -> None: ...

    takes.__annotations__ = {"value": kind, "more": kind | None if isinstance(kind, type) else Any, "return": None}
    registry = Registry()
    registry.add(make_tool(takes))
    shape = ToolShape("", registry.get("takes").schema())
    return registry, Draft202012Validator(plan_schema({"takes": shape}))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arguments_that_a_tool_takes_fit_its_schema(kind: Any) -> None:
    registry, validator = schema_with(kind)
    telling = st.sampled_from(
        ["a", "2030-01-01T08:00:00Z", "P1D", "aGk=", {"x": 1}, {"x": 1, "label": "b"}, {"name": "oak", "parts": []},
         {"name": "oak", "parts": [{"name": "twig"}]}, {"inner": {"a": 1}, "point": [1, 2]}, [1, 2], [1, "x"], 3, 2.5]
    )  # fmt: skip

    @examples(40)
    @given(json_values | telling)
    def agree(value: Any) -> None:
        arguments = {"value": value}
        if registry.check("takes", arguments, frozenset()) or "${{" in str(value):
            return
        document = plan({"id": "a", "tool": "takes", "with": arguments})
        assert [error.message for error in validator.iter_errors(document)] == []

    agree()


def test_definitions_of_a_tool_are_found_and_expressions_may_stand_in_their_place() -> None:
    _, validator = schema_with(Tree)

    def fits(value: object) -> bool:
        return validator.is_valid(plan({"id": "a", "tool": "takes", "with": {"value": value}}))

    assert fits({"name": "oak", "parts": [{"name": "twig"}]})
    assert not fits({"name": "oak", "parts": [{"name": 3}]})
    assert not fits({"name": "oak", "parts": [3]})
    assert fits({"name": "oak", "parts": "${{ inputs.parts }}"})
    assert fits("${{ inputs.tree }}")


def test_a_tool_that_needs_arguments_is_refused_without_them() -> None:
    _, validator = schema_with(int)
    assert not validator.is_valid(plan({"id": "a", "tool": "takes"}))
    assert not validator.is_valid(plan({"id": "a", "tool": "takes", "with": {"more": 3}}))
    assert validator.is_valid(plan({"id": "a", "tool": "takes", "with": {"value": 3}}))


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"with": {"question": "?", "form": {"a": "string", "b": {"type": "integer", "choices": [1]}}}}, True),
        ({"with": {"question": "?", "form": {"a": {"tpye": "string"}}}}, False),
        ({"with": {"question": "?", "form": "${{ inputs.form }}", "expires": "2d"}}, True),
        ({"with": {}}, False),
        ({"timeout": 5}, False),
        ({"fallback": "human.ask"}, False),
    ],
)
def test_a_question_is_checked_while_it_is_typed(changed: dict[str, Any], fits: bool) -> None:
    shape = ToolShape(asking.description, asking.schema())
    validator = Draft202012Validator(plan_schema({"human.ask": shape}))
    document = plan({"id": "a", "tool": "human.ask", "with": {"question": "?"}, **changed})
    assert validator.is_valid(document) is fits
