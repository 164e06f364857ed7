"""A folder with tools and plans in which tests run the real command, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import holdfast

PATIENCE_S = 30.0  # for things that take milliseconds on a quiet machine

TOOLS = '''
import asyncio

import holdfast


def _log(call, word):
    with (call.folder / "log.txt").open("a") as log:
        log.write(f"{call.path} {word}\\n")


@holdfast.tool(name="work.do", effect="once")
async def do(call: holdfast.Call, value: int = 0) -> int:
    """Do a little work."""
    _log(call, "ran")
    return value


async def _until_open(call, gate):
    _log(call, "begun")
    while not (call.folder / gate).exists():
        await asyncio.sleep(0.01)
    _log(call, "ended")


@holdfast.tool(name="work.gate", effect="idempotent")
async def gate(call: holdfast.Call, file: str = "go") -> None:
    """Wait until a file is there."""
    await _until_open(call, file)


@holdfast.tool(name="work.once", effect="once")
async def once(call: holdfast.Call, file: str = "go") -> str:
    """Wait until a file is there; must not happen twice."""
    await _until_open(call, file)
    return "done"


@holdfast.tool(name="work.stubborn", effect="idempotent")
async def stubborn(call: holdfast.Call, file: str = "go") -> None:
    """Take a long time to tidy up."""
    try:
        await _until_open(call, file)
    finally:
        await asyncio.sleep(30)


@holdfast.tool(name="work.fail", effect="read")
def fail(call: holdfast.Call, text: str = "it broke") -> None:
    """Fail for good."""
    raise holdfast.ToolError(text)


@holdfast.tool(name="work.even", effect="read")
def even(number: int) -> int:
    """Take even numbers only."""
    if number % 2:
        raise holdfast.InvalidCall(f"{number} is odd")
    return number


@holdfast.tool(name="work.needy", effect="read", requires=["no-such-program-anywhere"])
def needy() -> None:
    """Need something that nobody has."""


@holdfast.function
async def double(ctx, number: int, label: str = "") -> str:
    return f"{label}{2 * await ctx.call(do, value=number)}"


@holdfast.function
async def asks(ctx) -> str:
    answer = await ctx.ask("which colour?", name="colour")
    return f"painted {answer}"


@holdfast.function
async def parent(ctx) -> str:
    child = await ctx.start("ask.yaml", name="child")
    return await child.result()
'''

PLANS = {
    "two.yaml": """
name: two
inputs: {count: {type: integer, default: 1}, who: {type: string, default: you}}
title: Two steps for ${{ inputs.who }}
steps:
  - {id: first, tool: work.do, with: {value: "${{ inputs.count }}"}}
  - {id: second, tool: work.do, with: {value: 2}}
output: ${{ steps.first.output }}
""",
    "gate.yaml": """
name: gate
steps:
  - {id: before, tool: work.do}
  - {id: gate, tool: work.gate}
  - {id: after, tool: work.do}
""",
    "once.yaml": """
name: once
steps:
  - {id: pay, tool: work.once}
output: ${{ steps.pay.output }}
""",
    "stubborn.yaml": "name: stubborn\nsteps:\n  - {id: slow, tool: work.stubborn}\n",
    "ask.yaml": """
name: ask
steps:
  - {id: draft, tool: work.do}
  - {id: publish, tool: work.do, with: {value: 5}, approval: Publish it?}
output: ${{ steps.publish.output }}
""",
    "fail.yaml": """
name: fail
steps:
  - {id: fine, tool: work.do}
  - {id: broken, tool: work.fail}
  - {id: never, tool: work.do}
""",
    "even.yaml": """
name: even
steps:
  - {id: count, tool: work.even, with: {number: 3}}
output: ${{ steps.count.output }}
""",
    "event.yaml": """
name: event
steps:
  - {id: go, wait: {event: start}}
output: ${{ steps.go.output }}
""",
}


def environment(**more: str) -> dict[str, str]:
    """The Holdfast under test is found from any folder, installed or not."""
    source = str(Path(holdfast.__file__).parents[1])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # where `holdfast` is found by name
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "200", **more}


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Workshop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("holdfast.toml", 'modules = ["tools.py"]\n')
        self.write("tools.py", TOOLS)
        for name, text in PLANS.items():
            self.write(name, text)
        self._started: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    @property
    def store(self) -> Path:
        return self.folder / ".holdfast" / "journal.db"

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, *arguments: str, code: int | None = 0, **environ: str) -> Result:
        """A command from start to end. `code` is the exit code it must have, None for any."""
        process = self.start(*arguments, **environ)
        return self.finish(process, code)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            cwd=self.folder,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], code: int | None = 0) -> Result:
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"still running after {PATIENCE_S} s\n{out}\n{err}") from None
        assert code is None or process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return Result(process.returncode, out, err)

    def told(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """The next of its JSON lines; a process that keeps silent is killed, so that the test ends."""
        assert process.stdout is not None
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            line = process.stdout.readline()
        finally:
            patience.cancel()
        assert line, f"it said nothing for {PATIENCE_S} s, or ended"
        return json.loads(line)

    def kill_all(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate()

    # ---- looking -----------------------------------------------------------------------------------------------------

    def log(self) -> list[str]:
        path = self.folder / "log.txt"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_log(self, line: str) -> None:
        wait_until(lambda: line in self.log(), f"{line!r} in the log")

    def open_gate(self, name: str = "go") -> None:
        self.write(name, "")

    def newest(self) -> dict[str, Any]:
        return self.run("list", "--json").json[0]

    def wait_for_status(self, status: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = self.run("list", "--json").json
            return bool(found) and found[0]["status"] == status

        wait_until(look, f"status {status}")
        return found[0]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.02)
