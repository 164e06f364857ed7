"""A tool as a class: `execute` is what is called, and every other public method is one of the hooks.

The same thing as a function with hooks, for tools that keep something between calls or have much to say. Refuses
public methods that it does not know: a hook with a typing mistake in its name would never be called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import UsageError
from holdfast.tools.hooks import HOOKS

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
EXECUTE = "execute"


class Executes(Protocol[P, R_co]):
    """What a class needs to be a tool."""

    def execute(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Parts(NamedTuple):
    function: Callable[..., Any]
    name: str
    description: str
    hooks: dict[str, Any]


def parts_of(given: Any) -> Parts:
    """A class, which is made an object once, or an object that was made with settings of its own."""
    kind = cast("type[Any]", given if isinstance(given, type) else type(given))
    if not callable(getattr(kind, EXECUTE, None)):
        raise UsageError(f"@tool is for functions and for classes with a method called execute, not for {given!r}")
    for name in _public_methods(kind):
        if name not in (EXECUTE, *HOOKS):
            known = did_you_mean(name, HOOKS) or f"; a tool has {EXECUTE}, {', '.join(HOOKS)}"
            raise UsageError(
                f"tool class {kind.__qualname__}: no such hook: {name}{known}; "
                "what is only for itself begins with an underscore"
            )
    try:
        instance = given() if isinstance(given, type) else given
    except TypeError as error:
        raise UsageError(
            f"tool class {kind.__qualname__} cannot be made without arguments ({error}); "
            "give them defaults, or hand over an object: tool(…)(Weather(key))"
        ) from None
    hooks = {name: getattr(instance, name) for name in HOOKS if hasattr(kind, name)}
    return Parts(getattr(instance, EXECUTE), snake(kind.__name__), kind.__doc__ or "", hooks)


def _public_methods(kind: type[Any]) -> list[str]:
    return [
        name
        for base in reversed(kind.__mro__[:-1])
        for name, member in vars(base).items()
        if not name.startswith("_") and callable(member)
    ]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
