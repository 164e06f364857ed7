"""A tool that runs in a process of its own, so that it is held to its limits and can be ended like a command.

Owns the engine's end: starting the process under the keeper, handing it the arguments over a line that nobody else
sees once it is ready for them, doing what the call asks for meanwhile, and saying how it ended. The other end is
child.py. Hooks stay here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from typing import Any, cast

import msgspec

from holdfast.core.errors import HoldfastError, Misconfigured, RaisedApart, ResourceShort, ToolError
from holdfast.core.failure import Failure, describe
from holdfast.core.policy import VALUE_BYTES_MAX
from holdfast.core.resources import DEFAULTS, Usage
from holdfast.tools.call import Call, HeldBack, running_call
from holdfast.tools.isolated import child_main
from holdfast.tools.processes.captured_output import Output
from holdfast.tools.processes.exit_text import TOOL, beyond_limit, last_lines, memory_hint, over_text, signal_name
from holdfast.tools.processes.spawn import Exit, Process, ProcessLost, spawn
from holdfast.tools.runtime.cancellation import NeverBegan, NeverCalled
from holdfast.tools.runtime.output_capture import echo, let_go
from holdfast.tools.tool import Tool

KILL_GRACE_S = 0.5  # for an `async def` to tidy up, unless the engine says how long an interrupted one may take
FAREWELL_S = 1.0  # for a process that has answered to end by itself
START_S_MAX = 60.0  # to load a tool's module, which may import much on a machine that is busy: no time of the tool's
INTERPRETERS_MAX = 64  # at once, as many as threads: each has some 30 MB before its tool has done anything
LINE_BYTES_MAX = 2 * VALUE_BYTES_MAX
_OUTCOMES = ("returned", "raised", "cancelled")


async def run_isolated(tool: Tool[..., Any], given: dict[str, Any], call: Call) -> Any:
    """What the tool returns, as JSON values. `given` are arguments that have been found valid, as JSON values.

    Its time begins when it is handed them. Whatever ends the call before that has not reached the tool.
    """
    loop = asyncio.get_running_loop()
    talk = _Talk(tool, given, call)
    call.wait_begins(loop.time())
    try:
        if call.interpreters is None:
            return await _run(tool, call, talk)
        await call.take_turn(call.interpreters)
        try:
            return await _run(tool, call, talk)
        finally:
            call.interpreters.give_back()
    except asyncio.CancelledError:
        if talk.has_begun:
            raise
        raise NeverBegan from None
    except (ResourceShort, ProcessLost) as error:
        if talk.has_begun:
            raise
        why = str(error) if isinstance(error, ResourceShort) else "the process that keeps all others died"
        raise NeverCalled(
            f"{why}\n({tool.name} was not called: its process had only started)", error.category
        ) from None
    finally:
        call.wait_ends(loop.time())


async def _run(tool: Tool[..., Any], call: Call, talk: _Talk) -> Any:
    process, line = await _start(call)
    output = Output(call, process, talk.limits.output_bytes or 0, "text", partial(echo, call))
    ending = asyncio.ensure_future(output.read_all())
    talking = asyncio.ensure_future(talk.go_on(line))
    try:
        try:
            await asyncio.wait({ending, talking}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({ending, talking}, timeout=FAREWELL_S)
        except asyncio.CancelledError:
            if talk.said is None:  # or else it has answered, and only its end was waited for
                if not talk.has_begun:
                    talking.cancel()  # at once: from here on it must not begin any more
                await process.kill_for(call, KILL_GRACE_S)
                raise
        process.send_signal(signal.SIGKILL)  # it has answered, or closed its line and never will
        end = cast("Exit", await ending)
        if talking.done():
            talking.result()  # or why it was not let in
    finally:
        process.close()
        line.close()
        for task in (ending, talking):
            task.cancel()
        await asyncio.gather(ending, talking, return_exceptions=True)
        with contextlib.suppress(OSError, ValueError):  # whoever read what is printed is gone
            let_go(call)
        call.use(Usage(output_bytes=output.bytes_seen))
    if talk.said is not None and talk.said["do"] == "cancelled":
        raise asyncio.CancelledError
    short = _short(tool, talk, end, output)
    if short is not None and talk.has_begun:  # if it was cut off in the middle, nobody knows what it had done by then
        happened = "known" if talk.has_meant_it else "unknown"
        raise RaisedApart(msgspec.structs.replace(describe(short), happened=happened))
    if short is not None:
        raise short
    if talk.said is not None and talk.said["do"] == "returned":
        return talk.said["output"]
    raise _failure(tool, talk, end, output.stderr.text())


async def _start(call: Call) -> tuple[Process, socket.socket]:
    flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined] # pyright: ignore
    ours, theirs = socket.socketpair()
    token = running_call.set(call)  # whose limits hold, and for whom it is counted
    try:
        argv: list[str] = [sys.executable, *flags, "-P", child_main.__file__]
        process = await spawn(argv, cwd=os.getcwd(), env=os.environ, more=[theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        running_call.reset(token)
    return process, ours


class _Talk:
    """With the process of one call. It says when it has loaded the tool; only then is it handed the arguments, if
    nobody holds the call back by now."""

    def __init__(self, tool: Tool[..., Any], given: dict[str, Any], call: Call) -> None:
        told = ("execution_id", "path", "attempt", "key", "notes", "resources", "task")
        known = {name: getattr(call, name) for name in told}
        places = [place for place in sys.path if isinstance(place, str)]  # pyright: ignore[reportUnnecessaryIsInstance] -- Python ignores the others
        self.call = call
        self.limits = call.resources.over(DEFAULTS)
        self._tool = tool
        self._way = _encoded(tool, {"sys_path": places, "tool": tool.name, "home": tool.home})
        self._order = _encoded(tool, {"arguments": given, "call": {**known, "folder": str(call.folder)}})
        self.has_begun = False
        self.said: dict[str, Any] | None = None  # what became of it, in its own words

    @property
    def has_meant_it(self) -> bool:
        """It came to an end of its own, and said which: an answer, or an error that it raised on purpose."""
        return self.has_begun and self.said is not None and self.said.get("meant", True)

    async def go_on(self, line: socket.socket) -> None:
        """Until the tool has answered, or is gone without an answer. `HeldBack` or `NeverCalled`: it was not let in."""
        reader, writer = await asyncio.open_connection(sock=line, limit=LINE_BYTES_MAX)
        try:
            writer.write(self._way)
            if await self._is_ready(reader):
                await self._let_in()
                writer.write(self._order)
                await self._answer(reader, writer)
        except (HeldBack, NeverCalled):
            raise
        except Exception:  # half a line, far too much of one, or one that means nothing: it is not understood any more
            return
        finally:
            writer.close()

    async def _is_ready(self, reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(START_S_MAX):
                line = await reader.readline()
        except TimeoutError:
            raise NeverCalled(
                f"{self._tool.name} was not called: its own process had not loaded {_file(self._tool)} after "
                f"{START_S_MAX:g} s; see what the module does when it is loaded, or say isolated=False"
            ) from None
        message: dict[str, Any] = msgspec.json.decode(line) if line else {"do": ""}
        if message["do"] == "raised":
            self.said = message
        return message["do"] == "ready"

    async def _let_in(self) -> None:
        call = self.call
        if call.door is not None:
            await call.take_turn(call.door)
        elif call.gate is not None and not call.gate():
            raise HeldBack
        self.has_begun = True
        call.wait_ends(asyncio.get_running_loop().time())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            message: dict[str, Any] = msgspec.json.decode(line)
            if message["do"] in _OUTCOMES:
                self.said = message
                self.call.wait_begins(asyncio.get_running_loop().time())  # what its process takes to end is not its
                return
            refused = await _done(message, self.call)
            if "number" in message:
                writer.write(msgspec.json.encode({"number": message["number"], "refused": refused}) + b"\n")


def _encoded(tool: Tool[..., Any], message: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError as error:
        raise Misconfigured(
            f"{tool.name} cannot run in a process of its own: {error.object!r} is no text that can be handed over; "
            "rename it, or say isolated=False"
        ) from None


async def _done(message: dict[str, Any], call: Call) -> str:
    """What the call asked for; returns why it was refused."""
    try:
        match message["do"]:
            case "note":
                await call.note(message["data"])
            case "spend":
                call.spend(message["usd"])
            case "say":
                call.say(message["content"], message["role"], message["streaming"])
            case "progress":
                call.progress(message["percent"], message["text"])
            case _:
                call.hear(message["stream"], message["text"])
    except HoldfastError as error:
        return str(error)
    return ""


# ---- how it failed


def _short(tool: Tool[..., Any], talk: _Talk, end: Exit, output: Output) -> ResourceShort | None:
    """The limit that it went beyond, also if nobody saw it before it had answered."""
    said = talk.said
    if output.is_over:
        return ResourceShort(over_text([tool.name], "output", talk.limits, last_word=TOOL))
    has_raised = said is not None and said["do"] == "raised"
    if talk.has_meant_it and (has_raised or not end.over):
        return None
    last = said["failure"]["message"] if said is not None and has_raised else ""
    return beyond_limit([tool.name], end, talk.limits, talk.call.together, last, last_word=TOOL)


def _failure(tool: Tool[..., Any], talk: _Talk, end: Exit, stderr: str) -> ToolError:
    if talk.said is None:
        return _died(tool, talk, end, last_lines(stderr))
    failure = msgspec.convert(talk.said["failure"], Failure)
    if not talk.has_begun:
        failure = msgspec.structs.replace(failure, happened="nothing")
    hint = "" if talk.has_meant_it else memory_hint(talk.limits, f"{failure.error}: {failure.message}")
    limit = talk.limits.twice("memory") if hint else ""
    told = msgspec.structs.replace(failure, message=failure.message + hint, limit=limit)
    return RaisedApart(told, talk.said["trace"])


def _died(tool: Tool[..., Any], talk: _Talk, end: Exit, last: str) -> ToolError:
    how = f"exit code {end.code}" if end.code >= 0 else f"killed by {signal_name(-end.code)}"
    if talk.has_begun:
        text = f"the process of {tool.name} ended before it had answered ({how}); how far it came is unknown"
        return RaisedApart(Failure(category="tool", message=f"{text}\n{last}".strip(), happened="unknown"))
    text = f"{tool.name} was not called: its own process ended while it loaded {_file(tool)} ({how})"
    if end.code < 0:
        return NeverCalled(f"{text}\n{last}".strip())
    return Misconfigured(f"{text}; see what the module does when it is loaded\n{last}".strip())


def _file(tool: Tool[..., Any]) -> str:
    return tool.home.file if tool.home is not None else "its module"
