"""The world outside the engine: a ledger that only the file system remembers, gates, and the tools that touch both.

Every tool writes one line for each time its effect happens, and stops before and after it to let itself be killed. The
ledger is what a truthful person looks into when asked whether something happened. Nothing here reads the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import holdfast

LEDGER = "ledger.txt"
SOON = holdfast.Retry(first_s=0.004)

at_boundary: Callable[[str], None] = lambda moment: None  # noqa: E731 -- set in the process that is to die
changed: Callable[[], None] = lambda: None  # noqa: E731 -- set by whoever waits for something to happen here


class Line(NamedTuple):
    """One effect that happened: `key` is the idempotency key, `<execution>:<path>`."""

    effect: str
    key: str
    output: Any


def read_ledger(folder: Path) -> list[Line]:
    file = folder / LEDGER
    if not file.exists():
        return []
    return [Line(*json.loads(text)) for text in file.read_text().splitlines()]


def write_line(folder: Path, line: Sequence[Any]) -> None:
    """One write call, so that a line is there as a whole or not at all."""
    handle = os.open(folder / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{json.dumps(line)}\n".encode())
    os.close(handle)
    changed()


def touch(call: holdfast.Call, effect: str, output: Any = None, *, happens: bool = True) -> Any:
    """The effect of a tool, with a place to die on either side of it."""
    at_boundary("before")
    if happens:
        write_line(call.folder, Line(effect, call.key, output))
    at_boundary("after")
    return output


def open_gate(folder: Path, name: str) -> None:
    (folder / f"gate-{name}").touch()
    changed()


def is_open(folder: Path, name: str) -> bool:
    return (folder / f"gate-{name}").exists()


@holdfast.tool(effect="read")
async def look(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "read", value)


@holdfast.tool(effect="read", cache=3600)
async def rate(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "read", value)


@holdfast.tool(effect="idempotent")
async def put(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "idempotent", value)


@holdfast.tool(effect="idempotent")
def stamp(call: holdfast.Call, value: Any = None) -> Any:
    """In a thread: there, too, the whole process dies."""
    return touch(call, "idempotent", value)


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "once", value)


@holdfast.tool(effect="idempotent", retry=SOON)
async def flaky(call: holdfast.Call) -> str:
    touch(call, "idempotent", "then it works")
    if call.attempt == 1:
        raise holdfast.Transient("the first time it fails")
    return "then it works"


@holdfast.tool(effect="once")
async def busy(call: holdfast.Call, value: Any = None) -> Any:
    """Turns the first caller away before anything has happened."""
    touch(call, "once", value, happens=call.attempt > 1)
    if call.attempt == 1:
        raise holdfast.RateLimited("come back", retry_after_s=0.003)
    return value


@holdfast.tool(effect="once", in_doubt="verify")
async def transfer(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "once", value)


@holdfast.tool(effect="once", in_doubt="verify")
async def wire(call: holdfast.Call, value: Any = None) -> Any:
    """Does what it should, and its answer never arrives."""
    touch(call, "once", value)
    raise holdfast.Transient("the line broke")


@transfer.verify
@wire.verify
async def did_it_happen(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
    """Whoever asks may die of the question, too."""
    at_boundary("before")
    found = [line.output for line in read_ledger(call.folder) if line.key == call.key]
    at_boundary("after")
    return holdfast.Happened(found[0]) if found else holdfast.DidNotHappen()


@holdfast.tool(effect="idempotent")
async def strict(call: holdfast.Call, value: Any = None) -> Any:
    """Takes whole numbers only, which its signature does not say."""
    touch(call, "idempotent", value, happens=isinstance(value, int))
    if not isinstance(value, int):
        raise holdfast.InvalidCall("whole numbers only")
    return value


@holdfast.tool(effect="idempotent")
async def broken(call: holdfast.Call, value: Any = None) -> Any:
    touch(call, "idempotent", happens=False)
    raise holdfast.ToolError("it is broken")


@holdfast.tool(effect="idempotent")
async def linger(call: holdfast.Call, gate: str) -> str:
    """Stays until its gate is opened, by whoever wants something to happen meanwhile."""
    touch(call, "idempotent", gate)
    while not is_open(call.folder, gate):  # noqa: ASYNC110 -- the file is all there is to wait for
        await asyncio.sleep(0.001)
    return gate


@holdfast.tool(effect="once")
async def dwell(call: holdfast.Call, gate: str) -> str:
    """The same, and must not be begun twice."""
    touch(call, "once", gate)
    while not is_open(call.folder, gate):  # noqa: ASYNC110 -- the file is all there is to wait for
        await asyncio.sleep(0.001)
    return gate


@holdfast.tool(effect="idempotent", cost=0.10)
async def ask_model(call: holdfast.Call, value: Any = None) -> Any:
    """Says what it cost, and dies before or after that."""
    at_boundary("before")
    call.spend(usd=0.04)
    write_line(call.folder, Line("idempotent", call.key, value))
    at_boundary("after")
    call.spend(usd=0.03)
    return value


@holdfast.tool(effect="once", cost=0.20)
async def buy(call: holdfast.Call, value: Any = None) -> Any:
    return touch(call, "once", value)


TOOLS = [ask_model, buy, look, rate, put, stamp, pay, flaky, busy, transfer, wire, strict, broken, linger, dwell]
