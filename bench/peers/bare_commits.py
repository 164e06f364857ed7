"""The floor everything durable stands on: SQLite alone, one row per transaction, WAL, synchronous=FULL.

`steps_per_s` is one commit per step, what an `idempotent` step needs at least; `once_steps_per_s` is two commits per
step, the intent and the outcome of a `once` step. The rows carry random bytes of the size asked for.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import apsw
from measure import STEPS_PER_EXECUTION, print_result


def open_store(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE bare (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return connection


def steps_per_second(steps: int, commits_per_step: int, body_bytes: int) -> float:
    """Rate of steps that each make so many commits of one row of `body_bytes`, in autocommit."""
    body = os.urandom(body_bytes)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        connection = open_store(Path(folder) / "bare.db")
        started = time.perf_counter()
        for _ in range(steps * commits_per_step):
            connection.execute("INSERT INTO bare (body) VALUES (?)", (body,))
        elapsed_s = time.perf_counter() - started
        connection.close()
    return steps / elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Bare SQLite commits per second with full fsync.")
    parser.add_argument("--executions", type=int, default=500, help="times ten commits (default 500)")
    parser.add_argument("--bytes", type=int, default=400, help="size of the row's body (default 400)")
    arguments = parser.parse_args()
    if arguments.executions < 1 or arguments.bytes < 0:
        parser.error("--executions must be at least 1 and --bytes at least 0")
    steps = arguments.executions * STEPS_PER_EXECUTION
    print_result(
        system="SQLite alone",
        version=apsw.sqlite_lib_version(),
        steps_per_s=round(steps_per_second(steps, 1, arguments.bytes), 1),
        once_steps_per_s=round(steps_per_second(steps, 2, arguments.bytes), 1),
        executions=arguments.executions,
        steps_per_execution=STEPS_PER_EXECUTION,
        body_bytes=arguments.bytes,
    )


if __name__ == "__main__":
    main()
