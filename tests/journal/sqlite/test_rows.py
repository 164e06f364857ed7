"""Rows that somebody spoilt: each is the damage of one execution, and the others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.errors import StoreCorrupted
from holdfast.journal.codec import Snapshot
from holdfast.journal.keyed import Conflict, KeyedRow, Put
from holdfast.journal.log import read_events, read_state
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import CacheItem, Query
from holdfast.testing.store_contract.samples import Sample, sample_answer, sample_id
from journal.support import sql

SPOILT = {
    "reasons": "'[{'",
    "labels": "'not JSON'",
    "created_at": "'yesterday'",
    "epoch": "'first'",
    "total": "x'00'",
    "name": "x'c3a9'",
    "title": "CAST(x'ff' AS TEXT)",
    "driver": "CAST(x'ff' AS TEXT)",
    "digest": "5",
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "j.db")
    await store.commit([Sample(number).new for number in (1, 2, 3)])
    yield store
    await store.close()


@pytest.mark.parametrize("column", SPOILT)
async def test_a_spoilt_head_is_listed_as_set_aside_and_stops_nobody(store: SqliteStore, column: str) -> None:
    sql(store.path, f"UPDATE executions SET {column} = {SPOILT[column]} WHERE num = 2")
    heads = await store.heads(Query())
    assert [head.id for head in heads] == [sample_id(3), sample_id(2), sample_id(1)]
    assert [bool(head.quarantined) for head in heads] == [False, True, False]
    assert heads[1].quarantined.startswith("its row in the list cannot be read (")
    assert (heads[1].labels, heads[1].reasons) == ({}, ())
    # Twice: the first time sets it aside for good, and it no longer counts among those that are asked for.
    assert [head.id for head in await store.claimable(50, [""], 9)] == [sample_id(1), sample_id(3)]
    assert [head.id for head in await store.claimable(50, [""], 2)] == [sample_id(1), sample_id(3)]
    assert await store.drivers() == []
    for read in (store.head, store.load):
        with pytest.raises(StoreCorrupted, match=f"execution {sample_id(2)} is damaged: its row in the list cannot be"):
            await read(sample_id(2))
    assert (await store.head(sample_id(1))).quarantined == ""


async def test_what_can_be_read_of_a_spoilt_head_is_kept(store: SqliteStore) -> None:
    sql(store.path, "UPDATE executions SET reasons = '[{', title = 'High tide' WHERE num = 2")
    head = (await store.heads(Query()))[1]
    assert (head.name, head.title, head.status, head.seq) == ("sample", "High tide", "queued", 1)
    assert "reasons: Input data was truncated" in head.quarantined


async def test_a_head_whose_id_is_no_text_is_listed_all_the_same(store: SqliteStore) -> None:
    sql(store.path, "UPDATE executions SET id = CAST(x'41ff' AS TEXT) WHERE num = 2")
    assert [head.id for head in await store.heads(Query())] == [sample_id(3), "A\ufffd", sample_id(1)]
    assert await store.find("0198") == [sample_id(3), sample_id(1)]


@pytest.mark.parametrize(
    "change",
    [
        "body = 'text'",
        "body = CAST(x'ff' AS TEXT)",
        "version = 'first'",
        "version = 9223372036854775807",
        "digest = 'text'",
        "digest = 7",
        "seq = 'two'",
    ],
)
async def test_an_event_of_the_wrong_type_is_damage(store: SqliteStore, change: str) -> None:
    sample = Sample(1)
    await store.commit([sample.entry(3)])
    sql(store.path, f"UPDATE events SET {change} WHERE execution = 1 AND seq = 2")
    with pytest.raises(StoreCorrupted, match=r"event|damaged"):
        await read_state(store, sample.id)
    with pytest.raises(StoreCorrupted, match=r"event|damaged"):
        await read_events(store, sample.id, 0)


@pytest.mark.parametrize("digest", ["'text'", "zeroblob(65)"])
async def test_a_page_that_follows_a_spoilt_digest_is_damage(store: SqliteStore, digest: str) -> None:
    sample = Sample(1)
    await store.commit([sample.entry(3)])
    sql(store.path, f"UPDATE events SET digest = {digest} WHERE execution = 1 AND seq = 2")
    with pytest.raises(StoreCorrupted, match="event 3 was changed after it was written"):
        await read_events(store, sample.id, 2)


@pytest.mark.parametrize("change", ["seq = 'two'", "chain = 'text'", "body = 5", "digest = 'text'", "version = 'one'"])
async def test_a_snapshot_of_the_wrong_type_is_not_needed(store: SqliteStore, change: str) -> None:
    sample = Sample(1)
    await store.commit([sample.entry(snapshot=Snapshot(2, 1, b"chain", b"body", b"digest"))])
    sql(store.path, f"UPDATE snapshots SET {change}")
    _, state, _ = await read_state(store, sample.id)
    assert state.seq == 2


async def test_a_blob_of_the_wrong_type_is_damage(store: SqliteStore) -> None:
    await store.commit([Sample(1).entry(blobs=(("d1", b"bytes"),))])
    sql(store.path, "UPDATE blobs SET body = 5")
    with pytest.raises(StoreCorrupted, match="blob d1 was changed after it was written: it is not even bytes"):
        await store.blob("d1")


SPOILT_COMMANDS = ["by = CAST(x'ff' AS TEXT)", "arguments = 5", "arguments = '[]'", "verb = 'stop'", "at = 7", "by = 5"]


@pytest.mark.parametrize("change", SPOILT_COMMANDS)
async def test_a_spoilt_command_is_refused_and_sets_its_receiver_aside(store: SqliteStore, change: str) -> None:
    await store.commit([Sample(number).command(f"c{number}") for number in (1, 2, 3)])
    sql(store.path, f"UPDATE inbox SET {change} WHERE num = 2")
    assert [command.id for command in await store.pending()] == ["c1", "c3"]
    answer = await store.answer("c2")
    assert answer is not None
    assert (answer.outcome, answer.text) == ("refused", "it was changed after it was written")
    aside = {head.id: head.quarantined for head in await store.heads(Query())}
    assert aside == {
        sample_id(1): "",
        sample_id(2): "command 2 of its inbox: it was changed after it was written",
        sample_id(3): "",
    }


@pytest.mark.parametrize("change", ["text = 'no'", "outcome = 'refused'", "seq = 3"])
async def test_a_changed_answer_is_not_believed(store: SqliteStore, change: str) -> None:
    sample = Sample(1)
    command = sample.command("c1")
    await store.commit([command, sample.entry(answers=(sample_answer(command),))])
    assert await store.answer("c1") == sample_answer(command)
    sql(store.path, f"UPDATE inbox SET {change}")
    with pytest.raises(StoreCorrupted, match="the answer to command c1 was changed after it was written"):
        await store.answer("c1")


@pytest.mark.parametrize("change", ["output = x'32'", "output = 5", "expires_at = 99"])
async def test_a_changed_item_of_the_cache_is_passed_over(store: SqliteStore, change: str) -> None:
    await store.commit([Sample(1).entry(cached=(CacheItem("k", b"1", 90),))])
    assert await store.cached("k", 50) == b"1"
    sql(store.path, f"UPDATE cache SET {change}")
    assert await store.cached("k", 50) is None


async def test_what_was_written_before_there_were_seals_is_taken_as_it_is(store: SqliteStore) -> None:
    sample = Sample(1)
    asked, answered = sample.command("c1"), sample.command("c2")
    cached = (CacheItem("k", b"1", 90),)
    await store.commit([asked, answered, sample.entry(answers=(sample_answer(answered),), cached=cached)])
    sql(store.path, "UPDATE inbox SET seal = x''; UPDATE cache SET seal = x''")
    assert await store.pending() == [asked]
    assert await store.answer("c2") == sample_answer(answered)
    assert await store.cached("k", 50) == b"1"


@pytest.mark.parametrize("change", ["version = 7", "value = x'00'", "version = 'x'", "key = CAST(x'62ff' AS TEXT)"])
async def test_a_spoilt_keyed_row_is_named_and_can_be_written_again(store: SqliteStore, change: str) -> None:
    put = Put(space="budget", key="ann", value=b"1")
    await store.commit([put, Put(space="budget", key="zoe", value=b"2")])
    assert await store.check() == []
    sql(store.path, f"UPDATE keyed SET {change} WHERE key = 'ann'")
    [trouble] = await store.check()
    assert trouble.startswith("row budget/")
    with pytest.raises(StoreCorrupted, match=r"row budget/.* was changed after it was written; restore a backup, or"):
        await store.rows("budget")
    assert await store.row("budget", "zoe") == KeyedRow("zoe", 1, b"2")
    if "key" in change:
        return
    with pytest.raises(StoreCorrupted, match="row budget/ann was changed"):
        await store.row("budget", "ann")
    asked = Put(space="budget", key="ann", value=b"3", if_version=7)
    assert (await store.commit([asked]))[0].conflict == Conflict("budget", "ann", -1)
    assert (await store.commit([put]))[0].ok
    assert await store.row("budget", "ann") == KeyedRow("ann", 1, b"1")
    assert await store.check() == []
