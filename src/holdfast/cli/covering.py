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

import atexit
import io
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from holdfast.cli.bounded_log import BoundedLog

SETTLE_S = 5.0  # how long our own words wait for those of others that came before: a terminal may stand still
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
        """Wait until what others have written so far is out."""
        if self._line is not None:
            self._line.settle()

    def _draw(self) -> _Line:
        ends = [os.pipe(), os.pipe()]
        try:
            line = _Line([reading for reading, _ in ends])
        except OSError as error:
            log.warning(
                "what tools write past Python's streams is dropped: the process that masks it could not start (%s)",
                error,
            )
            line = _Line([])
            for _, writing in ends:  # not to a pipe that nobody reads: that would end whoever writes
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), writing, inheritable=False)
        if self.is_for_answers:
            os.dup2(ends[1][1], ends[0][1], inheritable=False)
        for number, (reading, writing) in zip((1, 2), ends, strict=True):
            os.dup2(writing, number)
            os.close(reading)
            os.close(writing)
        atexit.register(line.settle)
        return line


class _Line:
    """The process that masks, and the socket to it."""

    def __init__(self, pipes: list[int]) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._asked: int = 0
        self._heard = b""
        self._settled: int = 0
        self._owner = os.getpid()
        self._is_lost = not pipes
        with theirs:
            if pipes:
                path = [str(sys.stdout.path)] if isinstance(sys.stdout, BoundedLog) else []
                passed = [theirs.fileno(), *pipes]
                subprocess.Popen(  # a session of its own: the terminal's Ctrl-C is not meant for it
                    [sys.executable, "-P", "-m", "holdfast.cli.passing_on", *map(str, passed), *path],
                    pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip

    def send(self, message: dict[str, Any]) -> None:
        if not self._is_lost:
            try:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
            except OSError:  # it is gone: then nobody reads the pipes, and nothing is seen
                self._is_lost = True

    def settle(self) -> None:
        if os.getpid() != self._owner:  # a copy that a tool has made of this process
            return
        with self._lock, suppress(OSError):
            wait_ms = SETTLE_S * 1000 if self._settled == self._asked else 0  # who stands still is not waited for again
            self._asked += 1
            self.send({"settle": self._asked})
            answers = select.poll()
            answers.register(self._socket, select.POLLIN)
            while not self._is_lost and self._settled < self._asked and answers.poll(wait_ms):
                more = self._socket.recv(4096)
                self._is_lost = not more
                *lines, self._heard = (self._heard + more).split(b"\n")
                self._settled = max([self._settled, *map(int, lines)])


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
