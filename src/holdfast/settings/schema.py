"""The names, types and defaults of all settings, and how a value is read from a file, a variable or a flag.

Refuses wrong types by name: where, what was expected, what was found. A name that nobody knows is no error, because the
file may be written for a newer Holdfast: it is set aside with a sentence that says what was probably meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import describe_value, did_you_mean
from holdfast.core.errors import InputInvalid, SettingsInvalid
from holdfast.core.lifecycle import ENDS
from holdfast.core.policy import (
    BREAKER_FAILURES,
    BREAKER_REST_S,
    CHECKPOINT_EVERY_S_MIN,
    HEALTH_EVERY_S,
    INTERRUPT_GRACE_S,
    OCCASIONS,
    OPTIONAL_WAIT_S,
    PASSIVATE_AFTER_S,
    RESTS,
    STEPS_AT_ONCE,
    Checkpoints,
)
from holdfast.journal.postgres.address import is_postgres, parse_address
from holdfast.settings.redact import without_secrets
from holdfast.settings.resource_settings import MEASURES, PressureSettings, ResourceSettings, read_measure

DATA_FOLDER = ".holdfast"
STORE_FILE = "journal.db"
SIDE_FOLDER = ".d"  # what the folder of a store with another name ends with
MEMORY = "memory:"
NEAR = 0.65  # how much alike two names are when one was probably meant for the other
PROFILES = "profiles"  # the table of tables that override the rest of the file

Kind = Literal[
    "store", "text", "list", "whole", "seconds", "period", "duration", "ends", "rests", "tables", "switch", "resource",
    "share", "load", "size", "secrets", "notices", "channels",
]  # fmt: skip
KEYS: dict[str, Kind] = {
    "store": "store",
    "modules": "list",
    "owner": "text",
    "worktrees_share": "switch",
    "tools": "tables",
    "secrets": "secrets",
    "notify.on": "notices",
    "notify.channels": "channels",
    "notify.url": "text",
    "limits.executions": "whole",
    "limits.parked": "whole",
    "limits.passivate_after_s": "seconds",
    "limits.interrupt_grace_s": "seconds",
    "limits.drain_s": "seconds",
    "limits.steps": "whole",
    "limits.execution_steps": "whole",
    "limits.breaker_failures": "whole",
    "limits.breaker_rest_s": "seconds",
    "limits.optional_wait_s": "seconds",
    "limits.health_every_s": "seconds",
    "retention.older_than": "duration",
    "retention.status": "ends",
    "checkpoint.every_steps": "whole",
    "checkpoint.every_s": "period",
    "checkpoint.on": "rests",
    "resources.memory": "resource",
    "resources.cpu": "resource",
    "resources.processes": "resource",
    "resources.open_files": "resource",
    "resources.disk": "resource",
    "resources.output": "resource",
    "pressure.watch": "switch",
    "pressure.at_once": "whole",
    "pressure.memory_tight": "share",
    "pressure.memory_severe": "share",
    "pressure.own_memory_tight": "share",
    "pressure.own_memory_severe": "share",
    "pressure.stalled_tight": "share",
    "pressure.stalled_severe": "share",
    "pressure.load_tight": "load",
    "pressure.load_severe": "load",
    "pressure.disk_tight": "size",
    "pressure.disk_severe": "size",
    "pressure.calm_s": "seconds",
}
GROUPS = tuple(dict.fromkeys(key.partition(".")[0] for key in KEYS if "." in key))  # tables of the file
EXPECTED: dict[Kind, str] = {
    "store": 'a path, "memory:" or "postgresql://…"',
    "text": "a text",
    "list": "a list of module names or .py files",
    "whole": "a whole number from 1 to 1000000",
    "seconds": "a number of seconds from 0 to 86400",
    "switch": "true or false",
    "duration": 'a duration such as "30d" or "12h"',
    "ends": "a list of completed, failed and stopped",
    "period": f"a number of seconds from {CHECKPOINT_EVERY_S_MIN:g} to 86400",
    "rests": 'a list of "pause", "interrupt", "end"',
    "secrets": 'a table of names, each with {env = "NAME"}, {file = "PATH"} or {command = ["PROGRAM", …]}',
    "channels": "a list of names of channels in [tools.notify]",
    "notices": f"a list of {', '.join(OCCASIONS)}",
    "tables": "a table for each family of tools, such as [tools.files]",
    **MEASURES,
}
NAME_BYTES_MAX = 255  # of a file, on every file system that holds a journal
WHOLE_MAX = 1_000_000
SECONDS_MAX = 86_400.0


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """How much at once, and how long; the names are those of the engine's own limits."""

    executions: int = 100
    parked: int = 1000
    passivate_after_s: float = PASSIVATE_AFTER_S
    interrupt_grace_s: float = INTERRUPT_GRACE_S
    drain_s: float = 10.0
    steps: int = STEPS_AT_ONCE
    execution_steps: int = STEPS_AT_ONCE
    breaker_failures: int = BREAKER_FAILURES
    breaker_rest_s: float = BREAKER_REST_S
    optional_wait_s: float = OPTIONAL_WAIT_S
    health_every_s: float = HEALTH_EVERY_S


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    """What engines delete by themselves: nothing, unless it says for how long after the end it is kept."""

    older_than: str = ""
    status: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """When Holdfast itself tells a person, and through which channels of `[tools.notify]`; without any, never."""

    on: tuple[str, ...] = OCCASIONS
    channels: tuple[str, ...] = ()
    url: str = ""  # where executions can be looked at, if there is such a place


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`root` is the project's folder: that of the settings file, or of the data folder, or the one started in.

    `sources` says where each value came from, `warnings` what was found and is not known.
    """

    root: Path
    store: str
    config_file: Path | None = None
    modules: tuple[str, ...] = ()
    owner: str = ""
    worktrees_share: bool = True
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    limits: LimitSettings = field(default_factory=LimitSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    checkpoint: Checkpoints | None = None
    resources: ResourceSettings = field(default_factory=ResourceSettings)
    pressure: PressureSettings = field(default_factory=PressureSettings)
    secrets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    notify: NotifySettings = field(default_factory=NotifySettings)
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    profile: str = ""
    warnings: tuple[str, ...] = ()

    def value(self, key: str) -> Any:
        """By the name it has in the file, as it may be shown: without passwords."""
        if key == "store":
            return self.store_shown
        group, _, name = key.rpartition(".")
        holder = getattr(self, group) if group else self
        value = getattr(holder, name) if holder is not None else None
        return without_secrets(value) if key in ("tools", "notify.url") else value

    @property
    def store_file(self) -> Path | None:
        """None for a store in memory or in a database."""
        return None if self.store == MEMORY or is_postgres(self.store) else Path(self.store)

    @property
    def store_shown(self) -> str:
        """The store's name for people: without a password."""
        return parse_address(self.store).shown if is_postgres(self.store) else self.store

    @property
    def data_folder(self) -> Path:
        """Where what belongs to the store lies, and to no other: locks, checkpoints, files as they were before.

        Beside `journal.db`, and in a folder named after any other file: a folder may hold several of those, such as
        backups, and what is deleted in one must not take the files of another. A link stands for what it leads to.
        """
        file = self._real_file
        if file is None:
            return self.root / DATA_FOLDER
        return file.parent if file.name == STORE_FILE else file.parent / f"{file.name}{SIDE_FOLDER}"

    @property
    def owns_data_folder(self) -> bool:
        """Whether nothing but ours lies in it."""
        file, folder = self._real_file, self.data_folder
        return folder.name == DATA_FOLDER or (file is not None and folder != file.parent)

    @property
    def _real_file(self) -> Path | None:
        file = self.store_file
        return Path(os.path.realpath(file)) if file is not None and file.is_symlink() else file


class Mistakes:
    """Collects what is refused inside of `with`, so that all of it can be told at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SettingsInvalid):
            self.texts.append(str(error))
            return True
        return False

    def check(self) -> None:
        if len(self.texts) > 1:
            raise SettingsInvalid("\n  ".join([f"the settings have {len(self.texts)} mistakes:", *self.texts]))
        if self.texts:
            raise SettingsInvalid(self.texts[0])


# ---- the file --------------------------------------------------------------------------------------------------


def settings_in(
    table: Mapping[str, Any], file: Path, warnings: list[str], mistakes: Mistakes, within: str = ""
) -> Iterator[tuple[str, Any]]:
    """The settings of a file or of one of its profiles; what is not known is told in `warnings`."""
    for name, value in table.items():
        if name in GROUPS:
            pairs: list[tuple[str, Any]] = []
            with mistakes:
                inside = table_at(value, f"{file}: {within}{name}")
                pairs = [(f"{name}.{inner}", item) for inner, item in inside.items()]
        else:
            pairs = [(name, value)]
        for key, item in pairs:
            if key in KEYS:
                yield key, item
            elif key != PROFILES:
                warnings.append(f"{file}: {within}{key}: no such setting{_nearest(key)}")


def _nearest(key: str) -> str:
    """What was probably meant, where it stands: among the tables and names at the top, or inside of one table."""
    if "." not in key:
        top = [*dict.fromkeys(known.partition(".")[0] for known in KEYS), PROFILES]
        return did_you_mean(key, top) or did_you_mean(key, KEYS) or f"; there are: {', '.join(top)}"
    group, _, name = key.partition(".")
    inside = {known.partition(".")[2]: known for known in KEYS if known.startswith(f"{group}.")}
    near = get_close_matches(name, inside, n=1, cutoff=NEAR)  # without what they all begin with
    return f'; did you mean "{inside[near[0]]}"?' if near else f"; there are: {', '.join(inside.values())}"


def table_at(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsInvalid(f"{place}: expected a table, got {describe_value(value)}")
    return cast("dict[str, Any]", value)


# ---- values ----------------------------------------------------------------------------------------------------


def read_value(key: str, value: Any, place: str, base: Path) -> Any:
    """The value as the settings keep it, or a refusal that names the place, what was expected and what was found."""
    kind = KEYS[key]
    return read_measure(kind, key, value, place) if kind in MEASURES else _read_word(kind, value, place, base)


def _read_word(kind: Kind, value: Any, place: str, base: Path) -> Any:  # noqa: PLR0912 -- one case per kind
    match kind:
        case "store" if isinstance(value, str) and value:
            return _read_store(value, place, base)
        case "text" if isinstance(value, str):
            return value
        case "list" | "channels" if _is_texts(value):
            return tuple(value)
        case "whole" if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= WHOLE_MAX:
            return value
        case "seconds" if _is_seconds(value):
            return float(value)
        case "switch" if isinstance(value, bool):
            return value
        case "tables" if _is_tables(value):
            return value
        case "secrets" if isinstance(value, dict):
            return _read_secrets(cast("dict[str, Any]", value), place)
        case "notices" if _is_texts(value) and all(word in OCCASIONS for word in value):
            return tuple(word for word in OCCASIONS if word in value)
        case "rests" if _is_texts(value) and all(word in RESTS for word in value):
            return tuple(rest for rest in RESTS if rest in value)
        case "period" if _is_seconds(value) and value >= CHECKPOINT_EVERY_S_MIN:
            return float(value)
        case "duration" if _is_duration(value):
            return value
        case "ends" if _is_ends(value):
            return tuple(cast("list[str]", value))
        case _:
            raise SettingsInvalid(f"{place}: expected {EXPECTED[kind]}, got {_found(kind, value)}")


def _found(kind: Kind, value: Any) -> str:
    """What stands there instead; of a list of words the first that is none of those it may hold."""
    words = {"ends": sorted(ENDS), "rests": RESTS, "notices": OCCASIONS}.get(kind)
    if words is None or not _is_texts(value) or not value:
        return describe_value(value)
    wrong = next(word for word in value if word not in words)
    return f'"{wrong}"{did_you_mean(wrong, words)}'


def _read_secrets(value: dict[str, Any], place: str) -> dict[str, Any]:
    from holdfast.core.secret_refs import read_sources  # most settings files have none

    try:
        read_sources(value)
    except InputInvalid as error:
        raise SettingsInvalid(f"{place}.{error}") from None
    return value


def _read_store(value: str, place: str, base: Path) -> str:
    if value == MEMORY:
        return MEMORY
    if is_postgres(value):
        try:
            parse_address(value)
        except SettingsInvalid as error:
            raise SettingsInvalid(f"{place}: {error}") from None
        return value
    if "://" in value:
        raise SettingsInvalid(f"{place}: expected {EXPECTED['store']}, got {describe_value(value)}")
    try:
        if b"\0" in os.fsencode(value) or any(len(os.fsencode(part)) > NAME_BYTES_MAX for part in Path(value).parts):
            raise ValueError
        return str((base / Path(value).expanduser()).absolute())
    except ValueError:  # no file can be called that
        raise SettingsInvalid(f"{place}: expected {EXPECTED['store']}, got {describe_value(value)}") from None
    except RuntimeError:  # `~somebody` whom this machine does not know
        raise SettingsInvalid(f"{place}: {describe_value(value)} is in the home of a user who does not exist") from None


def _is_texts(value: Any) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and item for item in cast("list[object]", value)
    )


def _is_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, dict) for item in cast("dict[str, object]", value).values())


def _is_ends(value: Any) -> bool:
    return _is_texts(value) and bool(value) and ENDS.issuperset(value)


def _is_duration(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_duration(value) >= 0
    except InputInvalid:
        return False


def _is_seconds(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX
