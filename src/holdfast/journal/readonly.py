"""A glance into a journal's file: read-only, without upgrading, locking or leaving anything behind.

For whoever must be quick and may be told nothing, such as a shell that completes a word. Everybody else opens a store.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.codec import Row, decode
from holdfast.journal.sql import queries
from holdfast.journal.sqlite.rows import read_heads, texts
from holdfast.journal.store import Head

EVENTS_MAX = 5000  # of the execution that is looked into: its steps are known by then, or it takes too long


def recent_heads(path: Path, limit: int) -> list[Head]:
    """The newest first."""
    with _reading(path) as connection:
        return [head for head, _ in read_heads(connection, "ORDER BY num DESC LIMIT ?", (limit,))]


def state_of(path: Path, fragment: str) -> Execution | None:
    """An execution as its first events say, by a part of its id or `@last`; None if that is not one."""
    sql = queries("sqlite")
    with _reading(path) as connection:
        if fragment == "@last":
            found = [
                head.id for head, _ in read_heads(connection, "WHERE parent_id = '' ORDER BY num DESC LIMIT 1", ())
            ]
        else:
            found = texts(connection.execute(sql["find"], {"fragment": fragment, "limit": 2}))
        if len(found) != 1:
            return None
        num, _ = connection.execute(sql["find_place"], (found[0],)).fetchone()
        state = Execution(id=found[0])
        for row in connection.execute(sql["read_events"], (num, 0, EVENTS_MAX)):
            stored = Row(*row)
            apply(state, decode(stored), stored.seq)
        return state


@contextmanager
def _reading(path: Path) -> Generator[Any]:
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        yield connection
    finally:
        connection.close()
