"""Every fact that can be journaled, and the live frames that are only shown.

Events are in the past tense and never change once a release has written them: a new shape gets a new schema version
and an upcaster (journal/codec.py). Times are whole microseconds since 1970, UTC. Values (`Raw`) are JSON bytes, kept as
they were written, so that the first run and every replay see the same value.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.budget import Budget
from holdfast.core.differences import Difference
from holdfast.core.failure import Failure
from holdfast.core.policy import Checkpoints, Concurrency, Effect
from holdfast.core.resources import Resources, Usage
from holdfast.core.skips import SkipCode

SCHEMA_VERSION = 1

MaybeRaw = Raw | UnsetType  # UNSET is "no value", which JSON's null is not; UNSET is falsy, every Raw value is true

StepKind = Literal["tool", "plan", "for_each", "wait", "approval", "child", "code"]
ReasonKind = Literal[
    "approval",
    "answer",
    "correction",
    "doubt",
    "budget",
    "quota",
    "limit",
    "breaker",
    "timer",
    "event",
    "child",
    "driver",
    "pressure",
]
RequestKind = Literal["approval", "question", "correction", "doubt", "budget"]
Because = Literal["created", "resumed", "woken"]
OnTimeout = Literal["stop", "resume"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """`gc=False`: events hold no cycles, and an engine holds very many of them."""

    at: int


class Program(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What says which step comes next. `source` is the pinned definition (a plan) or null (a function)."""

    kind: str
    name: str
    source: Raw = Raw(b"null")
    file: str = ""


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    path: str


class ForkedFrom(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: str = ""
    origin: str = ""  # the first execution of the chain; "": recorded by a release that did not know it


class Blob(msgspec.Struct, frozen=True, kw_only=True, tag_field="holdfast", tag="blob"):
    """A value too large for its event; the bytes are in the blob table under their digest."""

    digest: str
    bytes: int


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything that needs a person: one shape for every card, inbox and prompt.

    `path` is the step it is about, `arguments` what would run, `schema` what an answer must look like, `remedies` what
    may be chosen, `affects` the steps that would be skipped if the answer is no.
    """

    id: str
    kind: RequestKind
    path: str
    message: str
    tool: str = ""
    arguments: Raw = Raw(b"null")
    schema: Raw = Raw(b"null")
    remedies: tuple[str, ...] = ()
    failure: Failure | None = None
    expires_at: int | None = None
    affects: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # those that `arguments` refer to
    wants_output: bool = False  # with "done", what the step gave must be said, too
    check_failed: str = ""  # why the tool's own check gave no answer; it is asked again by whoever drives next
    recorded: Raw = Raw(b"null")  # the input in the execution this one was made from; `arguments` is the one now
    keeps: bool = False  # "done" keeps the outcome that the step had there
    failed: tuple[str, ...] = ()  # of an approval: what had failed before it, and was lived with, in words


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an execution waits: for what, at which step, and until when if that is known."""

    kind: ReasonKind
    path: str = ""
    due_at: int | None = None
    name: str = ""
    more: int = 0  # others of this kind that wait as well and are not listed


# ---- the task --------------------------------------------------------------------------------------------------


class TaskCreated(Event, frozen=True, gc=False, tag="task:created"):
    program: Program
    inputs: Raw = Raw(b"{}")
    owner: str = ""
    title: str = ""
    labels: dict[str, str] = {}
    key: str = ""
    hold: bool = False
    parent: Parent | None = None
    forked_from: ForkedFrom | None = None
    concurrency: Concurrency | None = None
    pause_timeout_s: float | None = None
    on_pause_timeout: OnTimeout = "stop"
    engine: str = ""
    folder: str = ""
    tools: dict[str, str] = {}
    total: int = 0  # top-level steps known in advance; 0 when the program finds its steps as it goes
    budget: Budget | None = None
    checkpoint: Checkpoints | None = None
    parallel: int = 0  # tool calls at once in this execution; 0: as many as the settings allow
    fresh: bool = False  # nothing is answered from the cache
    resources: Resources | None = None  # of the machine, for each step, besides what its plan says
    resources_total: Resources | None = None  # the same for all its steps together
    by: str = ""  # who handed it in, which need not be whom it belongs to; a child's parent did


class TaskStarted(Event, frozen=True, gc=False, tag="task:started"):
    because: Because
    driver: str = ""


class TaskRecovered(Event, frozen=True, gc=False, tag="task:recovered"):
    """A driver died; another took over. Recorded for people, it moves no status."""

    driver: str
    lost: str = ""


class TaskWaiting(Event, frozen=True, gc=False, tag="task:waiting"):
    reasons: tuple[Reason, ...]


class TaskPaused(Event, frozen=True, gc=False, tag="task:paused"):
    by: str = ""
    why: str = ""
    until: int | None = None
    on_timeout: OnTimeout = "stop"


class TaskPauseExpiring(Event, frozen=True, gc=False, tag="task:pause_expiring"):
    """Said before a pause limit acts, so that nobody is surprised."""

    due_at: int
    then: OnTimeout


class TaskResumed(Event, frozen=True, gc=False, tag="task:resumed"):
    """A person said: go on. The `task:started` beside it moves the status."""

    by: str = ""
    why: str = ""
    accepted: tuple[Difference, ...] = ()  # what had changed since it was recorded, and a person accepted
    forced: tuple[str, ...] = ()  # the same as texts, in journals from before there were codes
    pause_limit: OnTimeout | None = None  # the limit of its pause did this; "stop": only its `finally` steps run


class TaskInterrupted(Event, frozen=True, gc=False, tag="task:interrupted"):
    by: str = ""
    why: str = ""


class TaskStopped(Event, frozen=True, gc=False, tag="task:stopped"):
    by: str = ""
    why: str = ""
    pause_limit: bool = False  # the limit of its pause did this


class TaskCompleted(Event, frozen=True, gc=False, tag="task:completed"):
    output: Raw = Raw(b"null")
    failures: str = ""  # "2 of 4 steps failed": those that were lived with


class TaskError(Event, frozen=True, gc=False, tag="task:error"):
    """The execution failed."""

    failure: Failure
    path: str = ""
    trace: Raw = Raw(b"null")  # the traceback, as a text, of what a function raised in its own body


# ---- steps -----------------------------------------------------------------------------------------------------


# An event that ends an attempt says in `spent_micros` what it came to. If it does not, and something was reserved, then
# nobody knows, and what was reserved counts.


class StepStarted(Event, frozen=True, gc=False, tag="step:started"):
    """One attempt begins. For a container, `total` is how many children it will have."""

    path: str
    tool: str
    attempt: int = 1
    kind: StepKind = "tool"
    effect: Effect = "read"
    arguments: Raw = Raw(b"null")
    digest: str = ""
    total: int = 0
    title: str = ""
    fallback: int = 0
    reduced: bool = False
    refreshed: bool = False
    reserved_micros: int = 0
    secrets: tuple[str, ...] = ()  # those that `arguments` refer to; their values are nowhere
    fallback_digest: str = ""  # of a fallback with an input of its own
    undoes: tuple[str, ...] = ()  # the steps whose outcome does not stand any more once this one has completed
    child_id: str = ""  # of a child's step: the execution of another family whose outcomes its child keeps


class StepWaiting(Event, frozen=True, gc=False, tag="step:waiting"):
    path: str
    reason: ReasonKind
    tool: str = ""
    kind: StepKind = "tool"
    due_at: int | None = None
    name: str = ""
    digest: str = ""
    spent_micros: int | None = None
    used: Usage | None = None  # by the failed attempt that a person is asked about


class StepCompleted(Event, frozen=True, gc=False, tag="step:completed"):
    path: str
    attempt: int = 1
    output: Raw = Raw(b"null")
    started_at: int = 0
    duration_us: int = 0
    tool: str = ""  # set when a fallback answered in place of the step's own tool
    cached: bool = False
    by: str = ""  # set when a person settled it
    verified: bool = False  # it had been in doubt, and the tool's own check found that it happened
    consumed: int = 0  # for an event wait: the number of the event:received it took
    spent_micros: int | None = None
    used: Usage | None = None  # of the machine, as far as it was measured
    warning: str = ""  # what is wrong with the output, which counts all the same


class StepFailed(Event, frozen=True, gc=False, tag="step:failed"):
    path: str
    failure: Failure
    attempt: int = 1
    critical: bool = True
    started_at: int = 0
    duration_us: int = 0
    by: str = ""
    spent_micros: int | None = None
    used: Usage | None = None


class StepRetrying(Event, frozen=True, gc=False, tag="step:retrying"):
    path: str
    failure: Failure
    due_at: int
    attempt: int = 1
    started_at: int = 0
    duration_us: int = 0
    fallback: int = 0  # which tool is next: 0 the step's own, n its n-th fallback
    reduced: bool = False
    refreshed: bool = False
    spent_micros: int | None = None
    used: Usage | None = None


class StepSkipped(Event, frozen=True, gc=False, tag="step:skipped"):
    path: str
    reason: str
    by: str = ""
    code: SkipCode = ""  # the reason as a code; empty in journals from before there were codes
    tool: str = ""  # that would have run
    kind: StepKind = "tool"
    critical: bool = True


class StepInterrupted(Event, frozen=True, gc=False, tag="step:interrupted"):
    path: str
    attempt: int = 1
    started_at: int = 0
    duration_us: int = 0
    spent_micros: int | None = None
    used: Usage | None = None  # null for one that was lost: what it used is not known
    lost: bool = False  # nobody cut it off: its process ended, and nobody knows when


class StepInDoubt(Event, frozen=True, gc=False, tag="step:in_doubt"):
    """A `once` step may or may not have happened, and nobody but its policy or a person may guess."""

    path: str
    why: str
    attempt: int = 1
    spent_micros: int | None = None
    used: Usage | None = None
    call_key: str = ""  # of a doubt that was copied: the key it was called with there
    failure: Failure | None = None  # if it was ended for a limit, and which


class StepNoted(Event, frozen=True, gc=False, tag="step:noted"):
    """Data an attempt wants handed back to the next attempt, at most 16 KB."""

    path: str
    data: Raw
    attempt: int = 1
    tool: str = ""  # of a note that was copied: who noted it there, and the key it was called with
    call_key: str = ""


class StepLogged(Event, frozen=True, gc=False, tag="step:logged"):
    """What an attempt said, printed and logged, or the first part of it. Moves no status; `log` holds the lines."""

    path: str
    log: Blob
    attempt: int = 1
    lines: int = 0


class StepDiverged(Event, frozen=True, gc=False, tag="step:diverged"):
    """Another input was asked for than the one recorded, and the recorded outcome won. Moves no status."""

    path: str
    recorded: str
    attempted: str
    kept: bool = False  # a person decided to keep the outcome of another execution for this input
    by: str = ""


class StepCarried(Event, frozen=True, gc=False, tag="step:carried"):
    """A step had begun and not completed in the execution this one was made from. It begins anew here.

    With the same input it is called with the same idempotency key, and gets its notes back. Moves no status.
    """

    path: str
    tool: str = ""
    digest: str = ""
    call_key: str = ""
    notes: MaybeRaw = UNSET
    child_id: str = ""  # of a child's step: the execution whose outcomes its child keeps


class StepDiscarded(Event, frozen=True, gc=False, tag="step:discarded"):
    """What was copied of a step counts no more: its input is another one now. The step has not begun here."""

    path: str
    why: str
    by: str = ""  # the person who decided it


class StepUndone(Event, frozen=True, gc=False, tag="step:undone"):
    """What a step had done was taken back, and a retry runs it again. Moves no status, and may follow the end."""

    path: str
    by: str = ""


# ---- people ----------------------------------------------------------------------------------------------------


class ApprovalRequested(Event, frozen=True, gc=False, tag="approval:requested"):
    request: Request


class ApprovalGranted(Event, frozen=True, gc=False, tag="approval:granted"):
    request_id: str
    by: str = ""
    why: str = ""
    arguments: MaybeRaw = UNSET
    sticky: bool = False


class ApprovalDenied(Event, frozen=True, gc=False, tag="approval:denied"):
    request_id: str
    by: str = ""
    why: str = ""


class ApprovalExpired(Event, frozen=True, gc=False, tag="approval:expired"):
    request_id: str


class RequestOpened(Event, frozen=True, gc=False, tag="request:opened"):
    """A question, a correction or a doubt: everything for people that is not an approval."""

    request: Request


class RequestAnswered(Event, frozen=True, gc=False, tag="request:answered"):
    request_id: str
    remedy: str = ""
    by: str = ""
    data: MaybeRaw = UNSET


# ---- money -----------------------------------------------------------------------------------------------------


class BudgetWarned(Event, frozen=True, gc=False, tag="budget:warned"):
    """More than the share of the limit that `warn_at` names is spent."""

    settled_micros: int
    limit_micros: int


class BudgetExhausted(Event, frozen=True, gc=False, tag="budget:exhausted"):
    """A step needs more than there is room for, and nothing that runs could give some back: a person is asked."""

    path: str
    needed_micros: int
    room_micros: int
    limit_micros: int


class BudgetRaised(Event, frozen=True, gc=False, tag="budget:raised"):
    """The limit is another one from now on. With a path, the child of that step was given the difference."""

    limit_micros: int
    by: str = ""
    path: str = ""


# ---- the machine -----------------------------------------------------------------------------------------------


class PressureFelt(Event, frozen=True, gc=False, tag="pressure:felt"):
    """The machine is short of something, and this execution waits for it to ease. Moves no status."""

    path: str
    stage: str  # tight: fewer steps at once; severe: only critical steps begin
    why: str = ""


# ---- outside and family ----------------------------------------------------------------------------------------


class EventReceived(Event, frozen=True, gc=False, tag="event:received"):
    name: str
    data: Raw = Raw(b"null")
    by: str = ""


class ChildStarted(Event, frozen=True, gc=False, tag="child:started"):
    path: str
    child_id: str
    reserved_micros: int | None = None


class ChildEnded(Event, frozen=True, gc=False, tag="child:ended"):
    path: str
    child_id: str
    status: str
    output: Raw = Raw(b"null")
    failure: Failure | None = None
    spent_micros: int | None = None  # null: nothing that it ran told a cost
    unknown: int = 0  # how many of the amounts in it are estimates


class PlanExtended(Event, frozen=True, gc=False, tag="plan:extended"):
    steps: Raw
    count: int
    by: str = ""


class CheckpointSaved(Event, frozen=True, gc=False, tag="checkpoint:saved"):
    """The history up to event `through` lies in a file of its own. Moves no status."""

    file: str  # where it lies, on the machine that wrote it
    through: int
    bytes: int
    ended: int = 0  # steps that had ended by then: the next checkpoint is counted from there


TaskEvent = (
    TaskCreated
    | TaskStarted
    | TaskRecovered
    | TaskWaiting
    | TaskPaused
    | TaskPauseExpiring
    | TaskResumed
    | TaskInterrupted
    | TaskStopped
    | TaskCompleted
    | TaskError
)
StepEvent = (
    StepStarted
    | StepWaiting
    | StepCompleted
    | StepFailed
    | StepRetrying
    | StepSkipped
    | StepInterrupted
    | StepInDoubt
    | StepNoted
    | StepLogged
    | StepDiverged
    | StepCarried
    | StepDiscarded
    | StepUndone
)
PeopleEvent = ApprovalRequested | ApprovalGranted | ApprovalDenied | ApprovalExpired | RequestOpened | RequestAnswered
BudgetEvent = BudgetWarned | BudgetExhausted | BudgetRaised
OtherEvent = PressureFelt | EventReceived | ChildStarted | ChildEnded | PlanExtended | CheckpointSaved
AnyEvent = TaskEvent | StepEvent | PeopleEvent | BudgetEvent | OtherEvent


def name_of(event: Event) -> str:
    """The public name of an event, such as `step:completed`."""
    return str(type(event).__struct_config__.tag)


# ---- live frames: shown to watchers while they look, never journaled -------------------------------------------

Phase = Literal["preparing", "running", "waiting", "finishing"]


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """`after` is the durable event this frame must not precede."""

    at: int
    after: int


class TaskMessage(Frame, frozen=True, gc=False, tag="task:message"):
    role: str
    content: str
    streaming: bool = False
    path: str = ""
    attempt: int = 1


class TaskToolCall(Frame, frozen=True, gc=False, tag="task:tool_call"):
    tool: str
    arguments: Raw
    call_id: str
    path: str = ""


class TaskProgress(Frame, frozen=True, gc=False, tag="task:progress_update"):
    percent: float
    step: str
    phase: Phase
    waiting_for: tuple[str, ...] = ()
    step_percent: float | None = None
    text: str = ""


AnyFrame = TaskMessage | TaskToolCall | TaskProgress
