"""How one step is to be run: what a plan step or a `ctx.call` may say besides which tool and which arguments.

Every limit stands here with its default and unit. The rules that use them are in failure.py.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Effect = Literal["read", "idempotent", "once"]
DoubtPolicy = Literal["ask", "verify", "retry", "fail"]
OnError = Literal["ask", "fail"]

HOOK_TIMEOUT_S = 60.0  # a tool's verify, reduce and refresh
STEP_TIMEOUT_S = 3600.0  # an hour: longer work should say so, and forgotten work should end
RETRIES = 3
BACKOFF_FIRST_S = 1.0
BACKOFF_FACTOR = 2.0
BACKOFF_MAX_S = 60.0
LOSSES_MAX = 10  # how often a step may take its process down before a person is asked
RATE_LIMIT_WAIT_S = 30.0  # when a rate limit does not say how long
RATE_LIMIT_WAITS_MAX = 100  # a rate limit is not counted as a retry, but it must not loop for ever either
APPROVAL_EXPIRES_S = 7 * 86400.0
PAUSE_TIMEOUT_S = 30 * 86400.0
FOR_EACH_PARALLEL = 8
FOR_EACH_ITEMS_MAX = 100_000
NOTE_BYTES_MAX = 16 * 1024
VALUE_BYTES_MAX = 64 * 1024 * 1024  # one argument set or output; larger results belong in files
INLINE_BYTES_MAX = 8 * 1024  # above this a value goes to the blob table and the event carries a reference
RUN_AHEAD_EVENTS_MAX = 500  # events that `read` steps may be ahead of the disk before they wait for it
INTERRUPT_GRACE_S = 10.0
PASSIVATE_AFTER_S = 30.0
COMMAND_WAIT_S = 5.0


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries come after the first attempt: `max=3` means four attempts at most."""

    max: int = RETRIES
    first_s: float = BACKOFF_FIRST_S
    factor: float = BACKOFF_FACTOR
    max_s: float = BACKOFF_MAX_S


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another tool for the same step; `arguments` None means the step's own."""

    tool: str
    arguments: dict[str, Any] | None = None


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person must agree before the step runs. Silence is a no: an expired request is denied."""

    message: str = ""
    expires_s: float = APPROVAL_EXPIRES_S


class Concurrency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` executions with this key run at once, over all processes of the store."""

    key: str
    limit: int = 1


class StepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`None` means: as the tool declares, or the default."""

    effect: Effect | None = None
    timeout_s: float | None = None
    retry: Retry | None = None
    fallback: tuple[Fallback, ...] = ()
    in_doubt: DoubtPolicy | None = None
    approval: Approval | None = None
    cache_s: float | None = None
    on_error: OnError = "fail"


DEFAULT_POLICY = StepPolicy()
