"""The tools every engine has. What they need that is heavy, they import when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.tools import files, human, sleep
from holdfast.tools.browser import tool as browser_tool
from holdfast.tools.http import tool as http_tool
from holdfast.tools.mcp import Mcp
from holdfast.tools.notify import tool as notify_tool
from holdfast.tools.search import tool as search_tool
from holdfast.tools.shell import tool as shell_tool
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import HERE, Adapter, ToolsetFolders, make_adapters

FAMILIES: dict[str, type[Adapter]] = {
    "browser": browser_tool.Browser,
    "files": files.Files,
    "http": http_tool.Http,
    "human": human.Human,
    "mcp": Mcp,
    "notify": notify_tool.Notify,
    "search": search_tool.Search,
    "shell": shell_tool.Shell,
    "time": sleep.Time,
}


def builtin_adapters(tables: Mapping[str, Any], place: ToolsetFolders = HERE, file: str = "") -> list[Adapter]:
    """The families of tools that come with Holdfast, set up as the settings say."""
    made = make_adapters(FAMILIES, tables, place, file)
    owner = next(adapter for adapter in made if isinstance(adapter, files.Files))
    for adapter in made:
        if isinstance(adapter, search_tool.Search):
            adapter.keep_to(owner.grounds_of)  # whoever searches files reads them: one rule for both
    return made


def builtin_tools() -> list[Tool[..., Any]]:
    """Their tools with every setting at its default, for whoever only wants to know them."""
    return [tool for adapter in builtin_adapters({}) for tool in adapter.tools()]
