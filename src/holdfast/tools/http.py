"""`http.get`: one bounded request, its failures sorted by what can be done about them.

httpx is imported when the first request is made: nobody who makes none pays for it.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, RateLimited, ToolError, Transient
from holdfast.tools.tool import tool

if TYPE_CHECKING:
    import ssl

    import httpx

BODY_BYTES_MAX = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0  # between two pieces of an answer; the step's own timeout bounds the whole
REDIRECTS_MAX = 10


class Response(TypedDict):
    status: int
    headers: dict[str, str]
    text: str


@tool(name="http.get", effect="read")
async def get(url: str, headers: dict[str, str] | None = None, max_bytes: int = BODY_BYTES_MAX) -> Response:
    """Fetch a page."""
    try:
        import httpx
    except ImportError as error:
        raise Misconfigured("http.get needs the package httpx; install it with: pip install httpx") from error
    timeout = httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            httpx.AsyncClient(
                verify=_ssl_context(), timeout=timeout, follow_redirects=True, max_redirects=REDIRECTS_MAX
            ) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            body = await _read(response, url, max_bytes)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise InvalidCall(f'url: expected an address such as "https://example.org", got "{url}" ({error})') from None
    except httpx.TooManyRedirects:
        raise ToolError(f"{url} redirected more than {REDIRECTS_MAX} times; check the address") from None
    except httpx.DecodingError as error:
        raise ToolError(f"{url} sent a body that cannot be decompressed: {error}") from None
    except httpx.RequestError as error:
        # Everything else on the way there and back: names, connections, time-outs, broken answers.
        raise Transient(f"{url} could not be reached: {str(error) or type(error).__name__}") from error
    _raise_for_status(url, response, body)
    return {"status": response.status_code, "headers": dict(response.headers), "text": body}


async def _read(response: httpx.Response, url: str, max_bytes: int) -> str:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > max_bytes:
            raise InvalidCall(f"{url} sent more than {max_bytes:,} bytes; raise max_bytes or ask for less")
        pieces.append(piece)
    return b"".join(pieces).decode(_encoding(response), errors="replace")


def _encoding(response: httpx.Response) -> str:
    named = response.charset_encoding or "utf-8"
    try:
        "".encode(named)
    except LookupError:
        return "utf-8"
    return named


def _raise_for_status(url: str, response: httpx.Response, body: str) -> None:
    status = response.status_code
    if status < 400:
        return
    said = f"{url} answered {status} {response.reason_phrase}".rstrip()
    shown = " ".join(body[:300].split())
    detail = f": {shown}" if shown else ""
    if status == 429:
        raise RateLimited(said, retry_after_s=_retry_after(response.headers.get("retry-after")))
    if status in (401, 403):
        raise NotPermitted(f"{said}{detail}; check the credentials in headers")
    if status >= 500 or status == 408:
        raise Transient(said + detail, retry_after_s=_retry_after(response.headers.get("retry-after")))
    raise ToolError(said + detail, without_effect=True)


def _retry_after(value: str | None) -> float | None:
    """Seconds, or the time of day by which to come back."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Loading the certificates takes longer than most requests; once is enough."""
    import httpx

    return httpx.create_ssl_context()
