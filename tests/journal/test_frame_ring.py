"""The ring of live frames, between two real processes and at its limits. Every failure is a dropped frame, no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core.events import AnyFrame, Frame, TaskMessage, TaskProgress
from holdfast.journal import frame_ring
from holdfast.journal.frame_ring import LiveRing
from journal.support import sql

WATCHER = """
import sys
from pathlib import Path
from holdfast.journal.frame_ring import LiveRing
ring = LiveRing(Path(sys.argv[1]))
ring.announce("e1")
print("watching", flush=True)
for line in sys.stdin:
    for number, frame in ring.read("e1", int(line)):
        print(number, type(frame).__name__, frame.content, flush=True)
    print("end", flush=True)
ring.close()
"""


def message(content: str) -> TaskMessage:
    return TaskMessage(at=1, after=0, role="assistant", content=content)


def watched_from_elsewhere(path: Path, *ids: str, until: float = 1e12) -> None:
    """As if another process had announced itself."""
    ring = LiveRing(path)
    ring.announce("x")
    ring.close()
    for execution_id in ids:
        sql(path, f"INSERT INTO watching VALUES ('{execution_id}', {until}, 1)")


def frames_in(path: Path) -> list[tuple[int, Frame]]:
    """What another process would read."""
    rows = sql(path, "SELECT num, body FROM frames ORDER BY num")
    return [(number, msgspec.json.decode(body, type=AnyFrame)) for number, body in rows]


def test_frames_reach_a_watcher_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    ring = LiveRing(path)
    ring.refresh()
    assert not path.exists()  # nobody has ever watched: nothing is written
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "watching\n"
        ring = LiveRing(path)
        ring.refresh()
        assert "e1" in ring.watched
        assert "e2" not in ring.watched
        for content in ("high", "tide"):
            ring.show("e1", message(content))
        ring.show("e2", message("for somebody else"))
        ring.refresh()
        process.stdin.write("0\n1\n")
        process.stdin.close()
        assert process.stdout.read().splitlines() == [
            "1 TaskMessage high",
            "2 TaskMessage tide",
            "end",
            "2 TaskMessage tide",
            "end",
        ]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        ring.close()


def test_a_process_does_not_write_for_itself_but_for_the_other_who_watches_too(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    watched_from_elsewhere(path, "e1")
    ring = LiveRing(path)
    ring.announce("e1")
    ring.announce("e2")
    ring.refresh()
    assert ("e1" in ring.watched, "e2" in ring.watched) == (True, False)
    ring.close()


def test_who_has_not_said_so_for_a_while_no_longer_watches(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    watched_from_elsewhere(path, "e1", until=5.0)
    ring = LiveRing(path)
    ring.refresh()
    assert "e1" not in ring.watched
    ring.announce("e2")
    ring.announce("e2")  # so soon after, it is not even written
    assert sql(path, "SELECT execution_id FROM watching ORDER BY 1") == [("e2",), ("x",)]
    ring.close()


def test_the_ring_keeps_only_the_newest_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_ring, "RING_FRAMES", 3)
    ring = LiveRing(tmp_path / "live.db")
    for number in range(5):
        ring.show("e1", message(str(number)))
        ring.refresh()
    assert frames_in(tmp_path / "live.db") == [(number, message(str(number - 1))) for number in (3, 4, 5)]
    assert ring.read("e1", 0) == []  # its own frames a process has shown already
    ring.close()


def test_what_cannot_be_written_yet_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_ring, "WRITES_PENDING_MAX", 2)
    ring = LiveRing(tmp_path / "live.db")
    for number in range(5):
        ring.show("e1", message(str(number)))
    ring.close()
    assert len(frames_in(tmp_path / "live.db")) == 2


def test_a_frame_that_cannot_be_encoded_is_dropped(tmp_path: Path) -> None:
    ring = LiveRing(tmp_path / "live.db")
    progress = TaskProgress(at=1, after=0, percent=50.0, step="a", phase="running")
    ring.show("e1", message("\udce9"))
    ring.show("e1", progress)
    ring.refresh()
    assert [frame for _, frame in frames_in(tmp_path / "live.db")] == [progress]
    ring.close()


def test_a_file_that_is_no_database_costs_frames_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    path.write_bytes(b"not a database at all" * 100)
    ring = LiveRing(path)
    ring.announce("e1")
    ring.show("e1", message("lost"))
    ring.refresh()
    assert "e1" not in ring.watched
    assert ring.read("e1", 0) == []
    ring.close()
    ring.close()


def test_a_frame_from_the_future_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    ring = LiveRing(path)
    ring.announce("e1")
    sql(path, "INSERT INTO frames (execution_id, body, by) VALUES ('e1', '{\"type\":\"task:dreamt\"}', 1)")
    assert ring.read("e1", 0) == []
    ring.close()
