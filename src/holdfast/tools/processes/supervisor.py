"""The keeper: a small process that owns every subprocess of one engine and lets none of them outlive it.

A program of its own, started as `python -I -S supervisor.py FD PID` by spawn.py; standard library only, one thread.
Between it and each command stands a warden (reaper.py), to whom the system hands every orphan of that command:
what lies below a warden is the command, and nothing else is. When the engine is gone (its socket closed or its process
dead, even by SIGKILL) the keeper kills everything below itself and ends. A command that comes with limits is watched:
what its whole tree uses is looked at many times a second, and beyond a limit the tree is ended. The keeper refuses to
die of a terminal's Ctrl-C or a service manager's SIGTERM, because then nobody would be left to tidy up.

From the engine: a 4-byte length and a JSON object; `spawn` comes with the `descriptors` that the command will have
as 0, 1, 2 (stdin, stdout, stderr) and so on.
To the engine: lines of JSON, `started`, `refused` or `exited`, each with the id the engine chose.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__ != "__main__":
    from holdfast.tools.processes import cpu_throttle as throttles
    from holdfast.tools.processes import disk_usage as rooms
    from holdfast.tools.processes import proc_tree as trees
    from holdfast.tools.processes import reaper as wardens
    from holdfast.tools.processes import shared_limits_check as shared
    from holdfast.tools.processes import usage_watch as watches
else:  # alone in an interpreter that knows no packages: what is needed stands beside this file

    def _beside(name):
        spec = spec_from_file_location(name, os.path.join(os.path.dirname(__file__), f"{name}.py"))
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    trees, rooms, watches, shared, throttles, wardens = map(
        _beside, ("proc_tree", "disk_usage", "usage_watch", "shared_limits_check", "cpu_throttle", "reaper")
    )

_TOGETHER_KEPT = 1000  # executions without a command now; the engine knows what they have used up
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


class SupervisedCommand:
    """One command, and what is known of it."""

    def __init__(self, mark: str, pid: int, report: int) -> None:
        self.mark = mark  # the id that the engine gave it
        self.pid = pid
        self.report = report  # where its warden will tell of its end
        self.watch: watches.Watch | None = None  # if it has limits
        self.throttle: throttles.Throttle | None = None  # if it may use only so many cores
        self.resting: set[int] = set()  # its processes, while they stand still for that
        self.execution = ""  # with whose other commands it shares limits


class ProcessSupervisor:
    def __init__(self, engine: socket.socket, engine_pid: int) -> None:
        self._engine = engine
        self._engine_pid = engine_pid
        self._buffer = b""
        self._descriptors: list[int] = []
        self._kept: dict[
            int, SupervisedCommand
        ] = {}  # by the pids of their wardens, which are all the children there should be
        self._together: dict[str, shared.SharedLimitsCheck] = {}  # executions whose commands share limits

    def run(self) -> None:
        """Serve until the engine is gone, then leave nothing behind."""
        poll = select.poll()
        poll.register(self._engine, select.POLLIN)
        child_died = _wake_on_child_death()
        poll.register(child_died, select.POLLIN)
        engine_died = _open_pidfd(self._engine_pid)
        if engine_died is not None:
            # A forked copy of the engine may hold the socket open; the process itself cannot be dead and alive.
            poll.register(engine_died, select.POLLIN)
        while os.getppid() == self._engine_pid:
            ready = {descriptor for descriptor, _ in poll.poll(self._patience_ms())}
            self._look()
            if child_died in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(child_died, 4096)
                self._reap()
            if engine_died in ready or (self._engine.fileno() in ready and not self._receive()):
                break
        trees.kill_everything()

    # ---- from the engine

    def _receive(self) -> bool:
        """Take in what the engine sent; False when it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._engine, 65536, 16)
        except OSError:
            return False
        if not data:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._buffer += data
        self._descriptors += descriptors
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                break
            body, self._buffer = self._buffer[4:end], self._buffer[end:]
            self._obey(json.loads(body))
        return True

    def _obey(self, request: dict[str, Any]) -> None:
        if request["do"] == "spawn":
            count = request["descriptors"]
            mine, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            self._spawn(request, mine)
        else:
            self._signal(request["id"], request["signal"])

    def _spawn(self, request: dict[str, Any], stdio: list[int]) -> None:
        report, report_write = os.pipe()
        trouble, trouble_write = os.pipe()
        keeper = os.getpid()
        limits = request.get("limits")
        room = rooms.DiskUsage(request["cwd"], limits["disk"]) if limits and "disk" in limits else None
        began: dict[str, Any] = {}
        warden = 0
        try:
            warden = os.fork()
        except OSError as error:
            began = {"stage": "start", "errno": error.errno}
        if warden == 0 and not began:
            wardens.stand(request, wardens.ReaperDescriptors(stdio, report_write, trouble_write), keeper, _libc)
        for descriptor in (*stdio, report_write, trouble_write):
            os.close(descriptor)
        began = began or _heard(report)
        if told := os.read(trouble, 64).split():  # nothing: the program runs, and exec closed the other end
            began = {"stage": told[0].decode(), "errno": int(told[1])}
        os.close(trouble)
        if "errno" in began:
            os.close(report)
            if warden:
                os.waitpid(warden, 0)
            self._tell({**began, "is": "refused", "id": request["id"]})
            return
        kept = self._kept[warden] = SupervisedCommand(request["id"], began.get("pid", 0), report)
        if limits:
            kept.watch = watches.Watch(warden, kept.pid, limits, room)
            self._meet(kept.watch)
            if limits.get("cores"):
                kept.throttle = throttles.Throttle(limits["cores"], time.monotonic())
            if request.get("together"):
                self._join(kept, kept.watch, request["together"])
        self._tell({"is": "started", "id": kept.mark, "pid": kept.pid})

    def _signal(self, mark: str, number: int) -> None:
        found = next(((warden, kept) for warden, kept in self._kept.items() if kept.mark == mark), None)
        if found is None:
            return  # it ended while the request was on its way
        warden, kept = found
        members = set(trees.tree_below(warden))
        if kept.pid:  # or its warden was killed at once, and its end is about to be told
            trees.signal_group(kept.pid, number)
        trees.signal_all(members, number)
        trees.signal_all({*kept.resting, warden}, signal.SIGCONT)  # or they would not hear of it
        kept.resting = set()

    # ---- limits

    def _join(self, kept: SupervisedCommand, watch: watches.Watch, together: dict[str, Any]) -> None:
        limits, execution = together["limits"], together["id"]
        others = self._together.pop(execution, None)
        if others is None:
            if len(self._together) >= _TOGETHER_KEPT:
                busy = {other.execution for other in self._kept.values()}
                self._together.pop(next((known for known in self._together if known not in busy), ""), None)
            others = shared.SharedLimitsCheck(limits, {"disk": watches.DISK_SLACK_BYTES})
        others.remember(together["spent"])
        watch.counts_files = "open_files" in limits
        self._together[execution] = others  # at the end: who was used last is forgotten last
        kept.execution = execution

    def _meet(self, new: watches.Watch) -> None:
        for _, _, other in self._watched():
            if other is not new and other.room is not None and new.room is not None:
                other.room.meet(new.room)

    def _watched(self) -> list[tuple[int, SupervisedCommand, watches.Watch]]:
        return [(warden, kept, kept.watch) for warden, kept in self._kept.items() if kept.watch is not None]

    def _patience_ms(self) -> float | None:
        watched = self._watched()
        if not watched:
            return None
        return max(0.0, min(watch.due for _, _, watch in watched) - time.monotonic()) * 1000 + 0.5

    def _look(self) -> None:
        """At the commands whose turn it is; whoever is over a limit is ended, with all that belongs to it."""
        now = time.monotonic()
        due = [entry for entry in self._watched() if entry[2].due <= now]
        for warden, kept, watch in due:
            trees.signal_all({*kept.resting, warden}, signal.SIGCONT)  # nobody may stop a warden, only its command
            kept.resting = set()
            watch.look()
            if watch.over and (victim := watch.victim()) is not None:
                trees.signal_all([victim], signal.SIGKILL)
                watch.over = ""  # the next look tells whether that was enough
            elif watch.over:
                _end(warden)
            elif kept.throttle is not None:
                _slow_down(warden, kept, kept.throttle, watch)
        for execution in {kept.execution for _, kept, _ in due if kept.execution}:
            self._look_at_all(execution)

    def _look_at_all(self, execution: str) -> None:
        """At what the commands of an execution use together; whoever has the most pays for it."""
        own = {warden: watch for warden, kept, watch in self._watched() if kept.execution == execution}
        hog = self._together[execution].offender(own, trees.shared_once)
        if hog is not None:
            own[hog.pid].over, own[hog.pid].together = hog.over, hog.used
            _end(hog.pid)

    # ---- what became of the commands

    def _reap(self) -> None:
        ended: list[tuple[int, Any]] = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.wait4(-1, os.WNOHANG))[0]:
                ended.append((found[0], found[2]))
        for warden, usage in ended:
            kept = self._kept.pop(warden, None)
            if kept is None:
                continue  # one of those who were left without a warden
            end = _heard(kept.report)
            os.close(kept.report)
            if "code" not in end:
                end = self._without_warden(usage)
            used = self._leave(kept, _used(end, kept.watch))
            self._tell({"is": "exited", "id": kept.mark, "code": end["code"], **used})

    def _without_warden(self, usage: Any) -> dict[str, Any]:
        """Somebody killed a warden: what was below it is below us now, and is ended at once."""
        trees.kill_strays(sparing=self._kept)
        return {"code": -signal.SIGKILL, "cpu_s": usage.ru_utime + usage.ru_stime, "rss_bytes": 0, "disk_bytes": 0}

    def _leave(self, kept: SupervisedCommand, used: dict[str, Any]) -> dict[str, Any]:
        """What it used up is used up for all who shared a limit with it."""
        if not kept.execution:
            return used
        over, amount = self._together[kept.execution].ended(used["cpu_s"], used["disk_bytes"])
        return {**used, "over": over, "together": amount} if over and not used["over"] else used

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the engine is gone; the loop is about to notice
            self._engine.sendall(json.dumps(message).encode() + b"\n")


def _end(warden: int) -> None:
    stopped = trees.stop_all(lambda: set(trees.tree_below(warden)))
    trees.signal_all(stopped, signal.SIGKILL)


def _slow_down(warden: int, kept: SupervisedCommand, throttle: throttles.Throttle, watch: watches.Watch) -> None:
    """Let it stand still until it has used no more than it may; the next look lets it go on."""
    now = time.monotonic()
    rest_s = throttle.rest_s(watch.cpu_s, now)
    if rest_s:
        kept.resting = trees.stop_all(lambda: set(trees.tree_below(warden)))
        watch.due = now + rest_s


def _heard(report: int) -> dict[str, Any]:
    """One message of a warden; nothing if it died."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(report, 1)  # what follows is for later
        if not piece:
            return {}
        line += piece
    return json.loads(line)


def _used(end: dict[str, Any], watch: watches.Watch | None) -> dict[str, Any]:
    """What a command used. What was waited for is in its warden's figures; the rest is known from looking."""
    rss_bytes = end["rss_bytes"]
    if watch is None:
        return {"cpu_s": end["cpu_s"], "rss_bytes": rss_bytes, "disk_bytes": end["disk_bytes"]}
    if rss_bytes <= watch.born_with_bytes:
        rss_bytes = 0  # that was ours: a process is a copy of its parent before it becomes a program
    watch.see_disk(end["disk_bytes"])  # all of it: what the last look did not see is known only now
    return {
        "cpu_s": max(end["cpu_s"], watch.cpu_s),
        "rss_bytes": max(rss_bytes, watch.memory_bytes),
        "disk_bytes": watch.disk_bytes,
        "processes": watch.processes,
        "over": watch.over,
        "together": watch.together,
    }


# ---- setting up ------------------------------------------------------------------------------------------------


def _wake_on_child_death() -> int:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return wake_read


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or an old kernel: the socket alone must tell
        return None


def main() -> None:
    for number in trees.DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    if _libc is not None:
        _libc.prctl(wardens.PR_SET_CHILD_SUBREAPER, 1)
    descriptor, engine_pid = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    ProcessSupervisor(socket.socket(fileno=descriptor), engine_pid).run()


if __name__ == "__main__":
    main()
