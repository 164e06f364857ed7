"""DBOS on SQLite: workflows of ten no-op steps, each step's outcome recorded before the next one starts.

DBOS leaves SQLite in its rollback-journal mode; a user who reads SQLite's manual turns WAL on, which is a property of
the file, so that is tried as well. No Conductor, no telemetry, no admin server: nothing but the library and the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from importlib.metadata import version
from pathlib import Path

from dbos import DBOS, DBOSConfig
from measure import STEPS_PER_EXECUTION, Timed, parse_executions, report_fastest

THREADS = 4


@DBOS.step()
def count_one(done: int) -> int:
    return done + 1


@DBOS.workflow()
def count_ten() -> int:
    done = 0
    for _ in range(STEPS_PER_EXECUTION):
        done = count_one(done)
    return done


@DBOS.step()
async def count_one_async(done: int) -> int:
    return done + 1


@DBOS.workflow()
async def count_ten_async() -> int:
    done = 0
    for _ in range(STEPS_PER_EXECUTION):
        done = await count_one_async(done)
    return done


class Launched:
    """DBOS between launch and destroy, on a fresh file in the folder."""

    def __init__(self, folder: Path, *, wal: bool) -> None:
        path = folder / "dbos.db"
        if wal:
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.close()
        self.config = DBOSConfig(
            name="bench",
            system_database_url=f"sqlite:///{path}",
            log_level="ERROR",
            enable_otlp=False,
            max_executor_threads=THREADS,
        )

    def __enter__(self) -> None:
        DBOS(config=self.config)
        DBOS.launch()

    def __exit__(self, *_: object) -> None:
        DBOS.destroy(destroy_registry=False)


def run_one_at_a_time(executions: int) -> int:
    return sum(count_ten() for _ in range(executions))


def run_in_threads(executions: int) -> int:
    handles = [DBOS.start_workflow(count_ten) for _ in range(executions)]
    return sum(handle.get_result() for handle in handles)


async def run_concurrently(executions: int) -> int:
    slots = asyncio.Semaphore(THREADS)

    async def run_one() -> int:
        async with slots:
            return await count_ten_async()

    return sum(await asyncio.gather(*(run_one() for _ in range(executions))))


def one_at_a_time(folder: Path, executions: int, timed: Timed) -> int:
    with Launched(folder, wal=False):
        return timed(lambda: run_one_at_a_time(executions))


def one_at_a_time_wal(folder: Path, executions: int, timed: Timed) -> int:
    with Launched(folder, wal=True):
        return timed(lambda: run_one_at_a_time(executions))


def started_in_threads(folder: Path, executions: int, timed: Timed) -> int:
    with Launched(folder, wal=False):
        return timed(lambda: run_in_threads(executions))


def started_in_threads_wal(folder: Path, executions: int, timed: Timed) -> int:
    with Launched(folder, wal=True):
        return timed(lambda: run_in_threads(executions))


def async_concurrently_wal(folder: Path, executions: int, timed: Timed) -> int:
    with Launched(folder, wal=True):
        return timed(lambda: asyncio.run(run_concurrently(executions)))


AS_SHIPPED = [one_at_a_time, started_in_threads]
WITH_WAL = [one_at_a_time_wal, started_in_threads_wal, async_concurrently_wal]

if __name__ == "__main__":
    # The rate that is compared is DBOS as it comes; what it reaches with a write-ahead log is reported beside it.
    report_fastest(
        "DBOS",
        version("dbos"),
        AS_SHIPPED,
        parse_executions("DBOS steps per second on SQLite, every outcome on disk before the next step.", default=300),
        beside=WITH_WAL,
    )
