"""At least 99 % of plans complete without a person when one call in ten fails for a moment."""

from __future__ import annotations

from pathlib import Path

from load.completion import FAILS, RATE_MIN, completion


async def test_nearly_all_plans_complete_though_one_call_in_ten_fails(tmp_path: Path) -> None:
    found = await completion(tmp_path)
    assert found.plans == 1000
    assert abs(found.failed_calls / found.calls - FAILS) < 0.02, "the world was not as flaky as it should be"
    assert found.rate >= RATE_MIN, found
    assert found.paid_twice == 0, "a call that may happen once, and can be looked for, happened twice"


async def test_the_rate_can_fall(tmp_path: Path) -> None:
    """Where six calls in ten fail, the retries are not enough: the number above is not always high."""
    assert (await completion(tmp_path, plans=50, fails=0.6)).rate < RATE_MIN
