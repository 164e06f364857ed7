"""What is done at a spot: look at it, replace it, remove it, move it. Whole or not at all, and synced.

Everything goes through the spot's descriptor. What is replaced or removed is what was looked at: if somebody changed
it in between, nothing is done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from holdfast.core.errors import NotPermitted
from holdfast.journal.fsync import fsync_path
from holdfast.tools.allowed_roots import identity
from holdfast.tools.files.os_errors import NotSynced
from holdfast.tools.files.safe_path import SafePath
from holdfast.tools.files.undo_store import ABSENT, PIECE_BYTES, State, check_space, digest_of
from holdfast.tools.files.xattrs import attributes_of, give

_RENAME_NOREPLACE = 1
IMAGE_MODE = 0o600  # its own is on record
NEW_FILE_MODE = 0o666  # less the umask, as everybody's new files

Keep = Callable[[int], str]
"""Makes a copy of an open file durable and returns its digest; or only the digest."""


def look(spot: SafePath, keep: Keep = digest_of) -> tuple[State, os.stat_result | None]:
    """What is there now, with the image of a file kept; and its status, to be compared before it is changed."""
    found = spot.stat()
    if found is None:
        return State(), None
    if stat.S_ISLNK(found.st_mode):
        return State(f"link:{_target(spot).hex()}"), found
    if stat.S_ISDIR(found.st_mode):
        return State(f"folder:{found.st_dev}:{found.st_ino}", stat.S_IMODE(found.st_mode)), found
    opened = spot.open_file()
    try:
        found = os.fstat(opened)
        return State(f"file:{keep(opened)}", stat.S_IMODE(found.st_mode), attributes_of(opened)), found
    finally:
        os.close(opened)


def _target(spot: SafePath) -> bytes:
    try:
        return os.fsencode(os.readlink(spot.name, dir_fd=spot.folder))
    except OSError as error:
        if error.errno == errno.EINVAL:  # no link any more
            spot.raise_changed()
        raise


def check_may_change(spot: SafePath, found: os.stat_result | None, size: int, kept: int) -> None:
    """Rights and room, before anything is written."""
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=spot.folder, effective_ids=True):
        raise NotPermitted(f"{spot.path}: its folder may not be written; check who may use it")
    if found is not None and not _may_write(spot, found):
        raise NotPermitted(f"{spot.path} is read-only; change its mode if it is to be changed")
    check_space(spot.folder, size, spot.path, kept)


def _may_write(spot: SafePath, found: os.stat_result) -> bool:
    # Replacing a name needs no right to the file itself, but whoever made it read-only meant something by it.
    return stat.S_ISLNK(found.st_mode) or os.access(spot.name, os.W_OK, dir_fd=spot.folder, effective_ids=True)


def replace(
    spot: SafePath, source: bytes | int, expected: os.stat_result | None, key: str, was: State, mode: int | None = None
) -> None:
    """Give the name new content: bytes, or all of an open file. It keeps its mode, or gets the one given; it has the
    attributes of what it `was`."""
    # Named after the call, so that another attempt reuses what a crashed one left lying about.
    suffix = blake2b(f"{key}\0{spot.name}".encode(), digest_size=8).hexdigest()
    temporary = f".holdfast-{suffix}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=spot.folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(temporary, flags, NEW_FILE_MODE, dir_fd=spot.folder)
    try:
        try:
            _fill(opened, source)
            if was.mark != ABSENT:
                give(opened, was.attributes)
            _dress(opened, expected, mode)
            os.fsync(opened)
        finally:
            os.close(opened)
        _check_unchanged(spot, expected)
        if expected is None:
            rename_new(spot.folder, temporary, spot.folder, spot.name)
        else:
            os.rename(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=spot.folder)
        raise
    sync(spot)


def _fill(opened: int, source: bytes | int) -> None:
    if isinstance(source, int):
        while piece := os.read(source, PIECE_BYTES):
            _fill(opened, piece)
        return
    rest = memoryview(source)
    while rest:
        rest = rest[os.write(opened, rest) :]


def _dress(opened: int, expected: os.stat_result | None, mode: int | None) -> None:
    """The mode and, where we may, the owner of what it replaces; never a right to act as somebody else."""
    if expected is not None and stat.S_ISREG(expected.st_mode):
        ours = os.fstat(opened)
        if (ours.st_uid, ours.st_gid) != (expected.st_uid, expected.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(opened, expected.st_uid, expected.st_gid)
        mode = expected.st_mode if mode is None else mode
    if mode is not None:
        os.fchmod(opened, mode & 0o777)


def remove(spot: SafePath, expected: os.stat_result) -> None:
    _check_unchanged(spot, expected)
    if stat.S_ISDIR(expected.st_mode):
        os.rmdir(spot.name, dir_fd=spot.folder)
    else:
        os.unlink(spot.name, dir_fd=spot.folder)
    sync(spot)


def remove_into(spot: SafePath, expected: os.stat_result, image: Path) -> None:
    """Remove a file by making it its own image, which needs no room."""
    _check_unchanged(spot, expected)
    os.rename(spot.name, image, src_dir_fd=spot.folder)
    os.chmod(image, IMAGE_MODE)
    sync(spot)
    fsync_path(image.parent)


def put_back(spot: SafePath, state: State, image: int | None, expected: os.stat_result | None, key: str) -> None:
    """Make the spot what it was."""
    kind, _, rest = state.mark.partition(":")
    if kind == "file":
        assert image is not None
        replace(spot, image, expected, key, state, state.mode)
        return
    if expected is not None:
        remove(spot, expected)
    if kind == "link":
        os.symlink(os.fsdecode(bytes.fromhex(rest)), spot.name, dir_fd=spot.folder)
    elif kind == "folder":
        os.mkdir(spot.name, state.mode, dir_fd=spot.folder)
    sync(spot)


def move(source: SafePath, target: SafePath) -> None:
    """Never over something that is there."""
    rename_new(source.folder, source.name, target.folder, target.name)
    sync(target)
    sync(source)


def sync(spot: SafePath) -> None:
    """The names in the spot's folder, on disk. By now the change is made, so a failure leaves it in doubt."""
    try:
        os.fsync(spot.folder)
    except OSError as error:
        raise NotSynced(f"{spot.path} was changed, but the disk does not confirm it: {error.strerror}") from error


def _check_unchanged(spot: SafePath, expected: os.stat_result | None) -> None:
    found = spot.stat()
    if (found is None) != (expected is None):
        spot.raise_changed()
    if found is not None and expected is not None and _version(found) != _version(expected):
        spot.raise_changed()


def _version(found: os.stat_result) -> tuple[object, ...]:
    return (*identity(found), found.st_mtime_ns, found.st_size, found.st_mode)


def rename_new(from_folder: int, name: str, to_folder: int, new_name: str) -> None:
    """Rename, but never over something: the kernel's own check where it has one, a look before it otherwise."""
    code = _renameat2(from_folder, name, to_folder, new_name)
    if code in (errno.ENOSYS, errno.EINVAL):
        with contextlib.suppress(FileNotFoundError):
            os.stat(new_name, dir_fd=to_folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(name, new_name, src_dir_fd=from_folder, dst_dir_fd=to_folder)
    elif code:
        raise OSError(code, os.strerror(code))


def _renameat2(from_folder: int, name: str, to_folder: int, new_name: str) -> int:
    """An error number, or 0."""
    import ctypes

    libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    rename = getattr(libc, "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    done = rename(from_folder, os.fsencode(name), to_folder, os.fsencode(new_name), _RENAME_NOREPLACE)
    return ctypes.get_errno() if done else 0
