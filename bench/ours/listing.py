"""How long `holdfast list` takes from the shell in a store of many executions, and what its filters add to that."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import print_result

import holdfast
from holdfast.core.events import Program, TaskCreated
from holdfast.journal.log import new_execution
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import NewExecution, Query

BATCH = 2_000
RUNS = 7  # the best counts
FILTERS = {
    "status": Query(status=("failed",)),  # which none of them is: the whole table is walked
    "held": Query(held=True),
    "label": Query(labels={"number": "n77"}),
    "text": Query(text="tide 77x"),
}


async def fill(path: Path, executions: int) -> None:
    store = SqliteStore(path)
    for first in range(0, executions, BATCH):
        news = [new_of(number) for number in range(first, min(executions, first + BATCH))]
        await store.commit(news)
    await store.close()


def new_of(number: int) -> NewExecution:
    labels = {"team": f"t{number % 50}", "number": f"n{number}"}
    program = Program(kind="plan", name=f"report-{number % 9}")
    created = TaskCreated(at=number, program=program, title=f"The tide of place {number}", owner="ann", labels=labels)
    return new_execution(f"{number:08x}-0000-7000-8000-{number:012x}", [created])[0]


def best_s(command: list[str], folder: Path) -> float:
    """The bytecode is on disk after the first run, as it is for whatever is installed, whatever is set here."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        best = min(best, time.perf_counter() - started)
    return best


async def query_ms(path: Path, query: Query) -> float:
    store = SqliteStore(path)
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        await store.heads(query)
        best = min(best, time.perf_counter() - started)
    await store.close()
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000)
    executions: int = parser.parse_args().executions
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "journal.db"
        asyncio.run(fill(path, executions))
        listing = [sys.executable, "-m", "holdfast.cli", "--store", str(path), "list"]
        filters = {f"{name}_query_ms": round(asyncio.run(query_ms(path, query)), 1) for name, query in FILTERS.items()}
        bytecode = Path(folder) / "bytecode"
        list_s, status_s = best_s(listing, bytecode), best_s([*listing, "--status", "failed"], bytecode)
        print_result(
            system="Holdfast",
            version=holdfast.__version__,
            list_s=round(list_s, 3),
            status_s=round(status_s, 3),
            slowest_s=round(max(status_s, list_s + max(filters.values()) / 1e3), 3),
            **filters,
        )


if __name__ == "__main__":
    main()
