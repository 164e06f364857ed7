"""The fold's part about money: what each event does to an execution's `Spend`.

An open reservation always belongs to an attempt that runs or to a child that is not over. Whatever ends it without
saying what it came to leaves its estimate behind, counted as unknown.
"""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.execution import Execution

Ending = ev.StepWaiting | ev.StepCompleted | ev.StepFailed | ev.StepRetrying | ev.StepInterrupted | ev.StepInDoubt


def given(state: Execution, event: ev.TaskCreated) -> None:
    if event.budget is not None:
        state.spend.limit_micros, state.spend.warn_at = event.budget.limit_micros, event.budget.warn_at


def reserved(state: Execution, event: ev.StepStarted) -> None:
    state.spend.settle(event.path, None)  # if an attempt before it was lost
    if event.reserved_micros:
        state.spend.reserve(event.path, event.reserved_micros)


def settled(state: Execution, event: Ending | ev.StepSkipped) -> None:
    spent = None if isinstance(event, ev.StepSkipped) else event.spent_micros
    state.spend.settle(event.path, spent)


def closed(state: Execution) -> None:
    """The execution is over: whatever is still out there, nobody will hear what it came to."""
    for path in list(state.spend.reserved):
        state.spend.settle(path, None)
    state.spend.wanted.clear()


def warned(state: Execution, event: ev.BudgetWarned) -> None:
    state.spend.warned = True


def exhausted(state: Execution, event: ev.BudgetExhausted) -> None:
    state.spend.wanted[event.path] = event.needed_micros


def raised(state: Execution, event: ev.BudgetRaised) -> None:
    spend = state.spend
    if event.path in spend.reserved:
        spend.reserved[event.path] += event.limit_micros - (spend.limit_micros or 0)
    spend.change_limit(event.limit_micros)


def child_started(state: Execution, event: ev.ChildStarted) -> None:
    if event.reserved_micros is not None:
        state.spend.reserve(event.path, event.reserved_micros)


def child_ended(state: Execution, event: ev.ChildEnded) -> None:
    state.spend.reserved.pop(event.path, None)
    if event.spent_micros is not None:
        state.spend.count(event.spent_micros, event.unknown)
