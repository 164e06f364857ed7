"""Reads a Markdown page into fenced blocks and runs them as a reader would, in order, in one fresh folder per page.

The info string after the language says what to expect of a block:

    file=NAME        write the block to that file in the page's folder; it is not run
    exit=N           the (last) command of the block exits with N instead of 0
    check            console blocks: each output line shown must be printed, `…` standing for anything
    no-run="reason"  leave it out, and say why

python, bash and sh blocks run whole; of a console block each `$ ` line runs. yaml, json and toml must parse.
text and mermaid are for the eye only. Anything else is a mistake that fails the page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

COMMAND_TIMEOUT_S = 60
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$")
OPTIONS = {"file", "exit", "check", "no-run"}
PARSERS: dict[str, Callable[[str], object]] = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}
SHELLS = {"bash", "sh"}
FOR_THE_EYE = {"text", "mermaid"}
LANGUAGES = {"python", "console", *SHELLS, *PARSERS, *FOR_THE_EYE}


class PageError(AssertionError):
    """A block that does not do what its page says: where, what ran, what came out."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    options: dict[str, str]
    text: str

    def error(self, problem: str, *, command: str = "", output: str = "") -> PageError:
        parts = [f"{self.page}:{self.line}: {problem}"]
        parts += [f"command:\n{command.rstrip()}"] if command else []
        parts += [f"output:\n{output.rstrip() or '(none)'}"] if command else []
        return PageError("\n".join(parts))


@dataclass(frozen=True)
class Command:
    argv: list[str]
    shown: str
    expected_lines: tuple[str, ...] = ()
    expected_exit: int = 0


def blocks_of(page: str, markdown: str) -> Iterator[Block]:
    lines = iter(enumerate(markdown.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip().startswith(opening["ticks"]) and not inner.strip().strip(opening["ticks"][0]):
                break
            body.append(inner.removeprefix(opening["indent"]))
        else:
            raise PageError(f"{page}:{number}: this block is never closed; end it with {opening['ticks']}")
        language, options = parse_info(page, number, opening["info"])
        yield Block(page, number, language, options, "\n".join(body) + "\n")


def parse_info(page: str, line: int, info: str) -> tuple[str, dict[str, str]]:
    language, *words = shlex.split(info) or [""]
    if language not in LANGUAGES:
        raise PageError(f'{page}:{line}: the block\'s language is "{language}", expected one of {sorted(LANGUAGES)}')
    options = {name: value for name, _, value in (word.partition("=") for word in words)}
    if unknown := options.keys() - OPTIONS:
        raise PageError(f"{page}:{line}: unknown {sorted(unknown)} after the language, expected {sorted(OPTIONS)}")
    if options.get("no-run") == "":
        raise PageError(f'{page}:{line}: no-run needs a reason: no-run="needs a key"')
    if not options.get("exit", "0").isdecimal():
        raise PageError(f'{page}:{line}: exit="{options["exit"]}" is not a number: exit=3')
    return language, options


def run_page(page: str, markdown: str, folder: Path, programs: Path | None = None) -> None:
    """`programs` is a folder of programs that are found before the installed ones."""
    for block in blocks_of(page, markdown):
        if "no-run" in block.options:
            continue
        parse_data(block)
        if name := block.options.get("file"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
            continue
        for command in commands_of(block, folder):
            run_command(block, command, folder, programs)


def parse_data(block: Block) -> None:
    parse = PARSERS.get(block.language)
    if parse is None:
        return
    try:
        parse(block.text)
    except (ValueError, yaml.YAMLError) as error:
        raise block.error(f"this {block.language} block does not parse: {error}") from error


def commands_of(block: Block, folder: Path) -> list[Command]:
    exit_code = int(block.options.get("exit", "0"))
    if block.language == "python":
        script = folder / f"block_{block.line}.py"
        script.write_text(block.text)
        return [Command([sys.executable, str(script)], block.text, expected_exit=exit_code)]
    if block.language in SHELLS:
        return [Command(["bash", "-euo", "pipefail", "-c", block.text], block.text, expected_exit=exit_code)]
    if block.language == "console":
        return console_commands(block, exit_code)
    return []


def console_commands(block: Block, last_exit: int) -> list[Command]:
    commands: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif not commands:
            raise block.error("a console block starts with a line `$ command`")
        elif commands[-1][0].endswith("\\"):
            text, _ = commands.pop()
            commands.append((f"{text}\n{line}", []))
        elif line.strip():
            commands[-1][1].append(line.strip())
    checked = "check" in block.options
    return [
        Command(
            ["bash", "-c", text],
            text,
            expected_lines=tuple(output) if checked else (),
            expected_exit=last_exit if position == len(commands) else 0,
        )
        for position, (text, output) in enumerate(commands, start=1)
    ]


def run_command(block: Block, command: Command, folder: Path, programs: Path | None = None) -> None:
    exit_code, output = run_bounded(block, command, folder, programs)
    if exit_code != command.expected_exit:
        problem = f"exit code {exit_code}, expected {command.expected_exit}"
        raise block.error(problem, command=command.shown, output=output)
    printed = [line.strip() for line in output.splitlines()]
    for expected in command.expected_lines:
        pattern = ".*".join(re.escape(part) for part in expected.split("…"))
        if not any(re.fullmatch(pattern, line) for line in printed):
            raise block.error(f"nothing printed matches: {expected}", command=command.shown, output=output)


def run_bounded(block: Block, command: Command, folder: Path, programs: Path | None) -> tuple[int, str]:
    # A session of its own, so that a command that hangs is ended together with everything it started.
    process = subprocess.Popen(
        command.argv,
        cwd=folder,
        env=reader_environment(folder, programs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        problem = f"still running after {COMMAND_TIMEOUT_S} s"
        raise block.error(problem, command=command.shown, output=output) from None
    return process.returncode, output


def reader_environment(folder: Path, programs: Path | None = None) -> dict[str, str]:
    first = [str(programs)] if programs is not None else []
    path = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / ".state"), "XDG_CONFIG_HOME": str(folder / ".config")}
    return {**os.environ, **own, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
