"""Whether the files that are written to are still the ones that lie in the folder.

A file that was removed or replaced can be written and synced like any other as long as it is open, and is gone with the
process. SQLite does not look; so this does, before anybody is told that something is on disk. Only names are looked at:
to open the file once more, and to close it, would let go of SQLite's own locks.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.core.errors import StoreUnavailable


class Presence:
    """`connection` is open: then the log is there as long as any connection is, and stays the same file."""

    def __init__(self, connection: Any) -> None:
        self._file, self._log = str(connection.filename), str(connection.filename_wal)
        self._known = {name: _identity(name) for name in (self._file, self._log)}
        self.is_lost = False  # as far as was seen

    def check(self) -> None:
        missing = self._missing()
        self.is_lost = missing != ""
        if missing:
            raise StoreUnavailable(self._trouble(missing))

    def _missing(self) -> str:
        for name, known in self._known.items():
            found = _identity(name, known)
            if known is None:
                self._known[name] = found  # it had yet to be made
            elif found != known:
                return name
        return ""

    def _trouble(self, name: str) -> str:
        if name == self._file:
            return (
                f"{name} was removed or replaced while it was in use, and nothing more is recorded; end every process "
                "that uses it, put the file back or restore a backup, and start again"
            )
        return (
            f"{name} was removed or replaced while it was in use, and nothing more is recorded; end every process that "
            "uses it, but do not kill it: one that ends by itself moves what it still holds into the file"
        )


def _identity(name: str, otherwise: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Which file has this name; None if none has. Where nobody may look, it counts as unchanged."""
    try:
        found = os.stat(name)
    except FileNotFoundError:
        return None
    except OSError:
        return otherwise
    return found.st_dev, found.st_ino
