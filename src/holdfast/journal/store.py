"""The port to where journals are kept: one `commit` for all writes, and reads. Implemented by memory, sqlite, postgres.

A store is dumb on purpose. It keeps rows, checks the epoch inside every commit (fencing), and answers questions about
heads; it never reads an event. Deleting whole executions is a port of its own, `Deletion`.
`holdfast.testing.store_contract.contract` is the published suite that every store must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, get_args

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import InputInvalid
from holdfast.core.events import Reason
from holdfast.core.lifecycle import Status
from holdfast.core.policy import CACHE_BYTES_MAX, CACHE_ITEMS_MAX
from holdfast.journal.codec import Row, Snapshot
from holdfast.journal.keyed import ROWS_PAGE, Conflict, KeyedRow, Put

Microseconds = int
ASKED = -1  # as `wake_at`
STATUSES: tuple[str, ...] = get_args(Status)


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
    error: str = ""  # why it failed; of one that completed, what failed on the way
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
    held: str = ""  # why nobody may drive it before a person says so: a code of core/held.py, or a person's words
    forked_from: str = ""  # the execution it was made from


class HeadChange(msgspec.Struct, kw_only=True, gc=False):
    """The part of a head that its driver rewrites when the status moves."""

    status: str
    wake_at: Microseconds | None
    ended_at: Microseconds = 0
    reasons: tuple[Reason, ...] = ()
    error: str = ""
    failed_path: str = ""


class CacheCap(NamedTuple):
    """How much is cached; what expires first goes first. It costs a scan, so many new items are looked at together."""

    items: int = CACHE_ITEMS_MAX
    bytes: int = CACHE_BYTES_MAX
    look_every: int = 50


CACHE_CAP = CacheCap()


class CacheLook:
    """Counts new items, and says when it is time to look."""

    def __init__(self) -> None:
        self._new = 0

    def is_due(self, items: int) -> bool:
        self._new += items
        if self._new < CACHE_CAP.look_every:
            return False
        self._new = 0
        return True


class CacheItem(NamedTuple):
    key: str
    output: bytes
    expires_at: Microseconds


class NewExecution(msgspec.Struct, kw_only=True):
    """An execution with its first events. `driver` set means: created and claimed in one stroke, at epoch 1.

    `family` comes with it: all of them are created, or none is. `posts` wait in its inbox from the start. `needs` are
    executions without which it makes no sense: it is refused if one of them is gone by now.
    """

    head: Head
    rows: list[Row]
    blobs: list[tuple[str, bytes]] = []
    uses: tuple[str, ...] = ()  # digests that its rows refer to; with those of its blobs, all of them
    family: tuple[NewExecution, ...] = ()
    posts: tuple[Command, ...] = ()
    needs: tuple[str, ...] = ()


def clash_within(new: NewExecution) -> str:
    """The member of a family that has the id or the key of another one of it, if there is one: then none is created."""
    ids, keys = set[str](), set[tuple[str, str]]()
    for head in (one.head for one in (new, *new.family)):
        if head.id in ids or (head.key and (head.owner, head.key) in keys):
            return head.id
        ids.add(head.id)
        keys.add((head.owner, head.key))
    return ""


class Entry(msgspec.Struct, kw_only=True, gc=False):
    """All that one execution's driver wants written in one transaction, or not at all.

    It is refused (fenced) unless the execution is at `epoch` and its last event is number `after`; and if one of its
    `puts` finds another version than it asks for: `Written.conflict` then says which.
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
    uses: tuple[str, ...] = ()  # of blobs that lie there already, because another execution wrote them
    answers: tuple[Answer, ...] = ()
    posts: tuple[Command, ...] = ()
    creates: tuple[NewExecution, ...] = ()
    cached: tuple[CacheItem, ...] = ()
    puts: tuple[Put, ...] = ()
    snapshot: Snapshot | None = None
    release: bool = False


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Become the driver, if the driver now is `replacing` ("" is nobody).

    `to_drive` also asks for a place under the execution's concurrency key, and that it is not held; a commander needs
    neither.
    """

    execution_id: str
    driver: str
    replacing: str = ""
    to_drive: bool = True


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Be the first to say that something is about to be done: ok for one of all who ask, until it expires.

    It lies among the cached outputs, under a key of its own.
    """

    key: str
    at: Microseconds
    expires_at: Microseconds


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody drives these executions until a person says so (`why` "" lets them go); commands reach them all the same.

    `unless_driven` names the dead: then what has ended is left as it was, and so is what anybody else drives. What is
    held already nobody can drive; whoever has claimed that, does it for a command.
    """

    execution_ids: tuple[str, ...]
    why: str
    unless_driven: tuple[str, ...] | None = None


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """Set a damaged execution aside (`why` "" lets it back in): it is still listed, but nobody drives it."""

    execution_id: str
    why: str


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """The files of these deleted executions are gone: `deleted` need not list them any more."""

    execution_ids: tuple[str, ...]


# A command for an execution that is not there is refused; to hold, quarantine or forget one that is not there is not.
Write = Entry | NewExecution | Claim | Command | Mark | Put | Hold | Quarantine | Forget


class Written(NamedTuple):
    """What became of one write.

    `ok` is False for an entry that was fenced, a claim that was lost, a command whose id is known, a mark that was set
    before, and a new execution whose id or (owner, key), or one of its family's, exists, or stands twice in the family:
    `existing` is then its id; or which needs another that is gone. `epoch` is the new driver's, for a claim. `conflict`
    is set when a put, alone or of an entry, found another version; `versions` are the new ones, in the order of the
    puts, 0 for a row that was deleted.
    """

    ok: bool
    epoch: int = 0
    existing: str = ""
    conflict: Conflict | None = None
    versions: tuple[int, ...] = ()


class Stored(NamedTuple):
    """A journal as it is on disk: verified against the head's digest by whoever opens it."""

    head: Head
    snapshot: Snapshot | None
    rows: list[Row]


ANSWERS_KEPT_US = 24 * 3600 * 1_000_000  # after an execution's end, its commands and their answers are kept for a day
TOO_LATE = "too_late"  # a code, not a sentence: the answer to what another execution says to one that is over
PENDING_PAGE = 1000  # commands returned at once when no executions are named


class Query(msgspec.Struct, kw_only=True):
    """Which heads to list, newest first. Empty means any; what is asked for together must all be so.

    With `ended_after` they come in the order in which they ended: it walks all that has ended, page by page, also while
    they are being deleted.
    """

    ids: tuple[str, ...] = ()  # whole ones
    status: tuple[str, ...] = ()
    held: bool = False  # nobody drives it before a person says so: see Head.held, or it was handed in so
    name: str = ""
    owner: str = ""
    parent_id: str | None = None
    forked_from: str = ""
    labels: dict[str, str | None] = {}  # None: has such a label, whatever it says
    failed_step: str = ""
    error: str = ""  # a part of it, in any case
    text: str = ""  # words, in any case, each of them somewhere in id, name, title, owner, labels or error
    created_after: Microseconds | None = None  # or at that moment
    created_before: Microseconds | None = None
    ended_before: Microseconds | None = None
    ended_after: tuple[Microseconds, str] | None = None  # the time and the id of the last one; (0, "") begins
    before: str = ""  # an id: only executions older than it
    limit: int = 100

    def __post_init__(self) -> None:
        for name in ("ids", "status"):
            if isinstance(getattr(self, name), str):
                raise InputInvalid(f'Query: {name} takes several, such as {name}=("{getattr(self, name)}",)')
        if unknown := [status for status in self.status if status not in STATUSES]:
            raise InputInvalid(f'Query: no such status: "{unknown[0]}"; there are: {", ".join(STATUSES)}')


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

    async def count(self, query: Query) -> int:
        """How many there are, whatever its limit."""
        ...

    async def drivers(self) -> list[str]:
        """Everybody who holds an execution, dead or alive."""
        ...

    async def claimable(self, now: Microseconds, drivers: Sequence[str], limit: int) -> list[Head]:
        """Executions that nobody holds and that should be driven now, and all that one of `drivers` holds.

        "" among the drivers is nobody. Longest due first. Never what is held or set aside.
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

    async def pending(self, execution_ids: Sequence[str] | None = None, *, after: str = "") -> list[Command]:
        """Commands without an answer, oldest first; without ids at most PENDING_PAGE of them, those after a command."""
        ...

    async def row(self, space: str, key: str) -> KeyedRow | None:
        """What was `Put` there. Raises StoreCorrupted if it cannot be read."""
        ...

    async def rows(
        self, space: str, prefix: str = "", *, after: str | None = None, limit: int = ROWS_PAGE
    ) -> list[KeyedRow]:
        """Rows of a space whose keys begin with `prefix` and come after `after`, in the order of their code points."""
        ...

    def changes(self) -> int:
        """A number that differs from the last call's if anything was committed since, by anybody.

        Our own commits show when `commit` returns; word of others' may take a moment.
        """
        ...

    async def close(self) -> None: ...


class Deletion(Protocol):
    """Deleting executions for good. Files beside the store are for others to remove: see `deleted` and `Forget`."""

    async def delete(self, execution_ids: Sequence[str]) -> list[str]:
        """Delete executions and their descendants, with all that hangs on them; returns who is gone.

        A family goes as a whole, in as many transactions as it takes, or not at all: whoever has not ended is left, and
        so is whoever is still needed, by a parent or by a fork that has not ended. What was set aside can never end,
        and counts as if it had. Blobs that others use stay, keys become free, and the space is given back if the store
        can do that without keeping others waiting; also what an earlier delete that was killed has left, even if nobody
        is to go now.
        """
        ...

    async def would_delete(self, execution_ids: Sequence[str]) -> list[str]:
        """Who would go, were they deleted now."""
        ...

    async def deleted(self) -> list[str]:
        """Executions that were deleted and whose files may still lie about, until a `Forget` says that they do not."""
        ...


class DeletableStore(Store, Deletion, Protocol):
    """What an engine works with."""
