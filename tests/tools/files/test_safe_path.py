"""Nothing outside the allowed folders is ever read or touched, whatever the tree is made of and whoever changes it."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, ToolError
from kits import file_racer
from kits.files import Desk

SECRET = "nobody's business"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the project. Every test ends with a look at it."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    for name in ("secret", "f"):
        (folder / name).write_text(SECRET)
    before = {path: path.lstat() for path in [folder, *folder.rglob("*")]}
    yield folder
    assert sorted(before) == sorted([folder, *folder.rglob("*")])
    for path, found in before.items():
        now = path.lstat()
        assert (now.st_ino, now.st_mtime_ns, now.st_size) == (found.st_ino, found.st_mtime_ns, found.st_size)
        assert path.is_dir() or path.read_text() == SECRET


@pytest.fixture
def desk(tmp_path: Path, outside: Path) -> Desk:
    (tmp_path / "project" / "real").mkdir(parents=True)
    (tmp_path / "project" / "real" / "f").write_text("ours")
    (tmp_path / "project" / ".holdfast").mkdir()
    return Desk(tmp_path / "project")


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {}),
    ("write", {"text": "x"}),
    ("edit", {"old": "o", "new": "x"}),
    ("delete", {}),
    ("move", {"to": "moved"}),
    ("list", {}),
    ("search", {"text": "n"}),
]


async def refused_everywhere(desk: Desk, path: str, said: str, kind: type[ToolError] = NotPermitted) -> None:
    for name, arguments in CALLS:
        with pytest.raises(kind, match=said):
            await desk.do(name, path=path, **arguments)
    with pytest.raises(kind, match=said):
        await desk.do("move", path="real/f", to=path)
    assert (desk.folder / "real" / "f").read_text() == "ours"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "real/../../outside/secret",
        "{outside}/secret",
        "{outside}/../outside/secret",
        "real/../../project/../outside/secret",
        "../project2/secret",
        "..",
        "/",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/dev/null",
        "into/secret",
        "into/new",
        "into/sub/new",
        "real/deep/secret",
        "chain/secret",
        "real/../into/secret",
        "up/outside/secret",
        "proc/self/environ",
        "self/environ",
    ],
)
async def test_no_path_leads_outside(desk: Desk, outside: Path, path: str) -> None:
    (desk.folder / "into").symlink_to(outside)
    (desk.folder / "real" / "deep").symlink_to("../../outside")
    (desk.folder / "chain").symlink_to("into")
    (desk.folder / "up").symlink_to("..")
    (desk.folder / "proc").symlink_to("/proc")
    (desk.folder / "self").symlink_to("/proc/self")
    (desk.folder.parent / "project2").mkdir()
    await refused_everywhere(
        desk, path.format(outside=outside), r"path: .* leads outside the allowed folders \(.*roots"
    )


@pytest.mark.parametrize(
    "target", ["{outside}/secret", "../outside/secret", "{outside}/new", "../outside/new", "/proc/1"]
)
async def test_a_link_to_outside_is_not_followed_but_can_itself_be_removed(
    desk: Desk, outside: Path, target: str
) -> None:
    """Also a dangling one, which would make a file outside."""
    (desk.folder / "link").symlink_to(target.format(outside=outside))
    for name, arguments in CALLS:
        if name not in ("delete", "move"):
            with pytest.raises(NotPermitted, match="leads outside the allowed folders"):
                await desk.do(name, path="link", **arguments)
    await desk.do("move", path="link", to="other")
    with pytest.raises(NotPermitted, match="leads outside the allowed folders"):
        await desk.do("read", path="other")
    await desk.do("delete", path="other")
    assert not (desk.folder / "other").is_symlink()


async def test_links_that_stay_inside_are_followed_also_dangling_and_absolute_ones(desk: Desk) -> None:
    (desk.folder / "near").symlink_to("real")
    (desk.folder / "far").symlink_to(desk.folder / "real")
    (desk.folder / "real" / "back").symlink_to("../real/./f")
    (desk.folder / "soon").symlink_to("real/new")
    for path in ("near/f", "far/f", "near/back", "far/../real/f", "near/../real/f"):
        assert await desk.do("read", path=path) == "ours"
    written = await desk.do("write", path="soon", text="made")
    assert written["path"] == str(desk.folder / "real/new")
    assert (desk.folder / "soon").is_symlink()


async def test_links_that_lead_nowhere_but_to_themselves_end(desk: Desk) -> None:
    (desk.folder / "a").symlink_to("b")
    (desk.folder / "b").symlink_to("a")
    (desk.folder / "c").symlink_to(desk.folder / "c" / "x")
    for path in ("a", "a/x", "c", "c/f"):
        with pytest.raises(InvalidCall, match=r"Too many levels of symbolic links; choose another path"):
            await desk.do("write", path=path, text="x")


async def test_a_second_name_of_a_file_may_be_outside_and_is_refused_unless_allowed(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("shared")
    os.link(other, desk.folder / "hard")
    said = r"hard\" has 2 names \(hard links\), and the others may be outside.*set tools.files.hard_links = true"
    for name, arguments in (("read", {}), ("write", {"text": "x"}), ("delete", {}), ("move", {"to": "x"})):
        with pytest.raises(NotPermitted, match=said):
            await desk.do(name, path="hard", **arguments)
    assert (await desk.do("search", text="shared"))["matches"] == []
    assert (await desk.do("list", pattern="hard", digests=True))["entries"][0]["digest"] == ""
    allowed = Desk(desk.folder, hard_links=True)
    assert await allowed.do("read", path="hard") == "shared"
    await allowed.do("write", path="hard", text="ours alone")
    assert other.read_text() == "shared"  # only the name was replaced


def near(path: Path) -> str:
    """A socket's name must be short."""
    return os.path.relpath(path)


async def test_devices_pipes_and_sockets_are_never_opened(desk: Desk) -> None:
    os.mkfifo(desk.folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(near(desk.folder / "socket"))
        names = ["pipe", "socket"]
        if os.geteuid() == 0:
            os.mknod(desk.folder / "device", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
            names.append("device")
        for path in names:
            for name, arguments in CALLS[:5]:
                with pytest.raises(InvalidCall, match=r"is not a regular file; only files can be read and changed"):
                    await desk.do(name, path=path, **arguments)
        found = await desk.do("list")
        assert {entry["path"]: entry["kind"] for entry in found["entries"] if entry["path"] in names} == dict.fromkeys(
            names, "other"
        )
        assert (await desk.do("search", text="ours"))["skipped"] == len(names)


async def test_the_system_s_own_file_systems_are_refused_even_inside_an_allowed_folder(tmp_path: Path) -> None:
    desk = Desk(tmp_path, roots=["/"], write=["."])
    for path in ("/proc/self/status", "/proc/self/fd/0", "/sys/kernel", "/dev/zero"):
        if os.stat(f"/{path.split('/')[1]}").st_dev != os.stat("/").st_dev:
            with pytest.raises(NotPermitted, match=r"belongs to the system, not to a disk; choose another path"):
                await desk.do("read", path=path)
    listed = await desk.do("list", path="/", depth=2, max_entries=100_000)
    assert not [entry for entry in listed["entries"] if entry["path"].startswith("proc/")]


# ---- what is Holdfast's own ------------------------------------------------------------------------------------------


async def test_holdfast_s_own_folder_is_closed_by_every_name(desk: Desk) -> None:
    (desk.folder / ".holdfast" / "journal.db").write_text("journal")
    (desk.folder / "alias").symlink_to(".holdfast")
    (desk.folder / "real" / ".Holdfast").mkdir()
    for path in (".holdfast/journal.db", "alias/journal.db", ".holdfast", "real/.Holdfast/x", ".holdfast/drivers/x"):
        for name, arguments in CALLS[:3]:
            with pytest.raises(NotPermitted, match=r"is Holdfast's own; no tool reads or changes it"):
                await desk.do(name, path=path, **arguments)
    with pytest.raises(NotPermitted, match=r"is Holdfast's own"):
        await desk.do("write", path="new/.holdfast/x", text="x")
    assert (await desk.do("search", text="journal"))["matches"] == []
    listed = await desk.do("list", depth=5)
    assert [entry["path"] for entry in listed["entries"]] == ["alias", "real", "real/f"]
    inside = Desk(desk.folder, roots=[".holdfast"])
    with pytest.raises(NotPermitted, match=r"is Holdfast's own"):
        await inside.do("read", path=".holdfast/journal.db")


async def test_a_journal_among_other_files_is_closed_and_they_are_not(tmp_path: Path) -> None:
    """The journal may lie anywhere; reading it here would drop the locks that this process holds on it."""
    desk = Desk(tmp_path, data=tmp_path, store=str(tmp_path / "my.db"), hard_links=True)
    for name in ("my.db", "my.db-wal", "live.db", "notes", "tools.py"):
        (tmp_path / name).write_text("text")
    os.link(tmp_path / "my.db", tmp_path / "second")
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "me").write_text("")
    closed = [f"{name}/x" for name in ("before", "drivers", "executions", "logs", "mcp", "search", "tools")]
    for path in ("my.db", "my.db-wal", "live.db", "drivers/me", "Tools/x", "second", *closed):
        with pytest.raises(NotPermitted, match=r"is Holdfast's own"):
            await desk.do("read", path=path)
    assert await desk.do("read", path="notes") == "text"
    assert [match["path"] for match in (await desk.do("search", text="text"))["matches"]] == ["notes", "tools.py"]


async def test_a_journal_with_a_folder_of_its_own_is_closed_and_so_is_that(tmp_path: Path) -> None:
    own = tmp_path / "my.db.d"
    desk = Desk(tmp_path, data=own, store=str(tmp_path / "my.db"), hard_links=True)
    for name in ("my.db", "my.db-wal", "notes"):
        (tmp_path / name).write_text("text")
    own.mkdir()
    (own / "live.db").write_text("")
    (tmp_path / "alias").symlink_to("my.db.d")
    os.link(tmp_path / "my.db", tmp_path / "second")
    for path in ("my.db", "my.db-wal", "my.db.d", "my.db.d/live.db", "my.db.d/x", "alias/x", "second"):
        with pytest.raises(NotPermitted, match=r"is Holdfast's own"):
            await desk.do("read", path=path)
    assert await desk.do("read", path="notes") == "text"
    assert [match["path"] for match in (await desk.do("search", text="text"))["matches"]] == ["notes"]


async def test_a_lock_that_this_process_holds_survives_every_tool(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    lock = tmp_path / ".holdfast" / "drivers" / "me"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await desk.do("write", path="f", text="x")
        await desk.do("list", depth=9)
        await desk.do("search", text="x")
        with pytest.raises(NotPermitted):
            await desk.do("read", path=".holdfast/drivers/me")
        assert is_locked(lock)


def is_locked(path: Path) -> bool:
    """As another process sees it."""
    program = f"import fcntl; fcntl.lockf(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    tried = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return "BlockingIOError" in tried.stderr


async def test_a_folder_that_holds_the_journal_cannot_be_moved(tmp_path: Path) -> None:
    (tmp_path / "deep" / "own").mkdir(parents=True)
    desk = Desk(tmp_path, data=tmp_path / "deep" / "own")
    with pytest.raises(InvalidCall, match=r"deep\" holds Holdfast's own data and cannot be moved"):
        await desk.do("move", path="deep", to="other")


# ---- settings --------------------------------------------------------------------------------------------------------


async def test_more_folders_can_be_allowed_for_reading_or_for_all(tmp_path: Path) -> None:
    for name in ("project/out", "library"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "library" / "book").write_text("words")
    (tmp_path / "project" / "in").symlink_to("../library")
    desk = Desk(tmp_path / "project", roots=[".", "../library"], write=["out"])
    for path in ("../library/book", str(tmp_path / "library/book"), "in/book", "out/../../library/book"):
        assert await desk.do("read", path=path) == "words"
    await desk.do("write", path="out/new", text="x")
    await desk.do("write", path="./out/../out/newer", text="x")
    for path in ("top", "in/book", "../library/book", "out/../top"):
        with pytest.raises(
            NotPermitted, match=r"may be read but not changed; what may be is in .*/out \(tools.files.write"
        ):
            await desk.do("write", path=path, text="x")
    with pytest.raises(NotPermitted, match=r"what may be is in no folder"):
        await Desk(tmp_path / "project", write=[]).do("write", path="out/x", text="x")


@pytest.mark.parametrize(
    "config", [{"roots": ["."], "write": ["out"]}, {"roots": [".", "out"]}, {"roots": ["out", "."]}]
)
@pytest.mark.parametrize("target", ["{outside}", "../outside", "chain"])
async def test_an_allowed_folder_inside_another_does_not_lead_out_of_it(
    desk: Desk, outside: Path, config: dict[str, Any], target: str
) -> None:
    (desk.folder / "out").symlink_to(target.format(outside=outside))
    (desk.folder / "chain").symlink_to(outside)
    nested = Desk(desk.folder, **config)
    for path in ("out/secret", "out/new", "out/sub/new", str(desk.folder / "out" / "secret")):
        for name, arguments in CALLS:
            with pytest.raises(NotPermitted, match=r"leads outside the allowed folders \(.*/project\); stay inside"):
                await nested.do(name, path=path, **arguments)
    assert not nested.family.grounds_of(desk.folder).leads_to(str(outside))
    named = Desk(desk.folder, roots=[".", "../outside"])
    assert await named.do("read", path="out/secret") == SECRET  # allowed by its own name


async def test_an_allowed_folder_inside_another_is_made_when_it_is_needed_and_stays_where_it_is(desk: Desk) -> None:
    nested = Desk(desk.folder, roots=["."], write=["out", "real"])
    await nested.do("write", path="out/new", text="x")
    for name, arguments in (("delete", {}), ("move", {"to": "real/out"})):
        with pytest.raises(InvalidCall, match=r"/out is an allowed folder itself, or ends in \.\.; name what is in it"):
            await nested.do(name, path="out", **arguments)
    await nested.undo("write")
    assert not (desk.folder / "out").exists()


async def test_an_allowed_folder_that_is_not_there_is_a_setting_to_correct(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"tools.files: the allowed folder .*/gone cannot be opened \(No such file"):
        await Desk(tmp_path, roots=["gone"]).do("read", path="gone/f")


# ---- races -----------------------------------------------------------------------------------------------------------

TURNS = 150


def start_racer(folder: Path, name: str, link: str, target: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, file_racer.__file__, str(folder), name, link, str(target)]
    racing = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert racing.stdout is not None
    assert racing.stdout.readline() == "ready\n"
    return racing


async def outcome_of(desk: Desk, name: str, step: str, arguments: dict[str, Any]) -> str:
    try:
        answer = await desk.do(name, step=step, **arguments)
    except ToolError as error:
        return f"{type(error).__name__}: {error}"
    return "done" if SECRET not in str(answer) else SECRET


@pytest.mark.skipif(sys.platform != "linux", reason="the racer swaps names as only Linux can")
@pytest.mark.parametrize(("name", "link"), [("real", "evil"), ("real/f", "real/evil")])
async def test_a_name_that_is_swapped_for_a_link_meanwhile_leads_nowhere(
    desk: Desk, outside: Path, monkeypatch: pytest.MonkeyPatch, name: str, link: str
) -> None:
    """A folder in the middle of the path, and the file itself, against a process that never stops swapping them."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    racing = start_racer(desk.folder, name, link, outside if name == "real" else outside / "secret")
    outcomes: set[str] = set()
    turn = 0
    while turn < TURNS or not ("done" in outcomes and any("leads outside" in said for said in outcomes)):
        turn += 1
        assert turn < 100 * TURNS
        calls: list[tuple[str, dict[str, Any]]] = [
            ("write", {"path": "real/f", "text": f"ours {turn}"}),
            ("read", {"path": "real/f"}),
            ("edit", {"path": "real/f", "old": "ours", "new": "still ours"}),
            ("search", {"text": SECRET}),
            ("move", {"path": "real/f", "to": "real/g"}),
            ("delete", {"path": "real/g"}),
            ("write", {"path": "real/new/deep", "text": "x"}),
        ]
        for tool, arguments in calls:
            outcomes.add(await outcome_of(desk, tool, f"{turn}", arguments))
    said, _ = racing.communicate(timeout=60)
    assert int(said) > 0
    assert SECRET not in "".join(outcomes)
