"""A crowd of executions with random pauses and interrupts: nothing is lost, and memory does not grow with the crowd."""

from __future__ import annotations

from pathlib import Path

import pytest

from load.crowd import Report, in_own_process

COUNT = 1000  # the whole proof runs 10,000
OBJECTS_PER_DRIVER = 400  # that the collector sees for an execution kept in memory; those asleep must cost none
PARKED_BYTES_MAX = 4096  # for each execution that waits: what an allocator wastes, and no more
NOISE_BYTES = 20 * 1024**2  # caches and the allocator's own, whatever the size of the crowd
RATIO_MAX = 4.0  # growth of a crowd ten times as large

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def small() -> Report:
    return in_own_process(COUNT // 10, seed=1)


@pytest.fixture(scope="module")
def large() -> Report:
    return in_own_process(COUNT, seed=2)


def test_every_execution_of_a_crowd_ends_as_it_should(small: Report, large: Report) -> None:
    for report in (small, large):
        assert report.violations == []
        assert report.executions >= report.count
        assert report.ended == {"completed": report.executions}


def test_the_crowd_was_one(large: Report) -> None:
    """The test would say nothing if nobody had been held and nobody had waited."""
    assert large.held > COUNT // 5
    assert large.parked > COUNT // 2


def test_a_crowd_leaves_nothing_behind(small: Report, large: Report) -> None:
    assert not any(small.holdings.values()), small.holdings
    assert not any(large.holdings.values()), large.holdings


def test_memory_does_not_grow_with_those_who_wait(small: Report, large: Report) -> None:
    assert large.in_memory <= 150, "more are kept in memory than the limits say"
    assert large.parked_objects <= max(large.in_memory, 50) * OBJECTS_PER_DRIVER, large
    assert large.parked_bytes <= large.parked * PARKED_BYTES_MAX + NOISE_BYTES, large
    assert large.parked_bytes <= small.parked_bytes * RATIO_MAX + NOISE_BYTES, (small, large)
