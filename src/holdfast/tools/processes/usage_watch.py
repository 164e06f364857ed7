"""One command under limits: what its tree uses now, what it used at most, and which limit it went over.

Standard library only: the keeper runs it in an interpreter of its own, and ends whoever is over a limit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "holdfast" in sys.modules:
    from holdfast.tools.processes import disk_usage as rooms
    from holdfast.tools.processes import proc_tree as trees
else:  # alone in an interpreter that knows no packages; the keeper has loaded them
    trees, rooms = sys.modules["proc_tree"], sys.modules["disk_usage"]

BORN_WITH_MORE_BYTES = 1 << 20  # what a new process may touch of its parent's memory before it becomes a program
DISK_SLACK_BYTES = trees.DISK_SLACK_BYTES


class Ledger:
    """What processes used up by themselves, the gone ones included.

    The system adds what a process used to its parent's figures only if the parent waits for it; a parent that does not
    want to know lets it be forgotten. So everybody's own figure is kept as it was when last seen.
    """

    def __init__(self) -> None:
        self._of_gone = 0.0
        self._seen: dict[tuple[int, int], float] = {}

    def total(self, now: dict[tuple[int, int], float]) -> float:
        """`now`: by pid and beginning."""
        for key in self._seen.keys() - now.keys():
            again = trees.look_at(key[0])
            if again is None or again.began != key[1]:  # it was not only overlooked
                self._of_gone += self._seen.pop(key)
        for key, used in now.items():
            self._seen[key] = max(used, self._seen.get(key, 0.0))  # a thread that ended takes its figure with it
        return self._of_gone + sum(self._seen.values())


class Watch:
    EVERY_S = 0.02  # a tree can grow by some tens of megabytes in that time
    SLOWLY = 5  # looks; disks are slower than memory, and to look at files takes long
    SHARE = 0.2  # of one core, at most, is spent on looking at one command

    def __init__(self, warden: int, pid: int, limits: dict[str, Any], room: rooms.DiskUsage | None = None) -> None:
        first = trees.look_at(pid)  # it may be over before the next look
        self._warden = warden
        self._limits = limits
        self._every_s = limits.get("every_s", self.EVERY_S)
        self._looks = 0
        self._nice = False
        self._cpu, self._disk = Ledger(), Ledger()
        self._in_files = 0  # bytes of memory
        self.room = room  # if what it takes of disks is limited
        self.members: set[int] = set()
        self.cpu_s = 0.0
        self.memory_bytes = first.rss_bytes if first is not None else 0
        self.born_with_bytes = _own_bytes() + BORN_WITH_MORE_BYTES
        self.processes = 1
        self._written = 0
        self.disk_bytes = 0
        self.over = ""
        self.together: float | None = None  # if the limit is one that it shares: what all of them used
        self.now: dict[str, float] = {"processes": 1, "memory": self.memory_bytes}
        self.counts_files = False  # takes long, and matters only where a limit is shared
        self.due = time.monotonic() + self._every_s

    def look(self) -> None:
        """Take in what the tree uses now; `over` names the limit that it is beyond, if it is."""
        began, cpu_began = time.monotonic(), time.process_time()
        self._looks += 1
        tree = trees.tree_below(self._warden)
        self.members = set(tree)
        self.processes = max(self.processes, len(tree))
        self._see_cpu(tree)
        if self._looks % self.SLOWLY == 0:
            self._look_slowly(tree)
        memory = self._memory(tree)
        self.memory_bytes = max(self.memory_bytes, memory)
        self.now.update(processes=len(tree), memory=memory, cpu=self.cpu_s, disk=self.disk_bytes)
        for name in ("processes", "memory", "cpu"):
            if self.now[name] > self._limits.get(name, self.now[name]) and not self.over:
                self.over = name
        if self.cpu_s > self._limits.get("nice_after_s", self.cpu_s) and not self._nice:
            self._nice = True
            trees.make_room(tree, self._limits["nice"])
        cost_s = time.process_time() - cpu_began
        self.due = began + max(self._every_s, cost_s / self.SHARE)

    def victim(self) -> int | None:
        """Who is to be ended instead of everything: the largest of those that the limits name, if they name any."""
        text = self._limits.get("victims", "").encode()
        named = {pid: seen for pid in self.members if text and (seen := trees.look_at(pid)) and trees.says(pid, text)}
        return max(named, key=lambda pid: named[pid].rss_bytes, default=None)

    def _see_cpu(self, tree: dict[int, trees.ProcessInfo]) -> None:
        """As the system adds it up, or as it was seen: each knows of some who are gone, and neither counts twice."""
        warden = trees.look_at(self._warden)
        waited_s = warden.waited_cpu_s if warden is not None else 0.0
        added_up = waited_s + sum(seen.own_cpu_s + seen.waited_cpu_s for seen in tree.values())
        seen = self._cpu.total({(pid, seen.began): seen.own_cpu_s for pid, seen in tree.items()})
        self.cpu_s = max(self.cpu_s, added_up, seen)

    def _look_slowly(self, tree: dict[int, trees.ProcessInfo]) -> None:
        added_up = sum(trees.written_bytes(f"/proc/{pid}") for pid in (self._warden, *tree))
        seen = self._disk.total({(pid, seen.began): trees.written_itself(pid) for pid, seen in tree.items()})
        self.see_disk(max(added_up, int(seen)), tree.values())
        if "memory" in self._limits:
            self._in_files = trees.files_in_memory(tree.values())
        if self.counts_files:
            self.now["open_files"] = trees.open_files(tree.values())

    def _memory(self, tree: dict[int, trees.ProcessInfo]) -> int:
        """A quick sum that is never too low; only if it is too much, one in which nothing counts twice."""
        memory = sum(seen.rss_bytes for seen in tree.values()) + self._in_files
        if memory > self._limits.get("memory", memory) and (len(tree) > 1 or self._in_files):
            parts = [trees.memory_of(seen) for seen in tree.values()]
            unseen = max(0, self._in_files - sum(shared for _, shared in parts))  # by all who have it in their memory
            memory = min(memory, sum(part for part, _ in parts) + unseen)
        return memory

    def see_disk(self, written: int, tree: Iterable[trees.ProcessInfo] = ()) -> None:
        self._written = max(self._written, written)
        taken = self.room.taken(tree, self._written) if self.room is not None else 0
        self.disk_bytes = max(self._written, taken)
        if self.disk_bytes > self._limits.get("disk", self.disk_bytes) + DISK_SLACK_BYTES and not self.over:
            self.over = "disk"


def _own_bytes() -> int:
    seen = trees.look_at(os.getpid())
    return seen.rss_bytes if seen is not None else 0
