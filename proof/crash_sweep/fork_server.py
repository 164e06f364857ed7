"""Gives birth to processes that die: one import serves many deaths, because every life is a fork of this process.

Started as `fork_server.py TASK`, which is a `Task` in JSON. It first lets the program run undisturbed, then kills one
process at each point, lets new ones finish its work, judges, and prints one `Tried` in JSON for each point. How many
writes share a commit varies from run to run, so the points go on until a life outlives its own.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

import holdfast
from holdfast.journal.postgres.address import open_postgres
from proof.crash_sweep import world
from proof.crash_sweep.life import Order, live, speak
from proof.crash_sweep.programs import FUNCTIONS, PROGRAMS
from proof.crash_sweep.report import Report
from proof.crash_sweep.verdict import judge, story_of

FORK_SERVER = Path(__file__)
LEASE_S = 1.0  # on PostgreSQL a death is noticed when the lease has run out


class Task(msgspec.Struct, kw_only=True):
    """`store` is the address of a server, or "" for files. A moment with a number is tried alone."""

    program: str
    store: str = ""
    moments: tuple[str, ...] = ()
    every: int = 1
    double: int = 0  # n: whoever recovers dies as well, at every n-th of its writes and effects
    sabotage: str = ""
    jobs: int = 1


class Tried(msgspec.Struct, kw_only=True):
    """`story` holds the events of every execution, if something was wrong."""

    point: str
    deaths: int
    violations: list[str] = []
    story: list[str] = []


class Job:
    """One point being tried."""

    def __init__(self, pid: int, answer: Path, point: str) -> None:
        self._pid = pid
        self._answer = answer
        self._point = point

    def wait(self) -> list[Tried]:
        _, status = os.waitpid(self._pid, 0)
        if os.waitstatus_to_exitcode(status):
            return [Tried(point=self._point, deaths=1, violations=["whoever was to try it failed"])]
        return msgspec.json.decode(self._answer.read_bytes(), type=list[Tried])


class Nursery:
    def __init__(self, task: Task, base: Path) -> None:
        self._task = task
        self._base = base
        self._program = PROGRAMS[task.program]
        self._alone: Report = Report()

    def run(self) -> Iterator[Tried]:
        """Everything the task asks for, point by point."""
        self._warm_up()
        undisturbed, self._alone = self._try("undisturbed", [""], "")
        yield undisturbed
        if undisturbed.violations:
            return
        for moment in self._task.moments:
            if ":" in moment:
                yield self._tried(moment)
            elif self._program.elsewhere or not _is_said(moment):
                yield from self._moment(moment)

    def _warm_up(self) -> None:
        """What is imported and read once need not be in every life. Nothing is opened or connected to."""
        if self._task.store:
            open_postgres(self._task.store)
        engine = holdfast.Engine("memory:", folder=self._base, tools=world.TOOLS, functions=FUNCTIONS)
        for program in PROGRAMS.values():
            for name, text in program.files.items():
                (self._base / name).write_text(text)
            engine.preparer.prepare(program.subject)
        gc.collect()
        gc.freeze()  # what is here now stays, so that no fork touches and copies it

    # ---- points -------------------------------------------------------------------------------------------------

    def _moment(self, moment: str) -> Iterator[Tried]:
        """All points of the undisturbed run, a few at a time; then one by one, until a life outlives its point."""
        last = self._alone.counts[moment.partition("-")[2]]
        under_way: deque[Job] = deque()
        number, survived = 0, False
        while not survived:
            while not under_way or (len(under_way) < self._task.jobs and number + self._task.every <= last):
                number += self._task.every
                under_way.append(self._begin(f"{moment}:{number}"))
            is_beyond = number > last and len(under_way) == 1
            tried = under_way.popleft().wait()
            survived = is_beyond and not tried[0].deaths
            yield from tried

    def _begin(self, point: str) -> Job:
        """Try a point, and all second deaths that follow from it, in a process of its own."""
        answer = self._base / f"tried-{point}"
        child = os.fork()
        if child == 0:
            status = 1
            try:
                answer.write_bytes(msgspec.json.encode(list(self._with_second_deaths(point))))
                status = 0
            finally:
                os._exit(status)
        return Job(child, answer, point)

    def _with_second_deaths(self, point: str) -> Iterator[Tried]:
        tried = self._tried(point)
        yield tried
        if not self._task.double or not tried.deaths or _is_said(point):
            return
        for moment in ("before-commit", "after-commit", "before-effect", "after-effect"):
            number, deaths = 1, 2
            while deaths == 2:
                tried = self._tried(f"{point}+{moment}:{number}")
                deaths = tried.deaths
                yield tried
                number += self._task.double

    def _tried(self, point: str) -> Tried:
        points = [""] if _is_said(point) else [*point.split("+"), ""]
        return self._try(point, points, self._task.sabotage)[0]

    # ---- lives --------------------------------------------------------------------------------------------------

    def _try(self, point: str, points: list[str], sabotage: str) -> tuple[Tried, Report]:
        """Let life follow on life until one comes to its end, then judge."""
        folder = Path(tempfile.mkdtemp(dir=self._base))
        order = Order(
            program=self._task.program, folder=str(folder), store=self._address(folder), sabotage=sabotage
        )  # fmt: skip
        speaker = Speaker(order, len(points), point) if self._program.elsewhere else None
        try:
            lives = list(self._lives(order, points))
        except BaseException:
            if speaker is not None:
                speaker.end()
            raise
        said = speaker.wait() if speaker is not None else Said()
        shutil.rmtree(folder, ignore_errors=True)
        last, deaths = lives[-1], len(lives) - 1
        last.counts["said"] = said.writes
        violations = said.trouble + judge(self._program, self._alone if self._alone.root else last, lives, deaths)
        story = story_of(last.left) if violations else []
        return Tried(point=point, deaths=deaths + said.deaths, violations=violations, story=story), last

    def _lives(self, order: Order, points: list[str]) -> Iterator[Report]:
        for number, point in enumerate(points):
            report = self._live(msgspec.structs.replace(order, point=point, lives=number))
            yield report
            if report.survived:
                return
        raise AssertionError("a process died that nobody killed")

    def _address(self, folder: Path) -> str:
        """A store of its own for every point."""
        schema = f"crash_{os.getpid()}_{folder.name}".lower()
        return f"{self._task.store}?schema={schema}&lease_s={LEASE_S}" if self._task.store else ""

    def _live(self, order: Order) -> Report:
        """One life in a process of its own; what it found is known even if it was killed."""
        report = Path(order.folder) / "report.json"
        child = os.fork()
        if child == 0:
            live(order, report)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL), f"a life ended with {ended}"
        seen = msgspec.json.decode(report.read_bytes(), type=Report)
        seen.survived = ended == 0
        return seen


class Said(NamedTuple):
    """What became of whoever spoke from elsewhere."""

    writes: int = 0
    deaths: int = 0
    trouble: list[str] = []  # noqa: RUF012 -- nobody adds to it


class Speaker:
    """Somebody who speaks to a task from a process of its own, as long as there is something to say.

    Killed at `before|after-said:N`, one of its own writes, it is followed by another who says everything once more.
    """

    def __init__(self, order: Order, lives: int, point: str) -> None:
        self._report = Path(order.folder) / "speaker.json"
        fatal = point.replace("-said:", "-commit:") if _is_said(point) else ""
        self._pid = os.fork()
        if self._pid == 0:
            status = 2
            try:
                os.setpgid(0, 0)
                status = _speak_on(msgspec.structs.replace(order, lives=lives, point=fatal), self._report)
            finally:
                os._exit(status)
        os.setpgid(self._pid, self._pid)  # by both, so that it is done whoever comes first

    def wait(self) -> Said:
        deaths = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        report = msgspec.json.decode(self._report.read_bytes(), type=Report)
        trouble = [f"whoever spoke to it failed: {report.trouble}"] if report.trouble else []
        return Said(report.counts.get("commit", 0), deaths, trouble)

    def end(self) -> None:
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _speak_on(order: Order, report: Path) -> int:
    """Returns how many have died."""
    for deaths, point in enumerate([order.point, ""]):
        child = os.fork()
        if child == 0:
            speak(msgspec.structs.replace(order, point=point), report)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            return deaths
    raise AssertionError("a speaker died whom nobody killed")


def _is_said(point: str) -> bool:
    return point.partition(":")[0].endswith("-said")


def main(text: str) -> None:
    task = msgspec.json.decode(text, type=Task)
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # that others died is no news here
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-", dir=place) as base:
        for tried in Nursery(task, Path(base)).run():
            print(msgspec.json.encode(tried).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
