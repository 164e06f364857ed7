"""`holdfast config`: every setting with its value and where that came from, and what was found that nobody knows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common.context import settings_of
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import aside, columns, json_line, paint

if TYPE_CHECKING:
    from holdfast.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(config)


def config(context: typer.Context, as_json: AsJson = False) -> int:
    """Print every setting with its value and its source: default, file, profile, environment or flag.

    \b
    Example:
      holdfast config
      holdfast --profile ci config --json
    """
    from dataclasses import replace

    from holdfast.settings import other_profiles, strange_variables

    settings = settings_of(context, tell_warnings=not as_json)
    found = [*other_profiles(settings), *strange_variables(os.environ), *_unusable(settings)]
    if as_json:
        settings = replace(settings, warnings=(*settings.warnings, *found))
    for warning in found if not as_json else ():
        aside(warning, as_json)
    if as_json:
        print(json_line(_wire(settings)))
    else:
        print("\n".join(_lines(settings)))
    return 0


def _unusable(settings: Settings) -> list[str]:
    """What only the tools themselves can tell: names in their settings that they do not know, and missing channels."""
    from holdfast.app import channel_troubles
    from holdfast.cli.commands.tools import builtin_registry
    from holdfast.core.errors import SettingsInvalid

    try:
        return list(channel_troubles(settings, builtin_registry(settings)))
    except SettingsInvalid as error:
        return str(error).splitlines()


def _wire(settings: Settings) -> dict[str, Any]:
    from holdfast.settings import KEYS

    return {
        "root": str(settings.root),
        "config_file": str(settings.config_file) if settings.config_file else None,
        "profile": settings.profile or None,
        "data_folder": str(settings.data_folder),
        "values": {key: {"value": settings.value(key), "source": settings.sources[key]} for key in KEYS},
        "warnings": list(settings.warnings),
    }


def _lines(settings: Settings) -> list[str]:
    from holdfast.settings import KEYS

    rows = [[key, json.dumps(settings.value(key), ensure_ascii=False), settings.sources[key]] for key in KEYS]
    heading, *lines = columns([["SETTING", "VALUE", "SOURCE"], *rows])
    own = settings.config_file or "no holdfast.toml found"
    return [
        paint(heading, "bold"),
        *lines,
        "",
        f"folder: {settings.root}",
        f"settings: {own}",
        f"profile: {settings.profile or 'none'}",
    ]
