"""Deletes whole executions from a PostgreSQL schema, one transaction's worth at a time.

The rules are those of sqlite_delete.py. What is different: others write at the same time, so everything that goes is
locked first, heads and then blobs. The space is the server's: its vacuum makes it free for what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import errors

from holdfast.journal.postgres_link import Connection, statements

EVENTS_AT_ONCE = 2_000  # deleted in one transaction; one execution is never split, however long it is


async def delete_some(connection: Connection, wanted: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Who is deleted now, and who is still to be looked at."""
    doomed: dict[int, None] = {}
    room = EVENTS_AT_ONCE
    for place, execution_id in enumerate(wanted):
        for num, _, events, _ in await family(connection, execution_id):
            if room <= 0:
                return await _remove(connection, list(doomed)), wanted[place:]
            if num not in doomed:  # it may have been asked for twice, as itself and as a child
                room -= events
                doomed[num] = None
    return await _remove(connection, list(doomed)), ()


async def family(connection: Connection, execution_id: str) -> list[tuple[Any, ...]]:
    """An execution and its descendants, deepest first; nobody if one of them is still needed."""
    members = await _fetch(connection, "family", (execution_id,))
    return [] if any(needed for *_, needed in members) else members


async def _remove(connection: Connection, doomed: list[int]) -> list[str]:
    there = dict(await _fetch(connection, "lock_doomed", (doomed,))) if doomed else {}
    if there and await _fetch(connection, "needed_after_all", (list(there.values()),)):
        raise errors.SerializationFailure  # a fork was made while we waited for the locks: the whole of it again
    nums = [num for num in doomed if num in there]
    ids = [there[num] for num in nums]
    if nums:
        digests = [digest for (digest,) in await _fetch(connection, "lock_blobs", (nums,))]
        values = {"nums": nums, "ids": ids, "digests": digests}
        for name in (
            "note_deleted", "delete_events", "delete_snapshots", "delete_blob_uses", "delete_unused_blobs",
            "delete_commands", "delete_executions",
        ):  # fmt: skip
            await connection.execute(statements()[name], values)
    return ids


async def _fetch(connection: Connection, name: str, values: Any) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statements()[name], values)).fetchall()
