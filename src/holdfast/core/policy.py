"""How one step is to be run: what a plan step or a `ctx.call` may say besides which tool and which arguments.

Every limit stands here with its default and unit. The rules that use them are in failure.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from holdfast.core.resources import Resources

Effect = Literal["read", "idempotent", "once"]
DoubtPolicy = Literal["ask", "verify", "retry", "fail"]
OnError = Literal["ask", "fail"]
Rest = Literal["pause", "interrupt", "end"]
RESTS: tuple[Rest, ...] = get_args(Rest)

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
OCCASIONS = ("waiting", "failed", "in_doubt", "budget", "done", "paused")  # on which Holdfast itself tells a person
STEPS_AT_ONCE = (
    1000  # tool calls at the same time, in one process and in one execution: each holds memory and a file or two
)
BREAKER_FAILURES = 5  # in a row: one or two may be bad luck
BREAKER_WINDOW = 20  # the latest calls that are looked at, and
BREAKER_SHARE = 0.5  # how many of them may fail before the tool is left alone, though some still come through
BREAKER_REST_S = 30.0  # before it is tried again; twice as long after every try that fails, up to
BREAKER_REST_S_MAX = 600.0
OPTIONAL_WAIT_S = 30.0  # how long steps that may fail wait for a tool that is left alone
HEALTH_EVERY_S = 60.0
HEALTH_TIMEOUT_S = 10.0  # a check is quick, or the tool is not well
FALLBACKS_MAX = 10  # tools tried in place of one
CACHE_ITEM_BYTES_MAX = 1024 * 1024  # a larger answer is not cached: a few of them would push out all others
CACHE_BYTES_MAX = 256 * 1024 * 1024  # of all cached answers of one store; those that expire first go first
CACHE_ITEMS_MAX = 10_000
CHECKPOINT_STEPS_MAX = 1_000_000
CHECKPOINT_EVERY_S_MIN = 1.0  # each checkpoint is the whole history: more often would write little else


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


class Breaker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a tool that keeps failing is left alone, and for how long. `None`: as the settings say.

    `by` names what a call depends on, from its arguments: `http.get` fails for one host and not for the others.
    """

    failures: int | None = None
    rest_s: float | None = None
    by: Callable[[Mapping[str, Any]], str] | None = None

    def __post_init__(self) -> None:
        if self.failures is not None and not 1 <= self.failures <= BREAKER_WINDOW:
            raise ValueError(f"a breaker opens after 1 to {BREAKER_WINDOW} failures in a row, got {self.failures}")
        if self.rest_s is not None and not 0 < self.rest_s <= 86400.0:
            raise ValueError(f"a breaker rests for more than 0 and at most 86400 seconds, got {self.rest_s:g}")


class Concurrency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` executions with this key run at once, over all processes of the store."""

    key: str
    limit: int = 1


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When an execution is written to a file of its own: after so many steps, so often, and when it comes to rest."""

    every_steps: int | None = None
    every_s: float | None = None
    on: tuple[Rest, ...] = ()


class StepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`None` means: as the tool declares, or the default."""

    effect: Effect | None = None
    timeout_s: float | None = None
    retry: Retry | None = None
    retry_is_default: bool = False  # said once for all steps, which repeats no `once` step that failed
    fallback: tuple[Fallback, ...] = ()
    in_doubt: DoubtPolicy | None = None
    approval: Approval | None = None
    cache_s: float | None = None
    resources: Resources | None = None
    on_error: OnError = "fail"
    undoes: tuple[str, ...] = ()  # the steps that a retry runs again once this one has completed


DEFAULT_POLICY = StepPolicy()
