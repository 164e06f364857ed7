"""A small store with something of everything in it, and the tools and programs that its executions need.

`furnish` writes the store; what engines make of it is in look.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from msgspec import Raw

import holdfast
from holdfast.core.commands import Command
from holdfast.journal.sqlite.store import SqliteStore

HURRY = holdfast.Limits(passivate_after_s=0.0, interrupt_grace_s=0.2, drain_s=0.0)
PATIENCE_S = 60.0
CACHED = {"id": "a", "tool": "look", "with": {"value": "shore"}, "cache": "3000d"}
PAGE_BYTES = 512
DEAD = "dead-driver"
LARGE = "tide " * 1700  # more than an event holds: it becomes a blob

paid: Counter[str] = Counter()  # calls of the `once` tool by idempotency key, over all engines of this process
held: list[str] = []  # tools that were called while they may not return
hold: asyncio.Event | None = None


async def _held(call: holdfast.Call) -> None:
    if hold is not None:
        held.append(call.path)
        await hold.wait()


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: Any = None) -> Any:
    paid[call.key] += 1
    await _held(call)
    return value


@holdfast.tool(effect="idempotent")
async def put(call: holdfast.Call, value: Any = None) -> Any:
    await _held(call)
    return value


@holdfast.tool(effect="read")
async def look(value: Any = None) -> Any:
    return value


@holdfast.tool(effect="read")
async def large() -> str:
    return LARGE


@holdfast.tool(effect="read")
async def broken() -> None:
    raise holdfast.ToolError("it is broken")


@holdfast.function
async def asks(ctx: holdfast.Context) -> Any:
    await ctx.call(pay, 1)
    return [await ctx.wait_for("go"), await ctx.call(pay, 2)]


class Gate:
    """A tool that says when it was entered and stays until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()

        @holdfast.tool(name="gate", effect="once")
        async def gate() -> None:
            self.entered.set()
            await self.open.wait()

        self.tool = gate


TOOLS = [pay, put, look, large, broken]
FUNCTIONS = [asks]


def plan(name: str, *steps: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"name": name, "steps": list(steps), **others}


def step(step_id: str, tool: str, value: Any = None, **others: Any) -> dict[str, Any]:
    return {"id": step_id, "tool": tool, "with": {"value": value}, **others}


def engine_in(folder: Path, recover: Any = "all") -> holdfast.Engine:
    return holdfast.Engine(folder=folder, tools=TOOLS, functions=FUNCTIONS, limits=HURRY, recover=recover)


@contextmanager
def in_memory() -> Generator[Path]:
    """A folder that is gone afterwards; where there is a disk in memory, what is not about syncing takes no time."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if usable else None) as folder:
        yield Path(folder)


def store_of(folder: Path) -> Path:
    return folder / ".holdfast" / "journal.db"


# ---- furnishing --------------------------------------------------------------------------------------------------


async def furnish(folder: Path) -> Path:
    """Ended, failed, paused, waiting, doubtful and orphaned executions; blobs, snapshots, cache and inbox filled."""
    async with _with_snapshots(engine_in(folder)) as engine:
        await _furnish_ended(engine)
        waiting = await engine.start(asks)
        await _status(waiting, "waiting")
        paused = await engine.start(plan("paused", step("a", "put"), step("b", "look")), hold=True)
        await paused.command("pause", id="paused", why="lunch")
        await engine.start(plan("nap", {"id": "nap", "wait": 0.6}, step("after", "pay", 7)))
    orphan = await _furnish_cut(folder)
    store = SqliteStore(store_of(folder))
    arguments = Raw(b'{"name":"go","data":{"tide":"high"}}')
    await store.commit([Command(id="sent", execution_id=waiting.id, verb="send", at=1, by="ann", arguments=arguments)])
    await store.close()
    _compact(store_of(folder), orphan)
    return store_of(folder)


def _with_snapshots(engine: holdfast.Engine) -> holdfast.Engine:
    """These executions are short, and shall have snapshots all the same."""
    engine.services.pace = dataclasses.replace(engine.services.pace, snapshot_events_min=4)
    return engine


async def _furnish_ended(engine: holdfast.Engine) -> None:
    tides = plan("tides", CACHED, {"id": "b", "tool": "large"}, step("c", "pay", 3))
    await (await engine.start(tides, labels={"a": "b"}, title="High tide")).result()
    await (await engine.start(plan("again", CACHED), key="k1")).result()
    failed = await engine.start(plan("fails", {"id": "x", "tool": "broken", "on_error": "fail"}))
    await _status(failed, "failed")


async def _furnish_cut(folder: Path) -> str:
    """One is cut in the middle of a `once` step, one in the middle of another; returns the id of the second."""
    global hold  # noqa: PLW0603 -- the tools of this module look there
    hold = asyncio.Event()
    try:
        async with _with_snapshots(engine_in(folder, recover="family")) as engine:
            await engine.start(plan("doubt", step("p", "pay", 9)))
            orphan = await engine.start(plan("orphan", step("l", "look", 1), step("p", "put", 8), step("q", "pay", 5)))
            async with asyncio.timeout(PATIENCE_S):
                while len(held) < 2:  # noqa: ASYNC110 -- there is nothing to wait for but the fact
                    await asyncio.sleep(0.002)
    finally:
        hold = None
        held.clear()
    return orphan.id


def _compact(path: Path, orphan: str) -> None:
    """Small pages, so that most bytes of the file mean something; some free ones; a dead driver holds an execution."""
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE executions SET driver = ? WHERE id = ?", (DEAD, orphan))
    free = "CREATE TABLE gone AS SELECT zeroblob(5000); DROP TABLE gone"
    small = f"PRAGMA journal_mode=DELETE; PRAGMA page_size={PAGE_BYTES}; VACUUM; PRAGMA journal_mode=WAL"
    connection.execute(f"{small}; {free}").fetchall()
    connection.close()


async def _status(run: holdfast.Run, status: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await run.status() != status:  # noqa: ASYNC110 -- there is nothing to wait for but the fact
            await asyncio.sleep(0.002)
