"""A token that has expired: it is fetched once more, from where its secret comes from, and the step tried once more."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import engine_at, plan, result, settled, step, step_of

TOKEN = "${{ secrets.TOKEN }}"


class Api(BaseHTTPRequestHandler):
    """Lets in whoever has the newest token: for pages, for a search as Brave's, and as an MCP server."""

    protocol_version = "HTTP/1.1"
    newest = ""
    asked: list[tuple[str, str]]  # the tokens that came, each with what for

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        came = self.headers.get("Authorization", "") or self.headers.get("X-Subscription-Token", "")
        request = json.loads(body) if self.path == "/mcp" and body else {}
        what = request.get("method", self.path)
        self.asked.append((came.removeprefix("Bearer "), what))
        if came.removeprefix("Bearer ") != self.newest:
            self._answer(401, {"error": "token expired"})
        elif self.path != "/mcp":
            self._answer(200, {"web": {"results": []}})
        elif "id" not in request:
            self._answer(202 if body else 405, None)
        elif what in _RESULTS:
            self._answer(200, {"jsonrpc": "2.0", "id": request["id"], "result": _RESULTS[what]})
        else:
            self._answer(200, {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}})

    do_POST = do_DELETE = do_GET

    def _answer(self, status: int, body: Any) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None: ...


_RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}  # fmt: skip


class Place:
    """A project with one secret, and the server that wants it."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.url = f"http://{host}/"
        self.file = folder / "token.txt"
        self.log = folder / "asked.log"
        self._host = host
        self.rotate("token-0001")

    def rotate(self, token: str) -> None:
        self.file.write_text(token)
        Api.newest = token

    def expire(self, token: str) -> None:
        """The server wants another one from now on; where the secret comes from has it already."""
        self.rotate(token)

    def settings(self, source: str, more: str = "") -> None:
        script = f"cat {shlex.quote(str(self.file))}; echo asked >> {shlex.quote(str(self.log))}"
        sources = {
            "command": f"{{command = {json.dumps(['sh', '-c', script])}}}",
            "file": '{file = "token.txt"}',
            "env": '{env = "HOLDFAST_TEST_TOKEN"}',
        }
        (self.folder / "holdfast.toml").write_text(
            f'[secrets]\nTOKEN = {sources[source]}\n[tools.http]\nallow = ["{self._host}"]\n{more}'
        )

    def times_asked(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    Api.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Place(tmp_path, f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def get(step_id: str, url: str, tool: str = "http.get", **more: Any) -> dict[str, Any]:
    return step(step_id, tool, **{"with": {"url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}}, **more)


@pytest.mark.parametrize("tool", ["http.get", "http.request"])
async def test_token_of_a_command_is_asked_for_again_after_a_refusal(place: Place, tool: str) -> None:
    place.settings("command")
    async with engine_at(place.folder) as engine:
        assert await settled(await engine.start(plan(get("a", place.url)))) == "completed"
        place.expire("token-0002")
        run = await engine.start(plan(get("a", place.url, tool)))
        assert await settled(run) == "completed"
        kept = await step_of(run, "a")
        assert (kept.attempt, kept.refreshed) == (2, True)
    assert [token for token, _ in Api.asked] == ["token-0001", "token-0001", "token-0002"]
    assert place.times_asked() == 2


async def test_steps_that_are_refused_together_ask_the_command_once(place: Place) -> None:
    place.settings("command")
    async with engine_at(place.folder) as engine:
        assert await settled(await engine.start(plan(get("a", place.url)))) == "completed"
        place.expire("token-0002")
        run = await engine.start(plan(get("a", place.url, for_each=[1, 2, 3, 4, 5, 6], max_parallel=6)))
        assert await settled(run) == "completed"
    assert place.times_asked() == 2


async def test_token_of_a_file_is_read_again_and_a_second_refusal_counts(place: Place) -> None:
    place.settings("file")
    Api.newest = "token-0002"
    async with engine_at(place.folder) as engine:
        run = await engine.start(plan(get("a", place.url)))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "a")).failure
        assert failure is not None
        assert failure.category == "permission"
    assert len(Api.asked) == 2


async def test_token_of_a_variable_stays_what_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "token-0000")
    place.settings("env")
    async with engine_at(place.folder) as engine:
        run = await engine.start(plan(get("a", place.url)))
        assert await settled(run) == "failed"
    assert len(Api.asked) == 1


async def test_refresh_hook_finds_the_kept_value_dropped(place: Place) -> None:
    place.settings("command")
    seen: list[tuple[str, str]] = []

    @holdfast.tool(effect="read")
    async def enter(token: str) -> str:
        seen.append(("call", token))
        if token != Api.newest:
            raise holdfast.NotPermitted("expired")
        return "in"

    @enter.refresh
    async def renew(call: holdfast.Call, arguments: dict[str, Any]) -> None:
        seen.append(("refresh", arguments["token"]))

    async with engine_at(place.folder, enter) as engine:
        enters = plan(step("a", "enter", **{"with": {"token": TOKEN}}))
        assert await result(await engine.start(enters)) == "in"
        place.expire("token-0002")
        assert await result(await engine.start(enters)) == "in"
    assert seen[1:] == [("call", "token-0001"), ("refresh", "token-0002"), ("call", "token-0002")]


async def test_key_of_a_search_provider_may_be_a_secret_and_is_fetched_anew(place: Place) -> None:
    host = place.url.removeprefix("http://").rstrip("/")
    provider = f'{{kind = "brave", url = "{place.url}", key = "{TOKEN}"}}'
    place.settings("command", f'[tools.search]\ncache = "0s"\nallow = ["{host}"]\nproviders = [{provider}]\n')
    asks = plan(step("a", "search.web", **{"with": {"query": "tides"}}))
    async with engine_at(place.folder) as engine:
        assert await settled(await engine.start(asks)) == "completed"
        place.expire("token-0002")
        run = await engine.start(asks)
        assert await settled(run) == "completed"
        place.file.write_text("token-0002")
        Api.newest = "token-0003"
        run = await engine.start(asks)
        assert await settled(run) == "failed"
    tokens = [token for token, _ in Api.asked]
    assert tokens == ["token-0001", "token-0001", "token-0002", "token-0002"]  # the same key is not shown again


async def test_header_of_an_mcp_server_may_be_a_secret_and_is_fetched_anew(place: Place) -> None:
    server = f'[tools.mcp.servers.s]\nurl = "{place.url}mcp"\nheaders = {{Authorization = "Bearer {TOKEN}"}}\n'
    place.settings("command", server)
    acts = plan(step("a", "s.act"))
    async with engine_at(place.folder) as engine:
        assert (await result(await engine.start(acts)))["text"] == "done"
        place.expire("token-0002")
        run = await engine.start(acts)
        assert (await result(run))["text"] == "done"
        kept = await step_of(run, "a")
        assert (kept.effect, kept.attempt, kept.refreshed) == ("once", 2, True)
    calls = [token for token, what in Api.asked if what == "tools/call"]
    assert calls == ["token-0001", "token-0001", "token-0002"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[tools.mcp.servers.s]\nurl = "http://a/"\nheaders = {A = "${{ inputs.x }}"}\n', "tools.mcp.servers.s: "),
        ('[[tools.search.providers]]\nkind = "brave"\nurl = "http://a/"\nkey = "${{ x }}"\n', "tools.search: "),
    ],
)
def test_other_expression_in_the_settings_is_refused(place: Place, settings: str, said: str) -> None:
    place.settings("env", settings)
    with pytest.raises(holdfast.HoldfastError) as refused:
        holdfast.Engine(folder=place.folder)
    assert said in str(refused.value)
    assert "only ${{ secrets.NAME }} has a meaning" in str(refused.value)


async def test_secret_of_a_server_that_is_missing_is_told_before_anything_starts(place: Place) -> None:
    server = f'[tools.mcp.servers.s]\nurl = "{place.url}mcp"\nheaders = {{Authorization = "Bearer {TOKEN}"}}\n'
    place.settings("command", server)
    async with engine_at(place.folder) as engine:
        await result(await engine.start(plan(step("a", "s.act"))))
    place.settings("file", server)
    place.file.unlink()
    async with engine_at(place.folder) as engine:
        with pytest.raises(holdfast.HoldfastError, match="the secret TOKEN cannot be read"):
            await engine.start(plan(step("a", "s.act")))
