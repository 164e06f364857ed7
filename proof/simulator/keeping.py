"""What people do with whole executions: delete them, copy them, put them away and bring them back, let go what is held.

None of it is a command to an execution: whoever does it talks to the store or to an engine, as the command line does.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from holdfast.core.lifecycle import ENDS
from holdfast.journal.deletion import prune, remove_files
from holdfast.journal.store import Head, Query
from proof.simulator.history import Copied, Filed, Ordered
from proof.simulator.hosts import Common, Host
from proof.simulator.people import People, roots
from proof.simulator.scenario import Order

AWAY_S = 1.0  # how long something is put away


class Keeping:
    def __init__(self, common: Common, hosts: list[Host], people: People) -> None:
        self._common = common
        self._hosts = hosts
        self._people = people
        self._let_go = 0

    async def order(self, order: Order) -> None:
        """Nobody insists on any of it, except on bringing back what was put away."""
        heads = await self._common.shared.heads(Query(limit=1000))
        ended = [head for head in heads if head.status in ENDS]
        choice = ended if ended and order.whom else heads  # now and then somebody wants to be rid of what lives
        if order.among == "roots":
            choice = roots(ended)
        host = self._hosts[order.number % len(self._hosts)]
        if not choice or not host.is_up:
            return
        whom = choice[order.whom % len(choice)]
        origins = {head.forked_from for head in heads}
        shared = [head for head in ended if head.parent_id or head.id in origins]  # with whom others have values
        match order.verb:
            case "delete" if not order.among and shared and order.whom % 2:
                await self._delete(shared[order.whom % len(shared)], host)
            case "delete":
                await self._delete(whom, host)
            case "prune":
                await self._prune(host)
            case "copy":
                await self._copy(whom, host)
            case _:
                await self._archive(whom, host, order.number)

    async def let_go(self, head: Head) -> None:
        """A person says that what is held may go on."""
        self._let_go += 1
        number = self._let_go

        async def resume(host: Host) -> bool:
            line = Ordered(
                at_us=self._common.now_us(),
                process=host.process.name,
                command_id=f"let-go-{number}",
                execution_id=head.id,
                verb="resume",
            )
            self._common.history.write(line)
            await host.engine.resume(head.id, by="person")
            return True

        host = self._hosts[number % len(self._hosts)]
        if host.is_up:
            await self._people.on(host, resume)

    async def _delete(self, whom: Head, host: Host) -> bool:
        async def delete(host: Host) -> bool:
            await host.store.delete([whom.id])
            await remove_files(host.store, None)
            return True

        return await self._people.on(host, delete)

    async def _prune(self, host: Host) -> None:
        async def all_of_it(host: Host) -> bool:
            async with aclosing(prune(host.store, Query(), None)) as pages:
                async for _ in pages:
                    pass
            return True

        await self._people.on(host, all_of_it)

    async def _copy(self, whom: Head, host: Host) -> None:
        """Under a new id, from a file that may have been made while it ran."""

        async def copy(host: Host) -> bool:
            line = Filed(at_us=self._common.now_us(), process=host.process.name, execution_id=whom.id)
            self._common.history.write(line)
            restored = await host.engine.restore(await host.engine.export(whom.id), as_new=True)
            self._common.world.titles[restored.id] = f"{whom.title} copied"
            line = Copied(at_us=self._common.now_us(), process=host.process.name, execution_id=restored.id)
            self._common.history.write(line)
            return True

        await self._people.on(host, copy)

    async def _archive(self, whom: Head, host: Host, number: int) -> None:
        """Written to a file, deleted, and imported from it a while later."""
        if whom.status not in ENDS:
            return
        files: list[bytes] = []

        async def export(host: Host) -> bool:
            files.append(await host.engine.export(whom.id))
            return True

        async def bring_back(host: Host) -> bool:
            await host.engine.restore(files[-1])
            return True

        if await self._people.on(host, export) and await self._delete(whom, host):
            await asyncio.sleep(AWAY_S)
            await self._people.insist(bring_back, number)
