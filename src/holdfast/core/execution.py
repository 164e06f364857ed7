"""One execution's state, as far as its journal says. Only the fold (fold.py) changes it.

The state is a view that can be thrown away and folded again; a snapshot is nothing but this view written down. It keeps
what a program needs to be replayed and what a person needs to look at, not the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import events as ev
from holdfast.core.budget import Spend
from holdfast.core.differences import Difference
from holdfast.core.errors import StoreCorrupted
from holdfast.core.failure import Category, Failure
from holdfast.core.lifecycle import ENDS, NEW, STEP_ENDS, StepStatus
from holdfast.core.policy import Effect
from holdfast.core.resources import Usage
from holdfast.core.skips import SkipCode

ATTEMPTS_KEPT = 20  # of each step, for people to look at; the events hold all of them


class Attempt(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    number: int
    tool: str = ""
    started_at: int = 0
    ended_at: int = 0
    duration_us: int = 0
    outcome: str = ""
    category: Category | None = None
    message: str = ""


class Step(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    path: str
    tool: str = ""
    kind: ev.StepKind = "tool"
    status: StepStatus = "pending"
    effect: Effect = "read"
    title: str = ""
    digest: str = ""
    arguments: ev.MaybeRaw = UNSET  # only while it is not ended: the events keep it for ever
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()  # a tuple: the collector lets go of it, a list it would visit for ever
    started_at: int = 0
    ended_at: int = 0
    started_seq: int = 0  # the event of its last attempt
    ended_seq: int = 0  # the event of its outcome: functions get their outcomes in this order
    output: Raw = Raw(b"null")
    failure: Failure | None = None
    critical: bool = True
    reason: str = ""  # why it was skipped, is in doubt, or what it waits for
    skip_code: SkipCode = ""
    name: str = ""  # the event it waits for
    due_at: int | None = None
    request_id: str = ""
    decided: tuple[str, str, str] = ("", "", "")  # the last request about it: its kind, what was said, and by whom
    cached: bool = False
    by: str = ""
    notes: ev.MaybeRaw = UNSET
    noted_by: str = ""  # the tool whose notes they are
    call_key: str = ""  # the idempotency key, if it goes on from another execution's step; else it is made of its path
    total: int = 0  # children of a container: expected, and ended so far
    ended: int = 0
    retries: int = 0
    rate_limit_waits: int = 0
    doubts: int = 0  # attempts in a row of which nobody knows what became; more of them than `attempts` keeps
    fallback: int = 0
    reduced: bool = False
    refreshed: bool = False
    diverged: bool = False
    kept: bool = False  # copied from another execution, and not begun here
    accepted: str = ""  # the digest of another input for which a person kept that outcome
    undone: bool = False
    fallback_digest: str = ""
    child_id: str = ""  # of a child's step: the execution whose outcomes its child keeps, or that had done it
    used: Usage | None = None  # of the machine, by all attempts together
    warning: str = ""  # what is wrong with its output, which counts all the same
    secrets: tuple[str, ...] = ()


class CarriedNote(msgspec.Struct, omit_defaults=True, gc=False):
    """What is known of a step that had begun in the execution this one was made from, and begins anew here.

    `digest` is "" in journals of older releases: there, notes went to the same tool whatever its input.
    """

    tool: str
    call_key: str
    notes: ev.MaybeRaw = UNSET
    digest: str = ""
    child_id: str = ""
    ended: int = 0  # of a container: the copied steps in it that have ended

    def is_for(self, event: ev.StepStarted) -> bool:
        return self.digest == event.digest if self.digest else self.tool == event.tool


class Asked(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A request to a person, and the answer once there is one."""

    request: ev.Request
    opened_at: int
    answered: bool = False
    remedy: str = ""
    by: str = ""
    why: str = ""
    data: ev.MaybeRaw = UNSET


class Received(msgspec.Struct, frozen=True):
    """An event from outside that no step has taken yet."""

    seq: int
    data: Raw


class Child(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    path: str
    started_seq: int = 0
    status: str = "queued"
    output: Raw = Raw(b"null")
    failure: Failure | None = None


class Execution(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of a task, as far as its journal says."""

    id: str
    seq: int = 0
    last_at: int = 0
    copied: int = 0  # its first events, which were copied from the execution it was made from; its own come after them
    status: str = NEW
    created: ev.TaskCreated | None = None
    title: str = ""
    started_at: int = 0
    ended_at: int = 0
    reasons: tuple[ev.Reason, ...] = ()
    by: str = ""  # who paused, interrupted or stopped it, and why
    why: str = ""
    pause_until: int | None = None
    on_pause_timeout: ev.OnTimeout = "stop"
    pause_announced: bool = False
    pause_over: int = 0  # the number of the event with which the limit of its last pause acted
    stopping: bool = False  # the limit of a pause stops it: only its `finally` steps run
    output: Raw = Raw(b"null")
    failure: Failure | None = None
    failed_path: str = ""
    trace: Raw = Raw(b"null")  # of what its function raised
    failures: str = ""  # of one that completed: what failed and was lived with
    total: int = 0
    ended: int = 0
    steps: dict[str, Step] = {}
    carried: dict[str, CarriedNote] = {}  # by path, until the step begins
    open_steps: set[str] = set()  # paths that are not ended: what a crash leaves to settle
    requests: dict[str, Asked] = {}
    sticky: set[str] = set()  # tools approved for the rest of this execution
    mailbox: dict[str, list[Received]] = {}
    children: dict[str, Child] = {}
    extensions: list[Raw] = []
    spend: Spend = msgspec.field(default_factory=Spend)
    recoveries: int = 0
    is_shaky: bool = False  # its driver died, and no step has come to an end since
    accepted_differences: tuple[Difference, ...] = ()  # a person resumed it in spite of them
    accepted: tuple[str, ...] = ()  # the same as texts, in journals from before there were codes
    checkpoint: ev.CheckpointSaved | None = None  # the newest one that was saved
    snapshot_seq: int = 0  # where its newest snapshot stands; the only thing here that no event says

    @property
    def is_ended(self) -> bool:
        return self.status in ENDS

    def facts(self) -> ev.TaskCreated:
        """What was handed in; every execution that exists has it."""
        if self.created is None:
            raise StoreCorrupted(f"execution {self.id} has no task:created event", execution_id=self.id)
        return self.created

    def open_requests(self) -> Iterator[Asked]:
        return (asked for asked in self.requests.values() if not asked.answered)

    def running_steps(self) -> list[Step]:
        return [step for path in sorted(self.open_steps) if (step := self.steps[path]).status == "running"]


def origin_of(created: ev.TaskCreated, execution_id: str) -> str:
    """The execution that began the chain of retries and forks which led to this one; its own id if it was not forked.

    A journal of an older release knows only the execution before it.
    """
    before = created.forked_from
    return (before.origin or before.id) if before is not None else execution_id


def call_key(execution_id: str, path: str) -> str:
    """The idempotency key of a step: one for all its attempts, and no other's."""
    return f"{execution_id}:{path}"


def steps_ended(state: Execution) -> int:
    """At whatever depth, containers included."""
    return sum(step.status in STEP_ENDS for step in state.steps.values())


def percent(state: Execution) -> float:
    """How much is done, in percent, counting a running milestone by its own share."""
    if state.status == "completed":
        return 100.0
    if not state.total:
        return 0.0
    if state.status in ("failed", "stopped"):  # what failed or was skipped for it has ended, and is not done
        done = sum(step.status == "completed" and not parent_of(path) for path, step in state.steps.items())
        return min(100.0, 100.0 * done / state.total)
    done = float(state.ended)
    for path in state.open_steps:
        step = state.steps[path]
        if step.total and parent_of(path) == "":
            done += min(1.0, step.ended / step.total)
    return min(100.0, 100.0 * done / state.total)


def parent_of(path: str) -> str:
    """`a/b[3]` → `a/b` → `a` → ``."""
    if path.endswith("]") and "[" in path:
        return path[: path.rindex("[")]
    return path.rpartition("/")[0]
