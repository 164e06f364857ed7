"""How the parts of the contract suite get a store, and close it again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.journal.store import DeletableStore, Write


class Opening:
    async def make_store(self) -> DeletableStore:
        """A new, empty store."""
        raise NotImplementedError("a store's contract test says how the store is made: override make_store")

    async def reopen(self, store: DeletableStore) -> DeletableStore:
        """Close the store and open what it kept. A store that forgets at its end stays as it is."""
        return store

    async def beside(self, store: DeletableStore) -> DeletableStore:
        """A second store on the same data, as another process would open it. By default the same one."""
        return store

    @asynccontextmanager
    async def opened(self, *writes: Write) -> AsyncGenerator[DeletableStore, None]:
        """A new store in which `writes` are done."""
        store = await self.make_store()
        try:
            if writes:
                results = await store.commit(writes)
                assert [result.ok for result in results] == [True] * len(writes)
            yield store
        finally:
            await store.close()
