"""The tool: a typed function that declares its effect, its limits and how its outcome can be checked.

Owns the `@tool` decorator and what the engine asks of a tool. Refuses to register anything by being imported: a
registry is told about tools (registry.py), so two engines in one process can know different ones.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import shutil
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from holdfast.core.errors import ToolError, UsageError
from holdfast.core.failure import Category
from holdfast.core.policy import Approval, DoubtPolicy, Effect, Retry
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict, running_call
from holdfast.tools.options import Options, place_of, read_options, resolve_hints
from holdfast.tools.signature import Signature
from holdfast.tools.threads import NeverBegan, StillRunning, pool
from holdfast.tools.values import encode
from holdfast.tools.wording import Mistake

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[[Call, dict[str, Any]], Any]
HookT = TypeVar("HookT", bound=Hook)


class OutputInvalid(ToolError):
    """The tool returned something else than it declares."""

    category: Category = "logic"


class Tool(Generic[P, R]):
    """A function Holdfast can call as a step. Called directly, it is still that function."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        self.function = function
        self.name = options.name
        self.effect: Effect = options.effect
        self.timeout_s = options.timeout_s
        self.retry = options.retry
        self.in_doubt: DoubtPolicy = options.in_doubt
        self.approval = options.approval
        self.cache_s = options.cache_s
        self.version = options.version
        self.requires = options.requires
        self.description = options.description
        self.is_async = inspect.iscoroutinefunction(function)
        self.place = place_of(function)
        self._verify: Hook | None = None
        self._reduce: Hook | None = None
        self._refresh: Hook | None = None
        self._hints = resolve_hints(function)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self.effect}) at {self.place}>"

    # ---- arguments and output

    @functools.cached_property
    def signature(self) -> Signature:
        hints = self._hints
        if hints is None:  # a name that did not exist when the tool was declared may exist by now
            try:
                hints = typing.get_type_hints(self.function, include_extras=True)
            except Exception as error:
                raise UsageError(
                    f"{self.name}: its annotations cannot be read ({error}); import or define what they name"
                ) from error
        return Signature(self.function, hints, self.name)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """A Python call as named arguments, not yet checked."""
        return self.signature.bind(args, kwargs)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """JSON values as the types the function declares; `InvalidCall` names every mistake."""
        return self.signature.validate(arguments)

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        """Every mistake as (argument, message), leaving out the arguments whose values come later."""
        return self.signature.check(arguments, dynamic)

    def output(self, value: Any) -> bytes:
        """What the tool returned, checked against what it declares, as JSON bytes."""
        encoded = encode(value, f"the output of {self.name}")
        decoder = self.signature.return_decoder
        if decoder is None or type(value) is self.signature.return_type:
            return encoded
        try:
            decoder.decode(encoded)
        except msgspec.ValidationError as error:
            raise OutputInvalid(
                f"{self.name} returned something else than it declares: {error}; correct the tool or its annotation"
            ) from None
        return encoded

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self.signature.schema()

    @functools.cached_property
    def signature_digest(self) -> str:
        """Differs when name, version or parameters differ: a recorded call may no longer fit."""
        return self.signature.digest(self.name, self.version)

    def missing(self) -> list[str]:
        """What the tool needs and this machine does not have, as sentences."""
        unmet: list[str] = []
        for need in self.requires:
            if need.startswith("env:"):
                variable = need.removeprefix("env:")
                if not os.environ.get(variable):
                    unmet.append(f"{self.name} needs the environment variable {variable}; set it")
            elif shutil.which(need) is None:
                unmet.append(f'{self.name} needs the program "{need}", which is not on PATH; install it')
        return unmet

    # ---- running

    async def invoke(self, arguments: dict[str, Any], call: Call) -> Any:
        """Call the function with validated arguments; a `def` runs in a thread."""
        signature = self.signature
        kwargs = arguments
        if signature.call_parameter:
            kwargs = {**arguments, signature.call_parameter: call}
        args: tuple[Any, ...] = ()
        if signature.positional_only:
            args, kwargs = _split_positional(signature.positional_only, kwargs)
        token = running_call.set(call)
        try:
            function = cast("Callable[..., Any]", self.function)
            if self.is_async:
                return await function(*args, **kwargs)
            call.enter_thread(asyncio.get_running_loop())
            result = await pool.run(functools.partial(function, *args, **kwargs))
            # A `def` that returns a coroutine, such as a lambda around an async function, is finished on the loop.
            return await result if inspect.isawaitable(result) else result
        finally:
            running_call.reset(token)

    # ---- hooks

    def verify(self, hook: HookT) -> HookT:
        """Declare the tool's own check: did the effect of this call happen? Returns a verdict."""
        self._verify = hook
        return hook

    def reduce(self, hook: HookT) -> HookT:
        """Declare how to ask for less when memory or disk ran short. Returns smaller arguments."""
        self._reduce = hook
        return hook

    def refresh(self, hook: HookT) -> HookT:
        """Declare how to renew credentials after a refusal."""
        self._refresh = hook
        return hook

    @property
    def can_verify(self) -> bool:
        return self._verify is not None

    @property
    def can_reduce(self) -> bool:
        return self._reduce is not None

    @property
    def can_refresh(self) -> bool:
        return self._refresh is not None

    async def run_verify(self, arguments: dict[str, Any], call: Call) -> Verdict:
        verdict = await self._run_hook(self._verify, "verify", arguments, call)
        if not isinstance(verdict, Happened | DidNotHappen | Unknown):
            raise OutputInvalid(
                f"{self.name}: its verify hook returned {verdict!r}; "
                "return Happened(output), DidNotHappen() or Unknown()"
            )
        return verdict

    async def run_reduce(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        reduced = await self._run_hook(self._reduce, "reduce", arguments, call)
        if not isinstance(reduced, dict):
            raise OutputInvalid(
                f"{self.name}: its reduce hook returned {reduced!r}; return the smaller arguments as a dict"
            )
        return cast("dict[str, Any]", reduced)

    async def run_refresh(self, arguments: dict[str, Any], call: Call) -> None:
        await self._run_hook(self._refresh, "refresh", arguments, call)

    async def _run_hook(self, hook: Hook | None, kind: str, arguments: dict[str, Any], call: Call) -> Any:
        if hook is None:
            raise UsageError(f"{self.name} has no {kind} hook; declare one with @….{kind}")
        token = running_call.set(call)
        try:
            if inspect.iscoroutinefunction(hook):
                return await hook(call, arguments)
            call.enter_thread(asyncio.get_running_loop())
            try:
                return await pool.run(functools.partial(hook, call, arguments))
            except (NeverBegan, StillRunning):
                raise asyncio.CancelledError from None
        finally:
            running_call.reset(token)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "once",
    timeout: float | str | None = None,
    retry: int | Retry | None = None,
    in_doubt: DoubtPolicy = "ask",
    approval: bool | str | Approval | None = None,
    cache: float | str | None = None,
    version: str = "1",
    requires: Sequence[str] = (),
    description: str | None = None,
    verify: Hook | None = None,
    reduce: Hook | None = None,
    refresh: Hook | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Make a function a tool. Without a declared effect it counts as `once`: never run again silently."""
    if function is not None:
        return _make(function, declared)
    return functools.partial(_make, declared=declared)


def _make(function: Callable[..., Any], declared: dict[str, Any]) -> Tool[..., Any]:
    if not callable(function) or isinstance(function, type | Tool):
        raise UsageError(f"@tool is for functions, not for {function!r}")
    given = dict(declared)
    hooks = {kind: given.pop(kind, None) for kind in ("verify", "reduce", "refresh")}
    made = Tool(function, read_options(function, given))
    for kind, hook in hooks.items():
        if hook is not None:
            getattr(made, kind)(hook)
    return made


def _split_positional(names: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional-only arguments, up to the first one left to its default."""
    rest = dict(given)
    args: list[Any] = []
    for name in names:
        if name not in rest:
            break
        args.append(rest.pop(name))
    return tuple(args), rest
