"""`holdfast tools`: what steps can call and what can be run here, and whether this machine has what each needs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.commands.tools_test import try_tool
from holdfast.cli.common.context import settings_of, wait_for
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import columns, distance, duration, json_line, paint, usd

if TYPE_CHECKING:
    from holdfast.cli.commands.tools_status import Known
    from holdfast.settings import Settings
    from holdfast.tools.registry import Registry


CELL_CHARS_MAX = 80  # of what others wrote, such as an MCP server; `--json` has all of it
# One shape for both kinds: of a function these are null.
OF_TOOLS_ONLY = (
    "timeout_s", "idle_timeout_s", "concurrency", "rate", "fallbacks", "cache_s", "breaker", "breaker_why",
    "breaker_apart", "probe_at", "health", "health_why", "health_at", "figures",
)  # fmt: skip

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


def register(parent: typer.Typer) -> None:
    app.callback()(tools)
    app.command("test")(try_tool)
    parent.add_typer(app, name="tools")


def tools(
    context: typer.Context,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask every MCP server again which tools it has.")] = False,
    as_json: AsJson = False,
) -> int:
    """List the tools that plans and functions can call here, and the functions that can be run.

    How often tools were called and how long they took is counted over the newest executions; how they are is known
    while an engine runs. MCP servers are asked once an hour.

    \b
    Example:
      holdfast tools --json
      holdfast tools test files.list -i path=.
    """
    from holdfast.cli.commands.tools_status import known_of

    if context.invoked_subcommand is not None:
        return 0
    settings = settings_of(context)
    registry = builtin_registry(settings)
    for module in settings.modules:
        registry.load_module(module, settings.root)
    registry.learn(again=refresh)
    known = wait_for(known_of(settings))
    found = [
        _wire_tool(registry.get(name), list(map(str, registry.missing(name))), known)
        for name in sorted(registry.names())
    ]
    functions = [_wire_function(registry.function(name)) for name in sorted(registry.function_names())]
    if as_json:
        print(json_line([*found, *functions]))
    else:
        print("\n".join(_lines(found, functions, settings)))
    return 0


def builtin_registry(settings: Settings) -> Registry:
    """The tools that come with Holdfast, without the user's modules, which may be broken."""
    from holdfast.app import add_builtin
    from holdfast.tools.registry import Registry

    registry = Registry()
    add_builtin(registry, settings)
    return registry


def _wire_tool(tool: Any, missing: list[str], known: Known) -> dict[str, Any]:
    from holdfast.cli.commands.tools_status import wire_figures, wire_state
    from holdfast.core.budget import in_usd

    schema = tool.schema()
    return {
        "name": tool.name,
        "kind": "tool",
        "effect": tool.effect,
        "description": tool.description,
        "arguments": schema,
        "cost_usd": None if tool.cost_micros is None else in_usd(tool.cost_micros),
        "requires": list(tool.requires),
        "missing": missing,
        "warnings": _warnings(tool),
        "place": tool.place,
        "timeout_s": tool.timeout_s,
        "idle_timeout_s": tool.idle_timeout_s,
        "concurrency": tool.concurrency,
        "rate": f"{tool.rate.calls}/{tool.rate.per_s:g}s" if tool.rate is not None else None,
        "fallbacks": list(tool.fallbacks),
        "cache_s": tool.cache_s,
        **wire_state(tool, known.notices),
        "figures": wire_figures(known.figures.get(tool.name)),
    }


def _warnings(tool: Any) -> list[str]:
    """What is declared and holds only in part: no code in the engine's own process can be held to such limits."""
    limits = tool.resources.named() if tool.resources is not None and not tool.isolated else ""
    said = f"{tool.name}: {limits}: held to are only commands that it starts, not its own code in the engine's process"
    return [said] if limits else []


def _wire_function(function: Any) -> dict[str, Any]:
    from holdfast.tools.options import place_of

    return {
        "name": function.name,
        "kind": "function",
        "effect": None,
        "description": inspect.getdoc(function.coroutine) or "",
        "arguments": function.signature.schema(),
        "cost_usd": None,
        "requires": [],
        "missing": [],
        "warnings": [],
        "place": place_of(function.coroutine),
        **dict.fromkeys(OF_TOOLS_ONLY),
    }


def _lines(found: list[dict[str, Any]], functions: list[dict[str, Any]], settings: Settings) -> list[str]:
    rows = [["NAME", "EFFECT", "COSTS", "STATE", "CALLS", "TAKES", "ARGUMENTS", "WHAT IT DOES"]]
    for tool in found:
        costs = usd(tool["cost_usd"]) if tool["cost_usd"] is not None else ""
        told = [_state(tool), _calls(tool["figures"]), _takes(tool["figures"])]
        rows.append([tool["name"], tool["effect"], costs, *told, _arguments(tool["arguments"]), _first_line(tool)])
    rows = [[_short(cell) for cell in row] for row in rows]
    heading, *lines = columns(rows)
    if functions:
        runnable = [[each["name"], _arguments(each["arguments"]), _first_line(each)] for each in functions]
        heading_of_functions, *more = columns([["FUNCTION", "INPUTS", "WHAT IT DOES"], *runnable])
        lines += ["", paint(heading_of_functions, "bold"), *more]
    # What several tools of a family lack is told once.
    said = (sentence for tool in found for sentence in (*tool["missing"], *tool["warnings"], *_troubles(tool)))
    unmet = list(dict.fromkeys(said))
    own = settings.config_file or "no holdfast.toml found; your own tools are named there, under `modules`"
    return [paint(heading, "bold"), *lines, *([""] if unmet else []), *unmet, "", f"settings: {own}"]


def _state(tool: dict[str, Any]) -> str:
    """In a word; the sentence is below the table."""
    if tool["missing"]:
        return "lacks something"
    if tool["health"] == "ill":
        return "ill"
    return {"open": "resting", "half_open": "tried", "closed": "ready", "none": "ready"}.get(tool["breaker"], "unknown")


def _calls(figures: dict[str, Any]) -> str:
    return f"{figures['calls']} ({figures['failures']} failed)" if figures["failures"] else f"{figures['calls']}"


def _takes(figures: dict[str, Any]) -> str:
    if figures["median_s"] is None:
        return "unknown"
    return f"{duration(figures['median_s'])}, up to {duration(figures['p90_s'])}"


def _troubles(tool: dict[str, Any]) -> list[str]:
    found: list[str] = []
    if tool["health"] == "ill":
        found.append(f"{tool['name']} is ill: {tool['health_why']}")
    if tool["breaker"] == "open":
        apart = f" for {tool['breaker_apart']}" if tool["breaker_apart"] else ""
        again = f"; it is tried again {distance(tool['probe_at'])}" if tool["probe_at"] else ""
        found.append(f"{tool['name']} is left alone{apart}: {tool['breaker_why']}{again}")
    return found


def _short(cell: str) -> str:
    return cell if len(cell) <= CELL_CHARS_MAX else f"{cell[: CELL_CHARS_MAX - 1]}…"


def _first_line(described: dict[str, Any]) -> str:
    return next(iter(described["description"].splitlines()), "")


def _arguments(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    return ", ".join(name if name in required else f"[{name}]" for name in schema.get("properties", {}))
