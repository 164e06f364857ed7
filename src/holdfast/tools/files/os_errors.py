"""What the system's errors mean: one table from error numbers to categories, each with what to do about it.

Owns the wording. Everything told here happened before the point of no return, so it was without effect; `NotSynced` is
the one failure after it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, ResourceShort, ToolError, Transient

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# The first row that names the error counts; one that no row names is tried again as transient.
TABLE: tuple[tuple[frozenset[int], type[ToolError], str], ...] = (
    (frozenset({errno.ENOENT, errno.ENOTDIR}), Misconfigured, "no file at {path}; correct the path"),
    (frozenset({errno.EISDIR}), InvalidCall, "{path} is a folder; give the path of a file"),
    (frozenset({errno.EACCES, errno.EPERM}), NotPermitted, "{path}: permission denied; check who may use it"),
    (frozenset({errno.EROFS}), NotPermitted, "{path}: the file system is read-only; choose another folder"),
    (FULL, ResourceShort, "{path}: the disk is full; free some space"),
    (frozenset({errno.ENOMEM}), ResourceShort, "{path}: the system is short of memory"),
    (
        frozenset({errno.EMFILE, errno.ENFILE}),
        ResourceShort,
        "{path}: too many files are open; run fewer steps at once, or raise the limit with ulimit -n",
    ),
    (
        frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ, errno.ENXIO}),
        InvalidCall,
        "{path}: {said}; choose another path",
    ),
    (frozenset({errno.EEXIST}), InvalidCall, "{path} is there already; choose another path"),
    (frozenset({errno.ENOTEMPTY}), InvalidCall, "{path} is a folder that is not empty; delete what is in it first"),
    (frozenset({errno.EXDEV}), InvalidCall, "{path} is on another file system; write it there and delete it here"),
    (frozenset({errno.EFBIG}), InvalidCall, "{path}: the file system cannot hold a file of this size"),
)


class NotSynced(Transient):
    """The change was made, but the disk did not say that it is safe; whether it survives a power cut is unknown."""


@contextlib.contextmanager
def explained(path: str) -> Generator[None]:
    """The system's errors with what to do about them."""
    try:
        yield
    except OSError as error:
        raise told(error, path) from error


def told(error: OSError, path: str) -> ToolError:
    said = error.strerror or str(error)
    for numbers, kind, text in TABLE:
        if error.errno in numbers:
            return kind(text.format(path=path, said=said), without_effect=True)
    return Transient(f"{path}: {said}", without_effect=True)
