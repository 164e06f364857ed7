"""`shell.run`: a command under limits, its output shown as it comes, its whole tree ended with the step.

Owns what a command is given (its environment, from a list of names) and what becomes of its output. Starting, watching
and ending processes is processes.py's.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec
from msgspec import Meta

from holdfast.core.errors import InvalidCall, ResourceShort, ToolError
from holdfast.core.resources import DEFAULTS, Resources, Usage, say_size
from holdfast.tools.argument_errors import Mistake
from holdfast.tools.call import Call
from holdfast.tools.json_text import JsonInvalid, read_json
from holdfast.tools.processes.captured_output import OUTPUT_BYTES_MAX, Encoding, Output
from holdfast.tools.processes.exit_text import failure_of, last_lines, over_text, shown
from holdfast.tools.processes.spawn import Exit, spawn
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders

KILL_GRACE_S = 0.5  # between SIGTERM and SIGKILL, unless the engine says how long an interrupted command may take
FREE_BYTES_MIN = 16 * 1024 * 1024  # on the disk of its folder, or a command does not begin

# What most programs need to find others, their files and their language. Anything else may be a secret.
ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM",
)  # fmt: skip


class Result(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    spoilt: bool
    json: NotRequired[Any]  # with `parse: json`
    lines: NotRequired[list[str]]  # with `parse: lines`


Parse = Literal["json", "lines"]


SUCCESS = Result(exit_code=0, stdout="", stderr="", truncated=False, spoilt=False)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`env` names the variables that commands get of this process's environment; `*` stands for any letters."""

    env: tuple[str, ...] = ENVIRONMENT
    free_bytes_min: Annotated[int, Meta(ge=0)] = FREE_BYTES_MIN


class Commands:
    """What the tool does, with the settings of its family."""

    def __init__(self, config: Config) -> None:
        self._passes = re.compile("|".join(map(fnmatch.translate, config.env)) or "(?!)").match
        self._free_bytes_min = config.free_bytes_min

    async def run(  # noqa: PLR0917 -- one parameter per thing a command may be told
        self,
        command: str | list[str],
        call: Call,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        encoding: Encoding = "text",
        parse: Parse | None = None,
    ) -> Result:
        """Run a command: a string through `sh -c`, a list as it is. `env` is added to what the settings let through.

        `encoding: base64` is for a command that prints something else than text. `parse` also gives what it prints as
        `json` or as a list of `lines`.
        """
        _check_parse(parse, encoding)
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
        output = Output(call, process, limits.output_bytes or 0, encoding)
        reading = asyncio.ensure_future(output.read_all())  # goes on while the command tidies up
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody need be waiting
        try:
            end = await asyncio.shield(reading)
        except asyncio.CancelledError:
            await process.kill_for(call, KILL_GRACE_S)  # cut off from this, `close` kills at once
            raise
        finally:
            process.close()
            reading.cancel()
            call.use(Usage(output_bytes=output.bytes_seen))
        _notice_lost_room(call, folder, free_before, end, limits)
        failure = failure_of(argv, end, limits, call.together, output.stdout.text(), output.stderr.text())
        if output.is_over:
            raise ResourceShort(over_text(argv, "output", limits))
        if failure is not None:
            raise failure
        result: Result = {
            "exit_code": end.code,
            "stdout": output.stdout.result(argv),
            "stderr": output.stderr.text(),
            "truncated": output.stdout.truncated or output.stderr.truncated,
            "spoilt": output.stdout.is_spoilt() or output.stderr.is_spoilt(),
        }
        if parse == "lines":
            result["lines"] = _lines(result["stdout"])
        elif parse == "json":
            result["json"] = _json(argv, result["stdout"], is_cut=output.stdout.truncated)
        return result

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
    _check_parse(known.get("parse"), known.get("encoding", "text"))


def _check_parse(parse: Parse | None, encoding: Encoding) -> None:
    if parse is not None and encoding != "text":
        raise InvalidCall(f"parse: reads text, and encoding says {encoding}; leave one of them out")


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _json(argv: Sequence[str], text: str, *, is_cut: bool) -> Any:
    """The command has ended well, so it has happened: that its output is something else is a failure of its own."""
    if is_cut:
        raise ToolError(
            f"its output is longer than the {say_size(OUTPUT_BYTES_MAX)} that are kept, so it cannot be read as JSON: "
            f"{shown(argv)};\nlet it write to a file, or print less"
        )
    try:
        return read_json(text)
    except JsonInvalid as error:
        raise ToolError(f"its output is not JSON: {error}, from: {shown(argv)}\n{last_lines(text)}") from None


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


class Shell(Adapter):
    """Commands on this machine."""

    Config = Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
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
            tool(
                name="shell.run", effect="once", breaker=False, resources=Resources(), isolated=False, judge=_judge,
                done_output=SUCCESS,
            )(self._commands.run),
        )  # fmt: skip
