"""The parts of the schema of plans that no tool changes: the keys of plans and steps, each said in a sentence."""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import quote

from holdfast.core.budget import USD_MAX
from holdfast.core.durations import DURATION_S_MAX
from holdfast.core.events import OnTimeout
from holdfast.core.inputs import INPUT_TYPES
from holdfast.core.labels import LABELS_MAX
from holdfast.core.plan.model import ID_CHARS_MAX, LIMIT_MAX, PARALLEL_MAX, RETRIES_MAX, STEPS_MAX
from holdfast.core.plan.parse import NAME_CHARS_MAX
from holdfast.core.plan.parse_action import FACTOR_MAX
from holdfast.core.plan.parse_steps import RESERVED_IDS
from holdfast.core.plan.resources import TOTAL_KEYS
from holdfast.core.policy import CHECKPOINT_EVERY_S_MIN, CHECKPOINT_STEPS_MAX, RESTS, DoubtPolicy, Effect, OnError
from holdfast.core.resources import (
    BYTES_MAX,
    CORES_MAX,
    CORES_MIN,
    CPU_S_MIN,
    MEMORY_BYTES_MIN,
    OPEN_FILES_MAX,
    OPEN_FILES_MIN,
    PROCESSES_MAX,
    SIZE_PATTERN,
)

Schema = dict[str, Any]

_BLANK = r"[ \t\n\r\f\v]*"
_DURATION = rf"^({_BLANK}[0-9]{{1,15}}(\.[0-9]{{1,9}})?{_BLANK}(ms|s|m|h|d|w){_BLANK})+$"
_ZONED = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2}([.,][0-9]+)?)?)?)\s*$"
_JSON_TYPE = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "list": "array",
    "map": "object",
}


def ref(name: str) -> Schema:
    return {"$ref": "#/$defs/" + quote(name.replace("~", "~0").replace("/", "~1"), safe=":~")}


def or_expression(schema: Schema) -> Schema:
    return {"anyOf": [schema, ref("dynamic")]}


def closed_map(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


# ---- parts -------------------------------------------------------------------------------------------------------

TEXT = ref("text")
_DURATION_OR = ref("duration")
_TIMEOUT: Schema = {"anyOf": [{"type": "string", "pattern": _DURATION}, {"type": "number", "exclusiveMinimum": 0}]}
_USD = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": USD_MAX}, {"type": "string"}]}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


def _size(least: int) -> Schema:
    return {"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, _whole(least, BYTES_MAX)]}


_RESOURCES: Schema = {
    "memory": _said(_size(MEMORY_BYTES_MIN), "Of all its processes together, such as 512MB."),
    "cpu": {
        "anyOf": [
            {"type": "string", "pattern": _DURATION},
            {"type": "number", "minimum": CPU_S_MIN, "maximum": DURATION_S_MAX},
        ],
        "description": "CPU time of all its processes together, such as 60s.",
    },
    "processes": _said(_whole(1, PROCESSES_MAX), "At the same time."),
    "open_files": _said(_whole(OPEN_FILES_MIN, OPEN_FILES_MAX), "Of each process."),
    "disk": _said(_size(1), "What it may write, such as 100MB."),
    "output": _said(_size(1), "What it may print, such as 1MB."),
    "cores": {
        "type": "number",
        "minimum": CORES_MIN,
        "maximum": CORES_MAX,
        "description": "How many cores it may use on average, such as 0.5; beyond that it is slowed down.",
    },
}


PARTS: Schema = {
    "text": {"type": "string", "pattern": r"\S"},
    "expression": {"type": "string", "pattern": r"\$\{\{"},
    "dynamic": {
        "description": "A value with ${{ … }} somewhere in it: it is known when the step is due.",
        "anyOf": [
            ref("expression"),
            {"type": "array", "contains": ref("dynamic")},
            {"type": "object", "not": {"additionalProperties": {"not": ref("dynamic")}}},
        ],
    },
    "duration": {
        "description": "Such as 250ms, 1.5s, 5m, 2h30m or 1d; a bare number is seconds.",
        "anyOf": [
            {"type": "string", "pattern": _DURATION},
            {"type": "number", "minimum": 0, "maximum": DURATION_S_MAX},
        ],
    },
    "moment": {"type": "string", "pattern": _ZONED, "description": "Such as 2030-12-01T08:00:00Z."},
    "id": {
        "type": "string",
        "pattern": "^[a-z][a-z0-9_]*$",
        "maxLength": ID_CHARS_MAX,
        "not": {"enum": sorted(RESERVED_IDS)},
    },
    "steps": {"type": "array", "minItems": 1, "maxItems": STEPS_MAX, "items": ref("step")},
    "ending": {"type": "array", "maxItems": STEPS_MAX, "items": ref("step")},
    "arguments": {"anyOf": [{"type": "object"}, ref("expression")]},
    "approval": {
        "anyOf": [
            {"type": "boolean"},
            TEXT,
            closed_map({"message": TEXT, "expires": _DURATION_OR}),
        ]
    },
    "wait": {
        "anyOf": [
            {"not": {"type": "object"}, **or_expression(_DURATION_OR)},
            closed_map(
                {
                    "for": or_expression(_DURATION_OR),
                    "until": or_expression(ref("moment")),
                    "event": TEXT,
                    "timeout": or_expression(_DURATION_OR),
                },
                oneOf=[{"required": [key]} for key in ("for", "until", "event")],
                dependentRequired={"timeout": ["event"]},
            ),
        ]
    },
    "retry": {
        "anyOf": [
            _whole(0, RETRIES_MAX),
            closed_map(
                {
                    "max": _whole(0, RETRIES_MAX),
                    "first": _DURATION_OR,
                    "factor": {"type": "number", "minimum": 1, "maximum": FACTOR_MAX},
                    "max_delay": _DURATION_OR,
                }
            ),
        ]
    },
    "resources": closed_map(_RESOURCES),
    "plan_resources": closed_map({**_RESOURCES, "total": ref("total_resources")}),
    "total_resources": closed_map(
        {name: {key: part for key, part in _RESOURCES[name].items() if key != "description"} for name in TOTAL_KEYS},
        description="What the commands of all steps of an execution may use together.",
    ),
    "input": {
        "anyOf": [
            {"enum": list(INPUT_TYPES)},
            closed_map(
                {
                    "type": {"enum": list(INPUT_TYPES)},
                    "default": {},
                    "description": TEXT,
                    "required": {"type": "boolean"},
                },
                allOf=[
                    {"if": {"required": ["default"]}, "then": {"properties": {"required": {"const": False}}}},
                    *(
                        {
                            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                            "then": {"properties": {"default": {"type": [of_json, "null"]}}},
                        }
                        for name, of_json in _JSON_TYPE.items()
                    ),
                ],
            ),
        ]
    },
}

PLAN: Schema = {
    "name": _said({**TEXT, "maxLength": NAME_CHARS_MAX}, "What the plan is called; without it, the name of the file."),
    "title": _said(TEXT, "A title for people. It may use inputs."),
    "labels": {
        "type": "object",
        "maxProperties": LABELS_MAX,
        "additionalProperties": {"type": ["string", "number", "boolean"]},
        "description": "Names and texts to find executions by. They may use inputs.",
    },
    "inputs": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": ref("input"),
        "description": "What an execution is given: a name and a type each, or a map with type, default, description.",
    },
    "steps": _said(ref("steps"), "A step needs the one before it unless it says otherwise."),
    "on_failure": _said(ref("ending"), "Steps that run when the plan failed."),
    "finally": _said(ref("ending"), "Steps that run when the plan completed or failed."),
    "output": {"description": "The execution's result; without it, the output of the last step that completed."},
    "concurrency": closed_map(
        {"key": TEXT, "limit": _whole(1, LIMIT_MAX)},
        required=["key"],
        description="At most `limit` executions with the same key run at once.",
    ),
    "max_parallel": _said(_whole(1, PARALLEL_MAX), "How many tool calls of one execution run at once."),
    "pause_timeout": _said(_DURATION_OR, "How long a pause may last; 30 days unless it says otherwise."),
    "on_pause_timeout": {"enum": list(get_args(OnTimeout)), "description": "What a pause does at its limit."},
    "budget": {
        "anyOf": [_USD, closed_map({"usd": _USD, "warn_at": _SHARE}, required=["usd"])],
        "description": "What it may spend, in US dollars, and at which share of that people are warned.",
    },
    "checkpoint": closed_map(
        {
            "every_steps": _whole(1, CHECKPOINT_STEPS_MAX),
            "every_s": {
                "anyOf": [
                    {"type": "string", "pattern": _DURATION},
                    {"type": "number", "minimum": CHECKPOINT_EVERY_S_MIN, "maximum": DURATION_S_MAX},
                ]
            },
            "on": {"anyOf": [{"enum": list(RESTS)}, {"type": "array", "items": {"enum": list(RESTS)}}]},
        },
        description="When an execution saves itself to a file.",
    ),
    "defaults": closed_map(
        {
            "critical": {"type": "boolean"},
            "on_error": {"enum": list(get_args(OnError))},
            "max_parallel": _whole(1, PARALLEL_MAX),
            "timeout": _TIMEOUT,
            "retry": ref("retry"),
            "in_doubt": {"enum": list(get_args(DoubtPolicy))},
        },
        description="What counts for each step that does not say otherwise.",
    ),
    "resources": _said(
        ref("plan_resources"), "What each step may use of the machine, unless it says otherwise; and in total."
    ),
}

STEP: Schema = {
    "id": _said(ref("id"), "Names the step in needs, in expressions and in the journal."),
    "title": _said(TEXT, "A title for people. It may use expressions."),
    "needs": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "The steps it comes after; without it, the one before. An empty list: nothing.",
    },
    "when": {
        "anyOf": [{"type": "boolean"}, TEXT],
        "description": "A condition; the step is skipped if it is false.",
    },
    "for_each": {
        "anyOf": [{"type": "array"}, ref("expression")],
        "description": "Runs the step once per item, with item and index.",
    },
    "key": _said(ref("expression"), "Names the items of for_each; without it, their index does."),
    "max_parallel": _said(_whole(1, PARALLEL_MAX), "How many items of for_each run at once."),
    "critical": {"type": "boolean", "description": "false: the plan goes on when this step fails."},
    "optional": {"type": "boolean", "description": "true: not critical, and left out when its tool is not there."},
    "tool": _said(TEXT, "The tool to call."),
    "with": _said(ref("arguments"), "The arguments of the tool, or the inputs of the child."),
    "fallback": _said(ref("fallback"), "Other tools, tried in order after the retries."),
    "timeout": _said(_TIMEOUT, "How long an attempt may take; an hour unless it says otherwise."),
    "retry": _said(ref("retry"), "Tries after the first one, with growing delays."),
    "cache": {
        "anyOf": [{"type": "boolean"}, _DURATION_OR],
        "description": "Reuse the output of a read step with the same input: true (a day), or a duration.",
    },
    "effect": {"enum": list(get_args(Effect)), "description": "In place of the tool's own."},
    "in_doubt": {"enum": list(get_args(DoubtPolicy)), "description": "When a once step may or may not have happened."},
    "on_error": {"enum": list(get_args(OnError)), "description": "When no retry can mend it."},
    "undoes": {
        "anyOf": [ref("id"), {"type": "array", "items": ref("id")}],
        "description": "The steps that it takes back: a retry runs them again.",
    },
    "approval": _said(ref("approval"), "A person must agree first; alone, a step that is nothing but that."),
    "resources": _said(ref("resources"), "What its commands, or a tool of yours, may use of the machine."),
    "steps": _said(ref("steps"), "A plan within the plan."),
    "output": {"description": "The output of the plan within the plan."},
    "wait": _said(ref("wait"), "A duration, or one of for, until and event."),
    "start": {
        **TEXT,
        "not": ref("expression"),
        "description": "A child execution: a plan file or the name of a function.",
    },
}
