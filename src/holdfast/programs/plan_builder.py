"""Plans written in Python: the same document that a YAML file holds, put together by typed calls.

Nothing is checked here beyond what a type checker sees. The document goes through the same reader as every other, which
finds the mistakes of both, with the same places and the same words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Required, TypedDict, TypeVar, Unpack, cast

from holdfast.core.events import OnTimeout
from holdfast.core.inputs import InputType
from holdfast.core.policy import Approval, DoubtPolicy, Effect, Fallback, OnError, Rest, Retry
from holdfast.programs.function import Function
from holdfast.tools.tool import Tool

_FIELD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Words that CEL keeps for itself: after a dot it does not take them for the name of a field.
_WORDS = frozenset(
    (
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "namespace", "null", "package", "return", "true", "var", "void", "while",
    )
)  # fmt: skip


class Ref:
    """An expression that follows a path. Inside a text, as in an f-string, it stands as `${{ … }}`."""

    __iter__ = None  # a path can be followed without end, and must not be looped over

    def __init__(self, text: str) -> None:
        self.text = text  # without its braces, to be used in longer expressions

    def __getitem__(self, key: str | int) -> Ref:
        if isinstance(key, int):
            return Ref(f"{self.text}[{key}]")
        if _FIELD.fullmatch(key) and key not in _WORDS:
            return Ref(f"{self.text}.{key}")
        return Ref(f"{self.text}[{json.dumps(key, ensure_ascii=False)}]")

    def __str__(self) -> str:
        return f"${{{{ {self.text} }}}}"


class Step:
    """A step that has been added: what later steps say about it."""

    def __init__(self, step_id: str, fields: dict[str, Any]) -> None:
        self.id = step_id
        self.fields = fields
        self.output = Ref(f"steps.{step_id}.output")
        self.status = Ref(f"steps.{step_id}.status")
        self.error = Ref(f"steps.{step_id}.error")
        self.failure = Ref(f"steps.{step_id}.failure")


class StepOptions(TypedDict, total=False):
    """What any step may say."""

    title: str
    needs: Step | str | Sequence[Step | str]
    when: bool | str | Ref
    for_each: Sequence[Any] | Ref
    key: str | Ref
    max_parallel: int
    critical: bool
    optional: bool
    on_error: OnError


class ResourceOptions(TypedDict, total=False):
    """What the commands of a step may use: sizes such as "512MB", CPU time such as "60s"."""

    memory: int | str
    cpu: float | str
    processes: int
    open_files: int
    disk: int | str
    output: int | str
    cores: float


class TotalResources(TypedDict, total=False):
    """What the commands of all steps of an execution may use together."""

    memory: int | str
    cpu: float | str
    processes: int
    open_files: int
    disk: int | str


class PlanResources(ResourceOptions, total=False):
    """What each step may use that does not say otherwise, and what all of them may use together."""

    total: TotalResources


class ToolOptions(StepOptions, total=False):
    """What a step that calls a tool may say besides."""

    fallback: Tool[..., Any] | str | Fallback | Sequence[Tool[..., Any] | str | Fallback]
    timeout: float | str
    retry: int | Retry
    cache: bool | float | str
    effect: Effect
    in_doubt: DoubtPolicy
    approval: bool | str | Approval
    resources: ResourceOptions


class InputOptions(TypedDict, total=False):
    type: InputType
    default: Any
    description: str
    required: bool


class ConcurrencyOptions(TypedDict, total=False):
    key: str | Ref
    limit: int


class BudgetOptions(TypedDict, total=False):
    usd: Required[float]
    warn_at: float


class CheckpointOptions(TypedDict, total=False):
    every_steps: int
    every_s: float | str
    on: list[Rest]


class DefaultOptions(TypedDict, total=False):
    """What counts for each step that does not say otherwise."""

    critical: bool
    on_error: OnError
    max_parallel: int
    timeout: float | str
    retry: int | Retry
    in_doubt: DoubtPolicy


class PlanOptions(TypedDict, total=False):
    title: str
    labels: Mapping[str, str | float | Ref]
    concurrency: ConcurrencyOptions
    max_parallel: int
    defaults: DefaultOptions
    pause_timeout: float | str
    on_pause_timeout: OnTimeout
    budget: float | BudgetOptions
    checkpoint: CheckpointOptions
    resources: PlanResources


Arguments = Mapping[str, Any] | Ref
_S = TypeVar("_S", bound=Step)


class Steps:
    """A list of steps. Each needs the one added before it unless it says otherwise."""

    def __init__(self) -> None:
        self.added: list[Step] = []

    def step(
        self, id: str, tool: Tool[..., Any] | str, with_: Arguments | None = None, **said: Unpack[ToolOptions]
    ) -> Step:
        """Call a tool."""
        return self._add(Step(id, {"tool": tool, "with": with_, **said}))

    def child(
        self, id: str, program: Function[..., Any] | str, with_: Arguments | None = None, **said: Unpack[StepOptions]
    ) -> Step:
        """Start an execution of its own: a function, or a plan file."""
        return self._add(Step(id, {"start": program, "with": with_, **said}))

    def approval(
        self, id: str, message: str = "", *, expires: float | str | None = None, **said: Unpack[StepOptions]
    ) -> Step:
        """Wait for a person's yes."""
        wanted: Any = message or "required"
        if expires is not None:
            wanted = _without_gaps({"message": message or None, "expires": expires})
        return self._add(Step(id, {"approval": wanted, **said}))

    def wait(self, id: str, duration: float | str | Ref, **said: Unpack[StepOptions]) -> Step:
        return self._add(Step(id, {"wait": duration, **said}))

    def wait_until(self, id: str, moment: str | Ref, **said: Unpack[StepOptions]) -> Step:
        return self._add(Step(id, {"wait": {"until": moment}, **said}))

    def wait_event(
        self, id: str, event: str | Ref, *, timeout: float | str | Ref | None = None, **said: Unpack[StepOptions]
    ) -> Step:
        """Wait for an event from outside; its data is the step's output."""
        return self._add(Step(id, {"wait": _without_gaps({"event": event, "timeout": timeout}), **said}))

    def nested(self, id: str, **said: Unpack[StepOptions]) -> Nested:
        """A plan within the plan; add its steps to what this returns."""
        return self._add(Nested(id, dict(said)))

    def _add(self, step: _S) -> _S:
        self.added.append(step)
        return step

    def everything(self) -> Iterable[Step]:
        for step in self.added:
            yield step
            if isinstance(step, Nested):
                yield from step.everything()


class Nested(Step, Steps):
    """A step that is a list of steps. `result` is its output; without it, the output of its last step."""

    def __init__(self, step_id: str, fields: dict[str, Any]) -> None:
        Step.__init__(self, step_id, fields)
        Steps.__init__(self)
        self.result: Any = None


class Plan(Steps):
    """A plan. Hand it to `Engine.start`, or write it to a file with `to_yaml`."""

    item: ClassVar[Ref] = Ref("item")
    index: ClassVar[Ref] = Ref("index")
    failure: ClassVar[Ref] = Ref("failure")

    def __init__(
        self, name: str, *, inputs: Mapping[str, InputType | InputOptions] | None = None, **said: Unpack[PlanOptions]
    ) -> None:
        super().__init__()
        self.name = name
        self.inputs = Ref("inputs")
        self.on_failure = Steps()
        self.finally_ = Steps()
        self.output: Any = None
        self._declared = inputs
        self._said = said

    def to_document(self) -> dict[str, Any]:
        """The plan as the reader takes it."""
        return _without_gaps(
            {
                "name": self.name,
                **_without_gaps({key: _plain(value) for key, value in self._said.items()}),
                "inputs": _plain(self._declared),
                "steps": _listed(self),
                "on_failure": _listed(self.on_failure) or None,
                "finally": _listed(self.finally_) or None,
                "output": _plain(self.output),
            }
        )

    def to_yaml(self) -> str:
        import yaml

        return yaml.safe_dump(self.to_document(), sort_keys=False, allow_unicode=True, width=120)

    def tools(self) -> list[Tool[..., Any]]:
        """The tools it was given as such, and not by name."""
        return [tool for step in self._all() for tool in _called_by(step) if isinstance(tool, Tool)]

    def functions(self) -> list[Function[..., Any]]:
        return [found for step in self._all() if isinstance(found := step.fields.get("start"), Function)]

    def _all(self) -> Iterable[Step]:
        for steps in (self, self.on_failure, self.finally_):
            yield from steps.everything()


def _called_by(step: Step) -> list[Any]:
    fallback: Any = step.fields.get("fallback")
    others = cast("Sequence[Any]", fallback) if isinstance(fallback, list | tuple) else [fallback]
    return [step.fields.get("tool"), *others]


def _listed(steps: Steps) -> list[dict[str, Any]]:
    return [_step(step) for step in steps.added]


def _step(step: Step) -> dict[str, Any]:
    fields = _without_gaps({"id": step.id, **{key: _plain(value) for key, value in step.fields.items()}})
    if isinstance(step, Nested):
        fields |= _without_gaps({"steps": _listed(step), "output": _plain(step.result)})
    return fields


def _without_gaps(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    """As a YAML file would say it."""
    match value:
        case Ref():
            return str(value)
        case Step():
            return value.id
        case Tool() | Function():
            return cast("Tool[..., Any]", value).name
        case Retry():
            return {"max": value.max, "first": value.first_s, "factor": value.factor, "max_delay": value.max_s}
        case Approval():
            return _without_gaps({"message": value.message or None, "expires": value.expires_s})
        case Fallback():
            return _without_gaps({"tool": value.tool, "with": _plain(value.arguments)})
        case Mapping():
            return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
        case list() | tuple():
            return [_plain(item) for item in cast("Sequence[Any]", value)]
        case _:
            return value
