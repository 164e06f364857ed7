"""What /proc tells of processes: who descends from whom, and what a tree of them uses.

Standard library only, and nothing of Holdfast's: the keeper runs it in an interpreter of its own. Where there is no
/proc, nobody has descendants that could be found, and nothing can be measured.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
HAS_CHILDREN = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
BORN_WITH_MORE_BYTES = 1 << 20  # what a new process may touch of its parent's memory before it becomes a program
_RLIMIT_LOCKS = 10  # of Linux; without a meaning since 2.4, and still inherited
DISK_SLACK_BYTES = 1 << 16  # the system counts whole pages, and those of folders, too
BLOCK_BYTES = 512  # in which the system tells what was written
PASSES_MAX = 100  # each pass reaches what the last one did not see


class Seen(NamedTuple):
    """One living process, as it was a moment ago."""

    cpu_s: float  # its own, and that of the children it has waited for
    rss_bytes: int
    threads: int


def look_at(pid: int) -> Seen | None:
    """None for the dead, which keep their entry until somebody waits for them."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may contain anything
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return Seen(sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE_BYTES, int(fields[17]))


def tree_of(roots: Iterable[int]) -> dict[int, Seen]:
    """The living among these processes and all that descends from them."""
    if not HAS_CHILDREN:
        children = children_by_parent()
        pids = {pid for root in roots for pid in (root, *below(root, children))}
        return {pid: seen for pid in pids if (seen := look_at(pid)) is not None}
    found: dict[int, Seen] = {}
    pending = list(roots)
    while pending:
        pid = pending.pop()
        if pid not in found and (seen := look_at(pid)) is not None:
            found[pid] = seen
            pending += children_of(pid, seen.threads)
    return found


def children_of(pid: int, threads: int = 1) -> list[int]:
    """Of all its threads: each may have started some."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in [str(pid)] if threads == 1 else os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def shared_once(pids: Iterable[int]) -> int | None:
    """Bytes of memory in which what several of them share is counted once. Slow, so asked only when it matters."""
    total: int | None = None
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            pss = next(line for line in file if line.startswith(b"Pss:"))
            total = (total or 0) + int(pss.split()[1]) * 1024
    return total


def written_bytes(pids: Iterable[int]) -> int:
    """What they, and the children they waited for, have written to disks."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io", "rb") as file:
            total += int(file.read().partition(b"\nwrite_bytes:")[2].split()[0])
    return total


def open_files(pids: Iterable[int]) -> int:
    """How many files, sockets and pipes they have open."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/fd"))
    return total


# ---- the whole table, for when all of it is needed -----------------------------------------------------------------


def children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _living_parent(name)) is not None:
                children.setdefault(parent, []).append(int(name))
    return children


def _living_parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def below(pid: int, children: dict[int, list[int]]) -> set[int]:
    found: set[int] = set()
    pending = list(children.get(pid, []))
    while pending:
        child = pending.pop()
        if child not in found:
            found.add(child)
            pending += children.get(child, [])
    return found


def set_tag(tag: int) -> None:
    """Mark this process and all that will descend from it, by a limit that the system no longer looks at.

    Unlike the environment it stays when a program is started without one. Where somebody has set it already, as when
    this keeper is below another one, it is left to them.
    """
    if sys.platform == "linux" and resource.getrlimit(_RLIMIT_LOCKS)[1] == resource.RLIM_INFINITY:
        resource.setrlimit(_RLIMIT_LOCKS, (tag, tag))


def tag_of(pid: int) -> int:
    """-1 if it has none, or is not ours to look at."""
    try:
        return resource.prlimit(pid, _RLIMIT_LOCKS)[1] if sys.platform == "linux" else -1
    except (OSError, ValueError):
        return -1


def environment_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


# ---- signals -------------------------------------------------------------------------------------------------------


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_all(pids: Iterable[int], number: int) -> bool:
    """Whether any of them could be signalled."""
    reached = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            reached = True
    return reached


def _own_bytes() -> int:
    seen = look_at(os.getpid())
    return seen.rss_bytes if seen is not None else 0


def make_room(pids: Iterable[int], nice: int) -> None:
    """Let everybody else go first. Where each session is scheduled as a group of its own, the group must step back."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, nice)
        with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))


# ---- limits --------------------------------------------------------------------------------------------------------


class Watch:
    """One command under limits: what its tree uses now, what it used at most, and which limit it went over."""

    EVERY_S = 0.02  # a tree can grow by some tens of megabytes in that time
    DISK_EVERY = 5  # looks; disks are slower than memory
    SHARE = 0.2  # of one core, at most, is spent on looking at one command

    def __init__(self, pid: int, limits: dict[str, Any]) -> None:
        first = look_at(pid)  # it may be over before the next look
        self._limits = limits
        self._looks = 0
        self._nice = False
        self.members: set[int] = set()
        self.lost_cpu_s = 0.0  # of orphans that were waited for here
        self.lost_disk_bytes = 0
        self.cpu_s = 0.0
        self.memory_bytes = first.rss_bytes if first is not None else 0
        self.born_with_bytes = _own_bytes() + BORN_WITH_MORE_BYTES
        self.processes = 1
        self.disk_bytes = 0
        self.over = ""
        self.together: float | None = None  # if the limit is one that it shares: what all of them used
        self.now: dict[str, float] = {"processes": 1, "memory": self.memory_bytes}
        self.counts_files = False  # takes long, and matters only where a limit is shared
        self.due = time.monotonic() + self.EVERY_S

    def look(self, tree: dict[int, Seen]) -> None:
        """Take in what the tree uses now; `over` names the limit that it is beyond, if it is."""
        began, cpu_began = time.monotonic(), time.process_time()
        self._looks += 1
        self.members = set(tree)
        self.cpu_s = max(self.cpu_s, self.lost_cpu_s + sum(seen.cpu_s for seen in tree.values()))
        self.processes = max(self.processes, len(tree))
        memory = sum(seen.rss_bytes for seen in tree.values())
        if memory > self._limits["memory"] and len(tree) > 1:
            memory = min(memory, shared_once(tree) or memory)
        self.memory_bytes = max(self.memory_bytes, memory)
        if self._looks % self.DISK_EVERY == 0:
            self.see_disk(self.lost_disk_bytes + written_bytes(tree))
            if self.counts_files:
                self.now["open_files"] = open_files(tree)
        self.now.update(processes=len(tree), memory=memory, cpu=self.cpu_s, disk=self.disk_bytes)
        for name, now in (("processes", len(tree)), ("memory", memory), ("cpu", self.cpu_s)):
            if now > self._limits[name] and not self.over:
                self.over = name
        if self.cpu_s > self._limits["nice_after_s"] and not self._nice:
            self._nice = True
            make_room(tree, self._limits["nice"])
        cost_s = time.process_time() - cpu_began
        self.due = began + max(self.EVERY_S, cost_s / self.SHARE)

    def see_disk(self, written: int) -> None:
        self.disk_bytes = max(self.disk_bytes, written)
        if self.disk_bytes > self._limits["disk"] + DISK_SLACK_BYTES and not self.over:
            self.over = "disk"


def set_limits(limits: dict[str, Any]) -> None:
    """In the new process, before it becomes the command: what the system itself can hold it to."""
    cpu_s = int(limits["cpu"]) + 1
    # More than is allowed: the system ends only the one process that meets this, of which a shell makes nothing.
    # Whoever met it has written too much, and that is seen.
    file_bytes = limits["disk"] + 2 * DISK_SLACK_BYTES
    for kind, soft, hard in (
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        # Twice as much as may be used: what is only reserved is nobody's memory, but the watch looks now and then.
        (resource.RLIMIT_DATA, 2 * limits["memory"] + 16 * 1024 * 1024, None),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        most = resource.getrlimit(kind)[1]
        if most == resource.RLIM_INFINITY:
            most = max(soft, hard or soft)
        resource.setrlimit(kind, (min(soft, most), min(hard if hard is not None else soft, most)))


def stop_all(find: Any) -> set[int]:
    """Everything that `find` finds stands still afterwards: what stands still cannot start more of its kind."""
    stopped: set[int] = set()
    for _ in range(PASSES_MAX):
        fresh = find() - stopped
        if not fresh:
            break
        signal_all(fresh, signal.SIGSTOP)
        stopped |= fresh
    return stopped
