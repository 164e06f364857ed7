"""From what a person hands over to a task that can be journaled: found, read, checked whole, nothing written.

A plan is pinned: its document goes into the journal, so that a changed file does not change a running execution.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid, NotFound, PlanInvalid, Problem, Refused
from holdfast.core.execution import Execution
from holdfast.core.expressions import as_text
from holdfast.core.inputs import check_inputs
from holdfast.core.plan import Plan, PlanStep
from holdfast.core.plan_read import read_extension, read_plan
from holdfast.core.policy import Concurrency
from holdfast.engine.program import ChildTask, Program
from holdfast.programs.cel import Cel
from holdfast.programs.function import Function, FunctionKind
from holdfast.programs.plan import PlanProgram
from holdfast.programs.plan_walk import MakeChild
from holdfast.tools.registry import Registry
from holdfast.tools.values import encode

PLANS_KEPT = 256  # read plans, by their document; reading one costs a millisecond
INPUT_BYTES_MAX = 1024 * 1024
PLAN_BYTES_MAX = 16 * 1024 * 1024
PLAN_ENDINGS = (".yaml", ".yml", ".json")

Subject = str | Path | Mapping[str, Any] | Function[..., Any]


class Preparer:
    """Knows the tools and functions of one engine; also opens recorded plans and functions again."""

    def __init__(self, registry: Registry, folder: Path, version: str, now_us: Callable[[], int]) -> None:
        self._registry = registry
        self._folder = folder
        self._version = version
        self._now_us = now_us
        self._expressions = Cel()
        self._plans: dict[bytes, Plan] = {}

    def kinds(self) -> dict[str, Any]:
        return {"plan": PlanKind(self), "function": FunctionKind(self._registry, self.prepare_child)}

    # ---- handing in ---------------------------------------------------------------------------------------------

    def prepare(self, subject: Subject, inputs: Mapping[str, Any] | None = None, **said: Any) -> ev.TaskCreated:
        """Everything about a task, checked. `said` are the fields of TaskCreated that the caller decides."""
        given = dict(inputs or {})
        found = self._find(subject)
        if isinstance(found, Function):
            found.check_inputs(given)
            return self._created(ev.Program(kind="function", name=found.name), given, {}, said)
        document, file = found
        plan = self.read(document, check_tools=True, name=Path(file).stem if file else "")
        values, problems = check_inputs(plan.inputs, given)
        if problems:
            raise InputInvalid("\n".join(["the inputs do not fit:", *(f"  {problem}" for problem in problems)]))
        program = ev.Program(kind="plan", name=plan.name, source=Raw(encode(document, "the plan")), file=file)
        return self._created(program, values, self._of_plan(plan, values), said)

    def prepare_child(self, subject: Any, inputs: Mapping[str, Any], parent: ev.Parent, owner: str) -> ev.TaskCreated:
        return self.prepare(subject, inputs, parent=parent, owner=owner, key=f"{parent.id}:{parent.path}")

    def _created(
        self, program: ev.Program, inputs: Mapping[str, Any], known: dict[str, Any], said: dict[str, Any]
    ) -> ev.TaskCreated:
        labels: dict[str, str] = {**known.pop("labels", {}), **(said.pop("labels", None) or {})}
        title = said.pop("title", "") or known.pop("title", "")
        known.pop("title", None)
        created = ev.TaskCreated(
            at=self._now_us(),
            program=program,
            inputs=_bounded(inputs),
            title=title,
            labels=labels,
            engine=self._version,
            folder=str(self._folder),
            **known,
            **said,
        )
        return _checked(created)

    def _of_plan(self, plan: Plan, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What a plan says about its task, with its inputs filled in."""
        values = {"inputs": inputs}
        title = plan.title.render(values)
        known: dict[str, Any] = {
            "title": as_text(title) if title is not None else "",
            "labels": {name: as_text(label.render(values)) for name, label in plan.labels.items()},
            "total": len(plan.steps) + len(plan.finally_),
            "tools": {name: self._registry.get(name).signature_digest for name in sorted(self.tools_of(plan))},
            "pause_timeout_s": plan.pause_timeout_s,
            "on_pause_timeout": plan.on_pause_timeout,
        }
        if plan.concurrency is not None:
            key = as_text(plan.concurrency.key.render(values))
            known["concurrency"] = Concurrency(key=key, limit=plan.concurrency.limit)
        return known

    def tools_of(self, plan: Plan) -> set[str]:
        """The tools a plan uses and this process has."""
        names = {name for step in _all_steps(plan) for name in (step.tool, *(other.tool for other in step.fallbacks))}
        return names & set(self._registry.names())

    def unmet(self, subject: Subject) -> list[str]:
        """Prerequisites of all steps that this machine does not meet; optional steps may do without."""
        found = self._find(subject)
        if isinstance(found, Function):
            return []
        plan = self.read(found[0], check_tools=True)
        needed = {step.tool for step in _all_steps(plan) if step.tool and not step.optional}
        return [sentence for name in sorted(needed) for sentence in self._registry.get(name).missing()]

    # ---- finding and reading ------------------------------------------------------------------------------------

    def has_program(self, name: str) -> bool:
        if name in self._registry.function_names():
            return True
        return name.endswith(PLAN_ENDINGS) and (self._folder / name).is_file()

    def _find(self, subject: Subject) -> Function[..., Any] | tuple[Any, str]:
        """A function, or a plan's document and the file it came from."""
        if isinstance(subject, Function):
            self._registry.add_function(subject)
            return subject
        if isinstance(subject, Mapping):
            return dict(subject), ""
        text = str(subject)
        if text.endswith(PLAN_ENDINGS):
            path = self._folder / text
            return _named(read_document(path), path.stem), text
        if text in self._registry.function_names():
            return self._registry.function(text)
        raise NotFound(
            f'there is no program "{text}": give a plan file ({", ".join(PLAN_ENDINGS)}) or the name of a function'
            + (f" ({', '.join(sorted(self._registry.function_names()))})" if self._registry.function_names() else "")
        )

    def read(self, document: Any, *, check_tools: bool, name: str = "") -> Plan:
        """A plan's document as a plan. The same document is read once."""
        body = encode(document, "the plan")
        key = b"%d%b%b" % (check_tools, name.encode(), body)
        plan = self._plans.get(key)
        if plan is None:
            plan = read_plan(
                msgspec.json.decode(body),
                expressions=self._expressions,
                tools=self._registry if check_tools else None,
                programs=self.has_program if check_tools else None,
                name=name,
            )
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def read_extension(self, steps: Raw, plan: Plan, *, check_tools: bool) -> tuple[PlanStep, ...]:
        return read_extension(
            msgspec.json.decode(steps),
            plan,
            expressions=self._expressions,
            tools=self._registry if check_tools else None,
            programs=self.has_program if check_tools else None,
        )

    def open_plan(self, created: ev.TaskCreated) -> PlanProgram:
        plan = self.read(msgspec.json.decode(created.program.source), check_tools=False)
        return PlanProgram(
            plan,
            cast("dict[str, Any]", msgspec.json.decode(created.inputs)),
            self._registry,
            self._children_of,
            lambda plan, raw: self.read_extension(raw, plan, check_tools=False),
        )

    def _children_of(self, parent: Execution) -> MakeChild:
        def make(path: str, program: str, inputs: Mapping[str, Any]) -> Awaitable[ChildTask]:
            async def prepared() -> ChildTask:
                owner = parent.facts().owner
                return ChildTask(created=self.prepare_child(program, inputs, ev.Parent(id=parent.id, path=path), owner))

            return prepared()

        return make


class PlanKind:
    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def open(self, created: ev.TaskCreated, state: Execution) -> Program:
        return self._preparer.open_plan(created)

    def check_extension(self, state: Execution, steps: list[Mapping[str, Any]]) -> Raw:
        """New steps for this execution's plan, checked against it and against what was added before."""
        created = state.facts()
        plan = self._preparer.read(msgspec.json.decode(created.program.source), check_tools=False)
        for raw in state.extensions:
            added = self._preparer.read_extension(raw, plan, check_tools=False)
            plan = dataclasses.replace(plan, steps=(*plan.steps, *added))
        ending = [step.id for step in (*plan.on_failure, *plan.finally_) if step.id in state.steps]
        if ending:
            raise Refused(f"the plan's own steps have ended, and {ending[0]} has begun; nothing can be added any more")
        body = Raw(encode(steps, "the new steps"))
        if not steps:
            raise Refused("there are no steps to add")
        self._preparer.read_extension(body, plan, check_tools=True)
        return body


def _checked(created: ev.TaskCreated) -> ev.TaskCreated:
    """What the caller says is journaled with the task, so it must come back from the journal."""
    try:
        return msgspec.json.decode(msgspec.json.encode(created), type=ev.TaskCreated)
    except UnicodeEncodeError:
        raise InputInvalid("the task holds half of a surrogate pair, which cannot be stored") from None
    except msgspec.ValidationError as error:
        raise InputInvalid(f"the task cannot be handed in: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _bounded(inputs: Mapping[str, Any]) -> Raw:
    """Inputs travel inside task:created, so they have a limit of their own."""
    body = encode(inputs, "the inputs")
    if len(body) > INPUT_BYTES_MAX:
        raise InputInvalid(
            f"the inputs are {len(body):,} bytes of JSON, {INPUT_BYTES_MAX:,} are allowed; "
            "write them to a file and pass its path"
        )
    return Raw(body)


def _all_steps(plan: Plan) -> Iterator[PlanStep]:
    waiting = [*plan.steps, *plan.on_failure, *plan.finally_]
    while waiting:
        step = waiting.pop()
        yield step
        waiting.extend(step.steps)


def read_document(path: Path) -> Any:
    """YAML or JSON from a file, with a clear word about what is wrong with it."""
    try:
        if path.stat().st_size > PLAN_BYTES_MAX:
            raise PlanInvalid([Problem("", f"is larger than {PLAN_BYTES_MAX // 1024**2} MB")], str(path))
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no plan file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanInvalid([Problem("", f"cannot be read: {error}")], str(path)) from error
    if path.suffix == ".json":
        return _parse_json(text, path)
    return _parse_yaml(text, path)


def _named(document: Any, name: str) -> Any:
    """A plan that does not say what it is called is called like its file, also when only its document is left."""
    if isinstance(document, dict) and "name" not in document:
        return {"name": name, **cast("dict[str, Any]", document)}
    return cast("Any", document)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" stands twice in one object; keep one')
    return found


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise PlanInvalid([Problem("", f"is not JSON: {error}")], str(path)) from error


def _parse_yaml(text: str, path: Path) -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        """YAML lets a key stand twice and drops the first; a plan must not lose half of itself like that."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = key_node.value
                if not isinstance(key, str):
                    continue  # a list or a map as a key: refused below, by whoever wants to hash it
                if key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                    line = key_node.start_mark.line + 1
                    raise PlanInvalid([Problem(f"line {line}", f'"{key}" stands twice; keep one')], str(path))
                seen.add(key)
            usual: Any = super()
            return usual.construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=Loader)
    except PlanInvalid:
        raise
    except Exception as error:  # its constructors stumble in many ways over a value that does not fit its `!!tag`
        raise PlanInvalid([Problem("", f"is not YAML: {' '.join(str(error).split())}")], str(path)) from error
