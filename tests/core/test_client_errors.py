"""What the exceptions of well-known clients mean. Those of httpx, requests and urllib are the real ones; of packages
that are not installed here, classes with the same names and attributes stand for them.
"""

from __future__ import annotations

import email.message
import http.client
import ssl
import urllib.error
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import requests

from holdfast.core.client_errors import told_by, wait_s
from holdfast.core.failure import Category, Happened, describe

LATER = {"Retry-After": "7"}
STATUSES: list[tuple[int, Category, Happened]] = [
    (301, "configuration", "known"),
    (400, "configuration", "known"),
    (401, "permission", "known"),
    (403, "permission", "known"),
    (404, "configuration", "known"),
    (407, "permission", "known"),
    (408, "transient", "unknown"),
    (409, "configuration", "known"),
    (410, "configuration", "known"),
    (422, "configuration", "known"),
    (425, "transient", "unknown"),
    (429, "rate_limit", "known"),
    (499, "transient", "unknown"),
    (500, "transient", "unknown"),
    (502, "transient", "unknown"),
    (503, "transient", "unknown"),
    (529, "transient", "unknown"),
]


def kind(module: str, *names: str, bases: tuple[type, ...] = (Exception,), **known: Any) -> type[BaseException]:
    """The class of the last name, as its package has it: each one is made from the one before it."""
    made: Any = None
    for name in names:
        made = type(name, (made,) if made is not None else bases, {"__module__": module})
    for attribute, value in known.items():
        setattr(made, attribute, value)
    return made  # type: ignore[no-any-return]


class Answer:
    """Of httpx2, as the clients of models have it."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.headers = httpx.Headers(headers)

    def __bool__(self) -> bool:
        return False  # as that of requests is


def of_httpx(status: int) -> BaseException:
    request = httpx.Request("POST", "http://a/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, headers=LATER))


def of_requests(status: int) -> BaseException:
    answer = requests.Response()
    answer.status_code = status
    answer.headers.update(LATER)
    return requests.HTTPError("no", response=answer)


def of_urllib(status: int) -> BaseException:
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    return urllib.error.HTTPError("http://a/", status, "no", headers, None)


def of_aiohttp(status: int) -> BaseException:
    module = "aiohttp.client_exceptions"
    return kind(module, "ClientError", "ClientResponseError", status=status, headers=httpx.Headers(LATER))("no")


def of_botocore(status: int) -> BaseException:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "7"}}
    said = {"Error": {"Code": str(status)}, "ResponseMetadata": metadata}
    return kind("botocore.exceptions", "ClientError", response=said)("no")


def of_openai(status: int) -> BaseException:
    answer = Answer(status, LATER)
    return kind("openai", "APIStatusError", status_code=status, response=answer, code=None, body=None)("no")


def of_anthropic(status: int) -> BaseException:
    return kind("anthropic", "APIStatusError", status_code=status, response=Answer(status, LATER), body="no")("no")


def of_google(status: int) -> BaseException:
    module = "google.api_core.exceptions"
    return kind(module, "GoogleAPICallError", code=http.client.responses and status, response=Answer(status, LATER))(
        "x"
    )


def of_genai(status: int) -> BaseException:
    answer = Answer(status, LATER)
    return kind("google.genai.errors", "APIError", "ClientError", code=status, status="X", response=answer)("no")


def of_googleapiclient(status: int) -> BaseException:
    class Resp(dict[str, str]):
        pass

    resp: Any = Resp({"retry-after": "7"})
    resp.status = status
    return kind("googleapiclient.errors", "HttpError", resp=resp)("no")


@pytest.mark.parametrize(("status", "category", "happened"), STATUSES)
@pytest.mark.parametrize(
    "raised",
    [
        of_httpx, of_requests, of_urllib, of_aiohttp, of_botocore, of_openai, of_anthropic, of_google, of_genai,
        of_googleapiclient,
    ],
)  # fmt: skip
def test_status_of_a_client_gives_the_category(
    raised: Any, status: int, category: Category, happened: Happened
) -> None:
    failure = describe(raised(status))
    assert (failure.category, failure.happened, failure.retry_after_s) == (category, happened, 7.0)


def aws(code: str, status: int = 400) -> BaseException:
    said = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return kind("botocore.errorfactory", "ClientError", code, response=said)("no")


def model(package: str, status: int, **said: Any) -> BaseException:
    return kind(package, "APIError", "APIStatusError", status_code=status, response=Answer(status, {}), **said)("no")


@pytest.mark.parametrize(
    ("error", "category", "happened"),
    [
        (aws("ThrottlingException"), "rate_limit", "known"),
        (aws("ProvisionedThroughputExceededException"), "rate_limit", "known"),
        (aws("SlowDown", 503), "rate_limit", "unknown"),
        (aws("ExpiredToken"), "permission", "known"),
        (aws("RequestExpired"), "permission", "known"),
        (aws("AccessDenied", 403), "permission", "known"),
        (aws("UnrecognizedClientException"), "permission", "known"),
        (aws("ValidationException"), "configuration", "known"),
        (aws("NoSuchKey", 404), "configuration", "known"),
        (aws("InternalFailure", 500), "transient", "unknown"),
        (model("openai", 429, code="insufficient_quota"), "configuration", "known"),
        (model("openai", 429, code="rate_limit_exceeded"), "rate_limit", "known"),
        (model("openai", 401, code="token_expired", type="invalid_request_error"), "permission", "known"),
        (model("openai", 400, code="context_length_exceeded"), "configuration", "known"),
        (model("anthropic", 200, body={"error": {"type": "overloaded_error"}}), "transient", "unknown"),
        (model("anthropic", 200, body={"error": {"type": "rate_limit_error"}}), "rate_limit", "known"),
        (model("anthropic", 200, body={"error": {"type": "invalid_request_error"}}), "configuration", "known"),
        (model("openai", 200), "logic", "known"),
        (httpx.ConnectError("refused"), "transient", "unknown"),
        (httpx.ReadTimeout("slow"), "timeout", "unknown"),
        (httpx.RemoteProtocolError("hung up"), "transient", "unknown"),
        (httpx.UnsupportedProtocol("ftp"), "configuration", "known"),
        (httpx.InvalidURL("no host"), "configuration", "known"),
        (httpx.TooManyRedirects("round and round"), "configuration", "known"),
        (requests.ConnectionError("refused"), "transient", "unknown"),
        (requests.ReadTimeout("slow"), "timeout", "unknown"),
        (requests.exceptions.MissingSchema("no scheme"), "configuration", "known"),
        (requests.exceptions.ChunkedEncodingError("cut"), "transient", "unknown"),
        (requests.JSONDecodeError("no JSON", "", 0), "logic", "known"),
        (urllib.error.URLError(ConnectionResetError("gone")), "transient", "unknown"),
        (urllib.error.URLError(TimeoutError("slow")), "timeout", "unknown"),
        (urllib.error.URLError("unknown url type: foo"), "configuration", "known"),
        (urllib.error.URLError(ssl.SSLCertVerificationError("self-signed")), "configuration", "known"),
        (ssl.SSLCertVerificationError("self-signed"), "configuration", "known"),
        (http.client.InvalidURL("no port"), "configuration", "known"),
        (kind("aiohttp.client_exceptions", "ClientPayloadError")("cut"), "transient", "unknown"),
        (kind("aiohttp", "InvalidURL", bases=(ValueError,))("no"), "configuration", "known"),
        (kind("openai", "APIConnectionError")("refused"), "transient", "unknown"),
        (kind("openai", "APIConnectionError", "APITimeoutError")("slow"), "timeout", "unknown"),
        (kind("botocore.exceptions", "NoCredentialsError")("none"), "configuration", "known"),
        (kind("botocore.exceptions", "EndpointConnectionError")("refused"), "transient", "unknown"),
        (kind("botocore.exceptions", "UnauthorizedSSOTokenError")("old"), "permission", "known"),
        (kind("google.auth.exceptions", "RefreshError")("old"), "permission", "known"),
        (kind("google.auth.exceptions", "TransportError")("gone"), "transient", "unknown"),
        (kind("google.api_core.exceptions", "RetryError")("slow"), "timeout", "unknown"),
        (kind("oauthlib.oauth2", "TokenExpiredError")("old"), "permission", "known"),
        (kind("shop.errors", "OrderError", status_code=503)("no"), "logic", "known"),
        (kind("shop.http", "ShopError", bases=(httpx.HTTPError,))("no"), "logic", "known"),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else str(value),
)
def test_code_or_name_of_a_client_gives_the_category(
    error: BaseException, category: Category, happened: Happened
) -> None:
    failure = describe(error)
    assert (failure.category, failure.happened) == (category, happened)


def test_class_made_from_one_of_a_client_counts_as_that() -> None:
    class Declined(httpx.HTTPStatusError): ...

    error = Declined("no", request=httpx.Request("GET", "http://a/"), response=httpx.Response(401))
    assert describe(error).category == "permission"


def test_error_of_ones_own_about_that_of_a_client_has_its_category_and_its_time() -> None:
    try:
        try:
            raise of_httpx(429)
        except httpx.HTTPError as error:
            raise RuntimeError("the shop said no") from error
    except RuntimeError as error:
        failure = describe(error)
    assert (failure.category, failure.happened, failure.retry_after_s) == ("rate_limit", "known", 7.0)


def test_error_of_ones_own_about_a_failure_of_the_server_leaves_open_what_happened() -> None:
    try:
        try:
            raise of_httpx(502)
        except httpx.HTTPError:
            raise ValueError("no receipt")  # noqa: B904
    except ValueError as error:
        failure = describe(error)
    assert (failure.category, failure.happened) == ("logic", "unknown")


def test_properties_that_raise_say_nothing() -> None:
    class HTTPError(requests.HTTPError):
        @property
        def response(self) -> Any:
            raise RuntimeError("not yet")

        @response.setter
        def response(self, value: Any) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]

    assert told_by(HTTPError("no")) is None


@pytest.mark.parametrize(
    ("headers", "after_s"),
    [
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({}, None),
    ],
)
def test_time_to_come_back_is_read_as_the_server_wrote_it(headers: dict[str, str], after_s: float | None) -> None:
    answer = httpx.Response(429, headers=headers)
    error = httpx.HTTPStatusError("no", request=httpx.Request("GET", "http://a/"), response=answer)
    assert describe(error).retry_after_s == after_s


def test_time_of_day_that_has_passed_means_now() -> None:
    assert wait_s("Wed, 21 Oct 2015 07:28:00 GMT", datetime(2026, 1, 1, tzinfo=UTC)) == 0.0
