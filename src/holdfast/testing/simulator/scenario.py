"""A whole history before it happens, as data: who runs what, who orders what, what breaks and when.

A scenario is drawn from one seed and can be written down, cut smaller, and played again.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import msgspec

from holdfast.journal.log import SNAPSHOT_EVENTS_MIN
from holdfast.testing.simulator.programs import (
    TOOLS,
    random_budget,
    random_child,
    random_plan,
    random_script,
    with_steps_left_behind,
)

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


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the execution that stands at `whom` in the list; `twice` sends it from two processes.

    `among` narrows the list: to parents of a child that lives, to orphans, whose driver has died, or to roots that
    nothing was made from.
    """

    number: int
    at_s: float
    verb: str
    whom: int
    twice: bool = False
    among: Literal["", "parents", "orphans", "roots"] = ""


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


def draw(seed: int) -> Scenario:
    dice = Random(seed)
    hosts = dice.randint(1, 3)
    tasks = tuple(_task(dice, number) for number in range(dice.randint(1, 5)))
    orders = tuple(_order(dice, number) for number in range(dice.randint(0, 10)))
    orders += tuple(_about_money(seed, len(orders)))
    orders += tuple(_about_keeping(seed, len(orders)))
    breakages = tuple(_breakage(dice, hosts) for _ in range(dice.randint(0, 8)))
    breakages += (rare := tuple(_restored(seed)) or tuple(_moved(seed)))
    tasks += tuple(_moving_family(seed, len(tasks), rare))
    naps = tuple(_nap(seed, len(tasks), hosts))
    tasks += tuple(task for nap in naps for task in _busy_before(nap, seed, len(tasks), hosts))
    breakages += naps
    orders += tuple(_after_deaths(seed, len(orders), breakages))
    orders += tuple(_before_moving(seed, len(orders), rare))
    orders += tuple(_at_once(seed, len(orders)))
    return Scenario(
        seed=seed,
        hosts=hosts,
        trouble=dice.choice((0.0, 0.3, 0.6)),
        passivate_s=dice.choice((0.0, 1.0, 30.0)),
        executions=dice.choice((1, 2, 100)),
        death_noticed_s=dice.choice((0.0, 2.0)),
        snapshot_events_min=dice.choice((1, 6, SNAPSHOT_EVENTS_MIN)),
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
    script = random_script(dice)
    return Task(script=with_steps_left_behind(script), budget=random_budget(script), **common)


def _order(dice: Random, number: int) -> Order:
    return Order(
        number=number,
        at_s=dice.random() * WAR_S,
        verb=dice.choice(VERBS),
        whom=dice.randint(0, 6),
        twice=dice.random() < 0.3,
    )


def _about_money(seed: int, first: int) -> Iterator[Order]:
    """Somebody changes limits now and then; drawn apart, so that the other draws stay as they are."""
    dice = Random(f"{seed}/money")
    for number in range(first, first + dice.choice((0, 0, 1, 3))):
        yield Order(number=number, at_s=dice.random() * WAR_S, verb=MONEY_VERB, whom=dice.randint(0, 6))


def _about_keeping(seed: int, first: int) -> Iterator[Order]:
    """Somebody tidies up, or carries executions around, when some may have ended."""
    dice = Random(f"{seed}/keeping")
    for number in range(first, first + dice.choice((0, 0, 1, 3, 5))):
        at_s = WAR_S * (0.2 + 0.8 * dice.random())
        yield Order(number=number, at_s=at_s, verb=dice.choice(KEEPING_VERBS), whom=dice.randint(0, 6))


def _restored(seed: int) -> Iterator[Breakage]:
    dice = Random(f"{seed}/restored")
    if dice.random() < 0.15:
        yield Breakage(at_s=WAR_S * dice.random(), kind="restored", host=0, for_s=dice.choice((0.05, 1.0, 5.0)))


def _moved(seed: int) -> Iterator[Breakage]:
    """At some time; or a little later, at the next moment in which one would lose what is on its way."""
    dice = Random(f"{seed}/moved")
    if dice.random() < 0.25:
        at_s, for_s = WAR_S * dice.random(), dice.choice((0.05, 1.0))
        yield Breakage(at_s=at_s, kind="moved", host=0, for_s=for_s, awaits=dice.choice(("", "child_ended", "stop")))


def _nap(seed: int, number: int, hosts: int) -> Iterator[Breakage]:
    """A machine falls asleep in the middle of its work, is replaced, and wakes up before its tools have answered."""
    dice = Random(f"{seed}/nap")
    if hosts > 1 and dice.random() < 0.15:
        yield Breakage(at_s=WAR_S * dice.random(), kind="zombie", host=number % hosts, for_s=1.2)


def _busy_before(nap: Breakage, seed: int, first: int, hosts: int) -> Iterator[Task]:
    """One call each: where nothing else is written, only a look at the journal tells a sleeper what it has missed."""
    dice = Random(f"{seed}/busy")
    for number in range(first, first + 5 * hosts, hosts):  # the machines take turns, and these are for one of them
        script = [["call", dice.choice(TOOLS), 0, "fail"]]
        yield Task(number=number, at_s=max(0.0, nap.at_s - 0.3 * dice.random()), script=script)


def _moving_family(seed: int, number: int, rare: tuple[Breakage, ...]) -> Iterator[Task]:
    """Where everything moves, there is a family on the way whose members end one after the other."""
    dice = Random(f"{seed}/family")
    for move in rare:
        if move.kind == "moved":
            script = [["gather", *([["child", random_child(dice)]] for _ in range(3))]]
            yield Task(number=number, at_s=max(0.0, move.at_s - dice.random()), script=script)


def _before_moving(seed: int, first: int, rare: tuple[Breakage, ...]) -> Iterator[Order]:
    dice = Random(f"{seed}/before moving")
    for move in rare:
        if move.kind == "moved" and move.awaits == "stop":
            yield Order(
                number=first, at_s=move.at_s + dice.random(), verb="stop", whom=dice.randint(0, 6), among="parents"
            )


def _at_once(seed: int, first: int) -> Iterator[Order]:
    """Somebody runs again what somebody else is just getting rid of."""
    dice = Random(f"{seed}/at once")
    if dice.random() < 0.2:
        at_s, whom = WAR_S * (0.5 + 0.5 * dice.random()), dice.randint(1, 6)
        for number, verb in enumerate(("retry", "retry", "retry", "delete"), start=first):
            yield Order(number=number, at_s=at_s + 0.004 * dice.random(), verb=verb, whom=whom, among="roots")


def _after_deaths(seed: int, first: int, breakages: tuple[Breakage, ...]) -> Iterator[Order]:
    """Somebody who sees a machine die stops what it did, or holds it, before another one takes it up."""
    dice = Random(f"{seed}/after deaths")
    for place, breakage in enumerate(one for one in breakages if one.kind in DEATHS):
        if dice.random() < 0.3:
            at_s = breakage.at_s + dice.choice((0.05, 0.3, 1.0)) * dice.random()
            verb = dice.choice(("interrupt", "interrupt", "stop", "pause"))
            yield Order(number=first + place, at_s=at_s, verb=verb, whom=dice.randint(1, 6), among="orphans")


def _breakage(dice: Random, hosts: int) -> Breakage:
    return Breakage(
        at_s=dice.random() * WAR_S,
        kind=dice.choice(FAULTS),
        host=dice.randrange(hosts),
        turns=dice.randint(1, 200),
        for_s=dice.choice((0.05, 1.0, 5.0)),
        amount=dice.random(),
    )
