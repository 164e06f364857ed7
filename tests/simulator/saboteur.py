"""What a saboteur is, and how many seeds it takes until somebody notices one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from holdfast.journal.memory import MemoryStore
from holdfast.testing.simulator import draw, judge, play


class Saboteur(NamedTuple):
    """What is broken, how, which of these checks must notice it, and within how many seeds."""

    what: str
    breaks: Callable[[], AbstractContextManager[Any]]
    noticed_by: frozenset[str]
    within: int
    store: type[MemoryStore] = MemoryStore


def caught(saboteur: Saboteur, first: int = 0) -> tuple[int, str] | None:
    """How many seeds it took, and which check noticed; None if nobody did."""
    for number, seed in enumerate(range(first, first + saboteur.within), start=1):
        with saboteur.breaks():
            violations = judge(play(draw(seed), saboteur.store))
        for violation in violations:
            if violation.check in saboteur.noticed_by:
                return number, str(violation)
    return None
