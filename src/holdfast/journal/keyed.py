"""Small rows with a key and a version: what pieces keep beside the journal, such as budget windows and schedules.

A row is named by its space (which piece it belongs to) and its key. Each write raises its version by one, and may ask
for the version it has read: of two writers who race, one is refused and reads again. Here are the bounds and the rules;
a store reads and writes the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.errors import InputInvalid

KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 64 * 1024
ROWS_PAGE = 100  # returned at once, unless another limit is given
BASE_KEY = ""  # holds the highest version of all rows of a space that were deleted; never a row's key
_SPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FIRST = "\x01"  # the smallest key: no key holds the character 0
_AFTER_ALL = "\U0010ffff" * (KEY_BYTES_MAX // 4 + 1)

Place = tuple[str, str]  # space and key


class KeyedRow(NamedTuple):
    key: str
    version: int
    value: bytes


class Put(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """Write a row, or delete it (`value` None). Alone, or in an entry and then together with it.

    `if_version` is the version that must be there: 0 for no row, None for any. A version is never given twice to the
    same key, also if the row was deleted in between: a new row begins above all versions that were deleted.
    """

    space: str
    key: str
    value: bytes | None
    if_version: int | None = None

    def __post_init__(self) -> None:
        check_place(self.space, self.key)
        if self.value is not None and len(self.value) > VALUE_BYTES_MAX:
            raise InputInvalid(
                f"the value of {self.space}/{self.key} has {len(self.value):,} bytes; "
                f"a row holds at most {VALUE_BYTES_MAX:,}. Keep large values as blobs"
            )
        if self.if_version is not None and self.if_version < 0:
            raise InputInvalid(f"if_version of {self.space}/{self.key} is {self.if_version}; it is 0 or more, or None")


class Conflict(NamedTuple):
    """Why a put was refused: the row is at another version by now (0: there is none, -1: it is damaged)."""

    space: str
    key: str
    version: int


def check_place(space: str, key: str) -> None:
    if not _SPACE.fullmatch(space):
        raise InputInvalid(f"space {space!r}: use a lower-case letter, then letters, digits, - or _; at most 64 in all")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InputInvalid(f"key {key!r} in {space} is not valid Unicode") from None
    if not 0 < size <= KEY_BYTES_MAX or "\0" in key:
        raise InputInvalid(
            f"key {key[:40]!r} in {space} has {size:,} bytes; a key has 1 to {KEY_BYTES_MAX}, and not the character 0"
        )


def span(prefix: str, after: str | None) -> tuple[str, str]:
    """The keys that begin with `prefix` and come after `after`: from the first of the two, up to before the second."""
    first = max(prefix, _FIRST if after is None else after + _FIRST)
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return first, _AFTER_ALL
    following = ord(stem[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # no characters
        following = 0xE000
    return first, stem[:-1] + chr(following)


class Puts:
    """The puts of one transaction. `read` gives the version of a row before it; 0 if there is none, -1 if damaged."""

    def __init__(self, read: Callable[[Place], int]) -> None:
        self._read = read
        self._versions: dict[Place, int] = {}
        self.rows: dict[Place, tuple[int, bytes | None]] = {}  # to write at the end; None: to delete

    def conflict(self, puts: Iterable[Put]) -> Conflict | None:
        """The first that cannot be done. All conditions are about the moment before the first of them."""
        for put in puts:
            if put.if_version is not None:
                version = self._version((put.space, put.key))
                if version != put.if_version:
                    return Conflict(put.space, put.key, version)
        return None

    def put(self, puts: Sequence[Put]) -> tuple[int, ...]:
        """Take them in, after `conflict` found none; returns the new version of each, 0 for what is deleted."""
        return tuple(self._put(put) for put in puts)

    def _put(self, put: Put) -> int:
        place, base = (put.space, put.key), (put.space, BASE_KEY)
        known = self._version(place)
        if put.value is None:
            if known:
                self.rows[place] = (0, None)
                last = max(self._version(base), known)
                self._versions[base] = last
                self.rows[base] = (last, b"")
            self._versions[place] = 0
            return 0
        version = (known if known > 0 else self._version(base)) + 1
        self._versions[place] = version
        self.rows[place] = (version, put.value)
        return version

    def _version(self, place: Place) -> int:
        if place not in self._versions:
            self._versions[place] = self._read(place)
        return self._versions[place]
