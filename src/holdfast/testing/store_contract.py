"""The contract of `holdfast.journal.store.Store`, as tests. A store that passes them can carry Holdfast.

Subclass `StoreContract` in a test module, say how your store is made, and let pytest collect it; the tests are
coroutines, so pytest-asyncio (in auto mode) or a similar plugin runs them. Plain asserts, nothing to install besides.

    class TestMyStore(StoreContract):
        async def make_store(self) -> DeletableStore:
            return MyStore(...)
"""

from __future__ import annotations

from holdfast.testing.store_deleting import DeletingContract
from holdfast.testing.store_finding import FindingContract
from holdfast.testing.store_inbox import InboxContract
from holdfast.testing.store_keyed import KeyedContract
from holdfast.testing.store_ownership import OwnershipContract
from holdfast.testing.store_reading import ReadingContract
from holdfast.testing.store_writing import WritingContract

__all__ = ["StoreContract"]


class StoreContract(
    WritingContract, OwnershipContract, InboxContract, ReadingContract, FindingContract, DeletingContract, KeyedContract
):
    """Every promise of the port. Override `make_store`; `reopen` and `beside` too if the store is durable or shared."""
