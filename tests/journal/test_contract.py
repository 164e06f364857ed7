"""All stores of this package keep the published contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.journal.memory import MemoryStore
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import DeletableStore
from holdfast.testing.store_contract.contract import StoreContract
from servers.postgres import PostgresServer


class TestMemoryStore(StoreContract):
    async def make_store(self) -> DeletableStore:
        return MemoryStore()


class TestSqliteStore(StoreContract):
    path: Path

    @pytest.fixture(autouse=True)
    def in_a_folder_of_its_own(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.stores = 0

    async def make_store(self) -> DeletableStore:
        self.stores += 1
        self.path = self.folder / f"{self.stores}.db"
        return SqliteStore(self.path)

    async def reopen(self, store: DeletableStore) -> DeletableStore:
        await store.close()
        return SqliteStore(self.path)

    async def beside(self, store: DeletableStore) -> DeletableStore:
        return SqliteStore(self.path)


class TestPostgresStore(StoreContract):
    url: str

    @pytest.fixture(autouse=True)
    def on_a_server(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    async def make_store(self) -> DeletableStore:
        self.url = self.server.schema_url()
        return PostgresStore(self.url)

    async def reopen(self, store: DeletableStore) -> DeletableStore:
        await store.close()
        return PostgresStore(self.url)

    async def beside(self, store: DeletableStore) -> DeletableStore:
        return PostgresStore(self.url)


async def test_a_contract_test_that_makes_no_store_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="override make_store"):
        await StoreContract().make_store()


async def test_a_store_in_memory_has_nothing_to_check() -> None:
    assert await MemoryStore().check() == []


async def test_a_store_without_a_second_view_stands_in_for_it() -> None:
    store = MemoryStore()
    assert await StoreContract().reopen(store) is store
    assert await StoreContract().beside(store) is store
