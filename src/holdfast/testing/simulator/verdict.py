"""The verdict on a history: every check by its name, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.testing.simulator.play import Played
from holdfast.testing.simulator.witness import Testimony, testify

Check = Callable[["Case"], Iterator[str]]
CHECKS: dict[str, Check] = {}


class Case(msgspec.Struct):
    """What a check may look at."""

    played: Played
    told: Testimony


class Violation(msgspec.Struct, frozen=True):
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


def check(function: Check) -> Check:
    """A check is a generator of sentences that say what is wrong; its name says what it proves."""
    CHECKS[function.__name__] = function
    return function


def judge(played: Played) -> list[Violation]:
    from holdfast.testing.simulator import checks_journal, checks_outside, checks_steps  # noqa: F401 -- they register

    case = Case(played, testify(played.history))
    found: list[Violation] = []
    for name, function in CHECKS.items():
        found.extend(Violation(name, text) for text in function(case))
    return found
