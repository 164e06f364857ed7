"""The two descriptors through which Playwright drives a browser, taken from it for a browser that somebody else starts.

Playwright hands pipes only to a browser that it starts itself; we let it start a small program instead, which sends
them here and then stands for the browser: it ends when the browser has. So the browser is kept by the keeper like every
other process, and listens on no port that others could find. Owns that program and the socket it reports to.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

DESCRIPTORS = 2  # Playwright gives them as 3 and 4: what the browser is told, and what it answers
# For an interpreter that knows no packages. The path stands in the file: the program is started with foreign arguments.
_STAND_IN = """#!/bin/sh
exec {python} -I -S -c '
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
socket.send_fds(line, [b"x"], [3, 4])
os.close(3)
os.close(4)
line.recv(1)
' {address}
"""


class Handover:
    """In a folder that only this user can look into."""

    def __init__(self, folder: str) -> None:
        self.program = str(Path(folder, "holdfast-stand-in"))
        self._address = str(Path(folder, "holdfast-pipes"))
        self._server = socket.socket(socket.AF_UNIX)
        self._line: socket.socket | None = None

    def prepare(self) -> None:
        Path(self.program).write_text(
            _STAND_IN.format(python=_quoted(sys.executable), address=_quoted(self._address)), encoding="utf-8"
        )
        Path(self.program).chmod(0o700)
        self._server.bind(self._address)
        self._server.listen(1)
        self._server.setblocking(False)

    async def descriptors(self) -> list[int]:
        """Once the stand-in has been started; nobody else can report after it. Whoever gets them closes them."""
        loop = asyncio.get_running_loop()
        self._line, _ = await loop.sock_accept(self._server)
        self._server.close()
        os.unlink(self._address)
        self._line.setblocking(False)
        arrived = asyncio.Event()
        loop.add_reader(self._line, arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(self._line)
        _, found, _, _ = socket.recv_fds(self._line, 1, DESCRIPTORS)
        for descriptor in found:
            os.set_inheritable(descriptor, False)
        return found

    def close(self) -> None:
        """The browser has ended, and so does whoever stands for it."""
        self._server.close()
        if self._line is not None:
            self._line.close()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
