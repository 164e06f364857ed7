"""Who is alive: each engine process holds a lock on a file of its own, and the kernel lets go of it when it dies.

POSIX record locks (`lockf`) are used because `flock` would survive in forked children. They have a trap: closing any
descriptor of the file drops the lock, so a process never opens the files of its own drivers again.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import StoreUnavailable

_ours: set[str] = set()  # drivers of this process, over all engines in it
_ours_pid = os.getpid()
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


class Liveness(Protocol):
    def register(self, driver: str) -> None: ...

    def is_dead(self, driver: str) -> bool: ...

    def release(self, driver: str) -> None: ...


class LockFiles:
    """One lock file per driver in a folder beside the store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def register(self, driver: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / driver, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be written ({error}); make the folder writable") from error
        self._held[driver] = handle
        _remember(driver)

    def is_dead(self, driver: str) -> bool:
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
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def forget(self, driver: str) -> None:
        """Remove the file of a dead driver that holds nothing any more."""
        if driver not in _known() and self.is_dead(driver):
            with suppress(OSError):
                (self._folder / driver).unlink()

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
        # Unlinked before the lock goes, so that nobody finds a free lock of a driver that is still closing.
        with suppress(OSError):
            (self._folder / driver).unlink()
        _known().discard(driver)
        os.close(handle)


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


def _known() -> set[str]:
    """The drivers of this process; a forked child starts with none, as the kernel gives it no locks."""
    global _ours_pid  # noqa: PLW0603 -- the process's own identity is global
    if os.getpid() != _ours_pid:
        _ours_pid = os.getpid()
        _ours.clear()
    return _ours


def _remember(driver: str) -> None:
    _known().add(driver)
