"""Fake tools: they answer as a test says, remember how they were called, and take the place of a real tool's calls.

A fake of a real tool keeps the real one's signature, effect and limits, so that a wrong argument is found in the lab as
it would be in the world. Its hooks are the lab's: nothing of the real tool runs.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import InvalidCall, UsageError
from holdfast.core.policy import Effect
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.steps import StandIn
from holdfast.tools.argument_errors import Mistake
from holdfast.tools.call import Call, DidNotHappen, Happened, Verdict
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.tool import Tool, tool

Raises = BaseException | type[BaseException]
AnyTool = Tool[..., Any]


class ToolCall(msgspec.Struct, kw_only=True):
    """One call that reached a tool. `cut` means that its process was killed before the tool had answered."""

    tool: str
    path: str
    arguments: dict[str, Any]
    key: str
    attempt: int
    execution_id: str
    at_s: float
    effect: str
    ended: Literal["returned", "raised", "cut"] = "cut"
    output: Any = None
    error: str = ""


class FakeOptions(msgspec.Struct, frozen=True, kw_only=True):
    returns: Any = msgspec.UNSET  # which answers None
    raises: Raises | Sequence[Raises] = ()
    does: Callable[..., Any] | None = None
    takes: float | str = 0.0
    effect: Effect | None = None


class Fake:
    """`calls` are those of the last run."""

    def __init__(self, name: str, real: AnyTool | None, options: FakeOptions) -> None:
        self.name = name
        self.calls: list[ToolCall] = []
        self._options = options
        self._real = real
        self._takes_s = parse_duration(options.takes)
        self._raised = 0
        self._answered: dict[str, Any] = {}
        self._made: dict[int, AnyTool] = {}
        _check(name, options)

    def __repr__(self) -> str:
        return f"<fake {self.name}, called {len(self.calls)} times>"

    def begin(self) -> None:
        """A new run: nothing was called yet."""
        self.calls = []
        self._raised = 0
        self._answered = {}

    def tool_for(self, real: AnyTool | None = None) -> AnyTool:
        """The fake as a tool, in the shape of the real one if that is known."""
        known = real or self._real
        if id(known) not in self._made:
            made = self._alone() if known is None else self._shaped_like(known)
            if known is None or known.can_verify:  # what the real tool cannot tell, its fake must not know either
                made.verify(self._truth)
            self._made[id(known)] = made
        return self._made[id(known)]

    def _shaped_like(self, real: AnyTool) -> AnyTool:
        made = copy.copy(real)
        made.effect = self._options.effect or real.effect
        made.requires = ()
        if real.can_refresh:
            made.refresh(_nothing_to_refresh)
        return made

    def _alone(self) -> AnyTool:
        function = self._options.does or _without_signature
        made = tool(name=self.name, effect=self._options.effect or "once")(function)
        try:
            if self._options.does is not None and made.signature:
                return made
        except UsageError:
            pass  # it takes what it gets, such as **arguments
        made.__dict__["signature"] = _AnyArguments(self.name)
        return made

    async def answer(self, arguments: dict[str, Any], call: Call, shaped: AnyTool) -> Any:
        """What the tool would return. An idempotent one, called again with the same key, gives the same answer."""
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        if shaped.effect == "idempotent" and call.key in self._answered:
            return self._answered[call.key]
        self._raise_if_told()
        value = None if self._options.returns is msgspec.UNSET else self._options.returns
        if self._options.does is not None:
            does = self._options.does
            value = does(**_defaults(does, shaped, arguments), **arguments, **_call_wanted(does, call))
            if inspect.isawaitable(value):
                value = await value
        self._answered[call.key] = value
        return value

    def _raise_if_told(self) -> None:
        told = self._options.raises
        if isinstance(told, BaseException | type):
            raise told
        if self._raised < len(told):
            self._raised += 1
            raise told[self._raised - 1]

    async def _truth(self, call: Call, arguments: dict[str, Any]) -> Verdict:
        return Happened(self._answered[call.key]) if call.key in self._answered else DidNotHappen()


def _check(name: str, options: FakeOptions) -> None:
    """Every mistake is found where the fake is made, not somewhere in a run."""
    if options.does is not None and not callable(options.does):
        raise LabError(f"the fake {name}: does= takes a function, not {options.does!r}; returns= takes a value")
    if options.does is not None and options.returns is not msgspec.UNSET:
        raise LabError(f"the fake {name}: does= says what it returns, so leave out one of does= and returns=")
    effects = get_args(Effect)
    if options.effect is not None and options.effect not in effects:
        hint = did_you_mean(str(options.effect), effects)
        raise LabError(f"the fake {name}: effect= is one of {', '.join(effects)}, not {options.effect!r}{hint}")
    told: Any = options.raises
    errors = cast("Sequence[Any]", told if isinstance(told, list | tuple) else [told])
    for error in errors:
        if not isinstance(error, BaseException) and not (isinstance(error, type) and issubclass(error, BaseException)):
            raise LabError(
                f"the fake {name}: raises= takes errors, one or a list, such as "
                f'holdfast.Transient("down"); not {error!r}'
            )


class FakeInvalid(OutputInvalid):
    """The fake returned something else than its tool declares; nothing has happened anywhere."""

    def __init__(self, message: str = "", *, todo: str = "") -> None:
        super().__init__(message, todo=todo)
        self.has_returned = False


class FakeStandIn(StandIn):
    """A wrong answer is the fake's mistake, not the tool's."""

    def output(self, value: Any) -> bytes:
        try:
            return self._tool.output(value)
        except OutputInvalid as error:
            todo = "that came from your fake: correct its returns= or does="
            raise FakeInvalid(error.what, todo=todo) from None


def _defaults(does: Callable[..., Any], shaped: AnyTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the real tool would have filled in, where the function in its place asks for it."""
    known = shaped.signature.parameters
    wanted = (name for name in _needed_parameters(does) if name in known and name not in arguments)
    return {name: known[name].default for name in wanted if not known[name].required}


@functools.lru_cache(maxsize=256)
def _needed_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty)


def _call_wanted(function: Callable[..., Any], call: Call) -> dict[str, Call]:
    return {name: call for name in _call_parameters(function)}


@functools.lru_cache(maxsize=256)
def _call_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    annotations = (Call, "Call", "holdfast.Call")
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.annotation in annotations)


def _without_signature() -> None: ...


async def _nothing_to_refresh(call: Call, arguments: dict[str, Any]) -> None: ...


class _AnyArguments:
    """The signature of a fake about which nothing is known but its name."""

    call_parameter = ""
    positional_only: tuple[str, ...] = ()
    lenient: tuple[str, ...] = ()
    return_type = Any
    return_decoder = None
    lenient: tuple[str, ...] = ()

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.parameters: dict[str, Any] = {}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise InvalidCall(f"the fake {self._owner} does not know its parameters; name the arguments")
        return dict(kwargs)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        return []

    def schema(self) -> dict[str, Any]:
        return cast("dict[str, Any]", {"type": "object"})

    def digest(self, name: str, version: str) -> str:
        return ""
