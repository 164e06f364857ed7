"""Cuts a failing scenario down to what it takes: fewer tasks, orders, breakages and steps, as long as it still fails.

Greedy and deterministic: every cut is kept if one of the checks that failed before still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.journal.log import SNAPSHOT_EVENTS_MIN
from proof.simulator.programs import Script
from proof.simulator.scenario import Scenario, Task

ROUNDS_MAX = 400
Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """The smallest scenario found that still fails."""
    rounds = 0
    progress = True
    while progress:
        progress = False
        for smaller in _cuts(scenario):
            rounds += 1
            if rounds > ROUNDS_MAX:
                return scenario
            if fails(smaller):
                scenario, progress = smaller, True
                break
    return scenario


def _cuts(scenario: Scenario) -> Iterator[Scenario]:
    """Everything that is one cut smaller, the largest cuts first."""
    for name in ("tasks", "orders", "breakages"):
        items: tuple[Any, ...] = getattr(scenario, name)
        if len(items) > 1:
            yield _with(scenario, name, items[: len(items) // 2])
            yield _with(scenario, name, items[len(items) // 2 :])
        for place in range(len(items)):
            yield _with(scenario, name, items[:place] + items[place + 1 :])
    if scenario.trouble:
        yield msgspec.structs.replace(scenario, trouble=0.0)
    if scenario.snapshot_events_min < SNAPSHOT_EVENTS_MIN:
        yield msgspec.structs.replace(scenario, snapshot_events_min=SNAPSHOT_EVENTS_MIN)
    for place, task in enumerate(scenario.tasks):
        for smaller in _smaller_tasks(task):
            yield _with(scenario, "tasks", (*scenario.tasks[:place], smaller, *scenario.tasks[place + 1 :]))


def _with(scenario: Scenario, name: str, items: tuple[Any, ...]) -> Scenario:
    return msgspec.structs.replace(scenario, **{name: items})


def _smaller_tasks(task: Task) -> Iterator[Task]:
    if task.watched:
        yield msgspec.structs.replace(task, watched=False)
    if task.script is not None:
        for script in _without_one(task.script):
            yield msgspec.structs.replace(task, script=script)
    elif task.plan is not None:
        for name in task.plan:
            if name not in ("name", "steps"):
                yield msgspec.structs.replace(task, plan={key: task.plan[key] for key in task.plan if key != name})
        for steps in _fewer_steps(task.plan["steps"]):
            yield msgspec.structs.replace(task, plan={**task.plan, "steps": steps})


def _without_one(items: Script) -> Iterator[Script]:
    """The script without one of its operations, or with one of its nested scripts made smaller."""
    if len(items) > 1:
        for place in range(len(items)):
            yield items[:place] + items[place + 1 :]
    for place, item in enumerate(items):
        if item[0] in ("gather", "try", "child"):
            for inner in range(1, len(item)):
                for smaller in _without_one(item[inner]):
                    yield [*items[:place], [*item[:inner], smaller, *item[inner + 1 :]], *items[place + 1 :]]


def _fewer_steps(steps: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    if len(steps) > 1:
        for gone in steps:
            yield [_not_needing(step, gone["id"]) for step in steps if step is not gone]
    for place, step in enumerate(steps):
        for name in ("retry", "fallback", "for_each", "approval", "critical", "cache", "on_error"):
            if name in step and len(step) > 2 and ("tool" in step or name == "critical"):
                less = {
                    key: step[key] for key in step if key not in (name, "max_parallel" if name == "for_each" else name)
                }
                yield [*steps[:place], less, *steps[place + 1 :]]
        if "steps" in step:
            for inner in _fewer_steps(step["steps"]):
                yield [*steps[:place], {**step, "steps": inner}, *steps[place + 1 :]]
        if isinstance(step.get("with"), dict) and "script" in step["with"]:
            for script in _without_one(step["with"]["script"]):
                yield [*steps[:place], {**step, "with": {"script": script}}, *steps[place + 1 :]]


def _not_needing(step: dict[str, Any], gone: str) -> dict[str, Any]:
    if gone not in step.get("needs", ()):
        return step
    return {**step, "needs": [need for need in step["needs"] if need != gone]}
