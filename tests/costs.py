"""Prints at the end of a run what it cost: the wall and processor seconds of the tests of each directory.

The processor time of a process counts for the test in which it ends, and only if a test waits for it.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from servers.commands import forked_cpu_s

_costs: defaultdict[tuple[str, str], float] = defaultdict(float)  # by directory and what is counted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    wall, cpu = time.monotonic(), _cpu_s()
    result = yield
    under = item.path.relative_to(Path(__file__).parent).parts
    directory = under[0] if len(under) > 1 else "."
    _costs[directory, "tests"] += 1
    _costs[directory, "wall_s"] += time.monotonic() - wall
    _costs[directory, "cpu_s"] += _cpu_s() - cpu
    return result


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system + forked_cpu_s()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a worker of xdist has counted goes to the process that prints."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["costs"] = [[*key, value] for key, value in _costs.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for directory, what, value in getattr(node, "workeroutput", {}).get("costs", []):
        _costs[directory, what] += value


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _costs:
        return
    directories = sorted({directory for directory, _ in _costs}, key=lambda one: -_costs[one, "wall_s"])
    terminalreporter.section("what the tests cost, by directory")
    terminalreporter.write_line(f"{'directory':<12} {'tests':>7} {'wall s':>9} {'CPU s':>9}")
    for directory in [*directories, "all"]:
        among = directories if directory == "all" else [directory]
        tests, wall_s, cpu_s = (sum(_costs[one, what] for one in among) for what in ("tests", "wall_s", "cpu_s"))
        terminalreporter.write_line(f"{directory:<12} {tests:>7,.0f} {wall_s:>9,.1f} {cpu_s:>9,.1f}")
