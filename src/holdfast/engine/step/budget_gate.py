"""Room for what costs money: reserved before an attempt or a child, waited for in order, asked for if there is none.

An attempt that costs nothing never comes here. The arithmetic is core/budget.py; what was reserved and settled is in
the journal. Only the order of those who wait is kept here, and a replay makes it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.budget import Budget
from holdfast.core.execution import Step
from holdfast.core.failure import Failure
from holdfast.core.lifecycle import ENDS
from holdfast.engine.step.parking import Wait
from holdfast.tools.call import Call
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver
    from holdfast.engine.program import StepCall


class _Waiter:
    """One who needs room, and waits for it behind those who came before."""

    __slots__ = ("micros",)

    def __init__(self, micros: int) -> None:
        self.micros = micros


class BudgetGate:
    """The budget of one execution while it is driven: who holds a part of it here, and who waits for one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._spend = driver.state.spend
        self._held: set[str] = set()  # steps whose attempts this driver began
        self._queue: dict[_Waiter, None] = {}  # in the order in which they came

    async def wait_room(self, path: str, micros: int) -> bool:
        """Wait until so much can be reserved; False if nothing that runs could give any back."""
        if not self._queue and self._spend.has_room(micros):
            return True
        turn = _Waiter(micros)
        self._queue[turn] = None
        try:
            while not self._has_come(turn):
                await self._park(turn, path)
            return self._spend.has_room(micros)
        finally:
            del self._queue[turn]
            self._poke_soon()  # the next one may be first now

    def take_room_now(self, path: str, micros: int) -> bool:
        """Without waiting, and without passing anybody who waits."""
        if self._queue or not self._spend.has_room(micros):
            return False
        self.hold(path)
        return True

    def hold(self, path: str) -> None:
        self._held &= self._spend.reserved.keys()
        self._held.add(path)

    def look(self) -> None:
        """Something was journaled: warn if it is time to, and let go on whoever has room now."""
        run, spend = self._driver, self._spend
        if spend.is_warning_due() and not run.log.released:
            settled, limit = spend.settled_micros, spend.limit_micros or 0
            run.append(ev.BudgetWarned(at=run.now_us(), settled_micros=settled, limit_micros=limit))
        self._poke_soon()

    async def _park(self, turn: _Waiter, path: str) -> None:
        """When nothing else runs, it is a child that everybody waits for, and lists say so; perhaps for one by one."""
        child = self._child()
        reason = ev.Reason(kind="child" if child else "quota", path=path, name=child)
        await self._driver.park(Wait(reason, lambda: self._has_come(turn) or self._child() != child))

    def _poke_soon(self) -> None:
        """Not at once: whoever journals something is in the middle of it."""
        if self._queue:
            self._driver.loop.call_soon(self._driver.wake_ready)

    def _has_come(self, turn: _Waiter) -> bool:
        """Whoever came first goes first, as soon as there is room, or no hope for any."""
        is_first = next(iter(self._queue)) is turn
        return is_first and (self._spend.has_room(turn.micros) or not self._is_some_held())

    def _is_some_held(self) -> bool:
        """Whether something that goes on may give a part of its reservation back. What was lost in a crash will not."""
        return not self._held.isdisjoint(self._spend.reserved) or self._child() != ""

    def _child(self) -> str:
        """A child that holds a part of the budget."""
        children = (self._driver.state.children.get(path) for path, micros in self._spend.reserved.items() if micros)
        return next((child.id for child in children if child is not None and child.status not in ENDS), "")


async def reserve(
    driver: Driver, call: StepCall, step: Step | None, tool: Tool[..., Any], arguments: bytes, digest: str
) -> bool:
    """Before an attempt that costs something: True when there is room, and False when a person was asked for it."""
    if not await driver.purse.wait_room(call.path, tool.cost_micros or 0):
        _ask_for_money(driver, call, step, tool, arguments, digest)
        return False
    driver.purse.hold(call.path)
    return True


def bill(tool: Tool[..., Any], call: Call, failure: Failure | None = None) -> int | None:
    """What an attempt came to: what its tool said, or its price. None if nobody knows, or nothing was ever said."""
    if call.spent_micros is not None or tool.cost_micros is None:
        return call.spent_micros
    if failure is None or failure.happened == "known":
        return tool.cost_micros
    return 0 if failure.happened == "nothing" else None


def bill_of_cut(tool: Tool[..., Any], call: Call) -> int | None:
    """Of an attempt that was cut off or is in doubt: what was reserved for it counts, or else what it said so far."""
    return call.spent_micros if tool.cost_micros is None else None


def nothing_spent(tool: Tool[..., Any]) -> int | None:
    """Of an attempt whose tool was never called."""
    return None if tool.cost_micros is None else 0


def _ask_for_money(
    driver: Driver, call: StepCall, step: Step | None, tool: Tool[..., Any], arguments: bytes, digest: str
) -> None:
    """`arguments` are what would run: they may hold changes that a person made, and must not be lost."""
    at, spend, micros = driver.now_us(), driver.state.spend, tool.cost_micros or 0
    room, limit = spend.room() or 0, spend.limit_micros or 0
    is_in_doubt = step is not None and step.status == "in_doubt"  # and stays so, until it is known or tried again
    request = ev.Request(
        id=f"{call.path}#{driver.state.seq + (2 if is_in_doubt else 3)}",
        kind="budget",
        path=call.path,
        message=spend.shortage(tool.name, micros),
        tool=tool.name,
        arguments=driver.keep(arguments),
        remedies=("skip", "fail"),
        affects=call.stakes.skipped(),
        secrets=call.secrets,
    )
    waiting = ev.StepWaiting(at=at, path=call.path, reason="budget", tool=tool.name, kind=call.kind, digest=digest)
    driver.append(
        ev.BudgetExhausted(at=at, path=call.path, needed_micros=micros, room_micros=room, limit_micros=limit),
        *(() if is_in_doubt else (waiting,)),
        ev.RequestOpened(at=at, request=request),
    )


def refused_money(by: str) -> Failure:
    """The failure of a step that nobody wanted to pay for."""
    return Failure(
        category="resource",
        message=f"there was no budget for it{f', says {by}' if by else ''}",
        error="BudgetExhausted",
        happened="nothing",
    )


async def share_with_child(driver: Driver, path: str, created: ev.TaskCreated) -> tuple[ev.TaskCreated, int | None]:
    """A child's task with its limit, and what is reserved for it here: its own, as far as there is room, or all of it.

    Nobody is asked for a child: it may cost nothing, and asks for itself when it needs more.
    """
    spend = driver.state.spend
    if spend.limit_micros is None:
        return created, None
    own = created.budget
    await driver.purse.wait_room(path, own.limit_micros if own is not None else 1)
    room = max(0, spend.room() or 0)
    limit = min(own.limit_micros, room) if own is not None else room
    budget = msgspec.structs.replace(own or Budget(limit_micros=limit), limit_micros=limit)
    return msgspec.structs.replace(created, budget=budget), limit
