"""What a command prints: shown as it comes, kept up to a bound, and counted to its limit."""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import Callable
from typing import Any, Literal

from holdfast.core.errors import ToolError
from holdfast.tools.call import Call
from holdfast.tools.processes.exit_text import shown
from holdfast.tools.processes.spawn import Process
from holdfast.tools.secrets.redaction import masks

OUTPUT_BYTES_MAX = 1024 * 1024  # of each stream is kept; what comes after is read, counted and dropped
PIECE_BYTES = 64 * 1024

Encoding = Literal["text", "base64"]
Echo = Callable[[str, str], None]


class Output:
    """Both streams of a command, which together may print only so much."""

    def __init__(
        self, call: Call, process: Process, bytes_max: int, encoding: Encoding, echo: Echo = lambda stream, text: None
    ) -> None:
        self.stdout = Capture(self, call, "stdout", encoding)
        self.stderr = Capture(self, call, "stderr", "text")
        self.echo = echo  # is told the same as the call
        self.bytes_seen = 0
        self.is_over = False
        self._process = process
        self._bytes_max = bytes_max

    async def read_all(self) -> Any:
        process = self._process
        reading = (self.stdout.read(process.stdout), self.stderr.read(process.stderr))
        _, _, end = await asyncio.gather(*reading, process.wait())
        return end

    def count(self, size: int) -> None:
        self.bytes_seen += size
        if self.bytes_seen > self._bytes_max and not self.is_over:
            self.is_over = True
            self._process.send_signal(9)


class Capture:
    """The beginning of one stream; what comes is handed on at once to whoever watches and to the log."""

    def __init__(self, output: Output, call: Call, stream: str, encoding: Encoding) -> None:
        self.truncated = False
        self._output = output
        self._call = call
        self._stream = stream
        self._encoding: Encoding = encoding
        self._kept = bytearray()
        self._missed = 0  # bytes that came when there was no room left
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_shown = encoding == "text"
        self._last = "\n"

    async def read(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(PIECE_BYTES):
            self._output.count(len(piece))
            room = OUTPUT_BYTES_MAX - len(self._kept)
            self.truncated = self.truncated or len(piece) > room
            self._missed += len(piece) - min(room, len(piece))
            if room > 0:
                self._kept += piece[:room]
                self._show(piece[:room])
        if self._last != "\n":
            self._call.hear(self._stream, "\n")
            self._output.echo(self._stream, "\n")
        if self.truncated:
            more = f"({self._missed:,} bytes came after this, of which nothing is kept)\n"
            self._call.hear(self._stream, more)
        if self._is_shown and self.is_spoilt():
            self._call.hear("warning", f"{self._stream} is not UTF-8: each byte that is none stands as \ufffd\n")

    def text(self) -> str:
        text = self._kept.decode(errors="replace")
        return masks.torn(text) if self.truncated else text

    def is_spoilt(self) -> bool:
        """Whether something of it is no text, and was replaced where it is shown as one."""
        if self._encoding == "base64":
            return False
        try:  # a character that the end of the room has cut through is no mistake of the command
            codecs.getincrementaldecoder("utf-8")().decode(self._kept, final=not self.truncated)
        except UnicodeDecodeError:
            return True
        return False

    def result(self, argv: list[str]) -> str:
        """As the caller wants it. What is no text cannot be handed on as one without being spoilt."""
        if self._encoding == "base64":
            return base64.b64encode(self._kept).decode()
        place = self._kept.find(b"\0")
        if place >= 0:
            raise ToolError(
                f"its output is no text: byte {place} of stdout is zero, from: {shown(argv)}\n"
                "let it write to a file, or ask for its bytes with encoding: base64"
            )
        return self.text()

    def _show(self, piece: bytes) -> None:
        if self._is_shown and b"\0" in piece:
            self._is_shown = False
            self._last = "\n"
            self._call.hear(self._stream, "(what follows is no text, and is not shown)\n")
        if self._is_shown and (text := self._decoder.decode(piece)):
            self._call.hear(self._stream, text)
            self._output.echo(self._stream, text)
            self._last = text[-1]
