"""Reading an execution from end to end: whether every event, move and large value of it is as it was written."""

from __future__ import annotations

from msgspec import Raw

from holdfast.core.errors import StoreCorrupted
from holdfast.core.events import Blob
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.blobs import fetch_blob, reference
from holdfast.journal.codec import decode, verify
from holdfast.journal.log import check_head
from holdfast.journal.store import Head, Store

PAGE_EVENTS = 5000
_VALUES = ("output", "arguments", "inputs", "data", "source", "log")


async def verify_execution(store: Store, head: Head) -> Execution:
    """Every link of the chain from the first event to the head, every move, and every large value."""
    state = Execution(id=head.id)
    end = b""
    while state.seq < head.seq:
        chain, rows = await store.events(head.id, state.seq, min(PAGE_EVENTS, head.seq - state.seq))
        if not rows:
            raise StoreCorrupted(
                f"has {state.seq} events on disk, its head says {head.seq}; the end of its journal is lost"
            )
        end = verify(rows, state.seq, chain)
        for row in rows:
            event = decode(row)
            apply(state, event, row.seq)
            for name in _VALUES:
                value = getattr(event, name, None)
                blob = value if isinstance(value, Blob) else reference(value) if isinstance(value, Raw) else None
                if blob is not None:
                    await fetch_blob(store, blob)
    if end != head.digest:
        raise StoreCorrupted(f"event {head.seq} is not the one its head was written with")
    check_head(head, state)
    return state
