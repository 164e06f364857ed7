"""Reading and changing files: whole or not at all, and every way to fail says what to do about it."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import (
    InvalidCall,
    Misconfigured,
    NotPermitted,
    ResourceShort,
    SettingsInvalid,
    ToolError,
    Transient,
)
from holdfast.core.failure import describe
from holdfast.tools.call import DidNotHappen, Happened, Unknown
from holdfast.tools.files import atomic_ops
from holdfast.tools.files.os_errors import TABLE, NotSynced, told
from kits.files import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# ---- reading and writing ---------------------------------------------------------------------------------------------


async def test_what_is_written_can_be_read_and_leaves_no_litter(desk: Desk) -> None:
    written = await desk.do("write", path="a/b/c.txt", text="grüße\n")
    digest = sha256("grüße\n".encode()).hexdigest()
    assert written == {"path": str(desk.folder / "a/b/c.txt"), "bytes": 8, "digest": digest}
    assert await desk.do("read", path="a/b/c.txt") == "grüße\n"
    assert await desk.do("read", path=str(desk.folder / "a/b/c.txt")) == "grüße\n"
    assert await desk.do("read", path="a/./b/../b//c.txt") == "grüße\n"
    assert os.listdir(desk.folder / "a/b") == ["c.txt"]


async def test_a_rewritten_file_keeps_its_mode_and_a_link_stays_a_link(desk: Desk) -> None:
    target, link = desk.folder / "target", desk.folder / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    await desk.do("write", path="link", text="new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


async def test_a_rewritten_program_does_not_keep_a_right_to_act_as_somebody_else(desk: Desk) -> None:
    (desk.folder / "f").write_text("old")
    (desk.folder / "f").chmod(0o4755)
    await desk.do("write", path="f", text="new")
    assert stat.S_IMODE((desk.folder / "f").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_a_rewritten_file_keeps_its_owner(desk: Desk) -> None:
    (desk.folder / "f").write_text("old")
    os.chown(desk.folder / "f", 12345, 12346)
    await desk.do("write", path="f", text="new")
    found = (desk.folder / "f").stat()
    assert (found.st_uid, found.st_gid) == (12345, 12346)


async def test_writing_the_same_again_changes_nothing_and_records_nothing(desk: Desk) -> None:
    await desk.do("write", path="f", text="same")
    before = (desk.folder / "f").stat().st_ino
    await desk.do("write", step="again", path="f", text="same")
    assert (desk.folder / "f").stat().st_ino == before
    assert [change.step for change in desk.family.before.changes("run")] == ["step"]


async def test_a_failed_write_leaves_the_old_file_and_nothing_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "f").write_text("old")

    def full(descriptor: int, source: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_ops, "_fill", full)
    with pytest.raises(ResourceShort, match=r"f: the disk is full; free some space") as caught:
        await desk.do("write", path="f", text="new")
    assert describe(caught.value).happened == "nothing"
    assert desk.contents() == {"f": "old"}
    assert desk.family.before.changes("run") == []


async def test_what_a_crashed_attempt_left_lying_about_is_used_up(desk: Desk) -> None:
    desk.die_while_changing("write", path="f", text="new")
    assert [name for name in os.listdir(desk.folder) if name.endswith(".tmp")]
    await desk.do("write", path="f", text="new")
    assert sorted(os.listdir(desk.folder)) == [".holdfast", "f"]


async def test_too_little_room_is_said_before_anything_is_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def nearly_full(path: Any) -> Any:
        found = real(path)
        return os.statvfs_result((*found[:4], 10, *found[5:]))

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(
        ResourceShort, match=r"3 bytes are to be written and [\d,]+ are free, of which .* kept"
    ) as caught:
        await desk.do("write", path="a/f", text="new")
    assert describe(caught.value).happened == "nothing"
    assert desk.contents() == {}
    assert not (desk.folder / "a").exists()


async def test_how_much_stays_free_on_a_disk_is_a_setting(tmp_path: Path) -> None:
    with pytest.raises(ResourceShort, match=r"free some space, or lower tools\.files\.free_bytes_min"):
        await Desk(tmp_path, free_bytes_min=10**15).do("write", path="f", text="new")
    assert Desk(tmp_path).contents() == {}
    await Desk(tmp_path, free_bytes_min=0).do("write", path="f", text="new")
    assert (tmp_path / "f").read_text() == "new"


@contextmanager
def as_a_stranger() -> Iterator[None]:
    """Root may do everything, so somebody else tries it."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_what_may_not_be_written_is_refused_before_anything_is_written() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:  # not pytest's, which nobody else may enter
        desk = Desk(forbidding(name))
        with as_a_stranger():
            with pytest.raises(NotPermitted, match=r"closed/new: its folder may not be written; check who may use it"):
                await desk.do("write", path="closed/new", text="x")
            with pytest.raises(NotPermitted, match=r"f is read-only; change its mode if it is to be changed"):
                await desk.do("write", path="f", text="x")
            with pytest.raises(NotPermitted, match=r"secret: permission denied; check who may use it"):
                await desk.do("read", path="secret")
        assert desk.contents() == {"f": "old", "secret": "old"}


def forbidding(name: str) -> Path:
    folder = Path(name)
    folder.chmod(0o777)
    (folder / "closed").mkdir(mode=0o555)
    for file, mode in (("f", 0o444), ("secret", 0o000)):
        (folder / file).write_text("old")
        (folder / file).chmod(mode)
    return folder


async def test_files_that_cannot_be_used_say_why(desk: Desk) -> None:
    (desk.folder / "big").write_text("x" * 11)
    (desk.folder / "binary").write_bytes(b"ab\xff")
    os.mkfifo(desk.folder / "pipe")
    os.mkdir(os.path.join(os.fsencode(desk.folder), b"\xff"))
    os.symlink(b"\xff", os.path.join(os.fsencode(desk.folder), b"odd"))
    cases: list[tuple[type[ToolError], str, str, dict[str, Any]]] = [
        (Misconfigured, r"no file at .*/gone; correct the path", "read", {"path": "gone"}),
        (InvalidCall, r" is a folder; give the path of a file", "read", {"path": "."}),
        (InvalidCall, r"pipe is not a regular file; only files can be read", "read", {"path": "pipe"}),
        (InvalidCall, r"pipe is not a regular file", "write", {"path": "pipe", "text": ""}),
        (InvalidCall, r"big has more than 10 bytes; raise max_bytes", "read", {"path": "big", "max_bytes": 10}),
        (InvalidCall, r"binary is not UTF-8 text \(byte 2 cannot be read\)", "read", {"path": "binary"}),
        (InvalidCall, r'path: "a\\u0000b" is not a path: it holds a NUL character', "read", {"path": "a\0b"}),
        (InvalidCall, r'path: expected a path, got ""', "read", {"path": ""}),
        (
            InvalidCall,
            r"to: 'x\\ud800' is not UTF-8 text; choose another path",
            "move",
            {"path": "big", "to": "x\ud800"},
        ),
        (InvalidCall, r"path: it leads to .*xff/f\", which is not UTF-8", "write", {"path": "odd/f", "text": ""}),
        (InvalidCall, r"File name too long; choose another path", "read", {"path": "a" * 300}),
        (InvalidCall, r"d/d/d.* is more than 100 folders deep", "write", {"path": "d/" * 101 + "f", "text": ""}),
        (InvalidCall, r" is a folder; give the path of a file", "write", {"path": ".", "text": ""}),
        (Misconfigured, r"no file at .*/big/under; correct the path", "read", {"path": "big/under"}),
        (Misconfigured, r"no file at .*/gone; correct the path", "delete", {"path": "gone"}),
        (Misconfigured, r"no file at .*/gone; correct the path", "move", {"path": "gone", "to": "x"}),
        (InvalidCall, r"text: character 1 is a lone surrogate", "write", {"path": "f", "text": "x\ud800"}),
        (InvalidCall, r"max_bytes: expected .* >= 1", "read", {"path": "f", "max_bytes": 0}),
    ]
    for kind, message, name, arguments in cases:
        with pytest.raises(kind, match=message) as caught:
            await desk.do(name, **arguments)
        assert describe(caught.value).happened == "nothing"
    assert not (desk.folder / "f").exists()
    assert not (desk.folder / "d").exists()


async def test_a_text_above_the_limit_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_bytes=3)
    with pytest.raises(
        InvalidCall, match=r"text: the file would have 4 bytes, at most 3 are written \(tools.files.max_"
    ):
        await desk.do("write", path="f", text="four")
    (tmp_path / "f").write_text("four")
    with pytest.raises(InvalidCall, match=r"f has more than 3 bytes"):
        await desk.do("read", path="f")


# ---- edit ------------------------------------------------------------------------------------------------------------


async def test_an_edit_replaces_the_exact_text_as_often_as_it_says(desk: Desk) -> None:
    (desk.folder / "f").write_bytes(b"one\r\ntwo two\r\n")
    done = await desk.do("edit", path="f", old="one", new="1")
    assert (done["replaced"], done["bytes"], (desk.folder / "f").read_bytes()) == (1, 12, b"1\r\ntwo two\r\n")
    assert (await desk.do("edit", path="f", old="two", new="2", count=2))["replaced"] == 2
    assert (await desk.do("edit", path="f", old="2", new="zwei", count="all"))["replaced"] == 2
    assert (desk.folder / "f").read_bytes() == b"1\r\nzwei zwei\r\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old": "x", "new": "y"}, r"old: .*/f does not hold this text; read the file and give the text exactly"),
        (
            {"old": "a", "new": "y"},
            r'old: .*/f holds this text 2 times, expected 1; give more .*, or count: 2, or count: "all"',
        ),
        ({"old": "a", "new": "y", "count": 3}, r"old: .*/f holds this text 2 times, expected 3"),
        ({"old": "", "new": "y"}, r"old: expected a text to replace, got nothing"),
        ({"old": "a", "new": "a"}, r"old: expected a text to replace, got the same as new"),
        ({"old": "b", "new": "", "expect": "0" * 64}, r"f is not what was expected: its SHA-256 is .* read it again"),
        ({"old": "b", "new": "", "count": 0}, r"count: expected .* >= 1"),
    ],
)
async def test_an_edit_that_is_not_clear_changes_nothing(desk: Desk, arguments: dict[str, Any], said: str) -> None:
    (desk.folder / "f").write_text("a b a")
    with pytest.raises(InvalidCall, match=said):
        await desk.do("edit", path="f", **arguments)
    assert desk.contents() == {"f": "a b a"}


async def test_an_edit_that_knows_the_digest_goes_through(desk: Desk) -> None:
    written = await desk.do("write", path="f", text="a b")
    (entry,) = (await desk.do("list", path="f", digests=True))["entries"]
    assert entry == {"path": "f", "kind": "file", "bytes": 3, "digest": written["digest"]}
    edited = await desk.do("edit", path="f", old="b", new="c", expect=written["digest"])
    assert edited["digest"] == sha256(b"a c").hexdigest()


# ---- move and delete -------------------------------------------------------------------------------------------------


async def test_a_move_makes_folders_and_never_replaces(desk: Desk) -> None:
    (desk.folder / "f").write_text("f")
    (desk.folder / "g").write_text("g")
    moved = await desk.do("move", path="f", to="a/b/f")
    assert moved == {"path": str(desk.folder / "f"), "to": str(desk.folder / "a/b/f")}
    with pytest.raises(InvalidCall, match=r"to: .*/g is there already; delete it first, or choose another name"):
        await desk.do("move", path="a/b/f", to="g")
    await desk.do("move", path="a", to="c")
    assert desk.contents() == {"c/b/f": "f", "g": "g"}


@pytest.mark.parametrize("code", [0, errno.ENOSYS])
async def test_a_name_taken_at_the_last_moment_is_not_replaced(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """With the kernel's own check, and with a look where it has none."""
    if code:
        monkeypatch.setattr(atomic_ops, "_renameat2", lambda *_: code)
    real = atomic_ops.rename_new

    def taken(*arguments: Any) -> None:
        (desk.folder / "to").write_text("theirs")
        real(*arguments)

    (desk.folder / "f").write_text("ours")
    monkeypatch.setattr(atomic_ops, "rename_new", taken)
    for name, arguments in (("move", {"path": "f", "to": "to"}), ("write", {"path": "to", "text": "new"})):
        with pytest.raises(InvalidCall, match=r"to is there already; choose another path"):
            await desk.do(name, **arguments)
        assert desk.contents() == {"f": "ours", "to": "theirs"}
        (desk.folder / "to").unlink()
    if code:
        monkeypatch.setattr(atomic_ops, "rename_new", real)
        await desk.do("move", path="f", to="to")
        assert desk.contents() == {"to": "ours"}


async def test_a_folder_cannot_be_moved_into_itself_nor_an_allowed_folder_at_all(desk: Desk) -> None:
    (desk.folder / "a").mkdir()
    with pytest.raises(InvalidCall, match=r"Invalid argument; choose another path"):
        await desk.do("move", path="a", to="a/b")
    with pytest.raises(InvalidCall, match=r"is an allowed folder itself, or ends in ..; name what is in it"):
        await desk.do("move", path=".", to="a/b")


async def test_files_links_and_empty_folders_can_be_deleted(desk: Desk) -> None:
    (desk.folder / "f").write_text("f")
    (desk.folder / "link").symlink_to("f")
    (desk.folder / "full").mkdir()
    (desk.folder / "full" / "x").write_text("x")
    (desk.folder / "empty").mkdir()
    for name in ("link", "empty"):
        await desk.do("delete", path=name)
    with pytest.raises(InvalidCall, match=r"full is a folder that is not empty; delete what is in it first"):
        await desk.do("delete", path="full")
    assert desk.contents() == {"f": "f", "full/x": "x"}
    await desk.do("delete", path="f")
    assert desk.contents() == {"full/x": "x"}


@pytest.mark.parametrize(
    ("name", "arguments"), [("write", {"text": "n"}), ("edit", {"old": "o", "new": "n"}), ("delete", {})]
)
async def test_a_change_by_somebody_else_in_between_is_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any]
) -> None:
    (desk.folder / "f").write_text("o")
    real = desk.family.before.record

    def meanwhile(*recorded: Any) -> None:
        real(*recorded)
        (desk.folder / "f").write_text("theirs")

    monkeypatch.setattr(desk.family.before, "record", meanwhile)
    with pytest.raises(Transient, match=r"f was changed by somebody else at this very moment") as caught:
        await desk.do(name, path="f", **arguments)
    assert describe(caught.value).happened == "nothing"  # so that the engine may try again
    assert desk.contents() == {"f": "theirs"}
    assert desk.family.before.changes("run") == []


# ---- what happened ---------------------------------------------------------------------------------------------------

ONCE: list[tuple[str, dict[str, Any]]] = [
    ("edit", {"path": "f", "old": "o", "new": "oo"}),
    ("move", {"path": "f", "to": "g"}),
    ("delete", {"path": "f"}),
]


@pytest.mark.parametrize(("name", "arguments"), ONCE)
async def test_a_change_that_was_cut_off_is_known_to_have_happened_or_not(
    desk: Desk, name: str, arguments: dict[str, Any]
) -> None:
    (desk.folder / "f").write_text("o")
    assert await desk.verify(name, **arguments) == DidNotHappen()
    desk.die_while_changing(name, **arguments)
    assert len(desk.family.before.changes("run")) == 1  # on record, and not made
    assert await desk.verify(name, **arguments) == DidNotHappen()
    output = await desk.do(name, **arguments)
    assert await desk.verify(name, **arguments) == Happened(output)
    (desk.folder / ("g" if name == "move" else "f")).write_text("somebody else's")
    assert await desk.verify(name, **arguments) == Unknown()


@pytest.mark.parametrize(("name", "arguments"), [("write", {"path": "f", "text": "n"}), *ONCE])
async def test_a_change_that_the_disk_does_not_confirm_is_in_doubt_and_stays_on_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any]
) -> None:
    (desk.folder / "f").write_text("o")
    real = os.fsync

    def broken(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and os.path.samestat(os.fstat(descriptor), desk.folder.stat()):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(NotSynced, match=r"was changed, but the disk does not confirm it: Input/output error") as caught:
        await desk.do(name, **arguments)
    assert describe(caught.value).happened == "unknown"
    assert len(desk.family.before.changes("run")) == 1


async def test_without_a_store_on_disk_nothing_is_kept_and_nobody_can_tell(tmp_path: Path) -> None:
    desk = Desk(tmp_path, store="memory:")
    await desk.do("write", path="f", text="o")
    await desk.do("edit", path="f", old="o", new="n")
    assert await desk.verify("edit") == Unknown()
    assert os.listdir(tmp_path) == ["f"]


def test_which_tool_may_run_again() -> None:
    effects = {name: (tool.effect, tool.in_doubt, tool.can_undo) for name, tool in Desk(Path()).tools.items()}
    assert effects == {
        "read": ("read", "ask", False),
        "list": ("read", "ask", False),
        "search": ("read", "ask", False),
        "write": ("idempotent", "ask", True),
        "edit": ("once", "verify", True),
        "move": ("once", "verify", True),
        "delete": ("once", "verify", True),
    }


# ---- errors and settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "category"),
    [
        (errno.ENOENT, "configuration"),
        (errno.ENOTDIR, "configuration"),
        (errno.EISDIR, "logic"),
        (errno.EACCES, "permission"),
        (errno.EPERM, "permission"),
        (errno.EROFS, "permission"),
        (errno.ENOSPC, "resource"),
        (errno.EDQUOT, "resource"),
        (errno.ENOMEM, "resource"),
        (errno.EMFILE, "resource"),
        (errno.ENFILE, "resource"),
        (errno.ENAMETOOLONG, "logic"),
        (errno.ELOOP, "logic"),
        (errno.EINVAL, "logic"),
        (errno.EILSEQ, "logic"),
        (errno.ENXIO, "logic"),
        (errno.EEXIST, "logic"),
        (errno.ENOTEMPTY, "logic"),
        (errno.EXDEV, "logic"),
        (errno.EFBIG, "logic"),
        (errno.EIO, "transient"),
        (errno.EBUSY, "transient"),
        (errno.ESTALE, "transient"),
    ],
)
def test_each_error_of_the_system_has_a_category_and_was_without_effect(code: int, category: str) -> None:
    failure = describe(told(OSError(code, os.strerror(code)), "/some/file"))
    assert (failure.category, failure.happened) == (category, "nothing")
    assert "/some/file" in failure.message


def test_the_table_of_errors_names_none_twice() -> None:
    named = [code for codes, _, _ in TABLE for code in codes]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"root": ["."]}, 'tools.files.root: no such name; did you mean "roots"?'),
        ({"roots": "src"}, 'tools.files.roots: expected a list, got the string "src"'),
        ({"max_bytes": 0}, "tools.files.max_bytes: expected a whole number >= 1, got the number 0"),
        ({"free_bytes_min": -1}, "tools.files.free_bytes_min: expected a whole number >= 0, got the number -1"),
        ({"before_bytes_max": -1}, "tools.files.before_bytes_max: expected a whole number >= 0, got the number -1"),
    ],
)
def test_a_mistake_in_the_settings_is_named_with_its_place(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        Desk(tmp_path, **config)
    assert str(refused.value) == said


async def test_without_room_for_a_record_a_file_is_deleted_for_good(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a crash after that leaves a doubt, since nothing was written down."""
    (desk.folder / "f").write_text("old")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(desk.family.before, "_append", full)
    assert isinstance(await desk.verify("delete", path="f"), DidNotHappen)
    await desk.do("delete", path="f")
    assert desk.contents() == {}
    assert isinstance(await desk.verify("delete", path="f"), Unknown)


async def test_what_has_another_name_is_not_its_own_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on changing under that name."""
    desk = Desk(tmp_path, hard_links=True)
    (tmp_path / "f").write_text("old")
    os.link(tmp_path / "f", tmp_path / "g")
    real = os.statvfs

    def nearly_full(path: Any) -> Any:
        fields = list(real(path))
        fields[3] = fields[4] = 0
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(ResourceShort):
        await desk.do("delete", path="f")
    assert desk.contents() == {"f": "old", "g": "old"}
