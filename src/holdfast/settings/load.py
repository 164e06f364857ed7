"""Puts the settings together: defaults, the file, a profile of the file, the environment, flags; later ones win.

Every value remembers its source. Wrong types are refused; unknown names become warnings, which whoever loads must tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import SettingsInvalid
from holdfast.core.policy import Checkpoints
from holdfast.settings.discovery import find_config, find_place
from holdfast.settings.environment import settings_in_environment
from holdfast.settings.resource_settings import PressureSettings, ResourceSettings, check_stages
from holdfast.settings.schema import (
    KEYS,
    PROFILES,
    STORE_FILE,
    LimitSettings,
    Mistakes,
    NotifySettings,
    RetentionSettings,
    Settings,
    read_value,
    settings_in,
    table_at,
)

PROFILE_VARIABLE = "HOLDFAST_PROFILE"
RETENTION_S_MIN = 60.0  # what is kept for less is as good as not kept
GROUPS: dict[str, Any] = {
    "limits": LimitSettings,
    "notify": NotifySettings,
    "retention": RetentionSettings,
    "resources": ResourceSettings,
    "pressure": PressureSettings,
}  # each is a table of the file, and a part of the settings


def load_settings(
    start: Path,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> Settings:
    """Read everything that applies in the folder `start`. A flag that is None was not given."""
    start = start.resolve()
    environ = os.environ if environ is None else environ
    config_file, table = find_config(start)
    values: dict[str, Any] = {}
    sources = dict.fromkeys(KEYS, "default")
    warnings: list[str] = []
    mistakes = Mistakes()

    def put(key: str, value: Any, source: str, place: str, base: Path) -> None:
        with mistakes:
            values[key] = read_value(key, value, place, base)
            sources[key] = source

    chosen, chosen_by = (profile, "--profile") if profile else (environ.get(PROFILE_VARIABLE, ""), PROFILE_VARIABLE)
    overrides: dict[str, Any] = {}
    with mistakes:
        overrides = _profile(table, config_file, chosen, chosen_by)
    if config_file is not None:
        for key, value in settings_in(table, config_file, warnings, mistakes):
            put(key, value, str(config_file), f"{config_file}: {key}", config_file.parent)
        for key, value in settings_in(overrides, config_file, warnings, mistakes):
            place = f"{config_file}: {PROFILES}.{chosen}.{key}"
            put(key, value, f"profile {chosen} in {config_file}", place, config_file.parent)
    for key, variable, value in settings_in_environment(environ, warnings):
        put(key, value, variable, variable, start)
    for key, value in (flags or {}).items():
        if value is not None:
            flag = f"--{key.replace('.', '-')}"
            put(key, value, flag, flag, start)
    mistakes.check()
    place = find_place(start, config_file, environ, worktrees_share=values.get("worktrees_share", True))
    if "store" not in values:
        values["store"], sources["store"] = str(place.data_folder / STORE_FILE), place.how
    groups = {name: group(**_taken(values, f"{name}.")) for name, group in GROUPS.items()}
    checkpoint = _taken(values, "checkpoint.")
    if groups["retention"].status and not groups["retention"].older_than:
        where = sources["retention.status"]
        raise SettingsInvalid(f'{where}: retention.status: say how long they are kept, with older_than = "30d"')
    if groups["retention"].older_than and parse_duration(groups["retention"].older_than) < RETENTION_S_MIN:
        kept = groups["retention"].older_than
        warnings.append(
            f'{sources["retention.older_than"]}: retention.older_than: with "{kept}" whatever ends is deleted before '
            'anybody can look at it; "1h" keeps it for an hour'
        )
    check_stages(groups["pressure"], sources)
    return Settings(
        root=place.root, config_file=config_file, sources=sources, profile=chosen, warnings=tuple(warnings),
        checkpoint=Checkpoints(**checkpoint) if checkpoint else None, **groups, **values,
    )  # fmt: skip


def other_profiles(settings: Settings) -> list[str]:
    """What is wrong with the profiles that were not chosen, and what in them is not known: they will be, one day."""
    file, table = find_config(settings.root)
    if file is None:
        return []
    found: list[str] = []
    mistakes = Mistakes()
    for name, inner in table.get(PROFILES, {}).items():
        if name == settings.profile:
            continue
        for key, value in settings_in(inner, file, found, mistakes, f"{PROFILES}.{name}."):
            with mistakes:
                read_value(key, value, f"{file}: {PROFILES}.{name}.{key}", file.parent)
    return [*mistakes.texts, *found]


def _profile(table: Mapping[str, Any], file: Path | None, chosen: str, chosen_by: str) -> dict[str, Any]:
    """The table of the profile that was chosen; every profile must be a table, whether it is chosen or not."""
    profiles = {
        name: table_at(inner, f"{file}: {PROFILES}.{name}")
        for name, inner in table_at(table.get(PROFILES, {}), f"{file}: {PROFILES}").items()
    }
    if not chosen or chosen in profiles:
        return profiles.get(chosen, {})
    known = did_you_mean(chosen, profiles) or (f"; there are: {', '.join(profiles)}" if profiles else "")
    where = f"{file} has no profile" if file else "there is no settings file that could hold the profile"
    raise SettingsInvalid(f'{chosen_by}: {where} "{chosen}"{known}')


def _taken(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): values.pop(key) for key in list(values) if key.startswith(prefix)}
