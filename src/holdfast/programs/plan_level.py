"""One list of steps of a plan (the plan's own, a milestone's, a for_each item's) with a schedule of its own.

Whatever a step is, it ends as an `Outcome`, and the schedule says what that means for the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import TYPE_CHECKING, cast

from holdfast.core import skips
from holdfast.core.failure import Failure
from holdfast.core.plan.model import Plan, PlanStep
from holdfast.core.plan.schedule import Schedule
from holdfast.engine.program import FailureImpact, Outcome
from holdfast.programs.plan_values import Values, outcome_seen, planned

if TYPE_CHECKING:
    from holdfast.programs.plan_runner import Walker


class RunningLevel:
    """One list of steps and how far it is."""

    def __init__(
        self, walker: Walker, prefix: str, steps: tuple[PlanStep, ...], values: Values, *, is_optional: bool = False
    ) -> None:
        self._walker = walker
        self._prefix = prefix
        self._is_optional = is_optional
        self._values = values
        self._listed = list(steps)
        self._schedule = Schedule(steps)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: deque[tuple[PlanStep, Outcome]] = deque()
        self._changed = asyncio.Event()
        self._outputs: dict[str, bytes] = {}
        self._error: BaseException | None = None
        self._failure: tuple[str, Failure] | None = None
        self.extensions = 0  # how many times steps were added

    def add(self, steps: tuple[PlanStep, ...]) -> None:
        self.extensions += 1
        self._listed.extend(steps)
        self._schedule.add(steps)
        self._changed.set()

    def plan_now(self, plan: Plan) -> Plan:
        """The plan as it is with all that was added."""
        return dataclasses.replace(plan, steps=tuple(self._listed))

    @property
    def is_done(self) -> bool:
        return self._schedule.done

    def last_output(self) -> bytes:
        for step in reversed(self._listed):
            if step.id in self._outputs:
                return self._outputs[step.id]
        return b"null"

    async def recall(self) -> None:
        """Run nothing, and take what is recorded; a step that has not ended counts as skipped."""
        for step in self._listed:
            self._remember(step, await self._walker.recorded(self._prefix + step.id))

    async def run(self) -> tuple[str, Failure] | None:
        """Every step to its end; returns the critical failure that cut the list short."""
        try:
            while not self._schedule.done:
                self._changed.clear()
                self._abandon_rest()
                self._leave_out(self._schedule.skips())
                for step in self._schedule.take_ready():
                    self._start(step)
                if not self._running and not self._ended:
                    continue
                await self._changed.wait()
                self._settle()
            self._leave_out(self._schedule.skips())
            return self._failure
        finally:
            for task in self._running.values():
                task.cancel()
            if self._running:
                await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start(self, step: PlanStep) -> None:
        async def take() -> None:
            path = self._prefix + step.id
            try:
                stakes = FailureImpact(
                    critical=step.critical,
                    affects=lambda: self._affected_by(step),
                    is_within_optional=self._is_optional,
                )
                outcome = await self._walker.take(step, path, self._values, stakes)
                self._ended.append((step, outcome))
            except BaseException as error:
                self._error = self._error or error
            finally:
                del self._running[step.id]
                self._changed.set()

        self._running[step.id] = asyncio.ensure_future(take())

    def _settle(self) -> None:
        if self._error is not None:
            raise self._error
        while self._ended:
            step, outcome = self._ended.popleft()
            self._remember(step, outcome)
            is_unavailable = outcome.skip_code in skips.UNAVAILABLE
            self._schedule.settle(step.id, "unavailable" if is_unavailable else outcome.status)
            if outcome.status == "failed" and step.critical:
                self._failure = self._failure or (self._prefix + step.id, cast(Failure, outcome.failure))
        self._abandon_rest()

    def _abandon_rest(self) -> None:
        """After a critical failure nothing new begins, whenever it was added."""
        if self._failure is None:
            return
        failed = self._failure[0].removeprefix(self._prefix)
        self._leave_out(self._schedule.abandon(failed, self._has_begun))

    def _has_begun(self, step_id: str) -> bool:
        """Here, or elsewhere with a doubt that must not be passed over; a copied outcome begins nothing."""
        state, path = self._walker.steps.state, self._prefix + step_id
        step = state.steps.get(path)
        if step is not None:
            return not step.kept or step.status != "completed"
        inside = (f"{path}/", f"{path}[")
        return any(one.startswith(inside) and state.steps[one].status == "in_doubt" for one in state.open_steps)

    def _leave_out(self, skipped: list[tuple[PlanStep, skips.Skip]]) -> None:
        for step, why in skipped:
            self._walker.steps.skip(self._prefix + step.id, why, planned(step))
            self._remember(step, Outcome(status="skipped", reason=why.reason, skip_code=why.code))

    def _remember(self, step: PlanStep, outcome: Outcome) -> None:
        if outcome.status == "completed":
            self._outputs[step.id] = outcome.output
        self._values[f"steps.{step.id}"] = outcome_seen(outcome)

    def _affected_by(self, step: PlanStep) -> tuple[str, ...]:
        return tuple(self._prefix + other for other in self._schedule.affected_by(step.id))
