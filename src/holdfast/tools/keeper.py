"""The keeper: a small process that owns every subprocess of one engine and lets none of them outlive it.

A program of its own, started as `python -I -S keeper.py FD PID` by processes.py; standard library only, one thread.
It is the parent of all commands and, on Linux, the subreaper of all their descendants: whoever calls setsid or forks
twice still ends up below it. When the engine is gone (its socket closed or its process dead, even by SIGKILL) the
keeper kills everything below itself and ends. It refuses to die of a terminal's Ctrl-C or a service manager's SIGTERM,
because then nobody would be left to tidy up.

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
from collections.abc import Iterable
from typing import Any, NoReturn

MARK = "HOLDFAST_PROCESS"  # in the environment of every command, so that a descendant that left its group is recognised
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_PASSES_MAX = 100  # each pass kills what the last one did not see; a killed process cannot fork again
_SECOND_LOOKS = 10
_SECOND_LOOK_S = 0.001
_LAST_PAUSE_S = 0.005
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


class Keeper:
    def __init__(self, engine: socket.socket, engine_pid: int) -> None:
        self._engine = engine
        self._engine_pid = engine_pid
        self._buffer = b""
        self._descriptors: list[int] = []
        self._commands: dict[int, str] = {}  # pid → the id the engine gave it

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
            ready = {descriptor for descriptor, _ in poll.poll()}
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
        self._tell({"is": "started", "id": request["id"], "pid": pid})

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
            if pid in self._commands:  # others are orphans that came to us; nobody asks about them
                ended.append((pid, status, usage))
        for pid, status, usage in ended:
            mark = self._commands.pop(pid)
            if not alone:
                self._kill_rest(pid, mark)
            self._tell(
                {
                    "is": "exited",
                    "id": mark,
                    "code": os.waitstatus_to_exitcode(status),
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "rss_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
                }
            )

    def _kill_rest(self, pid: int, mark: str) -> None:
        """What a command leaves running ends with it."""
        _signal_group(pid, signal.SIGKILL)
        killed: set[int] = set()
        second_looks = 0
        for _ in range(_KILL_PASSES_MAX):
            tree, unsure = self._tree(pid, mark)
            fresh = tree - killed
            killed |= fresh
            _signal_all(fresh, signal.SIGKILL)
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
        _signal_group(pid, number)
        _signal_all(tree | {pid}, number)

    def _tree(self, pid: int, mark: str) -> tuple[set[int], bool]:
        """Descendants of a command, and orphans whose environment says that they came from it.

        And whether some orphan shows no environment: it may have none, or be in the middle of becoming a program.
        """
        unsure = False
        children = _children_by_parent()
        found = _below(pid, children)
        wanted = f"{MARK}={mark}\0".encode()
        for orphan in children.get(os.getpid(), []):
            if orphan in self._commands:
                continue
            environment = _environment(orphan)
            unsure = unsure or not environment
            if wanted in environment:
                found |= {orphan} | _below(orphan, children)
        return found, unsure

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the engine is gone; the loop is about to notice
            self._engine.sendall(json.dumps(message).encode() + b"\n")


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
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "exec"
        os.execvpe(request["argv"][0], request["argv"], {**request["env"], MARK: request["id"]})
    except OSError as error:
        os.write(trouble, f"{stage} {error.errno}".encode())
    except BaseException:
        os.write(trouble, f"{stage} {errno.EINVAL}".encode())
    os._exit(127)


# ---- processes, as /proc tells of them; where there is no /proc, process groups must do ------------------------


def _children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _living_parent(name)) is not None:
                children.setdefault(parent, []).append(int(name))
    return children


def _living_parent(pid: str) -> int | None:
    """None for the dead, which keep their entry until somebody waits for them."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]  # the name before it may contain anything
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def _below(pid: int, children: dict[int, list[int]]) -> set[int]:
    found: set[int] = set()
    pending = list(children.get(pid, []))
    while pending:
        child = pending.pop()
        if child not in found:
            found.add(child)
            pending += children.get(child, [])
    return found


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_all(pids: Iterable[int], number: int) -> bool:
    """Whether any of them could be signalled."""
    reached = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            reached = True
    return reached


def _kill_everything() -> None:
    """Until nothing is left below us. As a subreaper we inherit every orphan, so no children means no descendants."""
    while True:
        below = _below(os.getpid(), _children_by_parent())
        reached = _signal_all(below, signal.SIGKILL)
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
