"""`holdfast graph`: a plan as a tree for the terminal, or as Mermaid text; with its statuses if it has run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.cli.output.format import mark, paint, value, writable
from holdfast.core.expressions import Template
from holdfast.core.plan.graph import Graph
from holdfast.core.plan.model import Plan, PlanStep

SAID_CHARS_MAX = 60  # of a condition, a list or a message; the plan itself holds all of it
_COLOURS = {
    "completed": "#cfe8cf",
    "failed": "#f2c4c4",
    "in_doubt": "#f2c4c4",
    "running": "#cde4f2",
    "waiting": "#f4e6b8",
}
Statuses = Mapping[str, str]  # by path


def wired(plan: Plan, statuses: Statuses | None = None) -> dict[str, Any]:
    """The same for programs: each list of steps in the order in which they can begin, with paths and statuses."""

    def of(steps: Sequence[PlanStep], prefix: str = "") -> list[dict[str, Any]]:
        return [
            {
                "id": step.id,
                "path": prefix + step.id,
                "kind": step.kind,
                "does": _what(step),
                "needs": list(step.needs),
                "marks": list(_marks(step)),
                **({} if statuses is None else {"status": statuses.get(prefix + step.id, "pending")}),
                "steps": of(step.steps, f"{prefix}{step.id}/"),
            }
            for step in _ordered(steps)
        ]

    return {
        "name": plan.name,
        "steps": of(plan.steps),
        "on_failure": of(plan.on_failure),
        "finally": of(plan.finally_),
    }


# ---- the tree ----------------------------------------------------------------------------------------------------


def tree_lines(plan: Plan, statuses: Statuses | None = None) -> Iterator[str]:
    """Each list in the order in which its steps can begin; a step that needs just the one above it says nothing."""
    yield paint(plan.name, "bold")
    yield from _list_lines(plan.steps, "", "", statuses)
    for heading, steps in (("on failure", plan.on_failure), ("finally", plan.finally_)):
        if steps:
            yield paint(heading, "bold")
            yield from _list_lines(steps, "", "", statuses)


def _list_lines(steps: Sequence[PlanStep], prefix: str, indent: str, statuses: Statuses | None) -> Iterator[str]:
    ordered = _ordered(steps)
    for index, step in enumerate(ordered):
        last = index == len(ordered) - 1
        branch, rest = (writable("└─", "`-"), "   ") if last else (writable("├─", "|-"), writable("│  ", "|  "))
        status = _status(statuses, prefix + step.id)
        above = (ordered[index - 1].id,) if index else ()
        yield f"{indent}{branch} {status}{_line(step, above)}"
        yield from _list_lines(step.steps, f"{prefix}{step.id}/", indent + rest, statuses)


def _ordered(steps: Sequence[PlanStep]) -> list[PlanStep]:
    by_id = {step.id: step for step in steps}
    return [by_id[one] for _, one in Graph({step.id: step.needs for step in steps}).waves()]


def _status(statuses: Statuses | None, path: str) -> str:
    if statuses is None:
        return ""
    status = statuses.get(path, "pending")
    inside = (f"{path}/", f"{path}[")
    has_failures = status == "completed" and any(
        other.startswith(inside) for other, its in statuses.items() if its == "failed"
    )
    return f"{mark(status, has_failures=has_failures)} "


def _line(step: PlanStep, above: tuple[str, ...]) -> str:
    needs = "" if step.needs == above else f"  needs {', '.join(step.needs)}" if step.needs else "  needs nothing"
    return f"{paint(step.id, 'bold')}: {_what(step)}{needs}{''.join(f'  [{said}]' for said in _marks(step))}"


def _what(step: PlanStep) -> str:
    match step.kind:
        case "tool":
            return " or else ".join([step.tool, *(other.tool for other in step.fallbacks)])
        case "plan":
            return str(step.title.source or "steps")
        case "wait":
            return _waited(step)
        case "child":
            return f"start {step.start}"
        case "approval":
            return "approval"


def _waited(step: PlanStep) -> str:
    assert step.wait is not None
    if step.wait.event is not None:
        limit = f", at most {_said(step.wait.timeout)}" if step.wait.timeout is not None else ""
        return f"wait for the event {_said(step.wait.event)}{limit}"
    if step.wait.until is not None:
        return f"wait until {_said(step.wait.until)}"
    return f"wait {_said(step.wait.duration)}"


def _marks(step: PlanStep, *, with_condition: bool = True) -> Iterator[str]:
    """What decides whether, how often and with whose consent it runs."""
    if step.when is not None and with_condition:
        yield f"when {_cut(step.when.text)}"
    if step.for_each is not None:
        yield f"for each of {_said(step.for_each.items)}"
    if step.approval is not None:
        message = _said(step.approval.message) if step.approval.message.source else ""
        yield f"asks: {message}" if message else "asks a person"
    if step.optional:
        yield "optional"
    elif not step.critical:
        yield "not critical"


def _said(template: Template | None) -> str:
    if template is None:
        return ""
    text = value(template.source, SAID_CHARS_MAX)
    return re.sub(r"^\$\{\{\s*(.*?)\s*\}\}$", r"\1", text)


def _cut(text: str) -> str:
    return value(text, SAID_CHARS_MAX)


# ---- Mermaid -----------------------------------------------------------------------------------------------------


def mermaid_lines(plan: Plan, statuses: Statuses | None = None) -> Iterator[str]:
    """A flowchart: arrows for needs, a dashed box for each list within, diamonds for conditions."""
    yield "flowchart TD"
    drawing = _Mermaid(statuses)
    yield from drawing.steps(plan.steps, "", "  ")
    for name, heading, steps in (("on_failure", "on failure", plan.on_failure), ("finally", "finally", plan.finally_)):
        if steps:
            yield f'  subgraph {name}["{heading}"]'
            yield from drawing.steps(steps, "", "    ")
            yield "  end"
    yield from drawing.classes()


class _Mermaid:
    def __init__(self, statuses: Statuses | None) -> None:
        self._statuses = statuses
        self._shown: dict[str, list[str]] = {}  # nodes by status

    def steps(self, steps: Sequence[PlanStep], prefix: str, indent: str) -> Iterator[str]:
        ordered = _ordered(steps)
        for step in ordered:
            path = prefix + step.id
            node = _node(path)
            self._note(path, node)
            if step.steps:
                yield f"{indent}subgraph {node}[{_text(step)}]"
                yield from self.steps(step.steps, f"{path}/", indent + "  ")
                yield f"{indent}end"
            else:
                opening, closing = _shape(step)
                yield f"{indent}{node}{opening}{_text(step)}{closing}"
        for step in ordered:
            for need in step.needs:
                condition = f'|"{_escaped(_cut(step.when.text))}"|' if step.when is not None else ""
                yield f"{indent}{_node(prefix + need)} -->{condition} {_node(prefix + step.id)}"

    def classes(self) -> Iterator[str]:
        for status, nodes in self._shown.items():
            if status in _COLOURS:
                yield f"  classDef {status} fill:{_COLOURS[status]}"
                yield f"  class {','.join(nodes)} {status}"

    def _note(self, path: str, node: str) -> None:
        if self._statuses is not None:
            self._shown.setdefault(self._statuses.get(path, "pending"), []).append(node)


def _node(path: str) -> str:
    """A path as Mermaid can name it; a step may be called like one of its own words, such as `end`."""
    return "s_" + path.replace("/", ".")


def _shape(step: PlanStep) -> tuple[str, str]:
    if step.kind == "approval" or step.approval is not None:
        return "{{", "}}"
    if step.kind == "wait":
        return "([", "])"
    return ("[[", "]]") if step.kind == "child" or step.for_each is not None else ("[", "]")


def _text(step: PlanStep) -> str:
    marks = _marks(step, with_condition=not step.needs)  # else it is on the arrow
    return '"' + "<br/>".join(_escaped(part) for part in (f"{step.id}: {_what(step)}", *marks)) + '"'


def _escaped(text: str) -> str:
    """Quotes and what Mermaid would take for HTML, an entity or a directive, as entities."""
    codes = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "%": "#37;"}
    return "".join(codes.get(character, character) for character in text)
