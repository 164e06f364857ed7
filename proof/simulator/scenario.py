"""A whole history before it happens, as data: who runs what, who orders what, what breaks and when.

A scenario is drawn from one seed and can be written down, cut smaller, and played again.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import msgspec

from holdfast.journal.log import SNAPSHOT_EVENTS_MIN
from proof.simulator.programs import random_budget, random_plan, random_script

FaultKind = Literal[
    "kill", "power", "close", "freeze", "zombie", "depose",
    "disk_fails", "disk_unsure", "disk_late", "disk_slow", "clock", "restored", "moved",
]  # fmt: skip
FAULTS: tuple[FaultKind, ...] = (
    "kill", "kill", "kill", "power", "close", "close", "freeze", "zombie", "depose",
    "disk_fails", "disk_unsure", "disk_late", "disk_slow", "clock", "clock",
)  # fmt: skip
VERBS = (
    "pause", "pause", "resume", "resume", "interrupt", "stop",
    "approve", "approve", "deny", "answer", "resolve", "resolve", "send", "send", "extend", "retry",
)  # fmt: skip
MONEY_VERB = "budget"
KEEPING_VERBS = ("delete", "delete", "prune", "copy", "archive")  # with whole executions, and not by command
DEATHS: tuple[FaultKind, ...] = ("kill", "power", "close", "restored", "moved")
WAR_S = 20.0  # how long things break; then there is peace


class Task(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at_s: float
    plan: dict[str, Any] | None = None
    script: list[Any] | None = None
    watched: bool = False
    twice: bool = False
    hold: bool = False
    budget: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the execution that stands at `whom` in the list; `twice` sends it from two processes.

    `among` narrows the list: to parents of a child that lives, to orphans, whose driver has died, to roots that
    nothing was made from, or to those of whom a file is just being written, or who have waited for a yes until just
    now, for whose moment it waits.
    """

    number: int
    at_s: float
    verb: str
    whom: int
    twice: bool = False
    among: Literal["", "parents", "orphans", "roots", "saving", "expiring"] = ""
    task: int | None = None  # to what was handed in as this one
    odd: bool = False  # it makes no sense, and comes past whoever would have said so


class Breakage(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    kind: FaultKind
    host: int
    turns: int = 1  # a killed process takes so many turns more: that is how it dies between any two awaits
    for_s: float = 1.0
    amount: float = 0.0
    awaits: str = ""  # strikes when such a command is on its way from one execution to another


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    hosts: int
    trouble: float
    passivate_s: float
    executions: int
    death_noticed_s: float
    snapshot_events_min: int  # how soon a journal gets a snapshot; simulated executions are short
    tasks: tuple[Task, ...]
    orders: tuple[Order, ...]
    breakages: tuple[Breakage, ...]

    def size(self) -> int:
        """How much there is to read in it."""
        return len(msgspec.json.encode(self))


def draw_plain(seed: int) -> Scenario:
    """Without what is added to it so that rare things happen."""
    rng = Random(seed)
    hosts = rng.randint(1, 3)
    tasks = tuple(_task(rng, number) for number in range(rng.randint(1, 5)))
    orders = tuple(_order(rng, number) for number in range(rng.randint(0, 10)))
    orders += tuple(_about_money(seed, len(orders)))
    orders += tuple(_about_keeping(seed, len(orders)))
    breakages = tuple(_breakage(rng, hosts) for _ in range(rng.randint(0, 8)))
    breakages += tuple(_restored(seed))
    return Scenario(
        seed=seed,
        hosts=hosts,
        trouble=rng.choice((0.0, 0.3, 0.6)),
        passivate_s=rng.choice((0.0, 1.0, 30.0)),
        executions=rng.choice((1, 2, 100)),
        death_noticed_s=rng.choice((0.0, 2.0)),
        snapshot_events_min=rng.choice((1, 6, SNAPSHOT_EVENTS_MIN)),
        tasks=tasks,
        orders=orders,
        breakages=breakages,
    )


def _task(rng: Random, number: int) -> Task:
    common: dict[str, Any] = {
        "number": number,
        "at_s": rng.random() * WAR_S / 2,
        "watched": rng.random() < 0.6,
        "twice": rng.random() < 0.2,
        "hold": rng.random() < 0.05,
    }
    if rng.random() < 0.6:
        return Task(plan=random_plan(rng, f"plan{number}"), **common)
    script = random_script(rng)
    return Task(script=script, budget=random_budget(script), **common)


def _order(rng: Random, number: int) -> Order:
    return Order(
        number=number,
        at_s=rng.random() * WAR_S,
        verb=rng.choice(VERBS),
        whom=rng.randint(0, 6),
        twice=rng.random() < 0.3,
    )


def _about_money(seed: int, first: int) -> Iterator[Order]:
    """Somebody changes limits now and then; drawn apart, so that the other draws stay as they are."""
    rng = Random(f"{seed}/money")
    for number in range(first, first + rng.choice((0, 0, 1, 3))):
        yield Order(number=number, at_s=rng.random() * WAR_S, verb=MONEY_VERB, whom=rng.randint(0, 6))


def _about_keeping(seed: int, first: int) -> Iterator[Order]:
    """Somebody tidies up, or carries executions around, when some may have ended."""
    rng = Random(f"{seed}/keeping")
    for number in range(first, first + rng.choice((0, 0, 1, 3, 5))):
        at_s = WAR_S * (0.2 + 0.8 * rng.random())
        yield Order(number=number, at_s=at_s, verb=rng.choice(KEEPING_VERBS), whom=rng.randint(0, 6))


def _restored(seed: int) -> Iterator[Breakage]:
    rng = Random(f"{seed}/restored")
    if rng.random() < 0.15:
        yield Breakage(at_s=WAR_S * rng.random(), kind="restored", host=0, for_s=rng.choice((0.05, 1.0, 5.0)))


def _breakage(rng: Random, hosts: int) -> Breakage:
    return Breakage(
        at_s=rng.random() * WAR_S,
        kind=rng.choice(FAULTS),
        host=rng.randrange(hosts),
        turns=rng.randint(1, 200),
        for_s=rng.choice((0.05, 1.0, 5.0)),
        amount=rng.random(),
    )
