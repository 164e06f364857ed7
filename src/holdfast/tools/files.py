"""`files.read` and `files.write`: text files, whole or not at all.

A write is visible under its name only when all of it is on disk, so a crash leaves the old file or the new one.
Relative paths start at the execution's folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, ResourceShort
from holdfast.tools.call import Call
from holdfast.tools.tool import tool

READ_BYTES_MAX = 1024 * 1024


class Written(TypedDict):
    path: str
    bytes: int


@tool(name="files.read", effect="read")
def read(path: str, call: Call, max_bytes: int = READ_BYTES_MAX) -> str:
    """Read a UTF-8 text file."""
    target = call.folder / path
    with _explained(target), open(target, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidCall(f"{target} is not a regular file; only files can be read")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InvalidCall(f"{target} has more than {max_bytes:,} bytes; raise max_bytes or read another file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidCall(f"{target} is not UTF-8 text (byte {error.start} cannot be read)") from None


@tool(name="files.write", effect="idempotent")
def write(path: str, text: str, call: Call) -> Written:
    """Write a text file, creating its folders."""
    target = call.folder / path
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidCall(f"text: character {error.start} is a lone surrogate, which UTF-8 cannot hold") from None
    with _explained(target):
        # Through a link to the file it names: the link itself is not ours to replace.
        real = target.resolve()
        if real.is_dir():
            raise InvalidCall(f"{target} is a folder; give the path of a file")
        real.parent.mkdir(parents=True, exist_ok=True)
        _replace(real, data, call.key)
    return {"path": str(target), "bytes": len(data)}


def _replace(path: Path, data: bytes, key: str) -> None:
    # Named after the call, so that another attempt reuses what a crashed one left lying about.
    suffix = blake2b(f"{key}\0{path.name}".encode(), digest_size=8).hexdigest()
    temporary = path.parent / f".holdfast-{suffix}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_without_waiting(path: str, flags: int) -> int:
    """A named pipe without a writer would block the opening for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def _explained(path: Path) -> Generator[None]:
    """The system's errors with what to do about them."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Misconfigured(f"no file at {path}; correct the path") from error
    except IsADirectoryError as error:
        raise InvalidCall(f"{path} is a folder; give the path of a file") from error
    except PermissionError as error:
        raise NotPermitted(f"{path}: permission denied; check who may use it") from error
    except ValueError as error:
        raise InvalidCall(f"path: {str(path)!r} is not a path ({error})") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceShort(f"{path}: the disk is full; free some space", without_effect=True) from error
        if error.errno == errno.EROFS:
            raise NotPermitted(f"{path}: the file system is read-only; choose another folder") from error
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidCall(f"{path}: {error.strerror}; choose another path") from error
        raise
