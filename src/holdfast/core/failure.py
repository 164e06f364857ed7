"""What a failure means: its category, what is known of its effect, and what follows from that.

Pure rules. The engine catches an exception, `describe` turns it into data, `decide` says what happens next.
A `once` step is the careful case: only a failure known to be without effect is ever tried again by itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.errors import RaisedApart, ResourceShort, StepFailed, ToolError
from holdfast.core.exception_category import category_of, is_open, never_reached, retry_after_of, status_of
from holdfast.core.policy import RATE_LIMIT_WAIT_S, RATE_LIMIT_WAITS_MAX, Effect, OnError, Retry

Category = Literal[
    "transient", "rate_limit", "timeout", "resource", "permission", "configuration", "logic", "tool", "unknown"
]
Happened = Literal["nothing", "known", "unknown"]


RETRY_AFTER_S_MAX = 86400.0  # the longest a rate limit may put us off by its own word; then we ask again
MESSAGE_CHARS_MAX = 4000  # an error text longer than this helps nobody and bloats the journal


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One failure as all faces show it: what happened, what it affects, what can be done now."""

    category: Category
    message: str
    error: str = ""
    happened: Happened = "known"
    retry_after_s: float | None = None
    affects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    place: str = ""  # file and line, of an error that the tool did not mean to raise
    untried: tuple[str, ...] = ()  # fallbacks that were passed over, because the call may have had its effect
    status: int = 0  # the HTTP status of the other side, or the exit code of a command; 0 if there was none
    limit: str = ""  # twice the limit of the task that it met: what would be enough, as `--resource` takes it


class RetryLater(msgspec.Struct, frozen=True):
    delay_s: float


class RunReduced(msgspec.Struct, frozen=True):
    """Once more, with what the tool's `reduce` returns."""


class RefreshAndRetry(msgspec.Struct, frozen=True):
    """Once more, after the tool's `refresh` hook."""


class FallBack(msgspec.Struct, frozen=True):
    index: int


class Doubt(msgspec.Struct, frozen=True):
    """The outcome is unknown and must not be guessed."""


class AskForCorrection(msgspec.Struct, frozen=True):
    pass


class GiveUp(msgspec.Struct, frozen=True):
    pass


Decision = RetryLater | RunReduced | RefreshAndRetry | FallBack | Doubt | AskForCorrection | GiveUp


def describe(error: BaseException, handled: BaseException | None = None) -> Failure:
    """An exception as data. Tools that know better raise a `ToolError`.

    `handled` is what was being handled already when the tool was called: no part of what happened to it.
    """
    lines = (" ".join(line.split()) for line in _text_of(error).splitlines())
    message = "\n".join(filter(None, lines)) or type(error).__name__
    if isinstance(error, LookupError) or not isinstance(error, Exception):
        message = f"{type(error).__name__}: {message}"  # a bare key or exit code says nothing
    message = message.encode("utf-8", "replace").decode()  # file names may hold what JSON cannot
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[:MESSAGE_CHARS_MAX] + "…"
    if isinstance(error, StepFailed | RaisedApart):
        return error.failure
    if isinstance(error, ToolError):
        is_unknown = error.has_returned or error.category in ("transient", "timeout")
        known: Happened = "unknown" if is_unknown else "known"
        return Failure(
            category=error.category,
            message=message,
            error=type(error).__name__,
            happened="nothing" if error.without_effect else known,
            retry_after_s=error.retry_after_s,
            status=error.status,
            limit=error.limit if isinstance(error, ResourceShort) else "",
        )
    happened: Happened = "unknown" if is_open(error, handled) else "known"
    return Failure(
        category=category_of(error, handled),
        message=message,
        error=type(error).__name__,
        happened="nothing" if never_reached(error, handled) else happened,
        retry_after_s=retry_after_of(error, handled),
        status=status_of(error, handled),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error in the error: then its name must do
        return ""


class AttemptCounts(msgspec.Struct, kw_only=True):
    """What this step has already been through, counted from its history."""

    retries: int = 0
    rate_limit_waits: int = 0
    reduced: bool = False
    refreshed: bool = False
    fallbacks_used: int = 0


class RecoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to try: the step's policy joined with what its tool can do."""

    effect: Effect
    retry: Retry | None = None  # what the step or the tool wrote; None: the default for the category
    fallbacks: int = 0
    can_reduce: bool = False
    only_people_reduce: bool = False  # it could, but a person has agreed to what was tried
    can_refresh: bool = False
    on_error: OnError = "fail"
    repeats_known: bool = False  # the step itself wrote `retry:`, so even a `once` step may fail more than once

    def retries(self) -> int:
        return (self.retry or Retry()).max


def decide(failure: Failure, means: RecoveryOptions, tally: AttemptCounts, jitter: float) -> Decision:
    """What follows from a failed attempt. `jitter` is a random number in [0, 1)."""
    if means.effect == "once" and failure.happened == "unknown":
        return Doubt()
    may_repeat = means.effect != "once" or failure.happened == "nothing"
    again = _again(failure, means, tally, jitter, may_repeat)
    if again is not None:
        return again
    if may_repeat and tally.fallbacks_used < means.fallbacks:
        return FallBack(tally.fallbacks_used)
    is_for_people = failure.category in ("configuration", "logic") or (
        failure.category == "resource" and means.only_people_reduce
    )
    if is_for_people and means.on_error == "ask":
        return AskForCorrection()
    return GiveUp()


def _again(
    failure: Failure, means: RecoveryOptions, tally: AttemptCounts, jitter: float, may_repeat: bool
) -> Decision | None:
    written = means.retry
    if not may_repeat:
        # A known failure of a `once` step is repeated only because its step wrote `retry:`; a mistake never is.
        repeats = means.repeats_known and written is not None and failure.category not in ("configuration", "logic")
        return _backoff(written, tally, jitter) if repeats and written is not None else None
    match failure.category:
        case "rate_limit" if tally.rate_limit_waits < RATE_LIMIT_WAITS_MAX:
            wait_s = failure.retry_after_s if failure.retry_after_s is not None else RATE_LIMIT_WAIT_S
            return RetryLater(min(max(0.0, wait_s), RETRY_AFTER_S_MAX))
        case "transient" | "timeout":
            return _not_before(failure.retry_after_s, _backoff(written or Retry(), tally, jitter))
        case "resource" if means.can_reduce and not tally.reduced:
            return RunReduced()
        case "permission" if means.can_refresh and not tally.refreshed:
            return RefreshAndRetry()
        case "tool" if written is not None:
            return _backoff(written, tally, jitter)
        case _:
            return None


def _backoff(retry: Retry, tally: AttemptCounts, jitter: float) -> RetryLater | None:
    """Exponential with equal jitter: half of the delay is certain, half is random."""
    if tally.retries >= retry.max:
        return None
    try:
        full = min(retry.max_s, retry.first_s * retry.factor**tally.retries)
    except OverflowError:
        full = retry.max_s
    return RetryLater(full / 2 + full / 2 * jitter)


def _not_before(retry_after_s: float | None, decision: RetryLater | None) -> RetryLater | None:
    """Whoever could not answer may still have said when to come back."""
    if decision is None or retry_after_s is None:
        return decision
    return RetryLater(max(decision.delay_s, min(retry_after_s, RETRY_AFTER_S_MAX)))
