"""What a program asks for, read from its own text: the checks' own understanding of plans and scripts.

Nothing of the engine's reader, schedule or fold is used here. What the random programs cannot say is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from holdfast.core import events as ev
from proof.simulator.witness import Story

Part = Literal["steps", "on_failure", "finally"]
RETRIES = 3  # for what is worth another try when nobody wrote anything
_ITEM = re.compile(r"\[[^\]]*\]$")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One step as its author wrote it; the path of a `for_each` is that of the whole, not of an item."""

    path: str
    part: Part = "steps"
    parent: str = ""
    needs: tuple[str, ...] = ()
    tool: str = ""
    retries: int | None = None  # None: nothing was written
    critical: bool = True
    approval: bool = False
    each: bool = False
    wait_s: float | None = None


class Wish:
    """All that one execution's program asks for."""

    def __init__(self, story: Story) -> None:
        program = story.created.program
        self.is_plan = program.kind == "plan"
        self.text: Any = msgspec.json.decode(program.source if self.is_plan else story.created.inputs)
        self.extended: list[str] = []
        found = list(_plan(self.text)) if self.is_plan else list(_script(self.text.get("script", []), ""))
        if self.is_plan:
            for _, event in story.events(ev.PlanExtended):
                for step in msgspec.json.decode(event.steps):
                    self.extended.append(step["id"])
                    found.append(_wanted(step, step["id"], "steps", "", ()))
        self.steps: dict[str, Wanted] = {wanted.path: wanted for wanted in found}

    def of(self, path: str) -> Wanted | None:
        """The step at this path, or the `for_each` that it is an item of."""
        return self.steps.get(path) or (self.steps.get(_ITEM.sub("", path)) if self.is_plan else None)


def _plan(plan: dict[str, Any]) -> Iterator[Wanted]:
    parts: tuple[Part, ...] = ("steps", "on_failure", "finally")
    for part in parts:
        yield from _list(plan.get(part, []), part, "")


def _list(steps: list[dict[str, Any]], part: Part, parent: str) -> Iterator[Wanted]:
    prefix = f"{parent}/" if parent else ""
    before: tuple[str, ...] = ()
    for step in steps:
        path = prefix + step["id"]
        needs = tuple(prefix + need for need in step["needs"]) if "needs" in step else before
        yield _wanted(step, path, part, parent, needs)
        yield from _list(step.get("steps", []), part, path)
        before = (path,)


def _wanted(step: dict[str, Any], path: str, part: Part, parent: str, needs: tuple[str, ...]) -> Wanted:
    wait = step.get("wait")
    return Wanted(
        path=path,
        part=part,
        parent=parent,
        needs=needs,
        tool=step.get("tool", ""),
        retries=step["retry"]["max"] if "retry" in step else None,
        critical=step.get("critical", True),
        approval="approval" in step,
        each="for_each" in step,
        wait_s=wait if isinstance(wait, int | float) else None,
    )


def _script(script: list[list[Any]], scope: str) -> Iterator[Wanted]:
    gathers: Counter[str] = Counter()
    for number, (kind, *rest) in enumerate(script):
        path = f"{scope}{kind}{number}"
        match kind:
            case "call" | "behind":
                yield Wanted(path=path, tool=rest[0], retries=rest[1] or None)
            case "sleep":
                yield Wanted(path=path, wait_s=rest[0])
            case "try":
                yield from _script(rest[0], f"{path}/")
            case "gather":
                gathers[scope] += 1
                name = f"{scope}gather" if gathers[scope] == 1 else f"{scope}gather~{gathers[scope]}"
                for place, inner in enumerate(rest):
                    yield from _script(inner, f"{name}[{place}]/")
            case "race":
                yield from _script(rest, f"{path}/")
            case "beside":
                for place, operation in enumerate(rest[0]):
                    yield from _script([operation], f"{path}/handler{place}/")
            case _:
                pass
