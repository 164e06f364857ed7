"""What /proc tells of processes: who descends from whom, and what each of them uses; and signals to many of them.

Standard library only, and nothing of Holdfast's: the keeper runs it in an interpreter of its own. Where there is no
/proc, nobody has descendants that could be found, and nothing can be measured.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
HAS_CHILDREN = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
BLOCK_BYTES = 512  # in which the system tells what was written, and what a file takes
DISK_SLACK_BYTES = 1 << 16  # the system counts whole pages, and those of folders, too
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # the keeper and the wardens are
PASSES_MAX = 100  # each pass reaches what the last one did not see
_PAUSE_S = 0.001


class ProcessInfo(NamedTuple):
    """One living process, as it was a moment ago."""

    began: int  # with its pid it is unique; a pid alone is given to others later
    own_cpu_s: float
    waited_cpu_s: float  # that of the children it has waited for
    rss_bytes: int
    threads: int
    place: str  # where /proc tells of its memory and files


def look_at(pid: int) -> ProcessInfo | None:
    """None for the dead, which keep their entry until somebody waits for them."""
    fields = _stat(f"/proc/{pid}")
    if fields is None:
        return None
    place, threads = f"/proc/{pid}", int(fields[17])
    rss_bytes = int(fields[21]) * _PAGE_BYTES
    if fields[0] in (b"Z", b"X"):
        # Its first thread may have ended before the others; then it looks dead, and only they know of its memory.
        living = _living_thread(pid) if threads > 1 else None
        if living is None:
            return None
        place, rss_bytes = living
    own, waited = sum(map(int, fields[11:13])) / _TICKS, sum(map(int, fields[13:15])) / _TICKS
    return ProcessInfo(int(fields[19]), own, waited, rss_bytes, threads, place)


def _stat(place: str) -> list[bytes] | None:
    try:
        with open(f"{place}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()  # the name before it may contain anything
    except OSError:
        return None


def _living_thread(pid: int) -> tuple[str, int] | None:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            place = f"/proc/{pid}/task/{thread}"
            fields = _stat(place)
            if fields is not None and fields[0] not in (b"Z", b"X"):
                return place, int(fields[21]) * _PAGE_BYTES
    return None


def tree_below(pid: int, sparing: Container[int] = ()) -> dict[int, ProcessInfo]:
    """The living among all that descends from it, without itself, and without these children and what is below them."""
    children = None if HAS_CHILDREN else _children_by_parent()
    found: dict[int, ProcessInfo] = {}
    pending = children_of(pid) if children is None else children.get(pid, [])
    pending = [child for child in pending if child not in sparing]
    while pending:
        child = pending.pop()
        if child not in found and (seen := look_at(child)) is not None:
            found[child] = seen
            pending += children_of(child, seen.threads) if children is None else children.get(child, [])
    return found


def children_of(pid: int, threads: int = 1) -> list[int]:
    """Of all its threads: each may have started some."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in [str(pid)] if threads == 1 else os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """The whole table, where a process cannot be asked for its children."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat(f"/proc/{name}")) is not None:
                children.setdefault(int(fields[1]), []).append(int(name))
    return children


def shared_once(pids: Iterable[int]) -> int | None:
    """Bytes of memory in which what several of them share is counted once. Slow, so asked only when it matters."""
    total: int | None = None
    for pid in pids:
        if (seen := look_at(pid)) is not None:
            total = (total or 0) + memory_of(seen)[0]
    return total


def memory_of(seen: ProcessInfo) -> tuple[int, int]:
    """Its part of the memory that it uses, and how much of that is of files in memory. All, if it hides that.

    Nothing for one that is ending: it has no memory any more.
    """
    found: dict[bytes, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{seen.place}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith((b"Pss:", b"Pss_Shmem:")):
                found[line.partition(b":")[0]] = int(line.split()[1]) * 1024
    if b"Pss" not in found:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"{seen.place}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES, 0
    return found.get(b"Pss", 0), found.get(b"Pss_Shmem", 0)


def written_bytes(place: str) -> int:
    """Written to disks: by a process with the children it waited for, or by a thread alone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{place}/io", "rb") as file:
        return int(file.read().partition(b"\nwrite_bytes:")[2].split()[0])
    return 0


def written_itself(pid: int) -> int:
    """Without that of any children, by those of its threads that still live."""
    with contextlib.suppress(OSError):
        return sum(written_bytes(f"/proc/{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task"))
    return 0


def says(pid: int, text: bytes) -> bool:
    """In its command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return text in file.read()
    except OSError:
        return False


def open_files(tree: Iterable[ProcessInfo]) -> int:
    """How many files, sockets and pipes they have open."""
    total = 0
    for seen in tree:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"{seen.place}/fd"))
    return total


def files_in_memory(tree: Iterable[ProcessInfo]) -> int:
    """What is in files that have no name, lie in memory, and live as long as these processes hold them open."""
    found: dict[tuple[int, int], int] = {}
    for seen in tree:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{seen.place}/fd"):
                path = f"{seen.place}/fd/{name}"
                with contextlib.suppress(OSError):
                    if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                        told = os.stat(path)
                        if told.st_nlink == 0:
                            found[told.st_dev, told.st_ino] = told.st_blocks * BLOCK_BYTES
    return sum(found.values())


# ---- signals -------------------------------------------------------------------------------------------------------


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_all(pids: Iterable[int], number: int) -> bool:
    """Whether there was anybody that may be signalled, the gone ones included."""
    allowed = False
    for pid in pids:
        with contextlib.suppress(PermissionError):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            allowed = True
    return allowed


def make_room(pids: Iterable[int], nice: int) -> None:
    """Let everybody else go first. Where each session is scheduled as a group of its own, the group must step back."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, nice)
        with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))


def stop_all(find: Callable[[], set[int]]) -> set[int]:
    """Everything that `find` finds stands still afterwards: what stands still cannot start more of its kind."""
    stopped: set[int] = set()
    for _ in range(PASSES_MAX):
        fresh = find() - stopped
        if not fresh:
            break
        signal_all(fresh, signal.SIGSTOP)
        stopped |= fresh
    return stopped


def kill_everything(reaped: Callable[[Any], None] = lambda usage: None) -> None:
    """Until nothing is left below this process, which is handed every orphan: no children means no descendants.

    `reaped` is told what each child used.
    """
    while True:
        try:
            while (found := os.wait4(-1, os.WNOHANG))[0]:
                reaped(found[2])
        except ChildProcessError:
            return
        if not _kill_below(()):
            return
        time.sleep(_PAUSE_S)


def kill_strays(sparing: Container[int]) -> None:
    """What lies below this process and not below these children of it, which are not waited for either."""
    for _ in range(PASSES_MAX):
        if not tree_below(os.getpid(), sparing) or not _kill_below(sparing):
            return
        time.sleep(_PAUSE_S)


def _kill_below(sparing: Container[int]) -> bool:
    """False if only processes of another user are left, such as those of sudo: they are not ours to kill."""
    found = stop_all(lambda: set(tree_below(os.getpid(), sparing)))
    return signal_all(found, signal.SIGKILL) or not found


# ---- limits of the system ------------------------------------------------------------------------------------------


def set_limits(limits: dict[str, Any]) -> None:
    """In the new process, before it becomes the command: what the system itself can hold it to."""
    if "cpu" in limits:
        cpu_s = int(limits["cpu"]) + 1
        _set_limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
    if "disk" in limits:
        # More than is allowed: the system ends only the one process that meets this, of which a shell makes nothing.
        # Whoever met it has written too much, and that is seen.
        file_bytes = limits["disk"] + 2 * DISK_SLACK_BYTES
        _set_limit(resource.RLIMIT_FSIZE, file_bytes, file_bytes)
    if "open_files" in limits:
        _set_limit(resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"])
    if "memory" in limits and "victims" not in limits:
        # Twice as much as may be used: what is only reserved is nobody's memory, but the watch looks now and then.
        most = 2 * limits["memory"] + 16 * 1024 * 1024
        _set_limit(resource.RLIMIT_DATA, most, most)
    _set_limit(resource.RLIMIT_CORE, 0, 0)


def _set_limit(kind: int, soft: int, hard: int) -> None:
    most = resource.getrlimit(kind)[1]
    if most == resource.RLIM_INFINITY:
        most = max(soft, hard)
    resource.setrlimit(kind, (min(soft, most), min(hard, most)))
