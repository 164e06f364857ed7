"""The fold: events in, one execution's state out. Nothing else may change an `Execution`.

An event that cannot follow is refused and changes nothing, so that no bad history is ever built on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from holdfast.core import events as ev
from holdfast.core import fold_budget
from holdfast.core.errors import StoreCorrupted
from holdfast.core.execution import (
    ATTEMPTS_KEPT,
    Asked,
    Attempt,
    CarriedNote,
    Child,
    Execution,
    Received,
    Step,
    parent_of,
)
from holdfast.core.failure import Failure
from holdfast.core.lifecycle import STEP_ENDS, STEP_MOVES, TASK_MOVES
from holdfast.core.resources import Usage
from holdfast.core.skips import code_of


def apply(state: Execution, event: ev.Event, seq: int) -> None:
    """Fold one event into the state. An event that cannot follow is refused: no bad history is ever built on."""
    if seq != state.seq + 1:
        raise StoreCorrupted(
            f"execution {state.id}: event {seq} follows event {state.seq}; numbers must have no gaps",
            execution_id=state.id,
        )
    _FOLD[type(event)](state, event)
    state.seq = seq
    state.last_at = max(state.last_at, event.at)


# ---- moving ----------------------------------------------------------------------------------------------------


def _enter(state: Execution, tag: str) -> None:
    move = TASK_MOVES[tag]
    if state.status not in move.frm:
        raise StoreCorrupted(f"execution {state.id}: {tag} cannot follow status {state.status}", execution_id=state.id)
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
        raise StoreCorrupted(
            f"execution {state.id}: {tag} cannot follow status {status} of step {path}", execution_id=state.id
        )
    if step is None:
        step = state.steps[path] = Step(path=path, kept=not state.started_at)
    step.status = move.to  # pyright: ignore[reportAttributeAccessIssue] -- the table holds only step statuses
    return step


def _end_step(state: Execution, step: Step, at: int) -> None:
    step.ended_at = at
    step.ended_seq = state.seq + 1
    step.due_at = None
    step.arguments = UNSET
    state.open_steps.discard(step.path)
    state.is_shaky = False
    _close_request(state, step)
    _count_ended(state, step.path, 1)


def _count_ended(state: Execution, path: str, change: int) -> None:
    parent = parent_of(path)
    if not parent:
        state.ended += change
    elif (container := state.steps.get(parent) or state.carried.get(parent)) is not None:
        container.ended += change


_UNKNOWN = ("unknown", "lost")  # outcomes that leave open whether it happened


def _end_attempt(step: Step, event: Any, outcome: str, failure: Failure | None = None) -> None:
    if not step.attempts or step.attempts[-1].outcome:
        return
    attempt = step.attempts[-1]
    attempt.outcome = outcome
    step.doubts = step.doubts + 1 if outcome in _UNKNOWN else 0
    attempt.ended_at = event.at
    attempt.duration_us = getattr(event, "duration_us", 0)
    _count_used(step, getattr(event, "used", None))
    if failure is not None:
        attempt.category = failure.category
        attempt.message = failure.message


def _count_used(step: Step, used: Usage | None) -> None:
    if used is not None:
        step.used = used if step.used is None else step.used.plus(used)


# ---- the task --------------------------------------------------------------------------------------------------


def _created(state: Execution, event: ev.TaskCreated) -> None:
    _enter(state, "task:created")
    state.created = event
    state.title = event.title
    state.total = event.total
    fold_budget.given(state, event)


def _started(state: Execution, event: ev.TaskStarted) -> None:
    _enter(state, "task:started")
    state.by = state.why = ""
    state.pause_announced = False
    if event.because != "resumed":
        state.pause_over = 0
    if not state.started_at:
        state.started_at = event.at
        state.copied = state.seq


def _recovered(state: Execution, event: ev.TaskRecovered) -> None:
    state.recoveries += 1
    state.is_shaky = True


def _waiting(state: Execution, event: ev.TaskWaiting) -> None:
    _enter(state, "task:waiting")
    state.reasons = event.reasons


def _paused(state: Execution, event: ev.TaskPaused) -> None:
    _enter(state, "task:paused")
    state.by, state.why = event.by, event.why
    state.pause_until, state.on_pause_timeout = event.until, event.on_timeout
    state.pause_over = 0


def _pause_expiring(state: Execution, event: ev.TaskPauseExpiring) -> None:
    state.pause_announced = True


def _resumed(state: Execution, event: ev.TaskResumed) -> None:
    state.by, state.why = event.by, event.why
    state.accepted = (*state.accepted, *event.forced)
    state.accepted_differences = (*state.accepted_differences, *event.accepted)
    if event.pause_limit is not None:
        state.pause_over = state.seq + 1
        state.stopping = event.pause_limit == "stop"


def _interrupted(state: Execution, event: ev.TaskInterrupted) -> None:
    _enter(state, "task:interrupted")
    state.by, state.why = event.by, event.why


def _task_end(state: Execution, at: int) -> None:
    state.ended_at = at
    fold_budget.closed(state)
    state.requests.clear()
    state.mailbox.clear()


def _stopped(state: Execution, event: ev.TaskStopped) -> None:
    _enter(state, "task:stopped")
    state.by, state.why = event.by, event.why
    if event.pause_limit and not state.stopping:  # or else that was said when its `finally` steps began
        state.pause_over = state.seq + 1
    _task_end(state, event.at)


def _completed(state: Execution, event: ev.TaskCompleted) -> None:
    _enter(state, "task:completed")
    state.output = event.output
    state.failures = event.failures
    _task_end(state, event.at)


def _error(state: Execution, event: ev.TaskError) -> None:
    _enter(state, "task:error")
    state.failure = event.failure
    state.failed_path = event.path
    state.trace = event.trace
    _task_end(state, event.at)


# ---- steps -----------------------------------------------------------------------------------------------------


def _step_started(state: Execution, event: ev.StepStarted) -> None:
    step = _step(state, event.path, "step:started")
    if step.attempts and not step.attempts[-1].outcome:
        step.attempts[-1].outcome = "lost"  # its driver died before it could say
        step.doubts += 1
    if step.digest and event.digest and step.digest != event.digest:  # another input is another effect
        step.call_key, step.notes = "", UNSET
    step.tool, step.kind, step.effect = event.tool, event.kind, event.effect
    step.digest, step.arguments = event.digest, event.arguments
    step.kept, step.accepted, step.child_id = not state.started_at, "", event.child_id
    step.fallback_digest = event.fallback_digest
    step.attempt, step.total, step.title = event.attempt, event.total, event.title
    step.fallback, step.reduced, step.refreshed = event.fallback, event.reduced, event.refreshed
    step.secrets = event.secrets
    step.due_at = None
    step.reason = ""
    step.started_at = event.at
    step.started_seq = state.seq + 1
    if state.carried and (carried := state.carried.pop(event.path, None)) is not None:
        step.ended = carried.ended
        if carried.is_for(event):
            step.notes, step.noted_by, step.call_key = carried.notes, carried.tool, carried.call_key
    state.open_steps.add(event.path)
    if event.reserved_micros or state.spend.reserved:
        fold_budget.reserved(state, event)
    if event.kind in ("tool", "code"):
        kept = step.attempts
        if len(kept) >= ATTEMPTS_KEPT:
            kept = (kept[0], *kept[2:])  # the first and the newest are the ones people look at
        attempt = Attempt(number=event.attempt, tool=event.tool, started_at=event.at)
        step.attempts = (*kept, attempt) if kept else (attempt,)
    _close_request(state, step)


def _step_waiting(state: Execution, event: ev.StepWaiting) -> None:
    step = _step(state, event.path, "step:waiting")
    step.reason = event.reason
    step.due_at = event.due_at
    step.name = event.name
    step.tool = event.tool or step.tool
    step.kind = event.kind
    step.digest = event.digest or step.digest
    _count_used(step, event.used)
    state.open_steps.add(event.path)
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)


def _step_completed(state: Execution, event: ev.StepCompleted) -> None:
    step = _step(state, event.path, "step:completed")
    _end_attempt(step, event, "completed")
    step.output = event.output
    step.failure = None
    step.reason = ""
    step.cached = event.cached
    step.by = event.by
    if event.warning:
        step.warning = event.warning
    if event.consumed:
        _take(state, step.name, event.consumed)
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)
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
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)
    _end_step(state, step, event.at)


def _step_retrying(state: Execution, event: ev.StepRetrying) -> None:
    step = _step(state, event.path, "step:retrying")
    _end_attempt(step, event, "failed", event.failure)
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)
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
    state.spend.wanted.pop(event.path, None)
    if state.spend.reserved:
        fold_budget.settled(state, event)
    step.reason = event.reason
    step.skip_code = code_of(event.code, event.reason)
    step.by = event.by
    step.critical = event.critical
    if event.tool:
        step.tool, step.kind = event.tool, event.kind
    _end_step(state, step, event.at)


def _step_interrupted(state: Execution, event: ev.StepInterrupted) -> None:
    step = _step(state, event.path, "step:interrupted")
    _end_attempt(step, event, "lost" if event.lost else "interrupted")
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)


def _step_in_doubt(state: Execution, event: ev.StepInDoubt) -> None:
    step = _step(state, event.path, "step:in_doubt")
    _end_attempt(step, event, "unknown")
    if event.spent_micros is not None or state.spend.reserved:
        fold_budget.settled(state, event)
    step.reason = event.why
    step.failure = event.failure or step.failure
    step.call_key = event.call_key or step.call_key


def _step_noted(state: Execution, event: ev.StepNoted) -> None:
    if event.tool and event.path not in state.steps:
        state.carried[event.path] = CarriedNote(event.tool, event.call_key, event.data)
        return
    step = _known_step(state, event.path, "step:noted")
    step.notes, step.noted_by = event.data, event.tool or step.tool
    step.call_key = event.call_key or step.call_key


def _step_logged(state: Execution, event: ev.StepLogged) -> None:
    _known_step(state, event.path, "step:logged")  # the journal alone keeps it: no program and no list needs it


def _pressure_felt(state: Execution, event: ev.PressureFelt) -> None:
    """For people to read; what waits for it says so itself."""


def _step_diverged(state: Execution, event: ev.StepDiverged) -> None:
    step = _known_step(state, event.path, "step:diverged")
    step.diverged = True
    if event.kept:
        step.accepted = event.attempted
        _close_request(state, step)


def _step_carried(state: Execution, event: ev.StepCarried) -> None:
    state.carried[event.path] = CarriedNote(event.tool, event.call_key, event.notes, event.digest, event.child_id)


def _step_discarded(state: Execution, event: ev.StepDiscarded) -> None:
    """The one event that takes a step out of the tree: as if it had not been copied."""
    step = _known_step(state, event.path, "step:discarded")
    if not step.kept:
        raise StoreCorrupted(f"execution {state.id}: step:discarded for {event.path}, which was not copied")
    _close_request(state, step)
    del state.steps[event.path]
    state.open_steps.discard(event.path)
    if step.status in STEP_ENDS:
        _count_ended(state, event.path, -1)


def _step_undone(state: Execution, event: ev.StepUndone) -> None:
    _known_step(state, event.path, "step:undone").undone = True


def _close_request(state: Execution, step: Step) -> None:
    if step.request_id:
        state.requests.pop(step.request_id, None)
        step.request_id = ""


def _known_step(state: Execution, path: str, tag: str) -> Step:
    step = state.steps.get(path)
    if step is None:
        raise StoreCorrupted(f"execution {state.id}: {tag} for {path}, which never started", execution_id=state.id)
    return step


# ---- people ----------------------------------------------------------------------------------------------------


def _asked(state: Execution, event: ev.ApprovalRequested | ev.RequestOpened) -> None:
    request = event.request
    state.requests[request.id] = Asked(request=request, opened_at=event.at)
    step = state.steps.get(request.path)
    if step is not None:
        state.requests.pop(step.request_id, None)  # one that was answered, and led to this one
        step.request_id = request.id
        step.failure = request.failure or step.failure


def _answer(state: Execution, request_id: str, remedy: str, by: str, why: str = "", data: ev.MaybeRaw = UNSET) -> None:
    asked = state.requests.get(request_id)
    if asked is None or asked.answered:
        raise StoreCorrupted(
            f"execution {state.id}: an answer to request {request_id}, which is not open", execution_id=state.id
        )
    asked.answered = True
    asked.remedy, asked.by, asked.why, asked.data = remedy, by, why, data
    state.spend.wanted.pop(asked.request.path, None)
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
    state.children[event.path] = Child(id=event.child_id, path=event.path, started_seq=state.seq + 1)
    fold_budget.child_started(state, event)


def _child_ended(state: Execution, event: ev.ChildEnded) -> None:
    child = state.children.get(event.path)
    if child is None or child.id != event.child_id:
        raise StoreCorrupted(
            f"execution {state.id}: child:ended for {event.child_id}, which {event.path} never started",
            execution_id=state.id,
        )
    child.status, child.output, child.failure = event.status, event.output, event.failure
    fold_budget.child_ended(state, event)


def _extended(state: Execution, event: ev.PlanExtended) -> None:
    state.extensions.append(event.steps)
    state.total += event.count


def _saved(state: Execution, event: ev.CheckpointSaved) -> None:
    state.checkpoint = event


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
    ev.StepLogged: _step_logged,
    ev.StepDiverged: _step_diverged,
    ev.StepCarried: _step_carried,
    ev.StepDiscarded: _step_discarded,
    ev.StepUndone: _step_undone,
    ev.ApprovalRequested: _asked,
    ev.RequestOpened: _asked,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: _denied,
    ev.ApprovalExpired: _expired,
    ev.RequestAnswered: _request_answered,
    ev.BudgetWarned: fold_budget.warned,
    ev.BudgetExhausted: fold_budget.exhausted,
    ev.BudgetRaised: fold_budget.raised,
    ev.PressureFelt: _pressure_felt,
    ev.EventReceived: _received,
    ev.ChildStarted: _child_started,
    ev.ChildEnded: _child_ended,
    ev.PlanExtended: _extended,
    ev.CheckpointSaved: _saved,
}
assert set(_FOLD) == set(ev.AnyEvent.__args__), "every event needs its fold"
