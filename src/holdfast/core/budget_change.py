"""A person changes what an execution may spend: what follows from that, or why it cannot be."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core.budget import say_usd
from holdfast.core.execution import Execution


class BudgetChange(NamedTuple):
    """Without a limit of its own it adds to the one in force; `path` names the child who was given the difference."""

    limit_micros: int | None
    add_micros: int
    path: str
    by: str


def validation_error(state: Execution, change: BudgetChange) -> str:
    """Why the limit cannot be this one."""
    spend = state.spend
    if change.limit_micros is None and spend.limit_micros is None:
        return "it has no limit that could be raised; set one with --limit"
    limit = new_limit(state, change)
    if limit >= spend.committed_micros:
        return ""
    reserved = sum(spend.reserved.values())
    running = f", and {say_usd(reserved)} are reserved for what runs" if reserved else ""
    return f"the limit cannot be {say_usd(limit)}: {say_usd(spend.settled_micros)} are spent{running}"


def new_limit(state: Execution, change: BudgetChange) -> int:
    if change.limit_micros is not None:
        return change.limit_micros
    return (state.spend.limit_micros or 0) + change.add_micros


def raised(state: Execution, change: BudgetChange, at: int) -> list[ev.Event]:
    """The new limit, and a yes to every step that was stopped by the old one and fits under the new one."""
    limit = new_limit(state, change)
    asked = {one.request.path: one.request.id for one in state.open_requests() if one.request.kind == "budget"}
    answered = [asked[path] for path in state.spend.affordable(limit) if path in asked]
    return [
        ev.BudgetRaised(at=at, limit_micros=limit, by=change.by, path=change.path),
        *(ev.RequestAnswered(at=at, request_id=request, remedy="raised", by=change.by) for request in answered),
    ]
