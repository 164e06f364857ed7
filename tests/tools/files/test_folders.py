"""Folders that are made for a change: they stay if it is made, and go with it if it fails or is undone."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, ResourceShort, Transient
from holdfast.tools.files import atomic_ops
from holdfast.tools.files.os_errors import NotSynced
from holdfast.tools.files.safe_path import SafePath
from kits.files import Desk

MEMORY = Path("/dev/shm")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "f").write_text("f")
    return Desk(tmp_path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


def folders(desk: Desk) -> list[str]:
    found = (path for path in desk.folder.rglob("*") if path.is_dir() and ".holdfast" not in path.parts)
    return sorted(str(path.relative_to(desk.folder)) for path in found)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write", {"path": f"new/folder/{'n' * 300}", "text": "x"}),
        ("write", {"path": f"new/{'n' * 300}/x", "text": "x"}),
        ("move", {"path": "f", "to": f"new/folder/{'n' * 300}"}),
    ],
)
async def test_a_name_too_long_leaves_no_new_folder(desk: Desk, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall, match=r"/new/.*: File name too long; choose another path") as refused:
        await desk.do(name, **arguments)
    assert refused.value.without_effect
    assert folders(desk) == []
    assert desk.family.rollback(desk.call()).plan() == []


async def test_a_move_to_another_file_system_leaves_no_new_folder(desk: Desk, elsewhere: Path) -> None:
    both = Desk(desk.folder, roots=[".", str(elsewhere)])
    with pytest.raises(InvalidCall, match=r"is on another file system; write it there and delete it here"):
        await both.do("move", path="f", to=f"{elsewhere}/new/folder/f")
    assert os.listdir(elsewhere) == []
    assert desk.contents() == {"f": "f"}


async def test_a_folder_that_somebody_uses_by_then_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        (desk.folder / "new" / "theirs").write_text("theirs")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_ops, "_fill", full)
    (desk.folder / "was").mkdir()
    with pytest.raises(ResourceShort, match=r"new/folder/x: the disk is full"):
        await desk.do("write", path="new/folder/x", text="x")
    assert folders(desk) == ["new", "was"]
    assert desk.contents() == {"f": "f", "new/theirs": "theirs"}


@pytest.mark.parametrize("path", ["new/x", "new/folder/x"])
async def test_a_folder_that_goes_with_somebody_else_s_failure_is_made_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Two changes need the same new folder, and the one that made it fails."""
    enter = SafePath._push

    def enter_and_lose(spot: SafePath, opened: int, path: str) -> None:
        enter(spot, opened, path)
        if path.endswith("/new"):
            os.rmdir(path)

    with monkeypatch.context() as patch:
        patch.setattr(SafePath, "_push", enter_and_lose)
        with pytest.raises(Transient, match=r"/x was changed by somebody else at this very moment") as told:
            await desk.do("write", path=path, text="x")
    assert told.value.without_effect
    await desk.do("write", path=path, text="x")
    assert desk.contents() == {"f": "f", path: "x"}


async def test_folders_stay_with_a_change_that_the_disk_does_not_confirm(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(spot: Any) -> None:
        raise NotSynced(f"{spot.path} was changed")

    monkeypatch.setattr(atomic_ops, "sync", broken)
    with pytest.raises(NotSynced):
        await desk.do("write", path="new/folder/x", text="x")
    assert desk.contents() == {"f": "f", "new/folder/x": "x"}


async def test_a_rollback_that_fails_leaves_no_new_folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "deep" / "er").mkdir(parents=True)
    (desk.folder / "deep" / "er" / "x").write_text("x")
    for step, path in enumerate(("deep/er/x", "deep/er", "deep")):
        await desk.do("delete", f"{step}", path=path)
    work = desk.family.rollback(desk.call(), ["run:0"])

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_ops, "_fill", full)
        with pytest.raises(ResourceShort, match=r"deep/er/x: the disk is full"):
            work.apply()
    assert folders(desk) == []
    desk.family.rollback(desk.call()).apply()
    assert desk.contents() == {"deep/er/x": "x", "f": "f"}
