"""Who is alive: each engine process holds a lock on a file of its own, and the kernel lets go of it when it dies.

POSIX record locks (`lockf`) are used because `flock` would survive in forked children. They have a trap: closing any
descriptor of the file drops the lock, so a process never opens the files of its own drivers again.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import StoreUnavailable

_ours: set[str] = set()  # drivers of this process, over all engines in it
_ours_pid = os.getpid()
REGISTER_TRIES = 50
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


class Liveness(Protocol):
    def register(self, driver: str) -> None: ...

    def is_dead(self, driver: str) -> bool: ...

    def release(self, driver: str) -> None: ...

    def tidy(self, holders: Collection[str]) -> None:
        """Forget the dead who hold nothing any more."""
        ...


class LockFiles:
    """One lock file per driver in a folder beside the store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def register(self, driver: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = _lock_new(self._folder / driver)
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be written ({error}); make the folder writable") from error
        self._held[driver] = handle
        _remember(driver)

    def is_dead(self, driver: str) -> bool:
        return self._is_free(driver)

    def forget(self, driver: str) -> None:
        """Remove the file of a dead driver that holds nothing any more."""
        self._is_free(driver, remove=True)

    def _is_free(self, driver: str, *, remove: bool = False) -> bool:
        if driver in _known() or not _NAME.fullmatch(driver):
            return False
        path = self._folder / driver
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True  # it tidied up after itself, or somebody did after its death
        except OSError:
            return False  # not known to be dead
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if remove:  # while the lock is ours, so that nobody registers in between and loses the file
                path.unlink(missing_ok=True)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def tidy(self, holders: Collection[str]) -> None:
        for driver in self.everybody():
            if driver not in holders:
                self.forget(driver)

    def everybody(self) -> list[str]:
        """All drivers with a file here, dead or alive."""
        try:
            return sorted(entry.name for entry in self._folder.iterdir() if _NAME.fullmatch(entry.name))
        except OSError:
            return []

    def release(self, driver: str) -> None:
        handle = self._held.pop(driver, None)
        if handle is None:
            return
        if driver in _known():  # in a forked child it is not: the file belongs to the parent, who lives
            # Unlinked before the lock goes, so that nobody finds a free lock of a driver that is still closing.
            with suppress(OSError):
                (self._folder / driver).unlink()
            _known().discard(driver)
        os.close(handle)


def _lock_new(path: Path) -> int:
    """Create and lock a driver's file. Somebody who tidies up may hold or remove it for a moment."""
    for tries_left in reversed(range(REGISTER_TRIES)):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
            os.close(handle)
        except FileNotFoundError:
            os.close(handle)
        except OSError:
            os.close(handle)
            if not tries_left:
                raise
        time.sleep(0.001)
    raise OSError(f"{path.name} is removed as soon as it is created")


class InProcess:
    """For the memory store: drivers live exactly as long as they are registered."""

    def __init__(self) -> None:
        self._alive: set[str] = set()

    def register(self, driver: str) -> None:
        self._alive.add(driver)

    def is_dead(self, driver: str) -> bool:
        return driver not in self._alive

    def release(self, driver: str) -> None:
        self._alive.discard(driver)

    def tidy(self, holders: Collection[str]) -> None:
        """Nothing is left behind."""


def _known() -> set[str]:
    """The drivers of this process; a forked child starts with none, as the kernel gives it no locks."""
    global _ours_pid  # noqa: PLW0603 -- the process's own identity is global
    if os.getpid() != _ours_pid:
        _ours_pid = os.getpid()
        _ours.clear()
    return _ours


def _remember(driver: str) -> None:
    _known().add(driver)
