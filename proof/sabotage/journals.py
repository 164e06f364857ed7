"""More of the engine broken on purpose: journals, snapshots, statuses, and letting go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core import commands
from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.engine.drive import claims
from holdfast.engine.drive.activity import ActivityTracker
from holdfast.engine.drive.driver import Driver
from holdfast.engine.drive.scheduler import Scheduler
from holdfast.engine.step import attempt as step_attempt
from holdfast.engine.step import invoke as step_invoke
from holdfast.engine.step.parking import Wait
from holdfast.journal import log
from holdfast.journal.codec import Row, Snapshot, make_row, make_snapshot, open_snapshot
from holdfast.journal.log import Log, head_change
from proof.sabotage.saboteur import Broken, broken, together
from proof.simulator import checks_journal


def break_the_chain() -> Broken:
    def make(previous: bytes, seq: int, event: ev.Event) -> Row:
        row = make_row(previous, seq, event)
        return row._replace(digest=bytes(16)) if isinstance(event, ev.StepCompleted) else row

    return patch.object(log, "make_row", make)


def list_another_status() -> Broken:
    def change(*arguments: Any) -> Any:
        told = head_change(*arguments)
        return msgspec.structs.replace(told, status="running") if told.status == "waiting" else told

    return patch.object(log, "head_change", change)


def leave_it_running() -> Broken:
    """A stop does not settle the attempts that it cuts off."""
    return patch.object(commands, "close_attempts", lambda *_: [])


def wait_while_it_runs() -> Broken:
    quiet: Callable[[ActivityTracker], None] = ActivityTracker._quiet

    def hasty(self: ActivityTracker) -> None:
        active, self._active = self._active, 0
        try:
            quiet(self)
        finally:
            self._active = active

    return patch.object(ActivityTracker, "_quiet", hasty)


# ---- snapshots -------------------------------------------------------------------------------------------------


def _with_less(state: Execution) -> Execution:
    """What has completed is forgotten."""
    left = {path: found for path, found in state.steps.items() if found.status != "completed"}
    return msgspec.structs.replace(state, steps=left)


def _opened_with_less(snapshot: Snapshot) -> Execution | None:
    state = open_snapshot(snapshot)
    return _with_less(state) if state is not None else None


def lose_in_snapshots() -> Broken:
    return patch.object(log, "make_snapshot", lambda state, chain: make_snapshot(_with_less(state), chain))


def lose_when_reopened() -> Broken:
    """The snapshots are right; the engine's reading of them is not, and the checks have their own."""
    return patch.object(log, "open_snapshot", _opened_with_less)


def _opened_without_counts(snapshot: Snapshot) -> Execution | None:
    """What is lost is missed by nobody who goes on from there: nothing stumbles over it."""
    state = open_snapshot(snapshot)
    return msgspec.structs.replace(state, ended=0) if state is not None else None


def lose_in_every_reading() -> Broken:
    return together(*(patch.object(room, "open_snapshot", _opened_without_counts) for room in (log, checks_journal)))


# ---- letting go ------------------------------------------------------------------------------------------------


def complain() -> Broken:
    """Whoever takes over from a dead driver stumbles."""

    def stumble(*_: Any) -> None:
        raise KeyError("nobody expected this")

    return patch.object(claims, "note_recovery", stumble)


def never_release() -> Broken:
    """What is not let go of would be found as a stray and taken up again; so nobody looks for strays, either."""
    append = Log.append

    def keep(self: Log, *events: ev.Event, release: bool = False, **others: Any) -> None:
        append(self, *events, release=release and self.state.is_ended, **others)

    return together(patch.object(Log, "append", keep), patch.object(Scheduler, "_look_for_strays", lambda *_: False))


def call_after_the_end() -> Broken:
    """A driver calls its last tool once more when everything is over."""
    invoke, let_go = step_invoke.invoke, Driver._let_go
    last: WeakKeyDictionary[Driver, tuple[Any, ...]] = WeakKeyDictionary()

    async def remember(driver: Driver, *others: Any) -> bytes:
        last[driver] = others
        return await invoke(driver, *others)

    async def once_more(self: Driver) -> None:
        await let_go(self)
        if self.state.is_ended and self in last:
            _, *others = last[self]
            await invoke(self, asyncio.current_task(), *others)  # type: ignore[arg-type]

    return together(patch.object(step_attempt, "invoke", remember), patch.object(Driver, "_let_go", once_more))


def never_stop_asking() -> Broken:
    """Whoever waits asks again and again whether it still must, and no time passes meanwhile."""

    def ask(self: Wait, driver: Driver) -> None:
        if self.is_ready():
            driver.wake_ready()
        elif not self.future.done():
            driver.loop.call_soon(ask, self, driver)

    return patch.object(Wait, "arm", ask)


JOURNAL_SABOTEURS = (
    broken("break the chain", break_the_chain, "the_chain_holds"),
    broken("list another status", list_another_status, "each_status_is_entered_by_one_kind_of_event"),
    broken("leave steps running at the end", leave_it_running, "an_end_leaves_nothing_running", 150),
    broken("wait while something runs", wait_while_it_runs, "waiting_means_that_nothing_runs", 40),
    broken("lose something in snapshots", lose_in_snapshots, "a_snapshot_is_what_its_events_amount_to"),
    broken("lose something when a snapshot is opened", lose_when_reopened, "a_completed_step_never_runs_again"),
    broken("lose count in every reading", lose_in_every_reading, "a_prefix_and_the_rest_fold_to_the_whole"),
    broken("stumble over the dead", complain, "nobody_complains", 40),
    broken("never release", never_release, "everything_ends_once_nothing_breaks"),
    broken("never stop asking", never_stop_asking, "every_history_comes_to_an_end"),
    broken("call a tool after the end", call_after_the_end, "nothing_begins_after_the_end"),
)
