"""Tools of real MCP servers: those of the protocol itself, over stdio and HTTP, and their end with the engine."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import InvalidCall, ToolError, Transient
from holdfast.core.failure import describe
from holdfast.tools.call import Call, Silent
from servers.mcp_kit import NPM, Family, family, needs_servers, node

pytestmark = needs_servers


class Watcher(Silent):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def progress(self, call: Call, percent: float, text: str) -> None:
        self.seen.append(percent)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Remote:
    """server-everything over HTTP, which can be stopped and started again at the same address."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {"PATH": os.environ["PATH"], "PORT": str(self.port)}
        command = ["node", str(NPM / "server-everything" / "dist" / "index.js"), "streamableHttp"]
        self._process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        while b"listening" not in (line := self._process.stderr.readline()).lower():
            assert line, "the server ended"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture
def remote() -> Iterator[Remote]:
    server = Remote()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Family]:
    if request.param == "stdio":
        settings = node("server-everything", "stdio")
    else:
        settings = {"url": request.getfixturevalue("remote").url}
    async with family(tmp_path, everything=settings) as opened:
        yield opened


async def test_the_reference_server_answers_with_text_data_images_links_and_progress(everything: Family) -> None:
    echoed = await everything.call("everything.echo", message="hallo")
    assert echoed == {"text": "Echo: hallo", "data": None, "parts": []}
    weather = await everything.call("everything.get-structured-content", location="Chicago")
    assert isinstance(weather["data"]["temperature"], int | float)
    image = await everything.call("everything.get-tiny-image")
    assert base64.b64decode(image["parts"][0]["base64"]).startswith(b"\x89PNG")
    links = await everything.call("everything.get-resource-links", count=2)
    assert [part["type"] for part in links["parts"]] == ["link", "link"]
    watcher = Watcher()
    await everything.call("everything.trigger-long-running-operation", host=watcher, duration=0.2, steps=4)
    assert watcher.seen[-1] == 100
    assert watcher.seen == sorted(watcher.seen)


async def test_wrong_arguments_are_told_before_the_server_is_asked(everything: Family) -> None:
    add = everything.registry.get("everything.get-sum")
    with pytest.raises(InvalidCall, match=r'everything\.get-sum: b: expected a number, got the string "3"'):
        add.validate({"a": 1, "b": "3"})
    assert add.check({"a": "${{ x }}", "c": 1}, frozenset({"a"})) == [
        ("c", "no such argument; everything.get-sum takes a, b"),
        ("b", "is missing: expected a number"),
    ]
    (odd,) = everything.registry.get("everything.get-structured-content").check({"location": "Atlantis"})
    assert odd == ("location", 'expected one of "New York", "Chicago", "Los Angeles", got the string "Atlantis"')


async def test_a_call_that_is_cut_leaves_the_server_usable(everything: Family) -> None:
    watcher = Watcher()
    long = everything.call("everything.trigger-long-running-operation", host=watcher, duration=60, steps=600)
    task = asyncio.ensure_future(long)
    while not watcher.seen:  # noqa: ASYNC110 -- another process decides
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await everything.call("everything.echo", message="still there"))["text"] == "Echo: still there"


async def test_a_server_over_http_that_goes_and_comes_back(remote: Remote, tmp_path: Path) -> None:
    async with family(tmp_path, everything={"url": remote.url}) as opened:
        remote.stop()
        with pytest.raises(Transient) as gone:
            await opened.call("everything.echo", message="x")
        assert describe(gone.value).happened == "nothing"  # nobody was there to hear it
        remote.start()
        assert (await opened.call("everything.echo", message="x"))["text"] == "Echo: x"
        remote.stop()
        remote.start()  # unnoticed: it does not know the session any more
        with pytest.raises(Transient) as forgotten:
            await opened.call("everything.echo", message="x")
        assert describe(forgotten.value).happened == "nothing"
        assert (await opened.call("everything.echo", message="x"))["text"] == "Echo: x"


async def test_files_of_the_filesystem_server_stay_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.txt").write_text("secret")
    async with family(tmp_path, fs=node("server-filesystem", str(tmp_path / "in"), trust_hints=True)) as fs:
        assert fs.registry.get("fs.write_file").effect == "idempotent"
        assert fs.registry.get("fs.read_text_file").effect == "read"
        assert fs.registry.get("fs.move_file").effect == "once"
        await fs.call("fs.write_file", path=str(tmp_path / "in" / "a.txt"), content="tides")
        assert (tmp_path / "in" / "a.txt").read_text() == "tides"
        with pytest.raises(ToolError, match="Access denied") as refused:
            await fs.call("fs.read_text_file", path=str(tmp_path / "out.txt"))
        assert describe(refused.value).category == "tool"


# ---- processes -------------------------------------------------------------------------------------------------------

HOLDER = """
import asyncio, sys
from pathlib import Path
import holdfast

async def main():
    async with holdfast.Engine() as engine:
        run = await engine.start({"name": "hold", "steps": [{"id": "a", "tool": "s.echo", "with": {"message": "hi"}}]})
        await run.result()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children_of(int(child))]
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_server_dies_with_its_engine_even_by_sigkill(tmp_path: Path) -> None:
    command = json.dumps(node("server-everything", "stdio")["command"])
    (tmp_path / "holdfast.toml").write_text(f"[tools.mcp.servers.s]\ncommand = {command}\n")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        below = [pid for pid in _children_of(holder.pid) if b"node" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert below
        watched = [os.pidfd_open(pid) for pid in below]
        holder.send_signal(signal.SIGKILL)
        for descriptor in watched:
            assert select.select([descriptor], [], [], 20)[0], "the server outlived its engine"
            os.close(descriptor)
    finally:
        holder.kill()
        holder.communicate()
