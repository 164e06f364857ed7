"""What the proof consists of: each part tries something and yields rows, and says in each row exactly what it tried.

A part judges nothing by itself. What must hold stands beside the thing it is about, in tests/, where the daily tests
hold it to the same with smaller numbers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

JOBS = os.cpu_count() or 1


class Row(NamedTuple):
    what: str
    tried: str
    violations: list[str]


def row(what: str, tried: str, violations: list[str], count: int, at_least: int) -> Row:
    """A row of so many tries. Fewer than `at_least` are no proof, whatever they found."""
    few = (
        [] if count >= at_least else [f"only {count:,} were tried, and {at_least:,} are the least that prove anything"]
    )
    return Row(what, tried, [*violations, *few])


class Size(NamedTuple):
    """How much of each."""

    seeds: int = 3000
    sweep_every: int = 1
    double: tuple[tuple[str, int], ...] = (("function", 1), ("trouble", 4))  # programs, and every so many points
    flip_every: int = 7  # all of them would take as long as everything else together
    power: tuple[int, int] = (4, 1)  # workloads, and every so many moments
    crowd: int = 10_000
    plans: int = 1000
    soak_s: float = 120.0
    examples: int = 10
    covered_by: tuple[str, ...] = ("tests",)


# The least that a row must have tried, at full size: far below what it does, and far above nothing.
HISTORY_S_MIN = 20  # of virtual time
POINTS_MIN = 20  # in one life of a program
PLACES_MIN = 20_000
TESTS_MIN = 5000
MOMENTS_MIN = 50  # of one workload

# For a look at the table; the sentences change with the numbers.
QUICK = Size(
    seeds=200, sweep_every=10, double=(("function", 20),), flip_every=500, power=(1, 20), crowd=500, plans=100,
    soak_s=10.0, examples=1, covered_by=("tests/core", "tests/programs"),
)  # fmt: skip


def simulator(size: Size) -> Iterator[Row]:
    from proof.simulator.census import census, expected
    from proof.simulator.many import Progress, judged, replay_command

    wrong: dict[int, str] = {}
    virtual_s = 0.0
    progress = Progress(size.seeds, _say)
    for verdict in judged(range(size.seeds), JOBS):
        progress.saw(verdict)
        virtual_s += verdict.seconds
        if verdict.violations:
            wrong[verdict.seed] = f"{verdict.violations[0]}\n    replay: {replay_command(verdict.seed)}"
            _say(wrong[verdict.seed])
    tried = f"{size.seeds:,} histories, {virtual_s / 3600:,.0f} hours of virtual time"
    violations = [wrong[seed] for seed in sorted(wrong)]
    what = "simulated histories: crashes, zombies, bad disks, clock jumps, odd tools and odd commands"
    yield row(what, tried, violations, int(virtual_s), size.seeds * HISTORY_S_MIN)
    found = census()
    tried = f"all {len(expected())} within {found.histories} histories" if not found.missing else "not all"
    missing = [f"never reached: {label}" for label in sorted(found.missing)]
    yield Row("what these histories have to reach: fates of tools, breakages, commands, remedies", tried, missing)


# ---- broken on purpose ------------------------------------------------------------------------------------------


def sabotage(size: Size) -> Iterator[Row]:
    from proof.sabotage.engine import SABOTEURS

    with _processes() as pool:
        for saboteur, found in zip(SABOTEURS, pool.map(_caught, range(len(SABOTEURS))), strict=True):
            missed = [f"not noticed within {saboteur.within} seeds by {name}" for name in sorted(found.missed_by)]
            noticed = ", ".join(f"`{name}`" for name in sorted(saboteur.noticed_by - found.missed_by))
            tried = f"caught by seed {found.seeds} of {saboteur.within}: {noticed}" if noticed else "not caught"
            yield Row(f"broken on purpose: {saboteur.what}", tried, missed)


def _caught(number: int) -> Any:
    """In a process of its own, to which only a number need travel."""
    from proof.sabotage.engine import SABOTEURS
    from proof.sabotage.saboteur import caught

    return caught(SABOTEURS[number])


# ---- killed -----------------------------------------------------------------------------------------------------


def sweep(size: Size) -> Iterator[Row]:
    from proof.crash_sweep.programs import PROGRAMS
    from proof.crash_sweep.sweep import sweep as kill

    points = f"before and after {_each(size.sweep_every)} journal write and effect of a tool"
    for store, name in _STORES.items():
        found = kill(store=store, every=size.sweep_every)
        what = f"SIGKILL {points}, {name}, {len(PROGRAMS)} programs"
        at_least = len(PROGRAMS) * POINTS_MIN // size.sweep_every
        yield row(what, f"{found.points:,} points", list(found.violations), found.points, at_least)
    for program, every in size.double:
        found = kill(programs=[program], double=every, every=every)
        at = f"{_each(every)} point of the first life, each with {_each(every)} point of the second"
        what = f"SIGKILL again while recovering, SQLite, program `{program}`: {at}"
        tried = f"{found.points:,} points and pairs of points"
        yield row(what, tried, list(found.violations), found.points, (POINTS_MIN // every) ** 2)


_STORES: dict[Literal["sqlite", "postgres"], str] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


# ---- stores and disks -------------------------------------------------------------------------------------------


def stores(size: Size) -> Iterator[Row]:
    yield _tests("the contract of a store, on memory, SQLite and PostgreSQL", "tests/journal/test_contract.py")
    others = ["tests/journal", "--ignore=tests/journal/test_contract.py"]
    yield _tests("stores: damage, other versions, locks, leases, a server that goes away", *others)


def disk(size: Size) -> Iterator[Row]:
    from disk import power

    with _processes() as pool:
        found = list(pool.map(_flips, range(JOBS), [size.flip_every] * JOBS))
    outcomes: Counter[str] = sum((flips.outcomes for flips in found), Counter())
    shown = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
    violations = [text for flips in found for text in flips.violations]
    what = f"{_each(size.flip_every)} byte of a small store's file flipped, one at a time"
    yield row(
        what, f"{outcomes.total():,} places: {shown}", violations, outcomes.total(), PLACES_MIN // size.flip_every
    )
    workloads, every = size.power
    cuts = asyncio.run(power.sweep(range(workloads), every=every))
    what = f"power cut on a replayed disk under SQLite, unsynced writes lost or torn, at {_each(every)} moment"
    tried = f"{cuts.moments:,} moments of {workloads} workloads, one disk image each"
    yield row(what, tried, cuts.violations, cuts.moments, workloads * MOMENTS_MIN // every)
    what = "other faults of the disk: full, torn, read-only, locked, failing, shared, forked; a clock that is wrong"
    heavy = ["--ignore=tests/disk/test_flip.py", "--ignore=tests/disk/test_power.py"]
    yield _tests(what, "tests/disk", *heavy)


def _flips(first: int, every: int) -> Any:
    """One process's share of the places."""
    from disk import flip

    return asyncio.run(flip.sweep(only=lambda body: range(first * every, len(body), every * JOBS)))


# ---- load -------------------------------------------------------------------------------------------------------


def load(size: Size) -> Iterator[Row]:
    from load import completion, crowd, soak

    many = crowd.in_own_process(size.crowd, 1)
    per = many.parked_bytes / max(1, many.parked) / 1024
    tried = (
        f"{many.ended.get('completed', 0):,} of {many.executions:,} executions completed; at the height "
        f"{many.parked:,} waiting, {many.held:,} of them paused or interrupted, {per:.1f} KB each"
    )
    what = "a crowd with random pauses and interrupts, memory bounded"
    yield row(what, tried, crowd.wrong_with(many), many.executions, size.crowd)
    with tempfile.TemporaryDirectory(prefix="holdfast-proof-") as folder:
        rate = asyncio.run(completion.completion(Path(folder), size.plans))
    short = [] if rate.rate >= completion.RATE_MIN else [f"only {rate.rate:.2%} completed"]
    short += [f"{rate.paid_twice:,} calls that may happen once happened twice"] if rate.paid_twice else []
    what = (
        "10 % of tool calls fail for a moment and say that nothing happened, or nothing at all where a tool can look; "
        "at least 99 % of the plans complete alone"
    )
    yield row(what, f"{rate.completed:,} of {rate.plans:,} plans", short, rate.plans, size.plans)
    with tempfile.TemporaryDirectory(prefix="holdfast-proof-") as folder:
        report = asyncio.run(soak.soak(Path(folder), size.soak_s))
    tried = (
        f"{size.soak_s:.0f} s, {report.kills} kills, {report.recoveries:,} recoveries; "
        f"{report.ended.get('completed', 0):,} of {report.executions:,} executions completed"
    )
    what = "a soak with engines killed and restarted; nothing grows, the doctor finds nothing"
    yield row(what, tried, soak.wrong_with(report), report.kills, 1)


def properties(size: Size) -> Iterator[Row]:
    what = f"properties and fuzzing with {2 * size.examples} × the examples of the daily tests, and golden journals"
    yield _tests(what, "tests/properties", "tests/golden", HOLDFAST_EXAMPLES=str(size.examples))


# ---- coverage -------------------------------------------------------------------------------------------------


def coverage(size: Size) -> Iterator[Row]:
    """The bound is `fail_under` in pyproject.toml; a part of the tests is not held to it."""
    is_whole = size.covered_by == Size().covered_by
    bound = [] if is_whole else ["--cov-fail-under=0"]
    done = _pytest("--dist", "worksteal", "--cov", "--cov-report=term", *bound, *size.covered_by)
    found = re.search(r"^TOTAL\s.*?([\d.]+%)$", done.stdout, re.MULTILINE)
    passed = _counted("passed", done.stdout)
    wrong = [] if done.returncode == 0 and found else [(done.stdout + done.stderr)[-3000:]]
    tried = f"{found[1] if found else 'unknown'}, by {passed:,} tests"
    yield row("lines and branches that the tests run", tried, wrong, passed, TESTS_MIN if is_whole else 1)


# ---- small words ------------------------------------------------------------------------------------------------


def _tests(what: str, *arguments: str, **environ: str) -> Row:
    """A run of pytest, counted. What was skipped is not proved, and a row with such a hole is none to publish."""
    done = _pytest(*arguments, **environ)
    passed, skipped = (_counted(word, done.stdout) for word in ("passed", "skipped"))
    tried = f"{passed:,} tests" + (f", and {skipped:,} skipped on this machine" if skipped else "")
    wrong = [] if done.returncode == 0 and passed else [(done.stdout + done.stderr)[-3000:]]
    return Row(what, tried, [*wrong, *([f"{skipped:,} were skipped, and prove nothing"] if skipped else [])])


def _pytest(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(JOBS), "--no-header", *arguments]
    env = {**os.environ, **environ}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def _say(line: str) -> None:
    """How far it has come: a long part shows that it lives."""
    print(f"  … {line}", flush=True)


def _counted(word: str, text: str) -> int:
    found = re.search(rf"(\d+) {word}", text.splitlines()[-1] if text.strip() else "")
    return int(found[1]) if found else 0


def _each(every: int) -> str:
    return "every" if every == 1 else f"every {every}th"


def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(JOBS, mp_context=multiprocessing.get_context("spawn"))


PARTS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "simulator": simulator,
    "sabotage": sabotage,
    "sweep": sweep,
    "stores": stores,
    "disk": disk,
    "load": load,
    "properties": properties,
    "coverage": coverage,
}
