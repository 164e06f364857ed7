"""Reads what others have written to the descriptors of a process that drives, and passes it on, masked.

A program of its own, started as `python -m holdfast.cli.passing_on CONTROL OUT ERR AT_WORK [LOG]` by covering.py: four
descriptors, and the file behind stdout and stderr if that is a log with a limit. It ends when nobody holds the pipes
any more, which may be later than the end of the process that has started it.

From that process: lines of JSON, `mask` (name, value, whether it is declared). For it: one byte of memory that both
share, which is 1 while something is taken from the pipes and not passed on yet.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from select import POLLIN, POLLOUT, poll

from holdfast.cli.bounded_log import BoundedLog
from holdfast.core.masking import Masks

PIPE_BYTES = 65536  # all that a pipe can hold
PAUSE_S = 0.1  # after which the last characters are shown, though they might begin a secret
BEGINNING_CHARS_MAX = 3  # of a secret, shown in such a pause; more waits for what follows


class Stream:
    """One pipe. What may be the beginning of a secret waits for its rest; a few characters, as at the end of a prompt,
    only for a moment. If they did begin one, its rest is masked all the same."""

    def __init__(self, pipe: int, masks: Masks, write: Callable[[bytes], None]) -> None:
        self.pipe = pipe
        self.is_open = True
        self._masks = masks
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        self._shown = 0  # how many characters of what is held were shown
        self._paused_at = 0.0  # if nothing comes until then
        os.set_blocking(pipe, False)

    def read(self) -> bytes | None:
        """None if nothing is there."""
        try:
            data = os.read(self.pipe, PIPE_BYTES)
        except BlockingIOError:
            return None
        self.is_open = bool(data)
        return data

    def pass_on(self, data: bytes) -> None:
        whole = self._held + self._decoder.decode(data, final=not data)
        cut = len(whole) - (self._masks.held_back(whole) if data else 0)
        before = min(self._shown, cut)
        self._say(whole[:cut], before)
        self._held, self._shown = whole[cut:], self._shown - before
        self._paused_at = time.monotonic() + PAUSE_S

    def pause_in_s(self) -> float | None:
        """How long until something is to be shown that is held back; None if there is nothing."""
        if self._shown < len(self._held) <= BEGINNING_CHARS_MAX:
            return max(0.0, self._paused_at - time.monotonic())
        return None

    def show_after_pause(self) -> None:
        if self.pause_in_s() == 0:
            self._write(_bytes(self._held[self._shown :]))
            self._shown = len(self._held)

    def _say(self, text: str, shown: int) -> None:
        """Without what was shown before; a secret that began there is named from where it goes on."""
        masked = self._masks.text(text)
        while not masked.startswith(text[:shown]):
            shown -= 1
        if masked[shown:]:
            self._write(_bytes(masked[shown:]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _writer(descriptor: int) -> Callable[[bytes], None]:
    """Whoever read it may be gone, or the disk full: then it is dropped, and nobody who writes to us notices."""

    def write(data: bytes) -> None:
        with suppress(OSError):
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # somebody who shares it has made it so
                    _wait(POLLOUT, descriptor)

    return write


def _wait(what: int, *descriptors: int, timeout_s: float | None = None) -> None:
    polled = poll()
    for descriptor in descriptors:
        polled.register(descriptor, what)
    polled.poll(None if timeout_s is None else timeout_s * 1000)


class Control:
    """The process that drives. When it is dead there is nothing more to learn."""

    def __init__(self, descriptor: int, masks: Masks) -> None:
        self.socket: socket.socket | None = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self._masks = masks
        self._rest = b""

    def hear(self) -> None:
        """Everything that was said so far."""
        while self.socket is not None:
            try:
                data = self.socket.recv(PIPE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.socket = None
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                name, value, declared = json.loads(line)["mask"]
                self._masks.add(name, value, declared=declared)


def pass_on(control: Control, streams: list[Stream], at_work: mmap.mmap) -> None:
    while streams:
        heard = [control.socket.fileno()] if control.socket is not None else []
        pauses = [pause_s for stream in streams if (pause_s := stream.pause_in_s()) is not None]
        _wait(POLLIN, *heard, *(stream.pipe for stream in streams), timeout_s=min(pauses, default=None))
        at_work[0] = 1
        read = [(stream, stream.read()) for stream in streams]
        control.hear()  # after reading: what has been read may hold a secret that we are told of only here
        for stream, data in read:
            if data is not None:
                stream.pass_on(data)
            stream.show_after_pause()
        at_work[0] = 0
        streams = [stream for stream in streams if stream.is_open]


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a service manager ends everybody; our end is that of the pipes
    control, out, err, shared = map(int, arguments[:4])
    masks = Masks()
    writers = [BoundedLog(Path(arguments[4])).write_bytes] * 2 if arguments[4:] else [_writer(1), _writer(2)]
    streams = [Stream(pipe, masks, write) for pipe, write in zip((out, err), writers, strict=True)]
    pass_on(Control(control, masks), streams, mmap.mmap(shared, 1))


if __name__ == "__main__":
    main(sys.argv[1:])
