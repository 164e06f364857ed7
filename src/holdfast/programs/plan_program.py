"""Plans as programs.

The steps are walked in plan_runner.py. Here is what a plan as a whole does: its own steps and those that are added
while it runs, then `on_failure`, then `finally`, then its output.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.core.errors import StepFailed
from holdfast.core.execution import Execution
from holdfast.core.failure import Failure
from holdfast.core.plan.model import Plan, PlanStep
from holdfast.core.skips import TOO_LATE
from holdfast.engine.program import Steps
from holdfast.programs.plan_level import RunningLevel
from holdfast.programs.plan_runner import MakeChild, Walker
from holdfast.programs.plan_values import Values, failure_seen, planned
from holdfast.tools.json_values import encode
from holdfast.tools.registry import Registry


class PlanProgram:
    """`extend` reads the n-th recorded extension as steps."""

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        registry: Registry,
        make_child: Callable[[Execution], MakeChild],
        extend: Callable[[Plan, Raw], tuple[PlanStep, ...]],
    ) -> None:
        self._plan = plan
        self._inputs = inputs
        self._registry = registry
        self._make_child = make_child
        self._extend = extend

    async def run(self, steps: Steps) -> bytes:
        walker = Walker(steps, self._registry, self._make_child(steps.state))
        values: Values = ChainMap({}, {"inputs": self._inputs})
        main = RunningLevel(walker, "", self._plan.steps, values)
        if steps.state.stopping:
            self._take_extensions(steps, main)
            await main.recall()
            values["failure"] = None
            await RunningLevel(walker, "", self._plan.finally_, values).run()
            await steps.admit()
            return b"null"
        failure = await self._main(steps, main)
        if failure is not None:
            values["failure"] = {"step": failure[0], **failure_seen(failure[1])}
            await RunningLevel(walker, "", self._plan.on_failure, values).run()
        else:
            values["failure"] = None
        last = await RunningLevel(walker, "", self._plan.finally_, values).run()
        await steps.admit()  # from here to the end nothing waits, so nothing can be added unseen
        self._skip_late(steps, main)
        failure = failure or last
        if failure is not None:
            raise StepFailed(*failure)
        return self._output(main, values)

    async def _main(self, steps: Steps, level: RunningLevel) -> tuple[str, Failure] | None:
        """The plan's own steps, and those that are added while it runs."""
        self._take_extensions(steps, level)

        async def listen() -> None:
            while True:
                await steps.wait_extended(level.extensions)
                self._take_extensions(steps, level)

        listening = asyncio.ensure_future(listen())
        try:
            while True:
                failure = await level.run()
                await steps.admit()
                self._take_extensions(steps, level)
                if level.is_done:  # if not, steps were added in the moment the last one ended
                    return failure
        finally:
            listening.cancel()

    def _take_extensions(self, steps: Steps, level: RunningLevel) -> bool:
        new = steps.state.extensions[level.extensions :]
        for raw in new:
            level.add(self._extend(level.plan_now(self._plan), raw))
        return bool(new)

    def _skip_late(self, steps: Steps, main: RunningLevel) -> None:
        """Extensions that came when only the ending steps were left are not forgotten silently."""
        known = {step.id for step in main.plan_now(self._plan).steps}
        self._take_extensions(steps, main)
        for step in main.plan_now(self._plan).steps:
            if step.id not in known:
                steps.skip(step.id, TOO_LATE, planned(step))

    def _output(self, main: RunningLevel, values: Values) -> bytes:
        if self._plan.output is not None:
            return encode(self._plan.output.render(values), "the plan's output")
        return main.last_output()
