"""What the tests of plans share: a catalog of three tools, and short ways to read a plan or its mistakes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jsonschema import Draft202012Validator

from holdfast.core.errors import PlanInvalid
from holdfast.core.plan.fields import Problems, plain_json
from holdfast.core.plan.json_schema import ToolShape, plan_schema
from holdfast.core.plan.model import Plan, PlanStep
from holdfast.core.plan.parse import read_extension, read_plan
from holdfast.programs.cel import Cel

CEL = Cel()


class Tools:
    """Each tool takes texts: `files.write` a path and a text, the others a url."""

    def __init__(self) -> None:
        self.arguments = {"search.web": {"url"}, "http.get": {"url"}, "files.write": {"path", "text"}}

    def names(self) -> Collection[str]:
        return self.arguments

    def why_absent(self, name: str) -> str:
        return ""

    def fallbacks_of(self, name: str) -> tuple[str, ...]:
        return ()

    def check(self, tool: str, arguments: Mapping[str, Any], dynamic: frozenset[str]) -> list[tuple[str, str]]:
        known = self.arguments[tool]
        wrong = [(name, "unknown argument") for name in arguments if name not in known]
        for name, value in arguments.items():
            if name in known and name not in dynamic and not isinstance(value, str):
                wrong.append((name, "expected a string"))
        return wrong


def _shape(*names: str) -> ToolShape:
    texts = {name: {"type": "string"} for name in names}
    return ToolShape("", {"type": "object", "properties": texts, "additionalProperties": False})


SCHEMA = Draft202012Validator(
    plan_schema({"search.web": _shape("url"), "http.get": _shape("url"), "files.write": _shape("path", "text")})
)


def read(source: object, **options: Any) -> Plan:
    """Also holds the schema to its promise: what the reader accepts, it accepts."""
    plan = read_plan(source, expressions=CEL, tools=Tools(), programs=lambda name: name == "child.yaml", **options)
    if len(plan.steps) < 1000:  # it looks at every step many times over
        assert schema_mistakes(source) == []
    return plan


def schema_mistakes(source: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in SCHEMA.iter_errors(plain_json(source, Problems()))]


def mistakes(source: object, **options: Any) -> list[str]:
    try:
        read(source, **options)
    except PlanInvalid as error:
        return [str(problem) for problem in error.problems]
    return []


def plan(*steps: object, **others: object) -> dict[str, Any]:
    return {"name": "report", "steps": list(steps), **others}


def tool(name: str = "search", /, **others: object) -> dict[str, object]:
    return {"id": name, "tool": "search.web", **others}


def step(source: object) -> PlanStep:
    return read(plan(source)).steps[0]


def step_mistakes(source: object) -> list[str]:
    return mistakes(plan(source))


def extend(before: Plan, *steps: object) -> tuple[PlanStep, ...]:
    return read_extension(list(steps), before, expressions=CEL, tools=Tools())
