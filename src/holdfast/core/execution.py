"""The fold: events in, one execution's state out. Nothing else may change an `Execution`.

The state is a view that can be thrown away and folded again; a snapshot is nothing but this view written down. It keeps
what a program needs to be replayed and what a person needs to look at, not the whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import events as ev
from holdfast.core.errors import StoreCorrupted
from holdfast.core.failure import Category, Failure
from holdfast.core.lifecycle import ENDS, NEW, STEP_MOVES, TASK_MOVES, StepStatus
from holdfast.core.policy import Effect

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
    attempts: list[Attempt] = []
    started_at: int = 0
    ended_at: int = 0
    output: Raw = Raw(b"null")
    failure: Failure | None = None
    critical: bool = True
    reason: str = ""  # why it was skipped, is in doubt, or what it waits for
    name: str = ""  # the event it waits for
    due_at: int | None = None
    request_id: str = ""
    decided: tuple[str, str, str] = ("", "", "")  # the last request about it: its kind, what was said, and by whom
    cached: bool = False
    by: str = ""
    notes: ev.MaybeRaw = UNSET
    total: int = 0  # children of a container: expected, and ended so far
    ended: int = 0
    retries: int = 0
    rate_limit_waits: int = 0
    fallback: int = 0
    reduced: bool = False
    refreshed: bool = False
    diverged: bool = False


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
    status: str = "queued"
    output: Raw = Raw(b"null")
    failure: Failure | None = None


class Execution(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of a task, as far as its journal says."""

    id: str
    seq: int = 0
    last_at: int = 0
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
    output: Raw = Raw(b"null")
    failure: Failure | None = None
    failed_path: str = ""
    total: int = 0
    ended: int = 0
    steps: dict[str, Step] = {}
    open_steps: set[str] = set()  # paths that are not ended: what a crash leaves to settle
    requests: dict[str, Asked] = {}
    sticky: set[str] = set()  # tools approved for the rest of this execution
    mailbox: dict[str, list[Received]] = {}
    children: dict[str, Child] = {}
    extensions: list[Raw] = []
    recoveries: int = 0
    accepted: tuple[str, ...] = ()  # differences a person resumed it in spite of
    snapshot_seq: int = 0  # where its newest snapshot stands; the only thing here that no event says

    @property
    def is_ended(self) -> bool:
        return self.status in ENDS

    def facts(self) -> ev.TaskCreated:
        """What was handed in; every execution that exists has it."""
        if self.created is None:
            raise StoreCorrupted(f"execution {self.id} has no task:created event")
        return self.created

    def open_requests(self) -> Iterator[Asked]:
        return (asked for asked in self.requests.values() if not asked.answered)

    def running_steps(self) -> list[Step]:
        return [step for path in sorted(self.open_steps) if (step := self.steps[path]).status == "running"]


def apply(state: Execution, event: ev.Event, seq: int) -> None:
    """Fold one event into the state. An event that cannot follow is refused: no bad history is ever built on."""
    if seq != state.seq + 1:
        raise StoreCorrupted(f"execution {state.id}: event {seq} follows event {state.seq}; numbers must have no gaps")
    _FOLD[type(event)](state, event)
    state.seq = seq
    state.last_at = max(state.last_at, event.at)


def percent(state: Execution) -> float:
    """How much is done, in percent, counting a running milestone by its own share."""
    if state.status == "completed":
        return 100.0
    if not state.total:
        return 0.0
    done = float(state.ended)
    for path in state.open_steps:
        step = state.steps[path]
        if step.total and parent_of(path) == "":
            done += min(1.0, step.ended / step.total)
    return min(100.0, 100.0 * done / state.total)


def parent_of(path: str) -> str:
    """`a/b[3]` → `a/b` → `a` → ``."""
    if path.endswith("]"):
        return path[: path.rindex("[")]
    return path.rpartition("/")[0]


# ---- moving ----------------------------------------------------------------------------------------------------


def _enter(state: Execution, tag: str) -> None:
    move = TASK_MOVES[tag]
    if state.status not in move.frm:
        raise StoreCorrupted(f"execution {state.id}: {tag} cannot follow status {state.status}")
    state.status = move.to
    if move.to != "waiting":
        state.reasons = ()
    if move.to != "paused":
        state.pause_until = None


def _step(state: Execution, path: str, tag: str) -> Step:
    step = state.steps.get(path)
    status = "pending" if step is None else step.status
    move = STEP_MOVES[tag]
    if status not in move.frm:
        raise StoreCorrupted(f"execution {state.id}: {tag} cannot follow status {status} of step {path}")
    if step is None:
        step = state.steps[path] = Step(path=path)
    step.status = move.to  # pyright: ignore[reportAttributeAccessIssue] -- the table holds only step statuses
    return step


def _end_step(state: Execution, step: Step, at: int) -> None:
    step.ended_at = at
    step.due_at = None
    step.arguments = UNSET
    state.open_steps.discard(step.path)
    if step.request_id:
        state.requests.pop(step.request_id, None)
        step.request_id = ""
    parent = parent_of(step.path)
    if not parent:
        state.ended += 1
    elif (container := state.steps.get(parent)) is not None:
        container.ended += 1


def _end_attempt(step: Step, event: Any, outcome: str, failure: Failure | None = None) -> None:
    if not step.attempts or step.attempts[-1].outcome:
        return
    attempt = step.attempts[-1]
    attempt.outcome = outcome
    attempt.ended_at = event.at
    attempt.duration_us = getattr(event, "duration_us", 0)
    if failure is not None:
        attempt.category = failure.category
        attempt.message = failure.message


# ---- the task --------------------------------------------------------------------------------------------------


def _created(state: Execution, event: ev.TaskCreated) -> None:
    _enter(state, "task:created")
    state.created = event
    state.title = event.title
    state.total = event.total


def _started(state: Execution, event: ev.TaskStarted) -> None:
    _enter(state, "task:started")
    state.by = state.why = ""
    state.pause_announced = False
    if not state.started_at:
        state.started_at = event.at


def _recovered(state: Execution, event: ev.TaskRecovered) -> None:
    state.recoveries += 1


def _waiting(state: Execution, event: ev.TaskWaiting) -> None:
    _enter(state, "task:waiting")
    state.reasons = event.reasons


def _paused(state: Execution, event: ev.TaskPaused) -> None:
    _enter(state, "task:paused")
    state.by, state.why = event.by, event.why
    state.pause_until, state.on_pause_timeout = event.until, event.on_timeout


def _pause_expiring(state: Execution, event: ev.TaskPauseExpiring) -> None:
    state.pause_announced = True


def _resumed(state: Execution, event: ev.TaskResumed) -> None:
    state.by, state.why = event.by, event.why
    state.accepted = (*state.accepted, *event.forced)


def _interrupted(state: Execution, event: ev.TaskInterrupted) -> None:
    _enter(state, "task:interrupted")
    state.by, state.why = event.by, event.why


def _task_end(state: Execution, at: int) -> None:
    state.ended_at = at
    state.requests.clear()
    state.mailbox.clear()


def _stopped(state: Execution, event: ev.TaskStopped) -> None:
    _enter(state, "task:stopped")
    state.by, state.why = event.by, event.why
    _task_end(state, event.at)


def _completed(state: Execution, event: ev.TaskCompleted) -> None:
    _enter(state, "task:completed")
    state.output = event.output
    _task_end(state, event.at)


def _error(state: Execution, event: ev.TaskError) -> None:
    _enter(state, "task:error")
    state.failure = event.failure
    state.failed_path = event.path
    _task_end(state, event.at)


# ---- steps -----------------------------------------------------------------------------------------------------


def _step_started(state: Execution, event: ev.StepStarted) -> None:
    step = _step(state, event.path, "step:started")
    if step.attempts and not step.attempts[-1].outcome:
        step.attempts[-1].outcome = "lost"  # its driver died before it could say
    step.tool, step.kind, step.effect = event.tool, event.kind, event.effect
    step.digest, step.arguments = event.digest, event.arguments
    step.attempt, step.total, step.title = event.attempt, event.total, event.title
    step.fallback, step.reduced, step.refreshed = event.fallback, event.reduced, event.refreshed
    step.due_at = None
    step.reason = ""
    step.started_at = event.at
    state.open_steps.add(event.path)
    if event.kind in ("tool", "code"):
        if len(step.attempts) >= ATTEMPTS_KEPT:
            del step.attempts[1]  # the first and the newest are the ones people look at
        attempt = Attempt(number=event.attempt, tool=event.tool, started_at=event.at)
        step.attempts = [*step.attempts, attempt] if step.attempts else [attempt]
    if step.request_id:
        state.requests.pop(step.request_id, None)
        step.request_id = ""


def _step_waiting(state: Execution, event: ev.StepWaiting) -> None:
    step = _step(state, event.path, "step:waiting")
    step.reason = event.reason
    step.due_at = event.due_at
    step.name = event.name
    step.tool = event.tool or step.tool
    step.kind = event.kind
    state.open_steps.add(event.path)


def _step_completed(state: Execution, event: ev.StepCompleted) -> None:
    step = _step(state, event.path, "step:completed")
    _end_attempt(step, event, "completed")
    step.output = event.output
    step.failure = None
    step.reason = ""
    step.cached = event.cached
    step.by = event.by
    if event.consumed:
        _take(state, step.name, event.consumed)
    _end_step(state, step, event.at)


def _take(state: Execution, name: str, seq: int) -> None:
    left = [received for received in state.mailbox.get(name, []) if received.seq != seq]
    if left:
        state.mailbox[name] = left
    else:
        state.mailbox.pop(name, None)


def _step_failed(state: Execution, event: ev.StepFailed) -> None:
    step = _step(state, event.path, "step:failed")
    _end_attempt(step, event, "failed", event.failure)
    step.failure = event.failure
    step.critical = event.critical
    step.by = event.by
    _end_step(state, step, event.at)


def _step_retrying(state: Execution, event: ev.StepRetrying) -> None:
    step = _step(state, event.path, "step:retrying")
    _end_attempt(step, event, "failed", event.failure)
    step.failure = event.failure
    step.due_at = event.due_at
    changed = (event.reduced, event.refreshed) != (step.reduced, step.refreshed)
    step.reduced, step.refreshed = event.reduced, event.refreshed
    if event.fallback != step.fallback:
        step.fallback = event.fallback
        step.retries = 0  # a new tool starts with a clean slate
    elif event.failure.category == "rate_limit":
        step.rate_limit_waits += 1
    elif not changed:
        step.retries += 1


def _step_skipped(state: Execution, event: ev.StepSkipped) -> None:
    step = _step(state, event.path, "step:skipped")
    step.reason = event.reason
    step.by = event.by
    _end_step(state, step, event.at)


def _step_interrupted(state: Execution, event: ev.StepInterrupted) -> None:
    step = _step(state, event.path, "step:interrupted")
    _end_attempt(step, event, "interrupted")


def _step_in_doubt(state: Execution, event: ev.StepInDoubt) -> None:
    step = _step(state, event.path, "step:in_doubt")
    _end_attempt(step, event, "unknown")
    step.reason = event.why


def _step_noted(state: Execution, event: ev.StepNoted) -> None:
    _known_step(state, event.path, "step:noted").notes = event.data


def _step_diverged(state: Execution, event: ev.StepDiverged) -> None:
    _known_step(state, event.path, "step:diverged").diverged = True


def _known_step(state: Execution, path: str, tag: str) -> Step:
    step = state.steps.get(path)
    if step is None:
        raise StoreCorrupted(f"execution {state.id}: {tag} for {path}, which never started")
    return step


# ---- people ----------------------------------------------------------------------------------------------------


def _asked(state: Execution, event: ev.ApprovalRequested | ev.RequestOpened) -> None:
    request = event.request
    state.requests[request.id] = Asked(request=request, opened_at=event.at)
    step = state.steps.get(request.path)
    if step is not None:
        step.request_id = request.id
        step.failure = request.failure or step.failure


def _answer(state: Execution, request_id: str, remedy: str, by: str, why: str = "", data: ev.MaybeRaw = UNSET) -> None:
    asked = state.requests.get(request_id)
    if asked is None or asked.answered:
        raise StoreCorrupted(f"execution {state.id}: an answer to request {request_id}, which is not open")
    asked.answered = True
    asked.remedy, asked.by, asked.why, asked.data = remedy, by, why, data
    step = state.steps.get(asked.request.path)
    if step is not None:
        step.decided = (asked.request.kind, remedy, by)


def _granted(state: Execution, event: ev.ApprovalGranted) -> None:
    _answer(state, event.request_id, "granted", event.by, event.why, event.arguments)
    if event.sticky:
        state.sticky.add(state.requests[event.request_id].request.tool)


def _denied(state: Execution, event: ev.ApprovalDenied) -> None:
    _answer(state, event.request_id, "denied", event.by, event.why)


def _expired(state: Execution, event: ev.ApprovalExpired) -> None:
    _answer(state, event.request_id, "expired", "")


def _request_answered(state: Execution, event: ev.RequestAnswered) -> None:
    _answer(state, event.request_id, event.remedy, event.by, "", event.data)


# ---- outside and family ----------------------------------------------------------------------------------------


def _received(state: Execution, event: ev.EventReceived) -> None:
    state.mailbox.setdefault(event.name, []).append(Received(state.seq + 1, event.data))


def _child_started(state: Execution, event: ev.ChildStarted) -> None:
    state.children[event.path] = Child(id=event.child_id, path=event.path)


def _child_ended(state: Execution, event: ev.ChildEnded) -> None:
    child = state.children.get(event.path)
    if child is None or child.id != event.child_id:
        raise StoreCorrupted(
            f"execution {state.id}: child:ended for {event.child_id}, which {event.path} never started"
        )
    child.status, child.output, child.failure = event.status, event.output, event.failure


def _extended(state: Execution, event: ev.PlanExtended) -> None:
    state.extensions.append(event.steps)
    state.total += event.count


_FOLD: dict[type[ev.Event], Callable[[Execution, Any], None]] = {
    ev.TaskCreated: _created,
    ev.TaskStarted: _started,
    ev.TaskRecovered: _recovered,
    ev.TaskWaiting: _waiting,
    ev.TaskPaused: _paused,
    ev.TaskPauseExpiring: _pause_expiring,
    ev.TaskResumed: _resumed,
    ev.TaskInterrupted: _interrupted,
    ev.TaskStopped: _stopped,
    ev.TaskCompleted: _completed,
    ev.TaskError: _error,
    ev.StepStarted: _step_started,
    ev.StepWaiting: _step_waiting,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.StepRetrying: _step_retrying,
    ev.StepSkipped: _step_skipped,
    ev.StepInterrupted: _step_interrupted,
    ev.StepInDoubt: _step_in_doubt,
    ev.StepNoted: _step_noted,
    ev.StepDiverged: _step_diverged,
    ev.ApprovalRequested: _asked,
    ev.RequestOpened: _asked,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: _denied,
    ev.ApprovalExpired: _expired,
    ev.RequestAnswered: _request_answered,
    ev.EventReceived: _received,
    ev.ChildStarted: _child_started,
    ev.ChildEnded: _child_ended,
    ev.PlanExtended: _extended,
}
assert set(_FOLD) == set(ev.AnyEvent.__args__), "every event needs its fold"
