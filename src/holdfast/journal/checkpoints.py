"""Files that are either not there or whole, and the folder that keeps the newest few of each execution.

A file is written under another name, synced, and renamed; so a process that dies in between leaves nothing but a
temporary file, which the next one removes. One lock per folder says whose temporary files are still alive.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import StoreUnavailable
from holdfast.journal.tidying import FILES_FOLDER

KEPT = 3  # of one execution: the newest, and two in case somebody is just copying it
LOCK_WAIT_S = 30.0  # for another process that writes into the same folder
_LOCK_LOOK_S = 0.01
_TEMPORARY = ".tmp"


class Saved(NamedTuple):
    path: Path
    bytes: int


def save(data_folder: Path, execution_id: str, seq: int, pieces: Iterable[bytes]) -> Saved:
    """Write a checkpoint, `EXECUTION-ID.SEQ.json`, and remove those that are older than the newest three."""
    folder = data_folder / FILES_FOLDER
    path = folder / f"{execution_id}.{seq}.json"
    with _explaining(path):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            for leftover in folder.glob(f".*{_TEMPORARY}"):
                leftover.unlink(missing_ok=True)
            size = _write(path, pieces)
            for _, old in saved_of(folder, execution_id)[KEPT:]:
                old.unlink(missing_ok=True)
    return Saved(path, size)


def saved_of(folder: Path, execution_id: str) -> list[tuple[int, Path]]:
    """The checkpoints of an execution, newest first, each with the number of its last event."""
    pattern = re.compile(rf"{re.escape(execution_id)}\.([0-9]+)\.json")
    found = [(int(named[1]), path) for path in folder.iterdir() if (named := pattern.fullmatch(path.name))]
    return sorted(found, reverse=True)


def write_file(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a file wherever a person wants it; returns its size."""
    with _explaining(path):
        return _write(path, pieces)


def _write(path: Path, pieces: Iterable[bytes]) -> int:
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            size = sum(map(file.write, pieces))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return size


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


def _sync_folder(folder: Path) -> None:
    """A renamed file is durable only when its folder's entry is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explaining(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be written: {error.strerror or error}; what is in the journal is safe"
        ) from error
