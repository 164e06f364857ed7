"""Runs one step of a plan: its condition, its items, its tool, wait, approval, child or milestone.

The lists that steps stand in are in plan_level.py, the items of a for_each in plan_items.py, and plan_values.py works
out what a step says with the values of the moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core import skips
from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.errors import Misconfigured, NotFound, ToolError, Trouble, UsageError
from holdfast.core.execution import Step
from holdfast.core.expressions import as_text
from holdfast.core.failure import Failure, describe
from holdfast.core.forms import ASK
from holdfast.core.plan.model import ForEach, PlanStep, PlanStepKind
from holdfast.core.policy import FOR_EACH_ITEMS_MAX
from holdfast.engine.program import ChildTask, FailureImpact, FallbackTool, Mistake, Outcome, StepCall, Steps
from holdfast.engine.step.perform import input_digest
from holdfast.programs.plan_items import PlanItems
from holdfast.programs.plan_level import RunningLevel
from holdfast.programs.plan_values import (
    ArgumentsUnknown,
    StepProblem,
    Values,
    approval_of,
    arguments_of,
    key_of,
    planned,
    title_of,
)
from holdfast.tools.json_values import encode
from holdfast.tools.options import Options
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool

MakeChild = Callable[[str, str, Mapping[str, Any]], Awaitable[ChildTask]]


class Walker:
    """What all levels share."""

    def __init__(self, steps: Steps, registry: Registry, make_child: MakeChild) -> None:
        self.steps = steps
        self.registry = registry
        self.make_child = make_child

    # ---- one step -----------------------------------------------------------------------------------------------

    async def take(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        """A step with its condition and its items, from asking to outcome."""
        while True:
            try:
                return await self._take(step, path, values, stakes)
            except (ToolError, UsageError) as error:  # an expression or value that cannot be used
                outcome = await self._corrected(step, path, values, stakes, error, is_item=step.for_each is None)
                if outcome is not None:
                    return outcome

    async def take_item(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        while True:
            try:
                return await self.do(step, path, values, stakes)
            except (ToolError, UsageError) as error:
                outcome = await self._corrected(step, path, values, stakes, error, is_item=True)
                if outcome is not None:
                    return outcome

    async def _take(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        recorded = self.steps.state.steps.get(path)
        is_open = recorded is None or recorded.kept or _waits_to_begin(recorded)
        if is_open and step.when is not None and not step.when.holds(values):
            if recorded is None or recorded.status != "in_doubt":
                return await self.steps.left_out(path, skips.condition_false(step.when.text), planned(step))
            return await self.do(step, path, values, stakes)
        if recorded is not None and recorded.status == "skipped":
            return self._skipped(path)
        if step.for_each is not None:
            return await self._for_each(step, step.for_each, path, values, stakes)
        return await self.do(step, path, values, stakes)

    async def _corrected(
        self,
        step: PlanStep,
        path: str,
        values: Values,
        stakes: FailureImpact,
        error: ToolError | UsageError,
        is_item: bool,
    ) -> Outcome | None:
        """A mistake waits for a person, unless its step can be lived without; None: work it out once more."""
        if not step.critical or step.on_error == "fail":
            return self._failed(step, path, describe(error), stakes)
        is_tool = step.kind == "tool" and is_item and step.tool != ASK
        known = error if isinstance(error, ArgumentsUnknown) else None
        said = await self.steps.correct(
            Mistake(
                path=path,
                tool=step.tool if is_tool else "for_each" if not is_item else step.tool or step.kind,
                kind="tool" if is_tool else "for_each" if not is_item else _KINDS[step.kind],
                failure=stakes.described(describe(error)),
                critical=step.critical,
                arguments=encode(known.known, path) if known is not None else b"null",
                missing=known.missing if known is not None else frozenset(),
            )
        )
        if said is None or isinstance(said, Outcome):
            return said
        return await self.steps.perform(self.call_of(step, path, values, stakes, said))

    async def recorded(self, path: str) -> Outcome:
        """How a step has ended; skipped, if it has not."""
        step = self.steps.state.steps.get(path)
        match step.status if step is not None else "":
            case "completed" if step is not None:
                return Outcome(status="completed", output=await self.steps.value(step.output))
            case "failed" if step is not None:
                return Outcome(status="failed", failure=step.failure)
            case _:
                return Outcome(status="skipped", reason="the execution is being stopped")

    def _skipped(self, path: str) -> Outcome:
        step = self.steps.state.steps[path]
        return Outcome(status="skipped", reason=step.reason, skip_code=step.skip_code)

    def _failed(self, step: PlanStep, path: str, failure: Failure, stakes: FailureImpact) -> Outcome:
        failure = stakes.described(failure)
        self.steps.fail(path, failure, critical=step.critical)
        return Outcome(status="failed", failure=failure)

    async def do(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        match step.kind:
            case "tool":
                return await self._tool(step, path, values, stakes)
            case "plan":
                return await self._milestone(step, path, values, stakes)
            case "wait":
                return await self._wait(step, path, values, stakes)
            case "approval":
                return await self.steps.approve(
                    path, approval_of(step, values), title=title_of(step, values), stakes=stakes
                )
            case "child":
                return await self._child(step, path, values, stakes)

    async def _tool(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        try:
            self.registry.get(step.tool)
        except NotFound as error:
            if not step.optional:
                raise
            return self._left_out(step, path, skips.tool_missing(error))
        recorded = self.steps.state.steps.get(path)
        if step.optional and recorded is None and not step.fallbacks and (lacking := self._lacking(step)):
            return self._left_out(step, path, skips.needs_unmet(lacking))
        return await self.steps.perform(self.call_of(step, path, values, stakes))

    def call_of(
        self, step: PlanStep, path: str, values: Values, stakes: FailureImpact, given: Mapping[str, Any] | None = None
    ) -> StepCall:
        """`given`: the arguments, in the place of what the plan says."""
        tool, policy = self.registry.get(step.tool), step.policy
        if step.approval is not None:
            policy = msgspec.structs.replace(policy, approval=approval_of(step, values))
        arguments, others, secrets = arguments_of(step, values, given)
        fallbacks = tuple(
            FallbackTool(self._tool_or_gap(other.tool), own) for other, own in zip(step.fallbacks, others, strict=True)
        ) or tuple(FallbackTool(self._tool_or_gap(other)) for other in tool.fallbacks)
        if not step.critical and policy.on_error == "ask":
            policy = msgspec.structs.replace(policy, on_error="fail")  # what may fail needs nobody's correction
        return StepCall(
            path=path,
            tool=tool,
            arguments=arguments,
            policy=policy,
            fallbacks=fallbacks,
            title=title_of(step, values),
            stakes=stakes,
            secrets=secrets,
        )

    def _lacking(self, step: PlanStep) -> list[Trouble]:
        """What an optional step's tool needs and this machine does not have; it does without."""
        return [] if self.registry.fallbacks_of(step.tool) else self.registry.missing(step.tool)

    def _left_out(self, step: PlanStep, path: str, why: skips.Skip) -> Outcome:
        self.steps.skip(path, why, planned(step, is_item=True))
        return self._skipped(path)

    def _tool_or_gap(self, name: str) -> Tool[..., Any]:
        """A fallback that is not there keeps its place in the list, since the journal counts by place."""
        return self.registry.get(name) if name in self.registry.names() else _Gap(name)

    async def _milestone(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        await self.steps.settle_container(path, "plan")
        self.steps.open(path, "plan", total=len(step.steps), title=title_of(step, values))
        inner = values.new_child()
        level = RunningLevel(self, f"{path}/", step.steps, inner, is_optional=stakes.may_fail)
        found = await level.run()
        if found is not None:
            inside = found[1]
            failure = msgspec.structs.replace(inside, affects=(*inside.affects, *stakes.skipped()))
            self.steps.fail(path, failure, critical=step.critical)
            return Outcome(status="failed", failure=failure)
        output = encode(step.output.render(inner), path) if step.output is not None else level.last_output()
        self.steps.close(path, output)
        return Outcome(status="completed", output=output)

    async def _wait(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        wait = step.wait
        assert wait is not None
        now = self.steps.now_us()
        if wait.event is not None:
            limit = wait.timeout.render(values) if wait.timeout is not None else None
            due_at = now + int(parse_duration(limit) * 1e6) if limit is not None else None
            return await self.steps.wait_event(path, as_text(wait.event.render(values)), due_at, stakes)
        if wait.until is not None:
            until = wait.until.render(values)
            return await self.steps.sleep(path, parse_moment(until), digest=input_digest("until", encode(until)))
        assert wait.duration is not None
        duration = parse_duration(wait.duration.render(values))
        return await self.steps.sleep(path, now + int(duration * 1e6), digest=input_digest("for", encode(duration)))

    async def _child(self, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> Outcome:
        recorded = self.steps.state.steps.get(path)
        if recorded is None or recorded.kept or recorded.status not in ("completed", "failed"):
            inputs = cast("dict[str, Any]", step.arguments.render(values))
            digest = input_digest(step.start, encode(inputs))
            await self.steps.start_child(path, lambda: self.make_child(path, step.start, inputs), digest)
        child = await self.steps.wait_child(path, stakes)
        if child.status == "completed":
            return Outcome(status="completed", output=await self.steps.value(child.output))
        if child.status == "skipped":
            return self._skipped(path)
        return Outcome(status="failed", failure=self.steps.state.steps[path].failure)

    # ---- many items ---------------------------------------------------------------------------------------------

    async def _for_each(
        self, step: PlanStep, each: ForEach, path: str, values: Values, stakes: FailureImpact
    ) -> Outcome:
        await self.steps.settle_container(path, "for_each")
        recorded = self.steps.state.steps.get(path)
        if recorded is not None and recorded.status in ("completed", "failed"):
            output = await self.steps.value(recorded.output)
            if recorded.status == "completed":
                return Outcome(status="completed", output=output)
            return Outcome(status="failed", failure=recorded.failure)
        names, items = await self._items(step, each, path, values)
        outputs, failure = await PlanItems(self, step, path, values, stakes).run(names, items, each.parallel)
        if failure is not None:
            self.steps.fail(path, failure, critical=step.critical)
            return Outcome(status="failed", failure=failure)
        output = b"[%b]" % b",".join(outputs)
        self.steps.close(path, output)
        return Outcome(status="completed", output=output)

    async def _items(self, step: PlanStep, each: ForEach, path: str, values: Values) -> tuple[list[str], list[Any]]:
        """The list is evaluated once and journaled; a replay takes it from there."""
        recorded = self.steps.state.steps.get(path)
        if recorded is not None and recorded.arguments:
            kept = msgspec.json.decode(await self.steps.value(recorded.arguments))
            return kept["keys"], kept["items"]
        items = each.items.render(values)
        if not isinstance(items, list):
            raise StepProblem(f"for_each needs a list, got {type(items).__name__}: {as_text(items)[:100]}")
        items = cast("list[Any]", items)
        if len(items) > FOR_EACH_ITEMS_MAX:
            raise StepProblem(f"for_each got {len(items):,} items, at most {FOR_EACH_ITEMS_MAX:,} are allowed")
        keys = [key_of(each, values, item, index) for index, item in enumerate(items)]
        if len(set(keys)) != len(keys):
            twice = Counter(keys).most_common(1)[0][0]
            raise StepProblem(f'for_each: two items have the key "{twice}"; keys must differ')
        body = encode({"keys": keys, "items": items}, f"the items of {path}")
        self.steps.open(path, "for_each", total=len(items), title=title_of(step, values), arguments=body)
        return keys, msgspec.json.decode(body)["items"]


def _waits_to_begin(step: Step) -> bool:
    """For a correction of what could not be worked out."""
    return step.status == "waiting" and step.reason == "correction" and not step.attempt


_KINDS: dict[PlanStepKind, ev.StepKind] = {
    "tool": "wait", "plan": "plan", "wait": "wait", "approval": "approval", "child": "child",
}  # fmt: skip


class _Gap(Tool[..., Any]):
    """In the place of a tool that this process does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda: None, Options(name=name, effect="read"))

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        raise Misconfigured(f"the tool {self.name} is not here")
