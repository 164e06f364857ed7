"""The contract of `holdfast.journal.store.Store`, as tests. A store that passes them can carry Holdfast.

Subclass `StoreContract` in a test module, say how your store is made, and let pytest collect it; the tests are
coroutines, so pytest-asyncio (in auto mode) or a similar plugin runs them. Plain asserts, nothing to install besides.

    class TestMyStore(StoreContract):
        async def make_store(self) -> DeletableStore:
            return MyStore(...)
"""

from __future__ import annotations

from holdfast.testing.store_contract.commits import WritingContract
from holdfast.testing.store_contract.deleting import DeletingContract
from holdfast.testing.store_contract.inbox import InboxContract
from holdfast.testing.store_contract.keyed import KeyedContract
from holdfast.testing.store_contract.ownership import OwnershipContract
from holdfast.testing.store_contract.queries import FindingContract
from holdfast.testing.store_contract.reading import ReadingContract

__all__ = ["StoreContract"]


class StoreContract(
    WritingContract, OwnershipContract, InboxContract, ReadingContract, FindingContract, DeletingContract, KeyedContract
):
    """Every promise of the port. Override `make_store`; `reopen` and `beside` too if the store is durable or shared."""
