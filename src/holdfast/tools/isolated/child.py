"""The tool's end of a call that runs in a process of its own: find the function, say so, call it when the arguments
come, send back what became of it.

Whatever the call says travels over one line to the engine (parent.py), which keeps, shows and masks it.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import signal
import socket
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from holdfast.core.budget import read_usd
from holdfast.core.errors import InputInvalid, InvalidCall, ToolError, UsageError
from holdfast.core.failure import describe
from holdfast.core.resources import Resources, Usage
from holdfast.tools import json_values
from holdfast.tools.call import Call, Task, running_call
from holdfast.tools.hooks import OutputLost
from holdfast.tools.isolated.import_ref import Home
from holdfast.tools.runtime.fair_queue import Gate, Turn, Turns
from holdfast.tools.runtime.fork_signals import deaf_when_copied
from holdfast.tools.runtime.output_capture import listening
from holdfast.tools.runtime.user_traceback import place_of_bug, trace_of
from holdfast.tools.tool import Tool, tool

CUT = 143  # the exit code of a call that was told to end


class EngineConnection:
    """To the engine, from whichever thread; answers are handed to whoever asked."""

    def __init__(self, line: socket.socket, words: IO[bytes]) -> None:
        self._socket = line
        self._words = words
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[None]] = {}

    def order(self) -> dict[str, Any] | None:
        """What the tool is to be called with, once the engine lets it in; None if it does not."""
        self.tell(do="ready")
        order = self._words.readline()
        threading.Thread(target=self._listen, name="holdfast-line", daemon=True).start()
        return json.loads(order) if order else None

    def tell(self, **message: Any) -> None:
        encoded = msgspec.json.encode(message) + b"\n"
        with self._lock:
            self._socket.sendall(encoded)

    def ask(self, **message: Any) -> Future[None]:
        """Done when the engine has done it."""
        number = next(self._numbers)
        asked = self._asked[number] = Future()
        self.tell(number=number, **message)
        return asked

    def _listen(self) -> None:
        for line in self._words:
            said = json.loads(line)
            asked = self._asked.pop(said["number"])
            if said["refused"]:
                asked.set_exception(InvalidCall(said["refused"]))
            else:
                asked.set_result(None)


class IsolatedCall(Call):
    """The same call, seen from the tool's own process."""

    __slots__ = ("_line",)

    def __init__(self, line: EngineConnection, told: dict[str, Any]) -> None:
        super().__init__(
            told["execution_id"], told["path"], told["attempt"], told["key"], Path(told["folder"]), told["notes"]
        )
        if (task := told["task"]) is not None:
            inputs = msgspec.Raw(msgspec.json.encode(task["inputs"]))
            self.task = Task(task["origin_id"], inputs, task["labels"])
        self.resources = msgspec.convert(told["resources"], Resources)
        self._line = line

    def note(self, data: Any) -> Awaitable[None]:
        noted = self._line.ask(do="note", data=msgspec.Raw(json_values.encode(data, "the note")))
        try:
            return asyncio.wrap_future(noted, loop=asyncio.get_running_loop())
        except RuntimeError:  # a `def`: it blocks
            noted.result()
            return _Kept()

    def say(self, content: str, role: str = "tool", streaming: bool = False) -> None:
        self._line.tell(do="say", content=content, role=role, streaming=streaming)

    def progress(self, percent: float, text: str = "") -> None:
        self._line.tell(do="progress", percent=min(100.0, max(0.0, float(percent))), text=text)

    def spend(self, usd: float) -> None:
        try:
            micros = read_usd(usd, least=0)
        except InputInvalid as error:
            raise InvalidCall(f"{self.path}: spend: {error}") from None
        self._line.ask(do="spend", usd=usd).result()
        self.spent_micros = (self.spent_micros or 0) + micros

    def hear(self, stream: str, text: str) -> None:
        self._line.tell(do="hear", stream=stream, text=text)

    def use(self, used: Usage) -> None:
        """Nothing: what is started here is a part of this process's tree, which the engine measures."""

    async def take_turn(self, gate: Gate, has_begun: bool = False) -> None:
        raise UsageError(
            f"{self.path}: a line of the engine cannot be waited in from another process; use isolated=False"
        )

    async def turn_of(self, turns: Turns, has_begun: bool = False) -> Turn:
        raise UsageError(f"{self.path}: a turn of the engine cannot be had in another process; use isolated=False")


class _Kept:
    def __await__(self) -> Any:
        return iter(())


def answer(engine: socket.socket, words: IO[bytes], way: dict[str, Any]) -> int:
    """Returns the exit code. `way` says where the tool is; what it is called with comes later."""
    line = EngineConnection(engine, words)
    logging.lastResort = logging.NullHandler()  # records are heard as such, and need not be printed as well
    try:
        found = _found(msgspec.convert(way["home"], Home), way["tool"])
        order = line.order()
        if order is None:
            return CUT
        call = IsolatedCall(line, order["call"])
        with listening():
            value = _called(found, found.signature.validate(order["arguments"]), call)
        output = _encoded(value, found)
    except asyncio.CancelledError:
        if _was_told_to_end:
            return CUT
        line.tell(do="cancelled")
    except BaseException as error:
        failure = msgspec.structs.replace(describe(error), place=place_of_bug(error))
        is_meant = isinstance(error, ToolError)
        line.tell(do="raised", failure=failure, trace="" if is_meant else trace_of(error), meant=is_meant)
        return 1
    else:
        line.tell(do="returned", output=msgspec.Raw(output))
    return 0


def _encoded(value: Any, found: Tool[..., Any]) -> bytes:
    try:
        return json_values.encode(value, f"the output of {found.name}")
    except json_values.NotJson as error:
        raise OutputLost(str(error)) from error


_was_told_to_end: list[bool] = []


def _found(home: Home, name: str) -> Tool[..., Any]:
    thing = home.load()
    return cast("Tool[..., Any]", thing) if isinstance(thing, Tool) else tool(name=name, isolated=False)(thing)


def _called(found: Tool[..., Any], arguments: dict[str, Any], call: Call) -> Any:
    """A `def` is called right here, in the main thread: there is nobody whom it could hold up."""
    if found.is_async:
        return asyncio.run(_on_a_loop(found, arguments, call))
    running_call.set(call)
    args, kwargs = found.placed(arguments, call)
    value = found.function(*args, **kwargs)
    return asyncio.run(_finished(value)) if inspect.isawaitable(value) else value


async def _finished(value: Awaitable[Any]) -> Any:
    return await value


async def _on_a_loop(found: Tool[..., Any], arguments: dict[str, Any], call: Call) -> Any:
    here = asyncio.current_task()
    assert here is not None

    def end() -> None:
        _was_told_to_end.append(True)
        here.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    deaf_when_copied(signal.SIGTERM)
    return await found.invoke(arguments, call)
