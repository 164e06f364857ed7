"""A PostgreSQL store in trouble: damaged rows, other versions, missing rights, locks and full disks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from psycopg import errors

from engine.kit import until
from holdfast.core.errors import NotFound, SchemaTooNew, StoreCorrupted, StoreUnavailable
from holdfast.journal.postgres import connection as postgres_connection
from holdfast.journal.postgres import migrate
from holdfast.journal.postgres.address import parse_address
from holdfast.journal.postgres.connection import explaining
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.sql import migrations
from holdfast.journal.store import Claim, Query
from holdfast.testing.store_contract.samples import Sample
from journal.postgres.support import Held, run_sql
from servers.postgres import PostgresServer


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


# ---- damage and versions -----------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["labels = '{'", "reasons = '[{\"kind\": 7}]'"])
async def test_a_head_that_cannot_be_read_is_set_aside_and_the_others_go_on(store: PostgresStore, damage: str) -> None:
    damaged, healthy = Sample(1, title="Tides"), Sample(2)
    await store.commit([damaged.new, healthy.new])
    await run_sql(store, f"UPDATE executions SET {damage} WHERE id = '{damaged.id}'")
    column = damage.partition(" ")[0]
    for reading in (store.head(damaged.id), store.load(damaged.id)):
        with pytest.raises(StoreCorrupted, match=f"{damaged.id} is damaged: .*{column}"):
            await reading
    shown = (await store.heads(Query()))[1]
    assert (shown.id, shown.title, column in shown.quarantined) == (damaged.id, "Tides", True)
    assert [head.id for head in await store.claimable(50, [""], 1)] == []
    assert [head.id for head in await store.claimable(50, [""], 1)] == [healthy.id]
    assert not (await store.commit([Claim(execution_id=damaged.id, driver="d")]))[0].ok


async def test_a_newer_schema_is_left_alone(store: PostgresStore) -> None:
    await store.commit([Sample(1).new])
    await store.close()
    await run_sql(store, "INSERT INTO schema_version VALUES (99)")
    older = PostgresStore(f"{store.address.libpq}?schema={store.address.schema}")
    with pytest.raises(SchemaTooNew, match=r"has schema version 99, this Holdfast knows .*; upgrade Holdfast"):
        await older.heads(Query())
    await older.close()


async def test_an_older_schema_is_upgraded_only_when_nobody_uses_it(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.leases.register("d1")
    await store.commit([Sample(1).new])
    steps = [*migrations("postgres"), "CREATE TABLE later (number INTEGER)"]
    newer = PostgresStore(postgres_url)
    with monkeypatch.context() as in_the_newer_process:
        in_the_newer_process.setattr(migrate, "migrations", lambda _: steps)
        with pytest.raises(StoreUnavailable, match=r"must be upgraded .*another process is using it; end that process"):
            await newer.heads(Query())
    store.leases.release("d1")
    await store.close()
    monkeypatch.setattr(migrate, "migrations", lambda _: steps)
    assert len(await newer.heads(Query())) == 1
    assert await run_sql(store, "SELECT max(version), (SELECT count(*) FROM later) FROM schema_version") == [
        (len(steps), 0)
    ]
    await newer.close()


async def test_a_user_without_rights_is_told_which(postgres_server: PostgresServer, postgres_url: str) -> None:
    admin = PostgresStore(postgres_url)
    await run_sql(admin, "CREATE ROLE guest LOGIN")
    guest = PostgresStore(postgres_server.schema_url("guests").replace("postgres@", "guest@"))
    with pytest.raises(StoreUnavailable, match=r"permission denied for database.*grant this user CREATE"):
        await guest.drivers()
    await guest.close()


async def test_what_is_not_there_is_named_with_its_store_and_without_a_password(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.schema_url("found_nothing").replace("postgres@", "postgres:geheim@")
    store = PostgresStore(url)
    with pytest.raises(NotFound, match=r"no execution nobody in postgresql://postgres@.*schema=found_nothing"):
        await store.head("nobody")
    await store.close()


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: PostgresServer) -> None:
    admin = PostgresStore(postgres_server.schema_url())
    await run_sql(admin, "CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0")
    narrow = PostgresStore(postgres_server.schema_url().replace("/postgres?", "/narrow?"))
    with pytest.raises(StoreUnavailable, match="create the database with ENCODING 'UTF8'"):
        await narrow.drivers()
    await narrow.close()


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (errors.DiskFull("no space left"), StoreUnavailable, "cannot be written (no space left); free some space"),
        (errors.ReadOnlySqlTransaction("read-only"), StoreUnavailable, "name the primary"),
        (errors.DataCorrupted("bad page"), StoreCorrupted, "is damaged (bad page); restore a backup"),
        (errors.UndefinedTable("no events"), StoreUnavailable, "cannot be read or written (no events)"),
        (errors.OutOfMemory(""), StoreUnavailable, "cannot be read or written (OutOfMemory)"),
        (ConnectionResetError("reset"), StoreUnavailable, "cannot be reached (reset); check that the server runs"),
    ],
)
def test_trouble_says_where_it_is_and_what_to_do(error: Exception, expected: type[Exception], text: str) -> None:
    with pytest.raises(expected) as caught, explaining(parse_address("postgresql://ann:geheim@db/tasks")):
        raise error
    assert str(caught.value).startswith("postgresql://ann@db/tasks ")
    assert text in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://db/tasks?passwort=geheim", "postgresql://ann:geheim%dc@db/tasks"])
async def test_what_libpq_does_not_understand_is_refused_without_repeating_it(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="is not an address that PostgreSQL understands") as caught:
        await store.drivers()
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None
    await store.close()


async def test_a_lock_that_is_never_let_go_is_named(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    monkeypatch.setattr(postgres_connection, "LOCK_LIMIT_S", 0.05)
    hurried = PostgresStore(postgres_url)
    async with Held(postgres_url, sample.entry()):
        with pytest.raises(StoreUnavailable, match=r"is locked by another transaction for over .* find and end it"):
            await hurried.commit([sample.command("c1")])
    assert (await hurried.commit([sample.command("c1")]))[0].ok
    await hurried.close()


async def test_before_the_first_call_something_may_have_changed_now_and_then(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    before = store.changes()
    assert store.changes() == before
    await until(lambda: store.changes() != before)
