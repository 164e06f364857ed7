"""A command that may use only so many cores stands still for moments, and is otherwise left alone."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.resources import Resources
from holdfast.tools.processes.cpu_throttle import BURST_S, REST_S_MAX, Throttle
from holdfast.tools.processes.spawn import Process, spawn

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PYTHON = [sys.executable, "-I", "-S", "-c"]
SPIN = "import time\nwhile time.process_time() < {}: pass\n"


def test_who_uses_no_more_than_allowed_is_left_alone() -> None:
    throttle = Throttle(0.5, now=0.0)
    assert [throttle.rest_s(0.5 * second, float(second)) for second in range(1, 5)] == [0.0] * 4


def test_who_uses_more_pays_for_it_in_time() -> None:
    throttle = Throttle(0.5, now=0.0)
    saved_s, earned_s = 0.5 * BURST_S, 0.5 * 0.1
    assert throttle.rest_s(0.15, 0.1) == pytest.approx((0.15 - saved_s - earned_s) / 0.5)
    assert throttle.rest_s(0.15, 0.3) == 0.0


def test_time_that_was_not_used_is_not_saved_up() -> None:
    throttle = Throttle(0.5, now=0.0)
    assert throttle.rest_s(0.0, 100.0) == 0.0
    assert throttle.rest_s(0.5, 100.5) > 0


def test_nobody_stands_still_for_long_at_a_time() -> None:
    assert Throttle(0.05, now=0.0).rest_s(100.0, 1.0) == REST_S_MAX


async def finish(process: Process) -> float:
    try:
        end = await process.wait()
        assert (end.code, end.over) == (0, "")
        return end.cpu_s
    finally:
        process.close()


@on_linux
@pytest.mark.parametrize("together", [1, 3], ids=["one process", "a tree"])
async def test_a_spinner_gets_its_share_of_a_core_and_no_more(tmp_path: Path, together: int) -> None:
    program = f"import os\nfor _ in range({together - 1}):\n  if not os.fork(): break\n" + SPIN.format(0.3)
    program += "\nwhile True:\n  try: os.wait()\n  except ChildProcessError: break\n"
    began = time.monotonic()
    process = await spawn([*PYTHON, program], cwd=tmp_path, env={}, resources=Resources(cores=0.3))
    cpu_s = await finish(process)
    took_s = time.monotonic() - began  # at least: a busy machine only makes it longer
    assert cpu_s >= 0.3 * together
    assert took_s >= 0.8 * (cpu_s / 0.3 - BURST_S)


@on_linux
async def test_a_command_that_stands_still_hears_a_signal(tmp_path: Path) -> None:
    hears = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('spins', flush=True)\n"
    process = await spawn(
        [*PYTHON, hears + "while True: pass"], cwd=tmp_path, env=os.environ, resources=Resources(cores=0.05)
    )
    assert await process.stdout.readline() == b"spins\n"
    async with asyncio.timeout(60):
        while state_of(process.pid) != "T":  # noqa: ASYNC110 -- there is nothing to wait for but the fact itself
            await asyncio.sleep(0.002)
        await process.kill(grace_s=20)
    assert (await process.wait()).code == 7
    process.close()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
