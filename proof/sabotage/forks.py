"""Retries and forks made badly on purpose: of what an execution had done, or was promised, something stays behind."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.core import events as ev
from holdfast.engine import engine
from holdfast.engine.step import kept
from holdfast.engine.transfer import copies, forks
from holdfast.engine.transfer import restore as transfer_restore
from proof.sabotage.saboteur import Broken, broken, together


def keep_endings() -> Broken:
    return together(*(patch.object(room, "endings_of", lambda _: frozenset()) for room in (copies, forks)))


def keep_whatever_the_input() -> Broken:
    return patch.object(kept.Asked, "differs", lambda *_: False)


def forget_keys() -> Broken:
    carried = copies._carried

    def without(*arguments: Any, **more: Any) -> Any:
        known = carried(*arguments, **more)
        return known and msgspec.structs.replace(known, call_key="")

    return patch.object(copies, "_carried", without)


def leave_behind(kind: type[ev.Event]) -> Broken:
    kept_events = copies.kept_events

    def fewer(*arguments: Any) -> list[ev.Event]:
        return [event for event in kept_events(*arguments) if not isinstance(event, kind)]

    return together(*(patch.object(room, "kept_events", fewer) for room in (forks, transfer_restore)))


def name_the_one_before() -> Broken:
    """A retry of a retry takes the retry for where it all began."""

    def forgetful(_: ev.TaskCreated, execution_id: str, at: str = "") -> ev.ForkedFrom:
        return ev.ForkedFrom(id=execution_id, at=at, origin=execution_id)

    return together(*(patch.object(room, "forked_from", forgetful) for room in (forks, transfer_restore, engine)))


FORK_SABOTEURS = (
    broken("name the execution before as the origin", name_the_one_before, "every_fork_names_its_origin", 60),
    broken(
        "leave completed steps behind", lambda: leave_behind(ev.StepCompleted), "what_completed_is_not_forgotten", 100
    ),
    broken("keep endings", keep_endings, "every_end_runs_its_steps", 600),
    broken("keep whatever the input", keep_whatever_the_input, "what_is_kept_has_the_input_it_is_asked_for_with", 600),
    broken("forget keys", forget_keys, "a_key_stays_until_its_step_completes", 100),
    broken(
        "leave added steps behind", lambda: leave_behind(ev.PlanExtended), "what_was_added_to_a_plan_is_not_lost", 60
    ),
    broken("leave events behind", lambda: leave_behind(ev.EventReceived), "what_nobody_has_taken_comes_along", 60),
)
