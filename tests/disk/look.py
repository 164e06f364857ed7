"""A full look at what engines make of a store: everything that can be read in it, and what becomes of what can move.

Two looks at the same bytes say the same, so a look at damaged bytes can be compared with a look at whole ones.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

import holdfast
from disk import house
from disk.house import CACHED, engine_in, paid, plan
from holdfast.core.errors import JournalError
from holdfast.core.events import AnyEvent
from holdfast.journal.blobs import fetch_value
from holdfast.journal.log import read_events
from holdfast.journal.store import Head


class Look(NamedTuple):
    """What was seen. A text in the place of a view is what an error said."""

    trouble: str  # of the store as a whole: nothing else was seen then
    read: dict[str, Any]  # each execution as it lies there
    inbox: Any
    driven: dict[str, Any]  # each execution after everything that can move has moved
    fresh: Any  # what a new execution came to that may take a step from the cache
    paid: dict[str, int]
    hung: tuple[str, ...] = ()


async def look_round(folder: Path, expected: Look | None = None) -> Look:
    """Read everything, then drive everything. `expected` says what can be waited for."""
    paid.clear()
    read: dict[str, Any] = {}
    driven: dict[str, Any] = {}
    inbox: Any = None
    fresh: Any = None
    hung: tuple[str, ...] = ()
    trouble = ""
    try:
        async with engine_in(folder, recover="none") as engine:
            read, inbox = await _read_all(engine), await _inbox(engine)
        async with engine_in(folder) as engine:
            hung = await _until_still(engine, expected)
            driven = await _read_all(engine, moved=True)
            fresh = await (await engine.start(plan("again", CACHED))).result()
    except JournalError as error:
        trouble = str(error) or "an error without a text"
    return Look(trouble, read, inbox, driven, fresh, dict(paid), hung)


async def _read_all(engine: holdfast.Engine, moved: bool = False) -> dict[str, Any]:
    heads = await engine.list()
    found: dict[str, Any] = {}
    for head in heads:
        try:
            found[head.id] = await (_outcome if moved else _details)(engine, head.id)
        except JournalError as error:
            found[head.id] = f"set aside: {error}"
    for head in await engine.list():
        if why := _explained(engine, head):
            found[head.id] = f"set aside: {why}"
        elif not moved and not isinstance(found[head.id], str):
            # An epoch means nothing but "still the same one", and here nobody holds it.
            found[head.id] = (msgspec.structs.replace(head, epoch=0), found[head.id])
    return found


async def _details(engine: holdfast.Engine, execution_id: str) -> Any:
    """Every event with the values behind it, the folded state, and the words of `show`."""
    store = engine.services.store
    run = engine.get(execution_id)
    events = await read_events(store, execution_id, 0)
    values = [await _values(store, event) for _, event in events]
    state = await run.state()
    state.snapshot_seq = 0  # one that is damaged is passed over; the events tell the same story
    return events, values, msgspec.json.encode(state), str(await run.show())


async def _values(store: Any, event: AnyEvent) -> list[bytes]:
    raws = (getattr(event, name, None) for name in ("output", "arguments", "inputs", "data"))
    return [await fetch_value(store, raw) for raw in raws if isinstance(raw, Raw)]


_BY_THE_CLOCK = ("TaskWaiting", "TaskStarted")  # whether it still had to wait for something


async def _outcome(engine: holdfast.Engine, execution_id: str) -> Any:
    """What does not depend on when it happened."""
    state = await engine.get(execution_id).state()
    steps = {path: (step.status, bytes(step.output), step.reason) for path, step in state.steps.items()}
    events = await read_events(engine.services.store, execution_id, 0)
    kinds = [type(event).__name__ for _, event in events]
    return state.status, bytes(state.output), steps, [kind for kind in kinds if kind not in _BY_THE_CLOCK]


async def _inbox(engine: holdfast.Engine) -> dict[str, Any]:
    """What became of the commands: one was answered long ago, one has no answer yet."""
    answers: dict[str, Any] = {}
    for identity in ("paused", "sent"):
        try:
            answers[identity] = await engine.services.store.answer(identity)
        except JournalError as error:
            answers[identity] = f"damaged: {error}"
    return answers


async def _until_still(engine: holdfast.Engine, expected: Look | None) -> tuple[str, ...]:
    """Wait until every execution is where it belongs or is set aside; those that are not are hung."""
    wanted = {} if expected is None else {i: view[0] for i, view in expected.driven.items()}
    give_up = asyncio.get_running_loop().time() + house.PATIENCE_S
    while True:
        heads = await engine.list()
        moving = tuple(h.id for h in heads if not _explained(engine, h) and _moves(h, wanted))
        if not moving and not engine.holdings()["drivers"]:
            return ()
        if asyncio.get_running_loop().time() > give_up:
            return moving or ("a driver does not let go",)
        await asyncio.sleep(0.005)


def _explained(engine: holdfast.Engine, head: Head) -> str:
    """Why it does not move, as everybody hears who asks for it."""
    try:
        engine.raise_problem(head.id)
    except JournalError as error:
        return str(error)
    return head.quarantined


def _moves(head: Head, wanted: dict[str, str]) -> bool:
    if wanted:
        return head.id in wanted and head.status != wanted[head.id]
    soon = time.time_ns() // 1000 + 60_000_000
    return head.status in ("queued", "running") or (head.wake_at is not None and head.wake_at < soon)
