"""From what a person hands over to a task that can be journaled: found, read, checked whole, nothing written.

A plan is pinned: its document goes into the journal, so that a changed file does not change a running execution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.budget import Budget, read_budget
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import InputInvalid, NotFound, PlanInvalid, Refused
from holdfast.core.execution import Execution
from holdfast.core.expressions import as_text
from holdfast.core.inputs import InputSpec, check_inputs
from holdfast.core.labels import check_labels, check_title
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.core.plan.model import Plan, PlanStep, walk
from holdfast.core.plan.parse import read_extension, read_plan
from holdfast.core.plan.resources import limits_of, task_resources_of
from holdfast.core.plan.step_reads import is_output_read
from holdfast.core.policy import Concurrency
from holdfast.core.resources import Resources
from holdfast.engine.program import ChildTask, Program
from holdfast.programs import plan_builder
from holdfast.programs.cel import Cel
from holdfast.programs.dry_run import foresee
from holdfast.programs.function import Function, FunctionKind
from holdfast.programs.lint import unmet
from holdfast.programs.plan_files import PLAN_ENDINGS, named, plans_in, read_document
from holdfast.programs.plan_program import PlanProgram
from holdfast.programs.plan_runner import MakeChild
from holdfast.programs.plan_types import type_mistakes
from holdfast.tools.json_values import encode
from holdfast.tools.registry import Registry
from holdfast.tools.secrets.vault import Vault

PLANS_KEPT = 256  # read plans, by their document; reading one costs a millisecond
INPUT_BYTES_MAX = 1024 * 1024


class PlanDocument(NamedTuple):
    """A plan as it was read. Its file is read once, so that what is checked is what is journaled."""

    document: Any
    file: str = ""


Found = PlanDocument | Function[..., Any]
Subject = str | Path | Mapping[str, Any] | plan_builder.Plan | Found


class Preparer:
    """Knows the tools and functions of one engine; also opens recorded plans and functions again."""

    def __init__(
        self, registry: Registry, folder: Path, version: str, now_us: Callable[[], int], secrets: Vault | None = None
    ) -> None:
        self.registry = registry
        self.secrets = secrets
        self._folder = folder
        self._version = version
        self._now_us = now_us
        self._expressions = Cel()
        self._plans: dict[bytes, Plan] = {}

    def kinds(self) -> dict[str, Any]:
        return {"plan": PlanKind(self), "function": FunctionKind(self.registry, self.prepare_child)}

    # ---- handing in ---------------------------------------------------------------------------------------------

    def prepare(self, subject: Subject, inputs: Mapping[str, Any] | None = None, **said: Any) -> ev.TaskCreated:
        """Everything about a task, checked. `said` are the fields of TaskCreated that the caller decides."""
        given = dict(inputs or {})
        found = self.find(subject)
        if isinstance(found, Function):
            found.check_inputs(given)
            return self._created(ev.Program(kind="function", name=found.name), given, found.said(), said)
        document, file = found
        plan = self._read_found(found)
        values, problems = check_inputs(plan.inputs, given)
        if problems:
            raise InputInvalid("\n".join(["the inputs do not fit:", *(f"  {problem}" for problem in problems)]))
        program = ev.Program(kind="plan", name=plan.name, source=Raw(encode(document, "the plan")), file=file)
        return self._created(program, values, self._of_plan(plan, values), said)

    def prepare_child(
        self, subject: Any, inputs: Mapping[str, Any], parent: ev.Parent, family: ev.TaskCreated
    ) -> ev.TaskCreated:
        """A child belongs to whom its parent does, and bears its labels unless its plan says otherwise."""
        key = f"{parent.id}:{parent.path}"
        created = self.prepare(subject, inputs, parent=parent, owner=family.owner, key=key, fresh=family.fresh)
        each, total = limits_of(family)
        labels = {**family.labels, **created.labels}
        return msgspec.structs.replace(created, labels=labels, resources=each, resources_total=total)

    def _created(
        self, program: ev.Program, inputs: Mapping[str, Any], known: dict[str, Any], said: dict[str, Any]
    ) -> ev.TaskCreated:
        for name in ("checkpoint", "pause_timeout_s", "on_pause_timeout"):
            if said.get(name) is not None:
                known.pop(name, None)  # whoever hands it in has the last word
            else:
                said.pop(name, None)
        labels = check_labels({**known.pop("labels", {}), **(said.pop("labels", None) or {})})
        title = check_title(said.pop("title", "") or known.pop("title", ""))
        known.pop("title", None)
        budget = said.pop("budget", None)
        if budget is not None:
            known["budget"] = budget if isinstance(budget, Budget) else _read_budget(budget)
        resources = said.pop("resources", None)
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
        return limited(_checked(created), resources)

    def _of_plan(self, plan: Plan, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What a plan says about its task, with its inputs filled in."""
        values = {"inputs": inputs}
        title = plan.title.render(values)
        known: dict[str, Any] = {
            "title": as_text(title) if title is not None else "",
            "labels": {name: as_text(label.render(values)) for name, label in plan.labels.items()},
            "total": len(plan.steps) + len(plan.finally_),
            "tools": {name: self.registry.get(name).signature_digest for name in sorted(self.tools_of(plan))},
            "pause_timeout_s": plan.pause_timeout_s,
            "on_pause_timeout": plan.on_pause_timeout,
            "budget": plan.budget,
            "checkpoint": plan.checkpoint,
            "parallel": plan.parallel,
        }
        if plan.concurrency is not None:
            key = as_text(plan.concurrency.key.render(values))
            known["concurrency"] = Concurrency(key=key, limit=plan.concurrency.limit)
        return known

    def tools_of(self, plan: Plan) -> set[str]:
        """The tools a plan uses and this process has."""
        names: set[str] = set()
        for _, step in walk(plan):
            own = tuple(other.tool for other in step.fallbacks)
            names.update((step.tool, *(own or self.registry.fallbacks_of(step.tool))))
        return names & set(self.registry.names())

    def unmet(self, subject: Subject) -> list[str]:
        """Prerequisites of all steps that this machine does not meet; optional steps may do without."""
        found = self.find(subject)
        if isinstance(found, Function):
            return []
        return self.unmet_of(self._read_found(found))

    def unmet_of(self, plan: Plan) -> list[str]:
        return list(dict.fromkeys(problem.message for problem in unmet(plan, self.registry, self.secrets)))

    def plan_of(self, state: Execution) -> Plan:
        """The plan of an execution, with what was added to it."""
        plan = self.read(msgspec.json.decode(state.facts().program.source), check_tools=False)
        for raw in state.extensions:
            added = self.read_extension(raw, plan, check_tools=False)
            plan = dataclasses.replace(plan, steps=(*plan.steps, *added))
        return plan

    def foresee(self, created: ev.TaskCreated) -> dict[str, Any]:
        """What a prepared plan would do, as far as that is known before it starts."""
        plan = self.read(msgspec.json.decode(created.program.source), check_tools=False)
        return foresee(plan, msgspec.json.decode(created.inputs), self.registry, self._expressions)

    def inputs_of(self, subject: Subject) -> dict[str, InputSpec]:
        """What a program declares to be given, as far as texts from outside need to know."""
        found = self.find(subject)
        if isinstance(found, PlanDocument):
            return self._read_found(found, check_tools=bool(found.file)).inputs
        # A text stays a text for `str`; anything else is read as JSON and checked by the function's own types.
        described: dict[str, Any] = found.signature.schema().get("properties", {})
        return {
            name: InputSpec(type="string" if schema.get("type") == "string" else "any")
            for name, schema in described.items()
        }

    # ---- finding and reading ------------------------------------------------------------------------------------

    def has_program(self, name: str) -> bool:
        if name in self.registry.function_names():
            return True
        return name.endswith(PLAN_ENDINGS) and (self._folder / name).is_file()

    def find(self, subject: Subject) -> Found:
        """A function, or a plan that is read here. What was found can be given in the place of what named it."""
        if isinstance(subject, PlanDocument):
            return subject
        if isinstance(subject, Function):
            self.registry.add_function(subject)
            return subject
        if isinstance(subject, plan_builder.Plan):
            for tool in subject.tools():
                self.registry.add(tool)
            for function in subject.functions():
                self.registry.add_function(function)
            return PlanDocument(subject.to_document())
        if isinstance(subject, Mapping):
            return PlanDocument(dict(subject))
        text = str(subject)
        if text.endswith(PLAN_ENDINGS):
            path = self._folder / text
            return PlanDocument(named(read_document(path), path.stem), text)
        if text in self.registry.function_names():
            return self.registry.function(text)
        raise NotFound(
            f'there is no program "{text}": give a plan file ({", ".join(PLAN_ENDINGS)}) or the name of a function'
            + (f" ({', '.join(sorted(self.registry.function_names()))})" if self.registry.function_names() else "")
            + (did_you_mean(text, self.registry.function_names()) or self._plan_like(text))
        )

    def _plan_like(self, text: str) -> str:
        beside = self._folder / text
        return did_you_mean(text, [str(Path(text).with_name(name)) for name in plans_in(beside.parent)]) if text else ""

    def _read_found(self, found: PlanDocument, *, check_tools: bool = True) -> Plan:
        return self.read(found.document, check_tools=check_tools, name=Path(found.file).stem)

    def read(self, document: Any, *, check_tools: bool, name: str = "") -> Plan:
        """A plan's document as a plan. The same document is read once."""
        body = encode(document, "the plan")
        key = b"%d%b%b" % (check_tools, name.encode(), body)
        plan = self._plans.get(key)
        if plan is None:
            plan = read_plan(
                msgspec.json.decode(body),
                expressions=self._expressions,
                tools=self.registry if check_tools else None,
                programs=self.has_program if check_tools else None,
                secrets=self._declared(check_tools),
                name=name,
            )
            if check_tools and (mistakes := type_mistakes(plan, self.registry, self._expressions)):
                raise PlanInvalid(mistakes, name)
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def read_extension(self, steps: Raw, plan: Plan, *, check_tools: bool) -> tuple[PlanStep, ...]:
        return read_extension(
            msgspec.json.decode(steps),
            plan,
            expressions=self._expressions,
            tools=self.registry if check_tools else None,
            programs=self.has_program if check_tools else None,
            secrets=self._declared(check_tools),
        )

    def _declared(self, check_tools: bool) -> frozenset[str] | None:
        return self.secrets.names if check_tools and self.secrets is not None else None

    def open_plan(self, created: ev.TaskCreated) -> PlanProgram:
        plan = self.read(msgspec.json.decode(created.program.source), check_tools=False)
        return PlanProgram(
            plan,
            cast("dict[str, Any]", msgspec.json.decode(created.inputs)),
            self.registry,
            self._children_of,
            lambda plan, raw: self.read_extension(raw, plan, check_tools=False),
        )

    def _children_of(self, parent: Execution) -> MakeChild:
        def make(path: str, program: str, inputs: Mapping[str, Any]) -> Awaitable[ChildTask]:
            async def prepared() -> ChildTask:
                origin = ev.Parent(id=parent.id, path=path)
                return ChildTask(created=self.prepare_child(program, inputs, origin, parent.facts()))

            return prepared()

        return make


class PlanKind:
    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def open(self, created: ev.TaskCreated, state: Execution) -> Program:
        return self._preparer.open_plan(created)

    def unmet(self, state: Execution) -> list[str]:
        """What this machine lacks for the steps that have not ended yet."""
        plan = self._preparer.plan_of(state)
        return self._preparer.unmet_of(dataclasses.replace(plan, steps=_not_ended(plan.steps, state)))

    def is_output_read(self, state: Execution, path: str) -> bool:
        """By one of its expressions; or by a parent, which may read what the plan's last step gave."""
        created = state.facts()
        document = msgspec.json.decode(created.program.source)
        if created.parent is not None and "output" not in document:
            return True
        added = [msgspec.json.decode(raw) for raw in state.extensions]
        return is_output_read([document, added], path)

    def check_extension(self, state: Execution, steps: list[Mapping[str, Any]]) -> Raw:
        """New steps for this execution's plan, checked against it and against what was added before."""
        plan = self._preparer.plan_of(state)
        ending = [step.id for step in (*plan.on_failure, *plan.finally_) if step.id in state.steps]
        if ending:
            raise Refused(f"the plan's own steps have ended, and {ending[0]} has begun; nothing can be added any more")
        body = Raw(encode(steps, "the new steps"))
        if not steps:
            raise Refused("there are no steps to add")
        self._preparer.read_extension(body, plan, check_tools=True)
        return body


def _not_ended(steps: tuple[PlanStep, ...], state: Execution) -> tuple[PlanStep, ...]:
    return tuple(one for one in steps if one.id not in state.steps or state.steps[one.id].status not in STEP_ENDS)


def _checked(created: ev.TaskCreated) -> ev.TaskCreated:
    """What the caller says is journaled with the task, so it must come back from the journal."""
    try:
        return msgspec.json.decode(msgspec.json.encode(created), type=ev.TaskCreated)
    except UnicodeEncodeError:
        raise InputInvalid("the task holds half of a surrogate pair, which cannot be stored") from None
    except msgspec.ValidationError as error:
        raise InputInvalid(f"the task cannot be handed in: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _read_budget(given: object) -> Budget:
    try:
        return read_budget(given)
    except InputInvalid as error:
        raise InputInvalid(f"budget: {error}") from None


def limited(created: ev.TaskCreated, given: Resources | Mapping[str, Any] | None) -> ev.TaskCreated:
    """The task with what a person says it may use of the machine."""
    each, total = task_resources_of(given) if given is not None else (None, None)
    return msgspec.structs.replace(
        created,
        resources=each.over(created.resources) if each is not None else created.resources,
        resources_total=total.over(created.resources_total) if total is not None else created.resources_total,
    )


def _bounded(inputs: Mapping[str, Any]) -> Raw:
    """Inputs travel inside task:created, so they have a limit of their own."""
    body = encode(inputs, "the inputs")
    if len(body) > INPUT_BYTES_MAX:
        raise InputInvalid(
            f"the inputs are {len(body):,} bytes of JSON, {INPUT_BYTES_MAX:,} are allowed; "
            "write them to a file and pass its path"
        )
    return Raw(body)
