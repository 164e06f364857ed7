"""Files that are either not there or whole, and the folder that keeps the newest few of each execution.

A file is written under another name, synced, and renamed; so a process that dies in between leaves nothing but a
temporary file, which the next one that writes the same file, or into the same folder of checkpoints, removes. Whoever
writes holds a lock on his temporary file, which ends with him. Nobody but its owner may read what is new.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import StoreUnavailable
from holdfast.journal.deletion import FILES_FOLDER
from holdfast.journal.fsync import fsync_path

KEPT = 3  # of one execution: the newest, and two in case somebody is just copying it
LOCK_WAIT_S = 30.0  # for another process that writes into the same folder
_LOCK_LOOK_S = 0.01
_TEMPORARY = ".tmp"


class Saved(NamedTuple):
    path: Path
    bytes: int


def save(data_folder: Path, execution_id: str, seq: int, pieces: Iterable[bytes]) -> Saved:
    """Write a checkpoint, `EXECUTION-ID.SEQ.json`, and remove those that were written before the newest three.

    Not those with the lowest numbers: after a journal was lost, what lies here may be of a history that went further.
    """
    folder = data_folder / FILES_FOLDER
    path = folder / f"{execution_id}.{seq}.json"
    with _explaining(path):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            _sweep(folder, "")
            size = _write(path, pieces)
            others = [old for _, old in saved_of(folder, execution_id) if old != path]
            for old in others[KEPT - 1 :]:
                old.unlink(missing_ok=True)
    return Saved(path, size)


def saved_of(folder: Path, execution_id: str) -> list[tuple[int, Path]]:
    """The checkpoints of an execution, the last written first, each with the number of its last event."""
    pattern = re.compile(rf"{re.escape(execution_id)}\.([0-9]+)\.json")
    found = [
        (path.stat().st_mtime_ns, int(named[1]), path)
        for path in folder.iterdir()
        if (named := pattern.fullmatch(path.name))
    ]
    return [(seq, path) for _, seq, path in sorted(found, reverse=True)]


def write_file(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a file wherever a person wants it; returns its size."""
    with _explaining(path):
        _sweep(path.parent, path.name)
        return _write(path, pieces)


def _write(path: Path, pieces: Iterable[bytes]) -> int:
    handle, temporary = _begin(path)
    try:
        with os.fdopen(handle, "wb") as file:
            size = sum(map(file.write, pieces))
            file.flush()
            if path.exists():  # as its owner wants it
                os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
            os.fsync(handle)
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    fsync_path(path.parent)
    return size


def _begin(path: Path) -> tuple[int, str]:
    """A temporary file that is ours: readable for nobody else, and locked while we live."""
    while True:
        handle, temporary = tempfile.mkstemp(_TEMPORARY, f".{path.name}.", path.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, temporary
        os.close(handle)  # somebody swept it away before we had locked it


def _sweep(folder: Path, name: str) -> None:
    """Remove what killed processes have left that were writing the file `name`; "" is any file."""
    pattern = re.compile(rf"\.{re.escape(name) or '.+'}\.[a-z0-9_]{{1,8}}{re.escape(_TEMPORARY)}")
    for leftover in folder.iterdir():
        if not pattern.fullmatch(leftover.name):
            continue
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
            finally:
                os.close(handle)


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """`flock`: it also keeps two threads of one process apart, and ends with whoever held it."""
    with (folder / ".lock").open("ab") as lock:
        give_up = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise TimeoutError(0, f"another process has held it for {LOCK_WAIT_S:g} s") from None
                time.sleep(_LOCK_LOOK_S)
            else:
                break
        yield


@contextmanager
def _explaining(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be written: {error.strerror or error}; what is in the journal is safe"
        ) from error
