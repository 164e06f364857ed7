"""What a person says to executions, as it travels: for each verb the one place that knows its arguments.

An order is the same whether it goes to one execution or to many. Refuses what no execution could make sense of; what
depends on an execution is ruled on there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Raw

from holdfast.core.budget import read_usd
from holdfast.core.commands import Verb
from holdfast.core.errors import InputInvalid
from holdfast.tools.json_values import encode


class CommandRequest(NamedTuple):
    """`edits` and `output` must fit the tool of the step that asks, `steps` the plan: they depend on the execution."""

    verb: Verb
    arguments: dict[str, Any]
    edits: Mapping[str, Any] | None = None
    output: Any = UNSET
    steps: Sequence[Mapping[str, Any]] | None = None


def pause(*, why: str = "", now: bool = False) -> CommandRequest:
    """`now` does not wait for running steps, and is the same as an interrupt."""
    return interrupt(why=why) if now else CommandRequest("pause", {"why": why})


def interrupt(*, why: str = "") -> CommandRequest:
    return CommandRequest("interrupt", {"why": why})


def stop(*, why: str = "") -> CommandRequest:
    return CommandRequest("stop", {"why": why})


def approve(
    step: str = "", *, why: str = "", arguments: Mapping[str, Any] | None = None, sticky: bool = False
) -> CommandRequest:
    edited = _raw(arguments) if arguments is not None else UNSET
    return CommandRequest("approve", {"step": step, "why": why, "arguments": edited, "sticky": sticky}, edits=arguments)


def deny(step: str = "", *, why: str = "") -> CommandRequest:
    return CommandRequest("deny", {"step": step, "why": why})


def answer(step: str, value: Any) -> CommandRequest:
    return CommandRequest("answer", {"step": step, "data": _raw(value)})


def resolve(
    step: str, remedy: str, *, output: Any = None, arguments: Mapping[str, Any] | None = None
) -> CommandRequest:
    if arguments is not None and remedy != "again":
        raise InputInvalid('edited arguments go with remedy "again"')
    done = remedy == "done"
    data = _raw(arguments) if arguments is not None else _raw(output) if done else UNSET
    said = {"step": step, "remedy": remedy, "data": data}
    return CommandRequest("resolve", said, edits=arguments, output=output if done else UNSET)


def send(name: str, data: Any = None) -> CommandRequest:
    return CommandRequest("send", {"name": name, "data": _raw(data)})


def extend(steps: Sequence[Mapping[str, Any]]) -> CommandRequest:
    return CommandRequest("extend", {"count": len(steps)}, steps=steps)


def budget(*, add: float | None = None, limit: float | None = None) -> CommandRequest:
    if (add is None) == (limit is None):
        raise InputInvalid("say what to do with the budget, with exactly one of add and limit")
    if limit is not None:
        return CommandRequest("budget", {"limit_micros": _usd("limit", limit)})
    return CommandRequest("budget", {"add_micros": _usd("add", add)})


def _usd(name: str, given: object) -> int:
    try:
        return read_usd(given)
    except InputInvalid as error:
        raise InputInvalid(f"{name}: {error}") from None


def _raw(value: Any) -> Raw:
    return Raw(encode(value, "the value"))
