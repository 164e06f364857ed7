"""What a saboteur is, and how many seeds it takes until somebody notices one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

from holdfast.journal.memory import MemoryStore
from holdfast.testing.simulator import draw, judge, play

Broken = AbstractContextManager[Any]  # for as long as one is entered, something is broken


class Saboteur(NamedTuple):
    """What is broken, how, which checks must notice it, each of them, and within how many seeds."""

    what: str
    breaks: Callable[[], Broken]
    noticed_by: frozenset[str]
    within: int
    store: type[MemoryStore] = MemoryStore


@contextmanager
def together(*all_of_it: Broken) -> Generator[None]:
    with ExitStack() as stack:
        for one in all_of_it:
            stack.enter_context(one)
        yield


def broken(what: str, breaks: Callable[[], Broken], noticed_by: str, within: int = 20) -> Saboteur:
    """A saboteur that one check must notice, and soon."""
    return Saboteur(what, breaks, frozenset({noticed_by}), within)


class Caught(NamedTuple):
    """How many seeds it took until every check had noticed it, and which ones never did.

    A check that stumbles over what is broken has not noticed it.
    """

    seeds: int
    missed_by: frozenset[str]


def caught(saboteur: Saboteur, first: int = 0) -> Caught:
    missed_by = saboteur.noticed_by
    for number, seed in enumerate(range(first, first + saboteur.within), start=1):
        with saboteur.breaks():
            violations = judge(play(draw(seed), saboteur.store))
        missed_by -= {violation.check for violation in violations if violation.is_verdict}
        if not missed_by:
            return Caught(number, missed_by)
    return Caught(saboteur.within, missed_by)
