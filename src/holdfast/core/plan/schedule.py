"""Which steps of a list are ready, and which are left out because of what became of others.

Pure and incremental: settling a step touches only the steps that need it. Nothing here knows how a step is run.

A step is ready when all it needs has ended. A failure that is not critical is lived with, except by `optional` steps:
they are left out when something they need failed, was itself left out, or had no tool to use. A step skipped by its
`when` has simply ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Literal

from holdfast.core.plan.model import PlanStep
from holdfast.core.skips import NEED_LOST, Skip, need_lost, step_failed

Outcome = Literal["completed", "failed", "skipped", "unavailable"]
_State = Literal["pending", "taken", "completed", "failed", "skipped", "unavailable", "left_out", "abandoned"]


class Schedule:
    def __init__(self, steps: Iterable[PlanStep] = ()) -> None:
        self._steps: list[PlanStep] = []
        self._number: dict[str, int] = {}
        self._states: list[_State] = []
        self._missing: list[int] = []  # how many needs have not ended yet
        self._dependents: list[list[int]] = []
        self._ready: list[int] = []  # a heap, so that steps are handed out in the order they were written
        self._skips: list[tuple[int, Skip]] = []
        self.ended = 0
        self.add(steps)

    @property
    def total(self) -> int:
        return len(self._steps)

    @property
    def done(self) -> bool:
        return self.ended == len(self._steps)

    def add(self, steps: Iterable[PlanStep]) -> None:
        """New steps may need each other in any order, and steps that ended long ago."""
        first = len(self._steps)
        for step in steps:
            self._number[step.id] = len(self._steps)
            self._steps.append(step)
            self._states.append("pending")
            self._missing.append(0)
            self._dependents.append([])
        for number in range(first, len(self._steps)):
            self._connect(number)

    def take_ready(self) -> list[PlanStep]:
        """Each ready step once, in the order of the plan."""
        taken: list[PlanStep] = []
        while self._ready:
            number = heapq.heappop(self._ready)
            if self._states[number] == "pending":
                self._states[number] = "taken"
                taken.append(self._steps[number])
        return taken

    def settle(self, step_id: str, outcome: Outcome) -> None:
        """A step ended: `skipped` by its condition or by a person, `unavailable` when its tool cannot be used."""
        number = self._number[step_id]
        if self._states[number] not in ("pending", "taken"):
            raise ValueError(f"step {step_id} has ended already ({self._states[number]})")
        self._end(number, outcome)

    def skips(self) -> list[tuple[PlanStep, Skip]]:
        """Optional steps left out since the last call, each with its reason."""
        found, self._skips = sorted(self._skips), []
        return [(self._steps[number], reason) for number, reason in found]

    def abandon(self, step_id: str, begun: Callable[[str], bool]) -> list[tuple[PlanStep, Skip]]:
        """After a critical failure: every step that was not handed out, which now never will be.

        A step that had `begun` before a restart is not left out: like every step that runs, it is taken to its end.
        """
        reason = step_failed(step_id)
        abandoned: list[tuple[PlanStep, Skip]] = []
        pending = [number for number, state in enumerate(self._states) if state == "pending"]
        kept = self._reachable({number for number in pending if begun(self._steps[number].id)})
        for number in pending:
            if number not in kept:
                self._states[number] = "abandoned"
                self.ended += 1
                abandoned.append((self._steps[number], reason))
        return abandoned

    def _reachable(self, kept: set[int]) -> set[int]:
        """Those of the steps that can still become ready if no other pending one is ever handed out."""
        while True:
            lost = {number for number in kept if not self._is_reachable(number, kept)}
            if not lost:
                return kept
            kept = kept - lost

    def _is_reachable(self, number: int, kept: set[int]) -> bool:
        needed = (self._number[need] for need in self._steps[number].needs)
        return all(other in kept or self._states[other] not in ("pending", "abandoned") for other in needed)

    def affected_by(self, step_id: str) -> tuple[str, ...]:
        """The steps that would be left out if this one failed now."""
        start = self._number[step_id]
        if self._steps[start].critical:
            return tuple(
                step.id
                for number, step in enumerate(self._steps)
                if number != start and self._states[number] == "pending"
            )
        lost, stack = {start}, [start]
        while stack:
            for dependent in self._dependents[stack.pop()]:
                if dependent not in lost and self._states[dependent] == "pending" and self._steps[dependent].optional:
                    lost.add(dependent)
                    stack.append(dependent)
        return tuple(self._steps[number].id for number in sorted(lost - {start}))

    def _connect(self, number: int) -> None:
        step = self._steps[number]
        lost: int | None = None
        for need in dict.fromkeys(step.needs):
            other = self._number[need]
            self._dependents[other].append(number)
            if self._states[other] in ("pending", "taken"):
                self._missing[number] += 1
            elif self._states[other] in NEED_LOST and lost is None:
                lost = other
        if lost is not None and step.optional:
            self._skips.append((number, self._reason(lost)))
            self._end(number, "left_out")
        elif self._missing[number] == 0:
            heapq.heappush(self._ready, number)

    def _end(self, number: int, state: _State) -> None:
        """Mark a step as ended and let its dependents know; those left out by that end in their turn."""
        stack: list[tuple[int, _State]] = [(number, state)]
        while stack:
            current, became = stack.pop()
            self._states[current] = became
            self.ended += 1
            for dependent in self._dependents[current]:
                if self._states[dependent] != "pending":
                    continue
                self._missing[dependent] -= 1
                if became in NEED_LOST and self._steps[dependent].optional:
                    self._states[dependent] = "left_out"
                    self._skips.append((dependent, self._reason(current)))
                    stack.append((dependent, "left_out"))
                elif self._missing[dependent] == 0:
                    heapq.heappush(self._ready, dependent)

    def _reason(self, lost: int) -> Skip:
        return need_lost(self._steps[lost].id, self._states[lost])
