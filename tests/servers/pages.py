"""A small web site on loopback for the tests of the browser tools, and what they need to skip where there is none."""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.tools.browser.chromium import NAMES

needs_browser = pytest.mark.skipif(
    importlib.util.find_spec("playwright") is None or not any(map(shutil.which, NAMES)),
    reason="needs Chromium and the extra browser",
)

PAGES = {
    "hello": "<title>Hello</title><h1>Good morning</h1><p class=a>one</p><p class=a>two</p>"
    "<a href=/form>to the form</a><a id=out href='http://10.255.255.1/'>out</a>",
    "form": "<title>Form</title><form action=/sent><input id=name name=name value=old><input id=fixed readonly>"
    "<button id=go>send</button><button id=off disabled type=button>off</button></form>",
    "slow": "<title>Slow</title><div id=here>there</div><p id=gone>soon gone</p><script>"
    "setTimeout(() => { here.insertAdjacentHTML('afterend', '<b id=late>late text</b>'); gone.remove();"
    " history.pushState(0, '', '/slow/done') }, 100)</script>",
    "busy": "<title>Busy</title><script>fetch('/begin').then(() => { const asked = new XMLHttpRequest();"
    " asked.open('GET', '/begun', false); asked.send(); for (;;); })</script>",
    "popups": "<title>Popups</title><button onclick='for (let i = 0; i < 20; i++) open(\"/hello\")'>more</button>",
    "tall": "<title>Tall</title><div style='height: 100000px; width: 2000px'></div>",
    "loads": "<title>Loads</title><img src='http://10.255.255.1/x.png'><script src=/script.js></script>",
    "cookie": "<title>Cookie</title><script>document.title = document.cookie || 'none';"
    " document.cookie = 'me=known'</script>",
    "blank": "<title>Blank</title><a id=new target=_blank href=/hello>new</a>",
    "stuck": '<title>Stuck</title><button id=go onclick="const asked = new XMLHttpRequest();'
    " asked.open('GET', '/never', false); asked.send()\">go</button>",
    "socket": "<title>Socket</title><script>new WebSocket('ws://10.255.255.2/').onerror ="
    " () => { document.title = 'refused' }</script>",
    "hog": "<title>Hog</title><script>fetch('/begin').then(() => { const all = [];"
    " for (;;) all.push(Array(100000).fill(0).map(n => [n])) })</script>",
    "bytes": "<title>Bytes</title><script>const held = []; fetch('/begin').then(() => setInterval(() => {"
    " if (held.length < 60) held.push(new Uint8Array(25e6).fill(7)) }, 20))</script>",
    "covered": "<title>Covered</title><button id=under>x</button><div style='position:fixed;inset:0'></div>",
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("?")[0].partition("/")[0]
        self.server.seen.append(self.path)
        match name:
            case "moved":
                self._answer(302, "", {"Location": "/hello"})
            case "inside":
                self._answer(302, "", {"Location": "http://10.255.255.1/secret"})
            case "loop":
                self._answer(302, "", {"Location": "/loop"})
            case "download":
                self._answer(200, "x" * 100, {"Content-Disposition": "attachment; filename=x.bin"})
            case "never":
                self.server.held.wait(30)
                self._answer(200, "at last", {})
            case "begin":
                self.server.begin.wait(30)
                self._answer(200, "now", {})
            case "begun":
                self._answer(200, "so it has", {})
            case "sent":
                self._answer(200, f"<title>Sent</title><p id=what>{self.path.partition('?')[2]}</p>", {})
            case "script.js":
                self._answer(200, "document.title = 'Scripted'", {"Content-Type": "text/javascript"})
            case _ if name in PAGES:
                self._answer(200, PAGES[name], {})
            case _ if name.isdigit():
                self._answer(int(name), "because", {"Retry-After": "7"} if name == "429" else {})
            case _:
                self._answer(404, "", {})

    def _answer(self, status: int, text: str, headers: dict[str, str]) -> None:
        body = text.encode()
        given = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body)), **headers}
        self.send_response(status)
        for key, value in given.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the browser went away

    def log_message(self, format: str, *args: Any) -> None: ...


class Site(ThreadingHTTPServer):
    """`seen` are the paths that were asked for; `/never` is answered when `held` is set, `/begin` with `begin`: pages
    that misbehave ask for it first, since one that began by itself might do so while it is still being opened."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[str] = []
        self.held = threading.Event()
        self.begin = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None: ...


@contextmanager
def served(wrap: Any = None) -> Iterator[Site]:
    """The site while it is served; `wrap` may put TLS around its socket."""
    with Site() as site:
        if wrap is not None:
            site.socket = wrap(site.socket)
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.held.set()
            site.begin.set()
            site.shutdown()
            thread.join()
