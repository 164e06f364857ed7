"""Small executions for tests of a store: well-formed heads, chained rows and commands, without an engine.

A store never reads an event, so what the events say does not matter; their numbers and digests do.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.commands import Answer, Command, Verb
from holdfast.core.events import EventReceived, Program, TaskCreated
from holdfast.core.policy import Concurrency
from holdfast.journal.codec import Row, make_row
from holdfast.journal.log import new_execution
from holdfast.journal.store import Entry, HeadChange, NewExecution


def sample_id(number: int) -> str:
    """Ids that differ at both ends, newest last, as real ones do."""
    return f"0198{number:04x}-0000-7000-8000-00000000{number:04x}"


class Sample:
    """One execution and the pen of its driver: `entry` continues the journal where it stands."""

    def __init__(
        self,
        number: int = 1,
        *,
        driver: str = "",
        at: int = 1_000,
        limit: tuple[str, int] | None = None,
        **created: Any,
    ) -> None:
        concurrency = Concurrency(key=limit[0], limit=limit[1]) if limit else None
        program = Program(kind="plan", name=created.pop("name", "sample"))
        first = TaskCreated(at=at, program=program, concurrency=concurrency, **created)
        self.id = sample_id(number)
        self.new: NewExecution
        self.new, _ = new_execution(self.id, [first], driver=driver)
        self.epoch = self.new.head.epoch
        self.rows: list[Row] = list(self.new.rows)

    @property
    def seq(self) -> int:
        return len(self.rows)

    def entry(self, events: int = 1, **extras: Any) -> Entry:
        """The next `events` events, numbered and chained, with whatever else the entry should carry."""
        after, at = self.seq, self.seq + 2_000
        for _ in range(events):
            event = EventReceived(at=at, name="sample", data=msgspec.Raw(b"%d" % self.seq))
            self.rows.append(make_row(self.rows[-1].digest, self.seq + 1, event))
        values: dict[str, Any] = {"epoch": self.epoch, "after": after, "at": at, **extras}
        return Entry(execution_id=self.id, rows=self.rows[after:], **values)

    def wait(self, wake_at: int | None, **extras: Any) -> Entry:
        """An entry after which the execution waits until `wake_at`, and nobody drives it."""
        return self.entry(change=HeadChange(status="waiting", wake_at=wake_at), release=True, **extras)

    def end(self, status: str = "completed", **extras: Any) -> Entry:
        return self.entry(change=HeadChange(status=status, wake_at=None, ended_at=9_000), release=True, **extras)

    def command(self, name: str, verb: Verb = "pause", **values: Any) -> Command:
        return Command(id=name, execution_id=self.id, verb=verb, at=3_000, **values)


def sample_answer(command: Command, text: str = "done") -> Answer:
    return Answer(command_id=command.id, outcome="applied", text=text, seq=2)
