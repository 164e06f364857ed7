"""What the opening of a file checks, and what the doctor says of a file that is damaged."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from cli.workshop import Workshop
from holdfast.core.errors import StoreCorrupted
from holdfast.journal.log import read_state
from holdfast.journal.sqlite import integrity
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Query
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.support import sql


async def store_at(path: Path) -> None:
    store = SqliteStore(path)
    await store.commit([Sample(number, title=f"Tide {number}").new for number in (1, 2, 3)])
    await store.close()


def lead_astray(path: Path) -> None:
    """Change an index, and only that: it now says of an execution what its row does not."""
    ((page,),) = sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'executions_status'")
    body = path.read_bytes()
    place = body.index(b"queued", (page - 1) * 4096)
    path.write_bytes(body[:place] + b"paused" + body[place + 6 :])


def edit_schema(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(f"PRAGMA writable_schema=ON; {statement}").fetchall()
    connection.close()


async def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await store_at(path)
    lead_astray(path)
    with pytest.raises(StoreCorrupted, match=r"j\.db is damaged \(.*\); run `holdfast doctor`, and restore a backup"):
        SqliteStore(path)


async def test_a_changed_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await store_at(path)
    edit_schema(
        path, "UPDATE sqlite_schema SET sql = replace(sql, 'driver <>', 'driver >') WHERE name = 'executions_driver'"
    )
    with pytest.raises(StoreCorrupted, match=r"j\.db is damaged: its schema was changed \(executions_driver\)"):
        SqliteStore(path)


async def test_what_somebody_added_to_the_schema_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await store_at(path)
    sql(path, "CREATE INDEX mine ON executions (title)")
    await SqliteStore(path).close()
    assert sql(path, "SELECT name FROM sqlite_schema WHERE name = 'mine'") == [("mine",)]


async def test_a_large_store_is_not_walked_through_at_every_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    await store_at(path)
    lead_astray(path)
    monkeypatch.setattr(integrity, "CHECKED_ROWS_MAX", 2)
    monkeypatch.setattr(integrity, "CHECKED_PAGES_MAX", 2)
    store = SqliteStore(path)
    assert await store.check()  # the doctor finds it all the same
    await store.close()


COLUMNS = {
    "title": "'Ebb'",
    "name": "'x'",
    "status": "'completed'",
    "wake_at": "NULL",
    "ended_at": "5",
    "owner": "'eve'",
    "labels": '\'{"a":"b"}\'',
    "error": "'no'",
    "total": "7",
    "ended": "7",
    "parent_id": "'p'",
    "created_at": "7",
    "updated_at": "7",
    "concurrency_key": "'gpu'",
}


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_row_of_the_list_that_contradicts_its_events_is_not_believed(tmp_path: Path, column: str) -> None:
    path = tmp_path / "j.db"
    await store_at(path)
    sql(path, f"UPDATE executions SET {column} = {COLUMNS[column]} WHERE num = 2")
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupted, match=f"its row in the list was changed after it was written: {column} is"):
        await read_state(store, sample_id(2))
    await read_state(store, sample_id(1))
    await store.close()


async def test_events_that_an_index_no_longer_finds_are_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    sample = Sample(1)
    await store.commit([sample.new, sample.entry(5)])
    sql(path, "DELETE FROM events WHERE seq > 3")
    for after, limit in ((0, -1), (3, -1), (2, 2)):
        with pytest.raises(StoreCorrupted, match=r"has 3 events, its head says 6; the end of its journal is lost"):
            await store.events(sample.id, after, limit)
    with pytest.raises(StoreCorrupted, match="event 5 is missing"):
        await store.events(sample.id, 5, 1)
    assert len((await store.events(sample.id, 0, 3))[1]) == 3
    assert (await store.events(sample.id, 7, 5))[1] == []
    assert (await store.heads(Query()))[0].seq == 6
    await store.close()


def test_the_doctor_names_a_row_of_the_list_that_contradicts_its_events(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.run("run", "two.yaml")
    sql(shop.store, "UPDATE executions SET title = 'Three steps'")
    report = shop.run("doctor", "--json", code=1).json
    found = {finding["name"]: finding for finding in report["findings"]}["damaged execution"]
    assert "its row in the list was changed after it was written: title is 'Three steps'" in found["what"]
