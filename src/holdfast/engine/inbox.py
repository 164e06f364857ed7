"""Commands from any process, and their answers.

A command is written to the inbox first and answered by whoever drives the execution. If nobody does, the commander
claims the execution, applies the command and lets go again; so a command never waits for a process that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core.commands import PASSED_DOWN, Answer, Command
from holdfast.core.errors import Refused
from holdfast.core.policy import COMMAND_WAIT_S
from holdfast.engine.family import apply_command
from holdfast.engine.ownership import claim, is_moved, note_recovery, now
from holdfast.engine.services import Services
from holdfast.journal.liveness import Liveness
from holdfast.journal.store import Head, Query

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver

LOOK_AGAIN_S = 0.05
CHILDREN_MAX = 1000  # looked after by one command; engines find the rest


DriverOf = Callable[[str], "Driver | None"]


async def send(
    services: Services, liveness: Liveness, command: Command, driver_of: DriverOf, wait_s: float = COMMAND_WAIT_S
) -> Answer:
    """Put a command into the inbox and wait for its answer; after `wait_s` it stays queued."""
    await services.store.head(command.execution_id)  # NotFound before anything is written
    written = await services.writer.write(command)
    if not written.ok:
        await _check_same(services, command)
    commander = _Commander(services, liveness, driver_of)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait_s
    subscription = services.feed.subscribe(command.execution_id, status_only=True)
    try:
        while True:
            subscription.changed.clear()
            answer = await services.store.answer(command.id)
            if answer is not None:
                if command.verb in PASSED_DOWN:
                    await commander.tend_children(command.execution_id)
                return answer
            driver = driver_of(command.execution_id)
            if driver is not None:
                driver.deliver([command])
            elif await commander.apply_alone(command.execution_id):
                continue
            if loop.time() >= give_up:
                text = "queued: its driver has not answered yet and will find it in the inbox"
                return Answer(command_id=command.id, outcome="queued", text=text)
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await subscription.changed.wait()
            except TimeoutError:
                pass
    finally:
        services.feed.unsubscribe(command.execution_id, subscription)


async def _check_same(services: Services, command: Command) -> None:
    """The id is known: then it must be the same command, or somebody would hear the answer to something else."""
    known = await services.store.command(command.id)
    if known is not None and (known.execution_id, known.verb) != (command.execution_id, command.verb):
        raise Refused(
            f'the command id "{command.id}" was used for {known.verb} of execution {known.execution_id}; use another id'
        )


class _Commander:
    """Applies commands to executions that nobody drives."""

    def __init__(self, services: Services, liveness: Liveness, driver_of: DriverOf) -> None:
        self._services = services
        self._liveness = liveness
        self._driver_of = driver_of

    async def tend_children(self, execution_id: str) -> None:
        """What was passed down to children that nobody drives is applied here, too."""
        store = self._services.store
        for head in await store.heads(Query(parent_id=execution_id, limit=CHILDREN_MAX)):
            if not head.ended_at and await store.pending([head.id]) and await self.apply_alone(head.id):
                await self.tend_children(head.id)

    async def apply_alone(self, execution_id: str) -> bool:
        """Nobody drives: claim, apply everything that is pending in order, release."""
        head = await self._services.store.head(execution_id)
        if head.driver and not self._is_free(head.driver):
            return False
        # Shielded: whoever asked may be cancelled, but what was claimed must be released.
        return await asyncio.shield(asyncio.ensure_future(self._claim_and_apply(head)))

    def _is_free(self, driver: str) -> bool:
        """Held by the dead; or by us, who do not drive it: then an earlier claim was written and never heard of."""
        return driver == self._services.driver or self._liveness.is_dead(driver)

    async def _claim_and_apply(self, head: Head) -> bool:
        services = self._services
        if services.is_in_hand(head.id) or self._driver_of(head.id) is not None:
            return False
        with services.in_hand(head.id):
            log = await claim(services, head, to_drive=False)
            if log is None:
                return False
            note_recovery(services, log, head)
            for pending in await services.store.pending([head.id]):
                apply_command(services, log, pending, now(services, log))
            log.append(release=True, wake=is_moved(services, log, head))
            await log.durable()
            return True
