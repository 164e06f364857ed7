"""Secrets that a program or its surroundings write out themselves: nothing that is kept shows them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, engine_at, events, plan, result, settled, step, step_of, until
from holdfast.core import events as ev
from holdfast.tools.processes.captured_output import OUTPUT_BYTES_MAX
from holdfast.tools.secrets.redaction import masks

VALUE = "correct-horse-battery"
SETTINGS = '[secrets]\nTOKEN = {env = "MY_TOKEN"}\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    monkeypatch.setenv("MY_TOKEN", VALUE)
    return tmp_path


def shown_in(folder: Path, needle: str = VALUE) -> list[str]:
    files = (file for file in (folder / ".holdfast").rglob("*") if file.is_file())
    return [file.name for file in files if needle.encode() in file.read_bytes()]


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@holdfast.tool(effect="read")
async def take(token: str) -> str:
    return token


async def test_what_a_function_raises_or_returns_is_masked(place: Path) -> None:
    @holdfast.function
    async def raises(ctx: holdfast.Context) -> None:
        await ctx.call(take, token=ctx.secret("TOKEN"))
        raise RuntimeError(f"login {VALUE}")

    @holdfast.function
    async def returns(ctx: holdfast.Context) -> dict[str, str]:
        await ctx.call(take, token=ctx.secret("TOKEN"))
        return {"token": VALUE}

    async with engine_at(place, take, functions=[raises, returns]) as engine:
        failed = await engine.start(raises)
        assert await settled(failed) == "failed"
        [error] = [event for event in await events(failed) if isinstance(event, ev.TaskError)]
        assert error.failure.message == "login [secret TOKEN]"
        assert await result(await engine.start(returns)) == {"token": "[secret TOKEN]"}
    assert shown_in(place) == []


async def test_value_written_into_arguments_is_journaled_as_a_reference(place: Path) -> None:
    got: list[str] = []

    @holdfast.tool(effect="read", retry=holdfast.Retry(max=1, first_s=0.001))
    async def flaky(token: str, data: str) -> str:
        got.append(f"{token} {data}")
        if len(got) == 1:
            raise holdfast.Transient("again")
        return "done"

    @holdfast.function
    async def work(ctx: holdfast.Context) -> str:
        await ctx.call(take, token=ctx.secret("TOKEN"))
        return await ctx.call(flaky, token=f"Bearer {VALUE}", data="${{ secrets.TOKEN }}")

    async with engine_at(place, take, flaky, functions=[work]) as engine:
        run = await engine.start(work)
        assert await result(run) == "done"
        started = [event for event in await events(run) if isinstance(event, ev.StepStarted) and event.tool == "flaky"]
    assert [bytes(event.arguments) for event in started] == [
        rb'{"token":"Bearer ${{ secrets.TOKEN }}","data":"$\\{{ secrets.TOKEN }}"}'
    ] * 2
    assert got == [f"Bearer {VALUE} ${{{{ secrets.TOKEN }}}}"] * 2
    assert shown_in(place) == []


async def test_step_goes_on_with_its_value_after_a_restart(place: Path) -> None:
    entered, go, got = asyncio.Event(), asyncio.Event(), list[str]()

    @holdfast.tool(effect="read")
    async def slow(token: str) -> str:
        got.append(token)
        entered.set()
        await go.wait()
        return "done"

    asked = {"token": f"x {VALUE}"}
    async with engine_at(place, slow, limits=HURRY) as engine:
        await engine.services.secrets.fetch(["TOKEN"])
        run = await engine.start(plan(step("a", "slow", **{"with": asked}), output="${{ steps.a.output }}"))
        await entered.wait()
    masks.forget()  # the next process knows nothing of it
    go.set()
    async with engine_at(place, slow) as engine:
        assert await result(engine.get(run.id)) == "done"
    assert got == [f"x {VALUE}"] * 2


async def test_what_was_agreed_to_is_called_with_the_value(place: Path) -> None:
    got: list[Any] = []

    @holdfast.tool(effect="once", approval=True)
    async def send(token: str) -> None:
        got.append(token)

    @holdfast.function
    async def work(ctx: holdfast.Context) -> None:
        await ctx.call(take, token=ctx.secret("TOKEN"))
        await ctx.call(send, token=f"x {VALUE}")

    async with engine_at(place, take, send, functions=[work]) as engine:
        run = await engine.start(work)
        assert await settled(run) == "waiting"
        [asked] = [event.request for event in await events(run) if isinstance(event, ev.ApprovalRequested)]
        assert bytes(asked.arguments) == b'{"token":"x ${{ secrets.TOKEN }}"}'
    masks.forget()
    async with engine_at(place, take, send, functions=[work]) as engine:
        run = engine.get(run.id)
        await run.approve()
        await result(run)
    assert got == [f"x {VALUE}"]
    assert shown_in(place) == []


async def test_declared_value_is_masked_before_anybody_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key-in-a-file\n")
    (tmp_path / "holdfast.toml").write_text(
        f'{SETTINGS}KEY = {{file = "key"}}\nGONE = {{file = "gone"}}\nSAFE = {{command = ["touch", "asked"]}}\n'
    )

    @holdfast.tool(effect="read")
    async def look() -> list[str]:
        return [os.environ["MY_TOKEN"], (tmp_path / "key").read_text()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_TOKEN", VALUE)
        async with engine_at(tmp_path, look) as engine:
            assert await result(await engine.start(plan(step("a", "look"), output="${{ steps.a.output }}"))) == [
                "[secret TOKEN]",
                "[secret KEY]\n",
            ]
    assert not (tmp_path / "asked").exists()  # a command is only run for a step that needs it
    assert shown_in(tmp_path) == []


async def test_message_with_a_declared_value_that_nobody_fetched_is_refused(place: Path) -> None:
    with (place / "holdfast.toml").open("a") as settings:
        settings.write('[tools.notify]\nchannels = {ops = "json://127.0.0.1:9/"}\n')
    async with engine_at(place) as engine:
        asked = {"to": "ops", "text": f"config: {VALUE}"}
        run = await engine.start(plan(step("a", "notify.send", on_error="fail", **{"with": asked})))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "a")).failure
    assert failure is not None
    assert "TOKEN" in failure.message
    assert failure.happened == "nothing"


async def failure_shown(folder: Path, tool_name: str, **asked: Any) -> str:
    """What a step says that fails, after a look at everything that is kept for any part of the value."""
    async with engine_at(folder) as engine:
        run = await engine.start(plan(step("a", tool_name, on_error="fail", retry=0, **{"with": asked})))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "a")).failure
    assert failure is not None
    assert shown_in(folder, VALUE[:12]) == shown_in(folder, VALUE[-12:]) == []
    return failure.message


async def test_what_a_command_says_is_masked_before_it_is_cut(place: Path) -> None:
    script = "import sys; sys.stderr.write(sys.argv[1] + 'y' * 990); sys.exit(3)"
    said = await failure_shown(place, "shell.run", command=[sys.executable, "-c", script, "${{ secrets.TOKEN }}"])
    assert said.endswith("y" * 990)


async def test_command_is_masked_before_it_is_cut(place: Path) -> None:
    said = await failure_shown(place, "shell.run", command=f"false {'z' * 60} ${{{{ secrets.TOKEN }}}}")
    assert "zzz [secret" in said


async def test_output_that_is_dropped_in_the_middle_of_a_value_does_not_show_its_beginning(place: Path) -> None:
    command = [sys.executable, "-c", f"print('x' * {OUTPUT_BYTES_MAX - 10} + '{VALUE}')"]
    asked = step("a", "shell.run", **{"with": {"command": command}})
    async with engine_at(place) as engine:
        text = await result(await engine.start(plan(asked, output="${{ steps.a.output.stdout }}")))
    assert text == "x" * (OUTPUT_BYTES_MAX - 10)


async def test_what_a_server_says_is_masked_before_it_is_cut(place: Path) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"x" * 285 + VALUE.encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    with (place / "holdfast.toml").open("a") as settings:
        settings.write('[tools.http]\nallow = ["127.0.0.1"]\n')
    with serving(Refuses) as port:
        said = await failure_shown(place, "http.get", url=f"http://127.0.0.1:{port}/")
    assert "xxx[secret" in said


async def test_reason_of_an_ill_tool_is_masked(place: Path) -> None:
    asked = asyncio.Event()

    async def sick() -> None:
        asked.set()
        raise holdfast.Transient(f"login with {VALUE} refused")

    @holdfast.tool(effect="read", health=sick)
    async def ill() -> None: ...

    async with engine_at(place, ill, limits=holdfast.Limits(health_every_s=0.01)) as engine:
        await asked.wait()
        await until(lambda: bool(shown_in(place, "refused")))
        assert engine.health.seen["ill"].why == "login with [secret TOKEN] refused"
        assert shown_in(place) == []


MCP_SERVER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            said = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            said["serverInfo"] = {"name": "x", "version": "1"}
        case "tools/list":
            said = {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}
        case _:
            said = {"content": [{"type": "text", "text": "API_KEY=" + os.environ["API_KEY"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""


async def test_credential_of_an_mcp_server_does_not_come_back(place: Path) -> None:
    (place / "server.py").write_text(MCP_SERVER)
    (place / "holdfast.toml").write_text(
        f'[tools.mcp.servers.x]\ncommand = ["{sys.executable}", "server.py"]\nenv = {{API_KEY = "env:MY_TOKEN"}}\n'
    )
    async with engine_at(place, check=False) as engine:
        run = await engine.start(plan(step("a", "x.whoami"), output="${{ steps.a.output.text }}"))
        assert await result(run) == "API_KEY=[secret MY_TOKEN]"
    assert shown_in(place) == []


async def test_key_of_a_search_provider_does_not_come_back(place: Path) -> None:
    class Repeats(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"bad token " + self.headers["X-Subscription-Token"].encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    with serving(Repeats) as port:
        (place / "holdfast.toml").write_text(
            f'[tools.search]\nproviders = [{{kind = "brave", url = "http://127.0.0.1:{port}", key = "MY_TOKEN"}}]\n'
            'allow = ["127.0.0.1"]\n'
        )
        said = await failure_shown(place, "search.web", query="x")
    assert said.endswith("bad token [secret MY_TOKEN]")


async def test_number_that_only_happens_to_be_a_secret_stays_a_number(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "2024")

    @holdfast.tool(effect="read")
    async def year() -> int:
        return 2024

    @holdfast.function
    async def work(ctx: holdfast.Context) -> int:
        await ctx.call(take, token=ctx.secret("TOKEN"))
        return await ctx.call(year) + 1

    async with engine_at(place, take, year, functions=[work]) as engine:
        assert await result(await engine.start(work)) == 2025
