"""What a step changed can be undone: newest first, only what nobody changed since, and again after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, NotPermitted, Refused, ResourceShort, UsageError
from holdfast.tools.files import undo_store as before_module
from holdfast.tools.files.rollback import Rollback, Undoing
from holdfast.tools.files.undo_store import UndoStore, forget
from holdfast.tools.tool import tool
from kits.files import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def rollback(desk: Desk, *steps: str, execution: str = "run") -> Rollback:
    keys = [f"{execution}:{step}" for step in steps] or None
    return desk.family.rollback(desk.call(execution=execution), keys)


def all_of(desk: Desk, force: bool = False) -> list[Undoing]:
    work = rollback(desk)
    done = work.checked(force=force)
    for undoing in done:
        work.undo(undoing)
    return done


async def work_in(desk: Desk) -> dict[str, str]:
    """Everything that can be changed, some of it twice; returns what was there before."""
    folder = desk.folder
    (folder / "a").mkdir()
    (folder / "a" / "old").write_text("old\n")
    (folder / "gone").write_text("gone\n")
    (folder / "gone").chmod(0o600)
    (folder / "link").symlink_to("gone")
    (folder / "empty").mkdir(mode=0o750)
    before = desk.contents()
    await desk.do("write", "1", path="new/deep/f", text="1")
    await desk.do("write", "2", path="a/old", text="2")
    await desk.do("edit", "3", path="a/old", old="2", new="3")
    await desk.do("delete", "4", path="link")
    await desk.do("delete", "5", path="gone")
    await desk.do("delete", "6", path="empty")
    await desk.do("move", "7", path="a", to="b/c")
    await desk.do("edit", "8", path="b/c/old", old="3", new="8")
    await desk.do("write", "9", path="a", text="9")
    await desk.do("move", "10", path="new/deep/f", to="b/g")
    await desk.do("write", "11", path="new/deep/f", text="11")
    return before


async def test_a_whole_execution_is_undone_newest_first(desk: Desk) -> None:
    before = await work_in(desk)
    assert desk.contents() == {"a": "9", "b/c/old": "8", "b/g": "1", "new/deep/f": "11"}
    done = all_of(desk)
    assert [undoing.change.step for undoing in done] == [str(number) for number in range(11, 0, -1)]
    assert [undoing.action for undoing in done] == [
        "remove", "move_back", "remove", "restore", "move_back", "restore", "restore", "restore", "restore", "restore",
        "remove",
    ]  # fmt: skip
    assert desk.contents() == before
    assert os.readlink(desk.folder / "link") == "gone"
    assert (desk.folder / "gone").stat().st_mode & 0o777 == 0o600
    assert (desk.folder / "empty").stat().st_mode & 0o777 == 0o750
    assert sorted(os.listdir(desk.folder)) == [".holdfast", "a", "empty", "gone", "link"]  # and no folder it had made
    assert all_of(desk) == []


async def test_looking_first_changes_nothing(desk: Desk) -> None:
    await work_in(desk)
    there = desk.contents()
    planned = rollback(desk).plan()
    assert [undoing.problem for undoing in planned] == [""] * 11
    assert desk.contents() == there


@pytest.mark.parametrize("killed_after", range(11))
async def test_a_rollback_that_was_killed_can_be_repeated(desk: Desk, killed_after: int) -> None:
    """Killed when a change is undone and that is not yet noted."""
    before = await work_in(desk)
    work = rollback(desk)
    for undoing in work.checked()[:killed_after]:
        work.undo(undoing)
    last = rollback(desk).checked()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.family.before, "settle", lambda *_: None)
        rollback(desk).undo(last)
    all_of(desk)
    assert desk.contents() == before


async def test_a_change_that_was_never_made_needs_no_undoing(desk: Desk) -> None:
    (desk.folder / "f").write_text("o")
    desk.die_while_changing("edit", path="f", old="o", new="n")
    assert [undoing.action for undoing in all_of(desk)] == ["nothing"]
    assert desk.contents()["f"] == "o"


async def test_a_step_is_undone_by_its_tool(desk: Desk) -> None:
    (desk.folder / "f").write_text("o")
    await desk.do("write", "one", path="f", text="1")
    await desk.do("write", "two", path="g", text="2")
    await desk.undo("write", "one")
    assert desk.contents() == {"f": "o", "g": "2"}
    await desk.undo("write", "one")
    assert desk.contents() == {"f": "o", "g": "2"}


async def test_what_somebody_else_changed_since_is_not_lost(desk: Desk) -> None:
    (desk.folder / "f").write_text("o")
    await desk.do("write", "one", path="f", text="1")
    await desk.do("write", "two", path="g", text="2")
    (desk.folder / "f").write_text("theirs")
    with pytest.raises(Refused) as refused:
        all_of(desk)
    assert str(refused.value) == (
        f"nothing was undone:\n  {desk.folder}/f was changed since one by somebody else; "
        "put it aside, or use --force to lose that"
    )
    assert desk.contents() == {"f": "theirs", "g": "2"}
    all_of(desk, force=True)
    assert desk.contents() == {"f": "o"}


@pytest.mark.parametrize("force", [False, True])
async def test_what_somebody_changes_while_the_rollback_runs_is_lost_only_by_force(desk: Desk, force: bool) -> None:
    (desk.folder / "f").write_text("o")
    await desk.do("write", "one", path="f", text="1")
    await desk.do("edit", "two", path="f", old="1", new="2")
    work = rollback(desk)
    two, one = work.checked(force=force)
    work.undo(two)
    (desk.folder / "f").write_text("theirs")
    if force:
        work.undo(one)
        assert desk.contents() == {"f": "o"}
        return
    with pytest.raises(Refused) as refused:
        work.undo(one)
    assert str(refused.value) == (
        "the rollback stopped at one; what was undone before stays so, and another rollback undoes the rest:\n"
        f"  {desk.folder}/f was changed since one by somebody else; put it aside, or use --force to lose that"
    )
    assert desk.contents() == {"f": "theirs"}
    (desk.folder / "f").write_text("1")
    all_of(desk)
    assert desk.contents() == {"f": "o"}


@pytest.mark.parametrize("name", ["f", "new/g"])
async def test_what_was_moved_and_changed_while_the_rollback_runs_stays(desk: Desk, name: str) -> None:
    (desk.folder / "f").write_text("o")
    await desk.do("move", "one", path="f", to="new/g")
    work = rollback(desk)
    (undoing,) = work.checked()
    (desk.folder / name).write_text("theirs")
    with pytest.raises(Refused, match=rf"stopped at one; .*\n  .*/{name} was changed since one by somebody else"):
        work.undo(undoing)
    assert desk.contents() == {"new/g": "o", name: "theirs"}


async def test_a_step_is_not_undone_below_a_later_one(desk: Desk) -> None:
    await desk.do("write", "one", path="f", text="1")
    await desk.do("edit", "two", path="f", old="1", new="2")
    with pytest.raises(Refused, match=r"f was changed since one by the step two; undo that first"):
        rollback(desk, "one").checked()
    rollback(desk, "two").apply()
    assert desk.contents() == {"f": "1"}
    rollback(desk, "one").apply()
    assert desk.contents() == {}


async def test_a_move_is_not_undone_over_something_new_not_even_by_force(desk: Desk) -> None:
    (desk.folder / "f").write_text("o")
    await desk.do("move", "one", path="f", to="g")
    (desk.folder / "f").write_text("theirs")
    with pytest.raises(Refused, match=r"/f was changed since one by somebody else"):
        all_of(desk)
    (undoing,) = all_of(desk, force=True)
    assert not undoing.forcible
    assert desk.contents() == {"f": "theirs", "g": "o"}
    (desk.folder / "f").unlink()
    (desk.folder / "g").write_text("changed")
    with pytest.raises(Refused, match=r"/g was changed since one by somebody else"):
        all_of(desk)


async def test_undoing_leads_outside_no_more_than_doing(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "f").write_text("1")
    await desk.do("write", "one", path="d/f", text="1")
    (desk.folder / "d" / "f").unlink()
    (desk.folder / "d").rmdir()
    (desk.folder / "d").symlink_to(outside)
    with pytest.raises(NotPermitted, match="leads outside the allowed folders"):
        all_of(desk, force=True)
    assert (outside / "f").read_text() == "1"
    elsewhere = Desk(desk.folder, roots=["only"])
    with pytest.raises(NotPermitted, match="leads outside the allowed folders"):
        all_of(elsewhere)


# ---- room ------------------------------------------------------------------------------------------------------------


def images(desk: Desk) -> dict[str, int]:
    """Bytes kept for each execution."""
    folders = (folder for folder in (desk.folder / ".holdfast" / "before").iterdir() if folder.is_dir())
    return {
        folder.name: sum(file.stat().st_size for file in folder.iterdir() if file.name != "index.jsonl")
        for folder in folders
    }


async def test_the_oldest_executions_make_room_and_a_rollback_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path, before_bytes_max=100)
    for number, execution in enumerate(("first", "second", "third")):
        (tmp_path / "f").write_text(str(number) * 40)
        await desk.do("write", execution=execution, path="f", text=execution)
        kept = tmp_path / ".holdfast" / "before" / execution
        for written in (kept / "index.jsonl", kept):
            os.utime(written, ns=(number, number))
    assert images(desk) == {"first": 0, "second": 40, "third": 40}
    (tmp_path / "f").write_text("first")
    with pytest.raises(Refused, match=r"f: what it was before step was pruned to make room; --force undoes the rest"):
        rollback(desk, execution="first").checked()
    (tmp_path / "f").write_text("third")
    rollback(desk, execution="third").apply()
    assert desk.contents() == {"f": "2" * 40}


async def test_what_is_pruned_while_a_rollback_runs_stops_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, before_bytes_max=100)
    (tmp_path / "f").write_text("f" * 60)
    (tmp_path / "g").write_text("g" * 60)
    await desk.do("write", "one", path="f", text="1")
    work = rollback(desk)
    (undoing,) = work.checked()
    await desk.do("delete", execution="other", path="g")
    with pytest.raises(Refused, match=r"stopped at one; .*\n  .*f: what it was before one was pruned to make room"):
        work.undo(undoing)
    assert desk.contents() == {"f": "1"}


async def test_an_execution_never_prunes_itself(tmp_path: Path) -> None:
    desk = Desk(tmp_path, before_bytes_max=100)
    for name in "abc":
        (tmp_path / name).write_text(name * 40)
    await desk.do("delete", "1", path="a")
    await desk.do("delete", "2", path="b")
    with pytest.raises(ResourceShort, match=r"c: this execution has changed more than the 100 bytes that are kept"):
        await desk.do("delete", "3", path="c")
    (tmp_path / "big").write_text("x" * 101)
    with pytest.raises(
        InvalidCall, match=r"big has 101 bytes, and only 100 are kept .* or set it to 0 to change files"
    ):
        await desk.do("delete", "4", path="big")
    assert sorted(desk.contents()) == ["big", "c"]


async def test_what_other_processes_keep_is_counted_in_time(tmp_path: Path) -> None:
    one, other = (Desk(tmp_path, before_bytes_max=1000) for _ in range(2))
    for number in range(40):
        desk, execution = (one, "one") if number % 2 else (other, "other")
        (tmp_path / "f").write_text(f"{number:050}")
        await desk.do("delete", f"{number}", execution, path="f")
        assert sum(images(desk).values()) <= 1000 + 1000 // before_module.RESCAN_PART + 50


async def test_nothing_is_kept_if_that_is_set(tmp_path: Path) -> None:
    desk = Desk(tmp_path, before_bytes_max=0)
    await desk.do("write", path="f", text="1")
    await desk.do("write", path="f", text="2")
    assert all_of(desk) == []
    assert os.listdir(tmp_path) == ["f"]


async def test_the_same_content_is_kept_once_and_only_for_its_owner(desk: Desk) -> None:
    for name in "ab":
        (desk.folder / name).write_text("same")
        await desk.do("delete", name, path=name)
    (folder,) = (desk.folder / ".holdfast" / "before" / "run",)
    assert len(os.listdir(folder)) == 2
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder.parent / ".gitignore").read_text() == "*\n"


async def test_forgotten_executions_leave_nothing(desk: Desk) -> None:
    for execution in ("one", "two", "../odd"):
        await desk.do("write", execution=execution, path=f"{len(execution)}{execution[-1]}", text="x")
    assert len(images(desk)) == 3
    forget(desk.folder / ".holdfast", ["one", "../odd", "unknown"])
    assert list(images(desk)) == ["two"]
    assert (desk.folder / ".holdfast").is_dir()


async def test_a_line_that_a_crash_cut_short_does_not_spoil_the_next(desk: Desk) -> None:
    await desk.do("write", "one", path="f", text="1")
    with (desk.folder / ".holdfast" / "before" / "run" / "index.jsonl").open("ab") as index:
        index.write(b'{"is":"change","id":"x","key"')
    await desk.do("write", "two", path="g", text="2")
    all_of(desk)
    assert desk.contents() == {}


async def test_a_failed_copy_leaves_nothing_behind(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "f").write_text("o")

    def broken(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(before_module, "_copy", broken)
    with pytest.raises(ResourceShort, match=r"f: the disk is full"):
        await desk.do("delete", path="f")
    assert images(desk) == {"run": 0}
    assert desk.contents() == {"f": "o"}


def test_a_store_that_keeps_nothing_has_nothing() -> None:
    nothing = UndoStore(None, 100)
    assert (nothing.keeps, nothing.changes("run"), nothing.open_image("run", "x")) == (False, [], None)


# ---- the port --------------------------------------------------------------------------------------------------------


async def test_a_tool_s_undo_gets_the_call_its_arguments_and_its_output(desk: Desk) -> None:
    seen: list[Any] = []

    @tool(effect="once")
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    assert not pay.can_undo
    with pytest.raises(UsageError, match=r"pay has no undo hook; declare one with @….undo"):
        await pay.run_undo({"amount": 3}, "paid 3", desk.call())

    @pay.undo
    async def pay_back(call: Any, arguments: dict[str, Any], output: Any) -> None:
        seen.append((call.key, arguments, output))

    assert pay.can_undo
    await pay.run_undo({"amount": 3}, "paid 3", desk.call())

    declared = tool(effect="once", undo=lambda call, arguments, output: seen.append(output))(lambda: None)
    await declared.run_undo({}, "said", desk.call())
    assert seen == [("run:step", {"amount": 3}, "paid 3"), "said"]
