"""What a step's history amounts to: tries and losses so far, and what the next attempt is made of.

Pure readings of one step; perform.py does what follows from them.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import InvalidCall
from holdfast.core.execution import Step
from holdfast.core.failure import AttemptCounts, Decision, Failure, FallBack, RefreshAndRetry, RetryLater, RunReduced
from holdfast.core.resources import Usage


def retrying(  # noqa: PLR0913, PLR0917 -- one parameter per fact
    step: Step, decision: Decision, failure: Failure, at: int, started_at: int = 0, duration_us: int = 0,
    spent_micros: int | None = None, used: Usage | None = None,
) -> ev.StepRetrying:  # fmt: skip
    delay_s = decision.delay_s if isinstance(decision, RetryLater) else 0.0
    return ev.StepRetrying(
        at=at,
        path=step.path,
        failure=failure,
        due_at=at + int(delay_s * 1e6),
        attempt=step.attempt,
        started_at=started_at,
        duration_us=duration_us,
        fallback=decision.index + 1 if isinstance(decision, FallBack) else step.fallback,
        reduced=step.reduced or isinstance(decision, RunReduced),
        refreshed=step.refreshed or isinstance(decision, RefreshAndRetry),
        spent_micros=spent_micros,
        used=used,
    )


def tally(step: Step) -> AttemptCounts:
    return AttemptCounts(
        retries=step.retries,
        rate_limit_waits=step.rate_limit_waits,
        reduced=step.reduced,
        refreshed=step.refreshed,
        fallbacks_used=step.fallback,
    )


def losses(step: Step) -> int:
    """Attempts in a row that ended with their process."""
    count = 1  # the one that has just been found without an outcome
    for attempt in reversed(step.attempts[:-1]):
        if attempt.outcome != "lost":
            break
        count += 1
    return count


def doubtful(step: Step) -> str:
    return f"it may or may not have happened ({step.reason})"


def edited(arguments: bytes, changes: bytes | None) -> bytes:
    """The arguments with a person's changes laid over them."""
    if changes is None or changes == b"null":
        return arguments
    base, edits = msgspec.json.decode(arguments), msgspec.json.decode(changes)
    if not isinstance(base, dict) or not isinstance(edits, dict):
        raise InvalidCall("edited arguments must be a mapping of names to values")
    return msgspec.json.encode({**cast("dict[str, Any]", base), **cast("dict[str, Any]", edits)})
