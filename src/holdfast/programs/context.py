"""What a function sees of the engine. Steps are named, never counted by position.

A step's path is scope + name + occurrence: the second `fetch` in the same scope is `fetch~2`. Branches open scopes of
their own, so that what runs side by side never competes for names.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.error_text import quoted
from holdfast.core.errors import Cancelled, StepFailed, UsageError
from holdfast.core.failure import Failure
from holdfast.core.forms import ASK
from holdfast.core.inputs import INPUT_TYPES, InputType
from holdfast.core.policy import DEFAULT_POLICY, Effect, StepPolicy
from holdfast.core.secret_refs import NAME, SecretText, marked, secret
from holdfast.engine.drive.steps_port import CANCELLED
from holdfast.engine.program import ChildTask, FallbackTool, Outcome, StepCall, Steps
from holdfast.engine.step.perform import input_digest, short
from holdfast.programs.answer_order import AnswerOrder, Asking
from holdfast.programs.gather import Gathering
from holdfast.tools.call import Call, running_call
from holdfast.tools.human import asking as human_ask
from holdfast.tools.json_values import encode
from holdfast.tools.registry import Registry
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.tool import Tool

T = TypeVar("T")
NAME_CHARS_MAX = 200
MakeChild = Callable[[str, Any, Mapping[str, Any]], Awaitable[ChildTask]]
Branch = Awaitable[Any] | Callable[["Context"], Awaitable[Any]]


class Context:
    def __init__(
        self, steps: Steps, order: AnswerOrder, registry: Registry, make_child: MakeChild, scope: str = ""
    ) -> None:
        self._steps = steps
        self._order = order
        self._registry = registry
        self._make_child = make_child
        self._scope = scope
        self._seen: dict[str, int] = {}
        self._owner = asyncio.current_task()
        self._told_secrets: set[str] = (
            set()
        )  # shared with the contexts inside; while it is empty, nothing is looked for

    @property
    def id(self) -> str:
        """The execution's id."""
        return self._steps.state.id

    # ---- doing --------------------------------------------------------------------------------------------------

    def call(
        self,
        tool: Tool[..., Any] | str,
        /,
        *args: Any,
        name: str | None = None,
        policy: StepPolicy = DEFAULT_POLICY,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Awaitable[Any]:
        """Call a tool as a step. The step gets its path now, in the order of the code; await it when you like.

        `name` is the step's. `arguments` are more arguments of the tool, such as one that is called `name`, too.
        """
        found = self._registry.get(tool) if isinstance(tool, str) else tool
        if not isinstance(found, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
            raise UsageError(f"ctx.call takes a tool, not {tool!r}; decorate it with @tool, or use ctx.run for code")
        path = self._path(found.name, name)
        call = StepCall(
            path=path,
            tool=found,
            arguments=_bound(found, args, kwargs, arguments, name),
            policy=policy,
            fallbacks=self._fallbacks(found, policy) if policy.fallback or found.fallbacks else (),
            strict=True,
        )
        return self._perform(_with_secrets(call) if self._told_secrets else call)

    def secret(self, name: str) -> SecretText:
        """A secret of the settings, for the arguments of a tool: alone, or `"Bearer " + ctx.secret("TOKEN")`.

        Its value is not known here: the tool gets it when it is called, and it stands in no journal.
        """
        if not NAME.fullmatch(name):
            raise UsageError(f"ctx.secret: {quoted(name)} cannot be the name of a secret")
        self._told_secrets.add(name)
        return secret(name)

    def _fallbacks(self, tool: Tool[..., Any], policy: StepPolicy) -> tuple[FallbackTool, ...]:
        if not policy.fallback:
            there = self._registry.names()  # one of a server that is away is not
            return tuple(FallbackTool(self._registry.get(other)) for other in tool.fallbacks if other in there)
        return tuple(FallbackTool(self._registry.get(other.tool), other.arguments) for other in policy.fallback)

    def run(
        self, name: str, work: Callable[..., Any], *args: Any, effect: Effect = "idempotent", **kwargs: Any
    ) -> Awaitable[Any]:
        """Run plain code, sync or async, as a step: once it has answered, a replay gets the same answer."""
        path = self._path(name, name)
        if self._told_secrets and any(isinstance(given, SecretText) for given in (*args, *kwargs.values())):
            raise UsageError(f"ctx.run({quoted(name)}): plain code gets no secrets; make it a tool and use ctx.call")
        tool = cast("Tool[..., Any]", _Code(name, lambda: work(*args, **kwargs), effect))
        return self._perform(StepCall(path=path, tool=tool, arguments={}, kind="code", strict=True))

    async def _perform(self, call: StepCall) -> Any:
        asking = Asking(call.path, self._scope, partial(_told, call))
        outcome = await self._order.answer(asking, partial(self._steps.perform, call))
        return _typed(call.tool, _value(call.path, outcome))

    # ---- waiting ------------------------------------------------------------------------------------------------

    def sleep(self, duration: float | str, *, name: str | None = None) -> Awaitable[None]:
        """Wait for a while, through restarts: seconds, or a text such as "2h30m"."""
        path = self._path("sleep", name)
        seconds = parse_duration(duration)
        return self._sleep(path, lambda: self._steps.now_us() + int(seconds * 1e6), f"{seconds:g} s")

    def sleep_until(self, moment: datetime | str, *, name: str | None = None) -> Awaitable[None]:
        path = self._path("sleep", name)
        due_at = parse_moment(moment.isoformat() if isinstance(moment, datetime) else moment)
        return self._sleep(path, lambda: due_at, "", input_digest("until", encode(due_at)))

    async def _sleep(self, path: str, due_at: Callable[[], int], label: str, digest: str = "") -> None:
        self._steps.expect(path, "wait.timer", label)
        asking = Asking(path, self._scope, f"wait.timer {label}".rstrip)
        _value(path, await self._order.answer(asking, lambda: self._steps.sleep(path, due_at(), label, digest)))

    def wait_for(self, event: str, *, timeout: float | str | None = None, name: str | None = None) -> Awaitable[Any]:
        """Wait for an event from outside and return its data. One that came early is taken at once."""
        path = self._path(f"wait_for.{event}", name)
        return self._wait_for(path, event, timeout)

    async def _wait_for(self, path: str, event: str, limit: float | str | None) -> Any:
        self._steps.expect(path, "wait.event", event)
        limit_us = None if limit is None else int(parse_duration(limit) * 1e6)

        def wait() -> Awaitable[Outcome]:
            due_at = None if limit_us is None else self._steps.now_us() + limit_us
            return self._steps.wait_event(path, event, due_at)

        asking = Asking(path, self._scope, lambda: f"wait.event {event}")
        return msgspec.json.decode(_value(path, await self._order.answer(asking, wait)))

    def ask(
        self,
        message: str,
        *,
        type: InputType = "any",
        form: Mapping[str, Any] | None = None,
        expires: float | str | None = None,
        name: str | None = None,
    ) -> Awaitable[Any]:
        """Ask a person and return the answer, which must be of the type asked for, or a map that fits the form.

        For choices, defaults and silence that counts as one of them, call the tool `human.ask`.
        """
        if form is not None or expires is not None:
            more: dict[str, Any] = {"form": form} if form is not None else {"type": type}
            if expires is not None:
                more["expires"] = expires
            return self.call(human_ask, message, name=name or "ask", **more)
        path = self._path("ask", name)
        return self._ask(path, message, type)

    async def _ask(self, path: str, message: str, wanted: InputType) -> Any:
        if wanted not in INPUT_TYPES:
            raise UsageError(f"ask: there is no type {wanted!r}; there are: {', '.join(INPUT_TYPES)}")
        self._steps.expect(path, ASK, message)
        schema = Raw(encode({"type": wanted}))
        asking = Asking(path, self._scope, lambda: f"{ASK} {message}")
        outcome = await self._order.answer(asking, lambda: self._steps.ask(path, message, schema))
        return msgspec.json.decode(_value(path, outcome))

    # ---- side by side -------------------------------------------------------------------------------------------

    async def gather(self, *branches: Branch, settle: bool = False, limit: int | None = None) -> list[Any]:
        """Run branches side by side: awaitables made by this context, or callables that take a context of their own.

        When one fails, what the others run comes to its end, what they wait for is given up, and each gets
        `holdfast.Cancelled` at its next `ctx` call; then the error is raised. With `settle` none is cancelled, and an
        error stands in the list in the place of its branch's result. At most `limit` run at a time.
        """
        scope = self._path("gather", None)
        if limit is not None and limit < 1:
            raise UsageError(f"ctx.gather: limit must be at least 1, not {limit}")
        makes = [partial(self._branch, branch, f"{scope}[{index}]/") for index, branch in enumerate(branches)]
        try:
            return await Gathering(self._order, makes, settle=settle, limit=limit or max(1, len(makes))).run()
        finally:
            for branch in branches:
                if inspect.iscoroutine(branch):  # its task may never have begun
                    branch.close()

    async def _branch(self, branch: Branch, scope: str) -> Any:
        if isinstance(branch, Awaitable):
            return await cast("Awaitable[Any]", branch)
        return await branch(self._inner(scope))

    def branch(self, name: str) -> Context:
        """A context with a scope of its own, for code in a task of its own."""
        inner = self._inner(f"{self._path(name, name)}/")
        inner._owner = None
        return inner

    def _inner(self, scope: str) -> Context:
        inner = Context(self._steps, self._order, self._registry, self._make_child, scope)
        inner._told_secrets = self._told_secrets
        return inner

    def start(
        self, program: Any, inputs: Mapping[str, Any] | None = None, *, name: str | None = None
    ) -> Awaitable[ChildRun]:
        """Start a child execution: a function, its name, or a plan file."""
        label = program if isinstance(program, str) else getattr(program, "name", "child")
        path = self._path(f"start.{Path(label).stem}", name)
        return self._start(path, program, inputs or {})

    async def _start(self, path: str, program: Any, inputs: Mapping[str, Any]) -> ChildRun:
        label = program if isinstance(program, str) else str(getattr(program, "name", program))
        digest = input_digest(label, encode(inputs, "the inputs"))
        self._steps.expect(path, "child", digest=digest)
        asking = Asking(path, self._scope, lambda: f"child {label}", starts_child=True)
        child_id = await self._order.answer(
            asking, lambda: self._steps.start_child(path, lambda: self._make_child(path, program, inputs), digest)
        )
        return ChildRun(self._steps, self._order, self._scope, path, child_id)

    # ---- what must not differ -----------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The time, the same on every replay."""
        at = self._once("now", self._steps.now_us)
        return datetime.fromtimestamp(at / 1e6, UTC)

    def random(self) -> float:
        """A number in [0, 1), the same on every replay."""
        return self._once("random", self._steps.rng.random)

    def uuid(self) -> str:
        """A random UUID, the same on every replay."""
        return self._once("uuid", lambda: str(uuid.UUID(int=self._steps.rng.getrandbits(128), version=4)))

    def _once(self, name: str, make: Callable[[], T]) -> T:
        path = self._path(name, None)
        self._steps.expect(path, "code")
        step = self._steps.state.steps.get(path)
        if step is None or step.status != "completed":
            self._steps.open(path, "code")
            self._steps.close(path, encode(make()))
            step = self._steps.state.steps[path]
        return msgspec.json.decode(step.output)

    def patched(self, name: str) -> bool:
        """Whether this execution runs the code as it is since the change of this name: `if ctx.patched("v2"): …`.

        One answer for each name and execution, recorded: no, if it has begun a step of this scope that the code has not
        asked for yet, and so has gone another way; yes otherwise.
        """
        self._order.check_cancelled()
        path = f"patched.{_segment(name)}"
        self._order.asked("", path)
        step = self._steps.state.steps.get(path)
        if step is None or step.status != "completed":
            answer = self._order.is_new_ground(self._scope, self._has_asked)
            self._steps.open(path, "code")
            self._steps.close(path, encode(answer))
            step = self._steps.state.steps[path]
        return msgspec.json.decode(step.output)

    # ---- names --------------------------------------------------------------------------------------------------

    def _path(self, default: str, name: str | None) -> str:
        if name is None and self._owner is not None and asyncio.current_task() is not self._owner:
            raise UsageError(
                f"{default}: a step asked for from another asyncio task needs a name, because tasks run in any order; "
                "pass name=…, or use ctx.gather or ctx.branch"
            )
        self._order.check_cancelled()
        base = _segment(name or default)
        count = self._seen.get(base, 0) + 1
        self._seen[base] = count
        segment = base if count == 1 else f"{base}~{count}"
        if self._order.has_unasked:
            self._order.asked(self._scope, segment)
        return f"{self._scope}{segment}"

    def _has_asked(self, segment: str) -> bool:
        base, _, number = segment.partition("~")
        return self._seen.get(base, 0) >= int(number or 1) or base.startswith("patched.")


class ChildRun:
    """A child execution, as its parent sees it."""

    def __init__(self, steps: Steps, order: AnswerOrder, scope: str, path: str, child_id: str) -> None:
        self._steps = steps
        self._order = order
        self._scope = scope
        self._path = path
        self.id = child_id

    async def result(self) -> Any:
        """The child's output, once it has ended. Raises StepFailed if it did not complete."""
        asking = Asking(self._path, self._scope, lambda: "child")
        child = await self._order.answer(asking, partial(self._steps.wait_child, self._path))
        if child.status == "skipped":  # a person left it out: like any step that was, it gives nothing
            return None
        if child.status != "completed":
            failure = child.failure or Failure(category="tool", message=f"the child execution was {child.status}")
            raise StepFailed(self._path, failure)
        return msgspec.json.decode(await self._steps.value(child.output))


class _Code:
    """Plain code in the shape of a tool."""

    retry = approval = cache_s = timeout_s = idle_timeout_s = cost_micros = breaker = resources = None
    isolated = can_isolate = is_theirs = False  # it is where its function is; the guide says so, not every step
    in_doubt = "ask"
    version = "1"
    can_verify = can_reduce = can_refresh = False

    def __init__(self, name: str, work: Callable[[], Any], effect: Effect) -> None:
        self.name = name
        self.effect = effect
        self._work = work

    def validate(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    def output(self, value: Any) -> bytes:
        return encode(value, f"the result of {self.name}")

    async def invoke(self, arguments: Mapping[str, Any], call: Call) -> Any:
        token = running_call.set(call)  # so that what it prints is known to be its own
        try:
            result = self._work()
            return await result if inspect.isawaitable(result) else result
        finally:
            running_call.reset(token)


def _bound(
    tool: Tool[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    more: Mapping[str, Any] | None,
    step_name: str | None,
) -> dict[str, Any]:
    """A call as named arguments of the tool, given in Python's way and in a mapping."""
    if more is not None and not isinstance(more, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise UsageError(f"{tool.name}: arguments: expected a mapping of the tool's arguments, got {more!r:.80}")
    if twice := sorted(kwargs.keys() & (more or {}).keys()):
        raise UsageError(f"{tool.name}: {twice[0]}: given twice, by name and in arguments; give it once")
    bound = tool.bind(args, {**kwargs, **(more or {})})
    if step_name is not None and "name" not in bound and tool.needs("name"):
        raise UsageError(
            f"{tool.name}: name={quoted(step_name)} is the name of the step, and the tool needs an argument called "
            f'name; give that one with arguments={{"name": …}}'
        )
    return bound


def _with_secrets(call: StepCall) -> StepCall:
    """The same call with its secrets as references; one that has none is left as it is."""
    names: set[str] = set()
    arguments = marked(call.arguments, names)
    fallbacks = tuple(FallbackTool(other.tool, marked(other.arguments, names)) for other in call.fallbacks)
    if not names:
        return call
    return msgspec.structs.replace(call, arguments=arguments, fallbacks=fallbacks, secrets=tuple(sorted(names)))


def _segment(name: str) -> str:
    """A name as part of a path: slashes and brackets have a meaning there."""
    if len(name) > NAME_CHARS_MAX:
        shown = quoted(name[:40] + "…")
        raise UsageError(f"{shown} is too long for a step: {len(name):,} characters, {NAME_CHARS_MAX} are allowed")
    if not name or not name.isprintable() or any(character in name for character in "/[]~#"):
        raise UsageError(f"{quoted(name)} cannot name a step; use letters, digits, dots, dashes and underscores")
    return name


def _told(call: StepCall) -> str:
    return f"{call.tool.name} {short(masks.json(encode(call.arguments, call.path)))}"


def _value(path: str, outcome: Outcome) -> bytes:
    if outcome.reason == CANCELLED:
        raise Cancelled
    if outcome.status == "failed":
        raise StepFailed(path, outcome.failure or Failure(category="unknown", message="it failed"))
    return outcome.output


def _typed(tool: Any, output: bytes) -> Any:
    """The output as the tool's return annotation says; a value a person supplied may be of another shape."""
    signature = getattr(tool, "signature", None)
    decoder = signature.return_decoder if signature is not None else None
    if decoder is not None:
        try:
            return decoder.decode(output)
        except msgspec.ValidationError:
            pass
    return msgspec.json.decode(output)
