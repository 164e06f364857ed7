"""Limits that the commands of an execution share: when they are met, and who pays for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.core.errors import ResourceShort
from holdfast.core.resources import Resources, Usage
from holdfast.tools.processes import shared_limits_check
from holdfast.tools.processes.shared_limits import SharedLimits


class Share:
    def __init__(self, *members: int, over: str = "", **now: float) -> None:
        self.members = set(members)
        self.over = over
        self.now: dict[str, float] = now


def as_much(_: Iterable[int]) -> int | None:
    """Nothing is shared, or nobody can tell."""
    return None


def together(**limits: float) -> shared_limits_check.SharedLimitsCheck:
    return shared_limits_check.SharedLimitsCheck(limits, {"disk": 10})


def test_whoever_has_the_most_pays() -> None:
    shares = {1: Share(memory=60), 2: Share(memory=50)}
    assert together(memory=100).offender(shares, as_much) == (1, "total.memory", 110)
    assert together(memory=110).offender(shares, as_much) is None


def test_what_commands_share_counts_once() -> None:
    shares = {1: Share(11, 12, memory=60), 2: Share(21, memory=50)}
    asked: list[set[int]] = []

    def once(pids: Iterable[int]) -> int:
        asked.append(set(pids))
        return 80

    assert together(memory=100).offender(shares, once) is None
    assert asked == [{11, 12, 21}]


def test_nobody_pays_for_what_is_being_ended() -> None:
    shares = {1: Share(memory=90, over="total.memory"), 2: Share(memory=50)}
    assert together(memory=100).offender(shares, as_much) is None


def test_what_is_used_up_stays_used_up() -> None:
    limits = together(cpu=10)
    assert limits.ended(6.0, 0) == ("", 0.0)
    assert limits.offender({1: Share(cpu=3)}, as_much) is None
    assert limits.offender({1: Share(cpu=3), 2: Share(cpu=2)}, as_much) == (1, "total.cpu", 11.0)


def test_the_engine_may_know_of_more_than_the_keeper_and_never_of_the_same_twice() -> None:
    limits = together(cpu=10)
    limits.remember({"cpu": 4, "disk": 0})
    limits.ended(3.0, 0)
    limits.remember({"cpu": 7, "disk": 0})
    assert limits.offender({1: Share(cpu=3)}, as_much) is None
    limits.remember({"cpu": 8, "disk": 0})
    assert limits.offender({1: Share(cpu=3)}, as_much) is not None


def test_what_was_written_at_the_very_end_counts_too() -> None:
    limits = together(disk=100)
    assert limits.ended(0, 60) == ("", 0.0)
    assert limits.ended(0, 51) == ("total.disk", 111)
    assert limits.ended(0, 0) == ("", 0.0)  # whoever wrote nothing is not to blame


def test_a_command_is_not_begun_when_nothing_is_left_for_it() -> None:
    shared = SharedLimits("id", Resources(cpu_s=2.0, disk_bytes=5000), Usage(cpu_s=1.5))
    shared.check()
    shared.count(Usage(cpu_s=0.5))
    with pytest.raises(ResourceShort, match=r"have used 2 s of CPU time, and 2 s are allowed to all of them") as caught:
        shared.check()
    assert caught.value.without_effect
    assert "raise resources.total.cpu of the task" in str(caught.value)
    full = SharedLimits("id", Resources(disk_bytes=5000), Usage(disk_bytes=6000))
    with pytest.raises(ResourceShort, match=r"have written 6 KB to disk, and 5 KB are allowed to all of them together"):
        full.check()
