"""Where the project is: the settings file and the data folder, both found upwards as git finds `.git`.

A data folder above is used only if it is this user's own, on the same file system, and not the one of the home folder,
which is nobody's project unless one works right there. Linked git worktrees share the folder of the main one; git
itself is not needed to find it. Creates nothing but the data folder, and that only when asked.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from holdfast.core.error_text import describe_value
from holdfast.core.errors import SettingsInvalid, StoreUnavailable
from holdfast.settings.schema import DATA_FOLDER, STORE_FILE, Settings

CONFIG_FILE = "holdfast.toml"
LINK_BYTES_MAX = 4096  # of a `.git` file and of `commondir`: each holds one path


class DataLocation(NamedTuple):
    """`how` says in words how the data folder was found."""

    root: Path
    data_folder: Path
    how: str


# ---- the settings file -----------------------------------------------------------------------------------------


def find_config(start: Path) -> tuple[Path | None, dict[str, Any]]:
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


# ---- the data folder -------------------------------------------------------------------------------------------


def find_place(
    start: Path, config_file: Path | None, environ: Mapping[str, str], *, worktrees_share: bool
) -> DataLocation:
    """The project's folder and where its data lies, which need not exist yet."""
    worktree = _linked_worktree(start) if worktrees_share else None
    for folder in [config_file.parent] if config_file else _upwards(start, environ.get("HOME")):
        if _is_ours(folder / DATA_FOLDER, folder == start):
            how = "default" if config_file or folder == start else "default, found upwards"
            return DataLocation(folder, folder / DATA_FOLDER, how)
        twin = worktree.twin_of(folder) if worktree else None
        if twin is not None and (config_file or (twin / DATA_FOLDER).is_dir()):
            return DataLocation(folder, twin / DATA_FOLDER, "default, of the main git worktree")
    root = config_file.parent if config_file else start
    twin = worktree.twin_of(root) if worktree else None
    if twin is not None:
        return DataLocation(root, twin / DATA_FOLDER, "default, of the main git worktree")
    return DataLocation(root, root / DATA_FOLDER, "default")


def _upwards(start: Path, home: str | None) -> Iterator[Path]:
    """The folder itself and those above it, up to the home folder or the border of the file system."""
    yield start
    border = Path(home).resolve() if home else None
    if start == border:
        return
    for folder in start.parents:
        if folder == border or not _is_same_device(folder, start):
            return
        yield folder


def _is_same_device(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def _is_ours(folder: Path, is_here: bool) -> bool:
    """Somebody else's folder above, such as one left in /tmp, would get our data."""
    try:
        return folder.is_dir() and (is_here or folder.stat().st_uid == os.getuid())
    except OSError:
        return False


class _Worktree(NamedTuple):
    top: Path
    main: Path

    def twin_of(self, folder: Path) -> Path | None:
        """The same folder in the main worktree, if it has one."""
        twin = self.main / folder.relative_to(self.top) if folder.is_relative_to(self.top) else None
        return twin if twin is not None and twin.is_dir() else None


def _linked_worktree(start: Path) -> _Worktree | None:
    """A linked worktree's `.git` is a file: `gitdir: …`. That folder's `commondir` leads to the main one's `.git`."""
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    said = _line_of(top / ".git") if top else ""
    if top is None or not said.startswith("gitdir:"):
        return None
    own = top / said.removeprefix("gitdir:").strip()
    common = _line_of(own / "commondir")
    git_folder = (own / common).resolve() if common else None
    if git_folder is None or git_folder.name != ".git":
        return None  # a submodule, or a bare repository, which has no main worktree
    return _Worktree(top, git_folder.parent)


def _line_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LINK_BYTES_MAX).decode().strip()
    except (OSError, ValueError):
        return ""


# ---- making it -------------------------------------------------------------------------------------------------


def ensure_data_folder(settings: Settings) -> Path:
    """Create the data folder if need be; one that is ours alone ignores itself in git."""
    file, folder = settings.store_file, settings.data_folder
    if file is None:
        return folder
    if file.is_dir():
        raise SettingsInvalid(f"store: {file} is a folder; name a file, such as {file / STORE_FILE}")
    ensure_folder(folder, is_ours=settings.owns_data_folder)
    return folder


def ensure_folder(folder: Path, *, is_ours: bool = False) -> None:
    """`is_ours`: nothing else lies there, so git need not look at it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if (is_ours or folder.name == DATA_FOLDER) and not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise StoreUnavailable(
            f"the folder {folder} cannot be created or written ({error.strerror}); "
            "make it writable, or name another store with --store"
        ) from error
