"""`http.get` and `http.request`: bounded requests, their failures sorted by what can be done about them.

Whatever failed before a request was sent is known to be without effect, and so is what the other side refused; what
broke off after that is unknown. What failures and answers mean is in ../net/answers.py, which addresses can be reached
in ../net/address_policy.py.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict
from urllib.parse import urlsplit

import msgspec

from holdfast.core.error_text import quoted
from holdfast.core.errors import InputInvalid, InvalidCall, SettingsInvalid
from holdfast.core.policy import VALUE_BYTES_MAX, Breaker
from holdfast.tools.call import Call, HeldBack
from holdfast.tools.halved import halved
from holdfast.tools.json_text import JsonInvalid, read_json
from holdfast.tools.net.address_policy import Reach, check_url
from holdfast.tools.net.answers import explained, raise_for_status
from holdfast.tools.net.body import read_body, text_of
from holdfast.tools.net.client import WITHOUT_EFFECT, HttpClient, Trip
from holdfast.tools.runtime.fair_queue import Turns, parse_rate
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders

if TYPE_CHECKING:
    import httpx

BODY_BYTES_MAX = 4 * 1024 * 1024
JSON_BYTES_MAX = 16 * 1024 * 1024  # of a body that is kept as JSON beside its text
CONNECTIONS_PER_HOST = 8
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}")  # a token, which is all that HTTP asks of it
Size = Annotated[int, msgspec.Meta(ge=1, le=VALUE_BYTES_MAX)]  # no value of a step can be larger
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-www-form")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allow: tuple[str, ...] = ()  # what may be reached although it is not a public address
    max_bytes: Size = BODY_BYTES_MAX  # of one body, unless a call says otherwise
    connections_per_host: int = CONNECTIONS_PER_HOST
    rate_per_host: str = ""  # such as "10/s"


class Response(TypedDict):
    """`text` is empty where the body is no text, and `base64` holds it. `json` is null where the answer is not JSON."""

    status: int
    url: str
    headers: dict[str, str]
    text: str
    json: NotRequired[Any]  # always there, but a person who writes down an answer may leave it out
    base64: str | None


class Http(Adapter):
    """Requests to web servers."""

    Config = Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        try:
            rate = parse_rate(config.rate_per_host) if config.rate_per_host else None
            reach = Reach(config.allow)
        except (InputInvalid, SettingsInvalid) as error:
            name = "rate_per_host: " if isinstance(error, InputInvalid) else ""
            raise SettingsInvalid(f"tools.http.{name}{error}") from None
        self._reach = reach
        self._client = HttpClient(reach, max(1, config.connections_per_host), rate)

    def tools(self) -> Sequence[Tool[..., Any]]:
        less = halved("max_bytes", self.config.max_bytes)
        apart = Breaker(by=_host_of)  # one host that is down is no reason not to ask another
        tools = (
            tool(name="http.get", effect="read", breaker=apart, judge=self._judge, reduce=less)(self.get),
            tool(name="http.request", effect="once", breaker=apart, judge=self._judge, reduce=less)(self.request),
        )
        for each in tools:
            each.turns = self._turns
        return tools

    def _judge(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        _judge(known, later)
        if "url" in known:
            self._reach.check_literal(known["url"])

    def _turns(self, arguments: Mapping[str, Any]) -> Turns:
        """Whoever waits for its host has not begun, and holds nothing that others could use."""
        return self._client.turns_for(arguments["url"])

    async def close(self) -> None:
        await self._client.close()

    async def get(
        self, url: str, call: Call, headers: dict[str, str] | None = None, max_bytes: Size | None = None
    ) -> Response:
        """Fetch a page."""
        return await self._ask(call, "GET", url, {"headers": headers}, max_bytes)

    async def request(  # noqa: PLR0913, PLR0917 -- one parameter per thing a request may have
        self,
        url: str,
        call: Call,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        json: Any = None,
        form: dict[str, str] | None = None,
        text: str | None = None,
        base64: str | None = None,
        max_bytes: Size | None = None,
        show: bool = False,
    ) -> Response:
        """Make a request of any kind. `base64` is a body of bytes; `show` lets watchers see the answer's as it comes.

        Unless the headers say otherwise, it carries the step's idempotency key.
        """
        method = check_method(method)
        check_bodies({"json": json, "form": form, "text": text, "base64": base64})
        bodies = {"json": json, "data": form, "content": text if base64 is None else _unpacked(base64)}
        given = {name: body for name, body in bodies.items() if body is not None}
        keyed = headers if method in WITHOUT_EFFECT else _with_key(headers, call.key)
        request = {"headers": keyed, "params": query, **given}
        return await self._ask(call, method, url, request, max_bytes, show=show)

    async def _ask(
        self, call: Call, method: str, url: str, request: dict[str, Any], max_bytes: int | None, show: bool = False
    ) -> Response:
        limit = self.config.max_bytes if max_bytes is None else max_bytes
        trip = Trip()
        try:
            async with self._client.stream(call, method, url, trip=trip, **request) as response:
                body = await read_body(response, url, limit, call if show else None)
            raise_for_status(url, response, body)
        except HeldBack:
            raise
        except Exception as error:
            raise explained(error, url, trip) from error
        is_text = _is_text(response, body)
        text = text_of(response, body) if is_text else ""
        return {
            "status": response.status_code,
            "url": str(response.url),
            "headers": dict(response.headers),
            "text": text,
            "json": _json_of(response, text),
            "base64": None if is_text else base64.b64encode(body).decode(),
        }


def _judge(known: Mapping[str, Any], later: Collection[str]) -> None:
    """What can be seen in a request before it is made."""
    if "url" in known:
        check_url(known["url"])
    if "method" in known:
        check_method(known["method"])
    check_bodies(known)
    if known.get("base64") is not None:
        _unpacked(known["base64"])


def check_method(method: str) -> str:
    """As it is sent."""
    if not _METHOD.fullmatch(method):
        raise InvalidCall(f'method: expected a word such as "POST" or "PROPFIND", got {quoted(method)}')
    if method.upper() == "CONNECT":
        raise InvalidCall('method: "CONNECT" opens a tunnel and is no request; ask for what is behind it')
    return method.upper()


def check_bodies(given: Mapping[str, Any]) -> None:
    if sum(given.get(name) is not None for name in ("json", "form", "text", "base64")) > 1:
        raise InvalidCall("a request has one body: give only one of json, form, text and base64")


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCall(f"base64: expected bytes written as Base64: {error}") from None


def _with_key(headers: dict[str, str] | None, key: str) -> dict[str, str]:
    own = dict(headers or {})
    if not any(name.lower() == "idempotency-key" for name in own):
        own["Idempotency-Key"] = key
    return own


def _is_text(response: httpx.Response, body: bytes) -> bool:
    kind = response.headers.get("content-type", "").lower()
    if response.charset_encoding or kind.startswith(_TEXT_TYPES) or "+json" in kind or "+xml" in kind:
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


def _json_of(response: httpx.Response, text: str) -> Any:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind.endswith(("/json", "+json")) or len(text) > JSON_BYTES_MAX:
        return None
    try:
        return read_json(text.removeprefix("\ufeff"))
    except JsonInvalid:
        return None


def _host_of(arguments: Mapping[str, Any]) -> str:
    return urlsplit(str(arguments["url"])).netloc.rpartition("@")[2].lower()
