"""Runs `python -m holdfast.cli …` in processes forked from this one, in which everything is imported already.

Started by commands.py with a listening socket as its argument. Each request is a connection of its own: the three
standard descriptors, and one line of JSON. The answer is the pid at once, and the wait status when the process has
ended. A forked process has what a newly started one has: its arguments, folder, environment and streams, default signal
handlers, and the interpreter's way to exit. It shares only what the interpreter reads once at its start, such as the
hash seed.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MODULE = "holdfast.cli"
# Imported inside functions, so that importing the commands does not bring them along.
LATER = ("holdfast.app", "holdfast.journal.postgres.store", "holdfast.testing.plugin", "psycopg", "mcp", "httpx")


class Server:
    """Single-threaded, as every process must be that forks. Ends when its standard input is closed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, socket.socket] = {}  # by pid
        self._bound: dict[socket.socket, int] = {}  # pids of commands that end when the other end is closed
        self._ended, wake = os.pipe()
        for descriptor in (self._ended, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the tests, which end this process

    def next_command(self) -> dict[str, Any]:
        """Serve requests. Returns in every forked process, with what it is to run."""
        while True:
            for ready in select.select([0, self._listener, self._ended, *self._bound], [], [])[0]:
                if ready == 0:
                    shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)
                    os._exit(0)
                elif ready is self._ended:
                    self._report()
                elif ready is not self._listener:
                    if ready in self._bound:
                        os.kill(self._bound.pop(ready), signal.SIGKILL)
                elif (request := self._fork(self._listener.accept()[0])) is not None:
                    return request

    def _fork(self, client: socket.socket) -> dict[str, Any] | None:
        streams = array.array("i")
        _, ancillary, *_ = client.recvmsg(1, socket.CMSG_LEN(3 * streams.itemsize))
        streams.frombytes(ancillary[0][2])
        with client.makefile("rb") as lines:
            request = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            _become(request, list(streams))
            return request
        for stream in streams:
            os.close(stream)
        self._running[pid] = client
        if request["bound"]:
            self._bound[client] = pid
        _tell(client, pid)
        return None

    def _report(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._ended, 4096):
                pass
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._running.pop(ended[0]) as client:
                    self._bound.pop(client, None)
                    _tell(client, ended[1])


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # the test that asked is gone
        client.sendall(b"%d\n" % number)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Make a fork into a process that has just been started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["new_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    script = request["script"]
    sys.argv = [script, *request["arguments"]]  # without a script, runpy puts the module's file first
    sys.path[0] = os.path.dirname(script) if script else os.getcwd()
    sys.stdin = sys.__stdin__ = _stream(0, sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, sys.stderr)


def _stream(number: int, like: Any) -> Any:
    """As the interpreter opens its own: by lines on a terminal, and standard error always."""
    mode, at_once = ("wb", like.write_through) if number else ("rb", False)
    binary: Any = os.fdopen(number, mode, 0 if at_once else -1, closefd=False)
    getattr(binary, "raw", binary).name = like.name
    text: Any = io.TextIOWrapper(
        binary, like.encoding, like.errors, newline="\n",
        line_buffering=not like.write_through and (number == 2 or binary.isatty()),
        write_through=like.write_through,
    )  # fmt: skip
    text.mode = mode[0]
    return text


def _run() -> int:
    """The exit code, and what an interpreter says about an exception that nothing caught."""
    try:
        if sys.argv[0]:  # as the installed script does
            sys.exit(importlib.import_module(f"{MODULE}.main").main())
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _exit(code: int) -> None:
    """As an interpreter exits, but for taking all modules apart, which would copy every page of this fork."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = 120
    os._exit(code & 0xFF)


def _import_everything() -> None:
    package = importlib.import_module(MODULE)
    for module in pkgutil.iter_modules(package.__path__, f"{MODULE}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in LATER:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is here now stays, so that no fork touches and copies it


if __name__ == "__main__":
    _import_everything()
    Server(socket.socket(fileno=int(sys.argv[1]))).next_command()
    _exit(_run())
