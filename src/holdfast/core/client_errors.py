"""What the exceptions of well-known clients say: a category, whether the outcome is open, and when to come back.

A table, and no more: an exception is recognised by the modules and names of its classes, its status and its code are
read from the attributes that its package gives it, and no package is imported. What is not recognised says nothing.
"""

# sentences of others: urllib

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from holdfast.core.failure import Category

PACKAGES = frozenset(
    {
        "aiobotocore", "aiohttp", "anthropic", "boto3", "botocore", "google", "googleapiclient", "http", "httpcore",
        "httpx", "httpx2", "openai", "requests", "ssl", "urllib", "urllib3",
    }
)  # fmt: skip

# | HTTP status | category |
# |---|---|
# | 401, 403, 407 | permission |
# | 408, 425, 499, 5xx | transient |
# | 429 | rate limit |
# | any other from 300 to 499 | configuration |
_BY_STATUS: dict[int, Category] = {
    401: "permission", 403: "permission", 407: "permission", 408: "transient", 425: "transient", 429: "rate_limit",
    499: "transient",
}  # fmt: skip
_MAYBE_DONE = frozenset({408, 499})  # statuses, besides 5xx, of a request that may have been acted on

# Codes that say more than their status does, in small letters and without anything between them. AWS throttles with
# 400 and 503, and says that a token has expired with 400; OpenAI says 429 where only money helps.
_CODES: tuple[tuple[re.Pattern[str], Category], ...] = (
    (re.compile(r"insufficientquota|billing"), "configuration"),
    (
        re.compile(
            r"throttl|toomanyrequests|ratelimit|requestlimitexceeded|throughputexceeded|bandwidthlimitexceeded|slowdown"
            r"|^limitexceededexception$|priorrequestnotcomplete|resourceexhausted"
        ),
        "rate_limit",
    ),
    (
        re.compile(
            r"expired|^invalidtoken|^invalidgrant|tokenrefreshrequired|accessdenied|permissiondenied|unauthenticated"
            r"|^unauthorized|^notauthorized|authfailure|missingauthenticationtoken|signaturedoesnotmatch"
            r"|unrecognizedclient|invalidclienttokenid|invalidaccesskey|apikeyinvalid|invalidapikey"
        ),
        "permission",
    ),
)
# Codes of answers that began as a success, and ended in an error while they streamed.
_CODES_OF_STREAMS: tuple[tuple[re.Pattern[str], Category], ...] = (
    (re.compile(r"authentication|permission"), "permission"),
    (re.compile(r"overloaded|apierror|servererror|internal|unavailable|timeout"), "transient"),
    (re.compile(r"invalidrequest|notfound|toolarge"), "configuration"),
)
# Exceptions without a status, by the names of their classes; the first that fits counts.
_NAMES: tuple[tuple[re.Pattern[str], Category], ...] = (
    (re.compile(r"JSONDecodeError"), "logic"),
    (re.compile(r"RefreshError|Reauth|SSOToken|TokenRetrieval|CredentialRetrieval|NoAuthToken"), "permission"),
    (
        re.compile(
            r"^Invalid(URL|Url|Schema|Header|ProxyURL)|MissingSchema|UnsupportedProtocol|LocalProtocol|TooManyRedirects"
            r"|NonHttpUrl|Certificate|CertVerification|NoCredentials|PartialCredentials|DefaultCredentials|NoRegion"
            r"|ProfileNotFound|ConfigNotFound|ParamValidation|UnknownService|LocationValue|LocationParse"
        ),
        "configuration",
    ),
    (re.compile(r"^RetryError"), "timeout"),
    (re.compile(r"TransportError|^ServerError|ClientPayload|^HTTPClientError|^ProtocolError|MaxRetry"), "transient"),
)
_NO_ADDRESS = re.compile(r"unknown url type|no host given|not on local host")  # urllib's own words for that
_TIMEOUT = re.compile(r"Timed?[Oo]ut")
_NUMBER = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?", re.ASCII)


class Told(NamedTuple):
    category: Category
    is_open: bool  # what was asked for may have happened
    retry_after_s: float | None = None
    status: int = 0


def told_by(error: BaseException) -> Told | None:
    """What an exception of one of these packages says, or of a class made from one; None if that is nothing."""
    kinds = [kind for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in PACKAGES]
    if not kinds:
        return None
    status = next(_statuses(error), 0)
    category = _of_status_and_codes(error, status) or _by_names([kind.__name__ for kind in kinds])
    if category is None and isinstance(why := _of(error, "reason"), str) and _NO_ADDRESS.search(why):
        category = "configuration"
    if category is None:
        return None
    is_open = category in ("transient", "timeout") or status >= 500 or status in _MAYBE_DONE
    return Told(category, is_open, _retry_after_s(error), status)


def wait_s(said: str, now: datetime | None) -> float | None:
    """What a `Retry-After` asks for: seconds, or the time of day by which to come back."""
    said = said.strip()
    if _NUMBER.fullmatch(said):
        return float(said)
    moment = _moment(said)
    if moment is None or now is None:
        return None
    return max(0.0, (moment - now).total_seconds())


def _of_status_and_codes(error: BaseException, status: int) -> Category | None:
    codes = [re.sub(r"[^a-z]", "", code.lower()) for code in _codes(error)]
    found = _matching(_CODES, codes)
    if found is None and status:
        found = "transient" if status >= 500 else _BY_STATUS.get(status, "configuration")
    return found or _matching(_CODES_OF_STREAMS, codes)


def _matching(table: tuple[tuple[re.Pattern[str], Category], ...], texts: list[str]) -> Category | None:
    return next((category for pattern, category in table if any(map(pattern.search, texts))), None)


def _by_names(names: list[str]) -> Category | None:
    return "timeout" if any(map(_TIMEOUT.search, names)) else _matching(_NAMES, names)


# ---- where each package keeps it -------------------------------------------------------------------------------


def _statuses(error: BaseException) -> Iterator[int]:
    """`error.response` is an answer (httpx, requests, openai, anthropic) or a mapping (botocore)."""
    response = _of(error, "response")
    metadata = _at(_at(response, "ResponseMetadata"), "HTTPStatusCode")
    places = (
        (metadata,), (response, "status_code"), (error, "status_code"), (error, "status"), (error, "code"),
        (_of(error, "resp"), "status"),
    )  # fmt: skip
    for thing, *name in places:
        found = _of(thing, name[0]) if name else thing
        if isinstance(found, int) and 300 <= found < 600:
            yield int(found)


def _codes(error: BaseException) -> Iterator[str]:
    body, status = _of(error, "body"), _of(error, "status")
    inner = _at(body, "error") or body
    places = (
        _at(_at(_of(error, "response"), "Error"), "Code"), _of(error, "type"), status, _of(error, "reason"),
        _at(inner, "code"), _at(inner, "type"),
    )  # fmt: skip
    if not isinstance(status, int):  # aiohttp's has no code, and warns whoever asks for one
        yield from (code for code in (_of(error, "code"),) if isinstance(code, str))
    yield from (found for found in places if isinstance(found, str))


def _retry_after_s(error: BaseException) -> float | None:
    response = _of(error, "response")
    places = (
        _of(response, "headers"), _at(_at(response, "ResponseMetadata"), "HTTPHeaders"), _of(error, "headers"),
        _of(error, "resp"),
    )  # fmt: skip
    for headers in places:
        if exact := _header(headers, "retry-after-ms"):
            return float(exact) / 1000 if _NUMBER.fullmatch(exact) else None
        if said := _header(headers, "retry-after"):
            return wait_s(said, _moment(_header(headers, "date")))  # by the clock of the one who asks for it
    return None


def _header(headers: Any, name: str) -> str:
    with suppress(Exception):  # anything may stand there
        found = headers.get(name) or headers.get(name.title())
        return found if isinstance(found, str) else ""
    return ""


def _moment(said: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(said)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _of(thing: Any, name: str) -> Any:
    """An attribute, if it can be had: in exceptions of others, any property may raise."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _at(thing: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", thing).get(key) if isinstance(thing, Mapping) else None
