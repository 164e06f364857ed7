"""What an execution is given: the inputs a program declares, and the check of given values against them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.core.error_text import describe_value, did_you_mean
from holdfast.core.errors import InputInvalid, Problem

InputType = Literal["string", "number", "integer", "boolean", "list", "map", "any"]
INPUT_TYPES: tuple[str, ...] = get_args(InputType)

_CALLED: dict[str, str] = {
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "map": "a map",
    "any": "a value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One declared input. One that is not required and not given takes its default, which is null unless said."""

    type: InputType = "any"
    required: bool = True
    default: Any = None
    description: str = ""


def check_inputs(specs: Mapping[str, InputSpec], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Every declared input with its value, and every mistake at once."""
    problems: list[Problem] = []
    for name in given:
        if name not in specs:
            known = did_you_mean(name, specs) or (f"; there are: {', '.join(specs)}" if specs else "; there are none")
            problems.append(Problem(f"inputs.{name}", f"no such input{known}"))
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if name in given:
            values[name] = given[name]
            message = mismatch(spec, given[name])
            if message:
                problems.append(Problem(f"inputs.{name}", message))
        elif spec.required:
            about = f" ({spec.description})" if spec.description else ""
            problems.append(Problem(f"inputs.{name}", f"missing; expected {_CALLED[spec.type]}{about}"))
        else:
            values[name] = spec.default
    return values, problems


def mismatch(spec: InputSpec, value: Any) -> str:
    """What is wrong with a value, or nothing."""
    if value is None and not spec.required:
        return ""
    return "" if _fits(spec.type, value) else f"expected {_CALLED[spec.type]}, got {describe_value(value)}"


def _fits(kind: InputType, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "map":
            return isinstance(value, dict)
        case "any":
            return True


def parse_cli_input(spec: InputSpec | None, text: str) -> Any:
    """A value from the command line, where everything is text. Raises `InputInvalid`."""
    if spec is None or spec.type == "string":
        return text
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if spec.type == "any":
            return text
        value = text
    message = mismatch(spec, value)
    if message:
        hint = "; write it as JSON" if spec.type in ("list", "map") else ""
        raise InputInvalid(message + hint)
    return value


def parse_cli_inputs(
    specs: Mapping[str, InputSpec], texts: Mapping[str, str], beside: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[Problem]]:
    """The values of texts from the command line; if one does not fit, every mistake at once.

    `beside` is what is given in another way; None if what is not given has a value already, and so nothing is missing.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in texts.items():
        try:
            values[name] = parse_cli_input(specs.get(name), text)
        except InputInvalid as error:
            values[name] = text
            problems.append(Problem(f"inputs.{name}", str(error)))
    if problems:
        told = {problem.place for problem in problems}
        asked = None if beside is not None else {f"inputs.{name}" for name in texts}
        _, others = check_inputs(specs, {**(beside or {}), **values})
        problems += [other for other in others if other.place not in told and (asked is None or other.place in asked)]
    return values, problems


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
