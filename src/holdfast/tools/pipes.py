"""Our ends of the three pipes of a command, on whichever event loop runs."""

from __future__ import annotations

import asyncio
import os
from typing import IO, Any

READ_BYTES = 64 * 1024  # what a stream reader holds before it stops taking more from the pipe


class Ends:
    """Our ends of a command's three pipes."""

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader(READ_BYTES)
        self.stderr = asyncio.StreamReader(READ_BYTES)
        self._transports: list[asyncio.BaseTransport] = []

    @classmethod
    async def open(cls, stdin: bytes | None) -> tuple[Ends, list[int]]:
        """And the command's ends, which the caller sends on and closes."""
        ends, theirs = cls(), list[int]()
        try:
            theirs.append(await ends._open_stdin(stdin))
            for reader in (ends.stdout, ends.stderr):
                theirs.append(await ends._open_reader(reader))
        except BaseException:
            ends.close()
            for descriptor in theirs:
                os.close(descriptor)
            raise
        return ends, theirs

    async def _open_stdin(self, data: bytes | None) -> int:
        if data is None:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        read, write = os.pipe()
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, _file(write, "wb"))
        self._transports.append(transport)
        transport.write(data)
        transport.close()  # once everything is written, or the command stops reading
        return read

    async def _open_reader(self, reader: asyncio.StreamReader) -> int:
        read, write = os.pipe()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), _file(read, "rb")
        )
        self._transports.append(transport)
        return write

    def close(self) -> None:
        for transport in self._transports:
            if not isinstance(transport, asyncio.WriteTransport):
                transport.close()
            elif (
                transport.get_write_buffer_size()
            ):  # it closes by itself once everything is written; this never will be
                transport.abort()


def _file(descriptor: int, mode: str) -> IO[Any]:
    """For a transport, which closes it."""
    return os.fdopen(descriptor, mode, 0)
