"""`shell.run`: a command, its output bounded and shown as it comes, its whole tree ended with the step."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from typing import TypedDict

from holdfast.core.errors import InvalidCall, ToolError
from holdfast.tools.call import Call
from holdfast.tools.processes import KILL_GRACE_S, Exit, spawn
from holdfast.tools.tool import tool

OUTPUT_BYTES_MAX = 1024 * 1024  # of each stream; what comes after is read and dropped
PIECE_BYTES = 64 * 1024
ERROR_LINES_SHOWN = 5
ERROR_CHARS_SHOWN = 1000


class Result(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool


@tool(name="shell.run", effect="once")
async def run(
    command: str | list[str],
    call: Call,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
) -> Result:
    """Run a command: a string through `sh -c`, a list as it is. `env` is added to the environment."""
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    if not argv or not argv[0].strip() or (isinstance(command, str) and not command.strip()):
        raise InvalidCall("command: expected a program to run, got nothing")
    process = await spawn(
        argv,
        cwd=call.folder / cwd if cwd else call.folder,
        env={**os.environ, **(env or {})},
        stdin=None if stdin is None else stdin.encode(errors="surrogateescape"),
    )
    try:
        stdout, stderr = _Capture(call), _Capture(call)
        _, _, end = await asyncio.gather(stdout.read(process.stdout), stderr.read(process.stderr), process.wait())
    except asyncio.CancelledError:
        await process.kill(KILL_GRACE_S)  # cancelled again meanwhile, `close` kills at once
        raise
    finally:
        process.close()
    if end.code != 0:
        raise ToolError(_failure_text(argv, end, stderr.text() or stdout.text()))
    return {
        "exit_code": end.code,
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        "truncated": stdout.truncated or stderr.truncated,
    }


class _Capture:
    """The beginning of one stream, each piece shown to watchers as whole lines as soon as it is there."""

    def __init__(self, call: Call) -> None:
        self.truncated = False
        self._call = call
        self._kept = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""

    async def read(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(PIECE_BYTES):
            room = OUTPUT_BYTES_MAX - len(self._kept)
            self.truncated = self.truncated or len(piece) > room
            if room > 0:
                self._kept += piece[:room]
                self._show(self._decoder.decode(piece[:room]))
        if self._line:
            self._call.say(self._line, streaming=True)

    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def _show(self, text: str) -> None:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            self._call.say("\n".join(lines) + "\n", streaming=True)
        if len(self._line) > PIECE_BYTES:  # a line without an end is shown in pieces, not kept until it ends
            self._call.say(self._line, streaming=True)
            self._line = ""


def _failure_text(argv: list[str], end: Exit, output: str) -> str:
    what = f"exit code {end.code}" if end.code > 0 else f"killed by {signal.Signals(-end.code).name}"
    shown = argv[2] if argv[:2] == ["sh", "-c"] and len(argv) == 3 else " ".join(argv)
    last = "\n".join(output.strip().splitlines()[-ERROR_LINES_SHOWN:])[-ERROR_CHARS_SHOWN:]
    return f"{what} from: {shown[:200]}" + (f"\n{last}" if last else "")
