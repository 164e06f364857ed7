"""What a saboteur is, and how many seeds it takes until somebody notices one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.journal.memory import MemoryStore
from proof.simulator import draw, judge, play

TABLE = Path(__file__).with_name("seeds.json")  # written by record_seeds.py
RECORDED_WITHIN = 20  # seeds from the recorded one on

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
    """How many seeds were played, the first at which each check noticed it, and the checks that never did."""

    seeds: int
    at: dict[str, int]
    missed_by: frozenset[str]


def caught(saboteur: Saboteur) -> Caught:
    """Searches from the first seed on."""
    return _caught(saboteur, range(saboteur.within))


def caught_again(saboteur: Saboteur, recorded: dict[str, int]) -> Caught:
    """Begins where each check noticed it when that was recorded. A change of the engine may move it by some seeds."""
    spans = (range(seed, seed + RECORDED_WITHIN) for seed in sorted(set(recorded.values())))
    return _caught(saboteur, dict.fromkeys(seed for at_once in zip(*spans, strict=True) for seed in at_once))


def recorded_seeds() -> dict[str, dict[str, int]]:
    """By saboteur and check."""
    return msgspec.json.decode(TABLE.read_bytes(), type=dict[str, dict[str, int]])


def _caught(saboteur: Saboteur, seeds: Iterable[int]) -> Caught:
    at: dict[str, int] = {}
    played = 0
    for seed in seeds:
        if saboteur.noticed_by <= at.keys():
            break
        played += 1
        for check in _noticed(saboteur, seed):
            at.setdefault(check, seed)
    at = {check: seed for check, seed in sorted(at.items()) if check in saboteur.noticed_by}
    return Caught(played, at, saboteur.noticed_by - at.keys())


def _noticed(saboteur: Saboteur, seed: int) -> frozenset[str]:
    """The checks that notice it. One that raises an error because of what is broken has not noticed it."""
    with saboteur.breaks():
        violations = judge(play(draw(seed), saboteur.store))
    return frozenset(violation.check for violation in violations if violation.is_verdict)
