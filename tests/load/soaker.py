"""One engine process of a soak: it drives what it finds, hands in tasks, gives commands, and tells how it is.

Started as `soaker.py FOLDER SEED`; it is killed at any moment. SIGTERM ends it in good order. It stops handing in when
the file `enough` is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.journal.store import Query
from load import programs
from load.crowd import resident_bytes
from load.people import attend, is_parked
from load.programs import FUNCTIONS, TOOLS, any_program, read_ledger

LIMITS = holdfast.Limits(executions=20, parked=10, passivate_after_s=0.2, interrupt_grace_s=1.0, drain_s=0.2)
ENOUGH = "enough"
TASKS_AHEAD_MAX = 60  # not ended; more would only measure how slow the machine is
BETWEEN_S = 0.04
VITALS_EVERY_S = 0.25


def vitals_file(folder: Path, pid: int) -> Path:
    return folder / f"vitals-{pid}.txt"


async def main(folder: Path, seed: int) -> None:
    programs.BLINK_S = 0.05  # so that a kill nearly always meets steps that are running
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    async with holdfast.Engine(folder=folder, tools=TOOLS, functions=FUNCTIONS, limits=LIMITS) as engine:
        work = [asyncio.create_task(_clients(engine, folder, Random(seed))), asyncio.create_task(_tell(folder))]
        print("ready", flush=True)
        await ending.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _clients(engine: holdfast.Engine, folder: Path, rng: Random) -> None:
    """Somebody hands in, somebody holds, somebody lets go on and answers."""
    while True:
        await asyncio.sleep(BETWEEN_S * rng.random() * 2)
        alive = await engine.list(Query(status=("queued", "running", "waiting", "paused", "interrupted"), limit=500))
        with suppress(HoldfastError):  # it may have ended in the meantime; the journal is asked at the end
            if len(alive) < TASKS_AHEAD_MAX and not (folder / ENOUGH).exists():
                await engine.start(any_program(rng), inputs={"value": rng.randrange(100)})
            if alive and rng.random() < 0.4:
                verb = rng.choice(["pause", "interrupt", "resume"])
                await engine.get(rng.choice(alive).id).command(verb, by="ann")
            waiting = [head for head in alive if is_parked(head, engine)]
            for head in rng.sample(waiting, min(3, len(waiting))):
                await attend(engine.get(head.id), head, lambda: read_ledger(folder))


async def _tell(folder: Path) -> None:
    file = vitals_file(folder, os.getpid())
    while True:
        counts = (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(asyncio.all_tasks()),
            resident_bytes(),
        )
        with file.open("a") as out:
            print(*counts, file=out)
        await asyncio.sleep(VITALS_EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
