"""`http.get` and `http.request` against a real server: what they bring, and what every way to fail is called."""

from __future__ import annotations

import asyncio
import base64
import errno
import gzip
import json
import os
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engine.kit import engine_at, plan, step_of, until
from holdfast.core.errors import (
    InvalidCall,
    Misconfigured,
    NotPermitted,
    RateLimited,
    ResourceShort,
    SettingsInvalid,
    ToolError,
    Transient,
)
from holdfast.core.failure import describe
from holdfast.tools.call import Call, HeldBack, Silent
from holdfast.tools.http.tool import Config, Http
from holdfast.tools.net import client as http_client
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.net.answers import explained
from holdfast.tools.net.body import TooLarge
from holdfast.tools.runtime.cancellation import NeverBegan
from holdfast.tools.runtime.fair_queue import parse_rate
from holdfast.tools.toolset import HERE


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, dict[str, str], bytes]]
    at_once = most_at_once = 0
    guard = threading.Lock()
    gate: threading.Event

    def _do(self) -> None:  # noqa: PLR0912, PLR0915 -- one page after the other
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        name = self.path.strip("/").partition("?")[0]
        match name:
            case "hello":
                self._answer(200, f"hello {self.headers.get('x-name', 'you')}".encode(), {"X-One": "1"})
            case "latin":
                self._answer(200, b"gr\xfc\xdfe", {"Content-Type": "text/plain; charset=latin-1"})
            case "odd":
                self._answer(200, b"odd", {"Content-Type": "text/plain; charset=no-such"})
            case "picture":
                self._answer(200, b"\x89PNG\0\xff", {"Content-Type": "image/png"})
            case "data":
                self._answer(200, b'{"a": 1}', {"Content-Type": "application/vnd.x+json"})
            case "squeezed":
                self._answer(200, b"not gzip", {"Content-Encoding": "gzip"})
            case "bomb":
                self._answer(200, gzip.compress(b"0" * 10_000_000), {"Content-Encoding": "gzip"})
            case "endless":
                self._endless()
            case "endless-redirect":
                self.send_response(302)
                self.send_header("Location", "/hello")
                self.end_headers()
                self._pour()
            case "packed":
                self._answer(200, gzip.compress(b"tides"), {"Content-Encoding": "gzip"})
            case "deflated":
                self._answer(200, zlib.compress(b"tides")[2:-4], {"Content-Encoding": "deflate"})
            case "in-a-row":
                packed = gzip.compress(b"first ") + gzip.compress(b"") + b"\0\0" + gzip.compress(b"second") + b"\0"
                self._answer(200, packed, {"Content-Encoding": "gzip"})
            case "bombs-in-a-row":
                self._answer(200, gzip.compress(b"0" * 1_000_000) * 9, {"Content-Encoding": "gzip"})
            case "cut-in-a-row":
                self._answer(200, gzip.compress(b"first") + gzip.compress(b"second")[:-9], {"Content-Encoding": "gzip"})
            case "litter":
                self._answer(200, gzip.compress(b"first") + b"litter", {"Content-Encoding": "gzip"})
            case "overloaded":
                self._answer(503 if len(self.seen) == 1 else 200, b"", {"Retry-After": "0"})
            case "twice":
                self._answer(200, gzip.compress(gzip.compress(b"0" * 100)), {"Content-Encoding": "gzip, gzip"})
            case "cut":
                self._answer(200, gzip.compress(b"0" * 100)[:-9], {"Content-Encoding": "gzip"})
            case "cookie":
                self._answer(200, self.headers.get("Cookie", "none").encode(), {"Set-Cookie": "session=theirs"})
            case "away":
                port = self.connection.getsockname()[1]
                self._answer(307, b"", {"Location": f"http://localhost:{port}/mirror"})
            case "near":
                self._answer(307, b"", {"Location": "/mirror"})
            case "mirror":
                self._answer(200, json.dumps({k.lower(): v for k, v in self.headers.items()}).encode(), {})
            case "loop":
                self._answer(302, b"", {"Location": "/loop"})
            case "moved":
                self._answer(302, b"", {"Location": "/hello"})
            case "inside":
                self._answer(302, b"", {"Location": f"http://127.0.0.1:{self.connection.getsockname()[1]}/hello"})
            case "hangup":
                self.close_connection = True
            case "soon":
                self._answer(429, b"", {"Retry-After": "7"})
            case "busy":
                self._answer(503, b"", {"Retry-After": "8"})
            case "later":
                moment = datetime.now(UTC) + timedelta(seconds=90)
                self._answer(429, b"", {"Retry-After": format_datetime(moment, usegmt=True)})
            case "someday":
                self._answer(429, b"", {"Retry-After": "someday"})
            case "digit":
                self._answer(429, b"", {"Retry-After": "\xb2"})
            case "pay-and-see":
                self._answer(303, b"", {"Location": self.path.partition("?")[2]})
            case "pay-there":
                self._answer(307, b"", {"Location": self.path.partition("?")[2]})
            case "named":
                self._answer(
                    200, b"caf\xc3\xa9-\xff", {"Content-Type": f"text/plain; charset={self.path.partition('?')[2]}"}
                )
            case "wait":
                self._wait()
            case _:
                self._answer(int(name), b"because", {})

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_PROPFIND = _do

    def _wait(self) -> None:
        with self.guard:
            Handler.at_once += 1
            Handler.most_at_once = max(Handler.most_at_once, Handler.at_once)
        self.gate.wait(0.05)
        with self.guard:
            Handler.at_once -= 1
        self._answer(200, b"", {})

    def _endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self._pour()

    def _pour(self) -> None:
        try:
            while True:
                self.wfile.write(b"and on and on " * 1000)
        except OSError:
            self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def _serving(listening: ThreadingHTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield listening.server_port
    listening.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    Handler.seen, Handler.gate = [], threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        for port in _serving(listening):
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def unknown_authority() -> Iterator[str]:
    """A server whose certificate nobody vouches for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(__file__).parents[2] / "servers" / "self_signed.pem")
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        for port in _serving(listening):
            yield f"https://localhost:{port}"


class Listener(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        self.said.append(content)


class Web:
    """The family as an engine has it, with what its tools say."""

    def __init__(self, **config: Any) -> None:
        self.listener = Listener()
        self.family = Http(Config(**{"allow": ("127.0.0.0/8", "::1"), **config}), HERE)
        self.tools = {tool.name: tool for tool in self.family.tools()}

    async def get(self, url: str, **arguments: Any) -> Any:
        return await self._call("http.get", url=url, **arguments)

    async def request(self, url: str, **arguments: Any) -> Any:
        return await self._call("http.request", url=url, **arguments)

    async def _call(self, name: str, **arguments: Any) -> Any:
        tool = self.tools[name]
        call = Call("execution", "step", 1, "execution:step", Path(), None, self.listener)
        value = await tool.invoke(tool.validate(arguments), call)
        tool.output(value)
        return value


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    yield made
    await made.family.close()


# ---- what comes back -------------------------------------------------------------------------------------------------


async def test_a_page_is_fetched_with_its_headers(server: str, web: Web) -> None:
    page = await web.get(f"{server}/hello", headers={"x-name": "me"})
    assert (page["status"], page["text"], page["headers"]["x-one"]) == (200, "hello me", "1")
    moved = await web.get(f"{server}/moved")
    assert (moved["text"], moved["url"]) == ("hello you", f"{server}/hello")
    assert (await web.get(f"{server}/latin"))["text"] == "grüße"
    assert (await web.get(f"{server}/odd"))["text"] == "odd"
    assert (await web.get(f"{server}/data"))["text"] == '{"a": 1}'


async def test_what_is_no_text_comes_as_base64(server: str, web: Web) -> None:
    page = await web.get(f"{server}/picture")
    assert (page["text"], base64.b64decode(page["base64"])) == ("", b"\x89PNG\0\xff")


async def test_a_request_carries_method_body_query_and_the_steps_key(server: str, web: Web) -> None:
    await web.request(f"{server}/hello", json={"a": 1}, query={"q": "x y"})
    method, path, headers, body = Handler.seen[-1]
    assert (method, path, body) == ("POST", "/hello?q=x+y", b'{"a":1}') or path == "/hello?q=x%20y"
    assert (headers["content-type"], headers["idempotency-key"]) == ("application/json", "execution:step")
    await web.request(f"{server}/hello", method="PUT", text="words", headers={"Idempotency-Key": "mine"})
    method, _, headers, body = Handler.seen[-1]
    assert (method, body, headers["idempotency-key"]) == ("PUT", b"words", "mine")
    await web.request(f"{server}/hello", method="PATCH", form={"k": "v"})
    assert (Handler.seen[-1][0], Handler.seen[-1][3]) == ("PATCH", b"k=v")
    await web.request(f"{server}/hello", method="OPTIONS")
    assert "idempotency-key" not in Handler.seen[-1][2]
    with pytest.raises(InvalidCall, match="a request has one body: give only one of json, form, text and base64"):
        await web.request(f"{server}/hello", json={}, text="")


async def test_any_word_is_a_method_and_has_an_effect_unless_it_is_known_to_have_none(server: str, web: Web) -> None:
    await web.request(f"{server}/hello", method="propfind", base64=base64.b64encode(b"\0\xff\r\n").decode())
    method, _, headers, body = Handler.seen[-1]
    assert (method, body, headers["idempotency-key"]) == ("PROPFIND", b"\0\xff\r\n", "execution:step")
    for wrong in ("", "GET /", "P\r\nX: y", "CONNECT"):
        with pytest.raises(InvalidCall, match="method: "):
            await web.request(f"{server}/hello", method=wrong)
    with pytest.raises(InvalidCall, match="base64: expected bytes written as Base64"):
        await web.request(f"{server}/hello", base64="not %% base64")
    assert len([one for one in Handler.seen if one[0] in ("GET /", "CONNECT", "")]) == 0


async def test_a_body_is_shown_as_it_comes(server: str, web: Web) -> None:
    await web.request(f"{server}/hello", method="GET", show=True)
    assert "".join(web.listener.said) == "hello you"


# ---- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "kind", "happened", "message"),
    [
        ("500", Transient, "unknown", r"/500 answered 500 Internal Server Error: because"),
        ("502", Transient, "unknown", r"/502 answered 502 Bad Gateway: because"),
        ("501", ToolError, "nothing", r"/501 answered 501 Not Implemented: because"),
        ("503", Transient, "unknown", r"/503 answered 503 Service Unavailable: because"),
        ("408", Transient, "nothing", r"/408 answered 408 Request Timeout: because"),
        ("401", NotPermitted, "nothing", r"/401 answered 401 Unauthorized: because; check the credentials in headers"),
        ("403", NotPermitted, "nothing", r"/403 answered 403 Forbidden: because; check the credentials"),
        ("404", ToolError, "nothing", r"/404 answered 404 Not Found: because"),
        ("409", ToolError, "nothing", r"/409 answered 409 Conflict: because"),
        ("hangup", Transient, "unknown", r"/hangup broke off: Server disconnected"),
        ("loop", ToolError, "known", r"/loop redirected more than 10 times; check the address"),
        ("squeezed", ToolError, "known", r"/squeezed sent a body that cannot be decompressed"),
        ("bombs-in-a-row", TooLarge, "known", r"/bombs-in-a-row sends more than 4,194,304 bytes"),
        ("cut-in-a-row", ToolError, "known", r"/cut-in-a-row sent a body that cannot be decompressed: it breaks off"),
        ("litter", ToolError, "known", r"/litter sent a body that cannot be decompressed"),
        ("bomb", TooLarge, "known", r"/bomb sends more than 4,194,304 bytes; raise max_bytes or ask for less"),
        ("endless", TooLarge, "known", r"/endless sends more than 4,194,304 bytes; raise max_bytes or ask for less"),
    ],
)
async def test_failures_are_sorted_by_what_can_be_done(
    server: str, web: Web, page: str, kind: type[ToolError], happened: str, message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        await web.get(f"{server}/{page}")
    assert type(caught.value) is kind
    assert describe(caught.value).happened == happened


@pytest.mark.parametrize(
    ("page", "low", "high"),
    [("soon", 7, 7), ("busy", 8, 8), ("later", 80, 91), ("someday", None, None), ("digit", None, None)],
)
async def test_who_asks_to_come_back_later_says_when(
    server: str, web: Web, page: str, low: float | None, high: float
) -> None:
    with pytest.raises(RateLimited, match=r"answered (429|503)") as caught:
        await web.get(f"{server}/{page}")
    after = caught.value.retry_after_s
    assert after is None if low is None else after is not None and low <= after <= high


async def test_whoever_says_503_to_more_than_a_question_may_have_begun(server: str, web: Web) -> None:
    for method in ("POST", "PUT", "DELETE", "PROPFIND"):
        with pytest.raises(Transient, match="answered 503") as caught:
            await web.request(f"{server}/busy", method=method)
        described = describe(caught.value)
        assert (described.happened, described.retry_after_s) == ("unknown", 8)
    for method in ("GET", "OPTIONS"):
        with pytest.raises(RateLimited, match="answered 503"):
            await web.request(f"{server}/busy", method=method)


async def test_a_charge_that_was_answered_with_503_is_not_made_again(server: str, tmp_path: Path) -> None:
    Handler.seen.clear()
    (tmp_path / "holdfast.toml").write_text('[tools.http]\nallow = ["127.0.0.1"]\n')
    pay = {"id": "pay", "tool": "http.request", "with": {"url": f"{server}/overloaded", "json": {"a": 1}}}
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(pay))
        assert (await run.settled()).status == "waiting"
        assert (await step_of(run, "pay")).status == "in_doubt"
    assert len(Handler.seen) == 1


async def test_what_failed_before_it_was_sent_had_no_effect(server: str, unknown_authority: str, web: Web) -> None:
    for wrong in ("ftp://example.org", "no address", "http://[::1"):
        with pytest.raises(InvalidCall, match=r'url: expected an address such as "https://example.org", got "'):
            await web.get(wrong)
    with pytest.raises(InvalidCall, match=r"the request to .* cannot be sent"):
        await web.get(f"{server}/hello", headers={"bad\nname": "x"})
    with pytest.raises(Transient, match=r"could not be reached: 127.0.0.1:1: Connection refused") as refused:
        await web.request("http://127.0.0.1:1/")
    assert describe(refused.value).happened == "nothing"
    with pytest.raises(Transient, match=r'the host "no-such-host.invalid" is not known') as unknown:
        await web.request("http://no-such-host.invalid/")
    assert describe(unknown.value).happened == "nothing"
    with pytest.raises(Misconfigured, match=r"cannot be trusted: .*check the address and its certificate") as distrust:
        await web.request(unknown_authority)
    assert describe(distrust.value).happened == "nothing"
    with pytest.raises(Misconfigured, match=r"cannot be trusted"):
        await web.request(server.replace("http://", "https://"))


@pytest.mark.parametrize("first", ["pay-and-see", "pay-there"])
@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("http://no-such-host.invalid/", 'the host "no-such-host.invalid" is not known'),
        ("http://127.0.0.1:1/", "could not be reached"),
        ("ftp://127.0.0.1/", "expected an address"),
        ("http://10.0.0.1/", "only public addresses are reached"),
        ("/404", "answered 404"),
        ("/408", "answered 408"),
        ("/425", "answered 425"),
        ("/403", "answered 403"),
        ("/soon", "answered 429"),
        ("/busy", "answered 503"),
        ("/loop", "redirected more than 10 times"),
        ("/squeezed", "cannot be decompressed"),
    ],
)
async def test_after_a_request_was_answered_with_a_redirect_nothing_is_known_to_be_without_effect(
    server: str, web: Web, first: str, then: str, said: str
) -> None:
    with pytest.raises(Transient, match=rf"/{first}.* answered with a redirect, and then: .*{said}") as caught:
        await web.request(f"{server}/{first}?{then}")
    assert describe(caught.value).happened == "unknown"
    if first == "pay-and-see":
        with pytest.raises(ToolError, match=said) as harmless:
            await web.request(f"{server}/{first}?{then}", method="GET")
        assert "redirect, and then" not in str(harmless.value)


@pytest.mark.parametrize("charset", ["idna", "punycode", "undefined", "unicode_escape", "hex", "no-such"])
async def test_an_answer_in_an_encoding_that_is_none_is_still_an_answer(server: str, web: Web, charset: str) -> None:
    for show in (True, False):
        assert (await web.request(f"{server}/named?{charset}", show=show))["text"] == "café-\N{REPLACEMENT CHARACTER}"


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(server: str, web: Web) -> None:
    with pytest.raises(TooLarge, match=r"/hello sends more than 3 bytes; raise max_bytes or ask for less"):
        await web.get(f"{server}/hello", max_bytes=3)


async def test_what_is_packed_is_unpacked_no_further_than_there_is_room(server: str, web: Web) -> None:
    for path in ("packed", "deflated"):
        assert (await web.get(f"{server}/{path}"))["text"] == "tides"
    assert (await web.get(f"{server}/in-a-row"))["text"] == "first second"
    with pytest.raises(TooLarge, match=r"/bomb sends more than 1,000,000 bytes"):
        await web.get(f"{server}/bomb", max_bytes=1_000_000)
    with pytest.raises(ToolError, match=r"a body that is packed as 'gzip, gzip', which nobody asked for"):
        await web.get(f"{server}/twice")
    with pytest.raises(ToolError, match=r"a body that cannot be decompressed: it breaks off"):
        await web.get(f"{server}/cut")


async def test_no_call_takes_more_than_a_value_may_hold(server: str, web: Web) -> None:
    with pytest.raises(InvalidCall, match=r"http.get: max_bytes: "):
        await web.get(f"{server}/endless", max_bytes=10**12)


async def test_the_body_of_a_redirect_is_not_read(server: str, web: Web) -> None:
    assert (await web.get(f"{server}/endless-redirect"))["text"] == "hello you"


async def test_headers_for_one_host_are_not_shown_to_another(server: str, web: Web) -> None:
    headers = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Accept": "text/plain"}
    near = json.loads((await web.request(f"{server}/near", headers=headers))["text"])
    assert (near["authorization"], near["x-api-key"]) == ("Bearer s3cret", "s3cret")
    away = json.loads((await web.request(f"{server}/away", headers=headers))["text"])
    assert "s3cret" not in str(away)
    assert away["accept"] == "text/plain"


async def test_a_body_for_one_host_is_not_shown_to_another(server: str, web: Web) -> None:
    near = await web.request(f"{server}/near", json={"password": "s3cret"})
    assert (near["status"], Handler.seen[-1][3]) == (200, b'{"password":"s3cret"}')
    before = len(Handler.seen)
    told = (
        r"/away answered with a redirect, and then: .*/away sends the body on to another host, http://localhost:\d+/mir"
    )
    with pytest.raises(Transient, match=told) as refused:
        await web.request(f"{server}/away", json={"password": "s3cret"})
    assert describe(refused.value).happened == "unknown"
    assert [path for _, path, *_ in Handler.seen[before:]] == ["/away"]


async def test_what_one_execution_is_told_to_remember_is_not_said_by_another(server: str, web: Web) -> None:
    for _ in range(2):
        assert (await web.get(f"{server}/cookie"))["text"] == "none"


async def test_a_name_that_is_looked_up_for_ever_is_given_up(
    server: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60))
    monkeypatch.setattr(http_client, "CONNECT_TIMEOUT_S", 0.05)
    with pytest.raises(Transient, match=r'the host "slow.test" could not be looked up within 0.05 s') as gone:
        await web.get("http://slow.test/")
    assert describe(gone.value).happened == "nothing"
    over.set()


# ---- what may be reached ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
async def test_this_machine_is_not_reached_under_any_name(server: str, host: str) -> None:
    web = Web(allow=())
    port = server.rpartition(":")[2]
    before = len(Handler.seen)
    with pytest.raises(NotPermitted, match=r"is this machine|is a private address") as caught:
        await web.request(f"http://{host}:{port}/hello")
    assert describe(caught.value).happened == "nothing"
    assert len(Handler.seen) == before
    await web.family.close()


async def test_a_redirect_leads_nowhere_that_is_not_allowed(server: str) -> None:
    port = server.rpartition(":")[2]
    web = Web(allow=("localhost",))
    assert (await web.get(f"http://localhost:{port}/hello"))["status"] == 200
    with pytest.raises(NotPermitted, match=r"127\.0\.0\.1 is this machine; only public addresses are reached"):
        await web.get(f"http://localhost:{port}/inside")
    await web.family.close()


async def test_the_address_that_was_judged_is_the_one_connected_to(
    server: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that changes its mind: to its first answer, which may be reached, nobody listens; to its second, we do."""
    answers = iter(["127.0.0.2", "127.0.0.1"])

    def lookup(host: Any, port: Any, **_: Any) -> list[Any]:
        return [(None, None, None, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    before = len(Handler.seen)
    with pytest.raises(Transient, match="could not be reached"):
        await web.get(f"http://rebinding.test:{server.rpartition(':')[2]}/hello")
    assert len(Handler.seen) == before
    assert next(answers) == "127.0.0.1"  # it was looked up once


# ---- how much at once ------------------------------------------------------------------------------------------------


async def test_only_so_many_requests_go_to_one_host_at_once(server: str) -> None:
    Handler.most_at_once = 0
    web = Web(connections_per_host=3)
    await asyncio.gather(*(web.get(f"{server}/wait") for _ in range(12)))
    assert Handler.most_at_once == 3
    await web.family.close()


async def test_who_waits_for_a_connection_has_asked_nobody_and_is_held_back_when_the_breaker_opened(
    server: str,
) -> None:
    web = Web(connections_per_host=1)
    tool = web.tools["http.request"]
    arguments = tool.validate({"url": f"{server}/hello"})
    turns = web.family._client._turns_of(server.removeprefix("http://"))
    before = len(Handler.seen)
    assert turns.take_now()
    try:
        cut, held = (Call("execution", name, 1, "key", Path()) for name in ("cut", "held"))
        is_open: list[bool] = []
        held.gate = lambda: not is_open
        waiting = [asyncio.create_task(tool.invoke(arguments, call)) for call in (cut, held)]
        await until(lambda: len(turns._queue._items.get("execution", ())) == 2)
        waiting[0].cancel()
        with pytest.raises(NeverBegan):
            await waiting[0]
        is_open.append(True)
    finally:
        turns.over()
    with pytest.raises(HeldBack):
        await waiting[1]
    assert len(Handler.seen) == before
    assert turns.used == 0
    await web.family.close()


async def test_a_rate_is_not_forgotten_for_however_many_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "HOSTS_KEPT", 3)
    client = http_client.HttpClient(Reach(()), 4, parse_rate("1/h"))

    def may_ask(host: str) -> bool:
        turns = client._turns_of(host)  # pyright: ignore[reportPrivateUsage]
        if not turns.take_now():
            return False
        turns.over()
        return True

    assert [may_ask(host) for host in ("a", "b", "c")] == [True] * 3
    assert [may_ask(host) for host in ("d", "e", "a", "b", "c")] == [True, False, False, False, False]
    assert len(client._hosts) == 3  # pyright: ignore[reportPrivateUsage]


async def test_a_cancelled_request_gives_its_place_back(server: str) -> None:
    web = Web(connections_per_host=1)
    endless = asyncio.create_task(web.get(f"{server}/endless", max_bytes=10**7))
    await until(lambda: any(path == "/endless" for _, path, *_ in Handler.seen))
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)
    assert (await web.get(f"{server}/hello"))["status"] == 200
    await web.family.close()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rate_per_host": "often"}, 'tools.http.rate_per_host: expected a rate such as "10/s"'),
        ({"allow": ("10.0.0.0/99",)}, "tools.http.allow: expected a host"),
    ],
)
def test_a_mistake_in_the_settings_is_named_with_its_place(config: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        Http(Config(**config), HERE)
    assert str(refused.value).startswith(said)


async def test_calls_that_wait_for_a_connection_do_not_reach_a_host_whose_breaker_has_opened(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "holdfast.toml").write_text('[tools.http]\nallow = ["127.0.0.1"]\nconnections_per_host = 1\n')
    many = {
        "id": "ask", "for_each": list(range(30)), "tool": "http.get", "with": {"url": f"{server}/500"},
        "max_parallel": 30, "retry": 0, "critical": False,
    }  # fmt: skip
    before = len(Handler.seen)
    async with engine_at(tmp_path, check=False) as engine:
        run = await engine.start(plan(many))
        await until(lambda: any(breaker.state == "open" for _, _, breaker in engine.services.guards.breakers()))
        arrived = len(Handler.seen) - before
        await asyncio.sleep(0.2)
        assert len(Handler.seen) - before == arrived
        assert arrived < 30
        await run.stop()


@pytest.mark.parametrize(("number", "kind"), [(errno.EMFILE, ResourceShort), (errno.EHOSTUNREACH, Transient)])
def test_too_few_files_of_our_own_are_no_trouble_of_the_other_side(number: int, kind: type[ToolError]) -> None:
    import httpx

    below = OSError(number, os.strerror(number))
    error = httpx.ConnectError(os.strerror(number))
    error.__cause__ = below
    found = explained(error, "http://example.org", http_client.Trip())
    assert type(found) is kind
    assert describe(found).happened == "nothing"
