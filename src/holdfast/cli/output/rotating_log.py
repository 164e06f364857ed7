"""What a process without a terminal says goes to a file, and that file has a limit."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

LOG_BYTES_MAX = 10 * 1024 * 1024  # of one process's log: at least the newest half of it is kept


def take_over_output(path: Path) -> None:
    """From now on, everything that is printed here goes to the file."""
    _point_output_at(path)
    sys.stdout = sys.stderr = BoundedLog(path)


def _point_output_at(path: Path) -> None:
    fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for descriptor in (1, 2):  # what children and libraries write goes there, too
        os.dup2(fresh, descriptor)
    os.close(fresh)


class BoundedLog(io.TextIOBase):
    """Standard output and error in a file; when that has half its bytes, it becomes `….log.1` and a new one begins.

    A log that cannot be written, on a full disk, must not keep anything from going on.
    """

    encoding = "utf-8"

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self._half = bytes_max // 2
        self.buffer = _Below(self)

    def write(self, text: str) -> int:
        self.write_bytes(text.encode(errors="replace"))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        data = data[: self._half]
        with suppress(OSError):
            if os.fstat(self.fileno()).st_size + len(data) > self._half:
                os.replace(self.path, f"{self.path}.1")
                _point_output_at(self.path)
            os.write(self.fileno(), data)

    def fileno(self) -> int:
        return 1


class _Below(io.BufferedIOBase):
    """`sys.stdout.buffer`, for tools that write bytes."""

    def __init__(self, log: BoundedLog) -> None:
        self._log = log

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        given = bytes(memoryview(data))
        self._log.write_bytes(given)
        return len(given)
