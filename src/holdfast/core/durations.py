"""Durations and moments as people write them: `250ms`, `1.5s`, `2h30m`, `1d`, and `2026-12-01T08:00:00Z`.

Bare numbers are seconds. Every duration has an upper bound, so that no arithmetic on it can overflow.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InputInvalid

DURATION_S_MAX = 3650 * 86400.0  # ten years: anything longer is a slip of the pen
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|w)\s*", re.ASCII)
_EXPECTED = 'expected a duration such as "250ms", "1.5s", "5m", "2h30m" or "1d", or a number of seconds'


def parse_duration(value: Any) -> float:
    """Seconds. Raises `InputInvalid` for anything that is not a duration from 0 to ten years."""
    if isinstance(value, str):
        seconds = _from_text(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not value >= 0:  # negative, or not a number at all
            raise InputInvalid(f"{_EXPECTED}, got {describe_value(value)}")
        seconds = float(value) if value <= DURATION_S_MAX else math.inf
    else:
        raise InputInvalid(f"{_EXPECTED}, got {describe_value(value)}")
    if seconds > DURATION_S_MAX:
        raise InputInvalid(f"expected a duration of at most 3650d, got {describe_value(value)}")
    return seconds


def _from_text(text: str) -> float:
    seconds, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            break
        seconds += float(part[1]) * _UNIT_S[part[2]]
        position = part.end()
    if not text or position < len(text):
        raise InputInvalid(f"{_EXPECTED}, got {describe_value(text)}")
    return seconds


def parse_moment(value: Any) -> int:
    """Whole microseconds since 1970, UTC. A time without a zone is refused: guessing one would move the moment."""
    if not isinstance(value, str):
        raise InputInvalid(f'expected a time such as "2026-12-01T08:00:00Z", got {describe_value(value)}')
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise InputInvalid(f'expected a time such as "2026-12-01T08:00:00Z", got {describe_value(value)}') from None
    if moment.tzinfo is None:
        raise InputInvalid(
            f'{describe_value(value)} has no time zone; end it with "Z" for UTC or with an offset such as "+02:00"'
        )
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
