"""Whether what people hand in fits the tool it is for: changed arguments, and the output of what was done by hand.

Looked at twice: where somebody gives the order, for a quick answer, and where it is applied, because an order may come
from anywhere. Refuses nothing that it cannot judge: a tool that this process does not know takes anything.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from holdfast.tools.tool import Tool


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


def output_objection(tool: Tool[..., Any] | None, output: bytes) -> str:
    """Nothing at all may be said of what a step has come to, whatever its tool returns."""
    decoder = tool.signature.return_decoder if tool is not None else None
    if tool is None or decoder is None or output == b"null":
        return ""
    try:
        decoder.decode(output)
    except msgspec.ValidationError as error:
        return f"the output does not fit what {tool.name} returns: {error}"
    return ""
