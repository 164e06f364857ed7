"""Whether this process stood still: it was suspended, or its machine slept. Nobody tells it; only clocks do.

The loop's own clock may stand still with it, and the wall clock may be set back meanwhile; so both are asked.
"""

from __future__ import annotations

from holdfast.engine.services import Services

STOOD_STILL_S = 0.5  # between two looks: half the shortest lease, a part of which is over when the sleep begins


class SuspendDetector:
    def __init__(self, services: Services, loop_s: float) -> None:
        self._services = services
        self.wall_s = services.clock.now_us() / 1e6
        self._loop_s = loop_s

    def stood_still(self, loop_s: float) -> bool:
        """Whether so much time has passed since it was last asked that somebody may have taken our place."""
        wall_s = self._services.clock.now_us() / 1e6
        passed_s = max(wall_s - self.wall_s, loop_s - self._loop_s)
        self.wall_s, self._loop_s = wall_s, loop_s
        return passed_s > STOOD_STILL_S
