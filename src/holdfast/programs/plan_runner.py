"""Walking the lists of a plan: runs what is ready, lives with what may fail.

Each list (the plan's own, a milestone's, a for_each item's) is a `Level` with a schedule of its own. Whatever a step
is, it ends as an `Outcome`, and the schedule says what that means for the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import ChainMap, Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

import msgspec

from holdfast.core import events as ev
from holdfast.core import skips
from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.errors import Misconfigured, NotFound, ToolError, Trouble, UsageError
from holdfast.core.execution import Step
from holdfast.core.expressions import as_text
from holdfast.core.failure import Failure, describe
from holdfast.core.forms import ASK
from holdfast.core.plan.model import ForEach, Plan, PlanStep, PlanStepKind
from holdfast.core.plan.schedule import Schedule
from holdfast.core.policy import FOR_EACH_ITEMS_MAX, Approval
from holdfast.core.secret_refs import marked
from holdfast.engine.program import ChildTask, FailureImpact, FallbackTool, Mistake, Outcome, Planned, StepCall, Steps
from holdfast.engine.step.perform import input_digest
from holdfast.tools.json_values import encode
from holdfast.tools.options import Options
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool

MakeChild = Callable[[str, str, Mapping[str, Any]], Awaitable[ChildTask]]
Values = ChainMap[str, Any]
KEY_CHARS_MAX = 200


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
                    path, _approval(step, values), title=_title(step, values), stakes=stakes
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
            policy = msgspec.structs.replace(policy, approval=_approval(step, values))
        arguments, others, secrets = _arguments(step, values, given)
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
            title=_title(step, values),
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
        self.steps.open(path, "plan", total=len(step.steps), title=_title(step, values))
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
        outputs, failure = await _Items(self, step, path, values, stakes).run(names, items, each.parallel)
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
        keys = [_key(each, values, item, index) for index, item in enumerate(items)]
        if len(set(keys)) != len(keys):
            twice = Counter(keys).most_common(1)[0][0]
            raise StepProblem(f'for_each: two items have the key "{twice}"; keys must differ')
        body = encode({"keys": keys, "items": items}, f"the items of {path}")
        self.steps.open(path, "for_each", total=len(items), title=_title(step, values), arguments=body)
        return keys, msgspec.json.decode(body)["items"]


def _waits_to_begin(step: Step) -> bool:
    """For a correction of what could not be worked out."""
    return step.status == "waiting" and step.reason == "correction" and not step.attempt


_KINDS: dict[PlanStepKind, ev.StepKind] = {
    "tool": "wait", "plan": "plan", "wait": "wait", "approval": "approval", "child": "child",
}  # fmt: skip


def _arguments(
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


class _Items:
    """The items of one for_each, a bounded number at a time."""

    def __init__(self, walker: Walker, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> None:
        self._walker = walker
        self._step = step
        self._path = path
        self._values = values
        self._stakes = stakes
        self._names: list[str] = []
        self._items: list[Any] = []
        self._outputs: list[bytes] = []
        self._failure: Failure | None = None

    async def run(self, names: list[str], items: list[Any], parallel: int) -> tuple[list[bytes], Failure | None]:
        self._names, self._items = names, items
        self._outputs = [b"null"] * len(items)
        await self._settle_copies()
        waiting = iter(range(len(self._items)))

        async def work() -> None:
            for index in waiting:
                if self._is_left_out(index):
                    self._walker.steps.skip(self._path_of(index), skips.ITEM_FAILED, planned(self._step, is_item=True))
                else:
                    await self._one(index)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(parallel, len(self._items))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return self._outputs, self._failure

    async def _settle_copies(self) -> None:
        """A person decides at once about all items that were copied and have another input now."""
        steps, calls = self._walker.steps.state.steps, list[StepCall]()
        for index in range(len(self._items)):
            recorded = steps.get(self._path_of(index))
            if recorded is None or not recorded.kept or recorded.effect != "once" or recorded.status != "completed":
                continue
            with suppress(ToolError, UsageError):  # then it fails when its turn comes
                values = self._values_of(index)
                calls.append(self._walker.call_of(self._step, recorded.path, values, self._stakes))
        if calls:
            await self._walker.steps.settle_items(self._path, calls)

    def _values_of(self, index: int) -> Values:
        return self._values.new_child({"item": self._items[index], "index": index})

    def _path_of(self, index: int) -> str:
        return f"{self._path}[{self._names[index]}]"

    def _is_left_out(self, index: int) -> bool:
        """After a failure nothing new begins. But what had begun when a process died is taken to its end."""
        recorded = self._walker.steps.state.steps.get(self._path_of(index))
        if recorded is None or (recorded.kept and recorded.status == "completed"):
            return self._failure is not None
        return recorded.status == "skipped"

    async def _one(self, index: int) -> None:
        path = self._path_of(index)
        values = self._values_of(index)
        outcome = await self._walker.take_item(self._step, path, values, self._stakes)
        if outcome.status == "completed":
            self._outputs[index] = outcome.output
        elif outcome.failure is not None and self._step.critical and self._failure is None:
            message = f"{path}: {outcome.failure.message}"  # among many items, which one it was matters most
            self._failure = msgspec.structs.replace(outcome.failure, message=message)


class RunningLevel:
    """One list of steps and how far it is."""

    def __init__(
        self, walker: Walker, prefix: str, steps: tuple[PlanStep, ...], values: Values, *, is_optional: bool = False
    ) -> None:
        self._walker = walker
        self._prefix = prefix
        self._is_optional = is_optional
        self._values = values
        self._listed = list(steps)
        self._schedule = Schedule(steps)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: deque[tuple[PlanStep, Outcome]] = deque()
        self._changed = asyncio.Event()
        self._outputs: dict[str, bytes] = {}
        self._error: BaseException | None = None
        self._failure: tuple[str, Failure] | None = None
        self.extensions = 0  # how many times steps were added

    def add(self, steps: tuple[PlanStep, ...]) -> None:
        self.extensions += 1
        self._listed.extend(steps)
        self._schedule.add(steps)
        self._changed.set()

    def plan_now(self, plan: Plan) -> Plan:
        """The plan as it is with all that was added."""
        return dataclasses.replace(plan, steps=tuple(self._listed))

    @property
    def is_done(self) -> bool:
        return self._schedule.done

    def last_output(self) -> bytes:
        for step in reversed(self._listed):
            if step.id in self._outputs:
                return self._outputs[step.id]
        return b"null"

    async def recall(self) -> None:
        """Run nothing, and take what is recorded; a step that has not ended counts as skipped."""
        for step in self._listed:
            self._remember(step, await self._walker.recorded(self._prefix + step.id))

    async def run(self) -> tuple[str, Failure] | None:
        """Every step to its end; returns the critical failure that cut the list short."""
        try:
            while not self._schedule.done:
                self._changed.clear()
                self._abandon_rest()
                self._leave_out(self._schedule.skips())
                for step in self._schedule.take_ready():
                    self._start(step)
                if not self._running and not self._ended:
                    continue
                await self._changed.wait()
                self._settle()
            self._leave_out(self._schedule.skips())
            return self._failure
        finally:
            for task in self._running.values():
                task.cancel()
            if self._running:
                await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start(self, step: PlanStep) -> None:
        async def take() -> None:
            path = self._prefix + step.id
            try:
                stakes = FailureImpact(
                    critical=step.critical,
                    affects=lambda: self._affected_by(step),
                    is_within_optional=self._is_optional,
                )
                outcome = await self._walker.take(step, path, self._values, stakes)
                self._ended.append((step, outcome))
            except BaseException as error:
                self._error = self._error or error
            finally:
                del self._running[step.id]
                self._changed.set()

        self._running[step.id] = asyncio.ensure_future(take())

    def _settle(self) -> None:
        if self._error is not None:
            raise self._error
        while self._ended:
            step, outcome = self._ended.popleft()
            self._remember(step, outcome)
            is_unavailable = outcome.skip_code in skips.UNAVAILABLE
            self._schedule.settle(step.id, "unavailable" if is_unavailable else outcome.status)
            if outcome.status == "failed" and step.critical:
                self._failure = self._failure or (self._prefix + step.id, cast(Failure, outcome.failure))
        self._abandon_rest()

    def _abandon_rest(self) -> None:
        """After a critical failure nothing new begins, whenever it was added."""
        if self._failure is None:
            return
        failed = self._failure[0].removeprefix(self._prefix)
        self._leave_out(self._schedule.abandon(failed, self._has_begun))

    def _has_begun(self, step_id: str) -> bool:
        """Here, or elsewhere with a doubt that must not be passed over; a copied outcome begins nothing."""
        state, path = self._walker.steps.state, self._prefix + step_id
        step = state.steps.get(path)
        if step is not None:
            return not step.kept or step.status != "completed"
        inside = (f"{path}/", f"{path}[")
        return any(one.startswith(inside) and state.steps[one].status == "in_doubt" for one in state.open_steps)

    def _leave_out(self, skipped: list[tuple[PlanStep, skips.Skip]]) -> None:
        for step, why in skipped:
            self._walker.steps.skip(self._prefix + step.id, why, planned(step))
            self._remember(step, Outcome(status="skipped", reason=why.reason, skip_code=why.code))

    def _remember(self, step: PlanStep, outcome: Outcome) -> None:
        if outcome.status == "completed":
            self._outputs[step.id] = outcome.output
        self._values[f"steps.{step.id}"] = _seen(outcome)

    def _affected_by(self, step: PlanStep) -> tuple[str, ...]:
        return tuple(self._prefix + other for other in self._schedule.affected_by(step.id))


_NO_FAILURE = {"category": "", "message": "", "status": 0}


def _seen(outcome: Outcome) -> dict[str, Any]:
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


class _Gap(Tool[..., Any]):
    """In the place of a tool that this process does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda: None, Options(name=name, effect="read"))

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        raise Misconfigured(f"the tool {self.name} is not here")


def planned(step: PlanStep, *, is_item: bool = False) -> Planned:
    """What a step that is left out would have been."""
    kind: ev.StepKind = "for_each" if step.for_each is not None and not is_item else step.kind
    return Planned(step.tool or kind, kind, step.critical)


def _title(step: PlanStep, values: Values) -> str:
    try:
        title = step.title.render(values)
    except ToolError:
        title = step.title.source  # for people only, who can read what it was to be
    return as_text(title) if title is not None else ""


def _approval(step: PlanStep, values: Values) -> Approval:
    assert step.approval is not None
    message = step.approval.message.render(values)
    return Approval(message=as_text(message) if message is not None else "", expires_s=step.approval.expires_s)


def _key(each: ForEach, values: Values, item: Any, index: int) -> str:
    if each.key is None:
        return str(index)
    key = as_text(each.key.render(values.new_child({"item": item, "index": index})))
    if len(key) > KEY_CHARS_MAX:
        raise StepProblem(f"for_each: the key of item {index} has {len(key):,} characters, {KEY_CHARS_MAX} are allowed")
    return quote(key, safe="-_.:@ +,=") or str(index)
