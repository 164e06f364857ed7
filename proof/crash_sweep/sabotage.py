"""Ways to break the engine, in the process that is killed and nowhere else: a sweep that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core import events as ev
from holdfast.engine.drive import driver
from holdfast.engine.step import attempt, perform
from holdfast.journal import liveness, writer
from holdfast.journal.store import Written


def _nothing_is_synced_first() -> None:
    """Tools are called before what they build on, and their own intent, is on disk."""

    async def durable(self: driver.Driver) -> None:
        return None

    driver.Driver.durable = durable  # type: ignore[method-assign]


def _told_before_written() -> None:
    """Whoever wants something written hears that it is, and only then is it."""

    async def commit(self: writer.Writer, batch: writer.Batch) -> None:
        for callback, write in zip(batch.callbacks, batch.writes, strict=True):
            if callback is not None and type(write).__name__ == "Entry":
                callback(Written(ok=True))
        self._release(batch.waiters, 0)
        results = await self._store.commit(batch.writes)
        for callback, write, result in zip(batch.callbacks, batch.writes, results, strict=True):
            if callback is not None and type(write).__name__ != "Entry":
                callback(result)

    writer.Writer._commit = commit  # type: ignore[method-assign]


def _lost_attempts_run_again() -> None:
    """A step whose process died is simply run again, whatever it declares."""

    async def again(work: Any, lost: Any) -> None:
        await attempt.attempt(work, lost, await work.arguments_of(lost))

    perform._MOVES["running"] = again


def _ends_of_children_are_lost() -> None:
    def told(state: Any, event: ev.TaskCompleted | ev.TaskError) -> list[Any]:
        return []

    setattr(driver, "told_at_end", told)  # noqa: B010 -- it is not the driver's own, and so must be named in passing


def _the_dead_count_as_alive() -> None:
    liveness.LockFiles.is_dead = lambda self, driver: False  # type: ignore[method-assign]


SABOTAGES: dict[str, Callable[[], None]] = {
    "unsynced": _nothing_is_synced_first,
    "early": _told_before_written,
    "again": _lost_attempts_run_again,
    "orphaned": _ends_of_children_are_lost,
    "forgotten": _the_dead_count_as_alive,
}


def apply(name: str) -> None:
    if name:
        SABOTAGES[name]()
