"""One execution, one step after the other, each on disk before the next: as a share of bare commits of the same bytes.

Bare commits and steps take turns in short rounds, so that a noisy neighbour disturbs both alike; the share is the
median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

import apsw
from common import print_result, scratch_engine, sequence

import holdfast


def bare_rate(commits: int, body_bytes: int) -> float:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        connection = apsw.Connection(str(Path(folder) / "bare.db"))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.execute("CREATE TABLE bare (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        body = os.urandom(body_bytes)
        started = time.perf_counter()
        for _ in range(commits):
            connection.execute("INSERT INTO bare (body) VALUES (?)", (body,))
        elapsed_s = time.perf_counter() - started
        connection.close()
    return commits / elapsed_s


async def our_rate(steps: int, effect: str) -> tuple[float, int]:
    """Steps per second, and how many bytes of events a step writes."""
    async with scratch_engine() as engine:
        started = time.perf_counter()
        run = await engine.start(sequence, inputs={"steps": steps, "effect": effect})
        await run.result()
        elapsed_s = time.perf_counter() - started
        _, rows = await engine.services.store.events(run.id, 0, -1)
        step_bytes = sum(len(row.body) + len(row.digest) for row in rows) // steps
    return steps / elapsed_s, step_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=5, help="rounds")
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    shares: dict[str, list[float]] = {"idempotent": [], "once": []}
    rates: dict[str, list[float]] = {"idempotent": [], "once": [], "bare": []}
    step_bytes = 400
    for _ in range(arguments.executions):
        for effect, own in shares.items():
            bare = bare_rate(arguments.steps, step_bytes)
            rate, step_bytes = asyncio.run(our_rate(arguments.steps, effect))
            own.append(rate / bare)
            rates[effect].append(rate)
            rates["bare"].append(bare)
    print_result(
        system="Holdfast",
        version=holdfast.__version__,
        steps_per_s=round(statistics.median(rates["idempotent"]), 1),
        once_steps_per_s=round(statistics.median(rates["once"]), 1),
        bare_commits_per_s=round(statistics.median(rates["bare"]), 1),
        share=round(statistics.median(shares["idempotent"]), 3),
        once_share=round(statistics.median(shares["once"]), 3),
        bytes_per_step=step_bytes,
    )


if __name__ == "__main__":
    main()
