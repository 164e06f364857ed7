"""What the files of one command take on disks, whether it wrote that or only reserved it (fallocate).

The system counts what a process writes, and not what it reserves; nor does a file tell who made it. So there are two
ways to know. What the command has open for writing is looked at with the rest, and remembered. And of one that was seen
to reserve something, what it opened and closed between two looks shows on the disk: when that has lost more than the
command may take, the files that were born in its folders since it began are taken for its own, unless another command
works there, too. A hole in a file takes nothing, and does not count.

Standard library only: the keeper runs it in an interpreter of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or "holdfast" in sys.modules:
    from holdfast.tools.processes import proc_tree as trees
else:  # alone in an interpreter that knows no packages; the keeper has loaded it
    trees = sys.modules["proc_tree"]

ENTRIES_MAX = 20_000  # of its folders, at one look; there may be a whole home below them
FOLDERS_MAX = 50  # besides its own, in which it was seen to reserve something
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_statx: Any = getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None


class _File(NamedTuple):
    before: int  # bytes that it took already when it was first seen, if it is older than the command
    now: int


class DiskUsage:
    def __init__(self, folder: str, limit: int) -> None:
        """Before the command begins."""
        self.folder = os.path.realpath(folder)
        self.is_shared = False  # with another command that works here
        self._limit = limit
        self._began_ns = time.time_ns()  # what is made within a tick of the clock may look older, and is let pass
        self._free_before = self._free()
        self._files: dict[tuple[int, int], _File] = {}  # by device and number
        self._folders = {self.folder: True}  # where it works; in the order in which that was seen
        self._reserves = False

    def meet(self, other: DiskUsage) -> None:
        """Another command runs at the same time. Whoever works further down has its folder for itself."""
        self.is_shared = self.is_shared or _is_in(other.folder, self.folder)
        other.is_shared = other.is_shared or _is_in(self.folder, other.folder)

    def taken(self, tree: Iterable[trees.ProcessInfo], written: int) -> int:
        """Bytes that its files take, as far as they were ever seen. `written` is what the system knows of."""
        for path in _open_for_writing(tree):
            self._see(path)
        self._reserves = self._reserves or self._sum() > written + trees.DISK_SLACK_BYTES
        free = self._free()
        lost = self._free_before - free - written if free is not None and self._free_before is not None else 0
        if lost > self._limit and self._reserves and not self.is_shared:
            self._search()
        return self._sum()

    def _sum(self) -> int:
        return sum(max(0, file.now - file.before) for file in self._files.values())

    def _free(self) -> int | None:
        try:
            told = os.statvfs(self.folder)
        except OSError:
            return None
        return told.f_bfree * told.f_frsize

    def _see(self, path: str) -> None:
        """A file that a process has open, by its place in /proc."""
        with contextlib.suppress(OSError):
            told = os.stat(path)
            if not stat.S_ISREG(told.st_mode):
                return
            key, takes = (told.st_dev, told.st_ino), told.st_blocks * trees.BLOCK_BYTES
            known = self._files.get(key)
            if known is not None:
                self._files[key] = known._replace(now=max(known.now, takes))
                return
            target = os.readlink(path)
            if target.startswith(("/memfd:", "/dev/shm/")) and told.st_nlink == 0:
                return  # that is memory, and counted as such
            is_own = self._is_born_here(path, told, follow=True)
            self._files[key] = _File(0 if is_own else takes, takes)
            if is_own and len(self._folders) <= FOLDERS_MAX:
                self._folders[os.path.dirname(target)] = True

    def _search(self) -> None:
        """Through the folders it works in, for files that were born since it began."""
        for path in _files_below(list(self._folders)):
            with contextlib.suppress(OSError):
                told = os.lstat(path)
                if (told.st_dev, told.st_ino) not in self._files and self._is_born_here(path, told, follow=False):
                    self._files[told.st_dev, told.st_ino] = _File(0, told.st_blocks * trees.BLOCK_BYTES)

    def _is_born_here(self, path: str, told: os.stat_result, *, follow: bool) -> bool:
        if told.st_ctime_ns < self._began_ns:  # a quick no: nobody has touched it since
            return False
        born_ns = _born_ns(path, follow)
        return born_ns is not None and born_ns >= self._began_ns


def _is_in(inner: str, outer: str) -> bool:
    return os.path.commonpath((inner, outer)) == outer


def _open_for_writing(tree: Iterable[trees.ProcessInfo]) -> Iterator[str]:
    for seen in tree:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = os.listdir(f"{seen.place}/fd")
        for name in names:
            path = f"{seen.place}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.lstat(path).st_mode & stat.S_IWUSR:  # the link tells how it was opened
                    yield path


def _files_below(folders: list[str]) -> Iterator[str]:
    entries, known = 0, set(folders)
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as found:
            for entry in found:
                entries += 1
                if entries > ENTRIES_MAX:
                    return
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in known:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path


def _born_ns(path: str, follow: bool) -> int | None:
    """None where the file system does not know."""
    if _statx is None:
        return None
    told = ctypes.create_string_buffer(256)
    flags = 0 if follow else _AT_SYMLINK_NOFOLLOW
    if _statx(_AT_FDCWD, os.fsencode(path), flags, _STATX_BTIME, told):
        return None
    if not int.from_bytes(told.raw[:4], sys.byteorder) & _STATX_BTIME:  # what it could tell
        return None
    seconds = int.from_bytes(told.raw[80:88], sys.byteorder, signed=True)
    return seconds * 10**9 + int.from_bytes(told.raw[88:92], sys.byteorder)
