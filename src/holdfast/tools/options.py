"""What a tool declares about itself, with every shorthand read and every mistake refused where the tool is declared."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.durations import parse_duration
from holdfast.core.errors import UsageError
from holdfast.core.policy import Approval, DoubtPolicy, Effect, Retry

_DECORATING = ("holdfast.tools.options", "holdfast.tools.tool", "functools")


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
                "retry": Retry(max=retry) if isinstance(retry, int) else retry,
                "approval": _read_approval(approval),
                "description": inspect.cleandoc(description or function.__doc__ or ""),
                "requires": tuple(given.pop("requires", ())),
                **given,
            },
            Options,
        )
    except (msgspec.ValidationError, ValueError, UsageError) as error:
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
