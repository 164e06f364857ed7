"""Files that are damaged, of another version, or not where they should be: each gets one clear sentence."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import HoldfastError, SchemaTooNew, StoreCorrupted, StoreUnavailable
from holdfast.journal.log import read_state
from holdfast.journal.sql import migrations
from holdfast.journal.sqlite import connection as sqlite_connection
from holdfast.journal.sqlite.connection import explaining
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.testing.store_contract.samples import Sample, sample_id
from journal.support import sql

VERSION = len(migrations("sqlite"))


async def filled(path: Path) -> None:
    store = SqliteStore(path)
    for number in range(60):
        sample = Sample(number)
        await store.commit([sample.new, sample.entry(20)])
    await store.close()


async def test_a_truncated_file_is_damage_in_words(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await filled(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)
    with pytest.raises(
        StoreCorrupted, match=r"j\.db is damaged: it has [\d,]+ bytes and should have [\d,]+; restore a backup"
    ):
        await read_everything(path)


async def test_a_file_with_an_overwritten_page_is_damage_in_words(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await filled(path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 4096)
    with pytest.raises(StoreCorrupted, match=r"damaged|missing"):
        await read_everything(path)


async def read_everything(path: Path) -> None:
    store = SqliteStore(path)
    try:
        assert await store.check()
        for number in range(60):
            await read_state(store, sample_id(number))
    finally:
        await store.close()


@pytest.mark.parametrize("content", [b"this is a letter, not a database\n" * 200, b"\0" * 10_000])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupted, match=r"letter\.txt is damaged \(.*not a database.*\); run `holdfast doctor`"):
        SqliteStore(path)
    assert path.read_bytes() == content


async def test_a_schema_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await SqliteStore(path).close()
    sql(path, "PRAGMA user_version = 99")
    with pytest.raises(
        SchemaTooNew,
        match=rf"j\.db has schema version 99, this Holdfast knows {VERSION}; upgrade Holdfast to open it",
    ):
        SqliteStore(path)
    assert sql(path, "PRAGMA user_version") == [(99,)]


async def test_an_older_file_is_upgraded_only_when_nobody_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    store = SqliteStore(path)
    await store.commit([Sample(1).new])
    await store.close()
    newer = [*migrations("sqlite"), "CREATE TABLE later (x)"]
    monkeypatch.setattr(sqlite_connection, "migrations", lambda _: newer)
    with pytest.raises(
        StoreUnavailable,
        match=f"must be upgraded from schema version {VERSION} to {VERSION + 1}, and another process is using it; "
        "end that process first",
    ):
        SqliteStore(path, may_migrate=lambda: False)
    assert sql(path, "PRAGMA user_version") == [(VERSION,)]
    store = SqliteStore(path, may_migrate=lambda: True)
    assert (await store.head(sample_id(1))).seq == 1
    await store.close()
    assert sql(path, "PRAGMA user_version") == [(VERSION + 1,)]
    assert sql(path, "SELECT count(*) FROM later") == [(0,)]


async def test_a_new_file_needs_nobodys_leave(tmp_path: Path) -> None:
    await SqliteStore(tmp_path / "deep" / "er" / "j.db", may_migrate=lambda: False).close()


async def test_an_upgrade_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    await SqliteStore(path).close()
    newer = [*migrations("sqlite"), "CREATE TABLE later (x); CREATE TABLE later (x)"]
    monkeypatch.setattr(sqlite_connection, "migrations", lambda _: newer)
    with pytest.raises(StoreUnavailable, match=r"cannot be read or written .*later already exists"):
        SqliteStore(path)
    monkeypatch.undo()
    assert sql(path, "PRAGMA user_version") == [(VERSION,)]
    await SqliteStore(path).close()


def test_a_folder_in_the_files_place_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r" is a folder; name a file in it, such as .*/holdfast\.db"):
        SqliteStore(tmp_path)


def test_a_file_in_the_folders_place_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"j\.db cannot be read or written \(.*\); check the disk, then resume"):
        SqliteStore(tmp_path / "file" / "j.db")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (apsw.FullError("full"), StoreUnavailable, "the disk is full, /x/j.db cannot grow; free some space and resume"),
        (
            apsw.ReadOnlyError("ro"),
            StoreUnavailable,
            "/x/j.db is read-only for this user; make the file and its folder",
        ),
        (PermissionError(13, "no"), StoreUnavailable, "/x/j.db is read-only for this user"),
        (apsw.CantOpenError("no"), StoreUnavailable, "/x/j.db cannot be opened; check that its folder exists"),
        (apsw.LockedError("no"), StoreUnavailable, "/x/j.db is locked by another process"),
        (apsw.CorruptError("bad"), StoreCorrupted, "/x/j.db is damaged \\(bad\\); run `holdfast doctor`"),
        (apsw.IOError("io"), StoreUnavailable, "/x/j.db cannot be read or written \\(io\\); check the disk"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_sqlite_says_is_translated(error: Exception, kind: type[HoldfastError], text: str) -> None:
    with pytest.raises(kind, match=text), explaining(Path("/x/j.db")):
        raise error


def test_other_errors_pass_untranslated() -> None:
    with pytest.raises(ZeroDivisionError), explaining(Path("/x/j.db")):
        raise ZeroDivisionError
