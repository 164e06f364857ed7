"""What was running when an execution changed hands. Nobody cut it off: its process was gone, who knows since when.

Whoever settles it must not say that it was interrupted, which would also hide how often it took its process with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.resources import Usage

Attempts = frozenset[tuple[str, int]]  # by path and number
Used = Mapping[tuple[str, int], Usage | None]  # the same, of those that were cut off here


def running_attempts(state: Execution) -> Attempts:
    """Of an execution that was only just opened, these are what others have left."""
    return frozenset((step.path, step.attempt) for step in state.running_steps())


def told_as_lost(events: Iterable[ev.Event], left: Attempts) -> list[ev.Event]:
    """The same events, with the truth about those attempts."""
    told: list[ev.Event] = []
    for event in events:
        if isinstance(event, ev.StepInterrupted) and (event.path, event.attempt) in left:
            told.append(ev.StepInterrupted(at=event.at, path=event.path, attempt=event.attempt, lost=True))
        else:
            told.append(event)
    return told


def told_with_usage(events: Iterable[ev.Event], used: Used) -> list[ev.Event]:
    """The same events; those that cut an attempt off say what it had used of the machine."""
    return [
        msgspec.structs.replace(event, used=used[event.path, event.attempt])
        if isinstance(event, ev.StepInterrupted | ev.StepInDoubt) and (event.path, event.attempt) in used
        else event
        for event in events
    ]
