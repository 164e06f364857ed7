"""Where notices arrive in tests: a real webhook receiver and a real mail server, both on loopback."""

from __future__ import annotations

import email
import email.policy
import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


class Hook:
    """`refuse` many posts are turned away first; while `patience` is not set, an answer is not given."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.refuse = 0
        self.refused = 0
        self.arrived = threading.Event()
        self.patience = threading.Event()
        self.patience.set()
        self.address = ""

    @property
    def titles(self) -> list[str]:
        return [letter["title"] for letter in self.got]


@contextmanager
def receiving() -> Generator[Hook]:
    hook = Hook()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if hook.refuse:
                hook.refuse -= 1
                hook.refused += 1
                self.send_response(503)
            else:
                hook.got.append(body)
                hook.arrived.set()
                hook.patience.wait(30)
                self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

        def handle(self) -> None:
            with suppress(ConnectionError):  # whoever sent it may have been killed
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as listening:
        hook.address = f"json://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hook
        finally:
            hook.patience.set()
            listening.shutdown()
            thread.join()


class Mailbox:
    def __init__(self, address: str) -> None:
        self.address = address
        self.mails: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 OK"


@contextmanager
def mailing() -> Generator[Mailbox]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    box = Mailbox(f"mailto://127.0.0.1:{port}/?from=holdfast@example.test&to=ann@example.test&mode=insecure")
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
