"""Who is alive, asked of real processes: locks are held, and a killed process lets go at once."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.journal import liveness
from holdfast.journal.liveness import InProcess, LockFiles

HOLDER = """
import sys
from pathlib import Path
from holdfast.journal.liveness import LockFiles
locks = LockFiles(Path(sys.argv[1]))
locks.register(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
locks.release(sys.argv[2])
"""
# Python 3.12 warns of forks beside threads; the children here do next to nothing and leave.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
Start = Callable[[Path, str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that holds a driver's lock until it gets a line or dies."""
    started: list[subprocess.Popen[str]] = []

    def begin(folder: Path, driver: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def in_a_forked_child(work: Callable[[], bool]) -> bool:
    """What `work` says in a forked child. The child leaves without tidying up, as a child of a tool might."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def test_a_killed_process_is_dead_at_once(tmp_path: Path, start: Start) -> None:
    locks = LockFiles(tmp_path / "drivers")
    process = start(tmp_path / "drivers", "d1")
    assert not locks.is_dead("d1")
    locks.forget("d1")  # tidying up does not touch the living
    assert locks.everybody() == ["d1"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert locks.is_dead("d1")
    assert locks.everybody() == ["d1"]
    locks.forget("d1")
    assert locks.everybody() == []
    assert locks.is_dead("d1")


def test_a_process_that_lets_go_leaves_no_file(tmp_path: Path, start: Start) -> None:
    process = start(tmp_path, "d1")
    process.communicate("\n")
    assert LockFiles(tmp_path).is_dead("d1")
    assert LockFiles(tmp_path).everybody() == []


def test_ones_own_drivers_live_and_looking_at_them_does_not_drop_their_locks(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    locks.register("d1")
    other_engine = LockFiles(tmp_path)
    assert not other_engine.is_dead("d1")
    other_engine.forget("d1")
    assert in_a_forked_child(lambda: not LockFiles(tmp_path).is_dead("d1"))
    locks.release("d1")
    locks.release("d1")
    assert other_engine.is_dead("d1")


def test_a_forked_child_is_not_its_parent(tmp_path: Path, start: Start) -> None:
    """The child inherits the descriptor but no lock: after the parent's death the driver is dead."""
    script = HOLDER.replace(
        'print("ready", flush=True)',
        "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nprint(os.getpid(), flush=True)",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), "d1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        assert not LockFiles(tmp_path).is_dead("d1")
        process.kill()
        process.wait()
        assert LockFiles(tmp_path).is_dead("d1")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_forked_child_that_closes_does_not_take_its_parent_along(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    locks.register("d1")

    def close_in_child() -> bool:
        locks.release("d1")
        return not LockFiles(tmp_path).is_dead("d1")

    assert in_a_forked_child(close_in_child)
    assert locks.everybody() == ["d1"]
    assert in_a_forked_child(lambda: not LockFiles(tmp_path).is_dead("d1"))
    locks.release("d1")


def test_a_driver_who_was_never_here_is_dead_and_an_odd_name_is_not_touched(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    assert locks.is_dead("nobody")
    for name in ("", "../x", "a/b", "x" * 65):
        assert not locks.is_dead(name)
    (tmp_path / "a.txt").touch()
    assert locks.everybody() == []


def test_without_a_folder_there_is_nobody(tmp_path: Path) -> None:
    assert LockFiles(tmp_path / "none").everybody() == []


def test_what_cannot_be_looked_at_is_not_taken_for_dead(tmp_path: Path) -> None:
    (tmp_path / "d1").mkdir()
    assert not LockFiles(tmp_path).is_dead("d1")


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"file/drivers cannot be written \(.*\); make the folder writable"):
        LockFiles(tmp_path / "file" / "drivers").register("d1")


def test_a_name_that_somebody_else_holds_cannot_be_registered(tmp_path: Path, start: Start) -> None:
    start(tmp_path, "d1")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        LockFiles(tmp_path).register("d1")
    assert not LockFiles(tmp_path).is_dead("d1")


def test_a_file_that_is_tidied_away_while_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lockf, removed = fcntl.lockf, [False, False]

    def tidied_away(handle: int, flags: int) -> None:
        lockf(handle, flags)
        if not all(removed):
            removed[removed.index(False)] = True
            (tmp_path / "d1").unlink()
            if all(removed):
                (tmp_path / "d1").touch()  # and made anew by yet another process

    monkeypatch.setattr(fcntl, "lockf", tidied_away)
    locks = LockFiles(tmp_path)
    locks.register("d1")
    monkeypatch.undo()
    assert all(removed)
    assert in_a_forked_child(lambda: not LockFiles(tmp_path).is_dead("d1"))
    locks.release("d1")


def test_a_file_that_is_tidied_away_for_ever_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "REGISTER_TRIES", 2)
    monkeypatch.setattr(fcntl, "lockf", lambda *_: (tmp_path / "d1").unlink())
    with pytest.raises(StoreUnavailable, match="d1 is removed as soon as it is created"):
        LockFiles(tmp_path).register("d1")


def test_in_memory_drivers_live_as_long_as_they_are_registered() -> None:
    drivers = InProcess()
    drivers.register("d1")
    assert (drivers.is_dead("d1"), drivers.is_dead("d2")) == (False, True)
    drivers.release("d1")
    assert drivers.is_dead("d1")
