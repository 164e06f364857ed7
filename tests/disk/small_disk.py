"""A process on a small disk of its own: a tmpfs that only it can see, filled and emptied as the test wants.

Started as `small_disk.py STORY FOLDER`, inside a private mount namespace; prints what it saw as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.journal.sqlite import connection as sqlite_connection
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.testing.store_contract.samples import Sample

DISK_BYTES = 8 * 1024 * 1024
PATIENCE_S = 60.0
STEPS = 60

calls: Counter[str] = Counter()


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: str) -> str:
    calls[call.key] += 1
    return value


@holdfast.function
async def spend(ctx: holdfast.Context) -> int:
    return sum([len(await ctx.call(pay, "x" * 5000)) for _ in range(STEPS)])


def fill(folder: Path, leaving: int = 0) -> Path:
    """Take all the room but so much."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    os.truncate(ballast, max(0, ballast.stat().st_size - leaving))
    return ballast


def engine_in(folder: Path) -> holdfast.Engine:
    return holdfast.Engine(folder=folder, functions=[spend], tools=[pay])


async def full_while_running(folder: Path, *, same_engine: bool) -> dict[str, Any]:
    """The disk is full in the middle; room is made, and the same engine or a new one goes on."""
    async with engine_in(folder) as engine:
        ballast = fill(folder, leaving=200_000)
        run = await engine.start(spend)
        try:
            await run.result()
            text = ""
        except HoldfastError as error:
            text = str(error)
        state = await run.state()
        done = [step.status for step in state.steps.values()]
        seen = {"text": text, "completed": done.count("completed"), "status": state.status, "paid": calls.total()}
        if same_engine:
            ballast.unlink()
            return {**seen, **await end_of(engine, run.id)}
    ballast.unlink()
    async with engine_in(folder) as engine:
        return {**seen, **await end_of(engine, run.id)}


async def end_of(engine: holdfast.Engine, execution_id: str) -> dict[str, Any]:
    """Go on to the end, and settle what is in doubt as a person would who looks at what was paid."""
    run = engine.get(execution_id)
    doubts = 0
    async with asyncio.timeout(PATIENCE_S):
        while (state := await run.state()).status != "completed":
            for asked in state.open_requests():
                doubts += 1
                await run.resolve(asked.request.path, "done", output="x" * 5000)
            await asyncio.sleep(0.02)
    return {"output": json.loads(bytes(state.output)), "doubts": doubts, "most": max(calls.values())}


async def full_while_opening(folder: Path) -> dict[str, Any]:
    """A new store, an old one, and the command line in a folder without a store."""
    (folder / "plan.yaml").write_text("name: t\nsteps: [{id: a, tool: shell.run, with: {command: 'true'}}]\n")
    await SqliteStore(folder / "old.db").close()
    ballast = fill(folder)
    texts: list[str] = []
    for name in ("new.db", "old.db"):
        try:
            SqliteStore(folder / name)
            texts.append("it was opened")
        except HoldfastError as error:
            texts.append(f"{type(error).__name__}: {error}")
    command = [sys.executable, "-m", "holdfast.cli", "run", "plan.yaml"]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: ASYNC221
    ballast.unlink()
    await SqliteStore(folder / "old.db").close()
    async with engine_in(folder) as engine:
        run = await engine.start({"name": "t", "steps": [{"id": "a", "tool": "pay", "with": {"value": "1"}}]})
        output = await run.result()
    return {"texts": texts, "code": shown.returncode, "said": shown.stderr, "output": output}


async def full_while_checkpointing(folder: Path) -> dict[str, Any]:
    """What is in the log cannot be moved into the file: neither while running nor when closing."""
    path = folder / "j.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_connection, "PRAGMAS", (*sqlite_connection.PRAGMAS, "wal_autocheckpoint=0"))
        store = SqliteStore(path)
        sample = Sample(1)
        await store.commit([sample.new])
        for number in range(20):
            await store.commit([sample.entry(blobs=((f"b{number}", bytes([number]) * 9000),))])
    ballast = fill(folder)
    other = apsw.Connection(str(path))
    try:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        text = ""
    except apsw.FullError as error:
        text = str(error)
    other.close()
    durable = sample.seq
    read = (await store.head(sample.id)).seq
    await store.close()
    ballast.unlink()
    store = SqliteStore(path)
    kept = (await store.load(sample.id)).rows
    await store.commit([sample.entry()])
    found = await store.check()
    await store.close()
    return {"text": text, "durable": durable, "read": read, "kept": len(kept), "found": found}


async def full_and_deleting(folder: Path) -> dict[str, Any]:
    """A step deletes a file to make room, and is undone when there is room."""
    old = folder / "old.log"
    old.write_bytes(b"line\n" * 200_000)
    (folder / "plan.yaml").write_text("name: t\nsteps: [{id: tidy, tool: files.delete, with: {path: old.log}}]\n")
    fill(folder, leaving=300_000)
    run = [sys.executable, "-m", "holdfast.cli", "run", "plan.yaml", "--json"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)  # noqa: ASYNC221
    is_gone = not old.exists()
    (folder / "ballast").unlink()
    back = [sys.executable, "-m", "holdfast.cli", "rollback", "@last"]
    undone = subprocess.run(back, cwd=folder, capture_output=True, text=True, check=False)  # noqa: ASYNC221
    is_back = old.exists() and old.read_bytes() == b"line\n" * 200_000
    return {
        "said": done.stdout + done.stderr,
        "is_gone": is_gone,
        "undone": undone.stdout + undone.stderr,
        "back": is_back,
    }


STORIES: dict[str, Callable[[Path], Coroutine[Any, Any, dict[str, Any]]]] = {
    "same": lambda folder: full_while_running(folder, same_engine=True),
    "new": lambda folder: full_while_running(folder, same_engine=False),
    "opening": full_while_opening,
    "checkpoint": full_while_checkpointing,
    "deleting": full_and_deleting,
}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(STORIES[sys.argv[1]](Path(sys.argv[2])))))
