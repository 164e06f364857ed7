"""The warden: a process between the keeper and one command, so that the system itself says what belongs to the command.

A copy of the keeper, one for each command. On Linux it is the subreaper of all that the command starts: whoever loses
its parent becomes a child of this process, whatever it did to its session, its environment or its limits, and so
nothing of one command can pass for a part of another. It starts the command, waits for it, ends whatever the
command has left running, and tells the keeper how it went. When the keeper dies, it ends everything and itself. Refuses
to look at limits: that is the keeper's work, which sees the command as what lies below this process.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING or "holdfast" in sys.modules:
    from holdfast.tools.processes import proc_tree as trees
else:  # alone in an interpreter that knows no packages; the keeper has loaded it
    trees = sys.modules["proc_tree"]

KEEPER_DIED = signal.SIGUSR1  # sent by the system
_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class ReaperDescriptors(NamedTuple):
    """Descriptors that a warden is born with."""

    stdio: list[int]
    report: int  # lines of JSON: the command's pid or why it has none, and later its end
    trouble: int  # of the command: why it could not become its program; closed without a word when it did


class _SupervisorDied(Exception):
    pass


class _Sum:
    """What everybody who was waited for here has used."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.rss_bytes = 0
        self.disk_bytes = 0

    def add(self, usage: Any) -> None:
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.rss_bytes = max(self.rss_bytes, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        self.disk_bytes += usage.ru_oublock * trees.BLOCK_BYTES


def stand(request: dict[str, Any], ends: ReaperDescriptors, keeper: int, libc: Any) -> NoReturn:
    """In the new process, until nothing is left of the command."""
    try:
        _heed(keeper, libc)
        _tell(ends.report, _wait_for(_start(request, ends, libc)))
    except (_SupervisorDied, OSError):  # or nobody listens any more
        trees.kill_everything()
    finally:
        os._exit(0)


def _heed(keeper: int, libc: Any) -> None:
    def heard(number: int, frame: Any) -> None:
        if os.getppid() != keeper:  # or it was somebody else's signal
            raise _SupervisorDied

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(KEEPER_DIED, heard)
    if libc is not None:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        libc.prctl(_PR_SET_PDEATHSIG, KEEPER_DIED)
    heard(0, None)  # it may have died before it could be heard


def _start(request: dict[str, Any], ends: ReaperDescriptors, libc: Any) -> int:
    gate_read, gate_write = os.pipe()
    warden = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        _tell(ends.report, {"stage": "start", "errno": error.errno})
        os._exit(0)
    if pid == 0:
        os.close(gate_write)
        os.read(gate_read, 1)
        _become(request, ends, warden, libc)
    for descriptor in (*ends.stdio, ends.trouble):
        os.close(descriptor)
    # All of this before the command is let in: it could stop this process, and the keeper would wait in vain.
    _tell(ends.report, {"pid": pid})
    os.close(gate_read)
    os.close(gate_write)
    return pid


def _become(request: dict[str, Any], ends: ReaperDescriptors, parent: int, libc: Any) -> NoReturn:
    """In yet another process: turn into the command, or say what went wrong. Never returns."""
    stage = "start"
    try:
        os.setsid()
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the warden died before it could be heard
                os._exit(1)
        for number in (*trees.DEAF_TO, KEEPER_DIED, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # ignored ones, by us or by Python, would be inherited
        for target, descriptor in enumerate(ends.stdio):  # the keeper has the first ones open itself
            os.dup2(descriptor, target, inheritable=True)
        if request.get("limits"):
            trees.set_limits(request["limits"])
        stage = "cwd"
        os.chdir(request["cwd"])
        stage = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        os.write(ends.trouble, f"{stage} {error.errno}".encode())
    except BaseException:
        os.write(ends.trouble, f"{stage} {errno.EINVAL}".encode())
    os._exit(127)


def _wait_for(command: int) -> dict[str, Any]:
    """Its end, with that of everything it left running."""
    used = _Sum()
    while True:
        pid, status, usage = os.wait4(-1, 0)
        used.add(usage)
        if pid == command:
            break
    trees.signal_group(command, signal.SIGKILL)  # where nobody is handed its orphans
    trees.kill_everything(used.add)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "cpu_s": used.cpu_s, "rss_bytes": used.rss_bytes, "disk_bytes": used.disk_bytes}


def _tell(report: int, message: dict[str, Any]) -> None:
    os.write(report, json.dumps(message).encode() + b"\n")  # less than a pipe takes at once
