"""The settings that are measures of the machine: what commands may use, and when it counts as short of something.

Sizes and times are kept as they are written, so that people find their own words in `holdfast config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid, SettingsInvalid
from holdfast.core.pressure import PressureLimits
from holdfast.core.resources import parse_size

LOAD_MAX = 10_000.0  # per core
MEASURES: dict[Any, str] = {
    "resource": "a limit, written as in a plan",
    "size": 'a size such as "512MB"',
    "share": "a share from 0 to 1, such as 0.1",
    "load": f"a load per core, more than 0 and at most {LOAD_MAX:g}",
}


@dataclass(frozen=True, kw_only=True)
class ResourceSettings:
    """What the commands of a step may use, unless its plan or tool says otherwise; as people write it."""

    memory: int | str = "4GB"
    cpu: float | str = "1h"
    processes: int = 512
    open_files: int = 4096
    disk: int | str = "10GB"
    output: int | str = "64MB"


@dataclass(frozen=True, kw_only=True)
class PressureSettings:
    """When the machine counts as short of something; the names are those of core/pressure.py."""

    watch: bool = True
    at_once: int = PressureLimits.at_once
    memory_tight: float = PressureLimits.memory_tight
    memory_severe: float = PressureLimits.memory_severe
    own_memory_tight: float = PressureLimits.own_memory_tight
    own_memory_severe: float = PressureLimits.own_memory_severe
    stalled_tight: float = PressureLimits.stalled_tight
    stalled_severe: float = PressureLimits.stalled_severe
    load_tight: float = PressureLimits.load_tight
    load_severe: float = PressureLimits.load_severe
    disk_tight: int | str = "1GB"
    disk_severe: int | str = "200MB"
    calm_s: float = PressureLimits.calm_s


def check_stages(pressure: PressureSettings, sources: Mapping[str, str]) -> None:
    """Severe must be worse than tight, or the second stage would come before the first."""
    worse_is = {"memory": "less", "own_memory": "more", "stalled": "more", "load": "more", "disk": "less"}
    for figure, worse in worse_is.items():
        tight, severe = getattr(pressure, f"{figure}_tight"), getattr(pressure, f"{figure}_severe")
        low, high = (severe, tight) if worse == "less" else (tight, severe)
        if (parse_size(low) if figure == "disk" else low) > (parse_size(high) if figure == "disk" else high):
            key = f"pressure.{figure}_severe"
            raise SettingsInvalid(
                f"{sources[key]}: {key}: expected {worse} than pressure.{figure}_tight, which is {tight}, got {severe}"
            )


def read_measure(kind: str, key: str, value: Any, place: str) -> Any:
    """The value, or a refusal that names the place, what was expected and what was found."""
    try:
        match kind:
            case "resource":
                from holdfast.core.plan.resources import resources_of  # most settings files have none

                resources_of({key.removeprefix("resources."): value})
                return value
            case "size":
                parse_size(value)
                return value
            case _:
                return _number(kind, value)
    except InputInvalid as error:
        said = error.problems[0].message if error.problems else str(error)
        raise SettingsInvalid(f"{place}: {said}") from None


def _number(kind: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (0 <= value <= 1 if kind == "share" else 0 < value <= LOAD_MAX):
        raise InputInvalid(f"expected {MEASURES[kind]}, got {describe_value(value)}")
    return float(value)
