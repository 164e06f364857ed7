"""Reading one list of steps: their order, their graph, and each step with its place in it.

The list is read twice over: first ids and needs, because expressions may name any step and must know which have ended;
then everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.expressions import Condition, Expressions, Template
from holdfast.core.plan.fields import Fields, Problems
from holdfast.core.plan.graph import Graph
from holdfast.core.plan.model import (
    EMPTY,
    ID_CHARS_MAX,
    NESTING_MAX,
    NO_DEFAULTS,
    NOTHING,
    PARALLEL_MAX,
    STEPS_MAX,
    ForEach,
    PlanStep,
    PlanStepKind,
    StepDefaults,
)
from holdfast.core.plan.parse_action import ActionReader, ToolCatalog, read_on_error
from holdfast.core.plan.scope import UNNAMED, Scope

_ID = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_IDS = frozenset({"in", "true", "false", "null"})  # words of the expression language

COMMON_KEYS = ("id", "title", "needs", "when", "for_each", "key", "max_parallel", "critical", "optional", "on_error")
_OF_TOOL = (
    "tool", "with", "fallback", "timeout", "retry", "cache", "effect", "in_doubt", "approval", "resources",
    "undoes",
)  # fmt: skip
KEYS_OF: dict[PlanStepKind, tuple[str, ...]] = {
    "tool": _OF_TOOL,
    "plan": ("steps", "output"),
    "wait": ("wait",),
    "child": ("start", "with"),
    "approval": ("approval",),
}
KIND_OF: dict[str, PlanStepKind] = {"tool": "tool", "steps": "plan", "wait": "wait", "start": "child"}
STEP_KEYS = (*COMMON_KEYS, *dict.fromkeys(key for keys in KEYS_OF.values() for key in keys))


class StepsReader:
    def __init__(
        self,
        expressions: Expressions,
        tools: ToolCatalog | None,
        programs: Callable[[str], bool] | None,
        problems: Problems,
        defaults: StepDefaults = NO_DEFAULTS,
    ) -> None:
        self._expressions = expressions
        self._problems = problems
        self._defaults = defaults
        self._doing = ActionReader(tools, programs, problems, self.template, defaults)

    def template(self, value: Any, place: str, scope: Scope) -> Template:
        template = Template.compile(value, self._expressions, scope.names, place, self._problems)
        scope.check(template, self._problems)
        return template

    def read(
        self,
        value: Any,
        place: str,
        scope: Scope,
        *,
        existing: Sequence[PlanStep] = (),
        taken: frozenset[str] = frozenset(),
    ) -> tuple[tuple[PlanStep, ...], Scope]:
        """The new steps, and the scope of what comes after the list. `existing` steps are in the same list already."""
        needs: dict[str, Sequence[str]] = {step.id: step.needs for step in existing}
        entries = self._identify(value, place, scope, set(needs) | taken)
        known = [*needs, *entries]
        previous = existing[-1].id if existing else ""
        for step_id, fields in entries.items():
            needs[step_id] = self._needs(fields, previous, known, scope)
            previous = step_id
        graph = Graph(needs)
        for cycle in graph.cycles:
            self._problems.note(place, f"cycle: {' → '.join(cycle)} (each needs the next)")
        here = scope.inside(graph)
        per_item = here.having("item", "index")
        steps = [
            self._step(step_id, fields, tuple(needs[step_id]), here.at(step_id), per_item.at(step_id))
            for step_id, fields in entries.items()
        ]
        return tuple(steps), here

    # ---- first pass: ids and needs ------------------------------------------------------------------------------

    def _identify(self, value: Any, place: str, scope: Scope, taken: set[str]) -> dict[str, Fields]:
        if not isinstance(value, list) or not value:
            self._problems.note(place, f"expected a list of steps, got {describe_value(value)}")
            return {}
        if len(scope.levels) > NESTING_MAX:
            self._problems.note(place, f"plans are nested more than {NESTING_MAX} levels deep")
            return {}
        items = cast("list[Any]", value)
        if len(items) + len(taken) > STEPS_MAX:
            self._problems.note(place, f"a list holds at most {STEPS_MAX} steps; use for_each for more of the same")
            return {}
        found: dict[str, Fields] = {}
        for index, item in enumerate(items):
            at = f"{place}[{index}]"
            if not isinstance(item, dict):
                self._problems.note(at, f"expected a step, which is a map with an id, got {describe_value(item)}")
                continue
            fields = Fields(cast("dict[str, Any]", item), at, self._problems, STEP_KEYS)
            found[self._id(fields, scope, taken) or f"{UNNAMED}{index}"] = fields
        return found

    def _id(self, fields: Fields, scope: Scope, taken: set[str]) -> str:
        value = fields.get("id")
        if "id" not in fields:
            self._problems.note(fields.place, f"missing id; add one, such as id: {_proposed_id(fields.values)}")
        elif not isinstance(value, str) or not _ID.fullmatch(value) or len(value) > ID_CHARS_MAX:
            proposed = _as_id(value) if isinstance(value, str) else ""
            hint = f"; for example {quoted(proposed)}" if proposed else ""
            if isinstance(value, bool):
                hint = '; YAML reads yes, no, on, off, true and false as truth values: put the id in quotes, as "yes"'
            fields.expected("id", f"lower-case letters, digits and _ (at most {ID_CHARS_MAX})")
            if hint:
                self._problems[-1] = self._problems[-1]._replace(message=self._problems[-1].message + hint)
        elif value in RESERVED_IDS:
            fields.note("id", f"{quoted(value)} is a word of the expression language; choose another id")
        elif value in taken:
            fields.note("id", f"another step is already called {quoted(value)}; ids must differ")
        elif scope.has_step(value):
            fields.note("id", f"a step outside this list is already called {quoted(value)}; ids must differ")
        else:
            taken.add(value)
            return value
        return ""

    def _needs(self, fields: Fields, previous: str, known: Sequence[str], scope: Scope) -> tuple[str, ...]:
        value = fields.get("needs")
        if "needs" not in fields:
            return (previous,) if previous else ()
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            fields.expected("needs", "the id of a step, or a list of ids")
            return ()
        among = set(known)
        found: dict[str, None] = {}
        for index, need in enumerate(cast("list[Any]", value)):
            at = fields.at("needs") + (f"[{index}]" if isinstance(fields.get("needs"), list) else "")
            if isinstance(need, str) and need in among and not need.startswith(UNNAMED):
                found[need] = None
            elif not isinstance(need, str):
                self._problems.note(at, f"expected the id of a step, got {describe_value(need)}")
            elif scope.has_step(need):
                self._problems.note(at, f"{quoted(need)} is in another list; needs may only name steps beside this one")
            else:
                near = did_you_mean(need, (name for name in known if not name.startswith(UNNAMED)))
                self._problems.note(at, f"no step called {quoted(need)}{near}")
        return tuple(found)

    # ---- second pass: everything else ---------------------------------------------------------------------------

    def _step(self, step_id: str, fields: Fields, needs: tuple[str, ...], here: Scope, per_item: Scope) -> PlanStep:
        kind = self._kind(fields)
        repeated = "for_each" in fields
        inner = per_item if repeated else here
        optional = fields.truth("optional", False)
        common: dict[str, Any] = {
            "id": step_id,
            "needs": needs,
            "title": self.template(fields.text("title"), fields.at("title"), inner) if "title" in fields else NOTHING,
            "when": self._when(fields, here),
            "for_each": self._for_each(fields, here, per_item),
            "optional": optional,
            "critical": fields.truth("critical", self._defaults.critical and not optional),
            "on_error": read_on_error(fields) or self._defaults.on_error,
        }
        match kind:
            case "tool":
                return PlanStep(kind=kind, **common, **self._doing.tool(fields, inner, optional))
            case "plan":
                return PlanStep(kind=kind, **common, **self._nested(fields, inner))
            case "wait":
                return PlanStep(kind=kind, **common, wait=self._doing.wait(fields, inner))
            case "child":
                return PlanStep(kind=kind, **common, **self._doing.child(fields, inner))
            case _:
                return PlanStep(kind="approval", **common, approval=self._doing.approval(fields, inner))

    def _kind(self, fields: Fields) -> PlanStepKind | None:
        present = [key for key in KIND_OF if key in fields]
        if len(present) > 1:
            both = " and ".join(map(quoted, present))
            self._problems.note(fields.place, f"has {both}; a step does one thing, so make them separate steps")
            return KIND_OF[present[0]]
        if not present and fields.values.get("approval", False) is False:
            message = "says nothing to do; give it one of: tool, steps, wait, start, approval"
            self._problems.note(fields.place, message)
            return None
        kind = KIND_OF[present[0]] if present else "approval"
        doing = present[0] if present else "approval"
        allowed = (*COMMON_KEYS, *KEYS_OF[kind])
        for key in fields.values:
            if key in STEP_KEYS and key not in allowed:
                owners = [owner for owner, of in KIND_OF.items() if key in KEYS_OF[of]]
                fields.note(key, f"goes with {' or '.join(map(quoted, owners))}, and this step has {quoted(doing)}")
        for key in ("key", "max_parallel"):
            if key in fields and "for_each" not in fields:
                fields.note(key, 'goes with "for_each", which this step does not have')
        return kind

    def _when(self, fields: Fields, scope: Scope) -> Condition | None:
        if "when" not in fields:
            return None
        at = fields.at("when")
        condition = Condition.compile(fields.get("when"), self._expressions, scope.names, at, self._problems)
        if condition is not None:
            scope.check(condition, self._problems)
        return condition

    def _for_each(self, fields: Fields, here: Scope, per_item: Scope) -> ForEach | None:
        if "for_each" not in fields:
            return None
        value = fields.get("for_each")
        items = self.template(value, fields.at("for_each"), here)
        if not isinstance(value, list) and not (isinstance(value, str) and "${{" in value):
            fields.expected("for_each", "a list, or an expression that gives one such as ${{ inputs.urls }}")
        key = self.template(fields.text("key"), fields.at("key"), per_item) if "key" in fields else None
        if key is not None and not key.dynamic:
            fields.note("key", "expected an expression that differs for each item, such as ${{ item.id }}")
        parallel = fields.whole("max_parallel", self._defaults.parallel, 1, PARALLEL_MAX)
        return ForEach(items=items, key=key, parallel=parallel)

    def _nested(self, fields: Fields, scope: Scope) -> dict[str, Any]:
        steps, after = self.read(fields.get("steps"), fields.at("steps"), scope)
        output = self.template(fields.get("output"), fields.at("output"), after) if "output" in fields else None
        return {"steps": steps, "output": output, "arguments": EMPTY}


def _proposed_id(values: Mapping[str, Any]) -> str:
    for key in ("tool", "start", "title"):
        value = values.get(key)
        if isinstance(value, str) and (proposed := _as_id(value.rsplit(".", 1)[-1] if key == "tool" else value)):
            return proposed
    return "first_step"


def _as_id(text: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()[:ID_CHARS_MAX]).strip("_")
    return words if _ID.fullmatch(words) else ""
