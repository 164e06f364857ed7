"""The built-in tools: what they do, and that every way to fail says what to do about it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import (
    InvalidCall,
    Misconfigured,
    NotPermitted,
    RateLimited,
    ResourceShort,
    ToolError,
    Transient,
)
from holdfast.core.failure import describe
from holdfast.tools import clock, files, http, shell
from holdfast.tools.call import Call
from holdfast.tools.tool import Tool


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.first = asyncio.Event()

    async def note(self, call: Call, data: bytes) -> None: ...

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        assert (role, streaming) == ("tool", True)
        self.said.append(content)
        self.first.set()

    def progress(self, call: Call, percent: float, text: str) -> None: ...


async def run(tool: Tool[..., Any], folder: Path, host: Listener | None = None, **arguments: Any) -> Any:
    """As a step does it: validate, call, check the output."""
    call = Call("execution", "step", 1, "key", folder, None, host or Listener())
    value = await tool.invoke(tool.validate(arguments), call)
    tool.output(value)
    return value


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- shell.run -------------------------------------------------------------------------------------------------------


async def test_a_command_line_goes_through_the_shell_and_a_list_does_not(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    done = await run(
        shell.run, tmp_path, command='echo "$A"; pwd; cat; echo err >&2', env={"A": "a b"}, cwd="sub", stdin="in"
    )
    assert done == {"exit_code": 0, "stdout": f"a b\n{tmp_path}/sub\nin", "stderr": "err\n", "truncated": False}
    done = await run(shell.run, tmp_path, command=["echo", "$A", "&&"])
    assert done["stdout"] == "$A &&\n"


async def test_a_failed_command_is_a_known_failure_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        await run(shell.run, tmp_path, command="for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3")
    assert str(caught.value).splitlines() == [
        "exit code 3 from: for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3",
        *(f"line {number}" for number in range(3, 8)),
    ]
    failure = describe(caught.value)
    assert (failure.category, failure.happened) == ("tool", "known")
    with pytest.raises(ToolError, match=r"killed by SIGKILL from: kill -9 \$\$"):
        await run(shell.run, tmp_path, command="kill -9 $$")


async def test_a_command_that_cannot_be_started_had_no_effect(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r'no such program: "nope"; install it') as caught:
        await run(shell.run, tmp_path, command=["nope"])
    assert describe(caught.value).happened == "nothing"
    with pytest.raises(Misconfigured, match=r"cannot run in the folder .*/gone: No such file or directory; create it"):
        await run(shell.run, tmp_path, command="true", cwd="gone")
    for nothing in ("", " ", [], [""]):
        with pytest.raises(InvalidCall, match="command: expected a program to run, got nothing"):
            await run(shell.run, tmp_path, command=nothing)


async def test_output_beyond_the_limit_is_dropped_and_said_so(tmp_path: Path) -> None:
    listener = Listener()
    done = await run(shell.run, tmp_path, listener, command="head -c 3000000 /dev/zero | tr '\\0' x; echo >&2")
    assert (len(done["stdout"]), done["stderr"], done["truncated"]) == (shell.OUTPUT_BYTES_MAX, "\n", True)
    assert sum(map(len, listener.said)) == shell.OUTPUT_BYTES_MAX + 1


async def test_lines_are_shown_while_the_command_still_runs(tmp_path: Path) -> None:
    listener = Listener()
    command = "echo one; while [ ! -e go ]; do sleep 0.01; done; printf two"
    task = asyncio.create_task(run(shell.run, tmp_path, listener, command=command))
    await asyncio.wait_for(listener.first.wait(), 10)
    assert listener.said == ["one\n"]
    (tmp_path / "go").touch()
    assert (await task)["stdout"] == "one\ntwo"
    assert listener.said == ["one\n", "two"]


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
async def test_cancelling_ends_the_whole_tree_soon(tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "KILL_GRACE_S", 0.05)
    listener = Listener()
    task = asyncio.create_task(run(shell.run, tmp_path, listener, command=f"{trap} sleep 600 & echo $!; wait"))
    await asyncio.wait_for(listener.first.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_gone(int(listener.said[0]))


async def test_cancelling_twice_does_not_wait_for_a_stubborn_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "KILL_GRACE_S", 600)
    listener = Listener()
    task = asyncio.create_task(
        run(shell.run, tmp_path, listener, command="trap '' TERM; echo $$; while :; do sleep 1; done")
    )
    await asyncio.wait_for(listener.first.wait(), 10)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_gone(int(listener.said[0]))


# ---- files -----------------------------------------------------------------------------------------------------------


async def test_what_is_written_can_be_read_and_leaves_no_litter(tmp_path: Path) -> None:
    written = await run(files.write, tmp_path, path="a/b/c.txt", text="grüße\n")
    assert written == {"path": str(tmp_path / "a/b/c.txt"), "bytes": 8}
    assert await run(files.read, tmp_path, path="a/b/c.txt") == "grüße\n"
    assert await run(files.read, Path("/"), path=str(tmp_path / "a/b/c.txt")) == "grüße\n"
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]


async def test_a_rewritten_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    await run(files.write, tmp_path, path="link", text="new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


async def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceShort, match=r"f: the disk is full; free some space"):
        await run(files.write, tmp_path, path="f", text="new")
    assert (os.listdir(tmp_path), (tmp_path / "f").read_text()) == (["f"], "old")


async def test_files_that_cannot_be_used_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big").write_text("x" * 11)
    (tmp_path / "binary").write_bytes(b"ab\xff")
    os.mkfifo(tmp_path / "pipe")
    cases: list[tuple[type[ToolError], str, Tool[..., Any], dict[str, Any]]] = [
        (Misconfigured, r"no file at .*/gone; correct the path", files.read, {"path": "gone"}),
        (InvalidCall, r" is a folder; give the path of a file", files.read, {"path": "."}),
        (InvalidCall, r"pipe is not a regular file; only files can be read", files.read, {"path": "pipe"}),
        (InvalidCall, r"big has more than 10 bytes; raise max_bytes", files.read, {"path": "big", "max_bytes": 10}),
        (InvalidCall, r"binary is not UTF-8 text \(byte 2 cannot be read\)", files.read, {"path": "binary"}),
        (InvalidCall, r"path: '.*a\\x00b' is not a path", files.read, {"path": "a\0b"}),
        (InvalidCall, r"File name too long; choose another path", files.read, {"path": "a" * 300}),
        (InvalidCall, r" is a folder; give the path of a file", files.write, {"path": ".", "text": ""}),
        (Misconfigured, r"no file at .*/big/under; correct the path", files.read, {"path": "big/under"}),
    ]
    for kind, message, tool, arguments in cases:
        with pytest.raises(kind, match=message):
            await run(tool, tmp_path, **arguments)
    with pytest.raises(InvalidCall, match="text: character 1 is a lone surrogate, which UTF-8 cannot hold"):
        await run(files.write, tmp_path, path="f", text="x\ud800")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise refusal

    monkeypatch.setattr(os, "replace", refuse)
    refusal: OSError = PermissionError(13, "Permission denied")
    with pytest.raises(NotPermitted, match="permission denied; check who may use it"):
        await run(files.write, tmp_path, path="f", text="x")
    refusal = OSError(30, "Read-only file system")
    with pytest.raises(NotPermitted, match="the file system is read-only; choose another folder"):
        await run(files.write, tmp_path, path="f", text="x")
    refusal = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output error"):
        await run(files.write, tmp_path, path="f", text="x")


# ---- http.get --------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name == "hello":
            self._answer(200, f"hello {self.headers.get('x-name', 'you')}".encode(), {"X-One": "1"})
        elif name == "latin":
            self._answer(200, b"gr\xfc\xdfe", {"Content-Type": "text/plain; charset=latin-1"})
        elif name == "odd":
            self._answer(200, b"odd", {"Content-Type": "text/plain; charset=no-such"})
        elif name == "squeezed":
            self._answer(200, b"not gzip", {"Content-Encoding": "gzip"})
        elif name == "loop":
            self._answer(302, b"", {"Location": "/loop"})
        elif name == "moved":
            self._answer(302, b"", {"Location": "/hello"})
        elif name == "hangup":
            self.close_connection = True
        elif name == "soon":
            self._answer(429, b"", {"Retry-After": "7"})
        elif name == "later":
            moment = datetime.now(UTC) + timedelta(seconds=90)
            self._answer(429, b"", {"Retry-After": format_datetime(moment, usegmt=True)})
        elif name == "someday":
            self._answer(429, b"", {"Retry-After": "someday"})
        else:
            self._answer(int(name), b"because", {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


async def get(url: str, **arguments: Any) -> Any:
    return await run(http.get, Path(), url=url, **arguments)


async def test_a_page_is_fetched_with_its_headers(server: str) -> None:
    page = await get(f"{server}/hello", headers={"x-name": "me"})
    assert (page["status"], page["text"], page["headers"]["x-one"]) == (200, "hello me", "1")
    assert (await get(f"{server}/moved"))["text"] == "hello you"
    assert (await get(f"{server}/latin"))["text"] == "grüße"
    assert (await get(f"{server}/odd"))["text"] == "odd"


@pytest.mark.parametrize(
    ("page", "kind", "happened", "message"),
    [
        ("500", Transient, "unknown", r"/500 answered 500 Internal Server Error: because"),
        ("401", NotPermitted, "nothing", r"/401 answered 401 Unauthorized: because; check the credentials in headers"),
        ("403", NotPermitted, "nothing", r"/403 answered 403 Forbidden: because; check the credentials"),
        ("404", ToolError, "nothing", r"/404 answered 404 Not Found: because"),
        ("hangup", Transient, "unknown", r"/hangup could not be reached: Server disconnected"),
        ("loop", ToolError, "known", r"/loop redirected more than 10 times; check the address"),
        ("squeezed", ToolError, "known", r"/squeezed sent a body that cannot be decompressed"),
    ],
)
async def test_failures_are_sorted_by_what_can_be_done(
    server: str, page: str, kind: type[ToolError], happened: str, message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        await get(f"{server}/{page}")
    assert type(caught.value) is kind
    assert describe(caught.value).happened == happened


@pytest.mark.parametrize(("page", "low", "high"), [("soon", 7, 7), ("later", 80, 91), ("someday", None, None)])
async def test_a_rate_limit_says_when_to_come_back(server: str, page: str, low: float | None, high: float) -> None:
    with pytest.raises(RateLimited, match="answered 429 Too Many Requests") as caught:
        await get(f"{server}/{page}")
    after = caught.value.retry_after_s
    assert after is None if low is None else after is not None and low <= after <= high


async def test_bad_addresses_big_bodies_and_closed_doors_are_told_apart(server: str) -> None:
    with pytest.raises(InvalidCall, match=r"/hello sent more than 3 bytes; raise max_bytes or ask for less"):
        await get(f"{server}/hello", max_bytes=3)
    for wrong in ("ftp://example.org", "no address", "http://[::1"):
        with pytest.raises(InvalidCall, match=r'url: expected an address such as "https://example.org", got "'):
            await get(wrong)
    with pytest.raises(Transient, match=r"http://127.0.0.1:1/ could not be reached: "):
        await get("http://127.0.0.1:1/")


# ---- time.sleep, and all of them -------------------------------------------------------------------------------------


async def test_sleeping_takes_the_time_it_is_given() -> None:
    assert await run(clock.sleep, Path(), seconds=0) is None
    with pytest.raises(InvalidCall, match="seconds: expected a number from 0 upwards, got -1"):
        await run(clock.sleep, Path(), seconds=-1)


def test_the_builtin_tools_import_nothing_heavy() -> None:
    program = (
        "import sys; from holdfast.tools.builtin import builtin_tools; builtin_tools()\n"
        "print([name for name in ('httpx', 'pydantic', 'apsw', 'yaml', 'rich', 'typer') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
