"""`holdfast tools`: what steps can call, and whether this machine has what each of them needs."""

from __future__ import annotations

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
    """List the tools that plans and functions can call here.

    \b
    Example:
      holdfast tools --json
    """
    settings = settings_of(context)
    registry = builtin_registry()
    for module in settings.modules:
        registry.load_module(module, settings.root)
    found = [_wire_tool(registry.get(name)) for name in sorted(registry.names())]
    if as_json:
        print(json_line(found))
    else:
        print("\n".join(_lines(found, settings)))
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
        "effect": tool.effect,
        "description": tool.description,
        "arguments": schema,
        "requires": list(tool.requires),
        "missing": tool.missing(),
        "place": tool.place,
    }


def _lines(found: list[dict[str, Any]], settings: Settings) -> list[str]:
    rows = [["NAME", "EFFECT", "ARGUMENTS", "WHAT IT DOES"]]
    for tool in found:
        first = next(iter(tool["description"].splitlines()), "")
        rows.append([tool["name"], tool["effect"], _arguments(tool["arguments"]), first])
    heading, *lines = columns(rows)
    unmet = [sentence for tool in found for sentence in tool["missing"]]
    own = settings.config_file or "no holdfast.toml found; your own tools are named there, under `modules`"
    return [paint(heading, "bold"), *lines, *([""] if unmet else []), *unmet, "", f"settings: {own}"]


def _arguments(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    return ", ".join(name if name in required else f"[{name}]" for name in schema.get("properties", {}))
