"""What a plan would do, seen before it does anything: order, tools, effects, and every argument that is known already.

Owns `run --dry-run`. Runs no tool and touches no journal: what depends on the output of a step stays the expression it
is written as.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.core.errors import ToolError
from holdfast.core.expressions import Expressions, Template, fill, references
from holdfast.core.plan.graph import Graph
from holdfast.core.plan.model import Plan, PlanApproval, PlanStep
from holdfast.core.policy import STEP_TIMEOUT_S, Approval
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool

ITEMS_MAX = 100  # of one for_each that are looked at one by one; the count says how many there are

Values = Mapping[str, Any]
Foreseen = dict[str, Any]


def foresee(plan: Plan, inputs: Values, registry: Registry, expressions: Expressions) -> Foreseen:
    """The whole plan as JSON values. `turn` numbers the steps: those of one turn may run at the same time."""
    seer = _Seer(registry, expressions)
    values: Values = {"inputs": inputs}
    return {
        "name": plan.name,
        "title": seer.known(plan.title, values) or "",
        "inputs": dict(inputs),
        "steps": seer.steps(plan.steps, "", values),
        "on_failure": seer.steps(plan.on_failure, "", values),
        "finally": seer.steps(plan.finally_, "", values),
        "output": seer.known(plan.output, values) if plan.output is not None else None,
    }


class _Seer:
    def __init__(self, registry: Registry, expressions: Expressions) -> None:
        self._registry = registry
        self._expressions = expressions

    def known(self, template: Template, values: Values) -> Any:
        return fill(template.source, self._expressions, values)

    def steps(self, steps: Sequence[PlanStep], prefix: str, values: Values) -> list[Foreseen]:
        by_id = {step.id: step for step in steps}
        graph = Graph({step.id: step.needs for step in steps})
        return [{"turn": turn, **self._step(by_id[one], prefix, values)} for turn, one in graph.waves()]

    def _step(self, step: PlanStep, prefix: str, values: Values) -> Foreseen:
        seen: Foreseen = {"path": prefix + step.id, "kind": step.kind, "needs": list(step.needs)}
        try:
            if step.when is not None:
                seen["when"] = step.when.text
                seen["runs"] = step.when.holds(values) if _is_known(step.when.text, values) else None
            if step.for_each is not None:
                return seen | self._items(step, prefix, values)
            return seen | self._doing(step, prefix + step.id, values)
        except ToolError as error:
            return seen | {"tool": step.tool, "effect": None, "problem": str(error)}

    def _items(self, step: PlanStep, prefix: str, values: Values) -> Foreseen:
        assert step.for_each is not None
        found = self.known(step.for_each.items, values)
        seen: Foreseen = {"max_parallel": step.for_each.parallel}
        if not isinstance(found, list):
            return seen | {"for_each": found, "items": None, **self._doing(step, prefix + step.id, values)}
        items = cast("list[Any]", found)
        per_item = [
            self._doing(step, f"{prefix}{step.id}[{index}]", {**values, "item": item, "index": index})
            for index, item in enumerate(items[:ITEMS_MAX])
        ]
        return seen | {"for_each": step.for_each.items.source, "items": len(items), "each": per_item}

    def _doing(self, step: PlanStep, path: str, values: Values) -> Foreseen:
        seen: Foreseen = {"critical": step.critical, "optional": step.optional}
        if title := self.known(step.title, values):
            seen["title"] = title
        match step.kind:
            case "tool":
                return seen | self._tool(step, values)
            case "plan":
                return seen | {"steps": self.steps(step.steps, f"{path}/", values)}
            case "wait":
                return seen | {"wait": self._wait(step, values)}
            case "child":
                return seen | {"start": step.start, "arguments": self.known(step.arguments, values)}
            case "approval":
                return seen | {"approval": self._approval(step.approval, values)}

    def _tool(self, step: PlanStep, values: Values) -> Foreseen:
        if step.tool not in self._registry.names():
            return {"tool": step.tool, "effect": None, "problem": f"no tool called {step.tool}: it would be left out"}
        tool = self._registry.get(step.tool)
        return {
            "tool": tool.name,
            "effect": step.policy.effect or tool.effect,
            "arguments": self.known(step.arguments, values),
            "timeout_s": step.policy.timeout_s or tool.timeout_s or STEP_TIMEOUT_S,
            "approval": self._approval(step.approval or tool.approval, values),
            "fallbacks": [
                {
                    "tool": other.tool,
                    "effect": step.policy.effect or self._effect(other.tool),
                    "arguments": self.known(other.arguments or step.arguments, values),
                }
                for other in step.fallbacks
            ]
            or [
                {
                    "tool": other,
                    "effect": step.policy.effect or self._effect(other),
                    "arguments": self.known(step.arguments, values),
                }
                for other in tool.fallbacks
            ],
        }

    def _effect(self, name: str) -> str | None:
        tool: Tool[..., Any] | None = self._registry.get(name) if name in self._registry.names() else None
        return tool.effect if tool is not None else None

    def _approval(self, approval: PlanApproval | Approval | None, values: Values) -> Foreseen | None:
        if approval is None:
            return None
        message = approval.message if isinstance(approval, Approval) else self.known(approval.message, values)
        return {"message": message or "", "expires_s": approval.expires_s}

    def _wait(self, step: PlanStep, values: Values) -> Foreseen:
        assert step.wait is not None
        parts = {
            "for": step.wait.duration,
            "until": step.wait.until,
            "event": step.wait.event,
            "timeout": step.wait.timeout,
        }
        return {name: self.known(part, values) for name, part in parts.items() if part is not None}


def _is_known(expression: str, values: Values) -> bool:
    """Whether nothing but `values` is named; names that a macro declares are none of the plan's."""
    return not any(name.partition(".")[0] in ("steps", "failure", "item", "index") for name in references(expression))
