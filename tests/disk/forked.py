"""An engine whose process forks in the middle of a step, without exec. Started as `forked.py FOLDER`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast
from disk.house import TOOLS, Gate, engine_in, plan, step
from holdfast.core.errors import HoldfastError
from holdfast.journal.liveness import LockFiles

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads; here it is the point
LIMIT_S = 5.0


async def main(folder: Path) -> None:
    gate = Gate()
    async with holdfast.Engine(folder=folder, tools=[*TOOLS, gate.tool]) as engine:
        run = await engine.start(plan("parent", {"id": "g", "tool": "gate"}, step("a", "pay", 1)))
        await gate.entered.wait()
        child = os.fork()
        if child == 0:
            _in_child(engine, run, folder)
        os.waitpid(child, 0)  # noqa: ASYNC222 -- the point is what it leaves behind
        locks = LockFiles(folder / ".holdfast" / "drivers")
        alive = not locks.is_dead(engine.services.driver)
        gate.open.set()
        output = await run.result()
        statuses = [head.status for head in await engine.list()]
        found = await engine.services.store.check()  # type: ignore[attr-defined]
    print(json.dumps({"alive": alive, "output": output, "statuses": statuses, "found": found}), flush=True)


def _in_child(engine: holdfast.Engine, run: holdfast.Run, folder: Path) -> None:
    """Use what was inherited, then open an engine of its own; ends as any process does, with its finalisers."""
    try:
        asyncio.run(_use(engine, run, folder))
        sys.stdout.flush()
    finally:
        os._exit(0)


async def _use(engine: holdfast.Engine, run: holdfast.Run, folder: Path) -> None:
    uses: dict[str, Callable[[], Awaitable[Any]]] = {
        "list": engine.list,
        "start": lambda: engine.start(plan("child", step("a", "pay", 2))),
        "command": run.pause,
        "state": run.state,
    }
    said = {name: await _refusal(use) for name, use in uses.items()}
    async with engine_in(folder, recover="family") as own:
        ours = await own.start(plan("own", step("a", "pay", 3)))
        await ours.result()
        status = await ours.status()
    print(json.dumps({"uses": said, "of its own": status}))


async def _refusal(use: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(LIMIT_S):
            await use()
    except HoldfastError as error:
        return str(error)
    except TimeoutError:
        return "it hangs"
    return "it was not refused"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
