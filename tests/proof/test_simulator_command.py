"""The simulator's command line, as somebody at a shell uses it."""

from __future__ import annotations

import subprocess
import sys

COMMAND = [sys.executable, "-m", "proof.simulator"]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    with subprocess.Popen([*COMMAND, "--seed", "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_many_seeds_are_counted() -> None:
    done = subprocess.run([*COMMAND, "--seeds", "0:2"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "2 histories, 0 with violations\n"
