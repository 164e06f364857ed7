"""The keeper: a small process that owns every subprocess of one engine and lets none of them outlive it.

A program of its own, started as `python -I -S keeper.py FD PID` by processes.py; standard library only, one thread.
It is the parent of all commands and, on Linux, the subreaper of all their descendants: whoever calls setsid or forks
twice still ends up below it. When the engine is gone (its socket closed or its process dead, even by SIGKILL) the
keeper kills everything below itself and ends. A command that comes with limits is watched: what its whole tree uses is
looked at many times a second, and beyond a limit the tree is ended. The keeper refuses to die of a terminal's Ctrl-C or
a service manager's SIGTERM, because then nobody would be left to tidy up.

From the engine: a 4-byte length and a JSON object; `spawn` comes with three descriptors (stdin, stdout, stderr).
To the engine: lines of JSON, `started`, `refused` or `exited`, each with the id the engine chose.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from holdfast.tools import keeper_throttle as throttles
    from holdfast.tools import keeper_together as shared
    from holdfast.tools import keeper_tree as trees
else:  # alone in an interpreter that knows no packages: what is needed stands beside this file

    def _beside(name):
        spec = spec_from_file_location(name, os.path.join(os.path.dirname(__file__), f"{name}.py"))
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    trees, shared, throttles = map(_beside, ("keeper_tree", "keeper_together", "keeper_throttle"))

MARK = "HOLDFAST_PROCESS"  # in the environment of every command, so that a descendant that left its group is recognised
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TAGS_FROM = 1 << 50
_TAG_DIGITS = 12  # of an id, which are random; no two commands on a machine may have the same tag
_SECOND_LOOKS = 10
_SECOND_LOOK_S = 0.001
_LAST_PAUSE_S = 0.005
_TOGETHER_KEPT = 1000  # executions without a command now; the engine knows what they have used up
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


def tag_for(mark: str) -> int:
    """What every process of a command is marked with. The engine knows it too, should its keeper die."""
    return _TAGS_FROM + int(mark[:_TAG_DIGITS], 16)


class Keeper:
    def __init__(self, engine: socket.socket, engine_pid: int) -> None:
        self._engine = engine
        self._engine_pid = engine_pid
        self._buffer = b""
        self._descriptors: list[int] = []
        self._commands: dict[int, str] = {}  # pid → the id the engine gave it
        self._watched: dict[int, trees.Watch] = {}  # those of them that have limits
        self._together: dict[str, shared.Together] = {}  # executions whose commands share limits
        self._of_execution: dict[int, str] = {}  # those of the commands that do, and their execution
        self._throttles: dict[int, throttles.Throttle] = {}  # commands that may use only so many cores
        self._resting: dict[int, set[int]] = {}  # those of them that stand still now, with their processes
        self._tags: dict[int, str] = {}  # what every process of a command is marked with → the command's id
        self._orphans: dict[int, str] = {}  # whose parents died: pid → the id of the command they came from

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
        _kill_everything()

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
            mine, self._descriptors = self._descriptors[:3], self._descriptors[3:]
            self._spawn(request, mine)
        else:
            self._signal_tree(request["id"], request["signal"])

    def _spawn(self, request: dict[str, Any], stdio: list[int]) -> None:
        trouble_read, trouble_write = os.pipe()
        request["tag"] = tag_for(request["id"])
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(request, stdio, trouble_write, parent)
        for descriptor in (*stdio, trouble_write):
            os.close(descriptor)
        trouble = os.read(trouble_read, 64)  # empty: the program runs, and exec closed the other end
        os.close(trouble_read)
        if trouble:
            os.waitpid(pid, 0)
            stage, code = trouble.decode().split()
            self._tell({"is": "refused", "id": request["id"], "stage": stage, "errno": int(code)})
            return
        self._commands[pid] = request["id"]
        self._tags[request["tag"]] = request["id"]
        if request.get("limits"):
            watch = self._watched[pid] = trees.Watch(pid, request["limits"])
            if request["limits"].get("cores"):
                self._throttles[pid] = throttles.Throttle(request["limits"]["cores"], time.monotonic())
            if request.get("together"):
                self._join(pid, watch, request["together"])
        self._tell({"is": "started", "id": request["id"], "pid": pid})

    # ---- limits

    def _join(self, pid: int, watch: trees.Watch, together: dict[str, Any]) -> None:
        limits, execution = together["limits"], together["id"]
        others = self._together.pop(execution, None)
        if others is None:
            if len(self._together) >= _TOGETHER_KEPT:
                idle = (known for known in self._together if known not in self._of_execution.values())
                self._together.pop(next(idle, ""), None)
            others = shared.Together(limits, {"disk": trees.DISK_SLACK_BYTES})
        others.remember(together["spent"])
        watch.counts_files = "open_files" in limits
        self._together[execution] = others  # at the end: who was used last is forgotten last
        self._of_execution[pid] = execution

    def _patience_ms(self) -> float | None:
        if not self._watched:
            return None
        return max(0.0, min(watch.due for watch in self._watched.values()) - time.monotonic()) * 1000 + 0.5

    def _look(self) -> None:
        """At the commands whose turn it is; whoever is over a limit is ended, with all that belongs to it."""
        now = time.monotonic()
        due = [(pid, watch) for pid, watch in self._watched.items() if watch.due <= now]
        if not due:
            return
        self._know_orphans()
        for pid, watch in due:
            trees.signal_all(self._resting.pop(pid, ()), signal.SIGCONT)
            watch.look(trees.tree_of(self._roots(pid)))
            if watch.over:
                self._end(pid)
            elif pid in self._throttles:
                self._slow_down(pid, watch)
        for execution in {self._of_execution[pid] for pid, _ in due if pid in self._of_execution}:
            self._look_at_all(execution)

    def _slow_down(self, pid: int, watch: trees.Watch) -> None:
        """Let it stand still until it has used no more than it may; the next look lets it go on."""
        now = time.monotonic()
        rest_s = self._throttles[pid].rest_s(watch.cpu_s, now)
        if rest_s:
            self._resting[pid] = trees.stop_all(lambda: self._members(pid))
            watch.due = now + rest_s

    def _look_at_all(self, execution: str) -> None:
        """At what the commands of an execution use together; whoever has the most pays for it."""
        own = {pid: self._watched[pid] for pid, of in self._of_execution.items() if of == execution}
        hog = self._together[execution].hog(own, trees.shared_once)
        if hog is not None:
            own[hog.pid].over, own[hog.pid].together = hog.over, hog.used
            self._end(hog.pid)

    def _end(self, pid: int) -> None:
        stopped = trees.stop_all(lambda: self._members(pid))
        trees.signal_all(stopped, signal.SIGKILL)

    def _members(self, pid: int) -> set[int]:
        self._know_orphans()
        return set(trees.tree_of(self._roots(pid)))

    def _roots(self, pid: int) -> list[int]:
        mark = self._commands[pid]
        return [pid, *(orphan for orphan, of in self._orphans.items() if of == mark)]

    def _know_orphans(self) -> None:
        """Whose they are; they stay until they are waited for, so what is known of one remains true."""
        for pid in trees.children_of(os.getpid()):
            if pid not in self._commands and pid not in self._orphans and (owner := self._owner_of(pid)):
                self._orphans[pid] = owner

    def _owner_of(self, pid: int) -> str | None:
        """The command that a process came from: by its mark, or as its environment says; None if neither tells."""
        if (owner := self._tags.get(trees.tag_of(pid))) is not None:
            return owner
        told = trees.environment_of(pid).partition(f"{MARK}=".encode())[2].partition(b"\0")[0]
        return told.decode("ascii", "replace") or None

    # ---- what became of the commands

    def _reap(self) -> None:
        alone = False
        ended: list[tuple[int, int, Any]] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                alone = True
                break
            if pid == 0:
                break
            if pid in self._commands:
                ended.append((pid, status, usage))
            else:  # an orphan that came to us: what it used counts for the command that it came from
                self._count_orphan(pid, usage)
        for pid, status, usage in ended:
            mark = self._commands.pop(pid)
            watch = self._watched.pop(pid, None)
            self._throttles.pop(pid, None)
            self._resting.pop(pid, None)
            if not alone:
                self._kill_rest(pid, mark)
            self._orphans = {orphan: of for orphan, of in self._orphans.items() if of != mark}
            self._tags = {tag: of for tag, of in self._tags.items() if of != mark}
            used = self._leave(pid, _used(usage, watch))
            self._tell({"is": "exited", "id": mark, "code": os.waitstatus_to_exitcode(status), **used})

    def _leave(self, pid: int, used: dict[str, Any]) -> dict[str, Any]:
        """What it used up is used up for all who shared a limit with it."""
        execution = self._of_execution.pop(pid, None)
        if execution is None:
            return used
        over, amount = self._together[execution].ended(used["cpu_s"], used["disk_bytes"])
        return {**used, "over": over, "together": amount} if over and not used["over"] else used

    def _count_orphan(self, pid: int, usage: Any) -> None:
        mark = self._orphans.pop(pid, None)
        for command, watch in self._watched.items():
            if self._commands[command] == mark or pid in watch.members:
                watch.lost_cpu_s += usage.ru_utime + usage.ru_stime
                watch.lost_disk_bytes += usage.ru_oublock * trees.BLOCK_BYTES

    def _kill_rest(self, pid: int, mark: str) -> None:
        """What a command leaves running ends with it."""
        trees.signal_group(pid, signal.SIGKILL)
        killed: set[int] = set()
        second_looks = 0
        for _ in range(trees.PASSES_MAX):
            tree, unsure = self._tree(pid, mark)
            fresh = tree - killed
            killed |= fresh
            trees.signal_all(fresh, signal.SIGKILL)
            if not fresh:
                if not unsure or second_looks >= _SECOND_LOOKS:
                    break
                second_looks += 1
                time.sleep(_SECOND_LOOK_S)

    def _signal_tree(self, mark: str, number: int) -> None:
        pid = next((pid for pid, known in self._commands.items() if known == mark), None)
        if pid is None:
            return  # it ended while the request was on its way
        tree, _ = self._tree(pid, mark)
        trees.signal_group(pid, number)
        trees.signal_all(tree | {pid}, number)
        trees.signal_all(self._resting.pop(pid, ()), signal.SIGCONT)  # or it would not hear of it

    def _tree(self, pid: int, mark: str) -> tuple[set[int], bool]:
        """Descendants of a command, and orphans that came from it.

        And whether nobody knows whose some orphan is: it may be in the middle of becoming a program.
        """
        unsure = False
        children = trees.children_by_parent()
        found = trees.below(pid, children)
        for orphan in children.get(os.getpid(), []):
            if orphan in self._commands:
                continue
            owner = self._orphans.get(orphan) or self._owner_of(orphan)
            unsure = unsure or owner is None
            if owner == mark:
                found |= {orphan} | trees.below(orphan, children)
        return found, unsure

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the engine is gone; the loop is about to notice
            self._engine.sendall(json.dumps(message).encode() + b"\n")


def _used(usage: Any, watch: trees.Watch | None) -> dict[str, Any]:
    """What a command used. What it waited for is in its own figures; the rest is known from looking."""
    rss_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if watch is not None and rss_bytes <= watch.born_with_bytes:
        rss_bytes = 0  # that was ours: a process is a copy of its parent before it becomes a program
    cpu_s, disk_bytes = usage.ru_utime + usage.ru_stime, usage.ru_oublock * trees.BLOCK_BYTES
    if watch is None:
        return {"cpu_s": cpu_s, "rss_bytes": rss_bytes, "disk_bytes": disk_bytes}
    watch.see_disk(disk_bytes + watch.lost_disk_bytes)  # all of it: what the last look did not see is known only now
    return {
        "cpu_s": max(cpu_s + watch.lost_cpu_s, watch.cpu_s),
        "rss_bytes": max(rss_bytes, watch.memory_bytes),
        "disk_bytes": watch.disk_bytes,
        "processes": watch.processes,
        "over": watch.over,
        "together": watch.together,
    }


def _become(request: dict[str, Any], stdio: list[int], trouble: int, parent: int) -> NoReturn:
    """In the new process: turn into the command, or say what went wrong. Never returns."""
    stage = "start"
    try:
        os.setsid()
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the keeper died before it could be heard
                os._exit(1)
        for number in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # ignored ones, by us or by Python, would be inherited
        signal.set_wakeup_fd(-1)
        for target, descriptor in enumerate(stdio):  # they cannot be 0, 1, 2 themselves: the keeper has those open
            os.dup2(descriptor, target, inheritable=True)
        trees.set_tag(request["tag"])
        if request.get("limits"):
            trees.set_limits(request["limits"])
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "exec"
        os.execvpe(request["argv"][0], request["argv"], {**request["env"], MARK: request["id"]})
    except OSError as error:
        os.write(trouble, f"{stage} {error.errno}".encode())
    except BaseException:
        os.write(trouble, f"{stage} {errno.EINVAL}".encode())
    os._exit(127)


def _kill_everything() -> None:
    """Until nothing is left below us. As a subreaper we inherit every orphan, so no children means no descendants."""
    while True:
        below = trees.below(os.getpid(), trees.children_by_parent())
        reached = trees.signal_all(below, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if below and not reached:
            return  # only processes of another user are left, such as those of sudo: they are not ours to kill
        time.sleep(_LAST_PAUSE_S)


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
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    descriptor, engine_pid = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    Keeper(socket.socket(fileno=descriptor), engine_pid).run()


if __name__ == "__main__":
    main()
