"""Money: what an execution may spend, what it has spent, and what the calls that run may still come to.

Owns the arithmetic of budgets: amounts are whole micro-dollars, so that sums never drift. Knows neither steps nor
events: the fold says what was reserved and settled, and engine/step/budget_gate.py waits for room.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec

from holdfast.core.error_text import describe_value, quoted
from holdfast.core.errors import InputInvalid

MICROS = 1_000_000  # of a dollar
USD_MAX = 1_000_000  # one amount; whoever writes more has slipped
WARN_AT = 0.8  # the share of the limit at which people are told

_AMOUNT = "an amount in US dollars, {least} and at most {most:,}, such as 0.50"


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task may spend, and at which share of that people are warned."""

    limit_micros: int
    warn_at: float = WARN_AT


class Spend(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one execution has spent, as far as its journal says."""

    limit_micros: int | None = None
    warn_at: float = WARN_AT
    warned: bool = False
    settled_micros: int = 0
    amounts: int = 0  # settled so far; without any, what was spent is unknown, which is not zero
    unknown: int = 0  # of those, the estimates that nobody could confirm
    reserved: dict[str, int] = {}  # micro-dollars by step: what runs, and children that are not over
    wanted: dict[str, int] = {}  # micro-dollars by step, in the order in which people were asked for them

    @property
    def committed_micros(self) -> int:
        """Spent, or promised to what runs."""
        return self.settled_micros + sum(self.reserved.values())

    def room(self) -> int | None:
        """What may still be reserved; None without a limit. Negative if something cost more than it had declared."""
        return None if self.limit_micros is None else self.limit_micros - self.committed_micros

    def has_room(self, micros: int) -> bool:
        room = self.room()
        return room is None or micros <= room

    def shortage(self, tool: str, micros: int) -> str:
        """Why a person is asked: what it may cost, and what is left as things stand."""
        left = f"{say_usd(max(0, self.room() or 0))} of {say_usd(self.limit_micros or 0)} are left"
        return f"{tool} may cost {say_usd(micros)}, and {left}"

    def reserve(self, path: str, micros: int) -> None:
        self.reserved[path] = micros

    def settle(self, path: str, spent_micros: int | None) -> None:
        """What an attempt came to. If nobody could say, what was reserved for it counts, as unknown."""
        held = self.reserved.pop(path, None)
        if spent_micros is not None:
            self.count(spent_micros)
        elif held is not None:
            self.count(held, unknown=1)

    def count(self, micros: int, unknown: int = 0) -> None:
        self.settled_micros += micros
        self.amounts += 1
        self.unknown += unknown

    def change_limit(self, micros: int) -> None:
        self.limit_micros = micros
        self.warned = self.warned and self.is_past_warning()  # another limit is worth another warning

    def is_past_warning(self) -> bool:
        return self.limit_micros is not None and self.settled_micros > self.limit_micros * self.warn_at

    def is_warning_due(self) -> bool:
        return not self.warned and self.is_past_warning()

    def affordable(self, limit_micros: int) -> list[str]:
        """The steps that could go on under this limit: whoever asked first is served first, and nobody is passed."""
        room = limit_micros - self.committed_micros
        served: list[str] = []
        for path, micros in self.wanted.items():
            room -= micros
            if room < 0:
                break
            served.append(path)
        return served


def read_usd(given: object, *, least: int = 1) -> int:
    """Dollars as somebody wrote them, in micro-dollars; `least` is the smallest amount that makes sense."""
    expected = _AMOUNT.format(least="more than 0" if least else "0 or more", most=USD_MAX)
    try:
        amount = Decimal(str(given)) if not isinstance(given, bool) else Decimal("NaN")
    except (InvalidOperation, ValueError):
        amount = Decimal("NaN")
    if amount.is_finite() and 0 <= amount <= USD_MAX:
        micros = int((amount * MICROS).to_integral_value())
        if micros >= least:
            return micros
    raise InputInvalid(f"expected {expected}, got {describe_value(given)}")


def read_budget(given: object) -> Budget:
    """`0.50`, or `{"usd": 0.50, "warn_at": 0.8}`."""
    if not isinstance(given, Mapping):
        return Budget(limit_micros=read_usd(given))
    fields = dict(cast("Mapping[str, Any]", given))
    if unknown := fields.keys() - {"usd", "warn_at"}:
        raise InputInvalid(f"unknown key {quoted(str(min(unknown, key=str)))}; known are: usd, warn_at")
    try:
        share = read_share(fields.get("warn_at", WARN_AT))
    except InputInvalid as error:
        raise InputInvalid(f"warn_at: {error}") from None
    return Budget(limit_micros=read_usd(fields.get("usd")), warn_at=share)


def read_share(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        expected = "a share of the limit, more than 0 and at most 1, such as 0.8"
        raise InputInvalid(f"expected {expected}, got {describe_value(given)}")
    return float(given)


def in_usd(micros: int) -> float:
    """For machines: a number of dollars."""
    return micros / MICROS


def say_usd(micros: int) -> str:
    """For people: `$0.50`, with as many more digits as there are."""
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), MICROS)
    digits = f"{part:06d}".rstrip("0")
    return f"{sign}${whole:,}.{digits.ljust(2, '0')}"
