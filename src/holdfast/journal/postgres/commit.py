"""What one PostgreSQL transaction writes, at READ COMMITTED.

First everything it will touch is locked, in an order all processes share: concurrency keys and keyed rows, then heads.
From then on it is alone with them, each statement sees what others committed before, and the fence of each entry is
one condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from psycopg import errors

from holdfast.core.commands import Answer, Command
from holdfast.journal import store as port
from holdfast.journal.codec import Row
from holdfast.journal.keyed import BASE_KEY, Place, Put, Puts
from holdfast.journal.postgres.connection import Connection, statements
from holdfast.journal.postgres.rows import head_values, json_text
from holdfast.journal.store import (
    ANSWERS_KEPT_US,
    TOO_LATE,
    CacheLook,
    Claim,
    Entry,
    Forget,
    Head,
    HeadChange,
    Hold,
    Mark,
    NewExecution,
    Quarantine,
    Write,
    Written,
    clash_within,
)

TIDY_ROWS = 1000  # of the inbox, looked at in one go
TIDY_EVERY_US = 1_000_000
ROW_LOCKS = 256  # keyed rows share so many locks: a server has only some thousand for all


class Tidying:
    """When the inbox was last looked through: not with every execution that ends."""

    def __init__(self) -> None:
        self._at = 0
        self.cache_look = CacheLook()

    def is_due(self, at: int) -> bool:
        if at - self._at < TIDY_EVERY_US:
            return False
        self._at = at
        return True


async def write_all(connection: Connection, writes: Sequence[Write], tidying: Tidying) -> list[Written]:
    committer = _Committer(connection, tidying)
    await committer.lock(writes)
    results = [await committer.write(item) for item in writes]
    await committer.append_events()
    await committer.write_rows()
    return results


class _Committer:
    """Lives for one transaction."""

    def __init__(self, connection: Connection, tidying: Tidying) -> None:
        self._connection = connection
        self._tidying = tidying
        self._sql = statements()
        self._nums: dict[str, int] = {}
        self._events: list[tuple[Any, ...]] = []
        self._versions: dict[Place, int] = {}
        self._puts = Puts(lambda place: self._versions.get(place, 0))

    async def lock(self, writes: Sequence[Write]) -> None:
        """Released by the end of the transaction."""
        claimed = sorted({item.execution_id for item in writes if isinstance(item, Claim)})
        keys = {new.head.concurrency_key for new in _created(writes) if new.head.driver} - {""}
        if claimed:
            keys |= {key for (key,) in await self._fetch("concurrency_keys", (claimed,))}
        places = {(put.space, put.key) for item in writes for put in _puts_of(item)}
        slots = {f"rows {crc32(f'{space} {key}'.encode()) % ROW_LOCKS}" for space, key in places}
        if keys or slots:
            await self._run("lock_keys", ([*sorted(keys), *sorted(slots)],))
        if places:
            wanted = places | {(space, BASE_KEY) for space, _ in places}
            found = await self._fetch("row_versions", _columns(wanted))
            self._versions = {(space, key): version for space, key, version in found}
        touched = sorted({execution_id for item in writes for execution_id in _touched(item)})
        self._nums = dict(await self._fetch("lock_heads", (touched,)))

    async def write(self, item: Write) -> Written:
        match item:
            case Entry():
                return await self._entry(item)
            case NewExecution():
                return await self._create(item)
            case Claim():
                return await self._claim(item)
            case Command():
                return await self._post(item)
            case Mark():
                return await self._mark(item)
            case Put():
                if conflict := self._puts.conflict((item,)):
                    return Written(ok=False, conflict=conflict)
                return Written(ok=True, versions=self._puts.put((item,)))
            case Hold():
                await self._hold(item)
            case Quarantine():
                await self._run("quarantine", (item.why, item.execution_id))
            case Forget():
                await self._run("forget_deleted", (list(item.execution_ids),))
        return Written(ok=True)

    async def append_events(self) -> None:
        if self._events:
            await self._run("insert_events", _columns(self._events))

    async def write_rows(self) -> None:
        rows = sorted(self._puts.rows.items())
        kept = [(*place, version, value) for place, (version, value) in rows if value is not None]
        if kept:
            await self._run("put_rows", _columns(kept))
        gone = [place for place, (_, value) in rows if value is None]
        if gone:
            await self._run("delete_rows", _columns(gone))

    async def _entry(self, entry: Entry) -> Written:
        num = self._nums.get(entry.execution_id, -1)  # which matches nothing, so that the fence refuses it
        conflict = self._puts.conflict(entry.puts)
        if conflict is not None:  # nothing is written; that it is fenced comes first all the same
            is_ours = await self._run("check_fence", (num, entry.epoch, entry.after))
            return Written(ok=False, conflict=conflict if is_ours else None)
        if not await self._fence(num, entry):
            return Written(ok=False)
        self._append(num, entry.rows)
        for answer in entry.answers:  # before the head changes: a command without an answer keeps it awake
            await self._answer(answer)
        if entry.change is not None:
            await self._change(num, entry.change)
        if entry.release:
            await self._run("release", (num,))
        await self._blobs(num, entry.blobs)
        await self._uses(num, entry.uses)
        for new in entry.creates:  # before the posts: what is said to a child must find it
            await self._create(new)
        for command in entry.posts:
            await self._insert(command)
            await self._run("answer_too_late", {"id": command.id, "text": TOO_LATE})
            await self._run("wake", (command.execution_id,))
        await self._extras(num, entry)
        return Written(ok=True, versions=self._puts.put(entry.puts))

    async def _extras(self, num: int, entry: Entry) -> None:
        if entry.cached:
            await self._run("expire_cache", (entry.at,))
        for item in sorted(entry.cached):
            await self._run("put_cache", item)
        if entry.cached and self._tidying.cache_look.is_due(len(entry.cached)):
            await self._run("evict_cache", (port.CACHE_CAP.bytes, port.CACHE_CAP.items))
        if entry.change is not None and entry.change.ended_at and self._tidying.is_due(entry.at):
            values = {"at": entry.at, "before": entry.at - ANSWERS_KEPT_US, "rows": TIDY_ROWS}
            await self._run("tidy_inbox", values)
        if entry.snapshot is not None:
            await self._run("put_snapshot", (num, *entry.snapshot))

    async def _fence(self, num: int, entry: Entry) -> bool:
        if not entry.rows:  # nothing to append, but the right to write is checked all the same
            return bool(await self._run("check_fence", (num, entry.epoch, entry.after)))
        last = entry.rows[-1]
        place = (num, entry.epoch, entry.after)
        return bool(await self._run("advance", (last.seq, last.digest, entry.at, entry.ended, entry.total, *place)))

    async def _change(self, num: int, change: HeadChange) -> None:
        values = {
            "num": num,
            "status": change.status,
            "wake_at": change.wake_at,
            "ended_at": change.ended_at,
            "reasons": json_text(change.reasons),
            "error": change.error,
            "failed_path": change.failed_path,
        }
        await self._run("change_head", values)

    async def _create(self, new: NewExecution) -> Written:
        if any(needed not in self._nums for needed in new.needs):
            return Written(ok=False)
        if twice := clash_within(new):
            return Written(ok=False, existing=twice)
        for one in new.family:  # looked for before anything is written: what was inserted cannot be taken back alone
            if existing := await self._clash(one.head):
                return Written(ok=False, existing=existing)
        found = await self._fetch("insert_execution", head_values(new.head))
        if not found:
            return Written(ok=False, existing=await self._clash(new.head))
        for one in new.family:
            if not (await self._create(one)).ok:
                raise errors.SerializationFailure  # somebody was quicker after we had looked: the whole of it again
        num = found[0][0]
        self._nums[new.head.id] = num
        if new.head.held:  # an import brings back an id that may have been deleted: its files are nobody's to remove
            await self._run("forget_deleted", ([new.head.id],))
        self._append(num, new.rows)
        await self._blobs(num, new.blobs)
        await self._uses(num, new.uses)
        for command in new.posts:
            await self._post(command)
        return Written(ok=True, epoch=new.head.epoch)

    async def _clash(self, head: Head) -> str:
        """The execution that has its id or its key already, if there is one."""
        clash = await self._fetch("find_clash", head_values(head))
        return clash[0][0] if clash else ""

    async def _claim(self, claim: Claim) -> Written:
        values = {
            "id": claim.execution_id,
            "driver": claim.driver,
            "replacing": claim.replacing,
            "to_drive": claim.to_drive,
        }
        found = await self._fetch("claim", values)
        return Written(ok=True, epoch=found[0][0]) if found else Written(ok=False)

    async def _post(self, command: Command) -> Written:
        if not await self._fetch("is_there", (command.execution_id,)) or not await self._insert(command):
            return Written(ok=False)
        await self._run("wake", (command.execution_id,))
        return Written(ok=True)

    async def _insert(self, command: Command) -> bool:
        names = (command.id, command.execution_id, command.verb)
        return bool(await self._run("insert_command", (*names, command.at, command.by, bytes(command.arguments))))

    async def _mark(self, mark: Mark) -> Written:
        await self._run("expire_cache", (mark.at,))
        return Written(ok=bool(await self._run("put_mark", (mark.key, b"", mark.expires_at, mark.at))))

    async def _hold(self, hold: Hold) -> None:
        values = (hold.why, list(hold.execution_ids))
        if hold.unless_driven is None:
            await self._run("hold", values)
        else:
            await self._run("hold_undriven", (*values, ["", *hold.unless_driven]))

    async def _answer(self, answer: Answer) -> None:
        values = (answer.outcome, answer.text, answer.seq, answer.command_id)
        await self._run("answer_command", values)

    async def _blobs(self, num: int, blobs: Sequence[tuple[str, bytes]]) -> None:
        for digest, body in sorted(blobs):
            await self._run("insert_blob", (digest, body))
            await self._run("insert_blob_use", (num, digest))

    async def _uses(self, num: int, digests: Sequence[str]) -> None:
        for digest in sorted(digests):
            await self._run("insert_blob_use", (num, digest))

    def _append(self, num: int, rows: Sequence[Row]) -> None:
        self._events.extend((num, row.seq, row.version, row.body, row.digest) for row in rows)

    async def _run(self, name: str, values: Any) -> int:
        """How many rows it touched or found."""
        return (await self._connection.execute(self._sql[name], values)).rowcount

    async def _fetch(self, name: str, values: Any) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(self._sql[name], values)).fetchall()


def _created(writes: Sequence[Write]) -> list[NewExecution]:
    created = [item for item in writes if isinstance(item, NewExecution)]
    return created + [new for item in writes if isinstance(item, Entry) for new in item.creates]


def _touched(item: Write) -> list[str]:
    """The executions whose heads a write reads or changes."""
    match item:
        case Entry():
            return [item.execution_id, *(command.execution_id for command in item.posts)]
        case NewExecution():
            return list(item.needs)
        case Mark() | Put() | Forget():
            return []
        case Hold():
            return list(item.execution_ids)
        case Claim() | Command() | Quarantine():
            return [item.execution_id]


def _puts_of(item: Write) -> tuple[Put, ...]:
    match item:
        case Entry():
            return item.puts
        case Put():
            return (item,)
        case _:
            return ()


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
