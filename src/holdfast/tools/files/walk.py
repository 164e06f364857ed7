"""Walking below a folder: sorted, bounded, through descriptors, never through links and never into what is not ours.

Owns patterns too. A pattern without a slash is for names at any depth; one with slashes is for paths from the folder
walked, in which `**` stands for any number of folders.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core.errors import InvalidCall, ToolError
from holdfast.tools.allowed_roots import identity
from holdfast.tools.files.safe_path import DEPTH_MAX, SafePath

LOOKED_AT_MAX = 100_000  # names of one list or search; beyond it the answer says that it is cut
PATTERN_CHARS_MAX = 1000

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class WalkEntry(NamedTuple):
    """One name found: its path from the folder walked, and the open folder that holds it while it is looked at."""

    names: tuple[str, ...]
    folder: int
    found: os.stat_result

    @property
    def kind(self) -> str:
        return KINDS.get(stat.S_IFMT(self.found.st_mode), "other")


class Tree:
    """Iterate over it once; `cut` is true if there was more than may be looked at."""

    def __init__(self, spot: SafePath, pattern: str, depth: int) -> None:
        self.cut = False
        self._spot = spot
        self._pattern = GlobPattern(pattern)
        self._depth = min(depth, DEPTH_MAX)
        self._looked_at = 0

    def __iter__(self) -> Iterator[WalkEntry]:
        found = self._spot.stat()
        if found is not None and not stat.S_ISDIR(found.st_mode):
            yield WalkEntry((self._spot.name,), self._spot.folder, found)
            return
        opened = self._spot.open_folder()
        try:
            yield from self._below(opened, ())
        finally:
            os.close(opened)

    def _below(self, folder: int, above: tuple[str, ...]) -> Iterator[WalkEntry]:
        own = identity(os.fstat(folder))
        for name in self._names(folder):
            names = (*above, name)
            try:
                self._spot.grounds.check_name(own, name, name)
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except (OSError, ToolError):
                continue  # ours, or gone meanwhile
            if self._pattern.fits(names):
                yield WalkEntry(names, folder, found)
            if stat.S_ISDIR(found.st_mode):
                yield from self._inside(folder, name, names)

    def _names(self, folder: int) -> list[str]:
        names: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._looked_at += 1
                if self._looked_at > LOOKED_AT_MAX:
                    self.cut = True
                    break
                names.append(entry.name)
        return sorted(names)

    def _inside(self, folder: int, name: str, names: tuple[str, ...]) -> Iterator[WalkEntry]:
        if len(names) >= self._depth or self.cut:
            return
        try:
            opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            return  # not ours to read, or gone meanwhile
        try:
            self._spot.grounds.check_folder(os.fstat(opened), name)
            yield from self._below(opened, names)
        except ToolError:
            return  # the system's own
        finally:
            os.close(opened)


class GlobPattern:
    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARS_MAX:
            raise InvalidCall(f"pattern: it has {len(pattern)} characters, at most {PATTERN_CHARS_MAX} are allowed")
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if "/" not in pattern:
            parts = ["**", *parts]
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]

    def fits(self, names: tuple[str, ...]) -> bool:
        """Follows all places in the pattern that the names can lead to at once, so it never has to try again."""
        places = self._skipping({0})
        for name in names:
            reached: set[int] = set()
            for place in places:
                part = self._parts[place] if place < len(self._parts) else _END
                if part is None:
                    reached.add(place)
                elif part.match(name):
                    reached.add(place + 1)
            places = self._skipping(reached)
        return len(self._parts) in places

    def _skipping(self, places: set[int]) -> set[int]:
        """`**` may stand for no folder at all."""
        found = set(places)
        for place in sorted(places):
            while place < len(self._parts) and self._parts[place] is None:
                place += 1  # noqa: PLW2901 -- walks on from each
                found.add(place)
        return found


_END = re.compile(r"(?!)")
