"""Where the data lies: found upwards as git finds its own, up to a border, and shared by linked worktrees."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.settings import load_settings


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def data_folder(start: Path, **environ: str) -> Path:
    return load_settings(start, environ).data_folder


def test_from_a_subfolder_the_data_folder_above_is_used(tmp_path: Path) -> None:
    make(tmp_path / ".holdfast")
    below = make(tmp_path / "a" / "b")
    settings = load_settings(below, {})
    assert (settings.root, settings.data_folder) == (tmp_path, tmp_path / ".holdfast")
    assert settings.sources["store"] == "default, found upwards"


def test_the_nearest_data_folder_wins(tmp_path: Path) -> None:
    make(tmp_path / ".holdfast")
    near = make(tmp_path / "a" / ".holdfast")
    assert data_folder(make(tmp_path / "a" / "b")) == near


def test_the_settings_file_says_where_the_project_is(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("")
    make(tmp_path / "a" / ".holdfast")
    assert data_folder(tmp_path / "a") == tmp_path / ".holdfast"


def test_the_home_folder_is_no_project_for_what_lies_in_it(tmp_path: Path) -> None:
    make(tmp_path / ".holdfast")
    home = make(tmp_path / "home")
    make(home / ".holdfast")
    below = make(home / "work")
    assert data_folder(below, HOME=str(home)) == below / ".holdfast"
    assert data_folder(home, HOME=str(home)) == home / ".holdfast"


def test_from_the_home_folder_nothing_above_is_looked_at(tmp_path: Path) -> None:
    make(tmp_path / ".holdfast")
    home = make(tmp_path / "home")
    assert data_folder(home, HOME=str(home)) == home / ".holdfast"


def test_a_data_folder_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / ".holdfast")
    below = make(tmp_path / "a")
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    assert data_folder(below) == below / ".holdfast"
    assert data_folder(tmp_path) == tmp_path / ".holdfast"


def test_the_search_ends_at_the_border_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / ".holdfast")
    mounted = make(tmp_path / "mounted" / "here")
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        device = found.st_dev + (1 if path.is_relative_to(tmp_path / "mounted") else 0)
        return os.stat_result((*found[:2], device, *found[3:10]))

    monkeypatch.setattr(Path, "stat", stat)
    assert data_folder(mounted) == mounted / ".holdfast"


def test_a_file_of_that_name_above_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / ".holdfast").write_text("")
    below = make(tmp_path / "a")
    assert data_folder(below) == below / ".holdfast"


# ---- worktrees -----------------------------------------------------------------------------------------------------


@pytest.fixture
def worktrees(tmp_path: Path) -> tuple[Path, Path]:
    """A main worktree and a linked one, as git writes them down."""
    main, linked = make(tmp_path / "main"), make(tmp_path / "linked")
    own = make(main / ".git" / "worktrees" / "linked")
    (own / "commondir").write_text("../..\n")
    (linked / ".git").write_text(f"gitdir: {own}\n")
    return main, linked


def test_a_linked_worktree_uses_the_data_of_the_main_one(worktrees: tuple[Path, Path]) -> None:
    main, linked = worktrees
    settings = load_settings(linked, {})
    assert (settings.root, settings.data_folder) == (linked, main / ".holdfast")
    assert settings.sources["store"] == "default, of the main git worktree"


def test_from_below_a_linked_worktree_the_same_project_is_found(worktrees: tuple[Path, Path]) -> None:
    main, linked = worktrees
    make(main / ".holdfast")
    below = make(linked / "a")
    make(main / "a")
    settings = load_settings(below, {})
    assert (settings.root, settings.data_folder) == (linked, main / ".holdfast")


def test_a_project_within_the_repository_has_its_twin_in_the_main_worktree(worktrees: tuple[Path, Path]) -> None:
    main, linked = worktrees
    for folder in (main, linked):
        (make(folder / "inner") / "holdfast.toml").write_text("")
    assert data_folder(linked / "inner") == main / "inner" / ".holdfast"


def test_a_folder_that_only_the_linked_worktree_has_keeps_its_data(worktrees: tuple[Path, Path]) -> None:
    _, linked = worktrees
    new = make(linked / "new")
    assert data_folder(new) == new / ".holdfast"


def test_data_that_a_linked_worktree_has_already_stays_in_use(worktrees: tuple[Path, Path]) -> None:
    _, linked = worktrees
    assert data_folder(linked.parent / "linked") != make(linked / ".holdfast")
    assert data_folder(linked) == linked / ".holdfast"


def test_a_setting_turns_sharing_off(worktrees: tuple[Path, Path]) -> None:
    _, linked = worktrees
    assert data_folder(linked, HOLDFAST_WORKTREES_SHARE="no") == linked / ".holdfast"
    (linked / "holdfast.toml").write_text("worktrees_share = false\n")
    assert data_folder(linked) == linked / ".holdfast"


@pytest.mark.parametrize(
    ("link", "common"),
    [("gitdir: ../nowhere", None), ("not a link", None), ("gitdir: ../own", None), ("gitdir: ../own", "../bare.git")],
    ids=["vanished", "unreadable", "submodule", "bare"],
)
def test_what_is_no_linked_worktree_has_data_of_its_own(tmp_path: Path, link: str, common: str | None) -> None:
    own, here = make(tmp_path / "own"), make(tmp_path / "here")
    make(tmp_path / "bare.git")
    (here / ".git").write_text(link)
    if common:
        (own / "commondir").write_text(common)
    assert data_folder(here) == here / ".holdfast"


@pytest.mark.skipif(shutil.which("git") is None, reason="git itself is wanted as a witness")
def test_worktrees_that_git_itself_made_are_understood(tmp_path: Path) -> None:
    main = make(tmp_path / "main")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (
        ("init", "-q"),
        (*identity, "commit", "-q", "--allow-empty", "-m", "x"),
        ("worktree", "add", "-q", "../w"),
    ):
        subprocess.run(["git", *command], cwd=main, check=True, capture_output=True)
    assert data_folder(tmp_path / "w") == main / ".holdfast"
    assert data_folder(main) == main / ".holdfast"
