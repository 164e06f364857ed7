"""Deletes whole executions from a PostgreSQL schema, one transaction's worth at a time.

The rules are those of journal/sqlite/delete.py. What is different: others write at the same time, so everything that
goes is locked first, heads and then blobs. The space is the server's: its vacuum makes it free for what comes next.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

from psycopg import errors

from holdfast.journal.postgres.connection import Connection, statements

EVENTS_AT_ONCE = 1_000  # deleted in one transaction; one execution is never split, however long it is
HEAD_WEIGHT = 10  # an execution costs as much as so many events, beside its own
FAMILIES_AT_ONCE = 20  # looked at in one statement


class _Member(NamedTuple):
    num: int
    id: str
    events: int


async def delete_some(connection: Connection, wanted: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Who is deleted now, and who is still to be looked at."""
    doomed: dict[int, None] = {}
    room = EVENTS_AT_ONCE
    place = -1
    await connection.execute(statements()["walk_indexes"])
    async for family in families(connection, wanted):
        place += 1
        for member in family:
            if room <= 0:
                return await _remove(connection, list(doomed)), wanted[place:]
            if member.num not in doomed:  # it may have been asked for twice, as itself and as a child
                room -= member.events + HEAD_WEIGHT
                doomed[member.num] = None
    return await _remove(connection, list(doomed)), ()


async def families(connection: Connection, wanted: Sequence[str]) -> AsyncGenerator[list[_Member]]:
    """Of each: it and its descendants, deepest first; nobody if one of them is still needed."""
    for first in range(0, len(wanted), FAMILIES_AT_ONCE):
        page = list(wanted[first : first + FAMILIES_AT_ONCE])
        found: list[list[_Member]] = [[] for _ in page]
        needed = set[int]()
        for place, *member, is_needed in await _fetch(connection, "family", (page,)):
            found[int(place) - 1].append(_Member(*member))
            if is_needed:
                needed.add(place - 1)
        for place, family in enumerate(found):
            yield [] if place in needed else family


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
