"""The methods of an object as tools: one client or session, many tools that share it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import UsageError
from holdfast.core.policy import Effect
from holdfast.tools.class_tools import snake
from holdfast.tools.tool import Tool, tool


def toolset(
    made: object,
    *,
    prefix: str | None = None,
    effect: Effect | Mapping[str, Effect] = "once",
    only: Collection[str] = (),
    **declared: Any,
) -> list[Tool[..., Any]]:
    """Every public method of an object as a tool called `prefix.method`.

    `effect` is that of all of them, or of each by its method's name; a method that it does not name is `once`. `only`
    names the methods to take. The rest is declared as with `@tool`, and holds for each. Keep the list in a module that
    the settings name, or hand it to `Engine(tools=…)`.
    """
    if isinstance(made, type | ModuleType):
        raise UsageError(f"toolset takes an object, not {made!r}; make one first: toolset(Client(…))")
    if "name" in declared:
        raise UsageError("toolset: each tool is named after its method; give a prefix instead of a name")
    names = _methods(type(made))
    owner = f"toolset of {type(made).__qualname__}"
    if not names:
        raise UsageError(f"{owner}: it has no public method")
    effects: dict[str, Effect] = dict(effect) if isinstance(effect, Mapping) else {name: effect for name in names}
    for said in (*only, *effects):
        if said not in names:
            known = did_you_mean(said, names) or f"; there are: {', '.join(names)}"
            raise UsageError(f"{owner}: no public method called {said}{known}")
    start = snake(type(made).__name__) if prefix is None else prefix
    tools: list[Tool[..., Any]] = []
    for name in names:
        if not only or name in only:
            own: Effect = effects.get(name, "once")
            make = tool(name=f"{start}.{name}" if start else name, effect=own, **declared)
            tools.append(make(getattr(made, name)))
    return tools


def _methods(kind: type[Any]) -> list[str]:
    """Neither properties nor classes, and nothing that begins with an underscore; looked at, but not called."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        found |= vars(base)
    return [name for name, member in found.items() if not name.startswith("_") and _is_method(member)]


def _is_method(member: Any) -> bool:
    return isinstance(member, staticmethod | classmethod) or (callable(member) and not isinstance(member, type | Tool))
