"""What a plan may say, as data: the shape that `parse.py` makes of a YAML or JSON document.

A plan holds compiled templates and is never stored itself; the journal keeps the document it was read from. Nothing
here runs anything: `schedule.py` says what is ready, the plan program runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from holdfast.core.budget import Budget
from holdfast.core.events import OnTimeout
from holdfast.core.expressions import Condition, Template
from holdfast.core.inputs import InputSpec
from holdfast.core.policy import (
    APPROVAL_EXPIRES_S,
    DEFAULT_POLICY,
    FOR_EACH_PARALLEL,
    Checkpoints,
    DoubtPolicy,
    OnError,
    Retry,
    StepPolicy,
)
from holdfast.core.resources import Resources

PlanStepKind = Literal["tool", "plan", "wait", "approval", "child"]

STEPS_MAX = 10_000  # in one list; more of the same is what for_each is for
NESTING_MAX = 20  # plans within plans
PARALLEL_MAX = 1_000
RETRIES_MAX = 1_000
CACHE_S = 86400.0  # `cache: true`
LIMIT_MAX = 100_000  # executions at once under one concurrency key
ID_CHARS_MAX = 100

NOTHING = Template(None)
EMPTY = Template({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """One run of the step per item, with `item` and `index` set. `key` names the items; without it, the index does."""

    items: Template
    key: Template | None = None
    parallel: int = FOR_EACH_PARALLEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanApproval:
    """A person must agree: before the tool runs, or as a step of its own. The message renders to text."""

    message: Template = NOTHING
    expires_s: float = APPROVAL_EXPIRES_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFallback:
    """Another tool for the same step; `arguments` None means the step's own."""

    tool: str
    arguments: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSpec:
    """Exactly one of `duration`, `until` and `event`. They render to what core/durations.py reads, or to a name."""

    duration: Template | None = None
    until: Template | None = None
    event: Template | None = None
    timeout: Template | None = None  # of an event wait


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefaults:
    """What counts for each step that does not say otherwise."""

    critical: bool = True
    on_error: OnError = "ask"
    parallel: int = FOR_EACH_PARALLEL
    timeout_s: float | None = None
    retry: Retry | None = None
    in_doubt: DoubtPolicy | None = None


NO_DEFAULTS = StepDefaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step. Its policy leaves `fallback` and `approval` to the program, which renders them when the step is due."""

    id: str
    kind: PlanStepKind
    needs: tuple[str, ...] = ()
    title: Template = NOTHING
    when: Condition | None = None
    for_each: ForEach | None = None
    critical: bool = True
    optional: bool = False
    on_error: OnError = "ask"  # what a mistake does: it waits for a person, or fails the step
    tool: str = ""
    arguments: Template = EMPTY  # of the tool, or the inputs of the child
    policy: StepPolicy = DEFAULT_POLICY
    fallbacks: tuple[PlanFallback, ...] = ()
    secrets: frozenset[str] = frozenset()  # that its arguments, or its fallbacks', refer to
    approval: PlanApproval | None = None
    wait: WaitSpec | None = None
    start: str = ""  # the child's program: a plan file or the name of a function
    steps: tuple[PlanStep, ...] = ()
    output: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConcurrency:
    key: Template
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    name: str
    title: Template = NOTHING
    labels: dict[str, Template] = field(default_factory=dict[str, Template])
    inputs: dict[str, InputSpec] = field(default_factory=dict[str, InputSpec])
    defaults: StepDefaults = NO_DEFAULTS
    steps: tuple[PlanStep, ...] = ()
    on_failure: tuple[PlanStep, ...] = ()
    finally_: tuple[PlanStep, ...] = ()
    output: Template | None = None
    concurrency: PlanConcurrency | None = None
    pause_timeout_s: float | None = None
    on_pause_timeout: OnTimeout = "stop"
    budget: Budget | None = None
    checkpoint: Checkpoints | None = None
    resources: Resources | None = None  # of each step that does not say otherwise
    resources_total: Resources | None = None  # of all steps of an execution together
    parallel: int = 0  # tool calls at once; 0: as many as the settings allow


def walk(plan: Plan) -> Iterator[tuple[str, PlanStep]]:
    """Every step of a plan with its place in the document, as it is read from top to bottom."""
    lists = (("steps", plan.steps), ("on_failure", plan.on_failure), ("finally", plan.finally_))
    waiting = [placed for place, steps in reversed(lists) for placed in reversed(_placed(place, steps))]
    while waiting:
        place, step = waiting.pop()
        yield place, step
        waiting.extend(reversed(_placed(f"{place}.steps", step.steps)))


def _placed(place: str, steps: tuple[PlanStep, ...]) -> list[tuple[str, PlanStep]]:
    return [(f"{place}[{index}]", step) for index, step in enumerate(steps)]
