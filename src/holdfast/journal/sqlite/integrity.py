"""What can be wrong with the file as a whole, found when it is opened: its header, its schema, its indexes.

Digests tell a changed event from a true one, but not that an index no longer leads to it, or that the header sends
SQLite to the wrong pages. Nothing here repairs anything. Large files are not walked through: that is the doctor's work.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from holdfast.core.errors import StoreCorrupted
from holdfast.journal.sql import migrations

HEADER_BYTES = 100
CHECKED_ROWS_MAX = 2_000  # of a table, compared with its indexes at every opening: a few milliseconds
CHECKED_PAGES_MAX = 500  # of a file, looked through for pages that belong to two: about as long
# How SQLite words findings about pages that belong to two, or that a vacuum would move to the wrong place.
_MISPLACED = ("Freelist", "reference to page", "ptr map", "max rootpage", "incremental_vacuum")

# Where something else than this stands, SQLite reads the pages in another way: reserved space, how full pages may be,
# the text encoding (none as long as all tables are still in the log), and whether pages can be given back bit by bit,
# which files from before that was done cannot.
_HEADER = {20: (b"\0\x40\x20\x20",), 56: (b"\0\0\0\x01", b"\0" * 4), 64: (b"\0\0\0\x01", b"\0" * 4)}
_LAST_ROOT, _INCREMENTAL = slice(52, 56), slice(64, 68)  # either both are zero, or neither


def check_header(path: Path) -> None:
    """A header that leads astray, or a file that lost its end, as copies and full disks produce.

    While there is a log, or the journal of a file that was only half made, SQLite has yet to put the pages in order.
    """
    trouble = ""
    for _ in range(2):  # another process may open the file, work and close it while we look: then look again
        if not path.is_file() or _has_log(path):
            return
        trouble = _header_trouble(path)
        if not trouble or _has_log(path):
            return
    raise StoreCorrupted(f"{path} is damaged: {trouble}", todo="restore a backup")


def _has_log(path: Path) -> bool:
    for end in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            if path.with_name(f"{path.name}{end}").stat().st_size:
                return True
    return False


def _header_trouble(path: Path) -> str:
    header, size = _beginning(path)
    if 0 < len(header) < HEADER_BYTES:  # SQLite would take it for a new file and write over it
        return f"it has only {len(header)} bytes"
    if not header.startswith(b"SQLite format 3\0"):
        return ""  # empty, or not a database at all: SQLite says so better
    for place, allowed in _HEADER.items():
        if header[place : place + 4] not in allowed:
            return f"its header was changed at byte {place}"
    if any(header[_LAST_ROOT]) != any(header[_INCREMENTAL]):
        return f"its header was changed at byte {_LAST_ROOT.start}"
    page_bytes = int.from_bytes(header[16:18], "big")
    expected = int.from_bytes(header[28:32], "big") * (65536 if page_bytes == 1 else page_bytes)
    return f"it has {size:,} bytes and should have {expected:,}" if size < expected else ""


def _beginning(path: Path) -> tuple[bytes, int]:
    """The header, and how long the file is. SQLite reads it: if another store of this process has the file open, to
    open and close it here would let go of that store's locks.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
    file = apsw.VFSFile("", os.path.realpath(path), [flags, 0])
    try:
        size = path.stat().st_size  # SQLite takes a single byte for none
        return file.xRead(min(size, HEADER_BYTES), 0) if size else b"", size
    finally:
        file.xClose()


def check_content(connection: Any, path: Path) -> None:
    """The schema is what the migrations made, the tables that are looked through agree with their indexes, and no page
    is both free and in use: it would be given away and written over. Other damage is of one execution, and found there.
    """
    found = set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
    if missing := _schema() - found:
        raise StoreCorrupted(f"{path} is damaged: its schema was changed ({min(missing)[1]})", todo="restore a backup")
    for table in ("executions", "inbox"):
        last = connection.execute(f"SELECT max(num) FROM {table}").fetchone()[0]
        if isinstance(last, int) and last > CHECKED_ROWS_MAX:
            continue
        _refuse(path, [text for text in _findings(connection, table) if text != "ok"])
    if connection.pragma("page_count") <= CHECKED_PAGES_MAX:
        _refuse(path, [text for text in _findings(connection, 100) if any(word in text for word in _MISPLACED)])


def _findings(connection: Any, subject: str | int) -> list[str]:
    rows = connection.execute(f"PRAGMA integrity_check({subject})").fetchall()
    return [line for (text,) in rows for line in str(text).splitlines() if not line.startswith("***")]


def _refuse(path: Path, findings: list[str]) -> None:
    if findings:
        raise StoreCorrupted(f"{path} is damaged ({findings[0]})", todo="run `holdfast doctor`, and restore a backup")


@cache
def _schema() -> frozenset[tuple[Any, ...]]:
    """What a new file holds. A file may hold more, such as an index somebody added."""
    fresh: Any = apsw.Connection(":memory:")
    try:
        for step in migrations("sqlite"):
            fresh.execute(step)
        rows = fresh.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return frozenset(rows)
    finally:
        fresh.close()
