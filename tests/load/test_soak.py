"""Engine processes killed and restarted under load: everything ends, nothing is lost, and nothing grows.

HOLDFAST_SOAK_S is how long, in seconds; 10 unless it is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from load.soak import GROWTH_MAX, Vitals, grown, soak

SOAK_S = float(os.environ.get("HOLDFAST_SOAK_S", "10"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_through_kills_and_restarts_everything_ends_and_nothing_grows(tmp_path: Path) -> None:
    report = await soak(tmp_path, SOAK_S)
    assert report.violations == []
    assert report.ended == {"completed": report.executions}
    assert report.doctor == 0, report.doctor_said
    assert grown(report.first, report.last) == []
    # It was a soak: processes died, and others went on with what they had begun.
    assert report.kills > 0
    assert report.recoveries > 0 or report.kills < 10, "kills never met an execution at work"
    assert report.watched > 0


def test_growth_beyond_its_bound_is_named() -> None:
    before = Vitals(20, 4, 50, 50_000_000)
    assert grown(before, before) == []
    for name in GROWTH_MAX:
        after = before._replace(**{name: getattr(before, name) * 2 + 100})
        if name == "memory_bytes":
            assert grown(before, after) == ["memory_bytes grew from 50,000,000 to 100,000,100"]
        else:
            assert [line.split()[0] for line in grown(before, after)] == [name]
