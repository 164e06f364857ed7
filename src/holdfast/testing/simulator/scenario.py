"""A whole history before it happens, as data: who runs what, who orders what, what breaks and when.

A scenario is drawn from one seed and can be written down, cut smaller, and played again.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import msgspec

from holdfast.testing.simulator.programs import random_plan, random_script

FaultKind = Literal[
    "kill", "power", "close", "freeze", "zombie", "depose",
    "disk_fails", "disk_unsure", "disk_late", "disk_slow", "clock",
]  # fmt: skip
FAULTS: tuple[FaultKind, ...] = (
    "kill", "kill", "kill", "power", "close", "close", "freeze", "zombie", "depose",
    "disk_fails", "disk_unsure", "disk_late", "disk_slow", "clock", "clock",
)  # fmt: skip
VERBS = (
    "pause", "pause", "resume", "resume", "interrupt", "stop",
    "approve", "approve", "deny", "answer", "resolve", "resolve", "send", "send", "extend", "retry",
)  # fmt: skip
WAR_S = 20.0  # how long things break; then there is peace


class Task(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at_s: float
    plan: dict[str, Any] | None = None
    script: list[Any] | None = None
    watched: bool = False
    twice: bool = False
    hold: bool = False


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the execution that stands at `whom` in the list; `twice` sends it from two processes."""

    number: int
    at_s: float
    verb: str
    whom: int
    twice: bool = False


class Breakage(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    kind: FaultKind
    host: int
    turns: int = 1  # a killed process takes so many turns more: that is how it dies between any two awaits
    for_s: float = 1.0
    amount: float = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    hosts: int
    trouble: float
    passivate_s: float
    executions: int
    death_noticed_s: float
    tasks: tuple[Task, ...]
    orders: tuple[Order, ...]
    breakages: tuple[Breakage, ...]

    def size(self) -> int:
        """How much there is to read in it."""
        return len(msgspec.json.encode(self))


def draw(seed: int) -> Scenario:
    dice = Random(seed)
    hosts = dice.randint(1, 3)
    tasks = tuple(_task(dice, number) for number in range(dice.randint(1, 5)))
    orders = tuple(_order(dice, number) for number in range(dice.randint(0, 10)))
    breakages = tuple(_breakage(dice, hosts) for _ in range(dice.randint(0, 6)))
    return Scenario(
        seed=seed,
        hosts=hosts,
        trouble=dice.choice((0.0, 0.1, 0.3)),
        passivate_s=dice.choice((0.0, 1.0, 30.0)),
        executions=dice.choice((1, 2, 100)),
        death_noticed_s=dice.choice((0.0, 2.0)),
        tasks=tasks,
        orders=orders,
        breakages=breakages,
    )


def _task(dice: Random, number: int) -> Task:
    common: dict[str, Any] = {
        "number": number,
        "at_s": dice.random() * WAR_S / 2,
        "watched": dice.random() < 0.6,
        "twice": dice.random() < 0.2,
        "hold": dice.random() < 0.05,
    }
    if dice.random() < 0.6:
        return Task(plan=random_plan(dice, f"plan{number}"), **common)
    return Task(script=random_script(dice), **common)


def _order(dice: Random, number: int) -> Order:
    return Order(
        number=number,
        at_s=dice.random() * WAR_S,
        verb=dice.choice(VERBS),
        whom=dice.randint(0, 6),
        twice=dice.random() < 0.3,
    )


def _breakage(dice: Random, hosts: int) -> Breakage:
    return Breakage(
        at_s=dice.random() * WAR_S,
        kind=dice.choice(FAULTS),
        host=dice.randrange(hosts),
        turns=dice.randint(1, 200),
        for_s=dice.choice((0.05, 1.0, 5.0)),
        amount=dice.random(),
    )
