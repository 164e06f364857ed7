"""Descriptors 1 and 2 of a process that drives: what goes past Python's streams is masked, too.

A child that a tool starts by itself, a C library and `os.write(1, …)` know nothing of `sys.stdout`. As soon as there is
anything to mask, pipes are put on both descriptors, and a process of its own (passing_on.py) masks what comes and
writes it to where they led before. It is a process because a thread could not do it: C code that holds the
interpreter's lock while it writes would wait for the thread, and the thread for the lock; and the last words of an
interpreter that crashes, or of a child that outlives it, would be lost.

Our own words do not take that way: `sys.stdout` and `sys.stderr` keep the original descriptors, under numbers that no
child inherits. So terminals, closed pipes and full disks are what they were. In a log file there is one writer, and
that is the other process.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import io
import json
import logging
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import suppress
from typing import Any

from holdfast.cli.bounded_log import BoundedLog

SETTLE_S = 0.05  # how long our own words wait for those of others that came before
FAREWELL_S = 5.0  # the same, when this process ends: a terminal may stand still
log = logging.getLogger("holdfast")


def begin() -> None:
    """This process is going to drive. One whose streams somebody else has taken, such as a test, is left alone."""
    global _cover  # noqa: PLW0603 -- a process has one descriptor 1
    from holdfast.tools.masks import masks

    if _cover is None and (type(sys.stdout) is io.TextIOWrapper or isinstance(sys.stdout, BoundedLog)):
        _cover = _Cover()
        masks.tell(_cover.learn)


def keep_stdout_for_answers() -> None:
    """For a command whose stdout is read by a program: what tools and their children write goes to stderr."""
    from holdfast.tools import listening

    listening.keep_stdout_for_answers()
    if _cover is not None:
        _cover.keep_stdout_for_answers()


def descriptors_of_stdout() -> set[int]:
    """Our own, and that of children as long as they write to the same place."""
    own = _cover.own.get(1) if _cover is not None else None
    if _cover is None or own is None:
        return {sys.stdout.fileno()}
    return {own} if _cover.is_for_answers else {own, 1}


class _Cover:
    def __init__(self) -> None:
        self.own: dict[int, int] = {}
        self.is_for_answers = False
        self._line: _Line | None = None
        self._lock = threading.RLock()
        if isinstance(sys.stdout, BoundedLog):
            return
        for number, name in ((1, "stdout"), (2, "stderr")):
            stream = getattr(sys, name)
            if type(stream) is io.TextIOWrapper and stream.fileno() == number:
                stream.flush()
                self.own[number] = os.dup(number)  # which no child inherits
                setattr(sys, name, _reopened(stream, _Own(self.own[number], number, self)))

    def learn(self, name: str, value: str, declared: bool) -> None:
        """Something must not be seen from now on. The first time, the descriptors are covered."""
        with self._lock:
            if self._line is None:
                self._line = self._draw()
            self._line.send({"mask": [name, value, declared]})

    def keep_stdout_for_answers(self) -> None:
        with self._lock:
            self.is_for_answers = True
            if 1 in self.own:
                os.dup2(2, 1)

    def settle(self) -> None:
        """Wait until what others have written so far is out, for a moment."""
        if self._line is not None:
            self._line.settle()

    def _draw(self) -> _Line:
        ends = [os.pipe(), os.pipe()]
        line = _Line([reading for reading, _ in ends])  # whose read ends stay open, or who writes would die of it
        if self.is_for_answers:
            os.dup2(ends[1][1], ends[0][1], inheritable=False)
        for number, (_, writing) in zip((1, 2), ends, strict=True):
            os.dup2(writing, number)
            os.close(writing)
        atexit.register(line.settle, FAREWELL_S)
        return line


class _Line:
    """The process that masks, and the socket to it. If that is gone, what comes is read and dropped."""

    def __init__(self, pipes: list[int]) -> None:
        self._pipes = pipes
        self._socket, theirs = socket.socketpair()
        self._owner = os.getpid()
        self._is_slow = False  # who stands still is not waited for again
        self.is_lost = False
        descriptor = os.memfd_create("holdfast") if hasattr(os, "memfd_create") else _unnamed_file()
        os.truncate(descriptor, 1)
        self._at_work = mmap.mmap(descriptor, 1)  # is 1 while it has something that is not passed on yet
        path = [str(sys.stdout.path)] if isinstance(sys.stdout, BoundedLog) else []
        passed = [theirs.fileno(), *pipes, descriptor]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(  # a session of its own: the terminal's Ctrl-C is not meant for it
                [sys.executable, "-P", "-m", "holdfast.cli.passing_on", *map(str, passed), *path],
                pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            log.warning("the process that masks what tools write past Python's streams cannot start: %s", error)
        finally:
            theirs.close()
            os.close(descriptor)
        threading.Thread(target=self._mourn, name="holdfast-cover", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it is gone: then nothing is seen
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def settle(self, patience_s: float = SETTLE_S) -> None:
        """No lock, and nothing that could be interrupted by words of our own."""
        if os.getpid() != self._owner:  # a copy that a tool has made of this process
            return
        give_up = time.monotonic() + (0 if self._is_slow and patience_s == SETTLE_S else patience_s)
        while (is_behind := self._is_behind()) and time.monotonic() < give_up:
            time.sleep(0.0005)
        self._is_slow = is_behind

    def _is_behind(self) -> bool:
        """The pipes first: whoever takes something from them says so before."""
        return not self.is_lost and (any(map(_holds_something, self._pipes)) or self._at_work[0] != 0)

    def _mourn(self) -> None:
        """Wait for the end of the other process, which has none as long as this one lives."""
        with suppress(OSError):
            self._socket.recv(1)
        self.is_lost = True
        if self._process is not None:
            self._process.wait()
        log.warning("what tools write past Python's streams is dropped from now on: the process that masks it is gone")
        waiting = select.poll()
        for pipe in self._pipes:
            waiting.register(pipe, select.POLLIN)
        while ready := [pipe for pipe, what in waiting.poll() if what & select.POLLIN]:
            for pipe in ready:
                os.read(pipe, 65536)


def _holds_something(pipe: int) -> bool:
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] != 0


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class _Own(io.FileIO):
    """The original of a descriptor, for our own words. It calls itself by the number that is covered: whoever hands
    `sys.stdout` to a child means that."""

    def __init__(self, descriptor: int, number: int, cover: _Cover) -> None:
        super().__init__(descriptor, "w")
        self._number = number
        self._cover = cover

    def write(self, data: Any, /) -> int | None:
        self._cover.settle()
        return super().write(data)

    def fileno(self) -> int:
        return self._number


def _reopened(stream: io.TextIOWrapper, raw: _Own) -> io.TextIOWrapper:
    below: Any = raw if stream.write_through else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        below, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=stream.write_through
    )


_cover: _Cover | None = None
