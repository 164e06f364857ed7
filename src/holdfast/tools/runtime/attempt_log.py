"""What one attempt said, printed and logged: whole lines, each with its time and its stream, and bounded.

Of more than fits, the first part and the last part are kept: how it began and how it ended are what people look for.
Owns the form in which the lines lie in their blob. Refuses to know who listens; threads may write into one book.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from holdfast.tools.secrets.redaction import masks

LOG_BYTES_MAX = 256 * 1024  # of one attempt's lines; half for the beginning, half for the end
LINE_CHARS_MAX = 8 * 1024  # a longer line is kept in pieces
LINE_BYTES = 32  # counted for each line besides its text: its time and stream take room, too
KEEP_FIRST_US = 5_000_000  # so long after an attempt's first words they are kept at the latest, should it go on talking
SAID = "say"
HEARD = frozenset({"stdout", "stderr", "debug", "info", "warning", "error", "critical"})  # besides what a tool says


class LogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int
    stream: str
    text: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[LogLine])


def encode_lines(lines: Sequence[LogLine]) -> bytes:
    return _encoder.encode(lines)


def decode_lines(body: bytes) -> list[LogLine]:
    return _decoder.decode(body)


class Logbook:
    def __init__(self, at: int, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.keep_at = at + KEEP_FIRST_US
        self._began_at = at
        self._room = bytes_max // 2  # what the beginning may still take
        self._last_max = bytes_max // 2
        self._first: list[LogLine] = []
        self._last: deque[LogLine] = deque()
        self._last_bytes = 0
        self._dropped = 0
        self._dropped_bytes = 0
        self._begun: dict[str, str] = {}  # lines that have not ended yet, by stream
        self._lock = threading.Lock()

    def write(self, at: int, stream: str, text: str, *, ends: bool = False) -> list[LogLine]:
        """Take in a piece of text; returns the lines that it completes. `ends`: its last line is whole."""
        with self._lock:
            *whole, rest = (self._begun.pop(stream, "") + text).split("\n")
            if rest and (ends or len(rest) > LINE_CHARS_MAX):
                cut = len(rest) if ends else len(rest) - masks.held_back(rest)
                whole.append(rest[:cut])
                if cut < len(rest):  # perhaps the beginning of a secret, which must be seen whole to be masked
                    self._begun[stream] = rest[cut:]
            elif rest:
                self._begun[stream] = rest
            lines = [line for said in whole for line in _lines(at, stream, said)]
            for line in lines:
                self._add(line)
            return lines

    def take_first(self, at: int) -> list[LogLine]:
        """What has come so far of the beginning, to be kept now; the next time comes after twice as long."""
        with self._lock:
            self.keep_at = at + 2 * (at - self._began_at)
            taken, self._first = self._first, []
            return taken

    def close(self, at: int) -> list[LogLine]:
        """All that was not taken yet; where lines are missing, one says how many."""
        with self._lock:
            for stream, rest in self._begun.items():
                for line in _lines(at, stream, rest):
                    self._add(line)
            self._begun.clear()
            lines = self._first
            if self._dropped:
                text = f"{self._dropped:,} lines ({self._dropped_bytes:,} bytes) were left out here"
                lines = [*lines, LogLine(self._last[0].at, "dropped", text)]
            return [*lines, *self._last]

    def _add(self, line: LogLine) -> None:
        size = len(line.text.encode()) + LINE_BYTES
        if self._room >= size and not self._last:
            self._room -= size
            self._first.append(line)
            return
        self._last.append(line)
        self._last_bytes += size
        while self._last_bytes > self._last_max:
            gone = len(self._last.popleft().text.encode())
            self._last_bytes -= gone + LINE_BYTES
            self._dropped += 1
            self._dropped_bytes += gone + 1  # with the end of the line, as it was printed


def _lines(at: int, stream: str, text: str) -> list[LogLine]:
    """One line, in pieces if it is long. Of what a carriage return wrote over, the last stays, as on a terminal."""
    text = masks.text(text.rstrip("\r").rpartition("\r")[2])
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # half of a surrogate pair cannot be stored
    pieces = [text[start : start + LINE_CHARS_MAX] for start in range(0, len(text), LINE_CHARS_MAX)]
    return [LogLine(at, stream, piece) for piece in pieces or [""]]
