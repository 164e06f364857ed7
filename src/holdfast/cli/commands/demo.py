"""`holdfast demo`: a real plan, killed half-way with SIGKILL, and resumed; with a witness that nothing ran twice.

The plan runs in a child process, as `holdfast run` would run it. This process only watches its journal from outside.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import typer

from holdfast.cli.common.context import wait_for
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import is_terminal, json_line, paint
from holdfast.core.errors import HoldfastError
from holdfast.settings.invocation import program, with_options

if TYPE_CHECKING:
    import subprocess

    from holdfast.engine.feed import Watched
    from holdfast.settings import Settings

FOLDER = "holdfast-demo"
PLAN_FILE = "tides.yaml"
KILL_AT_STEP = "chart"  # it runs for a while, and everything before it is finished by then
CHILD_TIMEOUT_S = 60
SETTINGS = 'modules = ["holdfast.cli.commands.demo_tools"]\n'
PLAN = """\
# The plan of `holdfast demo`. A step needs the one before it, unless it says otherwise.
name: tides
title: A small report on the tides
steps:
  - id: harbour                     # first, on its own
    tool: demo.measure
    with: {place: Harbour, seconds: 0.3}
  - id: north                       # then three at once
    tool: demo.measure
    with: {place: North Pier, seconds: 0.4}
    needs: [harbour]
  - id: south
    tool: demo.measure
    with: {place: South Pier, seconds: 0.6}
    needs: [harbour]
  - id: almanac                     # fails twice, and is tried again
    tool: demo.flaky
    retry: {max: 3, first: 300ms}
    needs: [harbour]
  - id: picture                     # fails for good, and the plan lives with it
    tool: demo.broken
    critical: false
    needs: [harbour]
  - id: compare
    tool: demo.measure
    with: {place: All of them, seconds: 0.2}
    needs: [north, south, almanac, picture]
  - id: chart                       # killed in the middle of this one
    tool: demo.write
    with: {name: chart.txt, lines: ["~~~^~~~"], seconds: 1.0}
  - id: report
    tool: demo.write
    with:
      name: report.txt
      seconds: 0.3
      lines:
        - "Harbour: ${{ steps.harbour.output.metres }} m"
        - "North:   ${{ steps.north.output.metres }} m"
        - "South:   ${{ steps.south.output.metres }} m"
        - "Moon:    ${{ steps.almanac.output }}"
output: ${{ steps.report.output }}
"""


class KilledState(NamedTuple):
    """What the journal said about the execution when its process was killed."""

    execution_id: str
    completed: frozenset[str]
    seq: int
    failed: int = 0


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(as_json: AsJson = False) -> int:
    """Run a plan, kill it half-way, and watch it resume without repeating anything. Takes a few seconds.

    \b
    Example:
      holdfast demo
    """
    if as_json:  # what is told on the way is for people
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            told = _perform(nowhere)
        print(json_line(told))
    else:
        told = _perform(None)
    return 1 if told["repeated"] or told["exit_code"] else 0


def _perform(output: TextIO | None) -> dict[str, Any]:
    """The whole of it, and what came out; its processes write to `output`, or where this one does."""
    import secrets
    import signal

    folder = _prepare()
    shown = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    _say(f"1. A plan of eight steps runs in a process of its own (in {shown}/).")
    key = f"demo-{secrets.token_hex(4)}"
    child = _start(folder, "run", PLAN_FILE, "--key", key, output=output)
    try:
        seen = wait_for(_watch_until_half_way(folder, key, child))
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    if is_terminal():
        print("\x1b[?25h", end="")  # the killed process could not give the cursor back
    _say(f'\n2. Killed with SIGKILL in the middle of step "{KILL_AT_STEP}". Another process resumes it:')
    resumed = _start(folder, "resume", seen.execution_id, output=output)
    code = resumed.wait(CHILD_TIMEOUT_S)
    repeated = _repeated(folder, seen, resumed.pid) | wait_for(_started_again(folder, seen))
    _say("\n3. What really ran, by the file to which every step adds a line:")
    _show_witness(folder, child.pid, resumed.pid)
    words = f"resumed: {len(seen.completed)} steps from history, {len(repeated)} repeated"
    print(paint(words, "red" if repeated or code else "green"))
    print(f"(when it was killed: {len(seen.completed)} completed, {seen.failed} failed and lived with, 1 was cut off)")
    print(f"\nThe execution is {seen.execution_id}. Look at it:")
    for command in ("show", "events"):
        print(f"  {with_options(program(), folder=shown)} {command} {seen.execution_id}")
    print(f"  cat {shlex.quote(os.path.abspath(folder / PLAN_FILE))}")
    return {
        "id": seen.execution_id,
        "folder": str(folder),
        "from_history": sorted(seen.completed),
        "repeated": sorted(repeated),
        "exit_code": code,
    }


def _say(text: str) -> None:
    print(paint(text, "bold"), flush=True)


def _prepare() -> Path:
    """A folder with the plan and its settings: here, or in the temporary folder if this one cannot be written."""
    import tempfile

    from holdfast.cli.commands.demo_tools import WITNESS

    folder = Path.cwd() / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        (folder / "holdfast.toml").write_text(SETTINGS)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}-"))
        (folder / "holdfast.toml").write_text(SETTINGS)
    (folder / PLAN_FILE).write_text(PLAN)
    (folder / WITNESS).write_text("")
    return folder


def _start(folder: Path, *arguments: str, output: TextIO | None) -> subprocess.Popen[bytes]:
    import subprocess

    sys.stdout.flush()
    environ = {name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast.cli", "-C", str(folder), *arguments]
    return subprocess.Popen(command, env=environ, stdout=output)


async def _watch_until_half_way(folder: Path, key: str, child: subprocess.Popen[bytes]) -> KilledState:
    """Follow the journal from this process until the step that is to be killed runs."""
    import asyncio

    from holdfast.cli.common.context import bare_engine
    from holdfast.settings import load_settings

    settings = load_settings(folder, {})
    async with asyncio.timeout(CHILD_TIMEOUT_S):
        await _until_there(settings, child)
        async with bare_engine(settings) as engine:
            while not (found := [head.id for head in await engine.list() if head.key == key]):
                _must_live(child)
                await asyncio.sleep(0.02)
            completed, failed = set[str](), 0
            async for watched in engine.get(found[0]).watch():
                if watched.type == "step:completed":
                    completed.add(_path(watched))
                failed += watched.type == "step:failed"
                if watched.type == "step:started" and _path(watched) == KILL_AT_STEP:
                    await asyncio.sleep(0.3)
                    return KilledState(found[0], frozenset(completed), watched.seq or 0, failed)
    raise HoldfastError("the demo ended before it could be killed; run `holdfast doctor`")


async def _until_there(settings: Settings, child: subprocess.Popen[bytes]) -> None:
    import asyncio

    while settings.store_file is None or not settings.store_file.exists():
        _must_live(child)
        await asyncio.sleep(0.02)


def _path(watched: Watched) -> str:
    return str(getattr(watched.event, "path", ""))


def _must_live(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        raise HoldfastError(f"the demo's plan ended with exit code {child.returncode} before it began; see above")


# ---- the witness ---------------------------------------------------------------------------------------------------


def _testimony(folder: Path) -> list[tuple[str, int]]:
    """Each run that really took place: the step and the process."""
    from holdfast.cli.commands.demo_tools import WITNESS

    lines = (folder / WITNESS).read_text().splitlines()
    return [(path, int(pid)) for path, _, pid in (line.split() for line in lines)]


def _repeated(folder: Path, seen: KilledState, second_pid: int) -> set[str]:
    """Steps that were finished before the kill and ran again after it."""
    return {path for path, pid in _testimony(folder) if pid == second_pid and path in seen.completed}


async def _started_again(folder: Path, seen: KilledState) -> set[str]:
    """The same question, put to the journal."""
    from holdfast.cli.common.context import bare_engine
    from holdfast.core.events import name_of
    from holdfast.journal.log import read_events
    from holdfast.settings import load_settings

    async with bare_engine(load_settings(folder, {})) as engine:
        later = await read_events(engine.services.store, seen.execution_id, seen.seq)
    started = {str(getattr(event, "path", "")) for _, event in later if name_of(event) == "step:started"}
    return started & seen.completed


def _show_witness(folder: Path, first_pid: int, second_pid: int) -> None:
    from collections import Counter

    testimony = _testimony(folder)
    for pid, words in ((first_pid, "before the kill"), (second_pid, "after it")):
        runs = Counter(path for path, by in testimony if by == pid)
        shown = ", ".join(f"{path} ({count} times)" if count > 1 else path for path, count in runs.items())
        print(f"  {words:<16} {shown}")
