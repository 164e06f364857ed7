"""What the failure of a request, or the answer to it, means: its category, and whether it can have had an effect."""

# sentences of others: OpenSSL

from __future__ import annotations

import errno
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.core.client_errors import wait_s
from holdfast.core.errors import (
    InvalidCall,
    Misconfigured,
    NotPermitted,
    RateLimited,
    ResourceShort,
    ToolError,
    Transient,
)
from holdfast.core.failure import RETRY_AFTER_S_MAX
from holdfast.tools.net.body import TooLarge
from holdfast.tools.net.client import REDIRECTS_MAX, WITHOUT_EFFECT, Trip, system_error
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    import httpx

SAID_CHARS_SHOWN = 300  # of what a server says about an error: enough for its reason
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # it is this machine that has too little


def explained(error: Exception, url: str, trip: Trip) -> Exception:
    """A failure of a request as our own: its category, and whether the request can have had an effect."""
    known = _explained(error, url, trip)
    if not trip.taken_by or isinstance(known, TooLarge):
        return known
    # Somebody has answered it and sent us on: whatever failed there, the effect may be here. Nobody may ask again.
    return Transient(f"{trip.taken_by} answered with a redirect, and then: {known}")


def _explained(error: Exception, url: str, trip: Trip) -> Exception:
    import httpx

    match error:
        case ToolError():
            return error
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return InvalidCall(f'url: expected an address such as "https://example.org", got "{url}" ({error})')
        case TypeError() | ValueError() if trip.answered:
            return ToolError(f"{url} sent an answer that cannot be read: {error}")
        case TypeError() | ValueError() if trip.sending:
            return Transient(f"{url} broke off: {_said(error)}")
        case UnicodeError():  # whose text shows a part of what it is about, which may be a secret
            return InvalidCall(
                f"the request to {url} cannot be sent: a header has a character that is not ASCII, or the address one "
                "that no address can have; write it in ASCII"
            )
        case httpx.LocalProtocolError() | TypeError() | ValueError():
            return InvalidCall(f"the request to {url} cannot be sent: {error}")
        case httpx.TooManyRedirects():
            return ToolError(f"{url} redirected more than {REDIRECTS_MAX} times; check the address")
        case httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error) or "SSL" in str(error):
            return Misconfigured(f"{url} cannot be trusted: {error}; check the address and its certificate")
        case httpx.ConnectError() if system_error(error) in _SHORT:
            return ResourceShort(f"{url} could not be reached: {_said(error)}", without_effect=True)
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.PoolTimeout():
            return Transient(f"{url} could not be reached: {_said(error)}", without_effect=True)
        case httpx.RequestError():
            return Transient(f"{url} broke off: {_said(error)}")
        case _:
            return error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def raise_for_status(url: str, response: httpx.Response, body: bytes) -> None:
    """What the other side's refusal means for us; nothing if it was none."""
    status = response.status_code
    if status < 400:
        return
    said = f"{url} answered {status} {response.reason_phrase}".rstrip()
    text = masks.beginning(body[: 4 * SAID_CHARS_SHOWN].decode(errors="replace"), SAID_CHARS_SHOWN)
    shown = " ".join(text.split())
    detail = f": {shown}" if shown else ""
    retry_after_s = retry_after(response.headers)
    # Whoever says 503 may have begun: only of a question that has no effect is it as good as "come back later".
    is_harmless = response.request.method in WITHOUT_EFFECT
    if status == 429 or (status == 503 and is_harmless and retry_after_s is not None):
        raise RateLimited(said, retry_after_s=retry_after_s, status=status)
    if status in (401, 403, 407):
        raise NotPermitted(f"{said}{detail}; check the credentials in headers", status=status)
    if status in (408, 425):
        raise Transient(said + detail, without_effect=True, status=status)
    if status >= 500 and status not in (501, 505):
        raise Transient(said + detail, retry_after_s=retry_after_s, status=status)
    raise ToolError(said + detail, without_effect=True, status=status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, or the time of day by which to come back."""
    after_s = wait_s(headers.get("retry-after", ""), datetime.now(UTC))
    return None if after_s is None else min(after_s, RETRY_AFTER_S_MAX)
