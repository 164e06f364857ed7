"""What a plan's expressions can be known to get wrong before it starts: fields that a tool does not give, wrong types.

Owns what is known of each value: declared inputs, and what tools declare that they return. Where nothing is declared,
nothing is said. What is a mistake here would fail whenever it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.errors import NotFound, Problem, UsageError
from holdfast.core.expressions import PathUsed, paths_of, place_of, split_template
from holdfast.core.plan.model import Plan, PlanStep
from holdfast.programs.cel import Cel
from holdfast.tools.parameter_types import schema_of
from holdfast.tools.registry import Registry

Shape = Mapping[str, Any]  # a JSON Schema; empty where nothing is known

_SCALARS = ("string", "integer", "boolean")
_TYPES = {"list": "array", "map": "object"}
_CALLED = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a map", "null": "null",
}  # fmt: skip
_FAILURE: Shape = {
    "type": "object",
    "properties": {"category": {"type": "string"}, "message": {"type": "string"}, "status": {"type": "integer"}},
}


class Used(NamedTuple):
    """An expression at its place; `alone` if the value is nothing but it, and so keeps its type."""

    place: str
    text: str
    alone: bool


def type_mistakes(plan: Plan, registry: Registry, cel: Cel) -> list[Problem]:
    """Every mistake with its place."""
    return _Checker(registry, cel).check(plan)


def unsafe_reads(plan: Plan) -> list[Problem]:
    """Fields read from the output of a step that may have failed, where nothing asks whether it did."""
    found = list(_unsafe(plan.steps, "steps", frozenset()))
    ids = frozenset(step.id for step in plan.steps)
    for name, steps in (("on_failure", plan.on_failure), ("finally", plan.finally_)):
        found += _unsafe(steps, name, ids)
    return found


class _Checker:
    def __init__(self, registry: Registry, cel: Cel) -> None:
        self._registry = registry
        self._cel = cel
        self._problems: list[Problem] = []
        self._outputs: dict[str, Shape] = {}

    def check(self, plan: Plan) -> list[Problem]:
        known: dict[str, Shape] = {
            f"inputs.{name}": {"type": _TYPES.get(spec.type, spec.type)}
            for name, spec in plan.inputs.items()
            if spec.type != "any" and (spec.required or spec.default is not None)
        }
        after = self._steps(plan.steps, "steps", known)
        for name, steps in (("on_failure", plan.on_failure), ("finally", plan.finally_)):
            self._steps(steps, name, after)
        if plan.output is not None:
            self._expressions(used_in(plan.output.source, "output"), after)
        return self._problems

    def _steps(self, steps: Sequence[PlanStep], place: str, known: dict[str, Shape]) -> dict[str, Shape]:
        here = {**known, **{f"steps.{step.id}": self._seen(step) for step in steps}}
        for index, step in enumerate(steps):
            self._step(step, f"{place}[{index}]", here)
        return here

    def _step(self, step: PlanStep, place: str, known: dict[str, Shape]) -> None:
        if step.when is not None and step.when.uses:
            self._wanted(Used(f"{place}.when", step.when.text, alone=True), known, "boolean")
        inner = known
        if step.for_each is not None:
            items: Shape = {}
            for used in used_in(step.for_each.items.source, f"{place}.for_each"):
                shape = self._wanted(used, known, "array" if used.place == f"{place}.for_each" else "")
                items = shape.get("items", {}) if used.alone and used.place == f"{place}.for_each" else {}
            inner = {**known, "item": items}
        self._expressions(_of_step(step, place), inner)
        if step.steps:
            after = self._steps(step.steps, f"{place}.steps", inner)
            if step.output is not None:
                self._expressions(used_in(step.output.source, f"{place}.output"), after)

    def _expressions(self, used: Iterator[Used], known: Mapping[str, Shape]) -> None:
        for one in used:
            self._wanted(one, known, "")

    def _wanted(self, used: Used, known: Mapping[str, Shape], wanted: str) -> Shape:
        """What an expression gives, as far as that is known; `wanted` is what it must give."""
        scalars: dict[str, str] = {}
        shape: Shape = {}
        for path in paths_of(used.text):
            shape, wrong = _followed(path, known)
            if wrong:
                self._problems.append(Problem(used.place, f"${{{{ {used.text} }}}}: {wrong}"))
                return {}
            names = [part for part in path.parts if isinstance(part, str)]
            if len(names) == len(path.parts) and shape.get("type") in _SCALARS:
                scalars[".".join(names)] = shape["type"]
            if path.text == used.text:
                return self._is_wanted(used, shape, wanted)
        if any(path.is_tested for path in paths_of(used.text)):
            scalars = {}  # has() asks a map for a field, and not for a variable
        if not scalars and not wanted:
            return {}
        wrong, kind = self._cel.judge(used.text, scalars)
        if wrong:
            self._problems.append(Problem(used.place, f"${{{{ {used.text} }}}}: {wrong}"))
            return {}
        return self._is_wanted(used, {"type": kind} if kind else {}, wanted)

    def _is_wanted(self, used: Used, shape: Shape, wanted: str) -> Shape:
        kind = shape.get("type")
        if wanted and used.alone and isinstance(kind, str) and kind != wanted:
            hint = ""
            if wanted == "array" and kind == "string":
                hint = '; make a list of it, with json(…) or .split("\\n")'
            said = f"expected {_CALLED[wanted]}, and this is {_CALLED.get(kind, kind)}{hint}"
            self._problems.append(Problem(used.place, f"${{{{ {used.text} }}}}: {said}"))
        return shape

    def _seen(self, step: PlanStep) -> Shape:
        """A step as later expressions see it."""
        output = self._output(step)
        if step.for_each is not None:
            items: Shape = output if step.critical else {}
            output = {"type": "array", "items": items}
        properties: dict[str, Shape] = {
            "output": output,
            "status": {"type": "string"},
            "error": {},
            "failure": _FAILURE,
        }
        return {"type": "object", "properties": properties}

    def _output(self, step: PlanStep) -> Shape:
        if step.kind != "tool" or step.fallbacks or step.tool not in self._registry.names():
            return {}
        if self._registry.fallbacks_of(step.tool):
            return {}
        if step.tool not in self._outputs:
            self._outputs[step.tool] = _declared(lambda: self._registry.get(step.tool).signature.return_type)
        return self._outputs[step.tool]


def _declared(returns: Callable[[], Any]) -> Shape:
    definitions: dict[str, Any] = {}
    try:
        return _resolved(schema_of(returns(), definitions), definitions, 4)
    except (TypeError, NotFound, UsageError, msgspec.MsgspecError, RecursionError):
        return {}


def _resolved(shape: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    """Without references, as deep as anybody reads."""
    if isinstance(shape, list):
        return [_resolved(one, definitions, depth) for one in cast("list[Any]", shape)]
    if not isinstance(shape, dict):
        return shape
    known = cast("dict[str, Any]", shape)
    if "$ref" in known:
        found = definitions.get(known["$ref"].rpartition("/")[2]) if depth else None
        return _resolved(found, definitions, depth - 1) if found is not None else {}
    return {key: _resolved(value, definitions, depth) for key, value in known.items()}


def _followed(path: PathUsed, known: Mapping[str, Shape]) -> tuple[Shape, str]:
    """What stands at the end of a path, or why nothing can."""
    parts = path.parts
    start = 2 if parts[0] in ("inputs", "steps") else 1
    name = ".".join(map(str, parts[:start]))
    shape: Shape = known.get(name, {})
    for part in parts[start:]:
        kind = shape.get("type")
        if kind == "array" and isinstance(part, int):
            shape = _as_shape(shape.get("items"))
        elif kind == "object" and isinstance(part, str):
            properties: Mapping[str, Any] = shape.get("properties") or {}
            if part in properties:
                shape = _as_shape(properties[part])
            elif properties and not shape.get("additionalProperties"):
                return {}, f"{name} has no field {quoted(part)}{did_you_mean(part, properties) or _there(properties)}"
            else:
                shape = _as_shape(shape.get("additionalProperties"))
        elif kind == "array":
            return {}, f"{name} is a list and has no field {quoted(str(part))}; name an item, as {name}[0], or use map"
        elif kind in ("string", "integer", "number", "boolean"):
            return {}, f"{name} is {_CALLED[kind]} and has no field or item {quoted(str(part))}"
        else:
            return {}, ""
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return shape, ""


def _as_shape(found: Any) -> Shape:
    return cast("Shape", found) if isinstance(found, dict) else {}


def _there(properties: Mapping[str, Any]) -> str:
    return f"; there are: {', '.join(properties)}"


# ---- where expressions are ---------------------------------------------------------------------------------------


def used_in(value: Any, place: str) -> Iterator[Used]:
    match value:
        case str() if "${{" in value:
            pieces = split_template(value)
            for is_one, text in pieces if isinstance(pieces, list) else ():
                if is_one and "secrets." not in text:
                    yield Used(place, text.strip(), alone=len(pieces) == 1)
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield from used_in(item, place_of(place, key))
        case list():
            for index, item in enumerate(cast("list[Any]", value)):
                yield from used_in(item, f"{place}[{index}]")
        case _:
            return


def _of_step(step: PlanStep, place: str) -> Iterator[Used]:
    """Of its arguments, title, key, wait and approval."""
    yield from used_in(step.arguments.source, f"{place}.with")
    yield from used_in(step.title.source, f"{place}.title")
    for index, other in enumerate(step.fallbacks):
        if other.arguments is not None:
            yield from used_in(other.arguments.source, f"{place}.fallback[{index}].with")
    if step.for_each is not None and step.for_each.key is not None:
        yield from used_in(step.for_each.key.source, f"{place}.key")
    if step.approval is not None:
        yield from used_in(step.approval.message.source, f"{place}.approval")
    for part in (step.wait.duration, step.wait.until, step.wait.event, step.wait.timeout) if step.wait else ():
        if part is not None:
            yield from used_in(part.source, f"{place}.wait")


def _unsafe(steps: Sequence[PlanStep], place: str, lost: frozenset[str]) -> Iterator[Problem]:
    """`lost` are steps around that may not have completed."""
    lost |= {step.id for step in steps if not step.critical}
    for index, step in enumerate(steps):
        at = f"{place}[{index}]"
        guard = step.when.text if step.when is not None else ""
        used = [*_of_step(step, at)]
        if step.for_each is not None:
            used += used_in(step.for_each.items.source, f"{at}.for_each")
        for one in used if not step.optional else ():
            for path in paths_of(one.text):
                if _reads_field(path) and path.parts[1] in lost - {step.id} and not _is_asked(path, one.text, guard):
                    yield Problem(one.place, _unsure(path))
        yield from _unsafe(step.steps, f"{at}.steps", lost)


def _reads_field(path: PathUsed) -> bool:
    return not path.is_tested and len(path.parts) > 3 and path.parts[0] == "steps" and path.parts[2] == "output"


def _is_asked(path: PathUsed, text: str, guard: str) -> bool:
    name = f"steps.{path.parts[1]}"
    signs = (f"{name}.status", f"{name}.error", f"{name}.failure", f"has({name}", "== null", "!= null")
    return name in guard or any(sign in text for sign in signs)


def _unsure(path: PathUsed) -> str:
    name = f"steps.{path.parts[1]}"
    return (
        f"{name} may have failed, and then its output is null and has no fields; "
        f'ask first, with when: {name}.status == "completed" or has({path.text}) ? … : …'
    )
