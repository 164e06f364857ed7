"""The crash sweep: a real process is killed with SIGKILL at every point of its work, restarted, and compared.

    python proof/crash_sweep/sweep.py [--store sqlite|postgres] [--program NAME] [--point before-commit:7] [--double]

The points are: before and after every journal write, before and after every effect of a tool, and, for tasks that are
spoken to from another process, before and after every write of that one. Here the sweep is asked for and counted;
fork_server.py lets the processes live and die, verdict.py says what must be true afterwards.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from proof.crash_sweep.fork_server import FORK_SERVER, Task, Tried
from proof.crash_sweep.programs import PROGRAMS
from proof.crash_sweep.sabotage import SABOTAGES

MOMENTS = (
    "before-commit", "after-commit", "before-effect", "after-effect", "before-file", "after-file",
    "before-said", "after-said",
)  # fmt: skip
JOBS = 6  # points tried at once: most of a life is waiting, for timers, looks and leases
Store = Literal["sqlite", "postgres"]


@dataclass(frozen=True)
class Result:
    """`points` counts the places where a process was killed, `deaths` the processes."""

    points: int = 0
    deaths: int = 0
    violations: tuple[str, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: Result) -> Result:
        return Result(
            self.points + other.points,
            self.deaths + other.deaths,
            self.violations + other.violations,
            self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        return f"{self.points} points, {self.deaths} deaths, {len(self.violations)} violations, {self.seconds:.1f} s"


def sweep(
    programs: Sequence[str] = tuple(PROGRAMS),
    store: Store = "sqlite",
    moments: Sequence[str] = MOMENTS,
    *,
    every: int = 1,
    double: int = 0,
    sabotage: str = "",
    tell: Callable[[str, Result], None] = lambda program, result: None,
) -> Result:
    """Kill each program at all points, or at every n-th; with `double` also whoever recovers, at every n-th.

    A moment with a number, such as `before-commit:7`, is one point. `tell` hears of each program when it is done.
    """
    total = Result()
    with _address(store) as address:
        for program in programs:
            task = Task(
                program=program, store=address, moments=tuple(moments), every=every, double=double, sabotage=sabotage,
                jobs=JOBS,
            )  # fmt: skip
            one = _sweep_one(task, store)
            tell(program, one)
            total += one
    return total


def _sweep_one(task: Task, store: Store) -> Result:
    began = time.monotonic()
    points = deaths = 0
    violations: list[str] = []
    for tried in _tries(task):
        points += tried.deaths == 1 + tried.point.count("+")  # the others lay beyond the end
        deaths += tried.deaths
        again = f"python proof/crash_sweep/sweep.py --store {store} --program {task.program} --point {tried.point}"
        again += f" --sabotage {task.sabotage}" if task.sabotage else ""
        if tried.violations:
            found = "\n    ".join([*tried.violations, *tried.story, again])
            violations.append(f"{task.program} at {tried.point}:\n    {found}")
    return Result(points, deaths, tuple(violations), time.monotonic() - began)


def _tries(task: Task) -> Iterator[Tried]:
    """In a process of its own: whoever asks may have threads, and those do not go well with forks.

    What it runs is not counted as covered: to count would take six times as long, in lives that are all alike.
    """
    command = [sys.executable, str(FORK_SERVER), msgspec.json.encode(task).decode()]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as fork_server:
        assert fork_server.stdout is not None
        for line in fork_server.stdout:
            yield msgspec.json.decode(line, type=Tried)
    if fork_server.returncode:
        raise RuntimeError(f"the sweep of {task.program} broke off; what it says is above")


@contextmanager
def _address(store: Store) -> Iterator[str]:
    if store == "sqlite":
        yield ""
        return
    from servers.postgres import running_server

    with running_server() as server:
        yield server.url


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)

    def tell(program: str, one: Result) -> None:
        print(f"{program} on {options.store}: {one}", *one.violations, sep="\n  ", flush=True)

    total = sweep(
        options.program or tuple(PROGRAMS), options.store, [options.point] if options.point else MOMENTS,
        every=options.every, double=int(options.double), sabotage=options.sabotage, tell=tell,
    )  # fmt: skip
    print(f"points tried: {total.points}, violations: {len(total.violations)}")
    return 1 if total.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Kill processes at every point of their work, and compare.")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--program", choices=list(PROGRAMS), action="append", help="this one only; may be repeated")
    parser.add_argument("--point", default="", help="this one only: before-commit:7, or before-commit:7+after-commit:2")
    parser.add_argument("--every", type=int, default=1, help="every n-th point only")
    parser.add_argument("--double", action="store_true", help="kill whoever recovers, too, at each of its points")
    parser.add_argument("--sabotage", choices=list(SABOTAGES), default="", help="break the engine on purpose")
    return parser


if __name__ == "__main__":
    sys.exit(main())
