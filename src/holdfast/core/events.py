"""Every fact that can be journaled, and the live frames that are only shown.

Events are in the past tense and never change once a release has written them: a new shape gets a new schema version
and an upcaster (journal/codec.py). Times are whole microseconds since 1970, UTC. Values (`Raw`) are JSON bytes, kept as
they were written, so that the first run and every replay see the same value.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.failure import Failure
from holdfast.core.policy import Concurrency, Effect

SCHEMA_VERSION = 1

MaybeRaw = Raw | UnsetType  # UNSET is "no value", which JSON's null is not; UNSET is falsy, every Raw value is true

StepKind = Literal["tool", "plan", "for_each", "wait", "approval", "child", "code"]
ReasonKind = Literal[
    "approval", "answer", "correction", "doubt", "budget", "quota", "timer", "event", "child", "driver"
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


class Blob(msgspec.Struct, frozen=True, kw_only=True, tag_field="holdfast", tag="blob"):
    """A value too large for its event; the bytes are in the blob table under their digest."""

    digest: str
    bytes: int


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything that needs a person: one shape for every card, inbox and prompt.

    `path` is the step it is about, `arguments` what would run, `schema` what an answer must look like, `remedies` what
    may be chosen.
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


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an execution waits: for what, at which step, and until when if that is known."""

    kind: ReasonKind
    path: str = ""
    due_at: int | None = None
    name: str = ""


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
    forced: tuple[str, ...] = ()


class TaskInterrupted(Event, frozen=True, gc=False, tag="task:interrupted"):
    by: str = ""
    why: str = ""


class TaskStopped(Event, frozen=True, gc=False, tag="task:stopped"):
    by: str = ""
    why: str = ""


class TaskCompleted(Event, frozen=True, gc=False, tag="task:completed"):
    output: Raw = Raw(b"null")


class TaskError(Event, frozen=True, gc=False, tag="task:error"):
    """The execution failed."""

    failure: Failure
    path: str = ""


# ---- steps -----------------------------------------------------------------------------------------------------


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


class StepWaiting(Event, frozen=True, gc=False, tag="step:waiting"):
    path: str
    reason: ReasonKind
    tool: str = ""
    kind: StepKind = "tool"
    due_at: int | None = None
    name: str = ""
    digest: str = ""


class StepCompleted(Event, frozen=True, gc=False, tag="step:completed"):
    path: str
    attempt: int = 1
    output: Raw = Raw(b"null")
    started_at: int = 0
    duration_us: int = 0
    tool: str = ""  # set when a fallback answered in place of the step's own tool
    cached: bool = False
    by: str = ""  # set when a person settled it
    consumed: int = 0  # for an event wait: the number of the event:received it took


class StepFailed(Event, frozen=True, gc=False, tag="step:failed"):
    path: str
    failure: Failure
    attempt: int = 1
    critical: bool = True
    started_at: int = 0
    duration_us: int = 0
    by: str = ""


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


class StepSkipped(Event, frozen=True, gc=False, tag="step:skipped"):
    path: str
    reason: str
    by: str = ""


class StepInterrupted(Event, frozen=True, gc=False, tag="step:interrupted"):
    path: str
    attempt: int = 1
    started_at: int = 0
    duration_us: int = 0


class StepInDoubt(Event, frozen=True, gc=False, tag="step:in_doubt"):
    """A `once` step may or may not have happened, and nobody but its policy or a person may guess."""

    path: str
    why: str
    attempt: int = 1


class StepNoted(Event, frozen=True, gc=False, tag="step:noted"):
    """Data an attempt wants handed back to the next attempt, at most 16 KB."""

    path: str
    data: Raw
    attempt: int = 1


class StepDiverged(Event, frozen=True, gc=False, tag="step:diverged"):
    """A plan asked for another input than the one recorded; the recorded outcome won. Moves no status."""

    path: str
    recorded: str
    attempted: str


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


# ---- outside and family ----------------------------------------------------------------------------------------


class EventReceived(Event, frozen=True, gc=False, tag="event:received"):
    name: str
    data: Raw = Raw(b"null")
    by: str = ""


class ChildStarted(Event, frozen=True, gc=False, tag="child:started"):
    path: str
    child_id: str


class ChildEnded(Event, frozen=True, gc=False, tag="child:ended"):
    path: str
    child_id: str
    status: str
    output: Raw = Raw(b"null")
    failure: Failure | None = None


class PlanExtended(Event, frozen=True, gc=False, tag="plan:extended"):
    steps: Raw
    count: int
    by: str = ""


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
    | StepDiverged
)
PeopleEvent = ApprovalRequested | ApprovalGranted | ApprovalDenied | ApprovalExpired | RequestOpened | RequestAnswered
OtherEvent = EventReceived | ChildStarted | ChildEnded | PlanExtended
AnyEvent = TaskEvent | StepEvent | PeopleEvent | OtherEvent


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
