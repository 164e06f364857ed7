"""What deleting costs, without a clock: indexes are used, pages are bounded, and the work for each does not grow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast.core.events import ForkedFrom, Parent
from holdfast.journal.deletion import PAGE_HEADS, prune
from holdfast.journal.memory import MemoryStore
from holdfast.journal.postgres.rows import query_values
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.sql import queries
from holdfast.journal.sqlite.rows import conditions
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import DeletableStore, Query, Write
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.postgres.support import run_sql
from journal.support import sql

OLD = Query(ended_before=10**18)
PAGES = (
    Query(ended_before=5, ended_after=(0, ""), status=("completed", "failed"), limit=100),
    Query(ended_before=5, ended_after=(3, "x"), status=("completed",), name="daily", limit=100),
)
RELATIVES = (Query(parent_id="x"), Query(forked_from="x"), Query(ids=("x", "y")))
DELETING = (
    "family", "note_deleted", "delete_events", "delete_snapshots", "delete_unshared_blobs", "delete_blob_uses",
    "delete_pending", "delete_answered", "delete_executions",
)  # fmt: skip
TABLES = "executions|child|parent|fork|own|events|snapshots|blobs|blob_uses|ours|other|inbox|deleted"


# ---- SQLite ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    await SqliteStore(tmp_path / "j.db").close()
    return tmp_path / "j.db"


def sqlite_plan(path: Path, statement: str, values: Any) -> str:
    connection = apsw.Connection(str(path))
    try:
        return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))
    finally:
        connection.close()


def assert_searched(plan: str) -> None:
    assert not re.search(rf"SCAN ({TABLES})\b", plan), plan


@pytest.mark.parametrize("query", PAGES)
def test_a_page_of_what_ended_is_read_from_an_index_in_its_order(path: Path, query: Query) -> None:
    where, values = conditions(query)
    statement = f"{queries('sqlite')['head_columns']} {where} ORDER BY ended_at, id LIMIT ?"
    plan = sqlite_plan(path, statement, (*values, query.limit))
    assert "USING INDEX executions_ended ((ended_at,id)>(?,?) AND ended_at<?)" in plan
    assert "ORDER BY" not in plan  # nothing is sorted


@pytest.mark.parametrize("query", RELATIVES)
def test_relatives_are_found_by_an_index(path: Path, query: Query) -> None:
    where, values = conditions(query)
    assert_searched(sqlite_plan(path, f"{queries('sqlite')['head_columns']} {where} ORDER BY num DESC", values))


@pytest.mark.parametrize("name", DELETING)
def test_no_statement_that_deletes_walks_a_table(path: Path, name: str) -> None:
    assert_searched(sqlite_plan(path, queries("sqlite")[name], {"nums": "[1]", "ids": '["x"]'}))


def test_files_that_are_to_go_are_found_by_an_index(path: Path) -> None:
    assert_searched(sqlite_plan(path, queries("sqlite")["forget_deleted"], ('["x"]',)))


async def work_of(folder: Path, executions: int, *, rehearse: bool) -> Counter[str]:
    """What SQLite does to prune so many: statements, steps of its machine, and rows that it looked at one by one."""
    store = SqliteStore(folder / f"{executions}.db")
    await store.commit([write for number in range(executions) for write in ended(number)])
    work = Counter[str]()

    def done(event: dict[str, Any]) -> None:
        status = event["stmt_status"]
        work["statements"] += 1
        work["steps"] += status["SQLITE_STMTSTATUS_VM_STEP"]

    for connection in (store._writer, store._reader):  # pyright: ignore[reportPrivateUsage]
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, done)
    gone = [one async for bite in prune(store, OLD, folder, rehearse=rehearse) for one in bite.gone]
    assert len(gone) == executions
    await store.close()
    return work


def ended(number: int) -> list[Write]:
    """Every tenth has a child, and every tenth is a fork of one that has ended."""
    parent = Parent(id=sample_id(number - 1), path="c") if number % 10 == 1 else None
    origin = ForkedFrom(id=sample_id(number - 2)) if number % 10 == 5 else None
    sample = Sample(number, parent=parent, forked_from=origin)
    return [sample.new, sample.entry(5), sample.end()]


@pytest.mark.parametrize("rehearse", [True, False])
async def test_work_for_each_execution_does_not_grow_with_their_number(tmp_path: Path, rehearse: bool) -> None:
    few, many = 3 * PAGE_HEADS, 15 * PAGE_HEADS
    little, much = [await work_of(tmp_path, count, rehearse=rehearse) for count in (few, many)]
    for what in ("statements", "steps"):
        assert much[what] / many < 1.15 * little[what] / few, what
    assert much["statements"] < many / (4 if rehearse else 1)


# ---- PostgreSQL --------------------------------------------------------------------------------------------------


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.drivers()
    yield store
    await store.close()


async def postgres_plan(store: PostgresStore, statement: str, values: Any) -> str:
    """With the settings of the store's own transactions, and without statistics: tables are nearly empty."""
    connection: Any = await psycopg.AsyncConnection.connect(
        store.address.libpq, cursor_factory=psycopg.AsyncClientCursor, autocommit=True
    )
    async with connection:
        await connection.execute(f'SET search_path TO "{store.address.schema}"')
        async with connection.transaction():
            await connection.execute(queries("postgres")["walk_indexes"])
            rows = await (await connection.execute(f"EXPLAIN {statement}", values)).fetchall()
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("query", PAGES)
async def test_on_postgres_a_page_of_what_ended_is_read_in_order(postgres: PostgresStore, query: Query) -> None:
    parts = queries("postgres")
    statement = " ".join(parts[name] for name in ("head_columns", "conditions", "ended_heads"))
    plan = await postgres_plan(postgres, statement, query_values(query))
    assert "Index Scan using executions_ended" in plan
    assert re.search(r"Index Cond: .*ROW\(ended_at, id\) > ROW.*ended_at < ", plan), plan
    assert "Sort" not in plan, plan


@pytest.mark.parametrize("query", RELATIVES)
async def test_on_postgres_relatives_are_found_by_an_index(postgres: PostgresStore, query: Query) -> None:
    statement = f"{queries('postgres')['head_columns']} {queries('postgres')['conditions']}"
    assert "Seq Scan" not in await postgres_plan(postgres, statement, query_values(query))


@pytest.mark.parametrize("name", ["family", "needed_after_all", "forget_deleted"])
async def test_on_postgres_no_statement_that_deletes_walks_a_table(postgres: PostgresStore, name: str) -> None:
    plan = await postgres_plan(postgres, queries("postgres")[name], (["x", "y"],))
    assert not re.search("Seq Scan|Hash|Sort Key: .*ended", plan), plan


@pytest.mark.parametrize("rehearse", [True, False])
async def test_on_postgres_statements_for_each_do_not_grow(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch, rehearse: bool
) -> None:
    counts: list[float] = []
    execute: Any = psycopg.AsyncConnection.execute
    asked = Counter[str]()

    async def counted(connection: Any, statement: Any, *given: Any, **options: Any) -> Any:
        asked["statements"] += 1
        return await execute(connection, statement, *given, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    for executions in (2 * PAGE_HEADS, 6 * PAGE_HEADS):
        await run_sql(postgres, "TRUNCATE executions, events, deleted")
        await postgres.commit([write for number in range(executions) for write in ended(number)])
        asked.clear()
        gone = [one async for bite in prune(postgres, OLD, None, rehearse=rehearse) for one in bite.gone]
        assert len(gone) == executions
        counts.append(asked["statements"] / executions)
    assert counts[1] < 1.15 * counts[0]
    assert counts[1] < (0.25 if rehearse else 1)


# ---- all stores --------------------------------------------------------------------------------------------------


async def test_pages_are_bounded_and_come_to_an_end(tmp_path: Path) -> None:
    for store in (MemoryStore(), SqliteStore(tmp_path / "j.db")):
        samples = [Sample(number) for number in range(2 * PAGE_HEADS + 7)]
        living = Sample(900)
        child = Sample(901, parent=Parent(id=living.id, path="c"))  # has ended, and stays with its parent
        writes = [write for sample in (*samples, child) for write in (sample.new, sample.end())]
        await store.commit([living.new, *writes])
        bites = await bites_of(store)
        assert [len(bite.gone) + len(bite.kept) for bite in bites] == [PAGE_HEADS, PAGE_HEADS, 8]
        assert [head.id for bite in bites for head in bite.kept] == [child.id]
        assert await store.count(Query()) == 2
        await store.close()


async def test_damaged_times_do_not_keep_a_prune_going_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    for number in (1, 2, 3):
        await store.commit([Sample(number).new, *ended(number)[1:]])
    sql(path, f"UPDATE executions SET ended_at = 9000.5 WHERE id = '{sample_id(2)}'")
    await bites_of(store)
    assert sample_id(2) not in {head.id for head in await store.heads(Query(status=("queued",)))}
    await store.close()


async def bites_of(store: DeletableStore) -> list[Any]:
    return [bite async for bite in prune(store, OLD, None)]
