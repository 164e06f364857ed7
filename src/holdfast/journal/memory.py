"""A store that forgets everything when the process ends: for tests, experiments and programs that need no durability.

It keeps exactly the rules of the durable stores, and passes the same contract suite.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import NotFound, StoreCorrupted
from holdfast.journal import store as port
from holdfast.journal.codec import CHAIN_START, Row, Snapshot
from holdfast.journal.keyed import ROWS_PAGE, KeyedRow, Place, Put, Puts, check_place, span
from holdfast.journal.query_match import fits
from holdfast.journal.store import (
    ANSWERS_KEPT_US,
    ASKED,
    PENDING_PAGE,
    TOO_LATE,
    CacheLook,
    Claim,
    Entry,
    Forget,
    Head,
    Hold,
    Mark,
    NewExecution,
    Quarantine,
    Query,
    Stored,
    Write,
    Written,
    clash_within,
)

TIDY_ITEMS = 100  # of what has had its time, looked at in one go


class MemoryStore:
    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._rows: dict[str, list[Row]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._blobs: dict[str, bytes] = {}
        self._uses: dict[str, set[str]] = {}  # of an execution: the digests of the blobs it refers to
        self._deleted: dict[str, None] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._pending: dict[str, Command] = {}
        self._answers: dict[str, tuple[Command, Answer]] = {}
        self._cache: dict[str, tuple[bytes, int]] = {}
        self._cache_look = CacheLook()
        self._expiring: list[tuple[int, str]] = []  # a heap over the cache, soonest first
        self._keyed: dict[Place, tuple[int, bytes]] = {}
        self._version = 0

    # ---- writing ------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        self._version += 1
        return [self._write(item) for item in writes]

    def _write(self, item: Write) -> Written:
        match item:
            case Entry():
                return self._entry(item)
            case Put():
                return self._put_rows((item,))
            case Hold():
                self._hold(item)
                return Written(ok=True)
            case Quarantine():
                if item.execution_id in self._heads:
                    self._heads[item.execution_id].quarantined = item.why
                return Written(ok=True)
            case Forget():
                for execution_id in item.execution_ids:
                    self._deleted.pop(execution_id, None)
                return Written(ok=True)
            case NewExecution():
                return self._create(item)
            case Claim():
                return self._claim(item)
            case Command():
                return self._post(item)
            case Mark():
                return self._mark(item)

    def _entry(self, entry: Entry) -> Written:
        head = self._heads.get(entry.execution_id)
        if head is None or head.epoch != entry.epoch or head.seq != entry.after:
            return Written(ok=False)
        put = self._put_rows(entry.puts)
        if put.ok:
            self._append(head, entry)
        return put

    def _append(self, head: Head, entry: Entry) -> None:
        if entry.rows:
            self._rows[head.id].extend(entry.rows)
            head.seq, head.digest = entry.rows[-1].seq, entry.rows[-1].digest
            head.updated_at, head.ended, head.total = entry.at, entry.ended, entry.total
        for answer in entry.answers:
            self._answer(answer)
        if entry.change is not None:
            for name in entry.change.__struct_fields__:
                setattr(head, name, getattr(entry.change, name))
            if self._has_pending(head.id):
                _ask(head)
        if entry.release:
            head.driver = ""
        self._use(head.id, entry)
        for new in entry.creates:  # before the posts: what is said to a child must find it
            self._create(new)
        for command in entry.posts:
            self._tell(command)
        if entry.cached:
            self._put_cached(entry)
        if entry.change is not None and entry.change.ended_at:
            self._tidy_answers(entry.at - ANSWERS_KEPT_US)
        if entry.snapshot is not None:
            self._snapshots[head.id] = entry.snapshot

    def _put_rows(self, wanted: Sequence[Put]) -> Written:
        puts = Puts(lambda place: self._keyed.get(place, (0, b""))[0])
        if conflict := puts.conflict(wanted):
            return Written(ok=False, conflict=conflict)
        versions = puts.put(wanted)
        for place, (version, value) in puts.rows.items():
            if value is None:
                self._keyed.pop(place, None)
            else:
                self._keyed[place] = version, value
        return Written(ok=True, versions=versions)

    def _hold(self, hold: Hold) -> None:
        dead = hold.unless_driven
        for head in (self._heads[one] for one in hold.execution_ids if one in self._heads):
            if dead is None or (not head.ended_at and (head.held or head.driver in ("", *dead))):
                head.held = hold.why

    def _create(self, new: NewExecution) -> Written:
        if any(needed not in self._heads for needed in new.needs):
            return Written(ok=False)
        if twice := clash_within(new):
            return Written(ok=False, existing=twice)
        for one in (new, *new.family):
            head = one.head
            existing = head.id if head.id in self._heads else self._keys.get((head.owner, head.key), "")
            if existing:
                return Written(ok=False, existing=existing)
        for one in (new, *new.family):
            head = msgspec.structs.replace(one.head)
            if head.key:
                self._keys[head.owner, head.key] = head.id
            self._heads[head.id] = head
            self._rows[head.id] = list(one.rows)
            self._deleted.pop(head.id, None)  # it is back: its files are nobody's to remove
            self._use(head.id, one)
            for command in one.posts:
                self._post(command)
        return Written(ok=True, epoch=new.head.epoch)

    def _use(self, execution_id: str, item: Entry | NewExecution) -> None:
        self._blobs.update(item.blobs)
        uses = self._uses.setdefault(execution_id, set())
        uses.update(item.uses, (digest for digest, _ in item.blobs))

    def _claim(self, claim: Claim) -> Written:
        head = self._heads.get(claim.execution_id)
        if head is None or head.driver != claim.replacing or head.quarantined or (claim.to_drive and head.held):
            return Written(ok=False)
        if claim.to_drive and not claim.replacing and not self._has_place(head):
            return Written(ok=False)
        head.epoch += 1
        head.driver = claim.driver
        return Written(ok=True, epoch=head.epoch)

    def _has_place(self, head: Head) -> bool:
        if not head.concurrency_key:
            return True
        holders = [
            other
            for other in self._heads.values()
            if other.concurrency_key == head.concurrency_key and other.driver and other.id != head.id
        ]
        return len(holders) < head.concurrency_limit

    def _post(self, command: Command) -> Written:
        head = self._heads.get(command.execution_id)
        if head is None or command.id in self._pending or command.id in self._answers:
            return Written(ok=False)
        self._pending[command.id] = command
        _ask(head)
        return Written(ok=True)

    def _tell(self, command: Command) -> None:
        """What one execution says to another; if that is over, it does not matter any more."""
        head = self._heads.get(command.execution_id)
        if head is not None and not head.ended_at:
            self._post(command)
        elif command.id not in self._answers:
            self._pending.setdefault(command.id, command)
            self._answer(Answer(command_id=command.id, outcome="unchanged", text=TOO_LATE))

    def _answer(self, answer: Answer) -> None:
        command = self._pending.pop(answer.command_id, None)
        if command is not None:
            self._answers[command.id] = (command, answer)

    def _tidy_answers(self, before: int) -> None:
        """Forget what was answered long ago by executions that ended long ago; the rest goes to the end of the line."""
        for command_id in list(islice(self._answers, TIDY_ITEMS)):
            command, answer = self._answers.pop(command_id)
            head = self._heads.get(command.execution_id)
            if command.at >= before or (head is not None and not 0 < head.ended_at < before):
                self._answers[command_id] = (command, answer)

    def _put_cached(self, entry: Entry) -> None:
        self._expire(entry.at)
        for item in entry.cached:
            self._put_output(item.key, item.output, item.expires_at)
        if self._cache_look.is_due(len(entry.cached)):
            self._evict()

    def _mark(self, mark: Mark) -> Written:
        self._expire(mark.at)
        if self._cache.get(mark.key, (b"", mark.at))[1] > mark.at:
            return Written(ok=False)
        self._put_output(mark.key, b"", mark.expires_at)
        return Written(ok=True)

    def _put_output(self, key: str, output: bytes, expires_at: int) -> None:
        self._cache[key] = (output, expires_at)
        heapq.heappush(self._expiring, (expires_at, key))

    def _expire(self, at: int) -> None:
        for _ in range(TIDY_ITEMS):
            if not self._expiring or self._expiring[0][0] > at:
                break
            expired_at, key = heapq.heappop(self._expiring)
            if self._cache.get(key, (b"", 0))[1] == expired_at:  # otherwise it was put again in the meantime
                del self._cache[key]

    def _evict(self) -> None:
        """Marks hold nothing, and are not given away before their time."""
        cap = port.CACHE_CAP
        held = {key: (expires_at, len(output)) for key, (output, expires_at) in self._cache.items() if output}
        total = sum(size for _, size in held.values())
        for key in sorted(held, key=held.__getitem__):
            if total <= cap.bytes and len(held) <= cap.items:
                break
            total -= held.pop(key)[1]
            del self._cache[key]

    async def delete(self, execution_ids: Sequence[str]) -> list[str]:
        self._version += 1
        gone = await self.would_delete(execution_ids)
        for execution_id in gone:
            self._remove(self._heads[execution_id])
        return gone

    async def would_delete(self, execution_ids: Sequence[str]) -> list[str]:
        families = [self._family(execution_id) for execution_id in execution_ids]
        over = [family for family in families if not any(self._is_needed(head) for head in family)]
        return list(dict.fromkeys(head.id for family in over for head in reversed(family)))

    def _family(self, execution_id: str) -> list[Head]:
        """An execution and its descendants, the deepest last."""
        found = [self._heads[execution_id]] if execution_id in self._heads else []
        for parent in found:  # which grows meanwhile
            found += [head for head in self._heads.values() if head.parent_id == parent.id]
        return found

    def _is_needed(self, head: Head) -> bool:
        parent = self._heads.get(head.parent_id)
        return (
            not _is_over(head)
            or (parent is not None and not _is_over(parent))
            or any(fork.forked_from == head.id and not _is_over(fork) for fork in self._heads.values())
        )

    def _remove(self, head: Head) -> None:
        self._deleted[head.id] = None
        del self._heads[head.id], self._rows[head.id]
        self._snapshots.pop(head.id, None)
        if head.key:
            del self._keys[head.owner, head.key]
        unused = self._uses.pop(head.id).difference(*self._uses.values())
        for digest in unused:
            self._blobs.pop(digest, None)
        self._pending = {i: command for i, command in self._pending.items() if command.execution_id != head.id}
        self._answers = {i: pair for i, pair in self._answers.items() if pair[0].execution_id != head.id}

    async def deleted(self) -> list[str]:
        return list(self._deleted)

    # ---- for witnesses ------------------------------------------------------------------------------------------

    def rows_of(self, execution_id: str) -> list[Row]:
        return list(self._rows.get(execution_id, ()))

    def head_of(self, execution_id: str) -> Head:
        return msgspec.structs.replace(self._head(execution_id))

    def all_heads(self) -> list[Head]:
        return [msgspec.structs.replace(head) for head in self._heads.values()]

    def all_blobs(self) -> frozenset[str]:
        return frozenset(self._blobs)

    def all_pending(self) -> list[Command]:
        return list(self._pending.values())

    def all_answers(self) -> list[Answer]:
        return [answer for _, answer in self._answers.values()]

    # ---- reading ------------------------------------------------------------------------------------------------

    def _head(self, execution_id: str) -> Head:
        try:
            return self._heads[execution_id]
        except KeyError:
            raise NotFound(f"there is no execution {execution_id} in memory") from None

    async def load(self, execution_id: str) -> Stored:
        head = msgspec.structs.replace(self._head(execution_id))
        snapshot = self._snapshots.get(execution_id)
        return Stored(head, snapshot, self._rows[execution_id][snapshot.seq if snapshot else 0 :])

    async def events(self, execution_id: str, after: int, limit: int) -> tuple[bytes, list[Row]]:
        self._head(execution_id)
        rows = self._rows[execution_id]
        if after > len(rows):
            return CHAIN_START, []
        chain = rows[after - 1].digest if after else CHAIN_START
        return chain, rows[after : after + limit if limit >= 0 else None]

    async def head(self, execution_id: str) -> Head:
        return msgspec.structs.replace(self._head(execution_id))

    async def heads(self, query: Query) -> list[Head]:
        found: list[Head] = []
        seen_before = not query.before
        heads = reversed(self._heads.values())
        for head in heads if query.ended_after is None else sorted(heads, key=lambda head: (head.ended_at, head.id)):
            if not seen_before:
                seen_before = head.id == query.before
            elif fits(head, query):
                found.append(msgspec.structs.replace(head))
                if len(found) >= query.limit:
                    break
        return found

    async def count(self, query: Query) -> int:
        return len(await self.heads(msgspec.structs.replace(query, limit=len(self._heads))))

    async def find(self, fragment: str, limit: int = 2) -> list[str]:
        ids = reversed(self._heads)
        return [i for i in ids if i.startswith(fragment) or i.endswith(fragment)][:limit]

    async def drivers(self) -> list[str]:
        return sorted({head.driver for head in self._heads.values() if head.driver})

    async def claimable(self, now: int, drivers: Sequence[str], limit: int) -> list[Head]:
        due = [
            (head.wake_at if head.wake_at is not None else now, head)
            for head in self._heads.values()
            if head.driver in drivers
            and not (head.quarantined or head.held)
            and (head.driver or (head.wake_at is not None and head.wake_at <= now and self._has_place(head)))
        ]
        return [msgspec.structs.replace(head) for _, head in sorted(due, key=lambda pair: pair[0])[:limit]]

    async def blob(self, digest: str) -> bytes:
        try:
            return self._blobs[digest]
        except KeyError:
            raise StoreCorrupted(f"blob {digest} is missing") from None

    async def cached(self, key: str, now: int) -> bytes | None:
        output, expires_at = self._cache.get(key, (None, 0))
        return output if expires_at > now else None

    async def row(self, space: str, key: str) -> KeyedRow | None:
        check_place(space, key)
        found = self._keyed.get((space, key))
        return KeyedRow(key, *found) if found else None

    async def rows(
        self, space: str, prefix: str = "", *, after: str | None = None, limit: int = ROWS_PAGE
    ) -> list[KeyedRow]:
        first, end = span(prefix, after)
        keys = sorted(key for of, key in self._keyed if of == space and first <= key < end)
        return [KeyedRow(key, *self._keyed[space, key]) for key in keys[:limit]]

    async def command(self, command_id: str) -> Command | None:
        if command_id in self._pending:
            return self._pending[command_id]
        return self._answers[command_id][0] if command_id in self._answers else None

    async def answer(self, command_id: str) -> Answer | None:
        _, answer = self._answers.get(command_id, (None, None))
        return answer

    async def pending(self, execution_ids: Sequence[str] | None = None, *, after: str = "") -> list[Command]:
        if execution_ids is None:
            ids = list(self._pending)
            begin = ids.index(after) + 1 if after in self._pending else 0
            return [self._pending[one] for one in ids[begin : begin + PENDING_PAGE]]
        wanted = set(execution_ids)
        return [command for command in self._pending.values() if command.execution_id in wanted]

    def _has_pending(self, execution_id: str) -> bool:
        return any(command.execution_id == execution_id for command in self._pending.values())

    def changes(self) -> int:
        return self._version

    async def check(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing is held open."""


def _is_over(head: Head) -> bool:
    """What was set aside can never end, and needs nothing any more."""
    return bool(head.ended_at or head.quarantined)


def _ask(head: Head) -> None:
    """A command waits; what should be driven now anyway stays so."""
    if head.wake_at != 0:
        head.wake_at = ASKED
