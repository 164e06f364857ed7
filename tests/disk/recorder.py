"""A disk that remembers: a VFS under SQLite that notes every write, truncation, sync and deletion, in order.

`Tape.image` then builds what a power cut at one moment could have left: what was synced is there; of what came later
any part may be, in any order, and a write may be torn between sectors. Shared memory is the kernel's and is lost. A
deletion is a change of the folder, which SQLite syncs with the first sync of a journal or log that it has created.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

SECTOR_BYTES = 512
NAME = "holdfast-recorder"
BELOW = apsw.vfs_names()[0]  # the real disk

FOLDER = "."

Kind = Literal["write", "truncate", "sync", "delete", "commit"]


class Act(NamedTuple):
    kind: Kind
    file: str
    offset: int = 0
    data: bytes = b""


class Tape:
    def __init__(self) -> None:
        self.acts: list[Act] = []

    def note(self, kind: Kind, file: str, offset: int = 0, data: bytes = b"") -> None:
        self.acts.append(Act(kind, file, offset, data))

    def image(self, moment: int, rng: random.Random, *, torn: bool = True) -> dict[str, bytes]:
        """The files after a power cut before act number `moment`."""
        synced = {act.file: place for place, act in enumerate(self.acts[:moment]) if act.kind == "sync"}
        files: dict[str, bytearray] = {}
        kept: set[str] = set()  # files whose deletion did not reach the disk: what came after went to a new one
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # how much of what was not synced did
        for place, act in enumerate(self.acts[:moment]):
            certain = place < synced.get(FOLDER if act.kind == "delete" else act.file, -1)
            if act.file in kept:
                continue
            if certain or rng.random() < share:
                _do(files, act, rng if torn and not certain else None)
            elif act.kind == "delete":
                kept.add(act.file)
        return {name: bytes(body) for name, body in files.items()}


def _do(files: dict[str, bytearray], act: Act, tearing: random.Random | None) -> None:
    match act.kind:
        case "write":
            body = files.setdefault(act.file, bytearray())
            for first, part in _sectors(act):
                if tearing is None or tearing.random() < 0.8:
                    body.extend(b"\0" * (first + len(part) - len(body)))
                    body[first : first + len(part)] = part
        case "truncate":
            body = files.setdefault(act.file, bytearray())
            del body[act.offset :]
        case "delete":
            files.pop(act.file, None)
        case _:
            pass


def _sectors(act: Act) -> Generator[tuple[int, bytes]]:
    """The write, cut where one sector ends and the next begins."""
    place, end = act.offset, act.offset + len(act.data)
    while place < end:
        stop = min(end, (place // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield place, act.data[place - act.offset : stop - act.offset]
        place = stop


# ---- the disk ------------------------------------------------------------------------------------------------------


class _File(apsw.VFSFile):
    def __init__(self, tape: Tape, name: Any, flags: list[int]) -> None:
        super().__init__(BELOW, name, flags)
        self._tape = tape
        self._is_new = True
        self._name = os.path.basename(name.filename() if isinstance(name, apsw.URIFilename) else str(name))

    def xWrite(self, data: Any, offset: int) -> None:
        self._tape.note("write", self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._tape.note("truncate", self._name, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._tape.note("sync", self._name)
        if self._is_new and self._name.endswith(("-journal", "-wal")):
            self._tape.note("sync", FOLDER)
        self._is_new = False


class _Disk(apsw.VFS):
    def __init__(self, tape: Tape) -> None:
        super().__init__(NAME, BELOW, makedefault=True)
        self._tape = tape

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._tape, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._tape.note("delete", os.path.basename(filename))


@contextmanager
def recording() -> Generator[Tape]:
    """While this lasts, every database that is opened is recorded."""
    tape = Tape()
    disk = _Disk(tape)
    try:
        yield tape
    finally:
        disk.unregister()


def write_image(folder: Path, image: dict[str, bytes]) -> None:
    for name, body in image.items():
        (folder / name).write_bytes(body)
