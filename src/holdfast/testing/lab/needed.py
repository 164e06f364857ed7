"""Whatever a test says must be needed: what was never asked for or reached is a mistake, and this says which.

Owns those sentences. Leaves fakes alone, which may stay uncalled: the tool that a misspelt one should have replaced is
refused where it is called. The sentences end with what became of the run, because that is mostly why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.core.error_text import did_you_mean
from holdfast.core.lifecycle import ENDS
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import ToolCall
from holdfast.testing.lab.outcome import Outcome
from holdfast.testing.lab.points import EVERYWHERE, Moment, Point
from holdfast.testing.lab.script import Actor
from holdfast.tools.tool import Tool

STATUSES = (*sorted(ENDS), "waiting", "paused", "interrupted")
DOUBTS = ("wait", "look")


def check_task(program: Any, inputs: Any) -> None:
    if isinstance(program, Tool):
        name = cast("Tool[..., Any]", program).name
        raise LabError(f"lab.run takes a plan or a function, and {name} is a tool; call it from one")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise LabError(f'inputs= is a mapping of names to values, such as {{"amount": 30}}; not {inputs!r}')


def check_said(ends: str | None, doubts: str) -> None:
    """The words of a test, before anything runs."""
    for name, given, known in (("ends", ends, STATUSES), ("doubts", doubts, DOUBTS)):
        if given is not None and given not in known:
            hint = did_you_mean(str(given), known)
            raise LabError(f"{name}= is one of {', '.join(known)}, not {given!r}{hint}")


def all_used(actor: Actor, outcome: Outcome, unsaid: Mapping[str, int]) -> None:
    """An answer, event or command that nobody needed."""
    sentences = actor.unused(unsaid)
    sentences += [
        f'commands["{when}"]: that moment never came{_about_step(moment, outcome)}'
        for moment, when, _ in actor.triggered
    ]
    sentences += [f'commands["{when}"]: it was over before that' for _, when, _ in actor.timed]
    if sentences:
        raise LabError("\n".join([*sentences, f"the execution is {_described(outcome)}"]))


def ended_as_meant(outcome: Outcome, ends: str) -> None:
    if outcome.status != ends:
        raise LabError(f"it should end as {ends}; the execution is {_described(outcome)}")


def worth_a_sweep(outcome: Outcome, ends: str | None) -> None:
    """A run that stops half-way has little to lose in a crash, so that is no proof unless it is meant."""
    if outcome.status != (ends or "completed"):
        raise LabError(
            f'crash_at="{EVERYWHERE}" proves nothing about what never happened: left alone, '
            f'the execution is {_described(outcome)}; if that is meant, say ends="{outcome.status}"'
        )


def never_reached(point: Point, outcome: Outcome) -> LabError:
    if point.commit:
        hint = f"; there were {outcome.commits} journal writes"
    elif point.moment is not None:
        hint = _about_step(point.moment, outcome)
    else:
        hint = _about_tool(point, family_calls(outcome))
    return LabError(f'crash_at="{point.text}" was never reached{hint}; the execution is {_described(outcome)}')


def family_calls(outcome: Outcome) -> list[ToolCall]:
    return [*outcome.calls, *(call for child in outcome.children for call in family_calls(child))]


def _about_tool(point: Point, calls: list[ToolCall]) -> str:
    meant = [call for call in calls if point.tool in (call.tool, call.path)]
    if meant:
        returned = sum(call.ended == "returned" for call in meant)
        return f"; calls of {point.tool}: {len(meant)}, of which returned: {returned}"
    called = list(dict.fromkeys(name for call in calls for name in (call.tool, call.path)))
    return did_you_mean(point.tool, called) or f"; called were: {', '.join(called) or 'no tools'}"


def _about_step(moment: Moment, outcome: Outcome) -> str:
    """An event tells of a step by its path, which in a plan is not the name of its tool."""
    steps = _family_steps(outcome)
    if not moment.path or moment.path in steps:
        return ""
    of_tool = [path for path, tool in steps.items() if tool == moment.path]
    if of_tool:
        return f"; {moment.path} is a tool, and an event tells of a step: {', '.join(of_tool)}"
    return did_you_mean(moment.path, steps) or f"; there were the steps {', '.join(steps) or '(none)'}"


def _family_steps(outcome: Outcome) -> dict[str, str]:
    steps = {path: str(step.get("tool")) for path, step in outcome.steps.items()}
    for child in outcome.children:
        steps |= _family_steps(child)
    return steps


def _described(outcome: Outcome) -> str:
    doubt = next((request["path"] for request in outcome.requests if request["kind"] == "doubt"), None)
    if doubt is None:
        return outcome.explained()
    return f'{outcome.explained()}; settle it with answers={{"{doubt}": "again"}}, or with doubts="look"'
