"""Files that are there whole or not at all, and the newest three of each execution."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.journal import checkpoint_files
from holdfast.journal.checkpoint_files import save, saved_of, write_file
from journal.support import run_python


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "executions").iterdir() if path.name != ".lock")


def test_the_newest_three_of_each_execution_are_kept(tmp_path: Path) -> None:
    for seq in (2, 9, 10, 30, 100):
        assert save(tmp_path, "a", seq, [b"1", b"23"]) == (tmp_path / "executions" / f"a.{seq}.json", 3)
    save(tmp_path, "a.b", 1, [b"1"])  # nobody's business but its own
    save(tmp_path, "a", 100, [b"again"])
    assert names(tmp_path) == ["a.10.json", "a.100.json", "a.30.json", "a.b.1.json"]
    assert (tmp_path / "executions" / "a.100.json").read_bytes() == b"again"
    assert [seq for seq, _ in saved_of(tmp_path / "executions", "a")] == [100, 30, 10]


def test_what_was_just_written_stays_though_others_have_higher_numbers(tmp_path: Path) -> None:
    """As after a journal was lost: they are of a history that went further."""
    for at, seq in enumerate((70, 80, 90)):
        os.utime(save(tmp_path, "a", seq, [b"stale"]).path, (at, at))
    for at, seq in enumerate((5, 6, 4)):
        saved = save(tmp_path, "a", seq, [b"new"]).path
        assert saved.read_bytes() == b"new"
        os.utime(saved, (1000 + at, 1000 + at))
    assert names(tmp_path) == ["a.4.json", "a.5.json", "a.6.json"]


def test_a_clock_that_was_set_back_does_not_push_out_what_was_just_written(tmp_path: Path) -> None:
    for seq in (7, 8, 9):
        os.utime(save(tmp_path, "a", seq, [b"stale"]).path, (2**32, 2**32))
    assert save(tmp_path, "a", 5, [b"new"]).path.read_bytes() == b"new"


def test_what_is_new_may_be_read_by_its_owner_alone_and_what_is_there_stays_as_he_set_it(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    for path in (save(tmp_path, "a", 1, [b"1"]).path, file):
        write_file(path, [b"1"])
        assert path.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    write_file(file, [b"2"])
    assert (file.stat().st_mode & 0o777, file.read_bytes()) == (0o640, b"2")


def test_what_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, "a", 1, [b"whole"])
    with pytest.raises(StoreUnavailable, match=r"a\.1\.json cannot be written: No space left on device; what is in"):
        save(tmp_path, "a", 1, pieces())
    assert names(tmp_path) == ["a.1.json"]
    assert (tmp_path / "executions" / "a.1.json").read_bytes() == b"whole"


def test_a_folder_without_rights_is_named(tmp_path: Path) -> None:
    (tmp_path / "executions").write_text("a file in its place")
    with pytest.raises(StoreUnavailable, match=r"a\.1\.json cannot be written: File exists"):
        save(tmp_path, "a", 1, [b"1"])
    with pytest.raises(StoreUnavailable, match=r"out\.json cannot be written: No such file or directory"):
        write_file(tmp_path / "gone" / "out.json", [b"1"])


def test_a_process_killed_in_the_middle_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    process = run_python(
        """
import sys, time
from pathlib import Path
from holdfast.journal.checkpoint_files import save

def pieces():
    yield b"half of it" * 10_000
    print("writing", flush=True)
    time.sleep(60)

save(Path(sys.argv[1]), "a", 7, pieces())
""",
        tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    [left] = names(tmp_path)
    assert left.startswith(".a.7.json.")
    save(tmp_path, "b", 1, [b"1"])
    assert names(tmp_path) == ["b.1.json"]


def test_what_a_killed_export_left_goes_with_the_next_one_and_what_is_being_written_stays(tmp_path: Path) -> None:
    writing = """
import sys, time
from pathlib import Path
from holdfast.journal.checkpoint_files import write_file

def pieces():
    yield b"half of it" * 10_000
    print("writing", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    yield b"and the rest"

write_file(Path(sys.argv[1]) / "out.json", pieces())
"""
    folder, go = tmp_path / "out", tmp_path / "go"
    folder.mkdir()
    killed, alive = (run_python(writing, folder, go) for _ in range(2))
    for process in (killed, alive):
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (folder / ".out.json.tmp").write_text("somebody else's")
    assert len(list(folder.iterdir())) == 3
    write_file(folder / "out.json", [b"1"])
    assert len(list(folder.iterdir())) == 3  # one went, one came
    go.touch()
    alive.communicate()
    assert sorted(path.name for path in folder.iterdir()) == [".out.json.tmp", "out.json"]
    assert (folder / "out.json").read_bytes().endswith(b"and the rest")


def test_a_folder_that_somebody_else_writes_into_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "LOCK_WAIT_S", 0.05)
    save(tmp_path, "a", 1, [b"1"])
    handle = os.open(tmp_path / "executions" / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(StoreUnavailable, match=r"a\.2\.json cannot be written: another process has held it for 0.05 s"):
        save(tmp_path, "a", 2, [b"1"])
    os.close(handle)
    save(tmp_path, "a", 2, [b"1"])
    assert names(tmp_path) == ["a.1.json", "a.2.json"]
