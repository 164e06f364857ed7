"""What only a shared server can meet: other processes, deadlocks, lost connections, forks, other versions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import psycopg
import pytest

from engine.kit import until
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.postgres.connection import Connection
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.sql import migrations
from holdfast.journal.store import Claim, HeadChange, Quarantine, Query
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.postgres.support import Held, run_sql, start_python, wait_for_sql


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


# ---- several processes -------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.store import Claim
from holdfast.testing.store_contract.samples import Sample

async def main(url, number):
    store = PostgresStore(url)
    ours = [Sample(number * 100 + place, key=f"{number}-{place}") for place in range(5)]
    shared = [Sample(place) for place in range(5)]
    await store.commit([sample.new for sample in ours])
    print("ready", flush=True)
    sys.stdin.readline()
    won = 0
    for turn in range(40):
        order = shared if number == 1 else shared[::-1]
        commands = [sample.command(f"{number}-{turn}-{sample.id}") for sample in order]
        claims = [Claim(execution_id=sample.id, driver=str(number)) for sample in order]
        written = await store.commit([*(sample.entry() for sample in ours), *commands, *claims])
        assert all(result.ok for result in written[:10]), written
        won += sum(result.ok for result in written[10:])
    print(won, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_two_processes_write_at_once_and_nothing_is_lost(store: PostgresStore, postgres_url: str) -> None:
    await store.commit([Sample(number, limit=("gpu", 3)).new for number in range(5)])
    writers = [start_python(WRITER, postgres_url, number) for number in (1, 2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    won = 0
    for writer in writers:
        output, complaints = writer.communicate(timeout=60)
        assert writer.returncode == 0, complaints
        won += int(output)
    assert won == 3, "the places of a concurrency key are counted over all processes"
    assert len(await store.pending([sample_id(number) for number in range(5)])) == 2 * 40 * 5
    for number in (1, 2):
        for place in range(5):
            stored = await store.load(sample_id(number * 100 + place))
            assert [row.seq for row in stored.rows] == list(range(1, 42))
            assert stored.head.digest == stored.rows[-1].digest


async def test_many_open_an_empty_schema_at_once(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    assert await asyncio.gather(*(store.drivers() for store in stores)) == [[]] * 8
    assert await run_sql(stores[0], "SELECT version FROM schema_version") == [(len(migrations("postgres")),)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_deadlock_is_tried_again(store: PostgresStore) -> None:
    one, two = Sample(1), Sample(2)
    await store.commit([one.new, two.new])
    async with await psycopg.AsyncConnection.connect(store.address.libpq) as other:
        # It waits longer than the server takes to find a deadlock, so that the store's transaction is the victim.
        await other.execute(f'SET search_path TO "{store.address.schema}"'.encode())
        await other.execute("SET deadlock_timeout = '60s'")
        await other.execute("SELECT 1 FROM executions WHERE id = %s FOR UPDATE", (two.id,))
        committing = asyncio.create_task(store.commit([one.entry(), two.entry()]))
        await wait_for_sql(store, WAITING, lambda found: found[0][0] > 0)
        await other.execute("SELECT 1 FROM executions WHERE id = %s FOR UPDATE", (one.id,))
        await other.rollback()
        assert [written.ok for written in await committing] == [True, True]
    assert [(await store.head(sample.id)).seq for sample in (one, two)] == [2, 2]


WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


async def test_claims_under_one_concurrency_key_come_one_after_the_other(
    store: PostgresStore, postgres_url: str
) -> None:
    one, two = Sample(1, limit=("gpu", 1)), Sample(2, limit=("gpu", 1))
    await store.commit([one.new, two.new])
    async with Held(postgres_url, Claim(execution_id=one.id, driver="d1")) as first:
        second = asyncio.create_task(store.commit([Claim(execution_id=two.id, driver="d2")]))
        await wait_for_sql(store, WAITING, lambda found: found[0][0] > 0 or second.done())
        assert (await first.commit()).ok
        assert not (await second)[0].ok


async def test_an_execution_does_not_fall_asleep_over_a_command_that_is_just_being_written(
    store: PostgresStore, postgres_url: str
) -> None:
    sample = Sample(1, driver="d1")
    await store.commit([sample.new])
    async with Held(postgres_url, sample.command("c1")) as posting:
        sleep = HeadChange(status="waiting", wake_at=None)
        sleeping = asyncio.create_task(store.commit([sample.entry(0, change=sleep, release=True)]))
        await wait_for_sql(store, WAITING, lambda found: found[0][0] > 0 or sleeping.done())
        await posting.commit()
        assert (await sleeping)[0].ok
    assert [head.id for head in await store.claimable(50, [""], 10)] == [sample.id]


async def test_a_process_that_stands_still_in_a_transaction_holds_nobody_up_for_longer_than_its_lease(
    store: PostgresStore, postgres_url: str
) -> None:
    sample = Sample(1, driver="d1")
    await store.commit([sample.new])
    async with Held(f"{postgres_url}&lease_s=0.2", sample.entry()) as stopped:
        claim = Claim(execution_id=sample.id, driver="d2", replacing="d1")
        assert (await store.commit([claim]))[0].ok
        assert not (await stopped.commit()).ok  # tried again on a new connection, where the fence refuses it
    assert (await store.head(sample.id)).seq == 1


async def test_what_is_committed_is_on_disk_whatever_the_server_is_set_to(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}&options=-csynchronous_commit%3Doff")
    assert await store._transact(lambda connection: _show(connection, "synchronous_commit")) == "on"
    await store.close()


async def _show(connection: Connection, setting: str) -> str:
    row = await (await connection.execute(b"SELECT current_setting(%s)", (setting,))).fetchone()
    return row[0] if row else ""


async def test_a_head_its_snapshot_and_its_events_are_of_one_moment(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, other = Sample(1), PostgresStore(postgres_url)
    await store.commit([sample.new])
    find_num = store._num

    async def meanwhile_somebody_writes(*arguments: Any) -> int:
        assert (await other.commit([sample.entry()]))[0].ok
        return await find_num(*arguments)

    monkeypatch.setattr(store, "_num", meanwhile_somebody_writes)
    stored = await store.load(sample.id)
    assert (stored.head.seq, [row.seq for row in stored.rows]) == (1, [1])
    await other.close()


# ---- lost connections --------------------------------------------------------------------------

END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE application_name = 'holdfast' AND pid <> pg_backend_pid()
"""


async def test_sessions_that_ended_between_two_calls_are_nobodys_trouble(store: PostgresStore) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    assert await store.drivers() == []
    await run_sql(store, END_SESSIONS)
    assert (await store.head(sample.id)).seq == 1
    await run_sql(store, END_SESSIONS)
    assert (await store.commit([sample.entry()]))[0].ok
    assert (await store.head(sample.id)).seq == 2


async def test_a_listener_that_was_cut_off_comes_back_and_hears_again(store: PostgresStore, postgres_url: str) -> None:
    sample, other = Sample(1), PostgresStore(postgres_url)
    await store.commit([sample.new])
    await run_sql(store, END_SESSIONS)
    before = store.changes()
    # It cannot know what it missed, so it says that there may have been something.
    await until(lambda: store.changes() != before)
    await store.head(sample.id)
    quiet = store.changes()
    assert store.changes() == quiet
    await other.commit([sample.entry()])
    await until(lambda: store.changes() != quiet)
    await other.close()


# ---- forks and ends ----------------------------------------------------------------------------


async def test_a_closed_store_says_so(store: PostgresStore) -> None:
    await store.commit([Sample(1).new])
    await store.close()
    for use in (store.heads(Query()), store.commit([])):
        with pytest.raises(StoreUnavailable, match=r"test_\w+ was closed"):
            await use
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.changes()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_store_does_not_work_in_a_forked_child(store: PostgresStore) -> None:
    await store.commit([Sample(1).new])
    await store.heads(Query())
    uses: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.commit([Sample(2).new]),
        lambda: store.heads(Query()),
        lambda: store.commit([Quarantine(execution_id="x", why="y")]),
        lambda: asyncio.sleep(0, store.changes()),
    ]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, "\n".join(_refusal(use) for use in uses).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        texts = pipe.read().splitlines()
    os.waitpid(child, 0)  # noqa: ASYNC222 -- it has closed its end: it is gone
    assert texts == ["this store was opened before a fork; open a new one in the child process"] * 4
    assert (await store.commit([Sample(2).new]))[0].ok


def _refusal(use: Callable[[], Coroutine[Any, Any, object]]) -> str:
    try:
        use().send(None)
    except StoreUnavailable as error:
        return str(error)
    except BaseException as error:
        return repr(error)
    return "it waits"
