"""The port to where journals are kept: about ten methods, with memory.py, sqlite.py and postgres.py beside it.

A store is dumb on purpose. It keeps rows, checks the epoch inside every commit (fencing), and answers questions about
heads; it never reads an event. `holdfast.testing.store_contract` is the published suite that every store must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.events import Reason
from holdfast.journal.codec import Row, Snapshot

Microseconds = int
ASKED = -1  # as `wake_at`


class Head(msgspec.Struct, kw_only=True, gc=False):
    """What can be known of an execution without opening its journal: one row of a list.

    `wake_at` is when somebody should drive it if nobody does: 0 means now, None means only a command can move it, and
    ASKED that one has come in, which somebody must answer, and which may or may not move it.
    """

    id: str
    name: str
    kind: str
    created_at: Microseconds
    status: str = "queued"
    title: str = ""
    owner: str = ""
    key: str = ""
    labels: dict[str, str] = {}
    parent_id: str = ""
    updated_at: Microseconds = 0
    ended_at: Microseconds = 0
    wake_at: Microseconds | None = 0
    reasons: tuple[Reason, ...] = ()
    error: str = ""
    failed_path: str = ""
    ended: int = 0
    total: int = 0
    concurrency_key: str = ""
    concurrency_limit: int = 0
    seq: int = 0
    digest: bytes = b""
    epoch: int = 0
    driver: str = ""
    quarantined: str = ""


class HeadChange(msgspec.Struct, kw_only=True, gc=False):
    """The part of a head that its driver rewrites when the status moves."""

    status: str
    wake_at: Microseconds | None
    ended_at: Microseconds = 0
    reasons: tuple[Reason, ...] = ()
    error: str = ""
    failed_path: str = ""


class CacheItem(NamedTuple):
    key: str
    output: bytes
    expires_at: Microseconds


class NewExecution(msgspec.Struct, kw_only=True):
    """An execution with its first events. `driver` set means: created and claimed in one stroke, at epoch 1."""

    head: Head
    rows: list[Row]
    blobs: list[tuple[str, bytes]] = []


class Entry(msgspec.Struct, kw_only=True, gc=False):
    """All that one execution's driver wants written in one transaction, or not at all.

    It is refused (fenced) unless the execution is at `epoch` and its last event is number `after`.
    """

    execution_id: str
    epoch: int
    after: int
    rows: list[Row]
    at: Microseconds = 0
    ended: int = 0
    total: int = 0
    change: HeadChange | None = None
    blobs: tuple[tuple[str, bytes], ...] = ()
    answers: tuple[Answer, ...] = ()
    posts: tuple[Command, ...] = ()
    creates: tuple[NewExecution, ...] = ()
    cached: tuple[CacheItem, ...] = ()
    snapshot: Snapshot | None = None
    release: bool = False


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Become the driver, if the driver now is `replacing` ("" is nobody).

    `to_drive` also asks for a place under the execution's concurrency key; a commander needs none.
    """

    execution_id: str
    driver: str
    replacing: str = ""
    to_drive: bool = True


Write = Entry | NewExecution | Claim | Command


class Written(NamedTuple):
    """What became of one write.

    `ok` is False for an entry that was fenced, a claim that was lost, a command whose id is known, and a new execution
    whose id or (owner, key) exists: `existing` is then its id. `epoch` is the new driver's, for a claim.
    """

    ok: bool
    epoch: int = 0
    existing: str = ""


class Stored(NamedTuple):
    """A journal as it is on disk: verified against the head's digest by whoever opens it."""

    head: Head
    snapshot: Snapshot | None
    rows: list[Row]


ANSWERS_KEPT_US = 24 * 3600 * 1_000_000  # after an execution's end, its commands and their answers are kept for a day
TOO_LATE = "the execution has ended"  # the answer to what another execution says to one that is over
PENDING_PAGE = 1000  # commands returned at once when no executions are named


class Query(msgspec.Struct, kw_only=True):
    """Which heads to list, newest first. Empty means any."""

    status: tuple[str, ...] = ()
    name: str = ""
    owner: str = ""
    parent_id: str | None = None
    before: str = ""  # an id: only executions older than it
    limit: int = 100


class Store(Protocol):
    """Methods raise `StoreUnavailable` if the store cannot do its work, and never half of anything."""

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        """Do all writes durably in one transaction, in order. A write that is refused is left out; the others go on.

        What an entry posts to an execution that has ended, or does not exist, is answered at once as unchanged.
        """
        ...

    async def load(self, execution_id: str) -> Stored:
        """The newest snapshot and the events after it. Raises NotFound, or StoreCorrupted if they cannot be read."""
        ...

    async def events(self, execution_id: str, after: int, limit: int) -> tuple[bytes, list[Row]]:
        """Up to `limit` events after number `after` (-1: all), and the chain's digest at `after`. Raises NotFound."""
        ...

    async def head(self, execution_id: str) -> Head:
        """Raises NotFound, or StoreCorrupted if its row cannot be read; lists show such an execution as set aside."""
        ...

    async def find(self, fragment: str, limit: int = 2) -> list[str]:
        """Ids that begin or end with `fragment`; newest first."""
        ...

    async def heads(self, query: Query) -> list[Head]: ...

    async def drivers(self) -> list[str]:
        """Everybody who holds an execution, dead or alive."""
        ...

    async def claimable(self, now: Microseconds, drivers: Sequence[str], limit: int) -> list[Head]:
        """Executions that nobody holds and that should be driven now, and all that one of `drivers` holds.

        "" among the drivers is nobody. Longest due first.
        """
        ...

    async def blob(self, digest: str) -> bytes: ...

    async def cached(self, key: str, now: Microseconds) -> bytes | None: ...

    async def answer(self, command_id: str) -> Answer | None:
        """What became of a command, once its execution has handled it."""
        ...

    async def command(self, command_id: str) -> Command | None:
        """A command that was posted, whether it has been answered or not."""
        ...

    async def pending(self, execution_ids: Sequence[str] | None = None) -> list[Command]:
        """Commands without an answer, oldest first; without ids at most PENDING_PAGE of them."""
        ...

    async def quarantine(self, execution_id: str, why: str) -> None:
        """Set a damaged execution aside ("" lets it back in): it is still listed, but nobody drives it."""
        ...

    def changes(self) -> int:
        """A number that differs from the last call's if anything was committed since, by anybody.

        Our own commits show when `commit` returns; word of others' may take a moment.
        """
        ...

    async def close(self) -> None: ...
