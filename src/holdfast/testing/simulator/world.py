"""The world outside: tools whose fate is drawn from the seed, and the one true ledger of what really happened.

A call's fate depends only on the seed, the execution's title, the step's path and the attempt, so that taking something
else out of a scenario does not change it. The ledger is what no engine can see and every check is made against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

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
from holdfast.core.policy import Effect
from holdfast.testing.simulator.history import Called, History, Phase
from holdfast.testing.simulator.processes import Process
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict
from holdfast.tools.tool import Tool, tool

_WITHOUT_EFFECT: dict[str, Callable[[], BaseException]] = {
    "unreachable": lambda: Transient("nobody there", without_effect=True),
    "rate_limited": lambda: RateLimited("too many", retry_after_s=1.5),
    "not_permitted": lambda: NotPermitted("not allowed"),
    "misconfigured": lambda: Misconfigured("a setting is missing"),
    "invalid": lambda: InvalidCall("that makes no sense"),
}
_AFTER_EFFECT: dict[str, Callable[[], BaseException]] = {
    "lost_answer": lambda: Transient("the connection broke"),
    "short": lambda: ResourceShort("no room"),
    "known": lambda: ToolError("it came out wrong"),
    "bug": lambda: ValueError("a bug in the tool"),
    "cancels_itself": asyncio.CancelledError,
}
LISTED = 3  # items of the tool that lists things


class Fate(msgspec.Struct, frozen=True):
    ending: str = "ok"
    before_s: float = 0.0
    after_s: float = 0.0


class World:
    """`trouble` is the share of calls that do not simply work; after `is_peaceful` is set, all do."""

    def __init__(self, seed: str, trouble: float, history: History) -> None:
        self._seed = seed
        self._trouble = trouble
        self._history = history
        self._loop = asyncio.get_running_loop()
        self.titles: dict[str, str] = {}
        self.happened: dict[str, int] = {}
        self.is_peaceful = False

    def now_us(self) -> int:
        return round(self._loop.time() * 1e6)

    def fate(self, call: Call) -> Fate:
        if self.is_peaceful:
            return Fate("ok", 0.01, 0.01)
        title = self.titles.get(call.execution_id, "")
        dice = Random(f"{self._seed}/{title}/{call.path}/{call.attempt}")
        pace = dice.choice((0.0, 0.01, 0.3, 2.0))
        ending = "ok"
        if dice.random() < self._trouble:
            ending = dice.choice((*_WITHOUT_EFFECT, *_AFTER_EFFECT, "hangs", "stubborn", "lingers"))
        return Fate(ending, dice.random() * pace, dice.random() * pace)

    def truth(self, key: str) -> Verdict:
        return Happened(f"found {key}") if self.happened.get(key) else DidNotHappen()


class Toolbox:
    """The tools as one process has them."""

    def __init__(self, world: World, process: Process, history: History) -> None:
        self._world = world
        self._process = process
        self._history = history

    def tools(self) -> list[Tool[..., Any]]:
        return [
            self._make("look", "read"),
            self._make("put", "idempotent"),
            self._make("pay", "once"),
            self._make("pay_checked", "once", in_doubt="verify", verify=self._verify),
            self._make("pay_bravely", "once", in_doubt="retry"),
            self._make("pay_or_fail", "once", in_doubt="fail"),
            self._make("ask_first", "once", approval="shall we?"),
            self._make("listing", "read"),
            self._make("thrifty", "idempotent", reduce=_reduce, refresh=_refresh),
        ]

    def _make(self, name: str, effect: Effect, **options: Any) -> Tool[..., Any]:
        @tool(name=name, effect=effect, **options)
        async def simulated(call: Call, value: Any = None) -> Any:
            return await _Visit(self, name, effect, call).run()

        return simulated

    async def _verify(self, call: Call, value: Any = None) -> Verdict:
        await asyncio.sleep(0.05)
        if Random(f"{call.key}/{call.attempt}").random() < 0.2 and not self._world.is_peaceful:
            return Unknown()
        return self._world.truth(call.key)

    def fate(self, call: Call) -> Fate:
        return self._world.fate(call)

    def happen(self, key: str) -> None:
        if self._process.is_alive:
            self._world.happened[key] = self._world.happened.get(key, 0) + 1

    def note(self, phase: Phase, name: str, effect: str, call: Call, output: Any = None) -> None:
        if not self._process.is_alive:
            return  # nobody hears the dead
        self._history.write(
            Called(
                at_us=self._world.now_us(),
                process=self._process.name,
                phase=phase,
                tool=name,
                effect=effect,
                execution_id=call.execution_id,
                path=call.path,
                attempt=call.attempt,
                key=call.key,
                output=output,
            )
        )


class _Visit:
    """One call of one tool."""

    def __init__(self, box: Toolbox, name: str, effect: str, call: Call) -> None:
        self._box = box
        self._name = name
        self._effect = effect
        self._call = call
        self._fate = box.fate(call)

    async def run(self) -> Any:
        self._note("called")
        try:
            await asyncio.sleep(self._fate.before_s)
            refusal = _WITHOUT_EFFECT.get(self._fate.ending)
            if refusal is not None:
                self._note("raised")
                raise refusal()
            self._box.happen(self._call.key)
            self._note("happened")
            await asyncio.sleep(self._fate.after_s)
            if self._fate.ending == "hangs":
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self._note("cut")
            if self._fate.ending != "stubborn":
                raise
            await asyncio.sleep(3)
        return self._answer()

    def _answer(self) -> Any:
        failure = _AFTER_EFFECT.get(self._fate.ending)
        if failure is not None:
            self._note("raised")
            raise failure()
        if self._fate.ending == "lingers":
            asyncio.get_running_loop().create_task(self._linger())
        number = f"{self._call.path}#{self._call.attempt}"
        output = [f"{number}.{item}" for item in range(LISTED)] if self._name == "listing" else number
        self._note("answered", output)
        return output

    async def _linger(self) -> None:
        """Words after the answer: nobody should be harmed by them."""
        await asyncio.sleep(0.5)
        with suppress(HoldfastError, Suspended, asyncio.CancelledError):
            self._call.progress(50, "still talking")
            await self._call.note({"late": True})

    def _note(self, phase: Phase, output: Any = None) -> None:
        self._box.note(phase, self._name, self._effect, self._call, output)


def _reduce(call: Call, value: Any = None) -> dict[str, Any]:
    return {"value": "less"}


async def _refresh(call: Call, value: Any = None) -> None:
    await asyncio.sleep(0.01)
