"""Where Holdfast's settings come from: a file found upwards, then the environment, then flags; later ones win.

Owns the names, types and defaults of all settings, and the data folder. Refuses unknown keys and wrong types by name,
so that a slip of the pen is never silently a default. Every value remembers its source.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from holdfast.core.errors import SettingsInvalid, StoreUnavailable
from holdfast.core.policy import INTERRUPT_GRACE_S, PASSIVATE_AFTER_S
from holdfast.core.suggest import describe_value, did_you_mean
from holdfast.journal.postgres_address import is_postgres, parse_address

CONFIG_FILE = "holdfast.toml"
DATA_FOLDER = ".holdfast"
STORE_FILE = "journal.db"
MEMORY = "memory:"
ENVIRONMENT_PREFIX = "HOLDFAST_"

Kind = Literal["store", "text", "list", "whole", "seconds"]
KEYS: dict[str, Kind] = {
    "store": "store",
    "modules": "list",
    "owner": "text",
    "limits.executions": "whole",
    "limits.parked": "whole",
    "limits.passivate_after_s": "seconds",
    "limits.interrupt_grace_s": "seconds",
    "limits.drain_s": "seconds",
}
EXPECTED: dict[Kind, str] = {
    "store": 'a path, "memory:" or "postgresql://…"',
    "text": "a text",
    "list": "a list of module names or .py files",
    "whole": "a whole number from 1 to 1000000",
    "seconds": "a number of seconds from 0 to 86400",
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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`root` is the folder of the settings file, or the one started in. `sources` says where each value came from."""

    root: Path
    store: str
    config_file: Path | None = None
    modules: tuple[str, ...] = ()
    owner: str = ""
    limits: LimitSettings = field(default_factory=LimitSettings)
    sources: Mapping[str, str] = field(default_factory=dict[str, str])

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
        """Where the store and what belongs to it lie."""
        file = self.store_file
        return file.parent if file is not None else self.root / DATA_FOLDER


def load_settings(
    start: Path, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read everything that applies in the folder `start`. A flag that is None was not given."""
    start = start.resolve()
    config_file, table = _find_config(start)
    root = config_file.parent if config_file else start
    values: dict[str, Any] = {}
    sources = dict.fromkeys(KEYS, "default")
    if config_file is not None:
        for key, value in _flatten(table, config_file):
            values[key] = _read(key, value, f"{config_file}: {key}", root)
            sources[key] = str(config_file)
    for key, name, text in _from_environment(os.environ if environ is None else environ):
        values[key] = _read(key, _from_text(KEYS[key], text), name, start)
        sources[key] = name
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = _read(key, value, f"--{key.replace('.', '-')}", start)
            sources[key] = f"--{key.replace('.', '-')}"
    limits = {key.partition(".")[2]: values.pop(key) for key in list(values) if key.startswith("limits.")}
    values.setdefault("store", str(root / DATA_FOLDER / STORE_FILE))
    return Settings(root=root, config_file=config_file, limits=LimitSettings(**limits), sources=sources, **values)


def ensure_data_folder(settings: Settings) -> Path:
    """Create the data folder if need be; the default one ignores itself in git."""
    file, folder = settings.store_file, settings.data_folder
    if file is None:
        return folder
    try:
        if file.is_dir():
            raise SettingsInvalid(f"store: {file} is a folder; name a file, such as {file / STORE_FILE}")
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if folder.name == DATA_FOLDER and not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise StoreUnavailable(
            f"the folder {folder} cannot be created or written ({error.strerror}); "
            "make it writable, or name another store with --store"
        ) from error
    return folder


# ---- the file --------------------------------------------------------------------------------------------------


def _find_config(start: Path) -> tuple[Path | None, dict[str, Any]]:
    for folder in (start, *start.parents):
        own = folder / CONFIG_FILE
        if own.is_file():
            return own, _parse(own)
        shared = folder / "pyproject.toml"
        if shared.is_file() and b"tool.holdfast" in _bytes_of(shared):
            tools = _parse(shared).get("tool")
            table: Any = cast("dict[str, Any]", tools).get("holdfast") if isinstance(tools, dict) else None
            if isinstance(table, dict):
                return shared, cast("dict[str, Any]", table)
            if table is not None:
                raise SettingsInvalid(f"{shared}: tool.holdfast: expected a table, got {describe_value(table)}")
    return None, {}


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_bytes_of(path).decode())
    except UnicodeDecodeError:
        raise SettingsInvalid(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # the parser also lets a number too long or brackets too deep escape
        raise SettingsInvalid(f"{path} is not valid TOML: {error}") from None


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsInvalid(f"{path} cannot be read: {error.strerror}") from error


def _flatten(table: Mapping[str, Any], file: Path) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if name == "limits":
            if not isinstance(value, dict):
                raise SettingsInvalid(f"{file}: limits: expected a table, got {describe_value(value)}")
            pairs = [(f"limits.{inner}", item) for inner, item in cast("dict[str, Any]", value).items()]
        else:
            pairs = [(name, value)]
        for key, item in pairs:
            if key not in KEYS:
                known = did_you_mean(key, KEYS) or f"; there are: {', '.join(KEYS)}"
                raise SettingsInvalid(f"{file}: {key}: no such setting{known}")
            yield key, item


# ---- the environment -------------------------------------------------------------------------------------------


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    names = {key.upper().replace(".", "_"): key for key in KEYS}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name in names:
            if text:
                yield names[name], variable, text
        elif name.startswith("LIMITS_"):
            # Other variables may belong to somebody else; these can only be meant for us.
            meant = did_you_mean(variable, [ENVIRONMENT_PREFIX + known for known in names])
            raise SettingsInvalid(f"{variable}: no such setting{meant}")


def _from_text(kind: Kind, text: str) -> Any:
    """A value from the environment, where everything is text."""
    if kind == "list":
        return [part.strip() for part in re.split(f"[,{re.escape(os.pathsep)}]", text) if part.strip()]
    if kind in ("whole", "seconds"):
        try:
            return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
        except ValueError:
            return text  # refused by _read, which knows the words
    return text


# ---- values ----------------------------------------------------------------------------------------------------


def _read(key: str, value: Any, place: str, base: Path) -> Any:
    """The value as the settings keep it, or a refusal that names the place, what was expected and what was found."""
    kind = KEYS[key]
    match kind:
        case "store" if isinstance(value, str) and value:
            return _read_store(value, place, base)
        case "text" if isinstance(value, str):
            return value
        case "list" if _is_texts(value):
            return tuple(value)
        case "whole" if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= WHOLE_MAX:
            return value
        case "seconds" if _is_seconds(value):
            return float(value)
        case _:
            raise SettingsInvalid(f"{place}: expected {EXPECTED[kind]}, got {describe_value(value)}")


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


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and item for item in cast("list[object]", value)
    )


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX
