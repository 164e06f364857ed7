"""One call of one tool: how it goes in the world, step by step. What it does there is written down by its desk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import (
    HoldfastError,
    InvalidCall,
    Misconfigured,
    NotPermitted,
    RateLimited,
    ResourceShort,
    Suspended,
    ToolError,
    Transient,
)
from proof.simulator.history import Tells

if TYPE_CHECKING:
    from proof.simulator.world import Desk

WITHOUT_EFFECT: dict[str, Callable[[], BaseException]] = {
    "unreachable": lambda: Transient("nobody there", without_effect=True),
    "rate_limited": lambda: RateLimited("too many", retry_after_s=1.5),
    "not_permitted": lambda: NotPermitted("not allowed"),
    "misconfigured": lambda: Misconfigured("a setting is missing"),
    "invalid": lambda: InvalidCall("that makes no sense"),
}
AFTER_EFFECT: dict[str, tuple[Tells, Callable[[], BaseException]]] = {
    "lost_answer": ("unknown", lambda: Transient("the connection broke")),
    "short": ("known", lambda: ResourceShort("no room")),
    "known": ("known", lambda: ToolError("it came out wrong")),
    "bug": ("known", lambda: ValueError("a bug in the tool")),
    "cancels_itself": ("unknown", asyncio.CancelledError),
}
# Tools that hang; that ignore their cancellation, or make another error of it; whose effect comes long after they were
# cut off; that talk on after their answer; and that do their work a second time, and answer otherwise: a call returns
# once, so their second answer comes by the one other way in, as every late answer does.
STRANGE = ("hangs", "stubborn", "converts", "late", "lingers", "answers_twice")
CERTAIN = ("misconfigured", "invalid", "bug")  # no attempt after these would end otherwise
LATE_S = 2.5


class Fate(msgspec.Struct, frozen=True):
    ending: str = "ok"
    before_s: float = 0.0
    after_s: float = 0.0
    bulky: bool = False
    notes: bool = False
    spends: float | None = None  # which share of its price the call says that it cost; None: it says nothing


async def visit(desk: Desk) -> Any:
    ending = desk.fate.ending
    desk.note("called")
    try:
        await asyncio.sleep(desk.fate.before_s)
        if desk.fate.notes:
            with suppress(HoldfastError):
                await desk.call.note({"attempt": desk.call.attempt})
        if ending in WITHOUT_EFFECT:
            desk.note("raised", tells="nothing")
            raise WITHOUT_EFFECT[ending]()
        if ending == "late":
            desk.happen_elsewhere(LATE_S)
            await asyncio.get_running_loop().create_future()
        desk.happen()
        desk.spend()
        await asyncio.sleep(desk.fate.after_s)
        if ending in ("hangs", "converts"):
            await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        desk.note("cut")
        if ending == "converts":
            desk.note("raised", tells="unknown")
            raise ToolError("it was told to stop, and says that it failed") from None
        if ending != "stubborn":
            raise
        await asyncio.sleep(3)
    return _answer(desk)


def _answer(desk: Desk) -> Any:
    ending = desk.fate.ending
    output = desk.answer()
    if ending in AFTER_EFFECT:
        tells, failure = AFTER_EFFECT[ending]
        desk.note("raised", tells=tells)
        if ending == "lost_answer":  # on its way back; somebody may find it
            desk.deliver_later(output)
        raise failure()
    if ending == "lingers":
        asyncio.get_running_loop().create_task(_linger(desk))
    if ending == "answers_twice":
        asyncio.get_running_loop().create_task(_linger(desk))
        desk.happen_elsewhere(LATE_S)
        desk.deliver_later(desk.second_answer())
    desk.note("answered", output)
    return output


async def _linger(desk: Desk) -> None:
    """Words after the answer: nobody should be harmed by them."""
    await asyncio.sleep(0.5)
    desk.note("talked_on")
    with suppress(HoldfastError, Suspended, asyncio.CancelledError):
        desk.call.progress(50, "still talking")
        await desk.call.note({"late": True})
