"""Whole executions kept badly on purpose: deleted too early or not at all, driven though they are held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.engine.drive import claims
from holdfast.journal import log
from holdfast.journal.log import Log
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Claim, Head, Written
from proof.sabotage.saboteur import Broken, Saboteur, together


@contextmanager
def nothing() -> Iterator[None]:
    """For a saboteur whose store is enough."""
    yield


class Ruthless(MemoryStore):
    """Deletes whatever it is told to, whether it has ended or not."""

    def _is_needed(self, head: Head) -> bool:
        return False


class Hoarding(MemoryStore):
    """Says that it has deleted something, and has not."""

    def _remove(self, head: Head) -> None: ...


class Greedy(MemoryStore):
    """Throws a large value away with the first of those who refer to it."""

    def _remove(self, head: Head) -> None:
        uses = set(self._uses[head.id])
        super()._remove(head)
        for digest in uses:
            self._blobs.pop(digest, None)


class Heedless(MemoryStore):
    """Lets anybody drive what is held."""

    def _claim(self, claim: Claim) -> Written:
        head = self._heads.get(claim.execution_id)
        if head is None:
            return super()._claim(claim)
        held, head.held = head.held, ""
        try:
            return super()._claim(claim)
        finally:
            head.held = held

    async def claimable(self, now: int, drivers: Sequence[str], limit: int) -> list[Head]:
        before = {head.id: head.held for head in self._heads.values()}
        for head in self._heads.values():
            head.held = ""
        found = await super().claimable(now, drivers, limit)
        for head in self._heads.values():
            head.held = before[head.id]
        return [msgspec.structs.replace(head, held=before[head.id]) for head in found]


def begin_what_is_on_hold() -> Broken:
    mark_started, wake_at = claims.mark_started, log.wake_at

    def mark(services: Any, journal: Log, head: Head) -> None:
        if journal.state.status == "queued" and journal.state.facts().hold:
            at = claims.now(services, journal)
            journal.append(ev.TaskStarted(at=at, because="created", driver=services.driver))
        mark_started(services, journal, head)

    def wake(state: Execution) -> int | None:
        return 0 if state.status == "queued" else wake_at(state)

    return together(patch.object(claims, "mark_started", mark), patch.object(log, "wake_at", wake))


def _by(check: str) -> frozenset[str]:
    return frozenset({check})


KEEPING_SABOTEURS = (
    Saboteur("delete what lives", nothing, _by("deleting_takes_nothing_that_has_not_ended"), 40, Ruthless),
    Saboteur("delete nothing", nothing, _by("what_was_deleted_does_not_come_back"), 40, Hoarding),
    Saboteur("throw away what others need", nothing, _by("what_others_refer_to_stays"), 150, Greedy),
    Saboteur("drive what is held", nothing, _by("nobody_drives_what_is_held"), 40, Heedless),
    Saboteur(
        "begin what is on hold",
        begin_what_is_on_hold,
        _by("what_is_handed_in_on_hold_begins_when_a_person_says_so"),
        40,
    ),
)
