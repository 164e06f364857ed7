"""Settings in variables: which there are, how their texts become values, and what is said of names nobody knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from holdfast.settings.schema import GROUPS, KEYS, NEAR, Kind

ENVIRONMENT_PREFIX = "HOLDFAST_"
# Variables of ours that say where to look, not what to find there; and the mark of every command that tools run.
NOT_SETTINGS = ("FOLDER", "PROFILE", "PROCESS")
_TABLES = tuple(key for key, kind in KEYS.items() if kind in ("tables", "secrets"))  # too large for a variable
_NAMES = {key.upper().replace(".", "_"): key for key in KEYS if key not in _TABLES}
_MAY_BE_NONE: tuple[Kind, ...] = ("list", "rests", "notices", "channels")  # an empty variable means: none of them


def settings_in_environment(environ: Mapping[str, str], warnings: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Key, variable and value. Variables that only look like ours may belong to somebody else, and are left alone."""
    for variable, text in environ.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in NOT_SETTINGS:
            continue
        if name in _NAMES:
            if text or KEYS[_NAMES[name]] in _MAY_BE_NONE:
                yield _NAMES[name], variable, _from_text(KEYS[_NAMES[name]], text)
        elif sentence := _meant_by(variable):
            warnings.append(sentence)


def strange_variables(environ: Mapping[str, str]) -> list[str]:
    """Sentences for those that begin as ours do and are like nothing we know: for whoever asks, not at every turn."""
    ours = {*_NAMES, *NOT_SETTINGS}
    return [
        f"{variable}: no such setting; if it is meant for Holdfast, these names are known: holdfast config"
        for variable in environ
        if variable.startswith(ENVIRONMENT_PREFIX)
        and variable.removeprefix(ENVIRONMENT_PREFIX) not in ours
        and not _meant_by(variable)
    ]


def _meant_by(variable: str) -> str:
    """What is to be said of an unknown variable that was probably meant for us; "" if it was not."""
    name = variable.removeprefix(ENVIRONMENT_PREFIX)
    if name in (key.upper() for key in _TABLES):
        return f"{variable}: {name.lower()} is a table, and can only stand in the settings file"
    group, _, rest = name.partition("_")
    groups = [known.upper() for known in GROUPS]
    if group in groups:
        inside = [known for known in _NAMES if known.startswith(f"{group}_")]
        near = [f"{group}_{known}" for known in get_close_matches(rest, [one[len(group) + 1 :] for one in inside], n=1)]
        listed = f"; there are: {', '.join(f'{ENVIRONMENT_PREFIX}{known}' for known in inside)}"
        return f"{variable}: no such setting{_did_you_mean(near[0]) if near else listed}"
    near = get_close_matches(name, _NAMES, n=1, cutoff=NEAR)
    if not near:
        near = [f"{known}_…" for known in get_close_matches(group, groups, n=1, cutoff=NEAR)]
    return f"{variable}: no such setting{_did_you_mean(near[0])}" if near else ""


def _did_you_mean(name: str) -> str:
    return f'; did you mean "{ENVIRONMENT_PREFIX}{name}"?'


def _from_text(kind: Kind, text: str) -> Any:
    """A value from the environment, where everything is text."""
    if kind in ("list", "ends", "rests", "notices", "channels"):
        return [part.strip() for part in re.split(f"[,{re.escape(os.pathsep)}]", text) if part.strip()]
    if kind in ("whole", "seconds", "period", "share", "load") or (kind == "resource" and text.isdecimal()):
        try:
            return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
        except ValueError:
            return text  # refused by read_value, which knows the words
    if kind == "switch":
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    return text
