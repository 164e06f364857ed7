"""Starts the real command quickly: a `subprocess.Popen` whose process is forked by command_server.py.

It is a real process, with a pid that takes any signal, pipes, a terminal or files as its streams, and an environment
of its own. What the interpreter reads only when it starts cannot be changed for a fork: a command with another such
variable, or on a machine that cannot fork, is started anew.
"""

from __future__ import annotations

import array
import fcntl
import inspect
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import holdfast

SERVER = Path(__file__).with_name("command_server.py")
SCRIPT = SERVER.with_name("command_script.py")
MODULE = "holdfast.cli"
# Read by the interpreter, the C library or coverage when a process starts.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "FAKETIME", "COVERAGE", "COV_")

# Processes are started with these ignored if the one that starts them ignores them, as under nohup.
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def environment(**more: str) -> dict[str, str]:
    """The Holdfast under test is found from any folder, installed or not."""
    source = str(Path(holdfast.__file__).parents[1])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # where `holdfast` is found by name
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "200", **more}


def start_command(arguments: list[str], *, env: Mapping[str, str], **more: Any) -> subprocess.Popen[str]:
    """`python -m holdfast.cli` with these arguments. `more` is what `subprocess.Popen` takes."""
    server = _server()
    if server is not None and server.can_start(env):
        return ForkedCommand(arguments, env=env, server=server, text=True, **more)
    return subprocess.Popen([sys.executable, "-m", MODULE, *arguments], env=env, text=True, **more)


def start_at_terminal(
    arguments: list[str], *, env: Mapping[str, str], **more: Any
) -> tuple[subprocess.Popen[str], int]:
    """The same on a terminal of its own, whose other end is returned as a descriptor."""
    ours, theirs = os.openpty()
    try:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        take: Any = partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)
        return start_command(arguments, env=env, start_new_session=True, preexec_fn=take, **streams, **more), ours
    finally:
        os.close(theirs)


class CommandServer:
    """The process that forks. It ends with the process that started it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.pid = os.getpid()
        self._read_at_start = _read_at_start(env)
        # The server removes the folder when it ends, as it does when its standard input is closed.
        self.address = str(Path(tempfile.mkdtemp(prefix="holdfast-commands-")) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(listener.fileno())],
                env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
            )  # fmt: skip

    @property
    def process_id(self) -> int:
        return self._process.pid

    def can_start(self, env: Mapping[str, str]) -> bool:
        return self._read_at_start == _read_at_start(env)

    def fork(self, request: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
        """The pid, and the connection over which the wait status will come."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        pass_on = array.array("i", streams)
        connection.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pass_on)])
        connection.sendall(json.dumps(request).encode() + b"\n")
        return next_number(connection), connection


def forked_cpu_s() -> float:
    """The processor time of this process's server and of the commands it forked that have ended; 0 where unknown."""
    stat = Path(f"/proc/{_servers[-1].process_id}/stat") if _servers else Path()
    if not stat.is_file():
        return 0.0
    ticks = stat.read_text().rpartition(")")[2].split()[11:15]  # its own, and those of its children
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class ForkedCommand(subprocess.Popen[str]):
    """Everything but the start and the end is Popen's own."""

    def __init__(self, arguments: list[str], *, server: CommandServer, **more: Any) -> None:
        self._server = server
        self._connection: socket.socket | None = None
        super().__init__(arguments, **more)

    def _execute_child(self, *given: Any) -> None:
        bound = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        theirs = (bound["p2cread"], bound["c2pwrite"], bound["errwrite"])
        streams = [stream if stream >= 0 else number for number, stream in enumerate(theirs)]
        request = {
            "script": "",
            "bound": False,
            "arguments": bound["args"],
            "env": dict(bound["env"]),
            "cwd": os.fspath(bound["cwd"] or os.getcwd()),
            "new_session": bound["start_new_session"],
            "ignored": [number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN],
        }
        try:
            self.pid, self._connection = self._server.fork(request, streams)
        finally:
            self._close_pipe_fds(*(bound[end] for end in ends))  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        ended = self._ended(timeout)
        if ended is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return ended

    def _ended(self, timeout_s: float | None) -> int | None:
        if self._connection is not None:
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            if not poll.poll(None if timeout_s is None else max(0, timeout_s * 1000)):
                return None
            with _lock:
                if self._connection is not None:
                    self.returncode = os.waitstatus_to_exitcode(next_number(self._connection))
                    self._connection.close()
                    self._connection = None
        return self.returncode


def next_number(connection: socket.socket) -> int:
    """One line, and nothing of the next one: a command may have ended before its pid is read."""
    said = b""
    while not said.endswith(b"\n"):
        more = connection.recv(1)
        if not more:
            raise RuntimeError(
                "the process that forks commands has ended; its last words are in the output of the tests"
            )
        said += more
    return int(said)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


_lock = threading.Lock()
_servers: list[CommandServer] = []


_at_import = environment()  # a test may have changed what the interpreter reads when the first command starts


def _server() -> CommandServer | None:
    """One for this process, started when it is needed for the first time."""
    if not hasattr(socket, "SCM_RIGHTS"):
        return None
    with _lock:
        if not _servers or _servers[-1].pid != os.getpid():
            _servers.append(CommandServer(_at_import))
        return _servers[-1]


def script_at(folder: Path) -> Path:
    """Puts a program called `holdfast` there, which shells find when the folder is on their PATH."""
    folder.mkdir(exist_ok=True)
    server, script = _server(), folder / "holdfast"
    real = Path(sys.executable).with_name("holdfast")
    command = [str(real)] if server is None else [sys.executable, "-IS", str(SCRIPT), server.address, str(script)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)
    return folder
