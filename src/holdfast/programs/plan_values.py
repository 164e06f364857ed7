"""What a plan says about one step, worked out with the values of the moment: arguments, titles, keys, approvals."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.core import events as ev
from holdfast.core.errors import ToolError
from holdfast.core.expressions import as_text
from holdfast.core.failure import Failure
from holdfast.core.plan.model import ForEach, PlanStep
from holdfast.core.policy import Approval
from holdfast.core.secret_refs import marked
from holdfast.engine.program import Outcome, Planned

Values = ChainMap[str, Any]
KEY_CHARS_MAX = 200
_NO_FAILURE = {"category": "", "message": "", "status": 0}


def arguments_of(
    step: PlanStep, values: Values, given: Mapping[str, Any] | None
) -> tuple[Any, list[Any], tuple[str, ...]]:
    """The arguments of a step's tool and of its fallbacks, and the secrets they refer to."""
    try:
        arguments = step.arguments.render(values) if given is None else given
    except ToolError as error:
        known, unknown = step.arguments.render_known(values)
        raise ArgumentsUnknown(error, marked(known, set()), unknown) from error
    others = [other.arguments.render(values) if other.arguments else None for other in step.fallbacks]
    if not step.secrets:
        return arguments, others, ()
    names: set[str] = set()
    return marked(arguments, names), marked(others, names), tuple(sorted(names))


class StepProblem(ToolError):
    """What the plan says cannot be done with these values."""

    category = "logic"
    without_effect = True


class ArgumentsUnknown(StepProblem):
    """Some arguments of a tool cannot be worked out."""

    def __init__(self, error: ToolError, known: dict[str, Any], unknown: Mapping[str, ToolError]) -> None:
        self.known = known
        self.missing = frozenset(unknown)
        super().__init__("\n".join(f"{name}: {why}" for name, why in unknown.items()) or str(error))


def outcome_seen(outcome: Outcome) -> dict[str, Any]:
    """A step as expressions see it. `failure` can be asked of every step, so that no condition needs another one."""
    failure = outcome.failure
    error = failure.message if failure is not None else None
    return {
        "output": outcome.value(),
        "status": outcome.status,
        "error": error,
        "failure": _NO_FAILURE if failure is None else failure_seen(failure),
    }


def failure_seen(failure: Failure) -> dict[str, Any]:
    return {"category": failure.category, "message": failure.message, "status": failure.status}


def planned(step: PlanStep, *, is_item: bool = False) -> Planned:
    """What a step that is left out would have been."""
    kind: ev.StepKind = "for_each" if step.for_each is not None and not is_item else step.kind
    return Planned(step.tool or kind, kind, step.critical)


def title_of(step: PlanStep, values: Values) -> str:
    try:
        title = step.title.render(values)
    except ToolError:
        title = step.title.source  # for people only, who can read what it was to be
    return as_text(title) if title is not None else ""


def approval_of(step: PlanStep, values: Values) -> Approval:
    assert step.approval is not None
    message = step.approval.message.render(values)
    return Approval(message=as_text(message) if message is not None else "", expires_s=step.approval.expires_s)


def key_of(each: ForEach, values: Values, item: Any, index: int) -> str:
    if each.key is None:
        return str(index)
    key = as_text(each.key.render(values.new_child({"item": item, "index": index})))
    if len(key) > KEY_CHARS_MAX:
        raise StepProblem(f"for_each: the key of item {index} has {len(key):,} characters, {KEY_CHARS_MAX} are allowed")
    return quote(key, safe="-_.:@ +,=") or str(index)
