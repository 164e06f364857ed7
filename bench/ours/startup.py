"""CPU seconds of `holdfast --help`, the best of several runs: what every command pays before it does anything."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from common import print_result

import holdfast


def cpu_s(command: list[str]) -> float:
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=7, help="runs")
    runs: int = parser.parse_args().executions
    command = [sys.executable, "-m", "holdfast.cli", "--help"]
    print_result(
        system="Holdfast", version=holdfast.__version__, help_cpu_s=round(min(cpu_s(command) for _ in range(runs)), 3)
    )


if __name__ == "__main__":
    main()
