"""Engine processes killed and restarted under load: everything ends, nothing is lost, and nothing grows.

HOLDFAST_SOAK_S is how long, in seconds; 10 unless it is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from load.soak import GROWTH_MAX, Report, Vitals, grown, soak, wrong_with

SOAK_S = float(os.environ.get("HOLDFAST_SOAK_S", "10"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_through_kills_and_restarts_everything_ends_and_nothing_grows(tmp_path: Path) -> None:
    assert wrong_with(await soak(tmp_path, SOAK_S)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"violations": ["lost"]}, "lost"),
        ({"last": Vitals(99, 4, 50, 50_000_000)}, "files grew from 20 to 99"),
        ({"ended": {"completed": 9}}, "10 executions, and they ended as {'completed': 9}"),
        ({"doctor": 1, "doctor_said": "damaged"}, "the doctor found something: damaged"),
        ({"kills": 0}, "it was no soak: 0 kills, 3 watched to their end"),
        ({"watched": 0}, "it was no soak: 20 kills, 0 watched to their end"),
        ({"recoveries": 0}, "20 kills never met an execution at work"),
    ],
)
def test_what_a_soak_must_keep_is_named_when_it_does_not(change: dict[str, Any], said: str) -> None:
    vitals = Vitals(20, 4, 50, 50_000_000)
    good = Report(
        seconds=1, kills=20, executions=10, recoveries=2, watched=3, ended={"completed": 10}, first=vitals, last=vitals,
        doctor=0,
    )  # fmt: skip
    assert wrong_with(good) == []
    assert wrong_with(msgspec.structs.replace(good, **change)) == [said]


def test_growth_beyond_its_bound_is_named() -> None:
    before = Vitals(20, 4, 50, 50_000_000)
    assert grown(before, before) == []
    for name in GROWTH_MAX:
        after = before._replace(**{name: getattr(before, name) * 2 + 100})
        if name == "memory_bytes":
            assert grown(before, after) == ["memory_bytes grew from 50,000,000 to 100,000,100"]
        else:
            assert [line.split()[0] for line in grown(before, after)] == [name]
