"""`resources:` as plans, steps, tools and settings write it → `Resources`, or every mistake with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from holdfast.core.errors import InputInvalid
from holdfast.core.plan_fields import Fields, Problems, TooMany, plain_json
from holdfast.core.resources import (
    CORES_MAX,
    CORES_MIN,
    CPU_S_MIN,
    MEMORY_BYTES_MIN,
    OPEN_FILES_MAX,
    OPEN_FILES_MIN,
    PROCESSES_MAX,
    Resources,
    parse_size,
)
from holdfast.core.suggest import describe_value

T = TypeVar("T")
KEYS = ("memory", "cpu", "processes", "open_files", "disk", "output", "cores")
TOTAL = "total"
TOTAL_KEYS = KEYS[:5]  # what is printed, and how fast each command may go, is its own affair
_SHAPE = "a map such as {memory: 512MB, cpu: 60s, processes: 64, open_files: 256, disk: 100MB, output: 1MB}"
_TOTAL_SHAPE = "a map such as {memory: 2GB, cpu: 10m, processes: 200, open_files: 2000, disk: 1GB}"


def read_resources(fields: Fields) -> Resources | None:
    """The key `resources` of a step; every mistake is noted with its place."""
    said = fields.get("resources")
    known = (*KEYS, TOTAL) if isinstance(said, dict) and TOTAL in said else KEYS
    inner = fields.fields("resources", known, _SHAPE)
    if inner is not None and TOTAL in inner:
        inner.note(TOTAL, "is about all steps together, so it belongs under `resources` at the top of the plan")
    return _read(inner) if inner is not None else None


def read_plan_resources(fields: Fields) -> tuple[Resources | None, Resources | None]:
    """The same key of a plan: what each step may use that says nothing itself, and what all of them may together."""
    inner = fields.fields("resources", (*KEYS, TOTAL), _SHAPE)
    if inner is None:
        return None, None
    total = inner.fields(TOTAL, TOTAL_KEYS, _TOTAL_SHAPE)
    each = _read(inner)
    return (each if each != Resources() else None), (_read(total) if total is not None else None)


def resources_of(value: Resources | Mapping[str, Any]) -> Resources:
    """What a tool, or the settings, say, held to the same rules."""
    return value if isinstance(value, Resources) else _checked(value, read_resources) or Resources()


def task_resources_of(value: Mapping[str, Any]) -> tuple[Resources | None, Resources | None]:
    """What whoever hands a task in says, held to the rules of a plan: of each step, and of all of them together."""
    return _checked(value, read_plan_resources) or (None, None)


def _checked(value: Mapping[str, Any], read: Callable[[Fields], T]) -> T | None:
    problems = Problems()
    found: T | None = None
    try:
        document = plain_json(
            {"resources": dict(value) if isinstance(cast("Any", value), Mapping) else value}, problems
        )
        found = read(Fields(cast("dict[str, Any]", document), "", problems, ("resources",)))
    except TooMany:
        pass
    if problems:
        raise InputInvalid("\n".join(map(str, problems.in_reading_order())))
    return found


def _read(fields: Fields) -> Resources:
    return Resources(
        memory_bytes=_size(fields, "memory", MEMORY_BYTES_MIN),
        cpu_s=_cpu(fields),
        processes=_whole(fields, "processes", 1, PROCESSES_MAX),
        open_files=_whole(fields, "open_files", OPEN_FILES_MIN, OPEN_FILES_MAX),
        disk_bytes=_size(fields, "disk", 1),
        output_bytes=_size(fields, "output", 1),
        cores=_cores(fields),
    )


def _whole(fields: Fields, key: str, least: int, most: int) -> int | None:
    return fields.whole(key, least, least, most) if key in fields else None


def _size(fields: Fields, key: str, least: int) -> int | None:
    if key not in fields:
        return None
    try:
        size = parse_size(fields.get(key))
    except InputInvalid as error:
        fields.note(key, str(error))
        return None
    if size < least:
        fields.note(key, f"expected at least {least / (1 << 20):g} MiB, got {describe_value(fields.get(key))}")
        return None
    return size


def _cpu(fields: Fields) -> float | None:
    value = fields.get("cpu")
    is_negative = isinstance(value, int | float) and value < 0
    seconds = -1.0 if is_negative else fields.duration("cpu")
    if seconds is not None and seconds < CPU_S_MIN:
        fields.note("cpu", f"expected at least {CPU_S_MIN:g} s of CPU time, got {describe_value(fields.get('cpu'))}")
        return None
    return seconds


def _cores(fields: Fields) -> float | None:
    value = fields.get("cores")
    if "cores" not in fields:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and CORES_MIN <= value <= CORES_MAX:
        return float(value)
    fields.expected("cores", f"a number of cores from {CORES_MIN:g} to {CORES_MAX}, such as 0.5")
    return None
