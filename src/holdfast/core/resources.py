"""What a piece of work may use of the machine, and what it did use: `resources:` of tools, plans, steps and settings.

Owns the units people write (`512MB`, `60s`), their bounds and the rule of who wins. Refuses to enforce anything: that
is done where processes are started (tools/processes/spawn.py), and cannot be done to code in the engine's own process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid

BYTES_MAX = 1 << 50  # a pebibyte: whoever writes more has slipped
MEMORY_BYTES_MIN = 1 << 20  # less, and not even `true` could start
CPU_S_MIN = 0.1
CORES_MIN = 0.05  # less, and a program would not get anywhere
CORES_MAX = 1024
PROCESSES_MAX = 100_000
OPEN_FILES_MIN = 16  # less, and a program cannot load its libraries
OPEN_FILES_MAX = 1_000_000

_UNIT_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20,
               "GIB": 1 << 30, "TIB": 1 << 40}  # fmt: skip
SIZE_PATTERN = r"^\s*[0-9]{1,15}(\.[0-9]{1,9})?\s*([kKmMgGtT]?[iI]?[bB])\s*$"
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?i?b)\s*", re.ASCII | re.IGNORECASE)
_SIZE_EXPECTED = 'a size such as "512MB", "1.5GB" or "64KiB", or a number of bytes'


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`None` means: as whoever is asked next says, and in the end as the settings say."""

    memory_bytes: int | None = None  # of the whole tree of processes, what is shared counted once
    cpu_s: float | None = None  # of the whole tree
    processes: int | None = None  # at the same time
    open_files: int | None = None  # of each process
    disk_bytes: int | None = None  # written by the whole tree, and the size of each file
    output_bytes: int | None = None  # printed, on both streams together
    cores: float | None = None  # at the same time, on average; beyond that it is slowed down, and not ended

    def over(self, other: Resources | None) -> Resources:
        """This, and where it says nothing, what the other says."""
        if other is None:
            return self
        filled = {name: mine if (mine := getattr(self, name)) is not None else getattr(other, name) for name in _NAMES}
        return Resources(**filled)

    def of(self, name: str) -> Any:
        """By the name that people write: `memory`."""
        return getattr(self, {"cpu": "cpu_s", "processes": name, "open_files": name}.get(name, f"{name}_bytes"))

    def twice(self, name: str) -> str:
        """Twice as much of it, as `--resource` takes it: `memory=200MB`."""
        twice = 2 * self.of(name)
        match name:
            case "cpu":
                return f"cpu={twice:g}s"
            case "processes" | "open_files":
                return f"{name}={twice}"
            case _:
                return f"{name}={math.ceil(twice / 10**6)}MB"

    def tightest(self, other: Resources | None) -> Resources:
        """Of each the lower one: neither allows more than the other."""
        both = {name: (getattr(self, name), getattr(other, name, None)) for name in _NAMES}
        said = {name: [one for one in pair if one is not None] for name, pair in both.items()}
        return Resources(**{name: min(found) for name, found in said.items() if found})

    def named(self) -> str:
        """Those it limits, as people write them: `memory, cpu`."""
        return ", ".join(_names([self]))

    def names(self) -> list[str]:
        return _names([self])


def beyond_reach(said: Iterable[Resources]) -> str:
    """Of a tool that nobody can hold to them."""
    return f"runs in the engine's process and is held to none of {', '.join(_names(list(said)))}"


def _names(said: Sequence[Resources]) -> list[str]:
    limited = [name for name in _NAMES if any(getattr(one, name) is not None for one in said)]
    return [name.partition("_")[0] if name != "open_files" else name for name in limited]


_NAMES = Resources.__struct_fields__

# What a command may use when nobody says anything: far more than honest work needs, and less than the machine's end.
DEFAULTS = Resources(
    memory_bytes=4 * 10**9,
    cpu_s=3600.0,
    processes=512,
    open_files=4096,
    disk_bytes=10 * 10**9,
    output_bytes=64 * 10**6,
)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an attempt used, as far as it could be measured. `None` is unknown, which is not zero."""

    cpu_s: float | None = None
    memory_bytes: int | None = None  # the most at any moment that was looked at
    processes: int | None = None  # the most at the same time
    disk_bytes: int | None = None  # written
    output_bytes: int | None = None

    def plus(self, other: Usage) -> Usage:
        """Both together: what was used up is added, of what was held at one time the larger one counts."""
        return Usage(
            cpu_s=_sum(self.cpu_s, other.cpu_s),
            memory_bytes=_most(self.memory_bytes, other.memory_bytes),
            processes=_most(self.processes, other.processes),
            disk_bytes=_sum(self.disk_bytes, other.disk_bytes),
            output_bytes=_sum(self.output_bytes, other.output_bytes),
        )


def all_used(parts: Iterable[Usage | None]) -> Usage:
    total = Usage()
    for part in parts:
        total = total.plus(part) if part is not None else total
    return total


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


# ---- reading -------------------------------------------------------------------------------------------------------


def parse_size(value: Any) -> int:
    """Bytes. `MB` is a million, `MiB` is 1024 times 1024; a bare number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = float(value) if abs(value) <= BYTES_MAX else math.copysign(math.inf, value)
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        size = float(found[1]) * _UNIT_BYTES[found[2].upper()]
    else:
        raise InputInvalid(f"expected {_SIZE_EXPECTED}, got {describe_value(value)}")
    if not 0 < size <= BYTES_MAX:
        raise InputInvalid(f"expected a size of more than 0 and at most 1024 TiB, got {describe_value(value)}")
    return max(1, int(size))


def say_cpu(seconds: float) -> str:
    """For people: `0.5 s`."""
    return f"{seconds:.3g} s"


def say_size(size: float) -> str:
    """For people: `512 MB`, `1.5 GB`."""
    for unit in ("TB", "GB", "MB", "KB"):
        if size >= _UNIT_BYTES[unit]:
            return f"{size / _UNIT_BYTES[unit]:.4g} {unit}"
    return f"{size:.0f} bytes"
