"""What is allowed in a plan and probably not meant, and what this machine lacks to run it.

Few and certain: each finding names something that has no effect, never happens, or will not be there. Mistakes are the
reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.errors import InvalidCall, Problem
from holdfast.core.expressions import references, split_template
from holdfast.core.plan.model import Plan, PlanStep, walk
from holdfast.core.resources import beyond_reach
from holdfast.programs.plan_types import unsafe_reads
from holdfast.tools.registry import Registry
from holdfast.tools.secrets.vault import Vault
from holdfast.tools.tool import Tool

_UNREACHED = (
    "this step is once, so its fallback runs only after a failure without effect, not after an exit code or the like; "
    "if it may run after any failure, write effect: read or effect: idempotent"
)


def lint(document: Any, plan: Plan, registry: Registry) -> list[Problem]:
    """Every finding with its place, in the order of the document."""
    found = [Problem(f"inputs.{name}", "nothing uses this input") for name in _unused(document, plan)]
    texts = list(_expressions(document))
    for place, step in walk(plan):
        said = [*_of_step(step, plan, registry), *_of_items(step, texts)]
        found += [Problem(f"{place}.{key}" if key else place, message) for key, message in said]
    return [*found, *unsafe_reads(plan)]


def unmet(plan: Plan, registry: Registry, secrets: Vault | None = None) -> list[Problem]:
    """Prerequisites of steps that this machine does not meet; optional steps may do without."""
    lacking = [
        Problem(f"{place}.with", str(trouble))
        for place, step in walk(plan)
        if secrets is not None and not step.optional
        for name in sorted(step.secrets)
        if (trouble := secrets.missing(name))
    ]
    return lacking + [
        Problem(f"{place}.tool", str(trouble))
        for place, step in walk(plan)
        if step.tool and not step.optional
        for trouble in registry.missing(step.tool)
    ]


def _of_step(step: PlanStep, plan: Plan, registry: Registry) -> Iterator[tuple[str, str]]:
    if step.when is not None and not step.when.uses and _never(step):
        yield "when", "is always false, so this step never runs"
    if step.approval is not None and step.approval.expires_s == 0:
        yield "approval", "expires at once, and silence is a no"
    if step.kind != "tool":
        return
    if step.tool not in registry.names():  # only an optional step comes here without its tool
        near = did_you_mean(step.tool, registry.names())
        yield "tool", f"no tool called {quoted(step.tool)}{near or ';'} this step will be left out"
        return
    yield from _of_tool(step, plan, registry.get(step.tool))
    yield from _beyond_reach(step, plan, registry.get(step.tool))
    given: Any = step.arguments.source
    if isinstance(given, dict):
        later = step.arguments.dynamic_keys
        known = {name: value for name, value in cast("dict[str, Any]", given).items() if name not in later}
        yield from ((f"with.{name}", message) for name, message in registry.suspect(step.tool, known))


def _of_items(step: PlanStep, texts: list[str]) -> Iterator[tuple[str, str]]:
    """A list with gaps, read by an expression that does not know of them."""
    if step.for_each is None or step.critical:
        return
    output = re.compile(rf"\bsteps\.{step.id}\.output\b")
    if any(output.search(text) and "null" not in text for text in texts):
        name = f"steps.{step.id}.output"
        said = f"an item that fails is null in {name}; leave those out where it is read: {name}.filter(o, o != null)"
        yield "for_each", said


def _of_tool(step: PlanStep, plan: Plan, tool: Tool[..., Any]) -> Iterator[tuple[str, str]]:
    effect = step.policy.effect or tool.effect
    if step.policy.cache_s and effect != "read":
        yield "cache", f"only read steps are cached, and this one is {effect}"
    elif step.policy.cache_s and step.secrets:
        yield "cache", "a call that uses a secret is never answered from the cache"
    if step.fallbacks and effect == "once":
        yield "fallback", _UNREACHED
    if step.policy.in_doubt == plan.defaults.in_doubt:
        return  # said once for all steps, or not at all
    if step.policy.in_doubt is not None and effect != "once":
        yield "in_doubt", f"only once steps can be in doubt, and this one is {effect}"
    elif step.policy.in_doubt == "verify" and not tool.can_verify:
        yield "in_doubt", f"{tool.name} has no check of its own; a person will be asked"


def _beyond_reach(step: PlanStep, plan: Plan, tool: Tool[..., Any]) -> Iterator[tuple[str, str]]:
    """Limits that hold nobody. A plan that limits all its steps says nothing about those of Holdfast's own tools, which
    keep limits of their own."""
    own = step.policy.resources
    said = [one for one in (own, plan.resources, plan.resources_total) if one is not None]
    is_held = tool.resources is not None or tool.isolated or tool.can_isolate
    if said and not is_held and (own is not None or tool.is_theirs):
        yield "resources" if own is not None else "tool", f"{tool.name} {beyond_reach(said)}"


def _never(step: PlanStep) -> bool:
    assert step.when is not None
    try:
        return not step.when.holds({})
    except InvalidCall:
        return False  # it says so itself when it runs


def _unused(document: Any, plan: Plan) -> list[str]:
    used = {name for text in _expressions(document) for name in references(text)}
    if "inputs" in used:  # handed on as a whole
        return []
    return [name for name in plan.inputs if f"inputs.{name}" not in used]


def _expressions(value: Any, key: str = "") -> Iterator[str]:
    """Every expression in a document; a condition is one even without its braces."""
    match value:
        case str() if "${{" in value:
            pieces = split_template(value)
            yield from (text for is_expression, text in pieces if is_expression) if isinstance(pieces, list) else ()
        case str() if key == "when":
            yield value
        case dict():
            for name, item in cast("dict[str, Any]", value).items():
                yield from _expressions(item, name)
        case list():
            for item in cast("list[Any]", value):
                yield from _expressions(item)
        case _:
            return
