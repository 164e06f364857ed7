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
from holdfast.core.errors import Divergence, InputInvalid, InvalidCall, UsageError
from holdfast.core.execution import Execution
from holdfast.engine.program import ChildTask, Steps
from holdfast.programs.answer_order import AnswerOrder
from holdfast.programs.context import Context
from holdfast.tools.registry import Registry
from holdfast.tools.signature import Signature
from holdfast.tools.values import encode

P = ParamSpec("P")
R = TypeVar("R")

PrepareChild = Callable[[Any, Mapping[str, Any], ev.Parent, ev.TaskCreated], ev.TaskCreated]


class Function(Generic[P, R]):
    """A coroutine that can be handed to the engine. Called directly, it is still that coroutine."""

    __holdfast_function__ = True

    def __init__(self, coroutine: Callable[P, Awaitable[R]], name: str) -> None:
        self.coroutine = coroutine
        self.name = name
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

    def check_inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.signature.validate(given)
        except InvalidCall as error:
            raise InputInvalid(f"{error}") from None


@typing.overload
def function(coroutine: Callable[P, Awaitable[R]], /) -> Function[P, R]: ...
@typing.overload
def function(*, name: str) -> Callable[[Callable[P, Awaitable[R]]], Function[P, R]]: ...
def function(coroutine: Callable[..., Any] | None = None, /, *, name: str = "") -> Any:
    """Make a coroutine a program. Its first parameter is the context, the others are its inputs."""
    if coroutine is None:
        return functools.partial(function_of, name=name)
    return function_of(coroutine, name)


def function_of(coroutine: Callable[..., Any], name: str) -> Function[..., Any]:
    if not inspect.iscoroutinefunction(coroutine):
        raise UsageError(f"@function is for `async def`, not for {coroutine!r}")
    if not inspect.signature(coroutine).parameters:
        raise UsageError(f"{coroutine.__qualname__}: a function's first parameter is its context; write `(ctx, …)`")
    return Function(coroutine, name or coroutine.__name__)


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
