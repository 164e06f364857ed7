"""A web server that answers with the statuses it is told, one after the other, and counts what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Statuses:
    def __init__(self, *statuses: int, headers: dict[str, str]) -> None:
        self.left = list(statuses)
        self.headers = headers
        self.asked: list[str] = []  # how each request had signed itself
        self.url = ""

    def next(self, authorization: str) -> int:
        self.asked.append(authorization)
        return self.left.pop(0) if self.left else 200


@contextmanager
def answering(*statuses: int, **headers: str) -> Iterator[Statuses]:
    """After these it answers 200. `Retry_After="7"` is sent with every answer that is not one."""
    told = Statuses(*statuses, headers={name.replace("_", "-"): value for name, value in headers.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = told.next(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in told.headers.items() if status != 200 else ():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()
