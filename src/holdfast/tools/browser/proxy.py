"""The only way from the browser to the network: a proxy on loopback that judges every connection.

Chromium sends everything here, redirects, subresources and loopback included, and looks no name up by itself. Each name
is looked up once, judged by the same rule as http's, and connected to at that very address, so a name that changes its
mind between two look-ups leads nowhere else. Refuses to look into what it carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

from holdfast.core.errors import NotPermitted, ToolError, Transient
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.net.client import CONNECT_TIMEOUT_S
from holdfast.tools.net.dns import looked_up

HEAD_BYTES_MAX = 64 * 1024  # of a request or an answer: its first line and headers
PIECE_BYTES = 64 * 1024
TROUBLES_KEPT = 1000  # what last went wrong with a host; the oldest is forgotten first
CONNECTIONS_MAX = 256  # at once; Chromium itself opens 32 to one proxy
_OWN_HEADERS = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrowserProxy:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._server: asyncio.Server | None = None
        self._own_ports: set[int] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._troubles: dict[tuple[str, int], ToolError] = {}

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        port = self._server.sockets[0].getsockname()[1]
        self._own_ports.add(port)
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._carrying):
            task.cancel()
        if self._carrying:
            await asyncio.gather(*self._carrying, return_exceptions=True)

    def trouble_with(self, url: str) -> ToolError | None:
        """Why the last connection to the host of this address came to nothing; None if it did come to something."""
        try:
            parts = urlsplit(url)
            return self._troubles.get(_place(parts.hostname or "", parts.port or _default_port(parts.scheme)))
        except ValueError:
            return None

    # ---- one connection of the browser --------------------------------------------------------------------------

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._carrying) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                head = await reader.readuntil(b"\r\n\r\n")
                line, _, headers = head.partition(b"\r\n")
                method, target, _ = line.decode("latin-1").split(" ", 2)
                if method == "CONNECT":
                    host, _, port = target.rpartition(":")
                    await self._tunnel(host.strip("[]"), int(port), (reader, writer))
                else:
                    await self._forward(method, target, headers, (reader, writer))
        finally:
            writer.close()

    async def _tunnel(self, host: str, port: int, browser: Streams) -> None:
        site = await self._connected(host, port)
        browser[1].write(b"HTTP/1.1 502 refused\r\n\r\n" if site is None else b"HTTP/1.1 200 ok\r\n\r\n")
        if site is not None:
            await _carry_both_ways(browser, site)

    async def _forward(self, method: str, target: str, headers: bytes, browser: Streams) -> None:
        """One request in plain HTTP. Each has a connection of its own, so that none goes to the host of another."""
        parts = urlsplit(target)
        site = await self._connected(parts.hostname or "", parts.port or 80)
        if site is None:
            return  # closed without a word: an answer of ours would pass for the site's
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept, length = _without_own(headers)
        site[1].write(f"{method} {path} HTTP/1.1\r\n".encode("latin-1") + kept + b"Connection: close\r\n\r\n")

        async def send_body() -> None:
            left = length
            while left and (piece := await browser[0].read(min(left, PIECE_BYTES))):
                site[1].write(piece)
                await site[1].drain()
                left -= len(piece)
            await browser[0].read(1)  # until the browser goes away: it has nothing more to say here

        async def bring_answer() -> None:
            status = b"1"
            while status.startswith(b"1"):
                head = await site[0].readuntil(b"\r\n\r\n")
                line, _, answered = head.partition(b"\r\n")
                status = line.partition(b" ")[2]
                kept, _ = _without_own(answered)
                browser[1].write(line + b"\r\n" + kept + b"Connection: close\r\n\r\n")
            await _carry(site[0], browser[1])

        await _first_done(site[1], send_body(), bring_answer())

    async def _connected(self, host: str, port: int) -> Streams | None:
        """A connection to an address that may be reached, or None and a trouble to tell of."""
        place = _place(host, port)
        self._troubles.pop(place, None)
        try:
            return await self._connect(host, port)
        except ToolError as error:
            if len(self._troubles) >= TROUBLES_KEPT:
                del self._troubles[next(iter(self._troubles))]
            self._troubles[place] = error
            return None

    async def _connect(self, host: str, port: int) -> Streams:
        addresses = await looked_up(host, port, CONNECT_TIMEOUT_S)
        refusals = {address: self._refusal(host, port, address) for address in addresses}
        said = ""
        for address in (address for address, refusal in refusals.items() if not refusal):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
            except TimeoutError:
                said = f"no connection within {CONNECT_TIMEOUT_S:g} s"
            except OSError as error:
                said = error.strerror or str(error)
        if not said:
            raise NotPermitted(next(iter(refusals.values())))
        raise Transient(f"{host}:{port} could not be reached: {said}", without_effect=True)

    def _refusal(self, host: str, port: int, address: str) -> str:
        if port in self._own_ports and ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return f"{host}:{port} belongs to the browser itself; no page may reach it"
        return self._reach.refusal(host, port, address)


def _place(host: str, port: int) -> tuple[str, int]:
    return host.lower().rstrip("."), port


def _default_port(scheme: str) -> int:
    return 443 if scheme in ("https", "wss") else 80


def _without_own(headers: bytes) -> tuple[bytes, int]:
    """Headers without those that are about the connection, and how long the body is said to be."""
    kept = bytearray()
    length = 0
    for line in headers.split(b"\r\n"):
        name = line.lower()
        if name.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
        if line and not name.startswith(_OWN_HEADERS):
            kept += line + b"\r\n"
    return bytes(kept), length


async def _carry_both_ways(browser: Streams, site: Streams) -> None:
    await _first_done(site[1], _carry(browser[0], site[1]), _carry(site[0], browser[1]))


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()


async def _first_done(site: asyncio.StreamWriter, *ways: Coroutine[Any, Any, None]) -> None:
    """Both ways until one has ended: then there is nobody left to carry for."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        site.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
