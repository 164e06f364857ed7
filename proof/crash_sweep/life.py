"""One life of a process: look at what it finds, work, and either die at its point or write down what it leaves.

The first life and the ones that recover from a death run this same code: they hand the task in under the same key and
go on until everything has ended. A life that survives leaves a report; one that is killed leaves nothing but journal
and ledger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.journal import checkpoint_files
from proof.crash_sweep import sabotage, world
from proof.crash_sweep.client import Client
from proof.crash_sweep.programs import FUNCTIONS, PROGRAMS
from proof.crash_sweep.report import Report, Survey, survey

LIMIT_S = 60.0  # a life that has not ended by then is stuck, even on a busy machine
LIMIT_SABOTAGED_S = 3.0  # then it is what we expect
HANGS_S = 0.004  # a write that is never made hangs so long first: whoever does not wait for it shows it by then
SLEEPY = holdfast.Limits(passivate_after_s=0.0, interrupt_grace_s=1.0)
AWAKE = holdfast.Limits(interrupt_grace_s=1.0)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one life is to do: `point` is where it is killed, such as `after-commit:7`; "" is nowhere."""

    program: str
    folder: str
    store: str = ""  # an address; "" is a file in the folder
    point: str = ""
    lives: int = 0  # how many came before it
    sabotage: str = ""


def live(order: Order, report_to: Path) -> None:
    """Never returns: the process ends here, one way or the other."""
    try:
        _write(report_to, asyncio.run(_live(order, report_to)))
    except BaseException:
        _write(report_to, Report(trouble=traceback.format_exc()))
    os._exit(0)


def speak(order: Order, report_to: Path) -> None:
    """The life of somebody who only speaks, and drives nothing. Never returns."""

    async def speaking() -> dict[str, int]:
        engine = open_engine(order, recover="none")
        counts = count_points(engine, order.point)
        async with asyncio.timeout(LIMIT_S * (order.lives + 1)), engine:
            await Client(engine, PROGRAMS[order.program], Path(order.folder)).speak()
        return counts

    try:
        _write(report_to, Report(counts=asyncio.run(speaking())))
    except BaseException:
        _write(report_to, Report(trouble=traceback.format_exc()))
    os._exit(0)


def _write(path: Path, report: Report) -> None:
    path.write_bytes(msgspec.json.encode(report))


async def _live(order: Order, report_to: Path) -> Report:
    program, folder = PROGRAMS[order.program], Path(order.folder)
    for name, text in program.files.items():
        (folder / name).write_text(text)
    sabotage.apply(order.sabotage)
    found = await _look_before(order)
    _write(report_to, Report(found=found))
    engine = open_engine(order)
    counts = count_points(engine, order.point)
    stuck = False
    async with engine:
        client = Client(engine, program, folder)
        try:
            async with asyncio.timeout(LIMIT_SABOTAGED_S if order.sabotage else LIMIT_S):
                await client.attend()
        except TimeoutError:
            stuck = True
        left = await survey(engine.services.store, folder)
    return Report(found=found, left=left, root=client.root, stuck=stuck, counts=counts)


async def _look_before(order: Order) -> Survey:
    """What the last life left, before anybody does anything about it."""
    if not order.lives:
        return Survey()
    store = open_engine(order).services.store
    try:
        return await survey(store, Path(order.folder))
    finally:
        await store.close()


def open_engine(order: Order, **others: Any) -> holdfast.Engine:
    others |= {"store": order.store} if order.store else {}
    limits = SLEEPY if PROGRAMS[order.program].sleepy else AWAKE
    return holdfast.Engine(folder=order.folder, tools=world.TOOLS, functions=FUNCTIONS, limits=limits, **others)


def count_points(engine: holdfast.Engine, point: str) -> dict[str, int]:
    """Count every journal write, effect and checkpoint file, and die at `before|after-commit|effect|file:N`."""
    fatal, _, number = point.partition(":")
    counts = {"commit": 0, "effect": 0, "file": 0}

    def is_fatal(moment: str, what: str) -> bool:
        if moment == "before":
            counts[what] += 1
        return fatal == f"{moment}-{what}" and counts[what] >= int(number)

    def at_boundary(moment: str) -> None:
        if is_fatal(moment, "effect"):
            os.kill(os.getpid(), signal.SIGKILL)

    commit = engine.services.store.commit

    async def counted(writes: Sequence[Any]) -> Any:
        if is_fatal("before", "commit"):
            await asyncio.sleep(HANGS_S)
            os.kill(os.getpid(), signal.SIGKILL)
        written = await commit(writes)
        if is_fatal("after", "commit"):
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    save = checkpoint_files.save

    def counted_file(*arguments: Any) -> checkpoint_files.Saved:
        if is_fatal("before", "file"):
            os.kill(os.getpid(), signal.SIGKILL)
        saved = save(*arguments)
        if is_fatal("after", "file"):
            os.kill(os.getpid(), signal.SIGKILL)
        return saved

    checkpoint_files.save = counted_file
    engine.services.store.commit = counted  # type: ignore[method-assign]
    world.at_boundary = at_boundary
    return counts
