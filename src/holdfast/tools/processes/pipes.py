"""Our ends of the three pipes of a command, on whichever event loop runs."""

from __future__ import annotations

import asyncio
import os
from typing import IO, Any

READ_BYTES = 64 * 1024  # what a stream reader holds before it stops taking more from the pipe


class PipeEnds:
    """Our ends of a command's three pipes."""

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader(READ_BYTES)
        self.stderr = asyncio.StreamReader(READ_BYTES)
        self.inlet: Inlet | None = None
        self._transports: list[asyncio.BaseTransport] = []

    @classmethod
    async def open(cls, stdin: bytes | None, *, talks: bool = False) -> tuple[PipeEnds, list[int]]:
        """And the command's ends, which the caller sends on and closes. With `talks`, stdin stays open as `inlet`."""
        ends, theirs = cls(), list[int]()
        try:
            theirs.append(await (ends._open_inlet() if talks else ends._open_stdin(stdin)))
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

    async def _open_inlet(self) -> int:
        read, write = os.pipe()
        self.inlet = Inlet()
        inlet = self.inlet
        await asyncio.get_running_loop().connect_write_pipe(lambda: inlet, _file(write, "wb"))
        return read

    async def _open_reader(self, reader: asyncio.StreamReader) -> int:
        read, write = os.pipe()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), _file(read, "rb")
        )
        self._transports.append(transport)
        return write

    def close(self) -> None:
        if self.inlet is not None:
            self.inlet.abort()
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                _abort(transport)
            else:
                transport.close()


class Inlet(asyncio.Protocol):
    """A command's stdin that stays open. Writing waits for a command that reads slowly."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._has_room.set()

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    async def write(self, data: bytes) -> None:
        """Raises BrokenPipeError once nobody reads any more."""
        if self._transport is None or self._transport.is_closing():
            raise BrokenPipeError
        self._transport.write(data)
        await self._has_room.wait()

    def close(self) -> None:
        """Once everything is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            _abort(self._transport)


def _abort(transport: asyncio.WriteTransport) -> None:
    """Once only: one that is closing, and has nothing left to write, is about to tell its protocol so by itself.

    It is closing also when nobody reads any more, as when a command could not be started; to abort it then would make
    it tell its protocol twice, of which the loop complains on stderr.
    """
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.abort()


def _file(descriptor: int, mode: str) -> IO[Any]:
    """For a transport, which closes it."""
    return os.fdopen(descriptor, mode, 0)
