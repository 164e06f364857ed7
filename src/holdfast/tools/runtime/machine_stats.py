"""What this machine has left: memory, load, disk. Read from /proc where there is one; what cannot be told is None."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.core.pressure import Reading

_GROUP = Path("/sys/fs/cgroup")  # inside a container this is the container's own group


def read_machine(folder: Path) -> Reading:
    """A few small files: well under a millisecond, unless the machine is in trouble."""
    meminfo = _meminfo()
    total = meminfo.get("MemTotal")
    free = meminfo.get("MemAvailable")
    if total and free is not None:
        total, free = _within_group(total, free)
    return Reading(
        memory_free=free / total if total and free is not None else None,
        own_memory=_own_bytes() / total if total else None,
        stalled=_stalled(),
        load=_load(),
        disk_free_bytes=_disk_free(folder),
    )


def _meminfo() -> dict[str, int]:
    found: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines()[:3]:
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found


def _within_group(total: int, free: int) -> tuple[int, int]:
    """A container may have less than its machine."""
    with suppress(OSError, ValueError):  # no group, or one without a limit, which says "max"
        limit = int((_GROUP / "memory.max").read_text())
        if limit < total:
            used = int((_GROUP / "memory.current").read_text())
            return limit, min(free, max(0, limit - used))
    return total, free


def _own_bytes() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _stalled() -> float | None:
    with suppress(OSError, ValueError, IndexError):
        some = Path("/proc/pressure/memory").read_text().split()
        return float(some[1].removeprefix("avg10=")) / 100
    return None


def _load() -> float | None:
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    return None


def _disk_free(folder: Path) -> int | None:
    with suppress(OSError, AttributeError):
        room = os.statvfs(folder)
        return room.f_bavail * room.f_frsize
    return None
