"""A crowd of executions with random pauses and interrupts: nothing is lost, and memory does not grow with the crowd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from load.crowd import NOISE_BYTES, Report, in_own_process, wrong_with

COUNT = 500  # the whole proof runs 10,000
RATIO_MAX = 4.0  # growth of a crowd ten times as large

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def small() -> Report:
    return in_own_process(COUNT // 10, seed=1)


@pytest.fixture(scope="module")
def large() -> Report:
    return in_own_process(COUNT, seed=2)


def test_a_crowd_ends_as_it_should_leaves_nothing_behind_and_keeps_its_bounds(small: Report, large: Report) -> None:
    assert wrong_with(small) == []
    assert wrong_with(large) == []


def test_memory_does_not_grow_with_those_who_wait(small: Report, large: Report) -> None:
    assert large.parked_bytes <= small.parked_bytes * RATIO_MAX + NOISE_BYTES, (small, large)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"violations": ["lost"]}, "lost"),
        ({"in_memory": 151}, "151 drivers in memory"),
        ({"parked_objects": 10**6}, "1,000,000 objects for"),
        ({"parked_bytes": 10**9}, "1,000,000,000 bytes for"),
        ({"ended": {"completed": 9, "failed": 1}}, "and they ended as"),
        ({"executions": 9, "ended": {"completed": 9}}, "9 executions, and"),
        ({"holdings": {"drivers": 1}}, "something is left behind"),
        ({"held": 2}, "only 2 were held"),
        ({"parked": 5}, "only 5 waited"),
    ],
)
def test_what_a_crowd_must_keep_is_named_when_it_does_not(change: dict[str, Any], said: str) -> None:
    good = Report(count=10, executions=10, held=5, parked=8, ended={"completed": 10})
    assert wrong_with(good) == []
    [wrong] = wrong_with(msgspec.structs.replace(good, **change))
    assert wrong.startswith(said) or said in wrong
