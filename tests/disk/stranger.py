"""A process without special rights: what root may do anyway is refused to it. Started as `stranger.py STORY FOLDER`.

Everything is imported before the rights are given up, since the stranger may not be able to read where it lies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import holdfast
from disk.house import Gate, engine_in, plan, step, store_of
from holdfast.core.errors import HoldfastError

NOBODY = 65534


async def prepare(folder: Path) -> str:
    async with engine_in(folder) as engine:
        run = await engine.start(plan("before", step("a", "pay", 1)))
        await run.result()
        return run.id


async def refusal(folder: Path) -> str:
    """What a new engine says that is to start something."""
    try:
        async with engine_in(folder) as engine:
            await engine.start(plan("refused", step("a", "pay", 1)))
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "it was started"


async def read_only_file(folder: Path) -> dict[str, Any]:
    known = await prepare(folder)
    store_of(folder).chmod(0o444)
    text = await refusal(folder)
    store_of(folder).chmod(0o644)
    return {"texts": [text], "after": await status_of(folder, known)}


async def read_only_folder(folder: Path) -> dict[str, Any]:
    known = await prepare(folder)
    store_of(folder).parent.chmod(0o555)
    text = await refusal(folder)
    store_of(folder).parent.chmod(0o755)
    return {"texts": [text], "after": await status_of(folder, known)}


async def no_folder_possible(folder: Path) -> dict[str, Any]:
    os.chmod(folder, 0o555)
    text = await refusal(folder)
    os.chmod(folder, 0o755)
    return {"texts": [text], "after": await status_of(folder, await prepare(folder))}


async def lost_while_running(folder: Path) -> dict[str, Any]:
    """What is open stays open: the engine goes on. Whoever comes later is refused, until the rights are back."""
    gate = Gate()
    async with holdfast.Engine(folder=folder, tools=[gate.tool]) as engine:
        run = await engine.start(plan("running", {"id": "a", "tool": "gate"}))
        await gate.entered.wait()
        store_of(folder).chmod(0o444)
        store_of(folder).parent.chmod(0o555)
        text = await refusal(folder)
        gate.open.set()
        await run.result()
    store_of(folder).parent.chmod(0o755)
    store_of(folder).chmod(0o644)
    return {"texts": [text], "after": await status_of(folder, run.id)}


async def status_of(folder: Path, execution_id: str) -> str:
    async with engine_in(folder, recover="none") as engine:
        return await engine.get(execution_id).status()


STORIES: dict[str, Callable[[Path], Coroutine[Any, Any, dict[str, Any]]]] = {
    "file": read_only_file,
    "folder": read_only_folder,
    "new": no_folder_possible,
    "running": lost_while_running,
}


def warm_up() -> None:
    """Load what is otherwise loaded when it is first needed."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(read_only_file(Path(folder)))


if __name__ == "__main__":
    warm_up()
    if os.geteuid() == 0:
        os.chown(sys.argv[2], NOBODY, NOBODY)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print(json.dumps(asyncio.run(STORIES[sys.argv[1]](Path(sys.argv[2])))))
