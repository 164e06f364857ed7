"""The items of one for_each step, a bounded number at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import skips
from holdfast.core.errors import ToolError, UsageError
from holdfast.core.failure import Failure
from holdfast.core.plan.model import PlanStep
from holdfast.engine.program import FailureImpact, StepCall
from holdfast.programs.plan_values import Values, planned

if TYPE_CHECKING:
    from holdfast.programs.plan_runner import Walker


class PlanItems:
    """The items of one for_each, a bounded number at a time."""

    def __init__(self, walker: Walker, step: PlanStep, path: str, values: Values, stakes: FailureImpact) -> None:
        self._walker = walker
        self._step = step
        self._path = path
        self._values = values
        self._stakes = stakes
        self._names: list[str] = []
        self._items: list[Any] = []
        self._outputs: list[bytes] = []
        self._failure: Failure | None = None

    async def run(self, names: list[str], items: list[Any], parallel: int) -> tuple[list[bytes], Failure | None]:
        self._names, self._items = names, items
        self._outputs = [b"null"] * len(items)
        await self._settle_copies()
        waiting = iter(range(len(self._items)))

        async def work() -> None:
            for index in waiting:
                if self._is_left_out(index):
                    self._walker.steps.skip(self._path_of(index), skips.ITEM_FAILED, planned(self._step, is_item=True))
                else:
                    await self._one(index)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(parallel, len(self._items))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return self._outputs, self._failure

    async def _settle_copies(self) -> None:
        """A person decides at once about all items that were copied and have another input now."""
        steps, calls = self._walker.steps.state.steps, list[StepCall]()
        for index in range(len(self._items)):
            recorded = steps.get(self._path_of(index))
            if recorded is None or not recorded.kept or recorded.effect != "once" or recorded.status != "completed":
                continue
            with suppress(ToolError, UsageError):  # then it fails when its turn comes
                values = self._values_of(index)
                calls.append(self._walker.call_of(self._step, recorded.path, values, self._stakes))
        if calls:
            await self._walker.steps.settle_items(self._path, calls)

    def _values_of(self, index: int) -> Values:
        return self._values.new_child({"item": self._items[index], "index": index})

    def _path_of(self, index: int) -> str:
        return f"{self._path}[{self._names[index]}]"

    def _is_left_out(self, index: int) -> bool:
        """After a failure nothing new begins. But what had begun when a process died is taken to its end."""
        recorded = self._walker.steps.state.steps.get(self._path_of(index))
        if recorded is None or (recorded.kept and recorded.status == "completed"):
            return self._failure is not None
        return recorded.status == "skipped"

    async def _one(self, index: int) -> None:
        path = self._path_of(index)
        values = self._values_of(index)
        outcome = await self._walker.take_item(self._step, path, values, self._stakes)
        if outcome.status == "completed":
            self._outputs[index] = outcome.output
        elif outcome.failure is not None and self._step.critical and self._failure is None:
            message = f"{path}: {outcome.failure.message}"  # among many items, which one it was matters most
            self._failure = msgspec.structs.replace(outcome.failure, message=message)
