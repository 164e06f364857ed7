"""Where files may be: the allowed folders, and what inside them is Holdfast's own or the system's.

Owns the rules; tools/files/safe_path.py walks by them. Refuses `.holdfast` whatever it is called by, because opening
and closing a lock file or the journal from this process would silently drop the locks it holds.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.core.errors import InvalidCall, NotPermitted
from holdfast.tools.toolset import MEMORY, ToolsetFolders

OWN_FOLDER = ".holdfast"
# Of a data folder that is not ours alone, but shared with other files: what in it is ours besides the journal.
OWN_FOLDERS = frozenset({"before", "drivers", "executions", "logs", "mcp", "search", "tools"})
OWN_FILE = "live.db"  # and what SQLite puts beside it
SETTINGS_FILE = "holdfast.toml"
SHARED_SETTINGS_FILE = "pyproject.toml"  # of other programs, too: its content says whether it holds ours
SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")

Identity = tuple[int, int]
NOWHERE: Identity = (0, 0)  # the identity of a folder that is not there yet, or need not be known


class AllowedRoots:
    """The folders one call may use. Relative paths, also those of the roots, start at `folder`."""

    def __init__(
        self,
        roots: Iterable[str],
        write: Iterable[str] | None,
        folder: Path,
        place: ToolsetFolders,
        *,
        hard_links: bool = False,
        settings: bool = False,
    ) -> None:
        self.folder = os.path.abspath(folder)
        reading = [self._absolute(root) for root in roots]
        self._writing = reading if write is None else [self._absolute(root) for root in write]
        # Only the outermost: one inside another is walked to from there, so that it is no link to somewhere else.
        self._named = {*reading, *self._writing}
        self._roots = sorted(root for root in self._named if not self._is_below_another(root))
        self._data = place.data
        self._store = "" if place.store == MEMORY or "://" in place.store else os.path.realpath(place.store)
        self._journal = os.path.basename(self._store)
        self._is_data_ours = place.data.name == OWN_FOLDER or bool(self._journal and not self._is_beside(place.data))
        self.hard_links = hard_links
        self._settings = os.path.realpath(place.settings) if place.settings else ""
        self._may_change_settings = settings

    def _absolute(self, root: str) -> str:
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(root)))

    def _is_below_another(self, root: str) -> bool:
        return any(_is_inside(root, other) for other in self._named - {root})

    def _is_beside(self, data: Path) -> bool:
        """Whether the journal lies in the data folder itself, perhaps with other files, and not next to it."""
        return os.path.realpath(data) == os.path.dirname(self._store)

    # ---- roots

    def start(self, path: str, argument: str = "path") -> tuple[str, list[str]]:
        """The root to walk from, and the names to walk. `path` is absolute; `argument` is what a refusal calls it."""
        for written in (path, os.path.normpath(path)):  # `..` in front of a root is settled by its text
            parts = [part for part in written.split("/") if part not in ("", ".")]
            for root in self._roots:
                own = [part for part in root.split("/") if part]
                if parts[: len(own)] == own:
                    return root, parts[len(own) :]
        raise self.outside(path, argument)

    def outside(self, path: str, argument: str = "path") -> NotPermitted:
        return NotPermitted(
            f"{argument}: {quoted(path)} leads outside the allowed folders ({', '.join(self._roots)}); "
            "stay inside, or allow more in tools.files.roots"
        )

    def names(self, path: str) -> bool:
        """Whether a path is one of the roots itself."""
        return path in self._named

    def holds(self, path: str) -> bool:
        """Whether a path, absolute and without links, is inside one of the roots."""
        return any(_is_inside(path, root) for root in self._real_roots)

    def leads_to(self, path: str) -> bool:
        """Whether a folder, likewise, is inside one of the roots or one of them inside it."""
        return self.holds(path) or any(_is_inside(root, path) for root in self._real_roots)

    @functools.cached_property
    def _real_roots(self) -> list[str]:
        return [os.path.realpath(root) for root in self._roots]

    def check_writing(self, path: str) -> None:
        """Whether what was found at `path`, which holds no links any more, may be changed, and that be recorded."""
        if not _is_text(path):
            raise InvalidCall(f"path: it leads to {quoted(path)}, which is not UTF-8 text; rename it first")
        if not any(_is_inside(path, root) for root in self._writing):
            raise NotPermitted(
                f"path: {quoted(path)} may be read but not changed; "
                f"what may be is in {', '.join(sorted(self._writing)) or 'no folder'} (tools.files.write)"
            )
        is_settings = os.path.basename(path).casefold() == SETTINGS_FILE or path == self._settings
        if is_settings and not self._may_change_settings:
            raise holds_settings(path)

    def may_hold_settings(self, path: str) -> bool:
        """Whether a file of this name may be changed depends on its content, as pyproject_guard.py knows."""
        return os.path.basename(path).casefold() == SHARED_SETTINGS_FILE and not self._may_change_settings

    # ---- what is not to be touched

    @functools.cached_property
    def _data_identity(self) -> Identity | None:
        return _identity_at(self._data)

    @functools.cached_property
    def _store_identity(self) -> Identity | None:
        """Of the folder that the journal lies in."""
        return _identity_at(os.path.dirname(self._store)) if self._store else None

    def check_name(self, folder: Identity, name: str, path: str) -> None:
        """Whether a name may be used at all, before anything of that name is opened."""
        own = name.casefold() == OWN_FOLDER
        if not own and folder == self._data_identity:
            own = name.casefold() in OWN_FOLDERS or name.startswith(OWN_FILE)
        if not own and folder == self._store_identity:
            own = name.startswith(self._journal)
        if own:
            raise _ours(path)

    def check_folder(self, found: os.stat_result, path: str) -> None:
        """Whether an opened folder may be entered, whatever name led to it."""
        if self._is_data_ours and identity(found) == self._data_identity:
            raise _ours(path)
        if found.st_dev in _system_devices():
            raise NotPermitted(f"path: {quoted(path)} belongs to the system, not to a disk; choose another path")

    def check_links(self, found: os.stat_result, path: str) -> None:
        """A file with a second name may be a file outside."""
        if found.st_nlink <= 1:
            return
        if not self.hard_links:
            raise NotPermitted(
                f"path: {quoted(path)} has {found.st_nlink} names (hard links), and the others may be outside the "
                "allowed folders; copy it, or set tools.files.hard_links = true"
            )
        if identity(found) in self._own_files():
            raise _ours(path)

    def check_movable(self, found: os.stat_result, path: str) -> None:
        """Moving a folder above ours would take the journal along."""
        above = [self._data.absolute(), *self._data.absolute().parents]
        if identity(found) in {identity(os.stat(folder)) for folder in above if folder.exists()}:
            raise InvalidCall(f"path: {quoted(path)} holds Holdfast's own data and cannot be moved")

    def _own_files(self) -> set[Identity]:
        found: set[Identity] = set()
        for folder in (self._data, *(self._data / name for name in OWN_FOLDERS)):
            if folder.is_dir():
                found |= {identity(entry.stat()) for entry in os.scandir(folder) if entry.is_file()}
        if self._store:
            beside = (self._store + end for end in ("", "-wal", "-shm", "-journal"))
            found |= {one for one in map(_identity_at, beside) if one is not None}
        return found


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _identity_at(path: str | Path) -> Identity | None:
    try:
        return identity(os.stat(path))
    except OSError:
        return None  # nothing of ours is there yet


def quoted(path: str) -> str:
    """All of it, however long: a path that is cut names nothing."""
    return json.dumps(shown([path]), ensure_ascii=False)


def holds_settings(path: str, how: str = "holds") -> NotPermitted:
    return NotPermitted(
        f"path: {quoted(path)} {how} settings of Holdfast, which say what tools may do; "
        "change it yourself, or set tools.files.settings = true"
    )


def identity(found: os.stat_result) -> Identity:
    return (found.st_dev, found.st_ino)


def _ours(path: str) -> NotPermitted:
    return NotPermitted(f"path: {quoted(path)} is Holdfast's own; no tool reads or changes it")


@functools.cache
def _system_devices() -> frozenset[int]:
    """The file systems behind /proc, /sys and /dev, where they are not simply the disk that holds everything."""
    disk = os.stat("/").st_dev
    return frozenset(os.stat(folder).st_dev for folder in SYSTEM_FOLDERS if os.path.isdir(folder)) - {disk}


def checked_path(path: str, argument: str = "path") -> str:
    """A text that can be a path at all."""
    if not path:
        raise InvalidCall(f'{argument}: expected a path, got ""')
    if "\0" in path:
        raise InvalidCall(f"{argument}: {quoted(path)} is not a path: it holds a NUL character")
    if not _is_text(path):
        raise InvalidCall(f"{argument}: {path!a} is not UTF-8 text; choose another path")
    return path


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(names: Sequence[str]) -> str:
    """Names as JSON can hold them, even those that are not UTF-8."""
    return os.fsencode("/".join(names)).decode(errors="backslashreplace")
