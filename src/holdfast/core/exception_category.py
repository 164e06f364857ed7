"""What an exception that no tool meant to raise says of the world outside: its category, and whether that is open.

Clients wrap what happened to them in exceptions of their own, and few of those are a `TimeoutError` or an `OSError`. So
an exception is judged by all that lies in it: its own type, what caused it, what was being handled when it was raised,
the members of a group. Exceptions of well-known clients are judged by what they say (client_errors.py), types of others
by the words in their names. A mistake in the code stays a mistake, and waits for a correction; but one that was made
while a time-out was handled has not ended that doubt.
"""

from __future__ import annotations

import errno
import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from holdfast.core.client_errors import told_by

if TYPE_CHECKING:
    from holdfast.core.failure import Category

LINKS_MAX = 100  # of a chain, looked at: a loop that retries may raise each error while it handles the one before
_OPEN: tuple[Category, ...] = ("transient", "timeout", "unknown")
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
_MISTAKES = (
    ValueError, TypeError, LookupError, AssertionError, ArithmeticError, AttributeError, NameError, NotImplementedError,
)  # fmt: skip

# In the names of other people's exceptions: `httpx.ReadTimeout`, `aiohttp.ServerDisconnectedError`,
# `psycopg.OperationalError`, `google.api_core.exceptions.ServiceUnavailable`, `http.client.IncompleteRead`.
_TIMEOUT = re.compile(r"Timed?[Oo]ut|DeadlineExceeded")
_LOST = re.compile(
    r"Connect(ion|or)?(?![a-z])|Disconnect|Reconnect|Network|RemoteProtocol|Incomplete|Broken|ClosedResource|EndOfStream"
    r"|Cancelled|Unavailable|OperationalError"
)
_EXPIRED = re.compile(r"(Token|Credentials?|Session)Expired|Expired(Token|Credentials?|Session)")
_CERTIFICATE = "CertVerification"
_NOT_FAR = ("builtins", "sqlite3")  # SQLite calls an unknown table operational, and never loses a connection


def category_of(error: BaseException, handled: BaseException | None = None) -> Category:
    own = _own_category(error)
    links = list(_links(error, handled))
    if own == "transient" and any(_CERTIFICATE in type(link).__name__ for link in links):
        return "configuration"  # a client that did not trust the other side says that it could not connect
    if own != "logic" or isinstance(error, _MISTAKES):
        return own
    for link in links:
        if (found := _own_category(link)) in ("timeout", "transient") or told_by(link) is not None:
            return found
    return own


def is_open(error: BaseException, handled: BaseException | None = None) -> bool:
    """Whether something in it leaves unknown what happened outside."""
    return any(_leaves_open(link) for link in _links(error, handled))


def retry_after_of(error: BaseException, handled: BaseException | None = None) -> float | None:
    """When the other side asked to come back, in seconds."""
    said = (told.retry_after_s for link in _links(error, handled) if (told := told_by(link)) is not None)
    return next((after_s for after_s in said if after_s is not None), None)


def status_of(error: BaseException, handled: BaseException | None = None) -> int:
    """The HTTP status that the other side answered with; 0 if there was none."""
    said = (told.status for link in _links(error, handled) if (told := told_by(link)) is not None)
    return next((status for status in said if status), 0)


def never_reached(error: BaseException, handled: BaseException | None = None) -> bool:
    """Whether nobody was there to connect to, and nothing else that is open lies in it."""
    open_links = (link for link in _links(error, handled) if _leaves_open(link))
    return isinstance(error, ConnectionRefusedError) and all(isinstance(x, ConnectionRefusedError) for x in open_links)


def _leaves_open(link: BaseException) -> bool:
    told = told_by(link)
    return told.is_open if told is not None else _own_category(link) in _OPEN


def _own_category(error: BaseException) -> Category:
    if (told := told_by(error)) is not None:
        return told.category
    match error:
        case TimeoutError():
            return "timeout"
        case ConnectionError():
            return "transient"
        case PermissionError():
            return "permission"
        case MemoryError():
            return "resource"
        case FileNotFoundError() | NotADirectoryError() | IsADirectoryError() | ImportError():
            return "configuration"
        case OSError() if isinstance(inner := getattr(error, "reason", None), OSError) and inner is not error:
            return _own_category(inner)  # urllib's: it only wraps what went wrong
        case OSError() if error.errno in _DISK:
            return "resource"
        case OSError():
            return "transient"
        case Exception():
            return "logic" if isinstance(error, _MISTAKES) else _by_name(type(error))
        case _:
            return "unknown"


def _by_name(kind: type[BaseException]) -> Category:
    names = [one.__name__ for one in kind.__mro__ if one.__module__ not in _NOT_FAR]
    if any(_TIMEOUT.search(name) for name in names):
        return "timeout"
    if any(_EXPIRED.search(name) for name in names):
        return "permission"
    return "transient" if any(_LOST.search(name) for name in names) else "logic"


def _links(error: BaseException, handled: BaseException | None) -> Iterator[BaseException]:
    """The exception and all that lies in it, the nearest first. What was `handled` before the call is none of it."""
    seen = {id(handled)}
    left = deque[BaseException | None]([error])
    while left and len(seen) <= LINKS_MAX:
        link = left.popleft()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        left += (link.__cause__, link.__context__)  # the context also if `from None` hides it: it happened
        if isinstance(link, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", link).exceptions
