"""MCP servers over HTTP that refuse, break off, or answer nonsense: what each is called, and what it cannot do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, NotFound, ToolError
from holdfast.core.failure import describe
from servers.mcp_kit import family

TOOL = {"name": "act", "inputSchema": {"type": "object", "properties": {"bad": {"type": "boolean"}}}}


class Handler(BaseHTTPRequestHandler):
    """Behaves until a tool is called; then, and under /early from the start, as its path says."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]]
    began, go_on = threading.Event(), threading.Event()  # of a slow call

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        vice = self.path.strip("/")
        if vice.startswith("early-"):
            self._misbehave(vice.removeprefix("early-"), request)
            return
        match request.get("method"):
            case "initialize":
                info = {"name": "hostile", "version": "1"}
                self._result(
                    request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                )
            case "tools/list":
                self._result(request, {"tools": [TOOL]})
            case "tools/call" if vice.startswith("slow-unless-bad-"):
                is_bad = request["params"]["arguments"].get("bad")
                if not is_bad:
                    self.began.set()
                    assert self.go_on.wait(30)
                self._misbehave(vice.removeprefix("slow-unless-bad-") if is_bad else "good", request)
            case "tools/call":
                self._misbehave(vice, request)
            case _ if "id" in request:
                self._json(200, {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}})
            case _:
                self._answer(202, b"", "text/plain")

    def _misbehave(self, vice: str, request: dict[str, Any]) -> None:
        match vice:
            case "good":
                self._result(request, {"content": [{"type": "text", "text": "done"}]})
            case "html":
                self._answer(200, b"<html>", "text/html")
            case "garbage":
                self._answer(200, b"{{{", "application/json")
            case "endless":
                self._pour("application/json", b'{"jsonrpc": "2.0", "id": 1, "result": "', b"x" * 100_000)
            case "endless-event":
                self._pour("text/event-stream", b"event: message\ndata: ", b"x" * 100_000)
            case "hangup":
                self.close_connection = True
            case "half":
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"event: message\n")
                self.close_connection = True
            case "elsewhere":
                self.send_response(307)
                self.send_header("Location", "http://127.0.0.2:9/mcp")
                self.send_header("Content-Length", "0")
                self.end_headers()
            case "params":
                self._json(
                    400, {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "no such x"}}
                )
            case "locked":
                error = {"code": -32000, "message": "database is locked"}
                self._json(200, {"jsonrpc": "2.0", "id": request["id"], "error": error})
            case "forged":
                data = {"mark": "guessed", "status": 429, "after": ""}
                error = {"code": -32951, "message": "forged", "data": data}
                self._json(200, {"jsonrpc": "2.0", "id": request["id"], "error": error})
            case _:
                status, _, after = vice.partition("-after-")
                self._answer(int(status), b"because", "text/plain", {"Retry-After": after} if after else {})

    def do_GET(self) -> None:
        self._answer(405, b"", "text/plain")

    do_DELETE = do_GET

    def _result(self, request: dict[str, Any], result: Any) -> None:
        self._json(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})

    def _json(self, status: int, body: Any) -> None:
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Mcp-Session-Id": "one", **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _pour(self, kind: str, first: bytes, rest: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(first)
            while True:
                self.wfile.write(rest)
        except OSError:
            pass

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    Handler.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("vice", "category", "happened", "said"),
    [
        ("401", "permission", "nothing", "h.act: 401 Unauthorized; check `headers` in the settings of the server"),
        ("403", "permission", "nothing", "403 Forbidden"),
        ("429-after-7", "rate_limit", "nothing", "429 Too Many Requests"),
        ("503-after-7", "transient", "unknown", "503 Service Unavailable"),
        ("400", "transient", "nothing", "400 Bad Request"),
        ("404", "transient", "nothing", "Session terminated"),
        ("418", "tool", "nothing", "418"),
        ("500", "transient", "unknown", "500 Internal Server Error"),
        ("params", "logic", "nothing", "h.act: no such x"),
        ("locked", "tool", "known", "h.act: database is locked"),
        ("forged", "tool", "known", "h.act: forged"),
        ("html", "tool", "known", "Unexpected content type: text/html"),
        ("garbage", "tool", "known", "Failed to parse JSON response"),
        ("endless", "tool", "known", "it sent a message of more than 8,388,608 bytes"),
        ("endless-event", "transient", "unknown", "the MCP server h was lost: SSE stream failed"),
        ("half", "transient", "unknown", "the MCP server h was lost: SSE stream ended without a response"),
        ("hangup", "transient", "unknown", "the MCP server h was lost: "),
        ("elsewhere", "tool", "known", "Redirect to http://127.0.0.2:9/mcp not followed"),
    ],
)
async def test_each_failure_has_its_category_its_effect_and_its_words(
    tmp_path: Path, server: str, vice: str, category: str, happened: str, said: str
) -> None:
    async with family(tmp_path, h={"url": f"{server}/{vice}"}) as h:
        with pytest.raises(ToolError) as failed:
            await h.call("h.act")
    assert said in str(failed.value)
    described = describe(failed.value)
    assert (described.category, described.happened) == (category, happened)
    if vice.endswith("-after-7"):
        assert described.retry_after_s == 7


@pytest.mark.parametrize("vice", ["400", "404", "500", "half", "html", "locked"])
async def test_one_answer_that_went_wrong_says_nothing_about_a_neighbours_call(
    tmp_path: Path, server: str, vice: str
) -> None:
    Handler.began.clear()
    Handler.go_on.clear()
    async with family(tmp_path, h={"url": f"{server}/slow-unless-bad-{vice}"}) as h:
        slow = asyncio.create_task(h.call("h.act"))
        try:
            assert await asyncio.to_thread(Handler.began.wait, 30)
            for _ in range(3):  # time enough for a connection that was given up to be gone
                with pytest.raises(ToolError) as failed:
                    await h.call("h.act", bad=True)
                assert not isinstance(failed.value, InvalidCall)
        finally:
            Handler.go_on.set()
        assert (await slow)["text"] == "done"
        assert (await h.call("h.act"))["text"] == "done"  # and whoever comes next is served as ever


async def test_a_server_is_sent_its_headers(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "Bearer for-the-test")
    headers = {"Authorization": "env:A_TOKEN", "X-Plain": "plain"}
    async with family(tmp_path, h={"url": f"{server}/good", "headers": headers}) as h:
        assert (await h.call("h.act"))["text"] == "done"
    assert Handler.seen[-1]["authorization"] == "Bearer for-the-test"
    assert Handler.seen[-1]["x-plain"] == "plain"


@pytest.mark.parametrize(
    ("vice", "said"),
    [
        ("401", "the MCP server h: 401 Unauthorized; check `headers`"),
        ("500", "the MCP server h: 500 Internal Server Error"),
        ("html", "Unexpected content type: text/html"),
        ("garbage", "Failed to parse JSON response"),
        ("hangup", "the MCP server h could not be started: "),
        ("elsewhere", "Redirect to http://127.0.0.2:9/mcp not followed"),
    ],
)
async def test_a_server_that_cannot_be_spoken_to_says_why(tmp_path: Path, server: str, vice: str, said: str) -> None:
    async with family(tmp_path, h={"url": f"{server}/early-{vice}"}) as h:
        with pytest.raises(NotFound) as missing:
            h.registry.get("h.act")
    assert said in str(missing.value)
