"""The world outside: tools whose fate is drawn from the seed, and the one true ledger of what really happened.

A call's fate depends only on the seed, the execution's title, the step's path and the attempt, so that taking something
else out of a scenario does not change it. The ledger is what no engine can see and every check is made against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any

import msgspec

from holdfast.core.budget import in_usd
from holdfast.core.errors import InvalidCall
from holdfast.core.policy import Effect
from holdfast.testing.simulated_processes import Process
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict
from holdfast.tools.tool import Tool, tool
from proof.simulator.history import Called, History, Phase, Tells
from proof.simulator.visits import AFTER_EFFECT, STRANGE, WITHOUT_EFFECT, Fate, visit

# What each tool does in the world. The engine is told the same, and the checks do not ask the engine.
EFFECTS: dict[str, Effect] = {
    "look": "read",
    "listing": "read",
    "put": "idempotent",
    "thrifty": "idempotent",
    "jot": "idempotent",
    "pay": "once",
    "pay_checked": "once",
    "pay_bravely": "once",
    "pay_or_fail": "once",
    "ask_first": "once",
}
# What each costs at most, in micro-dollars; the others cost nothing, and some of each effect are among them: what costs
# something waits for the disk for that alone.
PRICES = {"put": 10_000, "thrifty": 20_000, "pay": 20_000, "pay_checked": 30_000, "pay_bravely": 40_000}
_ENDINGS = (*WITHOUT_EFFECT, *AFTER_EFFECT, *STRANGE)
_LIKELY = {"thrifty": ("short", "not_permitted") * 6, "pay": ("bug", "lost_answer") * 4}  # where it matters most
DELIVERED_S = 3.0  # within which an answer comes by another way
AGAIN = " again"
BULKY = 9_000  # characters: more than an event holds itself

Deliver = Callable[[Called], None]


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
        self.deliver: Deliver = lambda _: None  # brings an answer to an engine, by whatever way is left

    def now_us(self) -> int:
        return round(self._loop.time() * 1e6)

    def fate(self, tool: str, call: Call) -> Fate:
        if self.is_peaceful:
            return Fate("ok", 0.01, 0.01)
        title = self.titles.get(call.execution_id, "")
        rng = Random(f"{self._seed}/{title}/{call.path}/{call.attempt}")
        pace = rng.choice((0.0, 0.01, 0.3, 2.0))
        ending = "ok"
        if rng.random() < self._trouble:
            ending = rng.choice((*_LIKELY.get(tool, ()), *_ENDINGS))
        plague = Random(f"{self._seed}/{title}/{call.path}")
        if plague.random() < self._trouble / 4:  # some things fail in the same way, however often they are tried
            ending = plague.choice(("unreachable", "unreachable", "rate_limited", "lost_answer", "known", "bug"))
        before_s, after_s = rng.random() * pace, rng.random() * pace
        bulky, notes = rng.random() < 0.12, rng.random() < 0.1
        spends = rng.choice((None, 0.0, 0.3, 1.0))
        return Fate(ending, before_s, after_s, bulky=bulky, notes=notes, spends=spends)

    def truth(self, key: str) -> Verdict:
        return Happened(f"found {key}") if self.happened.get(key) else DidNotHappen()

    def happen(self, line: Called) -> None:
        self.happened[line.key] = self.happened.get(line.key, 0) + 1
        self._history.write(msgspec.structs.replace(line, at_us=self.now_us(), phase="happened"))

    def happen_later(self, line: Called, after_s: float) -> None:
        """Somewhere else: whoever asked for it may be dead by then."""
        self._loop.call_later(after_s, self.happen, line, context=Context())

    def deliver_later(self, line: Called) -> None:
        """An answer comes by another way, when its step may have settled and its process moved on."""
        after_s = DELIVERED_S * Random(f"{self._seed}/delivery/{line.key}/{line.attempt}").random()
        self._loop.call_later(after_s, self._deliver, line, context=Context())

    def _deliver(self, line: Called) -> None:
        delivered = msgspec.structs.replace(line, at_us=self.now_us(), phase="delivered")
        self._history.write(delivered)
        self.deliver(delivered)


class Toolbox:
    """The tools as one process has them."""

    def __init__(self, world: World, process: Process, history: History) -> None:
        self._world = world
        self._process = process
        self._history = history

    def tools(self) -> list[Tool[..., Any]]:
        options: dict[str, dict[str, Any]] = {
            "pay_checked": {"in_doubt": "verify", "verify": self._verify},
            "pay_bravely": {"in_doubt": "retry"},
            "pay_or_fail": {"in_doubt": "fail"},
            "ask_first": {"approval": "shall we?"},
            "thrifty": {"reduce": _reduce, "refresh": _refresh},
        }
        costs = {name: {"cost": in_usd(micros)} for name, micros in PRICES.items()}
        return [
            self._make(name, effect, **options.get(name, {}), **costs.get(name, {})) for name, effect in EFFECTS.items()
        ]

    def _make(self, name: str, effect: Effect, **options: Any) -> Tool[..., Any]:
        @tool(name=name, effect=effect, **options)
        async def simulated(call: Call, value: Any = None) -> Any:
            return await visit(Desk(self, name, effect, call, value))

        return simulated

    async def _verify(self, call: Call, value: Any = None) -> Verdict:
        await asyncio.sleep(0.05)
        verdict = self._world.truth(call.key)
        if Random(f"{call.key}/{call.attempt}").random() < 0.2 and not self._world.is_peaceful:
            verdict = Unknown()
        desk = Desk(self, "pay_checked", "once", call, value)
        if Random(f"{call.key}/{call.attempt}/{self._world.now_us()}").random() < 0.2 and not self._world.is_peaceful:
            desk.note("verified", "raised")
            raise RuntimeError("the books are closed")
        desk.note("verified", type(verdict).__name__)
        return verdict

    def fate(self, tool: str, call: Call) -> Fate:
        return self._world.fate(tool, call)

    def write(self, line: Called) -> None:
        self._history.write(line)

    def line(self, phase: Phase, name: str, effect: str, call: Call) -> Called:
        return Called(
            at_us=self._world.now_us(),
            process=self._process.name,
            phase=phase,
            tool=name,
            effect=effect,
            execution_id=call.execution_id,
            path=call.path,
            attempt=call.attempt,
            key=call.key,
        )

    def happen(self, line: Called) -> None:
        self._world.happen(line)

    def happen_elsewhere(self, line: Called, after_s: float) -> None:
        self._world.happen_later(msgspec.structs.replace(line, process="world"), after_s)

    def deliver_elsewhere(self, line: Called) -> None:
        self._world.deliver_later(msgspec.structs.replace(line, process="world"))


class Desk:
    """Where one call is attended to: its fate, and where its moments are written down."""

    def __init__(self, box: Toolbox, tool: str, effect: str, call: Call, value: Any) -> None:
        self._box = box
        self._effect = effect
        self._value = value
        self.tool = tool
        self.call = call
        self.fate = box.fate(tool, call)

    def note(self, phase: Phase, output: Any = None, tells: Tells = "") -> None:
        line = self._line(phase)
        line.output, line.tells = output, tells
        if phase == "called":
            line.notes, line.value = self.call.notes, self._value
        self._box.write(line)

    def happen(self) -> None:
        self._box.happen(self._line("happened"))

    def happen_elsewhere(self, after_s: float) -> None:
        self._box.happen_elsewhere(self._line("happened"), after_s)

    def spend(self) -> None:
        """Say a share of the price, in two parts, if this call says anything about its cost."""
        price, share = PRICES.get(self.tool), self.fate.spends
        if price is None or share is None:
            return
        spent = int(price * share)
        with suppress(InvalidCall):  # the attempt may be over: then nobody counts it
            for part in (spent // 3, spent - spent // 3):
                self.call.spend(in_usd(part))
            line = self._line("spent")
            line.value = spent
            self._box.write(line)

    def deliver_later(self, output: Any) -> None:
        line = self._line("delivered")
        line.output = output
        self._box.deliver_elsewhere(line)

    def answer(self) -> Any:
        """What the tool answers: its step and attempt, so that everybody can tell whose answer it is."""
        number = f"{self.call.path}#{self.call.attempt}"
        if self.tool == "listing":
            return [f"{number}.{item}" for item in range(3)]
        return number + "." * BULKY if self.fate.bulky else number

    def second_answer(self) -> Any:
        """Another one than the first, so that everybody can tell which of the two was believed; of the same type."""
        answer = self.answer()
        return [*answer, AGAIN] if isinstance(answer, list) else f"{answer}{AGAIN}"

    def _line(self, phase: Phase) -> Called:
        line = self._box.line(phase, self.tool, self._effect, self.call)
        line.ending = self.fate.ending
        return line


def _reduce(call: Call, value: Any = None) -> dict[str, Any]:
    return {"value": "less"}


async def _refresh(call: Call, value: Any = None) -> None:
    await asyncio.sleep(0.01)
