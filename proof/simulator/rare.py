"""What is added to a drawn scenario so that rare things happen often: moves at the worst moment, naps, orphans, strays.

Each is drawn apart, so that everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from holdfast.core.policy import RESTS
from proof.simulator.programs import TIME_LIMIT_S, TOOLS, random_child, random_race, varied, with_steps_left_behind
from proof.simulator.scenario import DEATHS, WAR_S, Breakage, Order, Scenario, Task, draw_plain

NAP_S = 1.2


def draw(seed: int) -> Scenario:
    plain = draw_plain(seed)
    is_restored = any(breakage.kind == "restored" for breakage in plain.breakages)
    moves = () if is_restored else tuple(_moved(seed))
    tasks = tuple(_with_checkpoints(_with_strays(task)) for task in plain.tasks)
    tasks += tuple(_moving_family(seed, len(tasks), moves))
    naps = tuple(_nap(seed, len(tasks), plain.hosts))
    tasks += tuple(task for nap in naps for task in _busy_before(nap, seed, len(tasks), plain.hosts))
    saving = tuple(_saving(seed, len(tasks)))
    tasks += saving
    held_back = tuple(_held_back(seed, len(tasks)))
    tasks += held_back
    tasks += tuple(_racing(seed, len(tasks)))
    breakages = (*plain.breakages, *moves, *naps)
    orders = plain.orders
    orders += tuple(_after_deaths(seed, len(orders), breakages))
    orders += tuple(_before_moving(seed, len(orders), moves))
    orders += tuple(_at_once(seed, len(orders)))
    orders += tuple(_while_saving(seed, 100, saving))
    orders += tuple(_while_held_back(seed, 200, held_back))
    orders += tuple(_odd(seed, 300))
    orders += tuple(_too_late(seed, 400))
    tasks = tuple(msgspec.structs.replace(task, plan=varied(task.plan), script=varied(task.script)) for task in tasks)
    return msgspec.structs.replace(plain, tasks=tasks, orders=orders, breakages=breakages)


def _with_strays(task: Task) -> Task:
    if task.script is None:
        return task
    return msgspec.structs.replace(task, script=with_steps_left_behind(task.script))


def _with_checkpoints(task: Task) -> Task:
    """Some save themselves to files while they run; drawn from the program, as budgets are."""
    rng = Random(f"checkpoints of {task.plan or task.script}")
    policy = rng.choice(({"every_steps": 1}, {"every_steps": 2, "on": ["end"]}, {"every_s": 1}, {"on": list(RESTS)}))
    return msgspec.structs.replace(task, checkpoint=policy) if rng.random() < 0.3 else task


def _saving(seed: int, first: int) -> Iterator[Task]:
    """Short plans that save themselves after each step: the file after the last is written when the program is over."""
    rng = Random(f"{seed}/saving")
    for number in range(first, first + rng.choice((0, 0, 1, 2))):
        steps = [{"id": f"s{place}", "tool": "look", "timeout": TIME_LIMIT_S} for place in range(rng.randint(1, 3))]
        plan = {"name": "saving", "checkpoint": {"every_steps": 1}, "steps": steps}
        yield Task(number=number, at_s=WAR_S * rng.random(), plan=plan)


def _while_saving(seed: int, first: int, tasks: tuple[Task, ...]) -> Iterator[Order]:
    """Somebody adds to a plan while a file of it is written."""
    rng = Random(f"{seed}/while saving")
    for task in tasks:
        for number in range(first, first + rng.randint(1, 3)):
            at_s = task.at_s + rng.choice((0.05, 0.5, 2.0)) * rng.random()
            yield Order(number=number, at_s=at_s, verb="extend", whom=rng.randint(1, 6), among="saving")
        first += 3


def _held_back(seed: int, number: int) -> Iterator[Task]:
    """A plan whose last step takes a while."""
    rng = Random(f"{seed}/held back")
    if rng.random() < 0.5:
        steps = [{"id": "s0", "tool": "look", "timeout": TIME_LIMIT_S}]
        yield Task(number=number, at_s=WAR_S * 0.8 * rng.random(), plan={"name": "held back", "steps": steps})


def _racing(seed: int, first: int) -> Iterator[Task]:
    """Functions with several tasks, whose order decides how they go on."""
    rng = Random(f"{seed}/racing")
    for number in range(first, first + rng.choice((0, 0, 1, 2))):
        yield Task(number=number, at_s=WAR_S * 0.7 * rng.random(), script=random_race(rng))


def _while_held_back(seed: int, first: int, tasks: tuple[Task, ...]) -> Iterator[Order]:
    """Somebody pauses it during its last step, adds to it when that has ended, and lets it go on."""
    rng = Random(f"{seed}/while held back")
    for task in tasks:
        pause_s = task.at_s + rng.choice((0.01, 0.05, 0.2))
        for number, (verb, at_s) in enumerate((("pause", pause_s), ("extend", pause_s + 4), ("resume", pause_s + 5))):
            yield Order(number=first + number, at_s=at_s, verb=verb, whom=0, task=task.number)


def _odd(seed: int, first: int) -> Iterator[Order]:
    rng = Random(f"{seed}/odd")
    for number in range(first, first + rng.choice((1, 3, 5))):
        verb = rng.choice(("interrupt", "interrupt", "stop", "extend", "approve", "resolve", "pause", "resume", "send"))
        yield Order(number=number, at_s=WAR_S * rng.random(), verb=verb, whom=rng.randint(1, 6), odd=True)


def _too_late(seed: int, first: int) -> Iterator[Order]:
    """Somebody says yes when the time for it has just passed."""
    rng = Random(f"{seed}/too late")
    for number in range(first, first + rng.choice((0, 1, 2))):
        at_s, verb = WAR_S * (0.2 + 0.8 * rng.random()), rng.choice(("approve", "approve", "deny"))
        yield Order(number=number, at_s=at_s, verb=verb, whom=rng.randint(1, 6), among="expiring")


def _moved(seed: int) -> Iterator[Breakage]:
    """At some time; or a little later, at the next moment in which one would lose what is on its way."""
    rng = Random(f"{seed}/moved")
    if rng.random() < 0.25:
        at_s, for_s = WAR_S * rng.random(), rng.choice((0.05, 1.0))
        yield Breakage(at_s=at_s, kind="moved", host=0, for_s=for_s, awaits=rng.choice(("", "child_ended", "stop")))


def _nap(seed: int, number: int, hosts: int) -> Iterator[Breakage]:
    """A machine falls asleep in the middle of its work, is replaced, and wakes up before its tools have answered."""
    rng = Random(f"{seed}/nap")
    if hosts > 1 and rng.random() < 0.15:
        at_s = (WAR_S - NAP_S) * rng.random()  # peace would wake it sooner, from a nap that nobody can notice
        yield Breakage(at_s=at_s, kind="zombie", host=number % hosts, for_s=NAP_S)


def _busy_before(nap: Breakage, seed: int, first: int, hosts: int) -> Iterator[Task]:
    """One call each: where nothing else is written, only a look at the journal tells a sleeper what it has missed.

    Some have begun a while ago; some are only just writing down what they are about to do.
    """
    rng = Random(f"{seed}/busy")
    leads_s = (0.3, 0.3, 0.012, 0.012, 0.012)
    for place, lead_s in enumerate(leads_s):
        script = [["call", rng.choice(TOOLS), 0, "fail"]]
        at_s = max(0.0, nap.at_s - lead_s * rng.random())
        yield Task(number=first + place * hosts, at_s=at_s, script=script)  # machines take turns: these are for one


def _moving_family(seed: int, number: int, moves: tuple[Breakage, ...]) -> Iterator[Task]:
    """Where everything moves, there is a family on the way whose members end one after the other."""
    rng = Random(f"{seed}/family")
    for move in moves:
        script = [["gather", *([["child", random_child(rng)]] for _ in range(3))]]
        yield Task(number=number, at_s=max(0.0, move.at_s - rng.random()), script=script)


def _before_moving(seed: int, first: int, moves: tuple[Breakage, ...]) -> Iterator[Order]:
    rng = Random(f"{seed}/before moving")
    for move in moves:
        if move.awaits == "stop":
            yield Order(
                number=first, at_s=move.at_s + rng.random(), verb="stop", whom=rng.randint(0, 6), among="parents"
            )


def _at_once(seed: int, first: int) -> Iterator[Order]:
    """Somebody runs again what somebody else is just getting rid of."""
    rng = Random(f"{seed}/at once")
    if rng.random() < 0.2:
        at_s, whom = WAR_S * (0.5 + 0.5 * rng.random()), rng.randint(1, 6)
        for number, verb in enumerate(("retry", "retry", "retry", "delete"), start=first):
            yield Order(number=number, at_s=at_s + 0.004 * rng.random(), verb=verb, whom=whom, among="roots")


def _after_deaths(seed: int, first: int, breakages: tuple[Breakage, ...]) -> Iterator[Order]:
    """Somebody who sees a machine die stops what it did, or holds it, before another one takes it up."""
    rng = Random(f"{seed}/after deaths")
    deaths = [one for one in breakages if one.kind in DEATHS and rng.random() < 0.3]
    for number, breakage in enumerate(deaths, start=first):
        at_s = breakage.at_s + rng.choice((0.05, 0.3, 1.0)) * rng.random()
        verb = rng.choice(("interrupt", "interrupt", "stop", "pause"))
        yield Order(number=number, at_s=at_s, verb=verb, whom=rng.randint(1, 6), among="orphans")
