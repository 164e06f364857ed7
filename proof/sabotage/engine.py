"""The engine broken on purpose, one rule at a time, to show that the checks can fail.

A saboteur patches one thing for as long as it is in force. None of this is ever shipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.core import events as ev
from holdfast.core import failure as failure_rules
from holdfast.core.commands import Command
from holdfast.core.errors import HoldfastError
from holdfast.core.execution import Execution
from holdfast.engine import feed
from holdfast.engine.commands import child_messages
from holdfast.engine.drive import claims
from holdfast.engine.drive.driver import Driver
from holdfast.engine.step import after_failure, attempt
from holdfast.engine.step import perform as step_perform
from holdfast.journal import log
from holdfast.journal.codec import Row, make_row
from holdfast.journal.log import Log, read_events
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Claim, Entry, Head, NewExecution, Written
from holdfast.journal.writer import Batch, Writer
from proof.sabotage.commands import COMMAND_SABOTEURS
from proof.sabotage.deaths import DEATH_SABOTEURS
from proof.sabotage.forks import FORK_SABOTEURS
from proof.sabotage.journals import JOURNAL_SABOTEURS
from proof.sabotage.keeping import KEEPING_SABOTEURS
from proof.sabotage.money import MONEY_SABOTEURS
from proof.sabotage.rules import RULE_SABOTEURS
from proof.sabotage.saboteur import Broken, Saboteur
from proof.simulator.disk import SimulatedLiveness


@contextmanager
def nothing() -> Iterator[None]:
    """For a saboteur whose store is enough."""
    yield


# ---- stores that do not keep the rules -------------------------------------------------------------------------


class Unfenced(MemoryStore):
    """Writes whatever it is told, whoever says so."""

    def _entry(self, entry: Entry) -> Written:
        head = self._heads[entry.execution_id]
        pretended = msgspec.structs.replace(entry, epoch=head.epoch, after=head.seq)
        return super()._entry(pretended)


class Crowded(MemoryStore):
    """Lets any number of executions run under one concurrency key."""

    def _has_place(self, head: Head) -> bool:
        return True


class Forgetful(MemoryStore):
    """Does not know which keys were used."""

    def _create(self, new: NewExecution) -> Written:
        self._keys.clear()
        return super()._create(new)


class Deaf(MemoryStore):
    """Does not keep what a parent says to its children."""

    def _tell(self, command: Command) -> None:
        if command.verb == "child_ended":
            super()._tell(command)


class Generous(MemoryStore):
    """Lets anybody become the driver, though somebody is."""

    def _claim(self, claim: Claim) -> Written:
        held = self._heads[claim.execution_id].driver
        written = super()._claim(msgspec.structs.replace(claim, replacing=held, to_drive=False))
        return written._replace(epoch=max(1, written.epoch - 1))


# ---- an engine that does not -----------------------------------------------------------------------------------


def skip_the_sync() -> Broken:
    async def durable(self: Driver) -> None: ...

    return patch.object(Driver, "durable", durable)


def forget_the_dead() -> Broken:
    return patch.object(SimulatedLiveness, "is_dead", lambda self, driver: False)


def renumber() -> Broken:
    def make(previous: bytes, seq: int, event: ev.Event) -> Row:
        row = make_row(previous, seq, event)
        return row._replace(seq=seq + 1) if isinstance(event, ev.StepCompleted) else row

    return patch.object(log, "make_row", make)


def answer_twice() -> Broken:
    deliver = Driver.deliver

    def again(self: Driver, commands: Sequence[Command]) -> None:
        for command in commands:
            self._handled.discard(command.id)
        deliver(self, commands)

    return patch.object(Driver, "deliver", again)


def lose_the_childs_end() -> Broken:
    return patch.object(child_messages, "end_of_child", lambda state, event: [])


def tell_too_early() -> Broken:
    """Whoever waits for the disk is let go before it has answered."""

    async def commit(self: Writer, batch: Batch) -> None:
        results = [Written(ok=True, epoch=1) for _ in batch.writes]
        entries = [isinstance(write, Entry) for write in batch.writes]
        for callback, result, is_entry in zip(batch.callbacks, results, entries, strict=True):
            if callback is not None and is_entry:
                callback(result)
        self._release(batch.waiters, 0)
        try:
            written = await self._store.commit(batch.writes)
        except HoldfastError as error:
            written = [error] * len(batch.writes)
        for callback, result, is_entry in zip(batch.callbacks, written, entries, strict=True):
            if callback is not None and not is_entry:
                callback(result)

    return patch.object(Writer, "_commit", commit)


def run_again_after_a_crash() -> Broken:
    async def again(work: Any, found: Any) -> None:
        await attempt.attempt(work, found, await work.arguments_of(found))

    return patch.dict(step_perform._MOVES, {"running": again})


def forget_outcomes() -> Broken:
    """A replay does not look into the history of steps that completed."""
    perform = step_perform.perform

    async def forgetful(driver: Driver, call: Any) -> Any:
        found = driver.state.steps.get(call.path)
        if found is not None and found.status == "completed":
            del driver.state.steps[call.path]
        return await perform(driver, call)

    return patch("holdfast.engine.drive.steps_port.perform", forgetful)


def believe_in_luck() -> Broken:
    """What may or may not have happened is taken as not happened."""
    decide = failure_rules.decide

    def lucky(failure: Any, *others: Any) -> Any:
        return decide(msgspec.structs.replace(failure, happened="nothing"), *others)

    return patch.object(after_failure, "decide", lucky)


def skip_an_event() -> Broken:
    async def read(*arguments: Any) -> Any:
        return [pair for pair in await read_events(*arguments) if pair[0] != 4]

    return patch.object(feed, "read_events", read)


def trust_the_clock() -> Broken:
    return patch.object(Driver, "now_us", lambda self: self._clock_now_us())


def ignore_pauses() -> Broken:
    return patch.object(Driver, "must_wait", lambda self: self.cause is not None or self.log.error is not None)


def resume_what_was_interrupted() -> Broken:
    mark_started = claims.mark_started

    def mark(services: Any, journal: Log, head: Head) -> None:
        if journal.state.status == "interrupted":
            journal.append(ev.TaskStarted(at=journal.state.last_at, because="woken", driver=services.driver))
        mark_started(services, journal, head)

    wake_at = log.wake_at

    def wake(state: Execution) -> int | None:
        return 0 if state.status == "interrupted" else wake_at(state)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(claims, "mark_started", mark), patch.object(log, "wake_at", wake):
            yield

    return both()


def make_children_twice() -> Broken:
    """A replay starts the child of a step anew."""
    from holdfast.engine.step import durable_waits

    start_child = durable_waits.start_child

    async def start(driver: Driver, path: str, *others: Any) -> str:
        driver.state.children.pop(path, None)
        return await start_child(driver, path, *others)

    return patch.object(durable_waits, "start_child", start)


def _by(*checks: str) -> frozenset[str]:
    return frozenset(checks)


SABOTEURS = (
    Saboteur("drop fencing", nothing, _by("only_the_driver_appends", "numbers_without_gaps"), 100, Unfenced),
    Saboteur("skip the sync before a once call", skip_the_sync, _by("intents_are_durable_before_effects"), 5),
    Saboteur("forget a dead driver", forget_the_dead, _by("everything_ends_once_nothing_breaks"), 20),
    Saboteur("renumber events", renumber, _by("numbers_without_gaps"), 5),
    Saboteur("answer a command twice", answer_twice, _by("every_command_gets_one_answer"), 40),
    Saboteur(
        "lose a child's end",
        lose_the_childs_end,
        _by("parent_and_child_agree", "everything_ends_once_nothing_breaks"),
        20,
    ),
    Saboteur(
        "tell before it is durable",
        tell_too_early,
        _by("intents_are_durable_before_effects", "results_are_durable_before_they_are_told"),
        20,
    ),
    Saboteur(
        "run a once step again after a crash",
        run_again_after_a_crash,
        _by("a_once_step_runs_again_only_when_allowed"),
        60,
    ),
    Saboteur(
        "run completed steps again",
        forget_outcomes,
        _by("a_completed_step_never_runs_again", "statuses_move_along_the_table"),
        20,
    ),
    Saboteur(
        "take the unknown for not happened",
        believe_in_luck,
        _by("what_is_unknown_is_in_doubt", "a_once_step_runs_again_only_when_allowed"),
        40,
    ),
    Saboteur("skip an event for watchers", skip_an_event, _by("watchers_see_every_event_in_order"), 10),
    Saboteur("let time go back", trust_the_clock, _by("time_never_goes_back"), 60),
    Saboteur("ignore a pause", ignore_pauses, _by("nothing_begins_while_held"), 200),
    Saboteur("resume what was interrupted", resume_what_was_interrupted, _by("only_a_person_ends_an_interrupt"), 40),
    Saboteur("start a child twice", make_children_twice, _by("parent_and_child_agree"), 40),
    Saboteur("lose a command", nothing, _by("every_command_gets_one_answer"), 40, Deaf),
    Saboteur("ignore concurrency keys", nothing, _by("concurrency_keys_are_kept"), 150, Crowded),
    Saboteur("ignore keys", nothing, _by("a_key_is_one_execution"), 60, Forgetful),
    Saboteur("let two drive", nothing, _by("only_the_driver_appends"), 20, Generous),
    *RULE_SABOTEURS,
    *MONEY_SABOTEURS,
    *JOURNAL_SABOTEURS,
    *KEEPING_SABOTEURS,
    *DEATH_SABOTEURS,
    *COMMAND_SABOTEURS,
    *FORK_SABOTEURS,
)
