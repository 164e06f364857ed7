"""Commands and checkpoints handled badly on purpose: what makes no sense, comes too late, or comes at the very end."""

from __future__ import annotations

from typing import Any
from unittest.mock import PropertyMock, patch

import msgspec

from holdfast.core import commands
from holdfast.core import events as ev
from holdfast.engine.commands import apply, inbox
from holdfast.engine.drive import activity, claims
from holdfast.engine.drive.driver import Driver
from holdfast.engine.transfer import auto_checkpoint
from holdfast.engine.transfer import export as transfer_export
from holdfast.journal import log
from holdfast.journal.codec import Snapshot, make_snapshot
from holdfast.programs.plan_level import RunningLevel
from proof.sabotage.saboteur import Broken, broken, together


def read_the_unreadable() -> Broken:
    """What cannot be read is taken for a command without arguments."""
    rule = commands.rule

    def careless(state: Any, command: commands.Command, at: int) -> commands.Ruling:
        ruling = rule(state, command, at)
        if "cannot be read" in ruling.text:
            return rule(state, msgspec.structs.replace(command, arguments=msgspec.Raw(b"{}")), at)
        return ruling

    return patch.object(apply, "rule", careless)


def cut_before_asking() -> Broken:
    """An interrupt or a stop cancels what runs, whatever is then made of it."""
    return patch.object(Driver, "_will_cut", lambda self, command: True, create=True)


def slow_to_rest() -> Broken:
    """Nothing is wrong with this: what is held stays in memory for longer than anybody takes to add to it."""
    return patch.object(activity, "QUIET_S", 6.0)


def forget_what_comes_last() -> Broken:
    """Steps that are added when the last one has ended, and its driver is still there."""
    return together(slow_to_rest(), patch.object(RunningLevel, "is_done", PropertyMock(return_value=True)))


def forget_what_comes_behind_the_end() -> Broken:
    """Steps that are added when the program is over, and its end is not written yet."""

    async def never(self: Driver) -> bool:
        await self._settle_strays()
        await self.admit()
        return False

    return patch.object(Driver, "_is_given_more", never, create=True)


def wake_whoever_is_asked() -> Broken:
    return together(*(patch.object(room, "is_moved", lambda *_: True) for room in (claims, inbox)))


def take_a_late_yes() -> Broken:
    return patch.object(commands, "_is_expired", lambda *_: False)


def speak_of_another_file() -> Broken:
    async def save(*arguments: Any) -> ev.CheckpointSaved:
        saved = await transfer_export.save(*arguments)
        return msgspec.structs.replace(saved, through=saved.through + 1)

    return patch.object(auto_checkpoint, "save", save)


def keep_steps_in_another_order() -> Broken:
    def backwards(state: Any, chain: bytes) -> Snapshot:
        return make_snapshot(msgspec.structs.replace(state, steps=dict(reversed(state.steps.items()))), chain)

    return patch.object(log, "make_snapshot", backwards)


_ADDED = "what_was_added_to_a_plan_is_not_lost"
COMMAND_SABOTEURS = (
    broken("read what cannot be read", read_the_unreadable, "what_makes_no_sense_is_refused"),
    broken("cut before asking", cut_before_asking, "what_is_refused_changes_nothing", 60),
    broken("forget what is added last", forget_what_comes_last, _ADDED, 60),
    broken("forget what is added behind the end", forget_what_comes_behind_the_end, _ADDED, 60),
    broken("wake whoever is asked", wake_whoever_is_asked, "who_is_only_asked_is_not_woken", 60),
    broken("take a yes that comes too late", take_a_late_yes, "an_answer_comes_before_its_limit", 60),
    broken("speak of another file", speak_of_another_file, "a_checkpoint_holds_the_journal_up_to_its_event"),
    broken("keep steps in another order", keep_steps_in_another_order, "a_snapshot_is_what_its_events_amount_to"),
)
