"""Answers of servers as values, and their failures by category.

| what the server or the SDK says | category | effect |
|---|---|---|
| a result with `isError` | tool | known: it said so itself |
| -32602 invalid params | logic | none |
| -32601 no such method, a tool that is gone | configuration | none |
| -32042, -32021, a request for input | configuration | none: it wants a person, or what Holdfast does not offer |
| HTTP 401, 403 | permission | none |
| HTTP 429 | rate_limit | none |
| could not be reached or started | transient | none |
| a session that is over, or forgotten (HTTP 400, 404) | transient | none |
| other HTTP refusals: 4xx | tool | none |
| other HTTP failures: 5xx | transient | unknown |
| the connection ended, the server crashed | transient | unknown |
| any other error of the protocol, also -32000 | tool | known |
| an answer that is no result | logic | unknown |
| an answer that breaks its own schema | logic, with the answer: one of a tool that acts is kept | unknown |
"""

# sentences of others: the MCP SDK

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, cast

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, RateLimited, ToolError, Transient
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.mcp.schema import Checker
from holdfast.tools.mcp.transport import NONSENSE, OURS, REFUSED, UNREACHED
from holdfast.tools.net.body import is_number
from holdfast.tools.secrets.redaction import masks

ERROR_CHARS_MAX = 2000
PARTS_MAX = 1000


class Part(TypedDict, total=False):
    """What a result holds beside text: an image, a sound, a resource or a link to one."""

    type: str
    mime: str
    base64: str
    text: str
    uri: str
    name: str


class Answer(TypedDict):
    text: str
    data: Any
    parts: list[Part]


class Misfit(NamedTuple):
    """An answer that breaks its own schema: the server has acted all the same."""

    answer: Answer
    why: str


def answer_of(result: Any, checker: Checker | None, owner: str) -> Answer | Misfit:
    """A result as a value; one that the server calls an error is raised as one."""
    parts = [_part(block) for block in result.content[:PARTS_MAX]]
    text = "\n".join(part.get("text", "") for part in parts if part.get("type") == "text")
    if result.is_error:
        raise ToolError(f"{owner}: {masks.beginning(text, ERROR_CHARS_MAX) or 'it failed without saying why'}")
    others = [part for part in parts if part.get("type") != "text"]
    answer: Answer = {"text": text, "data": result.structured_content, "parts": others}
    why = _misfit(result, checker) if checker is not None else ""
    return Misfit(answer, f"{owner}: {why}") if why else answer


def _misfit(result: Any, checker: Checker) -> str:
    if result.structured_content is None:
        return "its server promises structured data and sent none; tell its author"
    for place, said in checker.mistakes(result.structured_content, "data"):
        return f"its server sent something else than it promises: {place}: {said}"
    return ""


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return {"type": "text", "text": block.text}
        case "image" | "audio":
            return {"type": block.type, "mime": block.mime_type, "base64": block.data}
        case "resource":
            inside: Any = block.resource
            part: Part = {"type": "resource", "uri": str(inside.uri), "mime": inside.mime_type or ""}
            text = getattr(inside, "text", None)
            return {**part, "base64": inside.blob} if text is None else {**part, "text": text}
        case _:
            return {"type": "link", "uri": str(block.uri), "mime": block.mime_type or "", "name": block.name}


def explained(error: Any, owner: str) -> ToolError:
    """An error of the protocol (`MCPError`) as ours; the table above in code."""
    said = f"{owner}: {masks.beginning(str(error.message), ERROR_CHARS_MAX)}"
    data: Any = error.data
    if isinstance(data, dict) and cast("dict[str, Any]", data).get("mark") == OURS:
        if error.code == NONSENSE:
            return OutputInvalid(f"{owner}: its server answered with nonsense: {error.message}; tell its author")
        return _of_http(error.code, said, cast("dict[str, Any]", data))
    match error.code:
        case -32602:
            return InvalidCall(said)
        case -32601:
            return Misconfigured(f"{said}; is it an MCP server that has tools?")
        case -32042 | -32021:
            return Misconfigured(f"{said}; it wants something of a person, which cannot be done here")
        case -32600 if "session terminated" in str(error.message).lower():
            return Transient(said, without_effect=True)
        case _:
            return ToolError(said)


def _of_http(code: int, said: str, data: dict[str, Any]) -> ToolError:
    if code == UNREACHED:
        return Transient(f"{said}; is the server there?", without_effect=True)
    assert code == REFUSED
    status, after = int(data["status"]), str(data["after"])
    retry_after_s = float(after) if is_number(after) else None
    if status == 429:
        return RateLimited(said, retry_after_s=retry_after_s)
    if status in (401, 403, 407):
        return NotPermitted(f"{said}; check `headers` in the settings of the server")
    if status >= 500:
        return Transient(said, retry_after_s=retry_after_s)
    if status in (400, 404):
        return Transient(said, without_effect=True)  # a session it does not know any more; the next try begins another
    return ToolError(said, without_effect=True)
