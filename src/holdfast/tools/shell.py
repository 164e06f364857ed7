"""`shell.run`: a command under limits, its output shown as it comes, its whole tree ended with the step.

Owns what a command is given (its environment, from a list of names) and what becomes of its output. Starting, watching
and ending processes is processes.py's.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import fnmatch
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec
from msgspec import Meta

from holdfast.core.errors import InvalidCall, ResourceShort, ToolError
from holdfast.core.resources import DEFAULTS, Resources, Usage, say_size
from holdfast.tools.adapter import Adapter, Place
from holdfast.tools.call import Call
from holdfast.tools.masks import masks
from holdfast.tools.processes import Exit, Process, spawn
from holdfast.tools.shell_failure import failure_of, over_text, shown
from holdfast.tools.tool import Tool, tool
from holdfast.tools.wording import Mistake

OUTPUT_BYTES_MAX = 1024 * 1024  # of each stream is kept; what comes after is read, counted and dropped
PIECE_BYTES = 64 * 1024
KILL_GRACE_S = 0.5  # between SIGTERM and SIGKILL; less than the engine waits for a tool that it has cancelled
FREE_BYTES_MIN = 16 * 1024 * 1024  # on the disk of its folder, or a command does not begin

# What most programs need to find others, their files and their language. Anything else may be a secret.
ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM",
)  # fmt: skip

Encoding = Literal["text", "base64"]


class Result(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    spoilt: bool


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`env` names the variables that commands get of this process's environment; `*` stands for any letters."""

    env: tuple[str, ...] = ENVIRONMENT
    free_bytes_min: Annotated[int, Meta(ge=0)] = FREE_BYTES_MIN


class Commands:
    """What the tool does, with the settings of its family."""

    def __init__(self, config: Config) -> None:
        self._passes = re.compile("|".join(map(fnmatch.translate, config.env)) or "(?!)").match
        self._free_bytes_min = config.free_bytes_min

    async def run(
        self,
        command: str | list[str],
        call: Call,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        encoding: Encoding = "text",
    ) -> Result:
        """Run a command: a string through `sh -c`, a list as it is. `env` is added to what the settings let through.

        `encoding: base64` is for a command that prints something else than text.
        """
        argv = _argv(command)
        folder = call.folder / cwd if cwd else call.folder
        limits = call.resources.over(DEFAULTS)
        free_before = check_room(folder, self._free_bytes_min)
        process = await spawn(
            argv,
            cwd=folder,
            env={**self._environment(os.environ), **(env or {})},
            stdin=None if stdin is None else stdin.encode(errors="surrogateescape"),
        )
        output = _Output(call, process, limits.output_bytes or 0, encoding)
        try:
            end = await output.read_all()
        except asyncio.CancelledError:
            await process.kill(KILL_GRACE_S)  # cancelled again meanwhile, `close` kills at once
            raise
        finally:
            process.close()
            call.use(Usage(output_bytes=output.bytes_seen))
        _notice_lost_room(call, folder, free_before, end, limits)
        failure = failure_of(argv, end, limits, call.together, output.stdout.text(), output.stderr.text())
        if output.is_over:
            raise ResourceShort(over_text(argv, "output", limits))
        if failure is not None:
            raise failure
        return {
            "exit_code": end.code,
            "stdout": output.stdout.result(argv),
            "stderr": output.stderr.text(),
            "truncated": output.stdout.truncated or output.stderr.truncated,
            "spoilt": output.stdout.is_spoilt() or output.stderr.is_spoilt(),
        }

    def _environment(self, own: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in own.items() if self._passes(name)}


def _argv(command: str | list[str]) -> list[str]:
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    if not argv or not argv[0].strip() or (isinstance(command, str) and not command.strip()):
        raise InvalidCall("command: expected a program to run, got nothing")
    return argv


def _judge(known: Mapping[str, Any], later: Collection[str]) -> None:
    if "command" in known:
        _argv(known["command"])


def _notice_lost_room(call: Call, folder: Path, before: int | None, end: Exit, limits: Resources) -> None:
    """Room can be taken without writing (fallocate), which nobody counts. Others use the disk too: it is only told."""
    after = _free_bytes(folder)
    if before is None or after is None:
        return
    unexplained = before - after - (end.disk_bytes or 0)
    if unexplained > (limits.disk_bytes or unexplained):
        call.hear(
            "warning",
            f"while it ran, the disk of its folder lost {say_size(unexplained)} that its own writing does not explain: "
            "it reserved them without writing, or somebody else took them\n",
        )


def _free_bytes(folder: Path) -> int | None:
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError, ValueError):
        return None
    return room.f_bavail * room.f_frsize


def check_room(folder: Path, needed: int) -> int | None:
    """Before a command begins: is there any room on the disk that it works on? How much, as far as it can be told."""
    free = _free_bytes(folder)
    if free is None:
        return None  # whatever is wrong with the folder, the command's start will say
    if free < needed:
        raise ResourceShort(
            f"{say_size(free)} are free on the disk of {folder}, and {say_size(needed)} are the least to begin with; "
            "free some space, or lower tools.shell.free_bytes_min",
            without_effect=True,
        )
    return free


class _Output:
    """Both streams of a command, which together may print only so much."""

    def __init__(self, call: Call, process: Process, bytes_max: int, encoding: Encoding) -> None:
        self.stdout = _Capture(self, call, "stdout", encoding)
        self.stderr = _Capture(self, call, "stderr", "text")
        self.bytes_seen = 0
        self.is_over = False
        self._process = process
        self._bytes_max = bytes_max

    async def read_all(self) -> Any:
        process = self._process
        reading = (self.stdout.read(process.stdout), self.stderr.read(process.stderr))
        _, _, end = await asyncio.gather(*reading, process.wait())
        return end

    def count(self, size: int) -> None:
        self.bytes_seen += size
        if self.bytes_seen > self._bytes_max and not self.is_over:
            self.is_over = True
            self._process.send_signal(9)


class _Capture:
    """The beginning of one stream; what comes is handed on at once to whoever watches and to the log."""

    def __init__(self, output: _Output, call: Call, stream: str, encoding: Encoding) -> None:
        self.truncated = False
        self._output = output
        self._call = call
        self._stream = stream
        self._encoding: Encoding = encoding
        self._kept = bytearray()
        self._missed = 0  # bytes that came when there was no room left
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_shown = encoding == "text"
        self._last = "\n"

    async def read(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(PIECE_BYTES):
            self._output.count(len(piece))
            room = OUTPUT_BYTES_MAX - len(self._kept)
            self.truncated = self.truncated or len(piece) > room
            self._missed += len(piece) - min(room, len(piece))
            if room > 0:
                self._kept += piece[:room]
                self._show(piece[:room])
        if self._last != "\n":
            self._call.hear(self._stream, "\n")
        if self.truncated:
            more = f"({self._missed:,} bytes came after this, of which nothing is kept)\n"
            self._call.hear(self._stream, more)
        if self._is_shown and self.is_spoilt():
            self._call.hear("warning", f"{self._stream} is not UTF-8: each byte that is none stands as \ufffd\n")

    def text(self) -> str:
        text = self._kept.decode(errors="replace")
        return masks.torn(text) if self.truncated else text

    def is_spoilt(self) -> bool:
        """Whether something of it is no text, and was replaced where it is shown as one."""
        if self._encoding == "base64":
            return False
        try:  # a character that the end of the room has cut through is no mistake of the command
            codecs.getincrementaldecoder("utf-8")().decode(self._kept, final=not self.truncated)
        except UnicodeDecodeError:
            return True
        return False

    def result(self, argv: list[str]) -> str:
        """As the caller wants it. What is no text cannot be handed on as one without being spoilt."""
        if self._encoding == "base64":
            return base64.b64encode(self._kept).decode()
        place = self._kept.find(b"\0")
        if place >= 0:
            raise ToolError(
                f"its output is no text: byte {place} of stdout is zero, from: {shown(argv)}\n"
                "let it write to a file, or ask for its bytes with encoding: base64"
            )
        return self.text()

    def _show(self, piece: bytes) -> None:
        if self._is_shown and b"\0" in piece:
            self._is_shown = False
            self._last = "\n"
            self._call.hear(self._stream, "(what follows is no text, and is not shown)\n")
        if self._is_shown and (text := self._decoder.decode(piece)):
            self._call.hear(self._stream, text)
            self._last = text[-1]


class Shell(Adapter):
    """Commands on this machine."""

    Config = Config

    def __init__(self, config: Config, place: Place) -> None:
        super().__init__(config, place)
        self._commands = Commands(config)

    def suspect(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[Mistake]:
        """A program that is not here; an earlier step may bring it, so this is no mistake."""
        command: Any = arguments.get("command")
        program = str(cast("list[Any]", command)[0]) if isinstance(command, list) else ""
        if not program or "env" in arguments or "/" in program or shutil.which(program):
            return ()
        return [("command", f'no program called "{program}" is on PATH; unless another step brings it, this fails')]

    def tools(self) -> Sequence[Tool[..., Any]]:
        return (
            tool(name="shell.run", effect="once", breaker=False, resources=Resources(), judge=_judge)(
                self._commands.run
            ),
        )
