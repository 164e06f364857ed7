"""The real clock of a real process is set back and forward under a running `holdfast`, and what comes of it.

The C library's clock is faked for that process alone, by a library that is loaded before it and reads the shift from a
file; nobody else's clock changes. Where there is no such library these tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from cli.workshop import Workshop
from servers.commands import environment

HOUR_S = 3600
TOOLS = """
import asyncio
import time

import holdfast


@holdfast.tool(name="clock.look", effect="read")
async def look() -> float:
    return time.time()


@holdfast.tool(name="clock.gate", effect="once")
async def gate(call: holdfast.Call) -> None:
    (call.folder / "log.txt").write_text("begun\\n")
    while not (call.folder / "go").exists():
        await asyncio.sleep(0.01)
"""
LOOKS = """
name: looks
steps:
  - {id: before, tool: clock.look}
  - {id: gate, tool: clock.gate}
  - {id: after, tool: clock.look}
output: ${{ steps.after.output - steps.before.output }}
"""


class Clock:
    """The system's clock as one process sees it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, shift_s: int) -> None:
        behind = self._file.with_suffix(".new")
        behind.write_text(f"{shift_s:+d}")
        behind.rename(self._file)  # never seen half-written

    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",  # as when a real clock is set: what has passed is not touched by it
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def _library() -> Path | None:
    found = find_spec("libfaketime")
    return Path(found.origin or "").parent / "vendor/libfaketime/src/libfaketime.so.1" if found is not None else None


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    clock = Clock(tmp_path / "clock")
    if _library() is None:
        pytest.skip("libfaketime is not installed")
    clock.set(-HOUR_S)
    probe = "import time; print(time.time())"
    seen = [
        float(subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True, check=True).stdout)
        for env in (environment(), environment(**clock.environ()))
    ]
    if seen[0] - seen[1] < HOUR_S / 2:
        pytest.skip("libfaketime cannot be loaded into processes of this machine")
    clock.set(0)
    return clock


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path)
    shop.write("tools.py", TOOLS)
    shop.write("looks.yaml", LOOKS)
    shop.write("nap.yaml", "name: nap\nsteps:\n  - {id: nap, wait: 1h}\n")
    yield shop
    shop.kill_all()


def times(shop: Workshop) -> list[str]:
    return [event["at"] for event in shop.run("events", shop.newest()["id"], "--json").lines]


@pytest.mark.parametrize("shift_s", [-24 * HOUR_S, 24 * HOUR_S], ids=["back", "forward"])
def test_a_clock_that_is_set_under_a_running_process_loses_nothing(shop: Workshop, clock: Clock, shift_s: int) -> None:
    process = shop.start("run", "looks.yaml", "--json", **clock.environ())
    shop.wait_for_log("begun")
    clock.set(shift_s)
    shop.open_gate()
    output = shop.finish(process).lines[-1]["output"]
    assert abs(output - shift_s) < HOUR_S  # the tools of that process saw its clock being set
    assert all(one <= other for one, other in pairwise(times(shop)))


def test_set_forward_a_wait_of_a_real_process_is_over_at_once(shop: Workshop, clock: Clock) -> None:
    process = shop.start("run", "nap.yaml", **clock.environ())
    shop.wait_for_status("waiting")
    clock.set(2 * HOUR_S)
    shop.finish(process)
    assert shop.newest()["status"] == "completed"


def test_set_back_a_wait_of_a_real_process_comes_when_the_clock_is_there_again(shop: Workshop, clock: Clock) -> None:
    process = shop.start("run", "nap.yaml", **clock.environ())
    shop.wait_for_status("waiting")
    clock.set(-2 * HOUR_S)
    shop.open_gate()
    for shift_s in (-2 * HOUR_S, HOUR_S // 2):  # three hours are left, then half an hour; others are not held up
        clock.set(shift_s)
        shop.finish(shop.start("run", "looks.yaml", **clock.environ()))
        assert process.poll() is None
    clock.set(HOUR_S + 60)
    shop.finish(process)
    statuses = [(found["name"], found["status"]) for found in shop.run("list", "--json").json]
    assert sorted(statuses) == [("looks", "completed"), ("looks", "completed"), ("nap", "completed")]
