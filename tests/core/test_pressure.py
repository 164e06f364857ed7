"""When the machine counts as short of something, and when no longer."""

from __future__ import annotations

import pytest

from holdfast.core.pressure import PressureLimits, Reading, judge

LIMITS = PressureLimits()


@pytest.mark.parametrize(
    ("reading", "stage", "why"),
    [
        (Reading(), 0, ""),
        (Reading(memory_free=0.5, own_memory=0.1, stalled=0.0, load=1.0, disk_free_bytes=10**10), 0, ""),
        (Reading(memory_free=0.09), 1, "9.0% of the memory is free, and 10.0% is the least"),
        (Reading(memory_free=0.03), 2, "3.0% of the memory is free, and 4.0% is the least"),
        (Reading(own_memory=0.6), 1, "this process holds 60.0% of the memory, and 50.0% is the most"),
        (Reading(stalled=0.7), 2, "70% of the last ten seconds something waited for memory, and 50% is the most"),
        (Reading(load=11.0), 1, "the load is 11.0 per core, and 10.0 is the most"),
        (Reading(disk_free_bytes=10**8), 2, "100 MB are free on the journal's disk, and 200 MB are the least"),
        (Reading(load=11.0, memory_free=0.01), 2, "1.0% of the memory is free, and 4.0% is the least"),
    ],
)
def test_the_worst_figure_decides_and_is_told(reading: Reading, stage: int, why: str) -> None:
    assert judge(reading, LIMITS) == (stage, why)


@pytest.mark.parametrize(
    ("reading", "now", "stage"),
    [
        (Reading(memory_free=0.11), 1, 1),  # better than where it began, but not by enough
        (Reading(memory_free=0.13), 1, 0),
        (Reading(memory_free=0.045), 2, 2),
        (Reading(memory_free=0.05), 2, 1),
        (Reading(load=9.0), 1, 1),
        (Reading(load=7.9), 1, 0),
        (Reading(load=25.0), 2, 2),
        (Reading(load=25.0), 1, 1),  # the margin is only for whoever is there already
    ],
)
def test_a_stage_is_left_only_when_it_is_better_by_a_margin(reading: Reading, now: int, stage: int) -> None:
    assert judge(reading, LIMITS, now).stage == stage
