"""The people of the load tests: they answer, let go on what is held, and look before they settle a doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import holdfast
from holdfast.core.errors import Refused
from holdfast.core.lifecycle import ENDS
from holdfast.engine.at_rest import moved_by
from holdfast.journal.store import Head, Query
from load.programs import Ledger

ALIVE = ("queued", "running", "waiting", "paused", "interrupted")
PAGE = 500
AT_ONCE = 64  # people at work at the same time


async def heads(engine: holdfast.Engine, status: tuple[str, ...] = ()) -> AsyncIterator[Head]:
    before = ""
    while page := await engine.list(Query(status=status, before=before, limit=PAGE)):
        for head in page:
            yield head
        before = page[-1].id


def is_parked(head: Head, engine: holdfast.Engine) -> bool:
    """Nothing but a person, or somebody's event, can move it."""
    movers = moved_by(head, engine.services.clock.now_us(), engine.is_dead)
    return head.status in ENDS or (bool(movers) and movers <= {"person", "event", "child"})


async def attend(run: holdfast.Run, head: Head, ledger: Callable[[], Ledger]) -> None:
    """Do for one execution what a sensible person would do now. Too late is no harm.

    The ledger is read only when a doubt is there: what we do here may be what led to it.
    """
    try:
        if head.status in ("paused", "interrupted") or head.status == "queued":
            await run.resume(by="bea")
        for reason in head.reasons:
            if reason.kind == "event":
                await run.send(reason.name, 1, by="bea", id=f"{run.id}-{reason.path}")
        for asked in list((await run.state()).open_requests()) if head.status == "waiting" else ():
            await _answer(run, asked.request, ledger)
    except Refused:
        pass


async def _answer(run: holdfast.Run, request: Any, ledger: Callable[[], Ledger]) -> None:
    match request.kind:
        case "approval":
            await run.approve(request.path, by="bea")
        case "question":
            await run.answer(request.path, 7, by="bea")
        case _:
            happened = ledger()["once", f"{run.id}:{request.path}"] > 0
            remedy = "done" if happened else "again"
            await run.resolve(request.path, remedy, by="bea", output=None)


async def in_parallel(work: Iterable[Any], at_once: int = AT_ONCE) -> None:
    """Run coroutines, a bounded number at a time."""
    todo = iter(work)

    async def worker() -> None:
        for one in todo:
            await one

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def everything_parked(engine: holdfast.Engine) -> dict[str, int]:
    """Wait until nothing moves by itself any more; returns how many are in each status."""
    while True:
        counts: dict[str, int] = {}
        moving = 0
        async for head in heads(engine):
            counts[head.status] = counts.get(head.status, 0) + 1
            moving += not (head.status in ENDS or is_parked(head, engine))
        if not moving:
            return counts
        await asyncio.sleep(0.05)


async def everything_ended(engine: holdfast.Engine, ledger: Callable[[], Ledger]) -> None:
    """Attend to everybody, round after round, until nobody is left."""
    while True:
        left = [head async for head in heads(engine, ALIVE)]
        if not left:
            return
        seen = ledger()  # nobody dies any more, so what is in doubt ended before now
        await in_parallel(
            attend(engine.get(head.id), head, lambda seen=seen: seen) for head in left if is_parked(head, engine)
        )
        await asyncio.sleep(0.05)
