"""What the journal's tests share: a store whose commits wait for a gate, and logs opened as the engine does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.journal.log import SNAPSHOT_EVENTS_MIN, Log, new_execution
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Store, Write, Written
from holdfast.journal.writer import Writer


class GatedStore(MemoryStore):
    """Commits wait until the gate is opened, or fail with `failure`; `batches` are what each commit was given."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.batches: list[list[Write]] = []

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        self.batches.append(list(writes))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await super().commit(writes)


def created(**values: object) -> ev.TaskCreated:
    return ev.TaskCreated(at=1, program=ev.Program(kind="plan", name="report"), **values)  # pyright: ignore


def received(number: int = 0) -> ev.EventReceived:
    return ev.EventReceived(at=10 + number, name="n", data=Raw(b"%d" % number))


async def new_log(
    store: Store,
    writer: Writer,
    execution_id: str = "e1",
    *,
    snapshot_events_min: int = SNAPSHOT_EVENTS_MIN,
    **values: object,
) -> Log:
    new, state = new_execution(execution_id, [created(**values)], driver="d1")
    written = await writer.write(new)
    assert written.ok
    return Log(store, writer, state, new.head.digest, written.epoch, snapshot_events_min=snapshot_events_min)


async def turns(count: int = 5) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def run_python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def sql(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
