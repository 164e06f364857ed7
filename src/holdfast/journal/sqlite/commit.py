"""What one SQLite transaction writes. Runs in the writer thread, between BEGIN and COMMIT.

The fence is the first statement of every entry: if the head is not at the expected epoch and number, nothing of the
entry is written. Others in the same transaction are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, cast

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.errors import StoreCorrupted
from holdfast.journal import store as port
from holdfast.journal.keyed import Put, Puts
from holdfast.journal.sql import queries
from holdfast.journal.sqlite.rows import row_version, seal_of_answer, seal_of_cached, seal_of_command, seal_of_row
from holdfast.journal.store import (
    ANSWERS_KEPT_US,
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
    Write,
    Written,
    clash_within,
)

EventRow = tuple[int, int, int, bytes, bytes]

WRITTEN, FENCED = Written(ok=True), Written(ok=False)
ROWS_AT_ONCE = 100
TIDY_ROWS = 1000  # of the inbox, looked at in one go
TIDY_EVERY_US = 1_000_000
NUMS_KEPT = 200_000  # ids whose row number is remembered; a few tens of bytes each


class Committer:
    def __init__(self, connection: Any) -> None:
        # Typed loosely: apsw's stubs leave the types of bindings and rows open.
        self._run: Callable[..., Any] = connection.execute
        self._changed: Callable[[], int] = connection.changes
        self._sql = queries("sqlite")
        self._advance = self._sql["advance"]
        self._nums: dict[str, int] = {}
        self._tidied_at = 0
        self._cache_look = CacheLook()
        self._puts = Puts(self._row_version)

    def forget(self) -> None:
        """After a rollback: numbers of executions that were not created after all."""
        self._nums.clear()

    def write(self, writes: Sequence[Write]) -> list[Written]:
        results: list[Written] = [FENCED] * len(writes)
        self._puts = Puts(self._row_version)
        event_rows: list[EventRow] = []
        plain: dict[int, int] = {}  # of entries that only append: row number → place in `writes`
        for place, item in enumerate(writes):
            if isinstance(item, Entry) and _only_appends(item):
                num = self._num(item.execution_id)
                if num in plain or len(plain) >= ROWS_AT_ONCE:
                    self._advance_all(plain, writes, results, event_rows)
                plain[num] = place
                continue
            self._advance_all(plain, writes, results, event_rows)
            results[place] = self._write(item, event_rows)
        self._advance_all(plain, writes, results, event_rows)
        self._insert_events(event_rows)
        self._write_rows()
        return results

    def _write(self, item: Write, event_rows: list[EventRow]) -> Written:
        match item:
            case Entry():
                return self._entry(item, event_rows)
            case NewExecution():
                return self._create(item, event_rows)
            case Claim():
                return self._claim(item)
            case Command():
                return self._post(item)
            case Mark():
                return self._mark(item)
            case Put():
                if conflict := self._puts.conflict((item,)):
                    return Written(ok=False, conflict=conflict)
                return Written(ok=True, versions=self._puts.put((item,)))
            case Hold():
                self._hold(item)
            case Quarantine():
                self._run(self._sql["quarantine"], (item.why, item.execution_id))
            case Forget():
                self._run(self._sql["forget_deleted"], (_list(item.execution_ids),))
                self._run(self._sql["drop_forgotten"])
        return WRITTEN

    def _advance_all(
        self, plain: dict[int, int], writes: Sequence[Write], results: list[Written], event_rows: list[EventRow]
    ) -> None:
        """The fences of many entries that only append, in one statement; those it returns are still ours."""
        if not plain:
            return
        values: list[Any] = []
        for num, place in plain.items():
            entry = cast(Entry, writes[place])
            last = entry.rows[-1]
            values += (num, last.seq, last.digest, entry.at, entry.ended, entry.total, entry.epoch, entry.after)
        for (num,) in self._run(_many(self._sql["advance_many"], len(plain), 8), values).fetchall():
            place = plain[num]
            results[place] = WRITTEN
            for row in cast(Entry, writes[place]).rows:
                event_rows.append((num, row.seq, row.version, row.body, row.digest))
        plain.clear()

    def _insert_events(self, event_rows: list[EventRow]) -> None:
        """Many rows a statement: each statement is a round through Python's lock that the event loop competes for."""
        full = len(event_rows) - len(event_rows) % ROWS_AT_ONCE
        statement = _many(self._sql["insert_events"], ROWS_AT_ONCE, 5)
        for first in range(0, full, ROWS_AT_ONCE):
            self._run(statement, tuple(chain.from_iterable(event_rows[first : first + ROWS_AT_ONCE])))
        rest = event_rows[full:]
        if rest:
            self._run(_many(self._sql["insert_events"], len(rest), 5), tuple(chain.from_iterable(rest)))

    def _entry(self, entry: Entry, event_rows: list[EventRow]) -> Written:
        num = self._num(entry.execution_id)
        if entry.puts and (conflict := self._puts.conflict(entry.puts)):
            # Nothing is written; that it is fenced comes first all the same.
            self._run(self._sql["check_fence"], (num, entry.epoch, entry.after))
            return Written(ok=False, conflict=conflict) if self._changed() else FENCED
        if not self._fence(num, entry):
            return FENCED
        for row in entry.rows:
            event_rows.append((num, row.seq, row.version, row.body, row.digest))
        for answer in entry.answers:  # before the head changes: a command without an answer keeps it awake
            self._answer(answer)
        if entry.change is not None:
            change = entry.change
            reasons = msgspec.json.encode(change.reasons).decode()
            self._run(
                self._sql["change_head"],
                (change.status, change.wake_at, change.ended_at, reasons, change.error, change.failed_path, num),
            )
        if entry.release:
            self._run(self._sql["release"], (num,))
        self._blobs(num, entry.blobs)
        self._uses(num, entry.uses)
        for new in entry.creates:  # before the posts: what is said to a child must find it
            self._create(new, event_rows)
        for command in entry.posts:
            self._insert(command)
            late = Answer(command_id=command.id, outcome="unchanged", text=TOO_LATE)
            self._run(self._sql["answer_too_late"], (command.id, TOO_LATE, seal_of_answer(late)))
            self._run(self._sql["wake"], (command.execution_id,))
        self._extras(num, entry)
        return Written(ok=True, versions=self._puts.put(entry.puts)) if entry.puts else WRITTEN

    def _extras(self, num: int, entry: Entry) -> None:
        if entry.cached:
            self._run(self._sql["expire_cache"], (entry.at,))
        for item in entry.cached:
            self._run(self._sql["put_cache"], (*item, seal_of_cached(*item)))
        if entry.cached and self._cache_look.is_due(len(entry.cached)):
            self._run(self._sql["evict_cache"], (port.CACHE_CAP.bytes, port.CACHE_CAP.items))
        if entry.change is not None and entry.change.ended_at:
            self._tidy_inbox(entry.at)
        if entry.snapshot is not None:
            self._run(self._sql["put_snapshot"], (num, *entry.snapshot))

    def _fence(self, num: int, entry: Entry) -> bool:
        if entry.rows:
            last = entry.rows[-1]
            seq, digest = last.seq, last.digest
            self._run(self._advance, (seq, digest, entry.at, entry.ended, entry.total, num, entry.epoch, entry.after))
        else:
            # Nothing to append, but the right to write is checked all the same.
            self._run(self._sql["check_fence"], (num, entry.epoch, entry.after))
        return self._changed() == 1

    def _create(self, new: NewExecution, event_rows: list[EventRow]) -> Written:
        head = new.head
        if any(self._run(self._sql["find_num"], (needed,)).fetchone() is None for needed in new.needs):
            return FENCED
        if twice := clash_within(new):
            return Written(ok=False, existing=twice)
        for one in new.family:  # looked for before anything is written: what was inserted cannot be taken back alone
            if existing := self._clash(one.head):
                return Written(ok=False, existing=existing)
        row = self._run(self._sql["insert_execution"], _columns(head)).fetchone()
        if row is None:
            return Written(ok=False, existing=self._clash(head))
        for one in new.family:
            if not self._create(one, event_rows).ok:  # nobody else can write now: the whole transaction is taken back
                raise StoreCorrupted(f"execution {one.head.id} of a family could not be created, and was not there")
        num = int(row[0])
        self._remember(head.id, num)
        if head.held:  # an import brings back an id that may have been deleted: its files are nobody's to remove
            self._run(self._sql["forget_deleted"], (_list([head.id]),))
        event_rows.extend((num, row.seq, row.version, row.body, row.digest) for row in new.rows)
        self._blobs(num, new.blobs)
        self._uses(num, new.uses)
        for command in new.posts:
            self._post(command)
        return Written(ok=True, epoch=head.epoch)

    def _clash(self, head: Head) -> str:
        """The execution that has its id or its key already, if there is one."""
        row = self._run(self._sql["find_clash"], (head.id, head.owner, head.key)).fetchone()
        return row[0] if row else ""

    def _claim(self, claim: Claim) -> Written:
        values = {
            "id": claim.execution_id,
            "driver": claim.driver,
            "replacing": claim.replacing,
            "to_drive": claim.to_drive,
        }
        row = self._run(self._sql["claim"], values).fetchone()
        if row is None:
            return Written(ok=False)
        self._remember(claim.execution_id, row[1])  # an id may come back under another number after its deletion
        return Written(ok=True, epoch=row[0])

    def _post(self, command: Command) -> Written:
        is_there = self._run(self._sql["is_there"], (command.execution_id,)).fetchone()
        if not is_there or not self._insert(command):
            return Written(ok=False)
        self._run(self._sql["wake"], (command.execution_id,))
        return Written(ok=True)

    def _insert(self, command: Command) -> bool:
        told = (command.id, command.execution_id, command.verb, command.at, command.by, bytes(command.arguments))
        self._run(self._sql["insert_command"], (*told, seal_of_command(command)))
        return self._changed() == 1

    def _mark(self, mark: Mark) -> Written:
        self._run(self._sql["expire_cache"], (mark.at,))
        item = (mark.key, b"", mark.expires_at)
        self._run(self._sql["put_mark"], (*item, seal_of_cached(*item), mark.at))
        return Written(ok=self._changed() == 1)

    def _hold(self, hold: Hold) -> None:
        values = {"why": hold.why, "ids": _list(hold.execution_ids)}
        if hold.unless_driven is None:
            self._run(self._sql["hold"], values)
        else:
            self._run(self._sql["hold_undriven"], {**values, "free": _list(["", *hold.unless_driven])})

    def _row_version(self, place: tuple[str, str]) -> int:
        found = self._run(self._sql["read_row"], place).fetchone()
        return row_version(place[0], found) if found else 0

    def _write_rows(self) -> None:
        for (space, key), (version, value) in self._puts.rows.items():
            if value is None:
                self._run(self._sql["delete_row"], (space, key))
            else:
                seal = seal_of_row(space, key, version, value)
                self._run(self._sql["put_row"], (space, key, version, value, seal))

    def _tidy_inbox(self, at: int) -> None:
        if at - self._tidied_at >= TIDY_EVERY_US:
            self._tidied_at = at
            self._run(self._sql["tidy_inbox"], {"at": at, "before": at - ANSWERS_KEPT_US, "rows": TIDY_ROWS})

    def _answer(self, answer: Answer) -> None:
        told = (answer.outcome, answer.text, answer.seq, seal_of_answer(answer), answer.command_id)
        self._run(self._sql["answer_command"], told)

    def _blobs(self, num: int, blobs: Sequence[tuple[str, bytes]]) -> None:
        for digest, body in blobs:
            self._run(self._sql["insert_blob"], (digest, body))
            self._run(self._sql["insert_blob_use"], (num, digest))

    def _uses(self, num: int, digests: Sequence[str]) -> None:
        for digest in digests:
            self._run(self._sql["insert_blob_use"], (num, digest))

    def _num(self, execution_id: str) -> int:
        num = self._nums.get(execution_id)
        if num is None:
            row = self._run(self._sql["find_num"], (execution_id,)).fetchone()
            if row is None:
                return -1  # matches nothing, so the fence refuses it
            num = int(row[0])
            self._remember(execution_id, num)
        return num

    def _remember(self, execution_id: str, num: int) -> None:
        if len(self._nums) >= NUMS_KEPT:
            self._nums.clear()
        self._nums[execution_id] = num


@cache
def _many(statement: str, rows: int, columns: int) -> str:
    """The statement with as many rows of placeholders as it is to write."""
    row = f"({', '.join('?' * columns)})"
    return statement.replace(":rows", ", ".join([row] * rows))


def _only_appends(entry: Entry) -> bool:
    return (
        bool(entry.rows)
        and entry.change is None
        and entry.snapshot is None
        and not (
            entry.release
            or entry.blobs
            or entry.uses
            or entry.answers
            or entry.posts
            or entry.creates
            or entry.cached
            or entry.puts
        )
    )


def _list(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _columns(head: Head) -> tuple[object, ...]:
    return (
        head.id,
        head.name,
        head.kind,
        head.title,
        head.owner,
        head.key,
        msgspec.json.encode(head.labels).decode(),
        head.parent_id,
        head.created_at,
        head.concurrency_key,
        head.concurrency_limit,
        head.status,
        msgspec.json.encode(head.reasons).decode(),
        head.error,
        head.failed_path,
        head.ended_at,
        head.wake_at,
        head.updated_at,
        head.ended,
        head.total,
        head.seq,
        head.digest,
        head.epoch,
        head.driver,
        head.held,
        head.forked_from,
    )
