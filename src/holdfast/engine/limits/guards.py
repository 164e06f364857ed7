"""The guards around calls, shared by all executions of a process: how many at once, how often, and breakers.

Owns one `Guard` for each tool (or for each host or the like that a tool's breaker is kept apart by). A tool that has
lines of its own, such as one for each host, says which one a call belongs in; the guard takes the turn for it. Waiting
is not done here but in engine/step/admission.py: whoever cannot go through is told which gate is in the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core.execution import Execution
from holdfast.core.policy import Breaker as Rule
from holdfast.core.resources import Resources, all_used
from holdfast.engine.limits.breaker import Breaker
from holdfast.tools.isolated.parent import INTERPRETERS_MAX
from holdfast.tools.processes.shared_limits import SharedLimits
from holdfast.tools.runtime.fair_queue import Gate, Pacer, Places, Rate, Turn, Turns
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.services import Limits

APART_MAX = (
    1000  # guards of one engine that are kept apart by an argument; those at rest are forgotten first, open ones never
)


class Guard:
    """What stands before one tool. `is_plain`: nothing but what stands before all of them."""

    __slots__ = (
        "_everybody", "_gates", "_is_plain", "_limits", "alone", "breaker", "pacer", "places", "tool", "turn", "turns",
    )  # fmt: skip

    def __init__(self, tool: Tool[..., Any], breaker: Breaker | None, everybody: Places, limits: _OfTool) -> None:
        self.tool = tool.name
        self.breaker = breaker
        self.places = limits.places
        self.pacer = limits.pacer
        self._everybody = everybody
        self._limits = limits
        self._is_plain = limits.places is None and limits.pacer is None
        self._gates: tuple[Gate | None, ...] = (limits.places, everybody, limits.pacer)
        self.alone: Places | None = None
        self.turns: Turns | None = None
        self.turn: Turn | None = None

    def one_at_a_time(self) -> Guard:
        """The same for a call that runs with less, since memory, disk or the like ran short: with less at once, too."""
        guard = copy(self)
        if self._limits.alone is None:
            self._limits.alone = Places(1)
        guard.alone, guard._is_plain = self._limits.alone, False
        guard._gates = (guard.alone, *self._gates)
        return guard

    def with_turns(self, turns: Turns) -> Guard:
        """The same for one call, that must wait in a line of the tool's own, too."""
        guard = copy(self)
        guard.turns, guard._is_plain = turns, False
        guard._gates = (*guard._gates, turns)
        return guard

    def take_now(self, own: Places, having: Gate | None = None) -> Gate | None:
        """Go through everything at once, or hold nothing and be told what is in the way.

        `own` are the places of the execution, `having` is what it holds already.
        """
        breaker = self.breaker
        if self._is_plain and having is None and (breaker is None or breaker.state == "closed"):
            if not own.take_now():
                return own
            if self._everybody.take_now():
                return None
            own.give_back()
            return self._everybody
        held: list[Gate] = [having] if having is not None else []
        for gate in (breaker, own, *self._gates):
            if gate is None or gate is having:
                continue
            if not gate.take_now():
                for other in reversed(held):
                    other.give_back()
                return gate
            held.append(gate)
        if self.turns is not None:
            self.turn = Turn(self.turns)
        return None

    def door(self, is_apart: bool) -> Pacer | None:
        """The rate once more, right before the tool: who starts a process of its own comes there later than others,
        whenever that is ready. None as long as nobody did."""
        if is_apart and self._limits.door is None and self._limits.rate is not None:
            self._limits.door = Pacer(self._limits.rate)
        return self._limits.door

    def leave(self, own: Places) -> None:
        """The call is over. A rate has nothing to give back; the breaker has heard what became of it."""
        own.give_back()
        self._everybody.give_back()
        if self.places is not None:
            self.places.give_back()
        if self.alone is not None:
            self.alone.give_back()
        if self.turn is not None:
            self.turn.end()


def together_of(state: Execution, limits: Resources | None) -> SharedLimits | None:
    """What the commands of an execution share, with what is recorded of those that have ended; None: no limit."""
    if limits is None:
        return None
    return SharedLimits(state.id, limits, all_used(step.used for step in state.steps.values()))


class _OfTool(msgspec.Struct):
    places: Places | None
    pacer: Pacer | None
    rate: Rate | None
    door: Pacer | None = None
    alone: Places | None = None  # of calls that run with less


class Guards:
    def __init__(self, limits: Limits, rng: random.Random) -> None:
        self.everybody = Places(limits.steps)
        self.interpreters = Places(INTERPRETERS_MAX)
        self.on_change: Callable[[], None] = lambda: None
        self._limits = limits
        self._dice = rng
        self._guards: dict[str, Guard] = {}
        self._apart: dict[tuple[str, str], Guard] = {}
        self._of_tool: dict[str, _OfTool] = {}

    def of(self, tool: Tool[..., Any], arguments: bytes, *, with_less: bool = False) -> Guard:
        guard = self._of(tool, arguments)
        if with_less:
            guard = guard.one_at_a_time()
        if tool.turns is None:
            return guard
        try:
            return guard.with_turns(tool.turns(cast("dict[str, Any]", msgspec.json.decode(arguments))))
        except Exception:  # arguments that it cannot read will be refused by the tool itself
            return guard

    def _of(self, tool: Tool[..., Any], arguments: bytes) -> Guard:
        rule = tool.breaker
        if rule is not None and rule.by is not None:
            return self._kept_apart(tool, rule.by, arguments)
        guard = self._guards.get(tool.name)
        if guard is None:
            guard = self._guards[tool.name] = self._make(tool)
        return guard

    def told(self, tool: Tool[..., Any], why: str) -> None:
        """By its health check: "" if it is well. What is kept apart by an argument is not judged as a whole."""
        if tool.breaker is None or tool.breaker.by is not None:
            return
        breaker = self._of(tool, b"{}").breaker
        if breaker is not None and why:
            breaker.ill(why)
        elif breaker is not None:
            breaker.well()

    def own_places(self, steps: int) -> Places:
        """Of one execution; `steps` is what its plan says, 0 if nothing."""
        return Places(steps or self._limits.execution_steps)

    def breakers(self) -> Iterator[tuple[str, str, Breaker]]:
        """Tool, what it is kept apart by, and the breaker, of all that have been needed so far."""
        for name, guard in self._guards.items():
            if guard.breaker is not None:
                yield name, "", guard.breaker
        for (name, apart), guard in self._apart.items():
            if guard.breaker is not None:
                yield name, apart, guard.breaker

    def _kept_apart(self, tool: Tool[..., Any], by: Callable[[Mapping[str, Any]], str], arguments: bytes) -> Guard:
        try:
            key = (tool.name, str(by(cast("dict[str, Any]", msgspec.json.decode(arguments)))))
        except Exception:  # arguments that it cannot read will be refused by the tool itself
            key = (tool.name, "")
        guard = self._apart.get(key)
        if guard is None:
            if len(self._apart) >= APART_MAX:
                self._forget_some()
            guard = self._make(tool)
            if len(self._apart) < APART_MAX:  # else all the others are being left alone, and that counts for more
                self._apart[key] = guard
        return guard

    def _forget_some(self) -> None:
        """Those of whom there is nothing to know, then those who may be tried anyway; of each the oldest first."""
        at_rest = [
            (guard.breaker.has_news, key)
            for key, guard in self._apart.items()
            if guard.breaker is not None and guard.breaker.is_at_rest()
        ]
        at_rest.sort(key=lambda each: each[0])
        for _, key in at_rest[: APART_MAX // 10]:
            del self._apart[key]

    def _make(self, tool: Tool[..., Any]) -> Guard:
        limits = self._of_tool.get(tool.name)
        if limits is None:
            limits = self._of_tool[tool.name] = _OfTool(
                Places(tool.concurrency) if tool.concurrency is not None else None,
                Pacer(tool.rate) if tool.rate is not None else None,
                tool.rate,
            )
        return Guard(tool, self._breaker(tool.breaker), self.everybody, limits)

    def _breaker(self, rule: Rule | None) -> Breaker | None:
        if rule is None:
            return None
        failures = rule.failures if rule.failures is not None else self._limits.breaker_failures
        rest_s = rule.rest_s if rule.rest_s is not None else self._limits.breaker_rest_s
        return Breaker(failures, rest_s, self._dice, self._tell)

    def _tell(self) -> None:
        self.on_change()
