"""How long a command stands still, so that on average it uses no more than so many cores.

Pure, and imports nothing: the keeper runs it in an interpreter of its own, looks at the command and stops it.
"""

from __future__ import annotations

BURST_S = 0.1  # of the clock: so much may be saved up, so that short work is not slowed down
REST_S_MAX = 1.0  # at a time; what is still owed then is paid after the next look


class Throttle:
    def __init__(self, cores: float, now: float) -> None:
        self._cores = cores
        self._credit_s = self._most_s = cores * BURST_S  # of CPU time
        self._seen_at = now
        self._cpu_s = 0.0

    def rest_s(self, cpu_s: float, now: float) -> float:
        """What it has used so far, all its processes together → seconds from now on in which it must use none."""
        earned_s, used_s = self._cores * (now - self._seen_at), max(0.0, cpu_s - self._cpu_s)
        self._credit_s = min(self._most_s, self._credit_s + earned_s - used_s)
        self._seen_at, self._cpu_s = now, max(cpu_s, self._cpu_s)
        return min(REST_S_MAX, max(0.0, -self._credit_s / self._cores))
