"""The world outside: tools whose fate is drawn from the seed, and the one true ledger of what really happened.

A call's fate depends only on the seed, the execution's title, the step's path and the attempt, so that taking something
else out of a scenario does not change it. The ledger is what no engine can see and every check is made against.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from random import Random
from typing import Any

import msgspec

from holdfast.core.policy import Effect
from holdfast.testing.simulator.history import Called, History, Phase, Tells
from holdfast.testing.simulator.processes import Process
from holdfast.testing.simulator.visits import AFTER_EFFECT, STRANGE, WITHOUT_EFFECT, Fate, visit
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict
from holdfast.tools.tool import Tool, tool

# What each tool does in the world. The engine is told the same, and the checks do not ask the engine.
EFFECTS: dict[str, Effect] = {
    "look": "read",
    "listing": "read",
    "put": "idempotent",
    "thrifty": "idempotent",
    "pay": "once",
    "pay_checked": "once",
    "pay_bravely": "once",
    "pay_or_fail": "once",
    "ask_first": "once",
}
BULKY = 9_000  # characters: more than an event holds itself


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
            ending = dice.choice((*WITHOUT_EFFECT, *AFTER_EFFECT, *STRANGE))
        plague = Random(f"{self._seed}/{title}/{call.path}")
        if plague.random() < self._trouble / 4:  # some things fail in the same way, however often they are tried
            ending = plague.choice(("unreachable", "unreachable", "rate_limited", "lost_answer", "known"))
        before_s, after_s = dice.random() * pace, dice.random() * pace
        return Fate(ending, before_s, after_s, bulky=dice.random() < 0.04, notes=dice.random() < 0.1)

    def truth(self, key: str) -> Verdict:
        return Happened(f"found {key}") if self.happened.get(key) else DidNotHappen()

    def happen(self, line: Called) -> None:
        self.happened[line.key] = self.happened.get(line.key, 0) + 1
        self._history.write(msgspec.structs.replace(line, at_us=self.now_us(), phase="happened"))

    def happen_later(self, line: Called, after_s: float) -> None:
        """Somewhere else: whoever asked for it may be dead by then."""
        self._loop.call_later(after_s, self.happen, line, context=Context())


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
        return [self._make(name, effect, **options.get(name, {})) for name, effect in EFFECTS.items()]

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
        Desk(self, "pay_checked", "once", call, value).note("verified", type(verdict).__name__)
        return verdict

    def fate(self, call: Call) -> Fate:
        return self._world.fate(call)

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


class Desk:
    """Where one call is attended to: its fate, and where its moments are written down."""

    def __init__(self, box: Toolbox, tool: str, effect: str, call: Call, value: Any) -> None:
        self._box = box
        self._effect = effect
        self._value = value
        self.tool = tool
        self.call = call
        self.fate = box.fate(call)

    def note(self, phase: Phase, output: Any = None, tells: Tells = "") -> None:
        line = self._line(phase)
        line.output, line.tells, line.ending = output, tells, self.fate.ending
        if phase == "called":
            line.notes, line.value = self.call.notes, self._value
        self._box.write(line)

    def happen(self) -> None:
        self._box.happen(self._line("happened"))

    def happen_elsewhere(self, after_s: float) -> None:
        self._box.happen_elsewhere(self._line("happened"), after_s)

    def answer(self) -> Any:
        """What the tool answers: its step and attempt, so that everybody can tell whose answer it is."""
        number = f"{self.call.path}#{self.call.attempt}"
        if self.tool == "listing":
            return [f"{number}.{item}" for item in range(3)]
        return number + "." * BULKY if self.fate.bulky else number

    def _line(self, phase: Phase) -> Called:
        return self._box.line(phase, self.tool, self._effect, self.call)


def _reduce(call: Call, value: Any = None) -> dict[str, Any]:
    return {"value": "less"}


async def _refresh(call: Call, value: Any = None) -> None:
    await asyncio.sleep(0.01)
