"""Everything breaks down and the store is lost: what had not ended is there only in files of that very moment.

It is imported into the store that takes the old one's place. This is how an execution comes to another machine; here
nobody can go on with the original, so all that is promised must hold for what was imported.
"""

from __future__ import annotations

import asyncio

from holdfast.core.commands import OURS
from holdfast.core.errors import Refused
from holdfast.core.lifecycle import ENDS
from holdfast.engine.transfer.export import gather
from holdfast.journal.bundle.write import write
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Head
from proof.simulator.history import Wiped
from proof.simulator.hosts import Common, Host
from proof.simulator.people import People

LOOKS_EVERY_S = 0.002
PATIENCE_S = 12.0  # for a moment in which something is on its way


async def something_is_on_its_way(common: Common, verb: str) -> None:
    """Wait for the worst moment, a while: a child has ended, or was stopped, and who should know has not heard of it.

    Files do not hold what waits in an inbox.
    """
    give_up_s = common.loop.time() + PATIENCE_S
    while common.loop.time() < give_up_s:
        if any(command.verb == verb and command.id.startswith(OURS) for command in common.shared.all_pending()):
            return
        await asyncio.sleep(LOOKS_EVERY_S)


async def lose_all_but_files(common: Common) -> list[bytes]:
    """The families that have not ended, each as a file. What cannot be carried stays, and what it was made of, too."""
    families: dict[str, bytes] = {}
    stays: set[str] = set()
    heads = common.shared.all_heads()
    for root in heads:
        family = _family(root, heads)
        if not root.parent_id and any(head.status not in ENDS for head in family):
            try:
                families[root.id] = b"".join(write(await gather(common.shared, root.id), "simulated"))
            except Refused:
                stays |= {root.id, *(head.forked_from for head in family)}
    gone = [root for root in heads if root.id in families and root.id not in stays]
    members = [head for root in gone for head in reversed(_family(root, heads))]
    _forget(common.shared, members)
    for store in common.stores:
        store.is_gone = True
    line = Wiped(at_us=common.now_us(), process="", execution_ids=[head.id for head in members])
    common.history.write(line)
    return [families[root.id] for root in gone]


def _family(root: Head, heads: list[Head]) -> list[Head]:
    found = [root]
    for parent in found:  # which grows meanwhile
        found += [head for head in heads if head.parent_id == parent.id]
    return found


def _forget(shared: MemoryStore, heads: list[Head]) -> None:
    for head in heads:
        shared._remove(head)  # pyright: ignore[reportPrivateUsage] -- a disk that is gone asks nobody


async def bring_back(people: People, files: list[bytes]) -> None:
    """People insist on it: each is imported on one machine or another."""
    for file in files:

        async def restore(host: Host, file: bytes = file) -> bool:
            await host.engine.restore(file)
            return True

        await people.insist(restore)
