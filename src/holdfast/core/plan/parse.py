"""A YAML, JSON or Python document → a `Plan`, or every mistake in it at once, each with its place.

Whatever the document holds, reading ends with a plan or with `PlanInvalid`, and nothing is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast, get_args

from holdfast.core.budget import WARN_AT, Budget, read_share, read_usd
from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import InputInvalid, PlanInvalid
from holdfast.core.events import OnTimeout
from holdfast.core.expressions import Expressions, Template
from holdfast.core.inputs import INPUT_TYPES, InputSpec, InputType, mismatch
from holdfast.core.labels import LABELS_MAX, name_problem
from holdfast.core.plan.checkpoints import read_checkpoints
from holdfast.core.plan.fields import Fields, Problems, TooMany, plain_json
from holdfast.core.plan.graph import Graph
from holdfast.core.plan.model import LIMIT_MAX, NOTHING, PARALLEL_MAX, Plan, PlanConcurrency, PlanStep
from holdfast.core.plan.parse_action import DEFAULT_KEYS, ToolCatalog, read_defaults
from holdfast.core.plan.parse_steps import StepsReader
from holdfast.core.plan.resources import read_plan_resources
from holdfast.core.plan.scope import Scope

__all__ = ["ToolCatalog", "read_extension", "read_plan"]

PLAN_KEYS = (
    "name", "title", "labels", "inputs", "steps", "on_failure", "finally", "output", "concurrency", "pause_timeout",
    "on_pause_timeout", "budget", "checkpoint", "resources", "max_parallel", "defaults",
)  # fmt: skip
T = TypeVar("T")
NAME_CHARS_MAX = 200


def read_plan(
    source: object,
    *,
    expressions: Expressions,
    tools: ToolCatalog | None = None,
    programs: Callable[[str], bool] | None = None,
    secrets: frozenset[str] | None = None,
    name: str = "",
) -> Plan:
    """`name` is what the plan is called when it does not say so itself. `programs` says whether a child is known.

    `secrets` are those that are declared; without them, as when a recorded plan is reopened, none is missed.
    """
    problems = Problems()
    plan: Plan | None = None
    try:
        document = plain_json(source, problems)
        if not isinstance(document, dict):
            problems.note("", f"expected a map with a name and steps, got {describe_value(document)}")
        else:
            fields = Fields(cast("dict[str, Any]", document), "", problems, PLAN_KEYS)
            each, total = read_plan_resources(fields)
            said = ", ".join(DEFAULT_KEYS)
            defaults = read_defaults(fields.fields("defaults", DEFAULT_KEYS, f"a map of what steps may say: {said}"))
            steps = StepsReader(expressions, tools, programs, problems, defaults)
            plan = _Reader(fields, steps, secrets).plan(name)
            plan = replace(plan, resources=each, resources_total=total, defaults=defaults)
    except TooMany:
        pass
    if plan is None or problems:
        raise PlanInvalid(problems.in_reading_order(), name)
    return plan


def read_extension(
    source: object,
    plan: Plan,
    *,
    expressions: Expressions,
    tools: ToolCatalog | None = None,
    programs: Callable[[str], bool] | None = None,
    secrets: frozenset[str] | None = None,
) -> tuple[PlanStep, ...]:
    """New steps for the end of a plan's list. The first needs the plan's last step unless it says otherwise."""
    problems = Problems()
    steps: tuple[PlanStep, ...] = ()
    taken = frozenset(step.id for step in (*plan.on_failure, *plan.finally_))
    try:
        document = plain_json(source, problems)
        scope = Scope(frozenset(plan.inputs), secrets=secrets)
        reader = StepsReader(expressions, tools, programs, problems, plan.defaults)
        steps, _ = reader.read(document, "steps", scope, existing=plan.steps, taken=taken)
    except TooMany:
        pass
    if problems:
        raise PlanInvalid(problems.in_reading_order(), f"the extension of {plan.name}")
    return steps


class _Reader:
    def __init__(self, fields: Fields, steps: StepsReader, secrets: frozenset[str] | None) -> None:
        self._fields = fields
        self._secrets = secrets
        self._problems = fields.problems
        self._steps = steps

    def plan(self, name: str) -> Plan:
        fields = self._fields
        inputs = self._inputs()
        scope = Scope(frozenset(inputs), secrets=self._secrets)
        if "steps" in fields:
            steps, after = self._steps.read(fields.get("steps"), "steps", scope)
        else:
            self._problems.note("steps", "missing; a plan is a list of steps")
            steps, after = (), scope.inside(Graph({}))
        ending = after.having("failure")
        on_failure = self._ending_steps("on_failure", ending, ())
        return Plan(
            name=self._name(name),
            title=self._template("title", scope, text=True) or NOTHING,
            labels=self._labels(scope),
            inputs=inputs,
            steps=steps,
            on_failure=on_failure,
            finally_=self._ending_steps("finally", ending, on_failure),
            output=self._template("output", after),
            concurrency=self._concurrency(scope),
            pause_timeout_s=fields.duration("pause_timeout"),
            on_pause_timeout=self._on_pause_timeout(),
            budget=self._budget(),
            checkpoint=read_checkpoints(fields),
            parallel=fields.whole("max_parallel", 0, 1, PARALLEL_MAX) if "max_parallel" in fields else 0,
        )

    def _name(self, default: str) -> str:
        name = self._fields.text("name") or default
        if not name and "name" not in self._fields:
            self._problems.note("name", "missing; say what the plan is called")
        if len(name) > NAME_CHARS_MAX:
            self._problems.note("name", f"expected at most {NAME_CHARS_MAX} characters, got {len(name)}")
        return name

    def _template(self, key: str, scope: Scope, *, text: bool = False) -> Template | None:
        if key not in self._fields:
            return None
        value = self._fields.text(key) if text else self._fields.get(key)
        return self._steps.template(value, key, scope)

    def _ending_steps(self, key: str, scope: Scope, others: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
        """Steps that run after the plan's own, and so may read all of those."""
        if key not in self._fields or self._fields.get(key) == []:
            return ()
        steps, _ = self._steps.read(self._fields.get(key), key, scope, taken=frozenset(step.id for step in others))
        return steps

    def _labels(self, scope: Scope) -> dict[str, Template]:
        value = self._fields.get("labels")
        if "labels" not in self._fields:
            return {}
        if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) > LABELS_MAX:
            self._fields.expected("labels", f"a map of at most {LABELS_MAX} names and values")
            return {}
        labels = Fields(cast("dict[str, Any]", value), "labels", self._problems, cast("dict[str, Any]", value))
        for key, item in labels.values.items():
            if problem := name_problem(key):
                self._problems.note("labels", problem)
            if not isinstance(item, str | int | float):
                labels.expected(key, "a text")
        return {key: self._steps.template(item, labels.at(key), scope) for key, item in labels.values.items()}

    def _concurrency(self, scope: Scope) -> PlanConcurrency | None:
        inner = self._fields.fields("concurrency", ("key", "limit"), "a map such as {key: reports, limit: 2}")
        if inner is None:
            return None
        if "key" not in inner:
            inner.note("key", "missing; executions with the same key share the limit")
        key = self._steps.template(inner.text("key"), inner.at("key"), scope)
        return PlanConcurrency(key=key, limit=inner.whole("limit", 1, 1, LIMIT_MAX))

    def _budget(self) -> Budget | None:
        if not isinstance(self._fields.get("budget"), dict):
            usd = self._read(self._fields, "budget", read_usd) if "budget" in self._fields else None
            return Budget(limit_micros=usd) if usd is not None else None
        inner = self._fields.fields("budget", ("usd", "warn_at"), "an amount")
        assert inner is not None
        if "usd" not in inner:
            inner.note("usd", "missing; say how many US dollars may be spent, such as 0.50")
        usd = self._read(inner, "usd", read_usd) if "usd" in inner else None
        warn_at = self._read(inner, "warn_at", read_share) if "warn_at" in inner else WARN_AT
        return Budget(limit_micros=usd, warn_at=warn_at) if usd is not None and warn_at is not None else None

    def _read(self, fields: Fields, key: str, read: Callable[[object], T]) -> T | None:
        try:
            return read(fields.get(key))
        except InputInvalid as error:
            fields.note(key, str(error))
            return None

    def _on_pause_timeout(self) -> OnTimeout:
        options: tuple[OnTimeout, ...] = get_args(OnTimeout)
        chosen: OnTimeout | None = self._fields.choice("on_pause_timeout", options)
        return chosen or "stop"

    def _inputs(self) -> dict[str, InputSpec]:
        value = self._fields.get("inputs")
        if "inputs" not in self._fields:
            return {}
        if not isinstance(value, dict):
            self._fields.expected("inputs", "a map of names and types, such as {topic: string}")
            return {}
        names = cast("dict[str, Any]", value)
        inputs = Fields(names, "inputs", self._problems, names)
        return {name: self._input(inputs, name) for name in names}

    def _input(self, inputs: Fields, name: str) -> InputSpec:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            inputs.note(name, "expected a name of letters, digits and _, so that expressions can use it")
        if not isinstance(inputs.get(name), dict):
            return InputSpec(type=self._type(inputs, name))
        inner = inputs.fields(name, ("type", "default", "description", "required"), "a type")
        assert inner is not None
        has_default = "default" in inner
        required = inner.truth("required", not has_default)
        spec = InputSpec(
            type=self._type(inner, "type") if "type" in inner else "any",
            required=required,
            default=inner.get("default"),
            description=inner.text("description"),
        )
        if has_default and required:
            inner.note("required", "an input with a default is not required; leave one of them out")
        elif has_default and (message := mismatch(spec, spec.default)):
            inner.note("default", message)
        return spec

    def _type(self, fields: Fields, key: str) -> InputType:
        value = fields.get(key)
        if isinstance(value, str) and value in INPUT_TYPES:
            return cast("InputType", value)
        hint = did_you_mean(value, INPUT_TYPES) if isinstance(value, str) else ""
        fields.note(key, f"expected one of {', '.join(map(quoted, INPUT_TYPES))}, got {describe_value(value)}{hint}")
        return "any"
