"""Deleting from PostgreSQL while others write, and a schema from before anything could be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.core.events import ForkedFrom
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.store import Forget
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.postgres.support import Held, run_sql, wait_for_sql

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FROM blobs%'"
TABLES = ("executions", "events", "snapshots", "blobs", "blob_uses", "inbox", "deleted")
OLDER = (
    "ALTER TABLE executions DROP COLUMN held, DROP COLUMN forked_from",
    "DROP INDEX blob_uses_digest",
    "DROP INDEX inbox_answered",
    "DROP TABLE deleted",
    "DROP TABLE keyed",
    "DROP INDEX executions_ended",
    "TRUNCATE blob_uses",
    "DELETE FROM schema_version",
    "INSERT INTO schema_version VALUES (1)",
)
MARK = '{"holdfast":"blob","digest":"%s","bytes":9000}'


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


async def test_a_blob_that_somebody_is_about_to_use_is_waited_for_and_kept(
    store: PostgresStore, postgres_url: str
) -> None:
    over, writing = Sample(1), Sample(2)
    blobs = (("shared", b"1"),)
    await store.commit([over.new, writing.new, over.end(blobs=blobs)])
    async with Held(postgres_url, writing.entry(blobs=blobs)) as other:
        deleting = asyncio.create_task(store.delete([over.id]))
        await wait_for_sql(store, WAITING, lambda found: found[0][0] > 0)
        await other.commit()
        assert await deleting == [over.id]
    assert await store.blob("shared") == b"1"


async def test_two_who_delete_the_same_delete_it_once(store: PostgresStore, postgres_url: str) -> None:
    samples = [Sample(number) for number in range(20)]
    for sample in samples:
        await store.commit([sample.new, sample.end(blobs=((f"b{sample.id}", b"1"),))])
    other = PostgresStore(postgres_url)
    ids = [sample.id for sample in samples]
    one, two = await asyncio.gather(store.delete(ids), other.delete(list(reversed(ids))))
    assert sorted([*one, *two]) == ids
    await store.commit([Forget(execution_ids=tuple(ids))])
    assert [await run_sql(store, f"SELECT count(*) FROM {table}") for table in TABLES] == [[(0,)]] * len(TABLES)
    await other.close()


async def test_an_older_schema_is_upgraded_with_all_references_counted(store: PostgresStore, postgres_url: str) -> None:
    child, parent = Sample(1), Sample(2, forked_from=ForkedFrom(id=sample_id(1)))
    digests = [f"{number:032x}" for number in range(3)]
    blobs = tuple((digest, b"large") for digest in digests)
    await store.commit([child.new, parent.new, child.end(blobs=blobs), parent.entry()])
    body = f"[{MARK % digests[0]}, {MARK % digests[1]}, {MARK % ('f' * 32)}]"
    await run_sql(
        store, f"UPDATE events SET body = convert_to('{body}', 'UTF8') WHERE execution = 2 AND seq = 2", *OLDER
    )
    await store.close()

    newer = PostgresStore(postgres_url)
    head = await newer.head(parent.id)
    assert (head.held, head.forked_from) == ("", child.id)
    uses = await run_sql(newer, "SELECT digest FROM blob_uses WHERE execution = 2 ORDER BY digest")
    assert uses == [(digests[0],), (digests[1],)]
    await newer.close()
