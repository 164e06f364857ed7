"""The tools every engine has. What they need that is heavy, they import when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.tools import browser, clock, files, http, human, notify, search, shell
from holdfast.tools.adapter import HERE, Adapter, Place, make_adapters
from holdfast.tools.mcp import Mcp
from holdfast.tools.tool import Tool

FAMILIES: dict[str, type[Adapter]] = {
    "browser": browser.Browser,
    "files": files.Files,
    "http": http.Http,
    "human": human.Human,
    "mcp": Mcp,
    "notify": notify.Notify,
    "search": search.Search,
    "shell": shell.Shell,
    "time": clock.Time,
}


def builtin_adapters(tables: Mapping[str, Any], place: Place = HERE, file: str = "") -> list[Adapter]:
    """The families of tools that come with Holdfast, set up as the settings say."""
    made = make_adapters(FAMILIES, tables, place, file)
    owner = next(adapter for adapter in made if isinstance(adapter, files.Files))
    for adapter in made:
        if isinstance(adapter, search.Search):
            adapter.keep_to(owner.grounds_of)  # whoever searches files reads them: one rule for both
    return made


def builtin_tools() -> list[Tool[..., Any]]:
    """Their tools with every setting at its default, for whoever only wants to know them."""
    return [tool for adapter in builtin_adapters({}) for tool in adapter.tools()]
