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
from contextlib import suppress
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from holdfast.core.errors import InvalidCall, ToolError, Trouble, UsageError
from holdfast.core.policy import Approval, Breaker, DoubtPolicy, Effect, Retry
from holdfast.core.resources import Resources
from holdfast.tools.argument_errors import Mistake
from holdfast.tools.call import Call, HeldBack, running_call
from holdfast.tools.class_tools import EXECUTE, Executes, parts_of
from holdfast.tools.hooks import HOOKS, AboutHook, HealthHook, Hook, Hooked, JudgeHook, OutputInvalid, UndoHook
from holdfast.tools.isolated.import_ref import home_of, homeless
from holdfast.tools.json_values import encode
from holdfast.tools.options import Options, place_of, read_options, resolve_hints
from holdfast.tools.runtime.fair_queue import Turns
from holdfast.tools.runtime.thread_pool import pool
from holdfast.tools.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")


class Tool(Hooked, Generic[P, R]):
    """A function Holdfast can call as a step. Called directly, it is still that function."""

    def __init__(self, function: Callable[P, R], options: Options, made_of: Any = None) -> None:
        super().__init__()
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
        self.cost_micros = options.cost_micros
        self.resources = options.resources
        self.idle_timeout_s = options.idle_timeout_s
        self.concurrency = options.concurrency
        self.rate = options.rate
        self.fallbacks = options.fallbacks
        self.breaker = options.breaker
        self._done_output = options.done_output
        self.turns: Callable[[Mapping[str, Any]], Turns] | None = None  # what a call waits for, by its arguments
        self.is_async = inspect.iscoroutinefunction(function)
        self.place = place_of(function)
        # Where another process finds it. Whether it does run there, the tool says or, if None, its step or task.
        self.home = home_of(function if made_of is None else made_of)
        self.isolated = options.isolated if options.isolated is not None or options.resources is None else True
        if self.isolated and self.home is None:
            raise UsageError(homeless(self, function if made_of is None else made_of))
        self._hints = resolve_hints(function)
        if self._hints is not None:
            _ = self.done_output  # a mistake in it is refused here
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

    def needs(self, argument: str) -> bool:
        """Whether it has an argument of this name that cannot be left out."""
        parameter = self.signature.parameters.get(argument)
        return parameter is not None and parameter.required

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """JSON values as the types the function declares; `InvalidCall` names every mistake."""
        validated = self.signature.validate(arguments)
        if self._check is not None:
            self._check_whole(validated)
        return validated

    def _check_whole(self, validated: dict[str, Any]) -> None:
        """What the tool itself says about arguments that are right one by one."""
        assert self._check is not None
        try:
            self._check(validated)
        except ToolError:
            raise
        except Exception as error:
            raise InvalidCall(f"{self.name}: {error}") from error

    def coerce_lenient(self, arguments: bytes) -> bytes:
        """The arguments with what lenient parameters make of them: that is what is shown, journaled and called."""
        if not self.signature.lenient:
            return arguments
        return encode(self.signature.soften(cast("dict[str, Any]", msgspec.json.decode(arguments))))

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        """Every mistake as (argument, message), leaving out the arguments whose values come later."""
        mistakes = self.signature.check(arguments, dynamic)
        if mistakes:
            return mistakes
        try:
            if self._judge is not None:
                self._judge(self.signature.known(arguments, dynamic), dynamic)
            if self._check is not None and not dynamic:
                self._check(self.signature.validate(arguments))
        except Exception as error:  # a judgement is the tool's own code, and its text is what is shown
            return [self._place_in(str(error))]
        return []

    def _place_in(self, text: str) -> Mistake:
        """`url: expected …` names its argument."""
        name, colon, said = text.partition(": ")
        return (name, said) if colon and name in self.signature.parameters else ("", text)

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
                f"{self.name} returned something else than it declares: {error}",
                encoded,
                todo="correct the tool or its annotation",
            ) from None
        return encoded

    @functools.cached_property
    def done_output(self) -> bytes | None:
        """What it gave, as JSON, if a person says that it was done and nothing else; None if it declares nothing."""
        if self._done_output is msgspec.UNSET:
            return None
        try:
            return self.output(self._done_output)
        except OutputInvalid as error:
            raise UsageError(f"tool {self.name} at {self.place}: done_output: {error}") from None

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self.signature.schema()

    @functools.cached_property
    def signature_digest(self) -> str:
        """Differs when name, version or parameters differ, and a recorded call may no longer fit; the effect is beside
        it, because journals that are older than that know only the first part."""
        return f"{self.signature.digest(self.name, self.version)}.{self.effect}"

    def missing(self) -> list[Trouble]:
        """What the tool needs and this machine does not have."""
        unmet: list[Trouble] = []
        for need in self.requires:
            if need.startswith("env:"):
                variable = need.removeprefix("env:")
                if not os.environ.get(variable):
                    unmet.append(Trouble(f"{self.name} needs the environment variable {variable}", "set it"))
            elif shutil.which(need) is None:
                what = f'{self.name} needs the program "{need}", which is not on PATH'
                unmet.append(Trouble(what, "install it"))
        return unmet

    # ---- running

    @property
    def is_theirs(self) -> bool:
        """Whether somebody else than Holdfast wrote it."""
        return not str(self.function.__module__).startswith("holdfast.")

    @property
    def can_isolate(self) -> bool:
        """Whether a process of its own would find this very tool, or its function."""
        found = self.home.thing() if self.home is not None and self.isolated is not False else None
        return found is not None and (found is self or found is self.function)

    def placed(self, arguments: dict[str, Any], call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Validated arguments as the function takes them, by position and by name."""
        signature = self.signature
        kwargs = {**arguments, signature.call_parameter: call} if signature.call_parameter else arguments
        return _split_positional(signature.positional_only, kwargs) if signature.positional_only else ((), kwargs)

    async def invoke(self, arguments: dict[str, Any], call: Call) -> Any:
        """Call the function with validated arguments; a `def` runs in a thread."""
        args, kwargs = self.placed(arguments, call)
        token = running_call.set(call)
        try:
            function = cast("Callable[..., Any]", self.function)
            if self.is_async:
                if call.gate is not None and not call.gate():
                    raise HeldBack
                return await function(*args, **kwargs)
            call.enter_thread(asyncio.get_running_loop())
            result = await pool.run(functools.partial(_begin, call, function, args, kwargs))
            # A `def` that returns a coroutine, such as a lambda around an async function, is finished on the loop.
            return await result if inspect.isawaitable(result) else result
        finally:
            with suppress(ValueError):  # one that was left behind ends in another task, whose context is another one
                running_call.reset(token)


class _Make(Protocol):
    """`@tool(…)` before a function or a class."""

    @overload
    def __call__(self, made_of: type[Executes[P, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, made_of: Executes[P, R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, made_of: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(made_of: type[Executes[P, R]], /) -> Tool[P, R]: ...
@overload
def tool(made_of: Callable[P, R], /) -> Tool[P, R]: ...
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
    cost: float | None = None,
    resources: Resources | Mapping[str, Any] | None = None,
    isolated: bool | None = None,
    idle_timeout: float | str | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    fallbacks: Sequence[str] = (),
    breaker: bool | Breaker = True,
    done_output: Any = msgspec.UNSET,
    version: str = "1",
    requires: Sequence[str] = (),
    description: str | None = None,
    validate: AboutHook | None = None,
    judge: JudgeHook | None = None,
    estimate: AboutHook | None = None,
    health: HealthHook | None = None,
    verify: Hook | None = None,
    reduce: Hook | None = None,
    refresh: Hook | None = None,
    undo: UndoHook | None = None,
) -> _Make: ...
def tool(made_of: Any = None, /, **declared: Any) -> Any:
    """Make a function or a class a tool. Without a declared effect it counts as `once`: never run again silently."""
    if made_of is not None:
        return _make(made_of, declared)
    return functools.partial(_make, declared=declared)


def _make(made_of: Any, declared: dict[str, Any]) -> Tool[..., Any]:
    given = dict(declared)
    hooks = {kind: hook for kind in HOOKS if (hook := given.pop(kind, None)) is not None}
    function = made_of
    if isinstance(made_of, Tool):
        raise UsageError(f"@tool is for functions and classes, not for {made_of!r}")
    if isinstance(made_of, type) or hasattr(cast("object", made_of), EXECUTE) or not callable(made_of):
        function, name, description, own = parts_of(made_of)
        given = {"name": name, "description": description or None, **given}
        hooks = {**own, **hooks}
    made: Tool[..., Any] = Tool(function, read_options(function, given), made_of)
    for kind, hook in hooks.items():
        made.declare(kind, hook)
    return made


def _begin(call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In the thread: it may have waited for one."""
    if call.gate is not None and not call.gate():
        raise HeldBack
    return function(*args, **kwargs)


def _split_positional(names: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional-only arguments, up to the first one left to its default."""
    rest = dict(given)
    args: list[Any] = []
    for name in names:
        if name not in rest:
            break
        args.append(rest.pop(name))
    return tuple(args), rest
