"""`holdfast tools`: what steps can call and what can be run here, and whether this machine has what each needs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import AsJson
from holdfast.cli.place import settings_of
from holdfast.cli.text import columns, json_line, paint

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.tools.registry import Registry


def register(app: typer.Typer) -> None:
    app.command()(tools)


def tools(context: typer.Context, as_json: AsJson = False) -> int:
    """List the tools that plans and functions can call here, and the functions that can be run.

    \b
    Example:
      holdfast tools --json
    """
    settings = settings_of(context)
    registry = builtin_registry()
    for module in settings.modules:
        registry.load_module(module, settings.root)
    found = [_wire_tool(registry.get(name)) for name in sorted(registry.names())]
    functions = [_wire_function(registry.function(name)) for name in sorted(registry.function_names())]
    if as_json:
        print(json_line([*found, *functions]))
    else:
        print("\n".join(_lines(found, functions, settings)))
    return 0


def builtin_registry() -> Registry:
    from holdfast.tools.builtin import builtin_tools
    from holdfast.tools.registry import Registry

    registry = Registry()
    for tool in builtin_tools():
        registry.add(tool)
    return registry


def _wire_tool(tool: Any) -> dict[str, Any]:
    schema = tool.schema()
    return {
        "name": tool.name,
        "kind": "tool",
        "effect": tool.effect,
        "description": tool.description,
        "arguments": schema,
        "requires": list(tool.requires),
        "missing": tool.missing(),
        "place": tool.place,
    }


def _wire_function(function: Any) -> dict[str, Any]:
    from holdfast.tools.options import place_of

    return {
        "name": function.name,
        "kind": "function",
        "effect": None,
        "description": inspect.getdoc(function.coroutine) or "",
        "arguments": function.signature.schema(),
        "requires": [],
        "missing": [],
        "place": place_of(function.coroutine),
    }


def _lines(found: list[dict[str, Any]], functions: list[dict[str, Any]], settings: Settings) -> list[str]:
    rows = [["NAME", "EFFECT", "ARGUMENTS", "WHAT IT DOES"]]
    for tool in found:
        rows.append([tool["name"], tool["effect"], _arguments(tool["arguments"]), _first_line(tool)])
    heading, *lines = columns(rows)
    if functions:
        runnable = [[each["name"], _arguments(each["arguments"]), _first_line(each)] for each in functions]
        heading_of_functions, *more = columns([["FUNCTION", "INPUTS", "WHAT IT DOES"], *runnable])
        lines += ["", paint(heading_of_functions, "bold"), *more]
    unmet = [sentence for tool in found for sentence in tool["missing"]]
    own = settings.config_file or "no holdfast.toml found; your own tools are named there, under `modules`"
    return [paint(heading, "bold"), *lines, *([""] if unmet else []), *unmet, "", f"settings: {own}"]


def _first_line(described: dict[str, Any]) -> str:
    return next(iter(described["description"].splitlines()), "")


def _arguments(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    return ", ".join(name if name in required else f"[{name}]" for name in schema.get("properties", {}))
