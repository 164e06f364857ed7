"""Looks after tools in the background: asks those that can say how they are, and posts what this engine knows.

An ill tool's breaker opens before anybody has to fail, and closes when it says that it is well. Other processes see
breakers and health in journal/tool_status.py. They are not in the journal: they belong to no execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.failure import describe
from holdfast.core.policy import HEALTH_TIMEOUT_S
from holdfast.journal.tool_status import Board, EngineToolStates, ToolState
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.toolset import HealthCheck

if TYPE_CHECKING:
    from holdfast.engine.services import Services

FIRST_AFTER_S = 1.0  # a process that is gone by then asks nobody
POST_AFTER_S = 0.05  # several changes in a row are posted together


class Health(NamedTuple):
    is_well: bool
    why: str
    at_us: int


class HealthWatch:
    def __init__(self, services: Services, is_dead: Callable[[str], bool]) -> None:
        self.seen: dict[str, Health] = {}
        self._services = services
        self._is_dead = is_dead
        self._board = Board(services.data_folder) if services.data_folder is not None else None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._posting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._board is not None:
            self._board.tidy(self._is_dead)
            self._services.guards.on_change = self._post_soon
        if self._services.limits.health_every_s and self._services.registry.health_checks():
            self._look_in(min(FIRST_AFTER_S, self._services.limits.health_every_s))

    async def stop(self) -> None:
        self._services.guards.on_change = lambda: None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._posting is not None:
            self._posting.cancel()
        if self._board is not None:
            self._board.remove(self._services.driver)

    def _look_in(self, delay_s: float) -> None:
        """Between two rounds there is nothing but a timer."""
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ask_all(), name="holdfast-health")

    async def _ask_all(self) -> None:
        await asyncio.gather(*(self._ask(check) for check in self._services.registry.health_checks()))
        self._look_in(self._services.limits.health_every_s)

    async def _ask(self, check: HealthCheck) -> None:
        why = ""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await check.ask()
        except TimeoutError:
            why = f"it did not say how it is within {HEALTH_TIMEOUT_S:g} s"
        except Exception as error:
            why = masks.failure(describe(error)).message
        known = self._services.registry.names()
        for tool in check.tools:
            if tool not in known:
                continue  # whoever named it has taken it away
            before = self.seen.get(tool)
            self.seen[tool] = Health(not why, why, self._services.clock.now_us())
            self._services.guards.told(self._services.registry.get(tool), why)
            if before is None or before.is_well != (not why):
                self._post_soon()

    # ---- the board ----------------------------------------------------------------------------------------------

    def _post_soon(self) -> None:
        if self._board is not None and self._posting is None:
            self._posting = asyncio.get_running_loop().call_later(POST_AFTER_S, self._post)

    def _post(self) -> None:
        self._posting = None
        if self._board is not None:
            self._board.post(self._services.driver, self.notices())

    def notices(self) -> EngineToolStates:
        services = self._services
        now_us, now = services.clock.now_us(), asyncio.get_running_loop().time()
        found: list[ToolState] = []
        told = dict(self.seen)
        for tool, apart, breaker in services.guards.breakers():
            notice = ToolState(tool=tool, apart=apart, breaker=breaker.state, why=breaker.why)
            if breaker.state == "open":
                notice.probe_at = now_us + int((breaker.probe_at - now) * 1e6)
            found.append(_with_health(notice, told.pop(tool, None)))
        found += [_with_health(ToolState(tool=tool), health) for tool, health in told.items()]
        return EngineToolStates(at=now_us, tools=found)


def _with_health(notice: ToolState, health: Health | None) -> ToolState:
    if health is not None:
        notice.health = "well" if health.is_well else "ill"
        notice.health_why, notice.health_at = health.why, health.at_us
    return notice
