"""The verdict on a history: every check by its name, and what it found."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.errors import HoldfastError
from proof.simulator import (
    checks_commands,
    checks_deaths,
    checks_forks,
    checks_journal,
    checks_keeping,
    checks_moving,
    checks_once,
    checks_outside,
    checks_plans,
    checks_reasons,
    checks_saving,
    checks_spending,
    checks_steps,
    checks_waits,
)
from proof.simulator.case import Case, Check
from proof.simulator.history import CutShort
from proof.simulator.play import Played
from proof.simulator.witness import testify

_ROOMS = (
    checks_deaths,
    checks_journal,
    checks_steps,
    checks_once,
    checks_forks,
    checks_waits,
    checks_plans,
    checks_reasons,
    checks_outside,
    checks_moving,
    checks_spending,
    checks_keeping,
    checks_saving,
    checks_commands,
)
CHECKS: dict[str, Check] = {check.__name__: check for room in _ROOMS for check in room.CHECKS}
_ENDS = checks_moving.every_history_comes_to_an_end
_OF_A_FRAGMENT = {_ENDS.__name__: _ENDS}  # of a history that was cut short, nothing else can be told


class Violation(msgspec.Struct, frozen=True):
    """`is_verdict` is False if the check itself stumbled: that is no history without fault, and proves no check."""

    check: str
    text: str
    is_verdict: bool = True

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


def judge(played: Played) -> list[Violation]:
    case = Case(played, testify(played.history))
    checks = _OF_A_FRAGMENT if played.history.of(CutShort) else CHECKS
    return [violation for name, check in checks.items() for violation in _found(name, check, case)]


def _found(name: str, check: Check, case: Case) -> Iterator[Violation]:
    try:
        for text in check(case):
            yield Violation(name, text)
    except HoldfastError as error:
        yield Violation(name, f"cannot even be checked: {error}", is_verdict=False)
