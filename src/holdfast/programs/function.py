"""Functions as programs: a coroutine whose steps are journaled by name and replayed when it runs again.

`@function` makes a coroutine a program; the `Context` it receives is its only door to the durable world. Everything
that must not differ on replay goes through it: calls, time, chance, waiting, children.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.durations import parse_duration
from holdfast.core.error_text import describe_value
from holdfast.core.errors import Divergence, InputInvalid, InvalidCall, UsageError
from holdfast.core.execution import Execution
from holdfast.engine.program import ChildTask, Steps
from holdfast.programs.answer_order import AnswerOrder
from holdfast.programs.context import Context
from holdfast.tools.json_values import encode
from holdfast.tools.registry import Registry
from holdfast.tools.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")

PrepareChild = Callable[[Any, Mapping[str, Any], ev.Parent, ev.TaskCreated], ev.TaskCreated]


class Function(Generic[P, R]):
    """A coroutine that can be handed to the engine. Called directly, it is still that coroutine."""

    __holdfast_function__ = True

    def __init__(
        self,
        coroutine: Callable[P, Awaitable[R]],
        name: str,
        pause_timeout_s: float | None = None,
        on_pause_timeout: ev.OnTimeout = "stop",
    ) -> None:
        self.coroutine = coroutine
        self.name = name
        self._pause_timeout_s = pause_timeout_s
        self._on_pause_timeout: ev.OnTimeout = on_pause_timeout
        functools.update_wrapper(self, coroutine)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return self.coroutine(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.name}>"

    @functools.cached_property
    def signature(self) -> Signature:
        """Its inputs: every parameter but the context."""
        try:
            hints = typing.get_type_hints(self.coroutine, include_extras=True)
        except Exception as error:  # any expression may stand in an annotation, so anything may be raised
            raise UsageError(
                f"{self.name}: its annotations cannot be read ({error}); import or define what they name"
            ) from error
        without_context = functools.partial(cast("Callable[..., Any]", self.coroutine), None)
        return Signature(without_context, hints, self.name)

    def said(self) -> dict[str, Any]:
        """What it says about each of its tasks, as fields of `task:created`."""
        return {"pause_timeout_s": self._pause_timeout_s, "on_pause_timeout": self._on_pause_timeout}

    def check_inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.signature.validate(given)
        except InvalidCall as error:
            raise InputInvalid(f"{error}") from None


@typing.overload
def function(coroutine: Callable[P, Awaitable[R]], /) -> Function[P, R]: ...
@typing.overload
def function(
    *, name: str = "", pause_timeout: float | str | None = None, on_pause_timeout: ev.OnTimeout = "stop"
) -> Callable[[Callable[P, Awaitable[R]]], Function[P, R]]: ...
def function(
    coroutine: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    pause_timeout: float | str | None = None,
    on_pause_timeout: ev.OnTimeout = "stop",
) -> Any:
    """Make a coroutine a program. Its first parameter is the context, the others are its inputs.

    `pause_timeout` is how long a pause of it may last, and `on_pause_timeout` what happens then: "stop" or "resume".
    """
    if coroutine is None:
        return functools.partial(function_of, name=name, pause_timeout=pause_timeout, on_pause_timeout=on_pause_timeout)
    return function_of(coroutine, name)


def function_of(
    coroutine: Callable[..., Any],
    name: str,
    pause_timeout: float | str | None = None,
    on_pause_timeout: ev.OnTimeout = "stop",
) -> Function[..., Any]:
    if not inspect.iscoroutinefunction(coroutine):
        raise UsageError(f"@function is for `async def`, not for {coroutine!r}")
    if not inspect.signature(coroutine).parameters:
        raise UsageError(f"{coroutine.__qualname__}: a function's first parameter is its context; write `(ctx, …)`")
    try:
        seconds, then = pause_limit_of(pause_timeout, on_pause_timeout)
    except InputInvalid as error:
        raise UsageError(f"{coroutine.__qualname__}: {error}") from None
    return Function(coroutine, name or coroutine.__name__, seconds, then or "stop")


def pause_limit_of(timeout: float | str | None, then: ev.OnTimeout | None) -> tuple[float | None, ev.OnTimeout | None]:
    """How long a pause may last, in seconds, and what happens then; None where nothing is said. Raises InputInvalid."""
    if then not in (None, *typing.get_args(ev.OnTimeout)):
        raise InputInvalid(f'on_pause_timeout: expected "stop" or "resume", got {describe_value(then)}')
    try:
        return (None if timeout is None else parse_duration(timeout)), then
    except InputInvalid as error:
        raise InputInvalid(f"pause_timeout: {error}") from None


class FunctionProgram:
    def __init__(self, called: Function[..., Any], inputs: bytes, registry: Registry, prepare: PrepareChild) -> None:
        self._function = called
        self._inputs = inputs
        self._registry = registry
        self._prepare = prepare

    async def run(self, steps: Steps) -> bytes:
        given = msgspec.json.decode(self._inputs)
        values = self._function.check_inputs(given)
        order = AnswerOrder(steps)
        try:
            output = await self._run(order, Context(steps, order, self._registry, self._child_of(steps.state)), values)
        finally:
            order.close()
        return encode(output, f"the output of {self._function.name}")

    async def _run(self, order: AnswerOrder, context: Context, values: Mapping[str, Any]) -> Any:
        try:
            output = await self._function.coroutine(context, **values)
        except Divergence:
            raise
        except Exception:
            await order.finish(self._function.name)
            raise
        await order.finish(self._function.name)
        return output

    def _child_of(self, parent: Execution) -> Callable[[str, Any, Mapping[str, Any]], Awaitable[ChildTask]]:
        async def make(path: str, program: Any, inputs: Mapping[str, Any]) -> ChildTask:
            origin = ev.Parent(id=parent.id, path=path)
            return ChildTask(created=self._prepare(program, inputs, origin, parent.facts()))

        return make


class FunctionKind:
    """Opens recorded function executions. The registry says which functions this process has."""

    def __init__(self, registry: Registry, prepare: PrepareChild) -> None:
        self._registry = registry
        self._prepare = prepare

    def open(self, created: ev.TaskCreated, state: Execution) -> FunctionProgram:
        called: Function[..., Any] = self._registry.function(created.program.name)
        return FunctionProgram(called, bytes(created.inputs), self._registry, self._prepare)
