"""`resources:` as plans, steps, tools and settings write it → `Resources`, or every mistake with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid
from holdfast.core.events import TaskCreated
from holdfast.core.plan.fields import Fields, Problems, TooMany, plain_json
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

T = TypeVar("T")
KEYS = ("memory", "cpu", "processes", "open_files", "disk", "output", "cores")
TOTAL = "total"
TOTAL_KEYS = KEYS[:5]  # what is printed, and how fast each command may go, is its own affair
_SHAPE = "a map such as {memory: 512MB, cpu: 60s, processes: 64, open_files: 256, disk: 100MB, output: 1MB}"
_TOTAL_SHAPE = "a map such as {memory: 2GB, cpu: 10m, processes: 200, open_files: 2000, disk: 1GB}"


class TaskLimits(NamedTuple):
    """What each step of a task may use that says nothing itself, and what all of them may use together."""

    each: Resources | None = None
    total: Resources | None = None


NO_LIMITS = TaskLimits()


class _Said(msgspec.Struct):
    """Of a plan's document, all that is looked at here."""

    resources: Any = None


def read_resources(fields: Fields) -> Resources | None:
    """The key `resources` of a step; every mistake is noted with its place."""
    said = fields.get("resources")
    known = (*KEYS, TOTAL) if isinstance(said, dict) and TOTAL in said else KEYS
    inner = fields.fields("resources", known, _SHAPE)
    if inner is not None and TOTAL in inner:
        inner.note(TOTAL, "is about all steps together, so it belongs under `resources` at the top of the plan")
    return _unless_empty(_read(inner)) if inner is not None else None


def read_plan_resources(fields: Fields) -> TaskLimits:
    """The same key of a plan."""
    inner = fields.fields("resources", (*KEYS, TOTAL), _SHAPE)
    if inner is None:
        return NO_LIMITS
    total = inner.fields(TOTAL, TOTAL_KEYS, _TOTAL_SHAPE)
    return TaskLimits(_unless_empty(_read(inner)), _unless_empty(_read(total)) if total is not None else None)


def resources_of(value: Resources | Mapping[str, Any]) -> Resources:
    """What a tool, or the settings, say, held to the same rules."""
    return value if isinstance(value, Resources) else _checked(value, read_resources) or Resources()


def task_resources_of(value: Resources | Mapping[str, Any]) -> TaskLimits:
    """What whoever hands a task in says, held to the rules of a plan."""
    if isinstance(value, Resources):
        return TaskLimits(each=_unless_empty(value))
    return _checked(value, read_plan_resources) or NO_LIMITS


def limits_of(created: TaskCreated) -> TaskLimits:
    """What the steps of a task may use: as whoever handed it in says, and where they say nothing, as its plan does.

    A child may use what its parent's steps may, and less if its own plan says so; never more.
    """
    given = TaskLimits(created.resources, created.resources_total)
    own = NO_LIMITS
    if created.program.kind == "plan":
        said = msgspec.json.decode(created.program.source, type=_Said).resources
        own = _checked(said, read_plan_resources) or NO_LIMITS if said is not None else NO_LIMITS
    return TaskLimits(*(_joined(*pair, created.parent is not None) for pair in zip(given, own, strict=True)))


def _joined(given: Resources | None, own: Resources | None, is_inherited: bool) -> Resources | None:
    if given is None or own is None:
        return given or own
    return given.tightest(own) if is_inherited else given.over(own)


def _unless_empty(resources: Resources | None) -> Resources | None:
    """Who limits nothing has said nothing."""
    return resources if resources != Resources() else None


def _checked(value: Any, read: Callable[[Fields], T]) -> T | None:
    problems = Problems()
    found: T | None = None
    try:
        given = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        document = plain_json({"resources": given}, problems)
        found = read(Fields(cast("dict[str, Any]", document), "", problems, ("resources",)))
    except TooMany:
        pass
    if problems:
        ordered = problems.in_reading_order()
        raise InputInvalid("\n".join(map(str, ordered)), problems=ordered)
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
