"""Whether what people hand in fits the tool it is for: changed arguments, and the output of what was done by hand.

Looked at twice: where somebody gives the order, for a quick answer, and where it is applied, because an order may come
from anywhere. Refuses nothing that it cannot judge: a tool that this process does not know takes anything.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, cast

import msgspec

from holdfast.tools.argument_errors import explained
from holdfast.tools.parameter_types import schema_of
from holdfast.tools.tool import Tool

EXAMPLE_DEPTH_MAX = 4


def edits_objection(tool: Tool[..., Any] | None, own: bytes | None, edits: bytes) -> str:
    """`own` are the arguments that the edits are laid over; None if they are not at hand, and count as fitting."""
    changed: Any = msgspec.json.decode(edits)
    if changed is None:
        return ""
    if not isinstance(changed, dict):
        return "edited arguments must be a mapping of names to values"
    if tool is None:
        return ""
    named = cast("dict[str, Any]", changed)
    if own is None:
        mistakes = tool.check(named, frozenset(tool.signature.parameters) - named.keys())
    else:
        mistakes = tool.check({**(msgspec.json.decode(own) or {}), **named})
    lines = [f"  {name}: {message}" for name, message in mistakes]
    return "\n".join([f"the edited arguments do not fit {tool.name}:", *lines]) if lines else ""


def output_done(tool: Tool[..., Any] | None, said: bytes) -> bytes:
    """The output of a step that a person says was done: what they said, or what the tool declares if they said none."""
    declared = tool.done_output if tool is not None and said == b"null" else None
    return said if declared is None else declared


def output_objection(tool: Tool[..., Any] | None, said: bytes, is_read: bool) -> str:
    """Nothing at all is null. Where later steps read it, it must be something that the tool may return."""
    output = output_done(tool, said)
    decoder = tool.signature.return_decoder if tool is not None else None
    if tool is None or decoder is None or (output == b"null" and not is_read):
        return ""
    try:
        decoder.decode(output)
    except msgspec.ValidationError as error:
        returns = tool.signature.return_type
        place, wrong = explained("", returns, msgspec.json.decode(output), str(error))
        where = f"{place.removeprefix('.')}: " if place else ""
        hint = f"; say what it gave: --output {_example(returns)}" if output == b"null" else ""
        return f"the output does not fit what {tool.name} returns: {where}{wrong}{hint}"
    return ""


def wants_output(tool: Tool[..., Any] | None, is_read: bool) -> bool:
    """Whether whoever says that it was done must say what it gave, too."""
    return bool(output_objection(tool, b"null", is_read))


def _example(returns: Any) -> str:
    """JSON of that shape, as it can be typed in a shell; the values are made up."""
    definitions: dict[str, Any] = {}
    try:
        shape = schema_of(returns, definitions)
    except (TypeError, msgspec.MsgspecError):
        return "JSON"
    return shlex.quote(json.dumps(_made_up(shape, definitions, EXAMPLE_DEPTH_MAX), ensure_ascii=False))


def _made_up(shape: dict[str, Any], definitions: dict[str, Any], depth: int) -> Any:
    if "$ref" in shape:
        shape = definitions.get(shape["$ref"].rpartition("/")[2], {})
    if "anyOf" in shape:
        return _made_up(shape["anyOf"][0], definitions, depth)
    if "enum" in shape:
        return shape["enum"][0]
    match shape.get("type"):
        case "object":
            names: list[str] = shape.get("required", []) if depth else []
            return {name: _made_up(shape["properties"][name], definitions, depth - 1) for name in names}
        case "array":
            return []
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case _:
            return "…"
