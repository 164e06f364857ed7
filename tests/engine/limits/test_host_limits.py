"""Limits of a host: shared by all executions, fair between them, and nobody who waits for one holds anything."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import holdfast
from engine.kit import echo, engine_at, plan, result, seen, step, until


class Host:
    """A real web server on loopback that knows in which order it was asked for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def host() -> Generator[Host]:
    found = Host()

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.strip("/")
            found.asked.append(path)
            self.send_response(302 if path == "moved" else 200)
            if path == "moved":
                self.send_header("Location", "/there")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@holdfast.function
async def many(ctx: holdfast.Context, url: str, calls: int, tool: str = "http.get") -> int:
    return len(await ctx.gather(*(ctx.call(tool, url, name=f"ask{number}") for number in range(calls))))


def at(folder: Path, **limits: str | int) -> Path:
    said = "\n".join(f"{name} = {value!r}" for name, value in limits.items())
    (folder / "holdfast.toml").write_text(f'[tools.http]\nallow = ["127.0.0.1"]\n{said}\n')
    return folder


async def test_executions_take_turns_at_a_host_whoever_has_more_to_ask(tmp_path: Path) -> None:
    with host() as web:
        async with engine_at(at(tmp_path, rate_per_host="100/s"), functions=[many]) as engine:
            greedy = await engine.start(many, inputs={"url": f"{web.url}/greedy", "calls": 80})
            await until(lambda: len(web.asked) >= 3)
            inputs = {"url": f"{web.url}/modest", "calls": 5, "tool": "http.request"}  # another tool, the same host
            assert await result(await engine.start(many, inputs=inputs)) == 5
            assert web.asked.count("greedy") < 80
            await result(greedy)
            turns = [number for number, path in enumerate(web.asked) if path == "modest"]
            between = web.asked[turns[0] : turns[-1]].count("greedy")
            assert between <= 20  # in turns, though some may overtake each other on their way


async def test_one_host_that_is_slow_keeps_nobody_from_another_or_from_other_tools(tmp_path: Path) -> None:
    limits = holdfast.Limits(steps=2)
    folder = at(tmp_path, rate_per_host="1/h")
    with host() as slow, host() as other:
        async with engine_at(folder, echo, functions=[many], limits=limits) as engine:
            waiting = await engine.start(many, inputs={"url": f"{slow.url}/a", "calls": 10})
            await seen(waiting, "task:waiting")  # nine have not begun: the process has both of its places
            assert engine.services.guards.everybody.used == 0
            assert slow.asked == ["a"]
            assert await result(await engine.start(many, inputs={"url": f"{other.url}/b", "calls": 1})) == 1
            assert await result(await engine.start(plan(step("one", "echo", **{"with": {"value": 3}})))) == 3
            await waiting.stop()


async def test_a_redirect_within_a_host_needs_no_second_place(tmp_path: Path) -> None:
    with host() as web:
        async with engine_at(at(tmp_path, connections_per_host=1), functions=[many]) as engine:
            assert await result(await engine.start(many, inputs={"url": f"{web.url}/moved", "calls": 3})) == 3
            assert sorted(web.asked) == ["moved", "moved", "moved", "there", "there", "there"]


async def test_a_turn_that_a_stopped_execution_waited_for_goes_to_the_next(tmp_path: Path) -> None:
    with host() as web:
        async with engine_at(at(tmp_path, rate_per_host="20/s"), functions=[many]) as engine:
            first = await engine.start(many, inputs={"url": f"{web.url}/first", "calls": 50})
            await until(lambda: len(web.asked) >= 2)
            second = await engine.start(many, inputs={"url": f"{web.url}/second", "calls": 3})
            await first.stop()
            assert await result(second) == 3
            assert web.asked[-3:] == ["second"] * 3
