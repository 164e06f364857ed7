"""What can be wrong with the file as a whole, found when it is opened: its header, its schema, its indexes.

Digests tell a changed event from a true one, but not that an index no longer leads to it, or that the header sends
SQLite to the wrong pages. Nothing here repairs anything. Large files are not walked through: that is the doctor's work.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import apsw

from holdfast.core.errors import StoreCorrupted
from holdfast.journal.sql import migrations

HEADER_BYTES = 100
CHECKED_ROWS_MAX = 5_000  # of a table, compared with its indexes at every opening: about ten milliseconds

# Where something else than this stands, SQLite reads the pages in another way: reserved space, how full pages may be,
# the text encoding, and the settings of a vacuum that is never used here.
_HEADER = {20: b"\0\x40\x20\x20", 52: b"\0\0\0\0", 56: b"\0\0\0\x01", 64: b"\0\0\0\0"}


def check_header(path: Path) -> None:
    """A header that leads astray, or a file that lost its end, as copies and full disks produce.

    While there is a write-ahead log, pages may rightly be missing from the file; then SQLite is left to judge.
    """
    log = path.with_name(f"{path.name}-wal")
    if not path.is_file() or (log.exists() and log.stat().st_size):
        return
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        return  # empty, or not a database at all: SQLite says so better
    for place, expected in _HEADER.items():
        if header[place : place + 4] != expected:
            raise StoreCorrupted(f"{path} is damaged: its header was changed at byte {place}; restore a backup")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    expected_bytes = int.from_bytes(header[28:32], "big") * page_bytes
    if path.stat().st_size < expected_bytes:
        raise StoreCorrupted(
            f"{path} is damaged: it has {path.stat().st_size:,} bytes and should have {expected_bytes:,}; "
            "restore a backup"
        )


def check_content(connection: Any, path: Path) -> None:
    """The schema is what the migrations made, and the tables that are looked through agree with their indexes."""
    found = set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
    if missing := _schema() - found:
        raise StoreCorrupted(f"{path} is damaged: its schema was changed ({min(missing)[1]}); restore a backup")
    for table in ("executions", "inbox"):
        last = connection.execute(f"SELECT max(num) FROM {table}").fetchone()[0]
        if isinstance(last, int) and last > CHECKED_ROWS_MAX:
            continue
        for (finding,) in connection.execute(f"PRAGMA integrity_check({table})").fetchall():
            if finding != "ok":
                raise StoreCorrupted(f"{path} is damaged ({finding}); run `holdfast doctor`, and restore a backup")


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
