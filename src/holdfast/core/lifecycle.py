"""The transition tables: which event moves which status. Everything about status lives here.

Each status is entered by exactly one kind of event, so a history says without doubt how an execution came to be where
it is. The diagrams in the documentation are drawn from these tables (`mermaid`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["queued", "running", "waiting", "paused", "interrupted", "completed", "failed", "stopped"]
StepStatus = Literal[
    "pending", "running", "waiting", "retrying", "completed", "failed", "skipped", "interrupted", "in_doubt"
]

ENDS: frozenset[str] = frozenset({"completed", "failed", "stopped"})
STEP_ENDS: frozenset[str] = frozenset({"completed", "failed", "skipped"})


class Move(NamedTuple):
    """An event enters `to`, and is legal only in the statuses `frm`."""

    frm: frozenset[str]
    to: str


def _move(to: str, *frm: str) -> Move:
    return Move(frozenset(frm), to)


NEW = "new"  # before task:created

TASK_MOVES: dict[str, Move] = {
    "task:created": _move("queued", NEW),
    "task:started": _move("running", "queued", "waiting", "paused", "interrupted"),
    "task:waiting": _move("waiting", "running", "waiting"),
    "task:paused": _move("paused", "queued", "running", "waiting"),
    "task:interrupted": _move("interrupted", "queued", "running", "waiting", "paused"),
    "task:completed": _move("completed", "running"),
    "task:error": _move("failed", "running"),
    "task:stopped": _move("stopped", "queued", "running", "waiting", "paused", "interrupted"),
}

# A step may be started from `running`: that is the next attempt after its driver died.
STEP_MOVES: dict[str, Move] = {
    "step:started": _move("running", "pending", "running", "waiting", "retrying", "interrupted", "in_doubt"),
    "step:waiting": _move("waiting", "pending", "running", "waiting", "retrying", "interrupted"),
    "step:retrying": _move("retrying", "running", "waiting", "in_doubt"),
    "step:completed": _move("completed", "running", "waiting", "in_doubt"),
    "step:failed": _move("failed", "pending", "running", "waiting", "retrying", "in_doubt", "interrupted"),
    "step:skipped": _move("skipped", "pending", "running", "waiting", "retrying", "in_doubt", "interrupted"),
    "step:interrupted": _move("interrupted", "running", "waiting", "retrying"),
    "step:in_doubt": _move("in_doubt", "running", "interrupted"),
}


def mermaid(moves: dict[str, Move], start: str) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for event, move in moves.items():
        label = event.partition(":")[2]
        for frm in sorted(move.frm):
            lines.append(f"    {'[*]' if frm == start else frm} --> {move.to}: {label}")
    for end in sorted(ENDS | STEP_ENDS):
        if any(move.to == end for move in moves.values()):
            lines.append(f"    {end} --> [*]")
    return "\n".join(lines)
