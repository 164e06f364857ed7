"""Leases by the server's clock: who counts as dead, from when on, and what is left behind."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from engine.kit import until
from holdfast.journal.postgres.store import PostgresStore
from holdfast.testing.store_contract.samples import Sample
from journal.postgres.support import run_sql, wait_for_sql
from servers.postgres import PostgresServer

Open = Callable[..., PostgresStore]
LONG_S = 3600


@pytest.fixture
async def open_store(postgres_server: PostgresServer) -> AsyncIterator[Open]:
    """Stores on one schema, each with the length of its own leases."""
    schema = postgres_server.schema_url().partition("schema=")[2]
    stores: list[PostgresStore] = []

    def open_one(*drivers: str, lease_s: float = 0.1) -> PostgresStore:
        store = PostgresStore(postgres_server.schema_url(schema, lease_s=lease_s))
        for driver in drivers:
            store.leases.register(driver)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


async def test_a_driver_lives_as_long_as_its_lease_is_renewed(open_store: Open) -> None:
    ours, theirs = open_store("d1", lease_s=0.4), open_store()
    await ours.commit([Sample(1, driver="d1").new])
    first = await run_sql(ours, "SELECT until FROM leases")
    await wait_for_sql(ours, "SELECT until FROM leases", lambda found: found != first)
    assert await theirs.drivers() == ["d1"]


async def test_whose_lease_has_run_out_is_dead_from_the_next_look_on(open_store: Open) -> None:
    ours, theirs = open_store("d1", lease_s=LONG_S), open_store()
    await ours.commit([Sample(1, driver="d1").new])
    assert await theirs.drivers() == ["d1"]
    assert not theirs.leases.is_dead("d1")
    await run_sql(ours, "UPDATE leases SET until = now() - interval '1 s', length = interval '1 ms'")
    assert not theirs.leases.is_dead("d1")
    assert await theirs.drivers() == ["d1"]
    assert theirs.leases.is_dead("d1")
    assert not ours.leases.is_dead("d1")


async def test_whoever_holds_something_without_a_lease_is_dead_and_who_is_unknown_is_not(open_store: Open) -> None:
    store = open_store()
    await store.commit([Sample(1, driver="gone").new])
    assert not store.leases.is_dead("gone")
    await store.drivers()
    assert store.leases.is_dead("gone")
    assert not store.leases.is_dead("never heard of")


async def test_our_own_drivers_are_alive_to_us(open_store: Open) -> None:
    store = open_store("d1", lease_s=LONG_S)
    await store.commit([Sample(1, driver="d1").new])
    await run_sql(store, "DELETE FROM leases")
    await store.drivers()
    assert not store.leases.is_dead("d1")


async def test_a_store_that_closes_gives_its_leases_back_at_once(open_store: Open) -> None:
    ours, theirs = open_store("d1", lease_s=LONG_S), open_store()
    await ours.commit([Sample(1, driver="d1").new])
    ours.leases.release("d1")
    await ours.close()
    await theirs.drivers()
    assert theirs.leases.is_dead("d1")


async def test_after_a_restart_of_the_server_everybody_has_a_lease_s_length_to_come_back(open_store: Open) -> None:
    """The server of these tests has not run for an hour: who had a lease of an hour may still be on the way."""
    store = open_store()
    await store.commit([Sample(1, driver="d1").new])
    await run_sql(store, "INSERT INTO leases VALUES ('d1', now() - interval '2 h', interval '1 h')")
    await store.drivers()
    assert not store.leases.is_dead("d1")


async def test_leases_of_the_dead_who_hold_nothing_are_removed(open_store: Open) -> None:
    ours = open_store("d1")
    await ours.commit([Sample(1, driver="holds").new])
    old = "now() - interval '1 h', interval '1 s'"
    await run_sql(ours, f"INSERT INTO leases VALUES ('holds', {old}), ('empty', {old})")
    await wait_for_sql(ours, "SELECT driver FROM leases ORDER BY 1", lambda found: found == [("d1",), ("holds",)])


async def test_the_dead_are_seen_with_every_renewal(open_store: Open) -> None:
    ours = open_store("d1")
    await ours.commit([Sample(1, driver="gone").new])
    await until(lambda: ours.leases.is_dead("gone"))


async def test_who_slept_longer_than_a_lease_gives_the_others_as_long_to_wake_up(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_store("d1", lease_s=LONG_S)
    await ours.commit([Sample(1, driver="d2").new, Sample(2, driver="d3").new])
    await run_sql(ours, "INSERT INTO leases VALUES ('d2', now() + interval '1 h', interval '1 ms')")
    await ours.drivers()
    assert (ours.leases.is_dead("d2"), ours.leases.is_dead("d3")) == (False, True)
    real = ours.leases._clock  # pyright: ignore[reportPrivateUsage]
    slept = [2.0 * LONG_S]
    monkeypatch.setattr(ours.leases, "_clock", lambda: real() + slept[0])
    await run_sql(ours, "UPDATE leases SET until = now() - interval '1 s'")
    await ours.drivers()
    assert (ours.leases.is_dead("d2"), ours.leases.is_dead("d3")) == (False, True)
    async with ours._leasing.use() as connection:  # pyright: ignore[reportPrivateUsage]
        await ours.leases.write(connection)
        await ours.drivers()
        assert not ours.leases.is_dead("d2")
        for _ in range(2):  # awake all the while, and d2 does not come back
            slept[0] += LONG_S / 2
            await ours.leases.write(connection)
    await ours.drivers()
    assert ours.leases.is_dead("d2")


async def test_a_lease_that_cannot_be_renewed_is_told_and_tried_again(
    open_store: Open, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    ours = open_store("d1")
    await ours.commit([Sample(1, driver="d1").new])
    postgres_server.stop()
    try:
        with caplog.at_level(logging.WARNING, "holdfast"):
            await until(lambda: "the lease of this process cannot be renewed" in caplog.text)
    finally:
        postgres_server.start()
    await run_sql(ours, "DELETE FROM leases")
    await wait_for_sql(ours, "SELECT 1 FROM leases", bool)
