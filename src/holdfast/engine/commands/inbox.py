"""Commands from any process, and their answers.

A command is written to the inbox first and answered by whoever drives the execution. If nobody does, the commander
claims the execution, applies the command and lets go again; so a command never waits for a process that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core.commands import PASSED_DOWN, Answer, Command
from holdfast.core.errors import HoldfastError, Refused, StoreUnavailable
from holdfast.core.policy import COMMAND_WAIT_S
from holdfast.engine.drive.claims import CHILDREN_MAX, answer_commands, claim, is_moved, note_recovery
from holdfast.engine.services import Services
from holdfast.engine.transfer.auto_checkpoint import save_at_rest
from holdfast.journal.liveness import Liveness
from holdfast.journal.store import Head, Query

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver

LOOK_AGAIN_S = 0.05
SETTLED_AT_ONCE = 32  # of many commands: enough to share syncs, few enough to read their journals into memory

DriverOf = Callable[[str], "Driver | None"]


async def send(
    services: Services, liveness: Liveness, command: Command, driver_of: DriverOf, wait_s: float = COMMAND_WAIT_S
) -> Answer:
    """Put a command into the inbox and wait for its answer; after `wait_s` it stays queued."""
    head = await services.store.head(command.execution_id)  # NotFound before anything is written
    _check_whole(head)
    for refusal in (await post(services, [command])).values():
        raise refusal
    return await settle(services, liveness, command, driver_of, wait_s)


async def post(services: Services, commands: Sequence[Command]) -> dict[str, Refused]:
    """Write commands into the inbox together. From then on each is applied once, whatever becomes of us.

    Returns, by the ids of their commands, whom it cannot be asked of: they get none, and the others theirs.
    """
    wanted = tuple(command.execution_id for command in commands)
    heads = {head.id: head for head in await services.store.heads(Query(ids=wanted, limit=len(wanted)))}
    refused: dict[str, Refused] = {}
    for command in commands:
        try:
            if command.execution_id in heads:  # who is gone is told so by whoever waits for the answer
                _check_whole(heads[command.execution_id])
        except Refused as error:
            refused[command.id] = error
    posted = [command for command in commands if command.id not in refused]
    written = await services.writer.write_together(posted) if posted else []
    for command, result in zip(posted, written, strict=True):
        if not result.ok:
            try:
                await _check_same(services, command)
            except Refused as error:
                refused[command.id] = error
    return refused


async def settle_all(
    services: Services,
    liveness: Liveness,
    commands: Sequence[Command],
    driver_of: DriverOf,
    refused: Mapping[str, Refused],
) -> AsyncIterator[tuple[Command, Answer]]:
    """The answers to commands that were posted, as they come. One that is gone or damaged answers only for itself."""
    room = asyncio.Semaphore(SETTLED_AT_ONCE)

    async def one(command: Command) -> tuple[Command, Answer]:
        try:
            if command.id in refused:
                raise refused[command.id]
            async with room:
                return command, await settle(services, liveness, command, driver_of)
        except StoreUnavailable:
            raise  # which is true of all: their commands are written, and the same bulk again goes on with them
        except HoldfastError as error:
            return command, Answer(command_id=command.id, outcome="refused", text=str(error))

    tasks = [asyncio.ensure_future(one(command)) for command in commands]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settle(
    services: Services, liveness: Liveness, command: Command, driver_of: DriverOf, wait_s: float = COMMAND_WAIT_S
) -> Answer:
    """Wait for the answer to a command that was posted; if nobody drives, it is applied here."""
    commander = CommandApplier(services, liveness, driver_of)
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
    if known is None:
        return
    if (known.execution_id, known.verb) != (command.execution_id, command.verb):
        raise Refused(
            f'the command id "{command.id}" was used for {known.verb} of execution {known.execution_id}; use another id'
        )
    # What a checkpoint brings is not what was asked: it is where this try has saved it.
    if command.verb != "checkpoint" and not _says_no_more(command.arguments, known.arguments):
        raise Refused(
            f'the command id "{command.id}" was used for {known.verb} with other values; that was not changed; '
            "use another id"
        )


def _says_no_more(again: Raw, before: Raw) -> bool:
    """Whoever says less the second time, such as nothing but the id, means what was said the first time."""
    known: dict[str, Any] = msgspec.json.decode(before)
    said: dict[str, Any] = msgspec.json.decode(again)
    return all(name in known and known[name] == value for name, value in said.items())


def _check_whole(head: Head) -> None:
    """What was set aside can be asked nothing: nobody can read it, and so nobody would ever answer."""
    if head.quarantined:
        raise Refused(
            f"execution {head.id} was set aside, because its journal is damaged ({head.quarantined}): it can be asked "
            f"nothing, and nobody drives it; look with: holdfast doctor; delete it with: holdfast delete {head.id} "
            "--force"
        )


class CommandApplier:
    """Applies commands to executions that nobody drives."""

    def __init__(self, services: Services, liveness: Liveness, driver_of: DriverOf) -> None:
        self._services = services
        self._liveness = liveness
        self._driver_of = driver_of

    async def tend_children(self, execution_id: str) -> None:
        """What was passed down to children that nobody drives is applied here, too."""
        store = self._services.store
        for head in await store.heads(Query(parent_id=execution_id, limit=CHILDREN_MAX)):
            if (
                not head.ended_at
                and not head.quarantined
                and await store.pending([head.id])
                and await self.apply_alone(head.id)
            ):
                await self.tend_children(head.id)

    async def apply_alone(self, execution_id: str) -> bool:
        """Nobody drives: claim, apply everything that is pending in order, release."""
        head = await self._services.store.head(execution_id)
        _check_whole(head)
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
            claimed = await claim(services, head, to_drive=False)
            if claimed is None:
                return False
            log, head = claimed
            note_recovery(services, log, head)
            quiet = await answer_commands(services, log)
            moved = is_moved(services, log, head, quiet)
            await save_at_rest(services, log, head.status)
            log.append(release=True, wake=moved)
            await log.durable()
            return True
