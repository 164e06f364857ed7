"""What the commands of one execution may use between them, and what those that have ended have used up.

Holds the sums of an execution while it is driven here; the keeper (shared_limits_check.py) holds the commands to them.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import ResourceShort
from holdfast.core.resources import Resources, Usage, say_cpu, say_size


class SharedLimits:
    def __init__(self, execution_id: str, limits: Resources, spent: Usage) -> None:
        self.limits = limits
        self._execution_id = execution_id
        self._spent = spent

    def count(self, used: Usage) -> None:
        self._spent = self._spent.plus(used)

    def check(self) -> None:
        """Before a command begins: is there anything left of what is used up for good?"""
        cpu_s, disk_bytes = self._spent.cpu_s or 0.0, self._spent.disk_bytes or 0
        if self.limits.cpu_s is not None and cpu_s >= self.limits.cpu_s:
            raise _used_up(
                "cpu", f"used {say_cpu(cpu_s)} of CPU time", say_cpu(self.limits.cpu_s), self.limits.twice("cpu")
            )
        if self.limits.disk_bytes is not None and disk_bytes >= self.limits.disk_bytes:
            raise _used_up(
                "disk",
                f"written {say_size(disk_bytes)} to disk",
                say_size(self.limits.disk_bytes),
                self.limits.twice("disk"),
            )

    def as_order(self) -> dict[str, Any]:
        """As the keeper wants it."""
        limits = {
            "memory": self.limits.memory_bytes,
            "cpu": self.limits.cpu_s,
            "processes": self.limits.processes,
            "open_files": self.limits.open_files,
            "disk": self.limits.disk_bytes,
        }
        return {
            "id": self._execution_id,
            "limits": {name: limit for name, limit in limits.items() if limit is not None},
            "spent": {"cpu": self._spent.cpu_s or 0.0, "disk": self._spent.disk_bytes or 0},
        }


def _used_up(name: str, what: str, allowed: str, twice: str) -> ResourceShort:
    short = ResourceShort(
        f"the commands of this execution have {what}, and {allowed} are allowed to all of them together, so this one "
        f"was not begun;\nif they need more, raise resources.total.{name} of the task",
        without_effect=True,
    )
    short.limit = f"total.{twice}"
    return short
