"""The whole proof in one run: thousands of simulated histories, every crash point, every byte flipped, load and soak.

    make prove                          everything, about half an hour
    python proof/run.py --quick         the same with smaller numbers, for a look at the table
    python proof/run.py --only NAME     one part: simulator, sabotage, sweep, disk, load, properties

Prints one table and writes it into docs/reliability.md. A violation is printed with the command that replays it, and
nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

PAGE = ROOT / "docs" / "reliability.md"
MARK = re.compile(r"(<!-- generated: proof -->\n).*?(\n<!-- end: proof -->)", re.DOTALL)


class Row(NamedTuple):
    what: str
    tried: str
    violations: list[str]


class Size(NamedTuple):
    """How much of each; the quick one is for a look."""

    seeds: int = 5000
    sweep_every: int = 1
    flip_every: int = 7
    power: tuple[int, int] = (4, 1)  # workloads, and every so many moments
    crowd: int = 10_000
    soak_s: float = 120.0
    examples: int = 10


QUICK = Size(seeds=200, sweep_every=10, flip_every=500, power=(1, 20), crowd=500, soak_s=10.0, examples=1)


def simulator(size: Size) -> Iterator[Row]:
    from holdfast.testing.simulator.__main__ import judged, replay_command

    violations: list[str] = []
    virtual_s = 0.0
    for seed, found, seconds in judged(range(size.seeds), jobs=os.cpu_count() or 1):
        virtual_s += seconds
        violations += [f"{text}\n    replay: {replay_command(seed)}" for text in found[:1]]
    tried = f"{size.seeds:,} histories, {virtual_s / 3600:.0f} hours of virtual time"
    yield Row("simulated histories: crashes, zombies, bad disks, clock jumps, odd tools", tried, violations)


def sabotage(size: Size) -> Iterator[Row]:
    from simulator.sabotage import SABOTEURS, caught

    for saboteur in SABOTEURS:
        found = caught(saboteur)
        missed = [] if found else [f"nobody noticed within {saboteur.within} seeds: {saboteur.what}"]
        tried = (
            f"caught after {found[0]} of {saboteur.within}: `{found[1].partition(':')[0]}`" if found else "not caught"
        )
        yield Row(f"broken on purpose: {saboteur.what}", tried, missed)


def sweep(size: Size) -> Iterator[Row]:
    from crash.programs import PROGRAMS
    from crash.sweep import sweep as kill

    for store in ("sqlite", "postgres"):
        found = kill(store=store, every=size.sweep_every)
        yield Row(
            f"SIGKILL at every journal write and tool boundary, {_STORES[store]}, {len(PROGRAMS)} programs",
            f"{found.points:,} points",
            list(found.violations),
        )
    found = kill(programs=tuple(PROGRAMS)[:1], double=size.sweep_every, every=size.sweep_every)
    yield Row("SIGKILL again while recovering, SQLite", f"{found.points:,} pairs of points", list(found.violations))


_STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def disk(size: Size) -> Iterator[Row]:
    from disk import flip, power

    flips = asyncio.run(flip.sweep(size.flip_every))
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(flips.outcomes.items()))
    yield Row("one byte of the file flipped", f"{flips.points:,} places: {outcomes}", flips.violations)
    workloads, every = size.power
    cuts = asyncio.run(power.sweep(range(workloads), every=every))
    tried = f"{cuts.moments:,} moments, {cuts.images:,} disk images"
    yield Row("power cut on real SQLite, unsynced writes lost or torn", tried, cuts.violations)


def load(size: Size) -> Iterator[Row]:
    from load.completion import completion
    from load.crowd import in_own_process
    from load.soak import soak

    crowd = in_own_process(size.crowd, 1)
    per = crowd.parked_bytes / max(1, crowd.parked) / 1024
    tried = f"{crowd.executions:,} executions, {crowd.held:,} held at once, {per:.1f} KB each while parked"
    yield Row("a crowd with random pauses and interrupts", tried, crowd.violations)
    with tempfile.TemporaryDirectory(prefix="holdfast-proof-") as folder:
        rate = asyncio.run(completion(Path(folder)))
    short = [] if rate.rate >= 0.99 else [f"only {rate.rate:.2%} completed"]
    yield Row("10 % of tool calls fail transiently", f"{rate.rate:.1%} of {rate.plans:,} plans completed alone", short)
    with tempfile.TemporaryDirectory(prefix="holdfast-proof-") as folder:
        report = asyncio.run(soak(Path(folder), size.soak_s))
    tried = f"{report.executions:,} executions, {report.kills} kills, {report.recoveries:,} recoveries"
    yield Row("a soak with engines killed and restarted", tried, report.violations)


def properties(size: Size) -> Iterator[Row]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--no-header", "tests/properties", "tests/golden"]
    environ = {**os.environ, "HOLDFAST_EXAMPLES": str(size.examples)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    tried = f"{passed[1] if passed else 0} properties and golden journals, {size.examples} × the usual examples"
    yield Row("properties and fuzzing", tried, [] if done.returncode == 0 else [done.stdout[-3000:]])


PARTS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "simulator": simulator,
    "sabotage": sabotage,
    "sweep": sweep,
    "disk": disk,
    "load": load,
    "properties": properties,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part only; may be repeated")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.only or PARTS:
        began = time.monotonic()
        for row in PARTS[name](QUICK if given.quick else Size()):
            rows.append(row)
            print(f"{row.what}: {row.tried}; violations {len(row.violations)}", flush=True)
            for violation in row.violations[:20]:
                print(f"  {violation}", flush=True)
        print(f"  ({name}: {time.monotonic() - began:.0f} s)", flush=True)
    failed = sum(len(row.violations) for row in rows)
    print(f"\n{_table(rows)}\n\nviolations: {failed}")
    if not failed and not given.quick and not given.only:
        PAGE.write_text(MARK.sub(lambda found: f"{found[1]}\n{_table(rows)}\n{found[2]}", PAGE.read_text()))
    return 1 if failed else 0


def _table(rows: list[Row]) -> str:
    lines = ["| what was tried | how much | violations |", "|---|---|---|"]
    lines += [f"| {row.what} | {row.tried} | {len(row.violations)} |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
