"""What goes wrong in a browser, as our own errors: the category, and whether anything can have happened.

Playwright says it in sentences, and Chromium in codes such as `net::ERR_CERT_DATE_INVALID` inside them. Where the proxy
knows better (an address that may not be reached, an unknown host), its word is taken.
"""

# sentences of others: Playwright

from __future__ import annotations

import re

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, RateLimited, ToolError, Transient
from holdfast.core.failure import Category
from holdfast.tools.secrets.redaction import masks

_CODE = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_TRUST = ("ERR_CERT_", "ERR_SSL_", "ERR_BAD_SSL_")
_SENSELESS = ("ERR_INVALID_URL", "ERR_UNSAFE_PORT", "ERR_UNKNOWN_URL_SCHEME", "ERR_DISALLOWED_URL_SCHEME")
_BLOCKED = ("ERR_BLOCKED_", "ERR_ACCESS_DENIED", "ERR_NETWORK_ACCESS_DENIED")
_GONE = (
    "has been closed",
    "Target closed",
    "Target crashed",
    "Page crashed",
    "Browser closed",
    "Connection closed",
    "Connection terminated",
    "Session closed",
)
SAID_CHARS_MAX = 500


class NoPage(ToolError):
    """The execution has no page open."""

    category: Category = "configuration"
    without_effect = True


class NotThere(ToolError):
    """The page did not become what was waited for. It was waited for, so nobody tries again unless told so.

    Nor does it say anything about the browser: a breaker that all executions share must not open for it.
    """

    without_effect = True


class TimedOut(ToolError):
    """A page did not load in time, or did not answer while something was done to it."""

    category: Category = "timeout"


class Crashed(ToolError):
    """The browser, or the page in it, is gone."""

    category: Category = "transient"


def explained(
    error: Exception, doing: str, *, timeout_s: float, without_effect: bool, late: type[ToolError] = NotThere,
    trouble: ToolError | None = None,
) -> Exception:  # fmt: skip
    """A failure while `doing` something, said so that a person can act on it. `late` is what running out of time is."""
    if isinstance(error, ToolError):
        return error
    said = _first_lines(error)
    if any(mark in said for mark in _GONE):
        return Crashed(
            f"{doing}: the browser or its page crashed or was closed ({said}); "
            "what was open is gone, and the next `url` starts anew",
            without_effect=without_effect,
        )
    found = _CODE.search(said)
    if found is not None:
        return trouble or _of_network(found[1], doing, without_effect)
    if type(error).__name__ == "TimeoutError":
        return late(f"{doing}: not within {timeout_s:g} s{_hint(str(error))}", without_effect=without_effect)
    if "strict mode violation" in said:
        count = re.search(r"resolved to (\d+) elements", said)
        many = count[1] if count else "several"
        return InvalidCall(f"{doing}: {many} elements fit; say which, such as with `>> nth=0` after the selector")
    if "Download is starting" in said:
        return ToolError(f"{doing}: it is a download, not a page; fetch it with http.get", without_effect=True)
    if any(mark in said for mark in ("Unexpected token", "is not a valid selector", "Unknown engine", "while parsing")):
        return InvalidCall(f"{doing}: the selector cannot be read: {said}")
    if "is not an <input>" in said or "Element is not" in said:
        return InvalidCall(f"{doing}: {said}", without_effect=without_effect)
    return ToolError(f"{doing}: {said}", without_effect=without_effect)


def _of_network(code: str, doing: str, without_effect: bool) -> ToolError:
    if code.startswith(_TRUST):
        return Misconfigured(f"{doing}: it cannot be trusted ({code}); check the address and its certificate")
    if code in _SENSELESS:
        return InvalidCall(f"{doing}: the browser does not open such an address ({code})")
    if code.startswith(_BLOCKED):
        return NotPermitted(f"{doing}: the browser refuses it ({code})")
    if code == "ERR_TOO_MANY_REDIRECTS":
        return ToolError(f"{doing}: it redirects without end; check the address", without_effect=without_effect)
    if code == "ERR_ABORTED":
        return ToolError(
            f"{doing}: the page gave up loading (a download, or an answer without content)",
            without_effect=without_effect,
        )
    return Transient(f"{doing}: it could not be loaded ({code})", without_effect=without_effect)


def refused_status(url: str, status: int, retry_after: str) -> ToolError | None:
    """What an answer's status means for whoever wanted the page; None if it is one."""
    if status < 400:
        return None
    said = f"{url} answered {status}"
    if status == 429 or (status == 503 and retry_after):
        return RateLimited(said, retry_after_s=float(retry_after) if retry_after.isdigit() else None)
    if status in (401, 403, 407):
        return NotPermitted(f"{said}; the page needs a sign-in or rights that are missing")
    if status in (408, 425) or (status >= 500 and status not in (501, 505)):
        return Transient(said, without_effect=True)
    return ToolError(said, without_effect=True)


def _first_lines(error: Exception) -> str:
    """Without Playwright's call log and its method's name, which say nothing to whoever wrote the plan."""
    text = str(error).partition("Call log:")[0].strip()
    text = re.sub(r"^[A-Z]\w+\.\w+: ", "", text) or type(error).__name__
    return masks.beginning(text, SAID_CHARS_MAX)


def _hint(text: str) -> str:
    """Why an element could not be used, where the call log tells."""
    for mark, meaning in (
        ("intercepts pointer events", "; another element lies over it"),
        ("element is not enabled", "; it is disabled"),
        ("element is not stable", "; it keeps moving"),
        ("element is not visible", "; it is there, but hidden"),
        ("element is outside of the viewport", "; it lies outside of what can be seen"),
        ("element is not editable", "; it cannot be edited"),
    ):
        if mark in text:
            return meaning
    return ""
