"""Deletes whole executions from the SQLite file, and gives the space back, in bites that keep nobody waiting.

Runs in the writer thread. A family goes as a whole: it is looked at again in every transaction, and goes from its
deepest members up, so that whatever is left after a crash is whole and goes the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.journal.sql import queries

EVENTS_AT_ONCE = 1_000  # deleted in one transaction, about 10 ms; one execution is never split, however long it is
HEAD_WEIGHT = 10  # an execution costs as much as so many events, beside its own
FAMILIES_AT_ONCE = 20  # looked at in one statement
PAGES_AT_ONCE = 100  # given back in one transaction, about as long


class _Member(NamedTuple):
    num: int
    id: str
    events: int


class Deleter:
    def __init__(self, connection: Any) -> None:
        # Typed loosely: apsw's stubs leave the types of bindings and rows open.
        self._run: Callable[..., Any] = connection.execute
        self._pragma: Callable[[str], Any] = connection.pragma
        self._sql = queries("sqlite")

    def delete(self, wanted: Sequence[str]) -> tuple[list[str], Sequence[str]]:
        """One transaction's worth: who is deleted now, and who is still to be looked at."""
        gone: dict[int, _Member] = {}
        room = EVENTS_AT_ONCE
        for first in range(0, len(wanted), FAMILIES_AT_ONCE):
            for place, family in enumerate(self.families(wanted[first : first + FAMILIES_AT_ONCE]), first):
                for member in family:
                    if room <= 0:
                        return self._remove(list(gone.values())), wanted[place:]
                    if member.num not in gone:  # it may have been asked for twice, as itself and as a child
                        room -= member.events + HEAD_WEIGHT
                        gone[member.num] = member
        return self._remove(list(gone.values())), ()

    def families(self, wanted: Sequence[str]) -> list[list[_Member]]:
        """Of each: it and its descendants, deepest first; nobody if one of them is still needed."""
        found: list[list[_Member]] = [[] for _ in wanted]
        needed = set[int]()
        for place, *member, is_needed in self._run(self._sql["family"], {"ids": json_list(wanted)}):
            found[int(place)].append(_Member(*member))
            if is_needed:
                needed.add(place)
        return [[] if place in needed else family for place, family in enumerate(found)]

    def _remove(self, gone: Sequence[_Member]) -> list[str]:
        if gone:
            values = {
                "nums": json_list([member.num for member in gone]),
                "ids": json_list([member.id for member in gone]),
            }
            for name in ("note_deleted", *_TRACES, "delete_executions"):
                self._run(self._sql[name], values)
        return [member.id for member in gone]

    def give_back(self) -> bool:
        """Some of the file's free pages, outside of a transaction; whether there are more."""
        if self._pragma("auto_vacuum") == 0 or not self._pragma("freelist_count"):
            return False
        self._run(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
        return bool(self._pragma("freelist_count"))

    def settle(self) -> None:
        """What was given back leaves the file when the log is written into it."""
        self._run("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def json_list(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()


# In this order: a blob goes when its last use has gone.
_TRACES = (
    "delete_events",
    "delete_snapshots",
    "delete_unshared_blobs",
    "delete_blob_uses",
    "delete_pending",
    "delete_answered",
)
