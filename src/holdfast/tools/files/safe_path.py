"""A spot: a name in an open folder, found by a walk that nothing can lead astray.

Each folder is opened relative to the descriptor of the one before and never through a link: a link is read, and its
text is walked in the same way, so that it may lead anywhere inside the allowed folders and nowhere else. Everything
done afterwards goes through the descriptor, so a folder that somebody swaps for a link meanwhile changes nothing.
Refuses whatever is not a regular file, a folder or a link: devices, pipes and sockets are never opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from holdfast.core.errors import InvalidCall, Misconfigured, Transient
from holdfast.tools.allowed_roots import NOWHERE, AllowedRoots, Identity, identity
from holdfast.tools.files.os_errors import NotSynced

TURNS_MAX = 40  # links followed on the way to one name, as the kernel itself has it
DEPTH_MAX = 100  # folders below a root; each is held open while a path is walked

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Level(NamedTuple):
    """One opened folder on the way."""

    descriptor: int
    identity: Identity
    path: str


class SafePath:
    """Use it with `with`. `path` holds no links; `missing` are the folders still to be made on the way."""

    def __init__(self, grounds: AllowedRoots, asked: str, *, follow: bool = True, changing: bool = False) -> None:
        self.grounds = grounds
        self.name = "."
        self.missing: list[str] = []
        self._asked = asked
        self._follow = follow
        self._changing = changing
        self._levels: list[_Level] = []
        self._todo: list[str] = []  # the next name last
        self._turns = 0

    def __enter__(self) -> SafePath:
        try:
            self._start(os.path.join(self.grounds.folder, self._asked))
            self._walk()
            if self._changing:
                self.grounds.check_writing(self.path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._levels:
            os.close(self._levels.pop().descriptor)

    @property
    def folder(self) -> int:
        """The descriptor of the folder that holds the name."""
        return self._levels[-1].descriptor

    @property
    def path(self) -> str:
        names = [*self.missing, *([] if self.name == "." else [self.name])]
        return os.path.join(self._levels[-1].path, *names)

    # ---- the walk

    def _start(self, path: str) -> None:
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        root, names = self.grounds.start(path)
        self.__exit__()
        for name in root.split("/"):
            self.grounds.check_name(NOWHERE, name, root)
        try:
            # The outermost roots are the settings' own word: only here a path is opened as it is written.
            opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Misconfigured(
                f"tools.files: the allowed folder {root} cannot be opened ({error.strerror}); create it or correct it"
            ) from error
        self._push(opened, root)
        self._todo = names[::-1]

    def _walk(self) -> None:
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._back()
                continue
            self.grounds.check_name(self._levels[-1].identity, name, os.path.join(self._levels[-1].path, name))
            if self._todo:
                self._enter(name)
            elif not self._follow or not self._turn(name):
                self.name = name
                return

    def _enter(self, name: str) -> None:
        try:
            opened = os.open(name, _FOLDER, dir_fd=self.folder)
        except FileNotFoundError:
            rest = self._todo[::-1]
            if not self._changing or ".." in rest:
                raise
            self._check_depth(len(rest), os.path.join(self._levels[-1].path, name, *rest))
            for below in rest:
                self.grounds.check_name(NOWHERE, below, os.path.join(self._levels[-1].path, name, *rest))
            self.missing, self.name, self._todo = [name, *rest[:-1]], rest[-1], []
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP) or not self._turn(name):
                raise
        else:
            self._push(opened, os.path.join(self._levels[-1].path, name))

    def _push(self, opened: int, path: str) -> None:
        try:
            found = os.fstat(opened)
            self.grounds.check_folder(found, path)
            self._check_depth(0, path)
        except BaseException:
            os.close(opened)
            raise
        self._levels.append(_Level(opened, identity(found), path))

    def _check_depth(self, more: int, path: str) -> None:
        if len(self._levels) + more > DEPTH_MAX:
            raise InvalidCall(f"path: {path} is more than {DEPTH_MAX} folders deep; choose another path")

    def _back(self) -> None:
        """To the folder we came from, which is not what `..` on the disk may have become meanwhile."""
        if len(self._levels) > 1:
            os.close(self._levels.pop().descriptor)
        else:
            above = os.path.dirname(self._levels[0].path)
            self._start(os.path.join(above, *self._todo[::-1]))

    def _turn(self, name: str) -> bool:
        """Go on where a link points to; False if the name is no link."""
        try:
            target = os.readlink(name, dir_fd=self.folder)
        except OSError:
            return False
        if target.startswith("/"):
            self._start(os.path.join(target, *self._todo[::-1]))
            return True
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self._todo += [part for part in target.split("/") if part not in ("", ".")][::-1]
        return True

    # ---- what is there

    def stat(self) -> os.stat_result | None:
        """Of the name itself, also if it is a link; None if there is nothing."""
        if self.missing:
            return None
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_file(self) -> int:
        """A descriptor to read from. What it is, is known before it is opened, and checked again after."""
        expected = self.stat()
        if expected is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.check_regular(expected)
        try:
            opened = os.open(self.name, _FILE, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket by now
                self.raise_changed()
            raise
        if identity(os.fstat(opened)) != identity(expected):
            os.close(opened)
            self.raise_changed()
        return opened

    def check_regular(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise InvalidCall(f"{self.path} is not a regular file; only files can be read and changed")
        self.grounds.check_links(found, self.path)

    def open_folder(self) -> int:
        opened = os.open(self.name, _FOLDER, dir_fd=self.folder)
        try:
            self.grounds.check_folder(os.fstat(opened), self.path)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def raise_changed(self) -> NoReturn:
        raise Transient(f"{self.path} was changed by somebody else at this very moment", without_effect=True)

    # ---- what is to be there

    @contextmanager
    def folders_made(self) -> Generator[None]:
        """Make what is missing and stand in the last of it. If the change fails, what was made for it goes again."""
        made: list[tuple[int, str]] = []
        try:
            self._make_folders(made)
            yield
        except NotSynced:
            raise
        except BaseException as error:
            for folder, name in reversed(made):
                with suppress(OSError):  # unless somebody uses it by now
                    os.rmdir(name, dir_fd=folder)
            if isinstance(error, FileNotFoundError) and not os.fstat(self.folder).st_nlink:
                self.raise_changed()  # the folder itself is gone, perhaps with another change that made it and failed
            raise

    def _make_folders(self, made: list[tuple[int, str]]) -> None:
        while self.missing:
            name = self.missing[0]
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.folder)
                made.append((self.folder, name))
                os.fsync(self.folder)
            opened = os.open(name, _FOLDER, dir_fd=self.folder)
            self._push(opened, os.path.join(self._levels[-1].path, name))
            self.missing.pop(0)
