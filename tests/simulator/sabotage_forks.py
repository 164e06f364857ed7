"""Retries and forks made badly on purpose: of what an execution had done, or was promised, something stays behind."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from holdfast.core import events as ev
from holdfast.engine import carrying, engine, forks
from simulator.saboteur import Broken, broken, together


def cut_at_the_step() -> Broken:
    """What had begun before a step and ended after it began is taken for never ended."""

    def literally(numbered: list[tuple[int, ev.AnyEvent]], at_step: str) -> list[tuple[int, ev.AnyEvent]]:
        cut = next(seq for seq, event in numbered if getattr(event, "path", "") == at_step)
        return [(seq, event) for seq, event in numbered if seq < cut]

    return patch.object(forks, "_before", literally)


def leave_behind(kind: type[ev.Event]) -> Broken:
    kept_events = forks.kept_events

    def fewer(*arguments: Any) -> list[ev.Event]:
        return [event for event in kept_events(*arguments) if not isinstance(event, kind)]

    return together(*(patch.object(room, "kept_events", fewer) for room in (forks, carrying)))


def name_the_one_before() -> Broken:
    """A retry of a retry takes the retry for where it all began."""

    def forgetful(_: ev.TaskCreated, execution_id: str, at: str = "") -> ev.ForkedFrom:
        return ev.ForkedFrom(id=execution_id, at=at, origin=execution_id)

    return together(*(patch.object(room, "forked_from", forgetful) for room in (forks, carrying, engine)))


FORK_SABOTEURS = (
    broken("name the execution before as the origin", name_the_one_before, "every_fork_names_its_origin", 60),
    broken("forget what ended behind a step", cut_at_the_step, "what_completed_is_not_forgotten", 200),
    broken(
        "leave added steps behind", lambda: leave_behind(ev.PlanExtended), "what_was_added_to_a_plan_is_not_lost", 60
    ),
    broken("leave events behind", lambda: leave_behind(ev.EventReceived), "what_nobody_has_taken_comes_along", 60),
)
