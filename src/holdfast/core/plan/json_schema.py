"""The JSON Schema (2020-12) of plans, with the tools there are: what an editor needs to complete and check them.

Whatever the reader accepts, the schema accepts. It knows less than the reader: not whether an id is taken, a step has
ended, an expression compiles or a child exists. So it helps while one types, and `holdfast check` has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from holdfast.core.forms import ASK
from holdfast.core.plan.json_schema_parts import PARTS, PLAN, STEP, TEXT, Schema, closed_map, or_expression, ref
from holdfast.core.plan.parse_action import ACTING
from holdfast.core.plan.parse_steps import COMMON_KEYS, KEYS_OF, KIND_OF, STEP_KEYS
from holdfast.core.policy import FALLBACKS_MAX

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ToolShape(NamedTuple):
    """A tool as an editor sees it: what it does, and its arguments as a JSON Schema with definitions of its own."""

    description: str
    arguments: Mapping[str, Any]


def plan_schema(tools: Mapping[str, ToolShape]) -> Schema:
    names = sorted(tools)
    return {
        "$schema": DIALECT,
        "title": "A plan of Holdfast",
        "type": "object",
        "required": ["steps"],
        "additionalProperties": False,
        "properties": PLAN,
        "$defs": {
            **PARTS,
            "step": _step(names, tools),
            "typed": {"allOf": [{}, *(_typed(name) for name in names)]},  # an empty list would be no schema
            "fallback": _fallback({}),
            "known_fallback": _fallback({"enum": [name for name in names if name != ASK]}),
            **{f"with:{name}": _arguments(name, tools[name]) for name in names},
        },
    }


def _step(names: list[str], tools: Mapping[str, ToolShape]) -> Schema:
    return closed_map(
        {key: STEP[key] for key in STEP_KEYS},
        required=["id"],
        dependentRequired={"key": ["for_each"], "max_parallel": ["for_each"]},
        allOf=[
            *({"if": {"required": [key]}, "then": {"properties": _refused(kind)}} for key, kind in KIND_OF.items()),
            _approval_alone(),
            _known_tool(names),
            ref("typed"),
            _asking(),
            *(_wants_arguments(name) for name in names if tools[name].arguments.get("required")),
        ],
    )


def _refused(kind: Any) -> Schema:
    """The keys that go with another kind of step."""
    return {key: False for key in STEP_KEYS if key not in (*COMMON_KEYS, *KEYS_OF[kind])}


def _approval_alone() -> Schema:
    return {
        "if": {"not": {"anyOf": [{"required": [key]} for key in KIND_OF]}},
        "then": {
            "required": ["approval"],
            "properties": {**_refused("approval"), "approval": {"not": {"const": False}}},
        },
    }


def _known_tool(names: list[str]) -> Schema:
    """A step that is not optional needs tools that are there."""
    return {
        "if": {"properties": {"optional": {"const": True}}, "required": ["optional"]},
        "else": {"properties": {"tool": {"enum": names}, "fallback": ref("known_fallback")}},
    }


def _asking() -> Schema:
    """A step that asks a person has nothing of what tools that act may have."""
    return {"if": _if_tool(ASK), "then": {"properties": dict.fromkeys(ACTING, False)}}


def _if_tool(name: str) -> Schema:
    return {"properties": {"tool": {"const": name}}, "required": ["tool"]}


def _typed(name: str) -> Schema:
    return {"if": _if_tool(name), "then": {"properties": {"with": ref(f"with:{name}")}}}


def _wants_arguments(name: str) -> Schema:
    return {"if": _if_tool(name), "then": {"required": ["with"]}}


def _fallback(tool: Schema) -> Schema:
    """A tool, or a tool with arguments of its own, or a list of those."""
    own = closed_map({"tool": {**TEXT, **tool}, "with": ref("arguments")}, required=["tool"], allOf=[ref("typed")])
    one = {"anyOf": [{**TEXT, **tool}, own]}
    return {"anyOf": [*one["anyOf"], {"type": "array", "maxItems": FALLBACKS_MAX, "items": one}]}


def _arguments(name: str, tool: ToolShape) -> Schema:
    """A tool's own schema, in which every argument may be an expression instead, or hold one."""
    schema = _moved(dict(tool.arguments), f"{ref(f'with:{name}')['$ref']}/$defs/")
    own = {key: or_expression(value) for key, value in schema.pop("properties", {}).items()}
    definitions = schema.pop("$defs", None)
    described: Schema = {
        "description": tool.description,
        "anyOf": [{**schema, "properties": own}, ref("expression")],
    }
    return {**described, "$defs": definitions} if definitions else described


def _moved(schema: Any, to: str) -> Any:
    """References that began at the top of the tool's schema begin at the top of the plan's."""
    if isinstance(schema, list):
        return [_moved(item, to) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved: Schema = {key: _moved(value, to) for key, value in cast("Schema", schema).items()}
    if isinstance(moved.get("$ref"), str):
        moved["$ref"] = moved["$ref"].replace("#/$defs/", to, 1)
    return moved
