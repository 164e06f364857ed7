"""What files were before a step changed them: images by content, and an index of every change, both synced first.

One folder per execution below `before/` in the data folder: an append-only index (a line per change, and a line for
what became of it) and one file per image, named by its SHA-256. So forgetting an execution is removing a folder, and
pruning it is removing its images while the index still says that they existed. Refuses to let a change happen whose
image has no room; the oldest executions make room first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.core.errors import InvalidCall, ResourceShort
from holdfast.tools.call import Call

BEFORE_FOLDER = "before"
INDEX = "index.jsonl"
PIECE_BYTES = 1024 * 1024
SPACE_KEPT_BYTES = 64 * 1024 * 1024  # room that is left on every disk written to, for the journal above all
RESCAN_PART = 10  # after adding a tenth of the limit, what other processes added is counted again
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")

ABSENT = "absent"
ANY_FOLDER = "folder"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is at a path: `file:SHA-256`, `link:TARGET`, `folder:IDENTITY` (`folder` for any), or `absent`."""

    mark: str = ABSENT
    mode: int = 0
    attributes: dict[str, bytes] = {}

    def is_at(self, mark: str) -> bool:
        """Whether this is what is there now, going by its mark."""
        return mark == self.mark or (self.mark == ANY_FOLDER and mark.startswith(f"{ANY_FOLDER}:"))

    @property
    def digest(self) -> str:
        kind, _, rest = self.mark.partition(":")
        return rest if kind == "file" else ""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="change"):
    """One change of one path, or a move `to` another. `made` are the folders that were made for it."""

    id: str
    key: str
    step: str
    at: int
    tool: str
    path: str
    before: State
    after: State
    to: str = ""
    made: tuple[str, ...] = ()
    output: Any = None


class Settled(msgspec.Struct, frozen=True, tag_field="is", tag="settled"):
    """The change was undone, or was never made."""

    id: str
    became: Literal["undone", "dropped"]


class Pruned(msgspec.Struct, frozen=True, tag_field="is", tag="pruned"):
    """All images before this line were removed to make room."""

    at: int


_lines = msgspec.json.Decoder(Change | Settled | Pruned)


class Before:
    """The store of one engine. With `folder` None it keeps nothing, and nothing can be undone."""

    def __init__(self, folder: Path | None, bytes_max: int, free_bytes_min: int = SPACE_KEPT_BYTES) -> None:
        self._folder = folder if bytes_max else None
        self._bytes_max = bytes_max
        self.free_bytes_min = free_bytes_min
        self._lock = threading.Lock()
        self._total: int | None = None
        self._added = 0

    @property
    def keeps(self) -> bool:
        return self._folder is not None

    # ---- writing

    def keep(self, execution_id: str, source: int, path: str) -> str:
        """The digest of an open file, once a copy of it is on disk."""
        if self._folder is None:
            return _copy(source, None)
        size = os.fstat(source).st_size
        folder = self._folder_of(execution_id)
        self._make_room(size, folder, path)
        temporary = folder / f"{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "xb", opener=_private) as image:
                digest = _copy(source, image.fileno())
                os.fsync(image.fileno())
            temporary.rename(folder / digest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(folder)
        return digest

    def record(self, execution_id: str, change: Change) -> None:
        self._append(execution_id, change)

    def settle(self, execution_id: str, change: Change, became: Literal["undone", "dropped"]) -> None:
        self._append(execution_id, Settled(change.id, became))

    def _append(self, execution_id: str, line: Change | Settled | Pruned) -> None:
        if self._folder is None:
            return
        index = self._folder_of(execution_id) / INDEX
        is_new = not index.exists()
        with open(index, "ab", opener=_private) as file:
            # On a line of its own, even after one that a crash cut short.
            file.write(b"\n" + msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _sync(index.parent)

    def _folder_of(self, execution_id: str) -> Path:
        assert self._folder is not None
        folder = self._folder / _name_of(execution_id)
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n")
            _sync(self._folder)
            _sync(self._folder.parent)
        return folder

    # ---- reading

    def changes(self, execution_id: str, key: str = "") -> list[Change]:
        """What was changed and is not known to be undone, oldest first; of one call if its key is given."""
        found: dict[str, Change] = {}
        for line in self._read(execution_id):
            if isinstance(line, Change):
                found[line.id] = line
            elif isinstance(line, Settled):
                found.pop(line.id, None)
        return [change for change in found.values() if not key or change.key == key]

    def undone(self, execution_id: str) -> frozenset[str]:
        """The keys of the calls of which something was undone."""
        keys: dict[str, str] = {}
        undone: set[str] = set()
        for line in self._read(execution_id):
            if isinstance(line, Change):
                keys[line.id] = line.key
            elif isinstance(line, Settled) and line.became == "undone" and line.id in keys:
                undone.add(keys[line.id])
        return frozenset(undone)

    def open_image(self, execution_id: str, digest: str) -> int | None:
        """A descriptor to read an image from, or None if it was pruned."""
        if self._folder is None:
            return None
        try:
            return os.open(self._folder / _name_of(execution_id) / digest, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _read(self, execution_id: str) -> Iterator[Change | Settled | Pruned]:
        if self._folder is None:
            return
        try:
            lines = (self._folder / _name_of(execution_id) / INDEX).read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            # A line cut short by a crash was not synced, so its change was never made.
            with contextlib.suppress(msgspec.DecodeError):
                if line:
                    yield _lines.decode(line)

    # ---- room

    def _make_room(self, size: int, own: Path, path: str) -> None:
        if size > self._bytes_max:
            raise InvalidCall(
                f"{path} has {size:,} bytes, and only {self._bytes_max:,} are kept to undo changes; "
                "raise tools.files.before_bytes_max, or set it to 0 to change files for good"
            )
        check_space(own, size, path, self.free_bytes_min)
        with self._lock:
            if self._total is None or self._added > self._bytes_max // RESCAN_PART:
                self._scan()
            if (self._total or 0) + size > self._bytes_max:
                self._prune(size, own)
            if (self._total or 0) + size > self._bytes_max:
                raise ResourceShort(
                    f"{path}: this execution has changed more than the {self._bytes_max:,} bytes that are kept to "
                    "undo changes; raise tools.files.before_bytes_max",
                    without_effect=True,
                )
            self._total = (self._total or 0) + size
            self._added += size

    def _scan(self) -> None:
        self._total = sum(_image_bytes(folder) for folder in self._executions())
        self._added = 0

    def _executions(self) -> list[Path]:
        """By when they last changed something, the oldest first."""
        assert self._folder is not None
        folders = [Path(entry) for entry in os.scandir(self._folder) if entry.is_dir()]
        return sorted(folders, key=_changed_at)

    def _prune(self, size: int, own: Path) -> None:
        self._scan()
        for folder in self._executions():
            if (self._total or 0) + size <= self._bytes_max:
                return
            held = _image_bytes(folder)
            if folder == own or not held:
                continue
            for image in _images(folder):
                Path(image).unlink(missing_ok=True)
            self._append(folder.name, Pruned(time.time_ns() // 1000))
            self._total = (self._total or 0) - held


def forget(data_folder: Path, execution_ids: Iterable[str]) -> None:
    """Remove all that is kept of executions that are themselves forgotten: images and index."""
    for execution_id in execution_ids:
        shutil.rmtree(data_folder / BEFORE_FOLDER / _name_of(execution_id), ignore_errors=True)


def new_change(call: Call, tool: str, path: str, before: State, after: State, **more: Any) -> Change:
    id, at = uuid.uuid4().hex, time.time_ns() // 1000
    return Change(id=id, key=call.key, step=call.path, at=at, tool=tool, path=path, before=before, after=after, **more)


def check_space(folder: int | Path, size: int, path: str, kept: int) -> None:
    """Before anything is written: is there room for it, and some to spare?"""
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < size + kept:
        raise ResourceShort(
            f"{path}: {size:,} bytes are to be written and {free:,} are free, of which {kept:,} are kept "
            "free; free some space, or lower tools.files.free_bytes_min",
            without_effect=True,
        )


def _copy(source: int, target: int | None) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(source, PIECE_BYTES, offset):
        digest.update(piece)
        offset += len(piece)
        while target is not None and piece:
            piece = piece[os.write(target, piece) :]
    return digest.hexdigest()


def digest_of(source: int) -> str:
    """SHA-256 of an open file."""
    return _copy(source, None)


def _name_of(execution_id: str) -> str:
    if _PLAIN_NAME.fullmatch(execution_id):
        return execution_id
    return f"other-{hashlib.sha256(execution_id.encode()).hexdigest()[:32]}"


def _images(folder: Path) -> list[os.DirEntry[str]]:
    return [entry for entry in os.scandir(folder) if entry.name != INDEX]


def _image_bytes(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # another process forgot it meanwhile
        return sum(entry.stat().st_size for entry in _images(folder))
    return 0


def _changed_at(folder: Path) -> int:
    try:
        return (folder / INDEX).stat().st_mtime_ns
    except OSError:
        return 0


def _private(path: str, flags: int) -> int:
    """Images may hold what only their owner was to see."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
