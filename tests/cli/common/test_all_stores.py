"""`holdfast list --all`: executions of all folders and databases this user has used."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cli.workshop import Workshop
from servers.postgres import PostgresServer


@pytest.fixture
def shops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Workshop]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    return [Workshop(folder) for folder in folders]


def test_executions_of_all_folders_are_listed_newest_first_with_their_folder(shops: list[Workshop]) -> None:
    one, two = shops
    one.run("run", "two.yaml")
    two.run("run", "ask.yaml", code=3)
    listed = one.run("list", "--all", "--json").json
    assert [(head["name"], head["folder"]) for head in listed] == [("ask", str(two.folder)), ("two", str(one.folder))]
    assert listed[0]["store"] == str(two.store)
    heading, first, second = two.run("list", "--all").out.splitlines()
    assert "FOLDER" in heading
    assert str(two.folder) in first
    assert str(one.folder) in second
    assert "FOLDER" not in two.run("list").out


def test_what_was_started_in_a_linked_worktree_is_listed_with_that(shops: list[Workshop], tmp_path: Path) -> None:
    one, _ = shops
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"], ["worktree", "add", "-q", "../linked"]):
        subprocess.run([*git, *words], cwd=one.folder, check=True)
    one.run("run", "two.yaml")
    one.run("-C", "../linked", "run", "two.yaml")
    listed = one.run("list", "--all", "--json").json
    assert [head["folder"] for head in listed] == [str(tmp_path / "linked"), str(one.folder)]
    assert {head["store"] for head in listed} == {str(one.store)}


def test_filters_and_the_limit_hold_for_all_of_them(shops: list[Workshop]) -> None:
    one, two = shops
    one.run("run", "two.yaml")
    two.run("run", "ask.yaml", code=3)
    assert [head["name"] for head in one.run("list", "--all", "--status", "waiting", "--json").json] == ["ask"]
    assert [head["name"] for head in one.run("list", "--all", "--limit", "1", "--json").json] == ["ask"]


def test_a_backup_that_was_used_lists_nothing_twice(shops: list[Workshop]) -> None:
    one, _ = shops
    one.run("run", "ask.yaml", code=3)
    one.run("run", "two.yaml")
    one.run("backup", "copy.db")
    one.run("--store", "copy.db", "resume", "--held", "--all")
    one.run("--store", "copy.db", "run", "fail.yaml", code=1)
    listed = one.run("list", "--all", "--json")
    assert [head["name"] for head in listed.json] == ["fail", "two", "ask"]
    assert "2 more are copies, as in a backup: each is listed once, where it went on last" in listed.err
    one.run("approve", "--name", "ask", "--step", "publish")
    assert {head["name"]: Path(head["store"]).name for head in one.run("list", "--all", "--json").json} == {
        "fail": "copy.db", "two": "journal.db", "ask": "journal.db"
    }  # fmt: skip


def test_a_store_that_is_gone_or_damaged_hides_nothing_else(shops: list[Workshop]) -> None:
    one, two = shops
    one.run("run", "two.yaml")
    two.run("run", "ask.yaml", code=3)
    two.store.write_bytes(b"not a database at all" * 1000)
    listed = one.run("list", "--all", "--json")
    assert [head["name"] for head in listed.json] == ["two"]
    assert f"{two.store} is left out: " in listed.err
    two.store.unlink()
    assert one.run("list", "--all").err == ""


def test_a_database_is_listed_by_its_address_without_the_password(
    shops: list[Workshop], postgres_server: PostgresServer
) -> None:
    one, two = shops
    url = postgres_server.schema_url(lease_s=1).replace("postgres@", "postgres:geheim@")
    two.write("holdfast.toml", f'modules = ["tools.py"]\nstore = "{url}"\n')
    two.run("run", "two.yaml")
    one.run("run", "two.yaml")
    listed = one.run("list", "--all")
    assert "postgresql://postgres@127.0.0.1" in listed.out
    assert "geheim" not in listed.out
    assert {head["folder"] for head in one.run("list", "--all", "--json").json} == {str(one.folder), str(two.folder)}


def test_a_database_that_is_not_there_is_named_and_left_out(shops: list[Workshop]) -> None:
    one, two = shops
    one.run("run", "two.yaml")
    two.write("holdfast.toml", 'store = "postgresql://ann:geheim@127.0.0.1:1/tasks"\n')
    two.run("run", "two.yaml", code=None)
    listed = one.run("list", "--all", "--json")
    assert len(listed.json) == 1
    assert "postgresql://ann@127.0.0.1:1/tasks is left out: " in listed.err
    assert "geheim" not in listed.err
