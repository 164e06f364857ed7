"""The connections behind the http tools: one pool for an engine, guarded where each connection is made.

Owns which addresses are connected to, how many requests go to one host at once and how fast. Every connection, also
that of a redirect, is made here to an address that was looked up and judged in the same breath.

httpx is imported when the first request is made: nobody who makes none pays for it.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from holdfast.core.errors import Misconfigured, NotPermitted, Transient
from holdfast.tools.call import Call
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.net.dns import looked_up
from holdfast.tools.runtime.fair_queue import Rate, Turns

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_TIMEOUT_S = 10.0
CHECK_TIMEOUT_S = 3.0  # for whoever only wants to know whether somebody is there
SILENCE_TIMEOUT_S = 60.0  # between two pieces of an answer; the step's own timeout bounds the whole
REDIRECTS_MAX = 10
CONNECTIONS_MAX = 200  # of all hosts together
KEPT_S = 30.0  # an idle connection
ENCODINGS = "gzip, deflate"  # those that can be undone piece by piece; see tools/http/body.py
HOSTS_KEPT = 1000  # whose limits are remembered; the oldest that nobody uses or waits for goes first


_FOR_ANYBODY = frozenset({"accept", "accept-language", "content-type", "user-agent"})
WITHOUT_EFFECT = frozenset({"GET", "HEAD", "OPTIONS"})


class Trip:
    """How far one request has come, over all its redirects: what went wrong later cannot undo what was answered."""

    __slots__ = ("answered", "sending", "taken_by")

    def __init__(self) -> None:
        self.sending = False  # it was handed to a connection, whatever came of that
        self.answered = False  # by the last one asked
        self.taken_by = ""  # who answered a request that can have an effect, and sent us on


class HttpClient:
    def __init__(self, reach: Reach, connections_per_host: int, rate_per_host: Rate | None) -> None:
        self._reach = reach
        self._connections_per_host = connections_per_host
        self._rate_per_host = rate_per_host
        self._hosts: dict[str, Turns] = {}
        self._held: WeakValueDictionary[str, Turns] = WeakValueDictionary()  # also those that only a call still knows
        self._others: Turns | None = None
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def stream(
        self, call: Call, method: str, url: str, *, trip: Trip, **request: Any
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. The call waits its turn among the executions."""
        client = self._opened()
        asked = client.build_request(method, url, **request)
        given: Mapping[str, str] = request.get("headers") or {}
        secret = {name.lower() for name in given} - _FOR_ANYBODY
        # Redirects are followed here and not by httpx, which reads their bodies whole, however large they are, shows
        # the next host every header that was meant for this one, and knows nothing of its limits.
        for _ in range(REDIRECTS_MAX + 1):
            turn = await call.turn_of(self._turns_at(asked.url), has_begun=bool(trip.taken_by))
            try:
                trip.sending, trip.answered = True, False
                response = await client.send(asked, stream=True)
                trip.answered = True
                try:
                    following = response.next_request
                    if following is None:
                        yield response
                        return
                finally:
                    await response.aclose()
            finally:
                turn.end()
            if asked.method not in WITHOUT_EFFECT:
                trip.taken_by = trip.taken_by or str(asked.url)
            if not _is_same_side(asked.url, following.url):
                if following.headers.get("content-length", "0") != "0" or "transfer-encoding" in following.headers:
                    raise NotPermitted(
                        f"{asked.url} sends the body on to another host, {following.url}, which is not shown what was "
                        "meant for the first; if that is right, ask there"
                    )
                for name in secret & set(following.headers):
                    del following.headers[name]
            asked = following
        import httpx

        raise httpx.TooManyRedirects("too many redirects", request=asked)

    async def check_reachable(self, url: str) -> None:
        """Raise unless somebody may be and can be connected to there. Nothing is asked."""
        import httpx

        parts = httpx.URL(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        await check_connection(parts.host, port, self._reach)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def turns_for(self, url: str) -> Turns:
        """What a request waits for before it is made: the line of its host. Raises whatever is wrong with the url."""
        import httpx

        return self._turns_at(httpx.URL(url))

    def _turns_at(self, url: httpx.URL) -> Turns:
        return self._turns_of(f"{url.host}:{url.port or url.scheme}")

    def _turns_of(self, host: str) -> Turns:
        turns = self._hosts.pop(host, None) or self._held.get(host)
        if len(self._hosts) >= HOSTS_KEPT:
            idle = next((name for name, kept in self._hosts.items() if kept.is_at_rest()), None)
            if idle is None:  # to forget a rate would be to break it; those that come too late share one
                self._others = self._others or self._fresh_turns()
                return turns or self._others
            del self._hosts[idle]
        turns = turns or self._fresh_turns()
        self._hosts[host] = self._held[host] = turns  # at the end: the one used last is forgotten last
        return turns

    def _fresh_turns(self) -> Turns:
        return Turns(self._connections_per_host, self._rate_per_host)

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            try:
                import httpx
            except ImportError as error:
                raise Misconfigured("http needs the package httpx; install it with: pip install httpx") from error
            self._client = httpx.AsyncClient(
                transport=_guarded_transport(self._reach),
                timeout=httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
                headers={"Accept-Encoding": ENCODINGS},
                cookies=_no_cookies(),  # one client serves all executions: what one is told must not be said by another
                trust_env=False,  # a proxy would look names up by itself, where nobody judges the address
            )
        return self._client


def _guarded_transport(reach: Reach) -> httpx.AsyncHTTPTransport:
    import httpcore
    import httpx

    class Guarded(httpcore.AsyncNetworkBackend):
        """Looks a name up once, judges what it is, and connects to that very address."""

        def __init__(self) -> None:
            self._plain: Any = httpcore.AnyIOBackend()

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 -- the signature is httpcore's
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> httpcore.AsyncNetworkStream:
            addresses = await looked_up(host, port, timeout)
            refusals = {address: reach.refusal(host, port, address) for address in addresses}
            open_to_us = [address for address, refusal in refusals.items() if not refusal]
            if not open_to_us:
                raise NotPermitted(next(iter(refusals.values())))
            for address in open_to_us[:-1]:
                try:
                    return await self._plain.connect_tcp(address, port, timeout, local_address, socket_options)
                except (httpcore.ConnectError, httpcore.ConnectTimeout):
                    continue  # the host has another address
            try:
                return await self._plain.connect_tcp(open_to_us[-1], port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                raise httpcore.ConnectError(f"{host}:{port}: {_reason(error)}") from error

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    transport = httpx.AsyncHTTPTransport(verify=_ssl_context())
    # httpx has no parameter for it, only httpcore underneath does.
    transport._pool = httpcore.AsyncConnectionPool(  # pyright: ignore[reportPrivateUsage]
        ssl_context=_ssl_context(),
        max_connections=CONNECTIONS_MAX,
        max_keepalive_connections=CONNECTIONS_MAX // 2,
        keepalive_expiry=KEPT_S,
        network_backend=Guarded(),
    )
    return transport


def _reason(error: BaseException) -> str:
    """What the system said, which lies below what libraries make of it."""
    number = system_error(error)
    return os.strerror(number) if number else str(error)


def system_error(error: BaseException) -> int:
    """Its number, which lies below what libraries make of it; 0 if there is none."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno:
            return below.errno
        below = below.__cause__ or below.__context__
    return 0


async def check_connection(host: str, port: int, reach: Reach | None = None) -> None:
    """Raise unless one of the addresses of a host takes a connection, which is closed at once."""
    said = ""
    for address in await looked_up(host, port, CONNECT_TIMEOUT_S):
        refusal = reach.refusal(host, port, address) if reach is not None else ""
        if refusal:
            raise NotPermitted(refusal)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
        except TimeoutError:
            said = f"no connection within {CHECK_TIMEOUT_S:g} s"
        except OSError as error:
            said = os.strerror(error.errno) if error.errno else str(error)
        else:
            return
    raise Transient(f"{host}:{port} could not be reached: {said}", without_effect=True)


def _is_same_side(before: httpx.URL, after: httpx.URL) -> bool:
    """Whether what was meant for the one may be shown to the other."""
    upgraded = before.scheme == "http" and after.scheme == "https" and before.port is None and after.port is None
    return before.host == after.host and ((before.scheme, before.port) == (after.scheme, after.port) or upgraded)


def _no_cookies() -> CookieJar:
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Loading the certificates takes longer than most requests; once is enough."""
    import httpx

    return httpx.create_ssl_context()
