"""Executions that are taken along: gathered into a bundle with all that belongs to them, or saved as a checkpoint.

Nothing of the original changes. What becomes of a bundle elsewhere is told in restore.py.
"""

from __future__ import annotations

import asyncio

from holdfast.core import events as ev
from holdfast.core.errors import NotFound, Refused, StoreCorrupted
from holdfast.core.execution import Execution, steps_ended
from holdfast.core.lifecycle import ENDS
from holdfast.engine.services import Services
from holdfast.journal import checkpoint_files
from holdfast.journal.blobs import fetch_blob
from holdfast.journal.bundle.write import EXECUTIONS_MAX, Bundle, ExportedExecution, open_rows, wanted_blobs, write
from holdfast.journal.codec import CHAIN_START, verify
from holdfast.journal.log import read_state
from holdfast.journal.store import Store


async def gather(store: Store, execution_id: str, through: int = 0) -> Bundle:
    """An execution up to event `through` (0: all that is durable), its descendants and their large values.

    Children are read after their parent, and so may know more than it does; what they tell it is told again by whoever
    restores them.
    """
    executions = [await _carry(store, execution_id, through)]
    _check_origin(executions[0].state)
    for carried in executions:  # grows while it is walked
        for child in carried.state.children.values():
            if len(executions) >= EXECUTIONS_MAX:
                raise Refused(
                    f"execution {execution_id} has more than {EXECUTIONS_MAX - 1:,} descendants, which do not fit into "
                    "one file; export its children one by one"
                )
            try:
                executions.append(await _carry(store, child.id))
            except NotFound:
                if child.status not in ENDS:  # an end that is known needs nothing more of the child
                    raise
    wanted: dict[str, ev.Blob] = {}
    for carried in executions:
        wanted |= await asyncio.to_thread(wanted_blobs, carried.rows)
    return Bundle(executions, {digest: await fetch_blob(store, blob) for digest, blob in wanted.items()})


def _check_origin(state: Execution) -> None:
    """A retry looks up what a child had done when it comes to start its own; elsewhere it could not."""
    unmatched = [path for path, carried in state.carried.items() if carried.child_id]
    origin = state.facts().forked_from
    if unmatched and origin is not None and not state.is_ended:
        raise Refused(
            f"execution {state.id} is a retry of {origin.id} and has still to start {unmatched[0]}, of which it would "
            "keep what was done there; that cannot be carried: export it when it has come further, or make a backup"
        )


async def _carry(store: Store, execution_id: str, through: int = 0) -> ExportedExecution:
    if through:
        _, rows = await store.events(execution_id, 0, through)
        return await asyncio.to_thread(open_rows, execution_id, rows)
    _, state, end = await read_state(store, execution_id)  # with the help of a snapshot, if there is one
    _, rows = await store.events(execution_id, 0, state.seq)
    if await asyncio.to_thread(verify, rows, 0, CHAIN_START) != end:
        raise StoreCorrupted(
            f"execution {execution_id}: its events are not those that its snapshot was made of",
            execution_id=execution_id,
        )
    return ExportedExecution(rows, state)


async def save(services: Services, execution_id: str, through: int = 0) -> ev.CheckpointSaved:
    """Write a checkpoint, and return the event that says so once somebody journals it."""
    folder = services.data_folder
    if folder is None:
        raise Refused("this engine has no folder to save checkpoints in; export the execution instead")
    bundle = await gather(services.store, execution_id, through)
    state = bundle.root.state

    def write_it() -> checkpoint_files.Saved:
        return checkpoint_files.save(folder, state.id, state.seq, write(bundle, services.version))

    saved = await asyncio.to_thread(write_it)
    return ev.CheckpointSaved(
        at=state.last_at, file=str(saved.path), through=state.seq, bytes=saved.bytes, ended=steps_ended(state)
    )
