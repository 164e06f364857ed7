"""What an engine knows about its tools now, for other processes: one small file for each engine, beside the store.

Not the truth but a notice: written when something changes, never synced, gone with its engine. Whoever reads it asks
first whether the engine is alive.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

FOLDER = "tools"
FILE_BYTES_MAX = 4 * 1024 * 1024  # what is larger was not written by us


class ToolState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One tool, as one engine sees it. `apart` is what its breaker is kept apart by, such as a host."""

    tool: str
    apart: str = ""
    breaker: str = ""  # closed, open or half_open; "" if it has none
    why: str = ""
    probe_at: int | None = None
    health: str = ""  # well or ill; "" if nobody has looked
    health_why: str = ""
    health_at: int | None = None


class EngineToolStates(msgspec.Struct, kw_only=True):
    at: int
    tools: list[ToolState]


class Board:
    def __init__(self, data_folder: Path) -> None:
        self._folder = data_folder / FOLDER

    def post(self, driver: str, notices: EngineToolStates) -> None:
        """Whatever keeps it from being written is passed over: it is a convenience."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, fresh = tempfile.mkstemp(dir=self._folder, prefix=f".{driver}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(notices))
                os.replace(fresh, self._file(driver))
            except BaseException:
                os.unlink(fresh)
                raise

    def remove(self, driver: str) -> None:
        with suppress(OSError):
            self._file(driver).unlink(missing_ok=True)

    def tidy(self, is_dead: Callable[[str], bool]) -> None:
        """Take down what the dead have left."""
        for driver in self._drivers():
            if is_dead(driver):
                self.remove(driver)

    def read(self, is_dead: Callable[[str], bool]) -> list[EngineToolStates]:
        """What the living say; what cannot be read is not there."""
        found: list[EngineToolStates] = []
        for driver in self._drivers():
            if not is_dead(driver):
                with suppress(OSError, msgspec.DecodeError), self._file(driver).open("rb") as file:
                    found.append(msgspec.json.decode(file.read(FILE_BYTES_MAX), type=EngineToolStates))
        return found

    def _file(self, driver: str) -> Path:
        return self._folder / f"{driver}.json"

    def _drivers(self) -> list[str]:
        try:
            return sorted(path.stem for path in self._folder.glob("*.json") if not path.name.startswith("."))
        except OSError:
            return []
