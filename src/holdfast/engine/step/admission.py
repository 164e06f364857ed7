"""What stands before an attempt: a person's yes, a known answer, money, room on the machine, limits, the breaker.

Whoever waits for one of them holds none of the others: neither money that others could spend nor a place that others
could use, and once nothing else of the execution runs, not even its place among the running executions.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.core import events as ev
from holdfast.core.execution import Step
from holdfast.core.failure import Failure
from holdfast.core.policy import CACHE_ITEM_BYTES_MAX
from holdfast.core.skips import tool_down
from holdfast.engine.limits.breaker import Breaker
from holdfast.engine.limits.guards import Guard
from holdfast.engine.program import Planned, skipped
from holdfast.engine.step.budget_gate import reserve
from holdfast.engine.step.human_requests import ask_for_approval
from holdfast.engine.step.parking import is_due, park
from holdfast.engine.step.step_context import StepContext
from holdfast.journal.store import CacheItem
from holdfast.tools.json_values import encode
from holdfast.tools.runtime.fair_queue import Gate
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver

LIMIT_LOOK_S = 10.0  # how soon a sleeping execution looks whether it is its turn
BREAKER_LOOK_S = 1.0  # and whether the call that tries a tool has come back


def wants_approval(work: StepContext) -> bool:
    """Whether a person must agree before the first attempt; they are asked here."""
    approval = work.call.policy.approval or work.call.tool.approval
    if approval is None or work.call.tool.name in work.driver.state.sticky:
        return False
    ask_for_approval(work.driver, work.call, work.call.tool, approval, work.asked, work.digest)
    return True


def wants_approval_of_fallback(work: StepContext, tool: Tool[..., Any], arguments: bytes) -> bool:
    """Another tool than the one that was approved, and one that wants to be approved itself."""
    if tool.approval is None or tool.name in work.driver.state.sticky:
        return False
    ask_for_approval(work.driver, work.call, tool, tool.approval, arguments, work.digest)
    return True


# ---- money, limits and the breaker -----------------------------------------------------------------------------


class Entered(NamedTuple):
    """What is to be called, and the guard that has let it through."""

    tool: Tool[..., Any]
    fallback: int
    arguments: bytes
    guard: Guard


async def enter(
    work: StepContext, step: Step | None, tool: Tool[..., Any], fallback: int, arguments: bytes
) -> Entered | None:
    """Wait until there is money and a place under every limit, and take both at once.

    None if a person was asked, or if the step has ended because its tool does not work.
    """
    run, guards, pressure = work.driver, work.driver.services.guards, work.driver.services.pressure
    with_less = step is not None and step.reduced and not fallback
    guard = guards.of(tool, arguments, with_less=with_less)
    having: Gate | None = None
    while True:
        if tool.cost_micros is not None:
            if having is not None and not run.purse.take_room_now(work.call.path, tool.cost_micros):
                having.give_back()
                having = None
            if having is None and not await reserve(run, work.call, step, tool, arguments, work.digest):
                return None
        if pressure.is_on and not pressure.lets_begin(run, work.call):
            if having is not None:
                having.give_back()
                having = None
            await pressure.wait(run, work.call)
            continue
        full = guard.take_now(run.places, having)
        if full is None:
            return Entered(tool, fallback, arguments, guard)
        having = None
        if full is guard.breaker and (step is None or step.status != "in_doubt"):
            other = _healthy_fallback(work, fallback)
            if other:
                fallback = other
                tool = work.call.fallbacks[other - 1].tool
                if work.call.fallbacks[other - 1].arguments is not None:
                    arguments = _arguments_of(work, other)
                guard = guards.of(tool, arguments)
                continue
        if not await _wait_turn(work, guard, full, step):
            return None
        having = full


def _healthy_fallback(work: StepContext, used: int) -> int:
    """The next tool whose breaker is closed, by its place in the list; 0 if there is none.

    One that a person has to agree to is not chosen behind their back: it is asked for when this tool has really failed.
    """
    run = work.driver
    for place, other in enumerate(work.call.fallbacks[used:], start=used + 1):
        asked = work.asked if other.arguments is None else _arguments_of(work, place)
        breaker = run.services.guards.of(other.tool, asked).breaker
        is_free = other.tool.approval is None or other.tool.name in run.state.sticky
        is_there = other.tool.name in run.services.registry.names()
        if is_there and is_free and (breaker is None or breaker.state == "closed"):
            return place
    return 0


def _arguments_of(work: StepContext, place: int) -> bytes:
    """What a fallback with arguments of its own is asked."""
    return encode(work.call.fallbacks[place - 1].arguments, f"the fallback arguments of {work.call.path}")


async def _wait_turn(work: StepContext, guard: Guard, gate: Gate, step: Step | None) -> bool:
    """Wait in line without holding anything. True: the place is held now; False: it is waited for no longer."""
    run = work.driver
    until = _until(work, gate, step)
    while not gate.take_now():
        if is_due(run, until):
            _do_without(work, guard.tool, gate, step)
            return False
        turn = _Turn(run, gate)
        try:
            await park(run, _reason(work, guard, gate, until), lambda turn=turn: turn.has_come() or is_due(run, until))
        except BaseException:
            turn.leave()
            raise
        if turn.has_come() and not turn.is_passed_on:
            return True
        turn.leave()
    return True


def _until(work: StepContext, gate: Gate, step: Step | None) -> int | None:
    """When a step that may fail waits no longer for a tool that does not work; None: it waits for as long as it takes.

    It counts from when the tool was left alone, so that many such steps do not wait one after the other, and a wait
    that is cut short by sleep or a crash does not begin anew. What may have happened is not taken for skipped.
    """
    if not isinstance(gate, Breaker) or not work.call.stakes.may_fail:
        return None
    if step is not None and step.status == "in_doubt":
        return None
    run = work.driver
    left_s = gate.left_alone_at + run.services.limits.optional_wait_s - run.loop_time()
    return run.services.clock.now_us() + ceil(left_s * 1e6)


def _do_without(work: StepContext, tool: str, gate: Gate, step: Step | None) -> None:
    """Optional never holds up critical: the step is skipped, or fails if only the group around it may."""
    assert isinstance(gate, Breaker)
    run, path, stakes = work.driver, work.call.path, work.call.stakes
    why = tool_down(tool, run.services.limits.optional_wait_s, gate.why)
    if not stakes.critical:
        run.append(skipped(run.now_us(), path, why, Planned(work.call.tool.name, critical=False)))
        return
    failure = Failure(category="transient", message=why.reason, error="NeverCalled", happened="nothing")
    if step is not None and step.failure is not None and step.failure.happened != "nothing":
        failure = replace(failure, happened=step.failure.happened)
    run.append(
        ev.StepFailed(
            at=run.now_us(), path=path, failure=stakes.described(failure), attempt=step.attempt if step else 1
        )
    )


class _Turn:
    """A place in line. If it comes while the execution is paused or let go of, it goes to the next one."""

    def __init__(self, driver: Driver, gate: Gate) -> None:
        self._driver = driver
        self._gate = gate
        self._place = gate.join(driver.state.id)
        self._place.add_done_callback(self._come)
        self.is_passed_on = False
        self.has_come = self._place.done

    def _come(self, place: asyncio.Future[None]) -> None:
        if place.cancelled() or self.is_passed_on:
            return
        if self._driver.cause is not None or self._driver.state.status == "paused":
            self.is_passed_on = True
            self._gate.give_back()
        self._driver.wake_ready()

    def leave(self) -> None:
        if not self.is_passed_on:
            self.is_passed_on = True
            self._gate.leave(self._driver.state.id, self._place)


def _reason(work: StepContext, guard: Guard, gate: Gate, until: int | None) -> ev.Reason:
    """`due_at` is when an execution that was put to sleep looks again: only this process knows whose turn it is."""
    run, path = work.driver, work.call.path
    now_us = run.services.clock.now_us()
    if isinstance(gate, Breaker):
        rest_s = max(0.0, gate.probe_at - run.loop_time()) or BREAKER_LOOK_S
        return ev.Reason(kind="breaker", path=path, due_at=until or now_us + int(rest_s * 1e6), name=guard.tool)
    return ev.Reason(kind="limit", path=path, due_at=now_us + int(LIMIT_LOOK_S * 1e6), name=guard.tool)


# ---- what is known already -------------------------------------------------------------------------------------


def cache_s(work: StepContext) -> float | None:
    """For how long what the step's own tool answers is kept; None if it is not.

    What was asked with a secret is for whoever holds that secret, and who that is may change: it is never kept.
    """
    tool = work.call.tool
    kept_s = work.call.policy.cache_s or tool.cache_s
    if not kept_s or work.call.secrets or work.effect_of(tool) != "read":
        return None
    return None if work.driver.services.registry.has_credentials(tool.name) else kept_s


async def is_answered_from_cache(work: StepContext) -> bool:
    run, call = work.driver, work.call
    output = await run.services.store.cached(_cache_key(work), run.now_us())
    if output is None:
        return False
    at = run.now_us()
    run.append(
        work.started(at, 1, call.tool, 0, work.asked),
        ev.StepCompleted(at=at, path=call.path, output=run.keep(output), started_at=at, cached=True),
    )
    return True


def to_cache(work: StepContext, output: bytes) -> tuple[CacheItem, ...]:
    if len(output) > CACHE_ITEM_BYTES_MAX:
        return ()
    kept_s = cache_s(work) or 0.0
    return (CacheItem(_cache_key(work), output, work.driver.now_us() + int(kept_s * 1e6)),)


def _cache_key(work: StepContext) -> str:
    """Whatever an answer depends on: also the folder that paths begin at, and how the family of tools is set up."""
    tool, services = work.call.tool, work.driver.services
    settings = services.registry.settings_digest(tool.name)
    owner = work.driver.state.facts().owner
    parts = msgspec.json.encode([owner, str(services.folder), tool.name, tool.version, settings, work.digest])
    return blake2b(parts, digest_size=16).hexdigest()
