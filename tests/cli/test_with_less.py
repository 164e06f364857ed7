"""When memory or files run short, a built-in tool tries once more with less, one call at a time, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.workshop import Workshop

# The system's refusal is the only thing that is made up: each file is refused once.
TOOLS = """
import errno
import os
import threading
import time

import holdfast
from holdfast.tools.files import toolset

refused, lock, inside = set(), threading.Lock(), []
real = toolset.read_bytes


def read_bytes(spot, limit):
    with lock:
        is_first = spot.path not in refused
        refused.add(spot.path)
    if is_first:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with lock:
        inside.append(spot.path)
        with open("seen.txt", "a") as seen:
            seen.write(f"{limit} {len(inside)}\\n")
    time.sleep(0.02)  # time enough for others to come in, if they may
    with lock:
        inside.remove(spot.path)
    return real(spot, limit)


toolset.read_bytes = read_bytes
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.write("tools.py", TOOLS)
    return shop


def test_built_in_tool_runs_again_with_less_and_one_at_a_time(shop: Workshop) -> None:
    for number in range(6):
        shop.write(f"{number}.txt", str(number))
    shop.write(
        "plan.yaml",
        """
name: read
steps:
  - id: pages
    for_each: "${{ ['0', '1', '2', '3', '4', '5'] }}"
    tool: files.read
    with: {path: "${{ item }}.txt", max_bytes: 1000}
""",
    )
    result = shop.run("run", "plan.yaml")
    assert 'output: ["0", "1", "2", "3", "4", "5"]' in result.out
    assert (shop.folder / "seen.txt").read_text().splitlines() == ["500 1"] * 6
    assert "pages[0]: started (files.read, attempt 2, with less)" in result.out
    assert "2 attempts, with less" in shop.run("show", "@last").out
    steps = shop.run("show", "@last", "--json").json["steps"]
    assert [step["reduced"] for step in steps if step["path"] != "pages"] == [True] * 6


def test_smaller_limit_that_is_met_is_no_mistake_of_the_plan(shop: Workshop) -> None:
    shop.write("big.txt", "x" * 800)
    shop.write(
        "plan.yaml",
        "name: read\nsteps:\n  - {id: page, tool: files.read, with: {path: big.txt, max_bytes: 1000}}\n",
    )
    failed = shop.run("run", "plan.yaml", "--json", code=1).lines[-1]
    assert failed["failure"]["category"] == "resource"
    assert "it ran with less, because the attempt before ran short: " in failed["failure"]["message"]
    assert "too many files are open" in failed["failure"]["message"]
