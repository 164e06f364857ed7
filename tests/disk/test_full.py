"""A full disk: while opening, while running, while checkpointing. Nothing durable is lost, and room heals it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from disk import small_disk

CAP_SYS_ADMIN = 21  # the bit of the right to mount


def why_not() -> str:
    """Why nobody could mount a disk here; "" if it must work, and the tests fail if it does not."""
    if shutil.which("unshare") is None:
        return "a small disk is mounted with unshare, which is not there"
    if _may_mount() or subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0:
        return ""
    return "this machine gives us neither the right to mount nor a user namespace of our own"


def _may_mount() -> bool:
    rights = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(rights.split()[1], 16) >> CAP_SYS_ADMIN & 1)


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def tell(story: str, folder: Path) -> dict[str, Any]:
    """What the story saw on a small disk that is mounted for it alone."""
    mount = f'mount -t tmpfs -o size={small_disk.DISK_BYTES} tmpfs "$1" && exec "$2" "$3" "$4" "$1"'
    private = ["unshare", "-m"] if _may_mount() else ["unshare", "-rm"]
    script = [sys.executable, str(Path(small_disk.__file__)), story]
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", str(folder), *script],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("engine", ["same", "new"])
def test_a_disk_that_fills_up_stops_the_execution_until_there_is_room(tmp_path: Path, engine: str) -> None:
    seen = tell(engine, tmp_path)
    assert "the disk is full" in seen["text"]
    assert "what was recorded is safe" in seen["text"]
    assert 0 < seen["completed"] < small_disk.STEPS
    assert seen["status"] == "running"
    assert seen["paid"] <= seen["completed"] + 1  # at most the one whose outcome could not be written
    assert seen["output"] == 5000 * small_disk.STEPS
    assert seen["most"] == 1
    assert seen["doubts"] == seen["paid"] - seen["completed"]


def test_a_full_disk_is_named_when_the_store_is_opened(tmp_path: Path) -> None:
    seen = tell("opening", tmp_path)
    assert all(text.startswith("StoreUnavailable: the disk is full, ") for text in seen["texts"]), seen
    assert seen["code"] == 1
    assert seen["said"].startswith("holdfast: the folder ")
    assert "No space left on device" in seen["said"]
    assert seen["output"] == "1"


def test_a_log_that_cannot_be_moved_into_the_file_is_kept(tmp_path: Path) -> None:
    seen = tell("checkpoint", tmp_path)
    assert "full" in seen["text"]
    assert seen["durable"] == seen["read"] == seen["kept"] == 21
    assert seen["found"] == []


def test_a_file_can_be_deleted_on_a_full_disk_and_put_back_when_there_is_room(tmp_path: Path) -> None:
    """There is no room for a copy of it, so the file itself is kept."""
    seen = tell("deleting", tmp_path)
    assert seen["is_gone"], seen["said"]
    assert seen["back"], seen["undone"]
