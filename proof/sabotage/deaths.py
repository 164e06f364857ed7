"""Deaths, sleeps and families handled badly on purpose: what is said of them, and what is done about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.core import commands
from holdfast.core import events as ev
from holdfast.core.plan.schedule import Schedule
from holdfast.engine import engine
from holdfast.engine.commands import apply, child_messages
from holdfast.engine.drive import claims, driver
from holdfast.engine.drive.driver import Driver
from holdfast.engine.drive.scheduler import Scheduler
from holdfast.engine.services import Services
from holdfast.engine.suspend_detector import SuspendDetector
from holdfast.engine.transfer import restore as transfer_restore
from holdfast.journal.log import Log
from holdfast.journal.store import Head
from proof.sabotage.saboteur import Broken, Saboteur, broken, together
from proof.simulator.disk import SimulatedLiveness

# ---- what is said of a death -----------------------------------------------------------------------------------


def call_the_lost_interrupted() -> Broken:
    """As if somebody had cut off what a dead process left running."""

    def as_it_is(events: Sequence[ev.Event], left: object) -> list[ev.Event]:
        return list(events)

    append = Driver.append

    def forgetful(self: Driver, *events: ev.Event, **extras: Any) -> None:
        told = [msgspec.structs.replace(e, lost=False) if isinstance(e, ev.StepInterrupted) else e for e in events]
        append(self, *told, **extras)

    rooms = (patch.object(room, "told_as_lost", as_it_is) for room in (driver, apply))
    return together(*rooms, patch.object(Driver, "append", forgetful))


def say_nothing_of_a_takeover() -> Broken:
    return patch.object(claims, "note_recovery", lambda *_: None)


def say_it_took_over_from_itself() -> Broken:
    def note(services: Services, log: Log, head: Head) -> None:
        if head.status == log.state.status == "running" and head.driver:
            at = claims.now(services, log)
            log.append(ev.TaskRecovered(at=at, driver=services.driver, lost=services.driver))

    return patch.object(claims, "note_recovery", note)


def say_it_took_over_when_woken() -> Broken:
    """Every time that somebody begins to drive, whoever let go of it."""
    mark_started = claims.mark_started

    def mark(services: Services, log: Log, head: Head) -> None:
        mark_started(services, log, head)
        if log.state.status == "running" and not head.driver:
            log.append(ev.TaskRecovered(at=claims.now(services, log), driver=services.driver, lost="nobody"))

    return patch.object(claims, "mark_started", mark)


def take_the_living_for_dead() -> Broken:
    return patch.object(SimulatedLiveness, "is_dead", lambda self, driver: True)


# ---- what is done about it -------------------------------------------------------------------------------------


async def _do_nothing(*_: Any) -> None: ...


def sleep_on() -> Broken:
    """Who wakes up does not look whether somebody has taken its place."""
    return patch.object(Scheduler, "_mind_a_sleep", _do_nothing)


def trust_an_old_word() -> Broken:
    """Who hears that its intent is on disk calls its tool, however long ago that was written."""
    return patch.object(SuspendDetector, "stood_still", lambda *_: False)


def leave_strays_alone() -> Broken:
    """Steps that a program began and did not wait for go on behind its end."""
    return patch.object(Driver, "_settle_strays", _do_nothing)


def close_without_a_word() -> Broken:
    """An engine that closes lets go of what it drives, and does not say that it has cut anything off."""
    return patch.object(driver, "close_attempts", lambda *_: [])


def forget_what_is_held_here() -> Broken:
    """A claim that was reported as failed, and written all the same, is looked for by nobody."""
    return patch.object(Scheduler, "_look_for_strays", lambda *_: False)


# ---- families --------------------------------------------------------------------------------------------------


def keep_from_children(verb: str) -> Broken:
    kept = frozenset(commands.PASSED_DOWN) - {verb}
    return patch.object(child_messages, "PASSED_DOWN", kept)


def outlive_a_failed_parent() -> Broken:
    return patch.object(driver, "told_at_end", child_messages.end_of_child)


# ---- files -----------------------------------------------------------------------------------------------------


def import_as_if_it_were_new() -> Broken:
    return patch.object(transfer_restore, "IMPORTED", "")


def begin_a_copy_at_once() -> Broken:
    copy_of = transfer_restore.copy_of

    def eager(*arguments: Any, **options: Any) -> transfer_restore.Copy:
        copy = copy_of(*arguments, **options)
        return copy._replace(created=msgspec.structs.replace(copy.created, hold=False))

    return together(
        *(patch.object(room, "copy_of", eager) for room in (transfer_restore, engine) if hasattr(room, "copy_of"))
    )


def lose_ends_on_their_way() -> Broken:
    return patch.object(transfer_restore, "_untold_ends", lambda *_: ())


def lose_stops_on_their_way() -> Broken:
    return patch.object(transfer_restore, "_stop_on_its_way", lambda *_: ())


def need_nobody() -> Broken:
    """A retry is made of what was there when somebody looked."""

    async def nobody(*_: Any) -> tuple[str, ...]:
        return ()

    return patch.object(engine, "looked_up_later", nobody)


# ---- plans -----------------------------------------------------------------------------------------------------


def begin_after_a_critical_failure() -> Broken:
    return patch.object(Schedule, "abandon", lambda *_: [])


def _by(*checks: str) -> frozenset[str]:
    return frozenset(checks)


_TAKEOVER, _PASSED = "a_takeover_is_told_first", "what_is_said_to_a_parent_reaches_its_children"
DEATH_SABOTEURS = (
    broken("call what was lost interrupted", call_the_lost_interrupted, "what_was_lost_with_its_process_is_called_so"),
    broken("say nothing of a takeover", say_nothing_of_a_takeover, _TAKEOVER),
    broken("name the wrong one in a takeover", say_it_took_over_from_itself, _TAKEOVER),
    broken("tell of a takeover that was none", say_it_took_over_when_woken, _TAKEOVER),
    broken("take the living for dead", take_the_living_for_dead, _TAKEOVER),
    broken("sleep on", sleep_on, "who_slept_and_was_replaced_lets_go", 60),
    broken("trust an old word", trust_an_old_word, "who_slept_and_was_replaced_calls_nothing", 60),
    broken("leave strays alone", leave_strays_alone, "an_end_leaves_nothing_running"),
    broken("close without a word", close_without_a_word, "who_lets_go_leaves_nothing_running"),
    broken("forget what is held here", forget_what_is_held_here, "everything_ends_once_nothing_breaks", 60),
    broken("keep a stop from the children", lambda: keep_from_children("stop"), _PASSED, 60),
    broken("keep a pause from the children", lambda: keep_from_children("pause"), _PASSED, 60),
    broken("keep an interrupt from the children", lambda: keep_from_children("interrupt"), _PASSED, 60),
    broken("keep a resume from the children", lambda: keep_from_children("resume"), _PASSED, 60),
    broken("let children outlive a parent that failed", outlive_a_failed_parent, _PASSED, 60),
    broken("do not hold what is imported", import_as_if_it_were_new, "nobody_drives_what_is_held"),
    broken("begin a copy at once", begin_a_copy_at_once, "what_is_handed_in_on_hold_begins_when_a_person_says_so", 60),
    Saboteur(
        "lose a child's end that is on its way",
        lose_ends_on_their_way,
        _by("parent_and_child_agree", "everything_ends_once_nothing_breaks"),
        20,
    ),
    broken(
        "lose a stop that is on its way", lose_stops_on_their_way, "who_takes_up_a_child_knows_of_its_parents_end", 100
    ),
    broken("retry what is not there", need_nobody, "a_retry_is_made_of_what_is_there", 120),
    broken("begin after a critical failure", begin_after_a_critical_failure, "a_step_begins_after_what_it_needs"),
)
