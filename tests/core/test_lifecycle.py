"""The transition tables: each status has one way in, and the fold knows no other moves."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec import Raw

from core.histories import BROKEN, CREATED, EVENT_TYPES, TO_STATUS, fold
from holdfast.core import events as ev
from holdfast.core.errors import StoreCorrupted
from holdfast.core.execution import Execution, Step
from holdfast.core.fold import apply
from holdfast.core.lifecycle import ENDS, NEW, STEP_ENDS, STEP_MOVES, TASK_MOVES, Move, Status, StepStatus, mermaid

TASK_EVENTS: dict[str, ev.Event] = {
    "task:created": CREATED,
    "task:started": ev.TaskStarted(at=9, because="woken"),
    "task:waiting": ev.TaskWaiting(at=9, reasons=()),
    "task:paused": ev.TaskPaused(at=9),
    "task:interrupted": ev.TaskInterrupted(at=9),
    "task:completed": ev.TaskCompleted(at=9),
    "task:error": ev.TaskError(at=9, failure=BROKEN),
    "task:stopped": ev.TaskStopped(at=9),
}
STEP_EVENTS: dict[str, ev.Event] = {
    "step:started": ev.StepStarted(at=9, path="a", tool="t"),
    "step:waiting": ev.StepWaiting(at=9, path="a", reason="timer"),
    "step:retrying": ev.StepRetrying(at=9, path="a", failure=BROKEN, due_at=10),
    "step:completed": ev.StepCompleted(at=9, path="a"),
    "step:failed": ev.StepFailed(at=9, path="a", failure=BROKEN),
    "step:skipped": ev.StepSkipped(at=9, path="a", reason="no"),
    "step:interrupted": ev.StepInterrupted(at=9, path="a"),
    "step:in_doubt": ev.StepInDoubt(at=9, path="a", why="died"),
}


@pytest.mark.parametrize(
    ("moves", "statuses", "first"),
    [(TASK_MOVES, get_args(Status), ()), (STEP_MOVES, get_args(StepStatus), ("pending",))],
    ids=["task", "step"],
)
def test_every_status_is_entered_by_exactly_one_kind_of_event(
    moves: dict[str, Move], statuses: tuple[str, ...], first: tuple[str, ...]
) -> None:
    entered = [move.to for move in moves.values()]
    assert sorted([*entered, *first]) == sorted(statuses)
    known = {*statuses, NEW}
    assert all(move.frm <= known for move in moves.values())


@pytest.mark.parametrize(("moves", "ends"), [(TASK_MOVES, ENDS), (STEP_MOVES, STEP_ENDS)], ids=["task", "step"])
def test_nothing_leaves_an_end(moves: dict[str, Move], ends: frozenset[str]) -> None:
    for move in moves.values():
        assert not move.frm & ends


def test_every_moving_event_is_an_event_that_exists() -> None:
    names = {kind.__struct_config__.tag for kind in EVENT_TYPES}
    assert {*TASK_MOVES, *STEP_MOVES} <= names
    assert (set(TASK_EVENTS), set(STEP_EVENTS)) == (set(TASK_MOVES), set(STEP_MOVES))


@pytest.mark.parametrize("tag", TASK_MOVES)
@pytest.mark.parametrize("status", [NEW, *get_args(Status)])
def test_the_fold_makes_exactly_the_moves_of_the_task_table(status: str, tag: str) -> None:
    state = fold(TO_STATUS.get(status, ()))
    assert state.status == status
    seq = state.seq
    if status in TASK_MOVES[tag].frm:
        apply(state, TASK_EVENTS[tag], seq + 1)
        assert state.status == TASK_MOVES[tag].to
        return
    with pytest.raises(StoreCorrupted, match=f"execution e1: {tag} cannot follow status {status}$"):
        apply(state, TASK_EVENTS[tag], seq + 1)
    assert (state.status, state.seq) == (status, seq)


@pytest.mark.parametrize("tag", STEP_MOVES)
@pytest.mark.parametrize("status", get_args(StepStatus))
def test_the_fold_makes_exactly_the_moves_of_the_step_table(status: StepStatus, tag: str) -> None:
    state = fold(TO_STATUS["running"])
    if status != "pending":
        state.steps["a"] = Step(path="a", status=status)
    before = set(state.steps)
    if status in STEP_MOVES[tag].frm:
        apply(state, STEP_EVENTS[tag], 3)
        assert state.steps["a"].status == STEP_MOVES[tag].to
        return
    with pytest.raises(StoreCorrupted, match=f"execution e1: {tag} cannot follow status {status} of step a"):
        apply(state, STEP_EVENTS[tag], 3)
    assert (set(state.steps), state.seq) == (before, 2)


@pytest.mark.parametrize(("moves", "start"), [(TASK_MOVES, NEW), (STEP_MOVES, "pending")], ids=["task", "step"])
def test_the_diagram_shows_every_move_and_every_end(moves: dict[str, Move], start: str) -> None:
    lines = [line.strip() for line in mermaid(moves, start).splitlines()]
    expected = {
        f"{'[*]' if frm == start else frm} --> {move.to}: {tag.partition(':')[2]}"
        for tag, move in moves.items()
        for frm in move.frm
    }
    ends = {
        f"{move.to} --> [*]" for move in moves.values() if not any(move.to in other.frm for other in moves.values())
    }
    assert lines[0] == "stateDiagram-v2"
    assert set(lines[1:]) == expected | ends
    assert len(lines) == 1 + len(expected) + len(ends)


def test_moves_that_change_no_status_leave_it_alone() -> None:
    state = fold(TO_STATUS["running"])
    for event in (
        ev.TaskRecovered(at=9, driver="d2"),
        ev.TaskPauseExpiring(at=9, due_at=10, then="stop"),
        ev.TaskResumed(at=9),
        ev.EventReceived(at=9, name="x"),
        ev.PlanExtended(at=9, steps=Raw(b"[]"), count=0),
    ):
        apply(state, event, state.seq + 1)
        assert state.status == "running"


def test_a_new_execution_has_no_facts() -> None:
    with pytest.raises(StoreCorrupted, match="execution e1 has no task:created event"):
        Execution(id="e1").facts()
