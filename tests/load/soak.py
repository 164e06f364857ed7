"""A soak: engine processes are killed and started at random while clients hand in, command and watch.

`soak` runs for as long as it is told, then lets everything end and compares the journal with the world. One process is
never killed: what it holds in the first and in the last quarter shows whether anything grows.
`python tests/load/soak.py SECONDS [SEED]` runs one and prints its report.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

import holdfast
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.store import Query
from load import soaker
from load.people import ALIVE, everything_ended, heads
from load.programs import FUNCTIONS, TOOLS, check_world, read_ledger

MORTALS = 2  # processes that are killed, beside the one that is not
PATIENCE_S = 120.0  # for everything to end once the killing has stopped


class Vitals(NamedTuple):
    """What a process held, on average over a quarter of its life."""

    files: float
    threads: float
    tasks: float
    memory_bytes: float


# How much more a process may hold in its last quarter than in its first: so many times as much, and so much on top.
GROWTH_MAX: dict[str, tuple[float, float]] = {
    "files": (1.25, 8),
    "threads": (1.25, 4),
    "tasks": (1.5, 60),
    "memory_bytes": (1.25, 16 * 1024**2),
}


class Report(msgspec.Struct, kw_only=True):
    seconds: float
    kills: int = 0
    executions: int = 0
    recoveries: int = 0
    watched: int = 0
    ended: dict[str, int] = {}
    violations: list[str] = []
    first: Vitals = Vitals(0, 0, 0, 0)
    last: Vitals = Vitals(0, 0, 0, 0)
    doctor: int = -1
    doctor_said: str = ""


class Soak:
    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.folder = folder
        self.rng = Random(seed)
        self.report = Report(seconds=seconds)
        self.processes: list[asyncio.subprocess.Process] = []

    async def run(self) -> Report:
        try:
            survivor = await self._start()
            async with asyncio.timeout(self.report.seconds * 2 + 30):
                await self._while_it_lasts()
            (self.folder / soaker.ENOUGH).touch()
            await self._end(signal.SIGTERM)
        finally:
            await self._end(signal.SIGKILL)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._settle()
        except TimeoutError:
            self.report.violations += await self._stuck()
        await self._doctor()
        self.report.first, self.report.last = _quarters(soaker.vitals_file(self.folder, survivor.pid))
        return self.report

    async def _while_it_lasts(self) -> None:
        mortals = [await self._start() for _ in range(MORTALS)]
        loop = asyncio.get_running_loop()
        until = loop.time() + self.report.seconds
        async with holdfast.Engine(folder=self.folder, recover="none") as engine:
            watching = asyncio.create_task(self._watch(engine))
            while loop.time() < until:
                await asyncio.sleep(0.1 + self.rng.random())
                number = self.rng.randrange(MORTALS)
                mortals[number].kill()
                await mortals[number].wait()
                self.report.kills += 1
                mortals[number] = await self._start()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _start(self) -> asyncio.subprocess.Process:
        """A new engine process that is already at work."""
        command = [sys.executable, soaker.__file__, str(self.folder), str(self.rng.randrange(10**9))]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        ready = await process.stdout.readline()
        assert ready == b"ready\n", f"an engine process did not start: exit code {await process.wait()}"
        return process

    async def _end(self, how: signal.Signals) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.send_signal(how)
        for process in self.processes:
            await process.wait()

    # ---- checks ------------------------------------------------------------------------------------------------

    async def _watch(self, engine: holdfast.Engine) -> None:
        """Follow one execution after another, across kills: no event is missed or seen twice, and each can follow."""
        while True:
            newest = await engine.list(Query(limit=20))
            if not newest:
                await asyncio.sleep(0.05)
                continue
            run = engine.get(self.rng.choice(newest).id)
            state = Execution(id=run.id)
            try:
                async with asyncio.timeout(2.0), aclosing(run.watch()) as events:  # type: ignore[type-var]
                    async for seen in events:
                        if seen.seq is not None:
                            apply(state, seen.event, seen.seq)  # refuses gaps, repetitions and illegal moves
                self.report.watched += 1
            except TimeoutError:
                continue
            except holdfast.HoldfastError as error:
                self.report.violations.append(f"watching {run.id}: {error}")

    async def _settle(self) -> None:
        """Everybody who is left ends, and the journal says what happened in the world."""
        async with holdfast.Engine(folder=self.folder, tools=TOOLS, functions=FUNCTIONS) as engine:
            await everything_ended(engine, lambda: read_ledger(self.folder))
            states = [await engine.get(head.id).state() async for head in heads(engine)]
        if any(engine.holdings().values()):
            self.report.violations.append(f"left in memory: {engine.holdings()}")
        self.report.executions = len(states)
        self.report.recoveries = sum(state.recoveries for state in states)
        self.report.ended = dict(Counter(state.status for state in states))
        self.report.violations += check_world(states, read_ledger(self.folder))

    async def _stuck(self) -> list[str]:
        """Those who did not end, and what is known of them: each should have been able to."""
        async with holdfast.Engine(folder=self.folder, recover="none") as engine:
            return [
                f"stuck: {head.name} {head.id} is {head.status} ({head.reasons}), wake_at {head.wake_at}, epoch "
                f"{head.epoch}, driver {head.driver!r}, inbox {await engine.services.store.pending([head.id])}"
                async for head in heads(engine, ALIVE)
            ]

    async def _doctor(self) -> None:
        command = [sys.executable, "-m", "holdfast.cli", "-C", str(self.folder), "doctor"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        self.report.doctor, self.report.doctor_said = process.returncode or 0, said.decode()


def _quarters(file: Path) -> tuple[Vitals, Vitals]:
    rows = [[float(number) for number in line.split()] for line in file.read_text().splitlines()]
    rows = rows[len(rows) // 8 :]  # the first moments are spent on imports and first uses
    size = max(1, len(rows) // 4)
    return _mean(rows[:size]), _mean(rows[-size:])


def _mean(rows: list[list[float]]) -> Vitals:
    return Vitals(*(sum(column) / len(rows) for column in zip(*rows, strict=True)))


def grown(first: Vitals, last: Vitals) -> list[str]:
    """What grew beyond its bound between the first and the last quarter."""
    wrong: list[str] = []
    for name, (ratio, more) in GROWTH_MAX.items():
        before, after = getattr(first, name), getattr(last, name)
        if after > before * ratio + more:
            wrong.append(f"{name} grew from {before:,.0f} to {after:,.0f}")
    return wrong


def wrong_with(report: Report) -> list[str]:
    """Everything that a soak must keep, and a report of one in which nothing happened."""
    wrong = report.violations + grown(report.first, report.last)
    if report.ended != {"completed": report.executions}:
        wrong.append(f"{report.executions:,} executions, and they ended as {report.ended}")
    if report.doctor:
        wrong.append(f"the doctor found something: {report.doctor_said}")
    if not report.kills or not report.watched:
        wrong.append(f"it was no soak: {report.kills} kills, {report.watched} watched to their end")
    if not report.recoveries and report.kills >= 10:
        wrong.append(f"{report.kills} kills never met an execution at work")
    return wrong


async def soak(folder: Path, seconds: float, seed: int = 1) -> Report:
    return await Soak(folder, seconds, seed).run()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as place:
        found = asyncio.run(soak(Path(place), float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
    print(msgspec.json.format(msgspec.json.encode(found)).decode())
