"""What files were before a step changed them: images by content, and an index of every change, both synced first.

One folder per execution below `before/` in the data folder: an append-only index (a line per change, and a line for
what became of it) and one file per image, named by its SHA-256. So forgetting an execution is removing a folder, and
pruning it is removing its images while the index still says that they existed. Refuses to let a change happen whose
image has no room; the oldest executions make room first. A deleted file becomes its own image if the disk is full.
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
from holdfast.journal.fsync import fsync_path
from holdfast.tools.call import Call

BEFORE_FOLDER = "before"
INDEX = "index.jsonl"
PIECE_BYTES = 1024 * 1024
SPACE_KEPT_BYTES = 64 * 1024 * 1024  # room that is left on every disk written to, for the journal above all
LEFTOVER_S = 3600  # a copy that nobody wrote to for so long is not being made any more: its process died
RESCAN_PART = 10  # after adding a tenth of the limit, what other processes added is counted again
UNFINISHED = ".tmp"
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


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="change"):
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


_lines = msgspec.json.Decoder(FileChange | Settled | Pruned)


class DiskFull(ResourceShort):
    """The disk has less room than is to be written, and left over."""


class UndoStore:
    """The store of one engine. With `folder` None it keeps nothing, and nothing can be undone."""

    def __init__(self, folder: Path | None, bytes_max: int, free_bytes_min: int = SPACE_KEPT_BYTES) -> None:
        self._folder = folder if bytes_max else None
        self._bytes_max = bytes_max
        self.free_bytes_min = free_bytes_min
        self._room = threading.Condition()
        self._under_way: dict[str, int] = {}  # copies being made here, and the room that each will take
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
        folder = self._folder_of(execution_id)
        temporary = folder / f"{uuid.uuid4().hex}{UNFINISHED}"
        size = os.fstat(source).st_size
        self._make_room(size, temporary, path)
        try:
            with open(temporary, "xb", opener=_private) as image:
                digest = _copy(source, image.fileno())
                os.fsync(image.fileno())
            self._finish(temporary, digest)
        except BaseException:
            self._give_up(temporary)
            raise
        fsync_path(folder)
        return digest

    def image_of_deleted(self, execution_id: str, found: os.stat_result, digest: str) -> Path | None:
        """Where a file goes itself when it is deleted and there is no room for a copy; None if it cannot."""
        if self._folder is None or not digest or found.st_nlink != 1:
            return None  # what has another name goes on changing
        folder = self._folder_of(execution_id)
        return folder / digest if folder.stat().st_dev == found.st_dev else None

    def _finish(self, temporary: Path, digest: str) -> None:
        with self._room:
            temporary.rename(temporary.parent / digest)
            del self._under_way[str(temporary)]
            self._room.notify_all()

    def _give_up(self, temporary: Path) -> None:
        with self._room:
            temporary.unlink(missing_ok=True)
            self._total = (self._total or 0) - self._under_way.pop(str(temporary), 0)
            self._room.notify_all()

    def record(self, execution_id: str, change: FileChange) -> None:
        self._append(execution_id, change)

    def settle(self, execution_id: str, change: FileChange, became: Literal["undone", "dropped"]) -> None:
        self._append(execution_id, Settled(change.id, became))

    def _append(self, execution_id: str, line: FileChange | Settled | Pruned) -> None:
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
            fsync_path(index.parent)

    def _folder_of(self, execution_id: str) -> Path:
        assert self._folder is not None
        folder = self._folder / _name_of(execution_id)
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n")
            fsync_path(self._folder)
            fsync_path(self._folder.parent)
        return folder

    # ---- reading

    def changes(self, execution_id: str, key: str = "") -> list[FileChange]:
        """What was changed and is not known to be undone, oldest first; of one call if its key is given."""
        found: dict[str, FileChange] = {}
        for line in self._read(execution_id):
            if isinstance(line, FileChange):
                found[line.id] = line
            elif isinstance(line, Settled):
                found.pop(line.id, None)
        return [change for change in found.values() if not key or change.key == key]

    def undone(self, execution_id: str) -> frozenset[str]:
        """The keys of the calls of which something was undone."""
        keys: dict[str, str] = {}
        undone: set[str] = set()
        for line in self._read(execution_id):
            if isinstance(line, FileChange):
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

    def _read(self, execution_id: str) -> Iterator[FileChange | Settled | Pruned]:
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

    def _make_room(self, size: int, temporary: Path, path: str) -> None:
        if size > self._bytes_max:
            raise InvalidCall(
                f"{path} has {size:,} bytes, and only {self._bytes_max:,} are kept to undo changes; "
                "raise tools.files.before_bytes_max, or set it to 0 to change files for good"
            )
        check_space(temporary.parent, size, path, self.free_bytes_min)
        with self._room:
            while not self._fits(size, temporary.parent):
                if not self._under_way:
                    raise ResourceShort(
                        f"{path}: this execution has changed more than the {self._bytes_max:,} bytes that are kept to "
                        "undo changes; raise tools.files.before_bytes_max",
                        without_effect=True,
                    )
                self._room.wait()  # once they are made, copies of other executions can go
            self._under_way[str(temporary)] = size
            self._total = (self._total or 0) + size
            self._added += size

    def _fits(self, size: int, own: Path) -> bool:
        if self._total is None or self._added > self._bytes_max // RESCAN_PART:
            self._scan()
        if (self._total or 0) + size > self._bytes_max:
            self._prune(size, own)
        return (self._total or 0) + size <= self._bytes_max

    def _scan(self) -> None:
        """What is on disk, and what will be when the copies under way are made."""
        found = (image for folder in self._executions() for image in _images(folder))
        on_disk = sum(_size(image) for image in found if image.path not in self._under_way)
        self._total = on_disk + sum(self._under_way.values())
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
            images = [image for image in _images(folder) if folder != own and self._may_go(image)]
            for image in images:
                self._total = (self._total or 0) - _size(image)
                Path(image).unlink(missing_ok=True)
            if images:
                self._append(folder.name, Pruned(time.time_ns() // 1000))

    def _may_go(self, image: os.DirEntry[str]) -> bool:
        """Not a copy that is being made, here or by another process."""
        if not image.name.endswith(UNFINISHED):
            return True
        return image.path not in self._under_way and _written_at(image.path) < time.time_ns() - LEFTOVER_S * 10**9


def forget(data_folder: Path, execution_ids: Iterable[str]) -> None:
    """Remove all that is kept of executions that are themselves forgotten: images and index."""
    for execution_id in execution_ids:
        shutil.rmtree(data_folder / BEFORE_FOLDER / _name_of(execution_id), ignore_errors=True)


def new_change(call: Call, tool: str, path: str, before: State, after: State, **more: Any) -> FileChange:
    id, at = uuid.uuid4().hex, time.time_ns() // 1000
    return FileChange(
        id=id, key=call.key, step=call.path, at=at, tool=tool, path=path, before=before, after=after, **more
    )


def check_space(folder: int | Path, size: int, path: str, kept: int) -> None:
    """Before anything is written: is there room for it, and some to spare?"""
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < size + kept:
        raise DiskFull(
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
    with contextlib.suppress(FileNotFoundError):  # another process forgot it meanwhile
        return [entry for entry in os.scandir(folder) if entry.name != INDEX]
    return []


def _size(image: os.DirEntry[str]) -> int:
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        return image.stat().st_size
    return 0


def _changed_at(folder: Path) -> int:
    """An execution that begins has an image before it has an index, and then the folder is newer."""
    return max(_written_at(folder), _written_at(folder / INDEX))


def _written_at(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _private(path: str, flags: int) -> int:
    """Images may hold what only their owner was to see."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
