"""The stores a user has used: remembered once, forgotten when gone, and never in anybody's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.settings import Settings, load_settings
from holdfast.settings.known_stores import STORES_MAX, KnownStore, known_stores, remember


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def used(folder: Path) -> Settings:
    """A project in which something was run."""
    settings = load_settings(folder, {})
    settings.data_folder.mkdir(parents=True)
    Path(settings.store).touch()
    return settings


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "state" / "holdfast" / "stores.json"


def test_a_store_is_remembered_once(tmp_path: Path, environ: dict[str, str]) -> None:
    settings = used(tmp_path / "one")
    remember(settings, environ)
    written = file_of(tmp_path).stat().st_mtime_ns
    remember(settings, environ)
    assert known_stores(environ) == [KnownStore(settings.store, str(tmp_path / "one"))]
    assert file_of(tmp_path).stat().st_mtime_ns == written
    assert file_of(tmp_path).stat().st_mode & 0o077 == 0
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == ["stores.json"]


def test_a_store_that_is_gone_is_forgotten(tmp_path: Path, environ: dict[str, str]) -> None:
    one, two = used(tmp_path / "one"), used(tmp_path / "two")
    for settings in (one, two):
        remember(settings, environ)
    Path(one.store).unlink()
    assert [known.folder for known in known_stores(environ)] == [str(tmp_path / "two")]
    assert str(tmp_path / "one") not in file_of(tmp_path).read_text()


def test_a_password_is_never_written_down(tmp_path: Path, environ: dict[str, str]) -> None:
    remember(load_settings(tmp_path, {"HOLDFAST_STORE": "postgresql://ann:geheim@db/tasks"}), environ)
    assert known_stores(environ) == [KnownStore("postgresql://ann@db/tasks", str(tmp_path))]
    assert "geheim" not in file_of(tmp_path).read_text()


def test_a_store_in_memory_is_not_remembered(tmp_path: Path, environ: dict[str, str]) -> None:
    remember(load_settings(tmp_path, {"HOLDFAST_STORE": "memory:"}), environ)
    assert known_stores(environ) == []


def test_the_oldest_are_forgotten_when_there_are_too_many(tmp_path: Path, environ: dict[str, str]) -> None:
    many = [{"store": f"postgresql://db/{n}", "folder": "/"} for n in range(STORES_MAX)]
    file_of(tmp_path).parent.mkdir(parents=True)
    file_of(tmp_path).write_text(json.dumps({"stores": many}))
    remember(used(tmp_path / "one"), environ)
    known = known_stores(environ)
    assert len(known) == STORES_MAX
    assert (known[0].store, known[-1].folder) == ("postgresql://db/1", str(tmp_path / "one"))


@pytest.mark.parametrize("text", ["", "[", "[]", "3", '{"stores": 3}', '{"stores": [{}]}', "[" * 5000, "\udcff"])
def test_a_file_that_is_not_ours_is_as_good_as_none(tmp_path: Path, environ: dict[str, str], text: str) -> None:
    file_of(tmp_path).parent.mkdir(parents=True)
    file_of(tmp_path).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert known_stores(environ) == []
    remember(used(tmp_path / "one"), environ)
    assert len(known_stores(environ)) == 1


def test_a_state_folder_that_cannot_be_written_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    remember(used(tmp_path / "one"), environ)
    assert known_stores(environ) == []


def test_without_a_state_folder_it_is_the_usual_one_in_the_home_folder(tmp_path: Path) -> None:
    remember(used(tmp_path / "one"), {"HOME": str(tmp_path)})
    assert (tmp_path / ".local" / "state" / "holdfast" / "stores.json").exists()
