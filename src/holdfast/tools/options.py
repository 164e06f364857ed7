"""What a tool declares about itself, with every shorthand read and every mistake refused where the tool is declared."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from holdfast.core.budget import read_usd
from holdfast.core.durations import parse_duration
from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid, UsageError
from holdfast.core.plan.resources import resources_of
from holdfast.core.policy import FALLBACKS_MAX, Approval, Breaker, DoubtPolicy, Effect, Retry
from holdfast.core.resources import Resources
from holdfast.tools.argument_errors import explained
from holdfast.tools.runtime.fair_queue import Rate, parse_rate

_DECORATING = ("holdfast.tools.options", "holdfast.tools.tool", "functools")
CONCURRENCY_MAX = 10_000  # calls of one tool at once


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool declares about itself, with every shorthand already read."""

    name: str
    effect: Effect = "once"
    timeout_s: float | None = None
    retry: Retry | None = None
    in_doubt: DoubtPolicy = "ask"
    approval: Approval | None = None
    cache_s: float | None = None
    version: str = "1"
    requires: tuple[str, ...] = ()
    description: str = ""
    cost_micros: int | None = None  # of one call, at most; None: it costs nothing
    resources: Resources | None = None  # of its process, or only of the commands that it starts
    isolated: bool | None = None  # in a process of its own; None: if it, its step or its task says resources
    idle_timeout_s: float | None = None
    concurrency: int | None = None  # calls at once in one process
    rate: Rate | None = None
    fallbacks: tuple[str, ...] = ()
    breaker: Breaker | None = Breaker()  # None: it is called however often it fails
    done_output: Any = msgspec.UNSET  # what it gave, if a person says that it was done and nothing else


def read_options(function: Callable[..., Any], given: dict[str, Any]) -> Options:
    name = given.pop("name", None) or function.__name__
    place = f"tool {name} at {place_of(function)}"
    retry, approval = given.pop("retry", None), given.pop("approval", None)
    description = given.pop("description", None)
    try:
        options = msgspec.convert(
            {
                "name": name,
                "timeout_s": _seconds(given.pop("timeout", None)),
                "cache_s": _seconds(given.pop("cache", None)),
                "idle_timeout_s": _seconds(given.pop("idle_timeout", None)),
                "rate": _read_rate(given.pop("rate", None)),
                "concurrency": _read_concurrency(given.pop("concurrency", None)),
                "fallbacks": _read_fallbacks(given.pop("fallbacks", ()), name),
                "breaker": _read_breaker(given.pop("breaker", True)),
                "retry": Retry(max=retry) if isinstance(retry, int) else retry,
                "approval": _read_approval(approval),
                "description": inspect.cleandoc(description or function.__doc__ or ""),
                "requires": tuple(given.pop("requires", ())),
                "cost_micros": _read_cost(given.pop("cost", None)),
                "resources": _read_resources(given.pop("resources", None)),
                **given,
            },
            Options,
        )
    except msgspec.ValidationError as error:
        at, said = explained("", Options, given, str(error))
        raise UsageError(f"{place}: {at.removeprefix('.')}: {said}") from None
    except (ValueError, UsageError) as error:
        raise UsageError(f"{place}: {error}") from None
    if options.cache_s is not None and options.effect != "read":
        raise UsageError(f'{place}: only what has no effect can be cached; declare effect="read" or drop cache')
    if unknown := given.keys() - set(Options.__struct_fields__):
        raise UsageError(f"{place}: no such option: {', '.join(sorted(unknown))}")
    return options


def _read_approval(given: bool | str | Approval | None) -> Approval | None:
    match given:
        case None | False:
            return None
        case True:
            return Approval()
        case str():
            return Approval(message=given)
        case _:
            return given


def _read_cost(given: object) -> int | None:
    if given is None:
        return None
    try:
        return read_usd(given)
    except InputInvalid as error:
        raise UsageError(f"cost: {error}") from None


def _read_resources(given: Resources | Mapping[str, Any] | None) -> Resources | None:
    return resources_of(given) if given is not None else None


def _read_rate(given: str | None) -> Rate | None:
    try:
        return None if given is None else parse_rate(given)
    except InputInvalid as error:
        raise UsageError(f"rate: {error}") from None


def _read_concurrency(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= CONCURRENCY_MAX):
        return given
    raise UsageError(f"concurrency: expected a whole number from 1 to {CONCURRENCY_MAX}, got {describe_value(given)}")


def _read_fallbacks(given: object, name: str) -> tuple[str, ...]:
    names = cast("Sequence[object]", given) if isinstance(given, list | tuple) else None
    if names is None or not all(isinstance(other, str) and other for other in names):
        raise UsageError(f'fallbacks: expected names of tools such as ["search.local"], got {describe_value(given)}')
    if len(names) > FALLBACKS_MAX:
        raise UsageError(f"fallbacks: at most {FALLBACKS_MAX} tools are tried, got {len(names)}")
    if name in names or len(set(names)) < len(names):
        raise UsageError("fallbacks: each is another tool, named once")
    return cast("tuple[str, ...]", tuple(names))


def _read_breaker(given: object) -> Breaker | None:
    match given:
        case False:
            return None
        case True | None:
            return Breaker()
        case Breaker():
            return given
        case _:
            raise UsageError(f"breaker: expected True, False or a Breaker, got {describe_value(given)}")


def _seconds(given: float | str | None) -> float | None:
    if given is None:
        return None
    seconds = parse_duration(given)
    if seconds == 0:
        raise UsageError("a duration of 0 leaves no time at all; leave it out for the default")
    return seconds


def resolve_hints(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Annotations as types, or None if they name something that does not exist yet."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # any expression may stand in an annotation, so anything may be raised; `signature` tries again
        if "<locals>" not in function.__qualname__:
            return None
    try:
        return typing.get_type_hints(function, localns=_declaring_locals(), include_extras=True)
    except Exception:
        return None


def _declaring_locals() -> dict[str, Any]:
    """The variables of the function that declares the tool, for annotations that name its local classes."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__") in _DECORATING:
        frame = frame.f_back
    return dict(frame.f_locals)


def place_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else f"module {function.__module__}"
