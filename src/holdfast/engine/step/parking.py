"""How a branch of a program waits: it says what for, holds nothing, and looks again when something may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.commands import expired
from holdfast.core.execution import Step

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


T = TypeVar("T")
REASONS_MAX = 20  # of each kind, in one event: thousands of steps that wait together wait again and again


class Wait:
    """One branch of a program that cannot go on, and what would let it."""

    __slots__ = ("_timer", "future", "is_ready", "reason")

    def __init__(self, reason: ev.Reason, is_ready: Callable[[], bool]) -> None:
        self.reason = reason
        self.is_ready = is_ready
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, driver: Driver) -> None:
        """Look again when the time comes. The wall clock decides, so a clock that jumped is asked once more."""
        if self.reason.due_at is None:
            return
        left_s = (self.reason.due_at - driver.services.clock.now_us()) / 1e6
        if left_s <= 0:
            asyncio.get_running_loop().call_soon(driver.wake_ready)
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._ring, driver)

    def _ring(self, driver: Driver) -> None:
        if driver.services.clock.now_us() < (self.reason.due_at or 0):
            self.arm(driver)
        else:
            driver.wake_ready()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def listed(reasons: Iterable[ev.Reason]) -> tuple[ev.Reason, ...]:
    """By kind and path, at most so many of each kind: the first, and the one whose time comes first."""
    ordered = sorted(reasons, key=lambda reason: (reason.kind, reason.path))
    found = [_first(list(alike)) for _, alike in groupby(ordered, key=lambda reason: reason.kind)]
    return tuple(sorted((reason for some in found for reason in some), key=lambda reason: reason.path))


def _first(alike: list[ev.Reason]) -> list[ev.Reason]:
    kept, left_out = alike[:REASONS_MAX], alike[REASONS_MAX:]
    if not left_out:
        return kept
    timed = [reason for reason in alike if reason.due_at is not None]
    soonest = min(timed, key=lambda reason: reason.due_at or 0, default=kept[-1])
    last = kept[-1] if soonest in kept else soonest
    return [*kept[:-1], msgspec.structs.replace(last, more=len(left_out))]


async def moving(driver: Driver, work: Awaitable[T]) -> T:
    """Something within a step, done so that its driver knows that it moves."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    before = driver.busy(task)
    try:
        return await work
    finally:
        driver.idle(task, before)


async def park(driver: Driver, reason: ev.Reason, is_ready: Callable[[], bool]) -> None:
    while not is_ready():  # by its turn, what woke it may be gone: another has taken the event, the clock was set back
        await driver.park(Wait(reason, is_ready))


def is_due(driver: Driver, due_at: int | None) -> bool:
    return due_at is not None and driver.services.clock.now_us() >= due_at


async def due(driver: Driver, step: Step) -> None:
    """Until the time of the next attempt."""
    due_at = step.due_at
    reason = ev.Reason(kind="timer", path=step.path, due_at=due_at)
    await park(driver, reason, lambda: due_at is None or is_due(driver, due_at))


async def answer(driver: Driver, step: Step) -> None:
    """Until the step's request is answered, or its time is up: silence is a no to an approval."""
    asked = driver.state.requests[step.request_id]
    kind = asked.request.kind
    reason = ev.Reason(
        kind="answer" if kind == "question" else kind,
        path=step.path,
        due_at=asked.request.expires_at,
        name=asked.request.id,
    )
    expires_at = asked.request.expires_at
    await park(driver, reason, lambda: asked.answered or is_due(driver, expires_at))
    if not asked.answered:
        driver.append(expired(asked.request, driver.now_us()))
