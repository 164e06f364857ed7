"""A store as an earlier release left it: the same rows under an earlier schema, in a file that cannot shrink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from holdfast.journal.sql import migrations


def as_older(path: Path, version: int) -> None:
    """Turn the store into one of schema `version`; what that schema did not know is lost."""
    old = path.with_name("older.db")
    connection: Any = apsw.Connection(str(old))
    for step in migrations("sqlite")[:version]:
        connection.execute(step)
    connection.pragma("user_version", version)
    connection.execute("ATTACH ? AS new", (str(path),))
    for (table,) in connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    connection.close()
    old.replace(path)
