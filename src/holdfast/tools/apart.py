"""A tool that runs in a process of its own, so that it is held to its limits and can be ended like a command.

Owns the engine's end: starting the process under the keeper, handing it the arguments over a line that nobody else
sees, doing what the call asks for meanwhile, and saying how it ended. The other end is apart_child.py. Hooks stay here.
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
from holdfast.core.resources import DEFAULTS, Resources, Usage
from holdfast.tools import apart_main
from holdfast.tools.call import Call, HeldBack, running_call
from holdfast.tools.cut import NeverBegan
from holdfast.tools.listening import echo, let_go
from holdfast.tools.output import Output
from holdfast.tools.processes import Exit, Process, spawn
from holdfast.tools.shell_failure import TOOL, beyond_limit, last_lines, memory_hint, over_text, signal_name
from holdfast.tools.tool import Tool

KILL_GRACE_S = 0.5  # for an `async def` to tidy up; less than the engine waits for a tool that it has cancelled
FAREWELL_S = 1.0  # for a process that has answered to end by itself
LINE_BYTES_MAX = 2 * VALUE_BYTES_MAX
_OUTCOMES = ("returned", "raised", "cancelled")


async def run_apart(tool: Tool[..., Any], given: dict[str, Any], call: Call) -> Any:
    """What the tool returns, as JSON values. `given` are arguments that have been found valid, as JSON values."""
    if call.gate is not None and not call.gate():
        raise HeldBack
    order = _order(tool, given, call)
    process, line = await _start(call)
    limits = call.resources.over(DEFAULTS)
    output = Output(call, process, limits.output_bytes or 0, "text", partial(echo, call))
    ending = asyncio.ensure_future(output.read_all())
    talk = asyncio.ensure_future(_talk(line, order, call))
    try:
        await asyncio.wait({ending, talk}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({ending, talk}, timeout=FAREWELL_S)
        process.send_signal(signal.SIGKILL)  # it has answered, or closed its line and never will
        end = cast("Exit", await ending)
        said = talk.result() if talk.done() else None
    except asyncio.CancelledError:
        await process.kill(KILL_GRACE_S)
        raise
    finally:
        process.close()
        line.close()
        for task in (ending, talk):
            task.cancel()
        await asyncio.gather(ending, talk, return_exceptions=True)
        with contextlib.suppress(OSError, ValueError):  # whoever read what is printed is gone
            let_go(call)
        call.use(Usage(output_bytes=output.bytes_seen))
    if said is not None and said["do"] == "returned":
        return said["output"]
    if said is not None and said["do"] == "cancelled":
        raise asyncio.CancelledError
    if output.is_over:
        raise ResourceShort(over_text([tool.name], "output", limits, last_word=TOOL))
    raise _failure(tool.name, said, end, limits, call, output.stderr.text())


async def _start(call: Call) -> tuple[Process, socket.socket]:
    """The process does nothing before it has its order, so whoever is cut off here never began."""
    flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined] # pyright: ignore
    ours, theirs = socket.socketpair()
    token = running_call.set(call)  # whose limits hold, and for whom it is counted
    try:
        argv: list[str] = [sys.executable, *flags, "-P", apart_main.__file__]
        process = await spawn(argv, cwd=os.getcwd(), env=os.environ, more=[theirs.fileno()])
    except asyncio.CancelledError:
        ours.close()
        raise NeverBegan from None
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        running_call.reset(token)
    return process, ours


def _order(tool: Tool[..., Any], given: dict[str, Any], call: Call) -> bytes:
    known = {name: getattr(call, name) for name in ("execution_id", "path", "attempt", "key", "notes", "resources")}
    order = {
        "sys_path": [place for place in sys.path if isinstance(place, str)],  # pyright: ignore[reportUnnecessaryIsInstance] -- Python ignores the others
        "tool": tool.name,
        "home": tool.home,
        "arguments": given,
        "call": {**known, "folder": str(call.folder)},
    }
    try:
        return msgspec.json.encode(order) + b"\n"
    except UnicodeEncodeError as error:
        raise Misconfigured(
            f"{tool.name} cannot run in a process of its own: {error.object!r} is no text that can be handed over; "
            "rename it, or say apart=False"
        ) from None


async def _talk(line: socket.socket, order: bytes, call: Call) -> dict[str, Any] | None:
    """Until the tool has answered, or is gone without an answer: None."""
    reader, writer = await asyncio.open_connection(sock=line, limit=LINE_BYTES_MAX)
    try:
        with contextlib.suppress(OSError):
            writer.write(order)
            while said := await reader.readline():
                message: dict[str, Any] = msgspec.json.decode(said)
                if message["do"] in _OUTCOMES:
                    return message
                refused = await _done(message, call)
                if "number" in message:
                    writer.write(msgspec.json.encode({"number": message["number"], "refused": refused}) + b"\n")
    except Exception:  # half a line, far too much of one, or one that means nothing: it will not be understood any more
        return None
    finally:
        writer.close()
    return None


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


def _failure(
    name: str, said: dict[str, Any] | None, end: Exit, limits: Resources, call: Call, stderr: str
) -> ToolError:
    failure = msgspec.convert(said["failure"], Failure) if said is not None else None
    is_meant = said is not None and said["meant"]
    if not is_meant:
        said_last = failure.message if failure is not None else ""
        short = beyond_limit([name], end, limits, call.together, said_last, last_word=TOOL)
        if short is not None:  # cut off in the middle: what it had done by then, nobody knows
            return RaisedApart(msgspec.structs.replace(describe(short), happened="unknown"))
    if failure is None or said is None:
        how = f"exit code {end.code}" if end.code >= 0 else f"killed by {signal_name(-end.code)}"
        last = last_lines(stderr)
        text = f"the process of {name} ended before it had answered ({how}); how far it came is unknown"
        return RaisedApart(Failure(category="tool", message=f"{text}\n{last}".strip(), happened="unknown"))
    hint = "" if is_meant else memory_hint(limits, f"{failure.error}: {failure.message}")
    return RaisedApart(msgspec.structs.replace(failure, message=failure.message + hint), said["trace"])
