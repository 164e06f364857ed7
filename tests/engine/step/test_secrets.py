"""Secrets in an engine: fetched for every attempt, seen by hooks that need them, told to nobody who watches."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

import holdfast
from engine.kit import FAST, HURRY, Gate, engine_at, events, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.core.errors import Misconfigured
from holdfast.core.secret_refs import SecretSource
from holdfast.tools.secrets import vault as secrets_vault
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.secrets.vault import Vault

VALUE = "correct-horse-battery"
SETTINGS = '[secrets]\nTOKEN = {env = "MY_TOKEN"}\n'
ASKED = {"token": "${{ secrets.TOKEN }}"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    monkeypatch.setenv("MY_TOKEN", VALUE)
    return tmp_path


async def test_every_attempt_gets_the_value_of_its_moment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []

    @holdfast.tool(effect="read")
    async def flaky(token: str) -> str:
        got.append(token)
        if len(got) == 1:
            monkeypatch.setenv("MY_TOKEN", "another-value")
            raise holdfast.Transient(f"{token} has expired")
        return token

    async with engine_at(place, flaky) as engine:
        run = await engine.start(plan(step("a", "flaky", retry=FAST, **{"with": ASKED})))
        assert await result(run) == "[secret TOKEN]"
        assert got == [VALUE, "another-value"]
        [retried] = [event for event in await events(run) if isinstance(event, ev.StepRetrying)]
        assert retried.failure.message == "[secret TOKEN] has expired"


async def test_changed_secret_is_no_divergence_after_a_restart(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, got = Gate(), list[str]()

    @holdfast.tool(effect="read")
    async def take(token: str) -> str:
        got.append(token)
        return token

    @holdfast.function
    async def work(ctx: holdfast.Context) -> list[Any]:
        first = await ctx.call(take, token=ctx.secret("TOKEN"))
        await ctx.call(gate.tool)
        return [first, await ctx.call(take, "x" + ctx.secret("TOKEN"), name="second")]

    async with engine_at(place, take, gate.tool, functions=[work], limits=HURRY) as engine:
        run = await engine.start(work)
        await gate.wait_entered()
    gate.open.set()
    monkeypatch.setenv("MY_TOKEN", "changed-while-down")
    async with engine_at(place, take, gate.tool, functions=[work]) as engine:
        assert await result(engine.get(run.id)) == ["[secret TOKEN]", "x[secret TOKEN]"]
    assert got == [VALUE, "xchanged-while-down"]


async def test_watchers_see_no_value_however_it_streams(place: Path) -> None:
    go = asyncio.Event()

    @holdfast.tool(effect="read")
    async def chatter(token: str, call: holdfast.Call) -> None:
        await go.wait()
        for letter in f"my {token}, and {token[:5]}":
            call.say(letter, streaming=True)
        call.progress(50, f"with {token}")
        print("printed", token)

    async with engine_at(place, chatter) as engine:
        run = await engine.start(plan(step("a", "chatter", **{"with": ASKED})))
        said, progress, asked = "", list[str](), list[Any]()
        async with asyncio.timeout(60), aclosing(run.watch()) as watching:  # type: ignore[type-var]
            async for watched in watching:
                go.set()
                if isinstance(watched.event, ev.TaskMessage):
                    said += watched.event.content
                if isinstance(watched.event, ev.TaskProgress):
                    progress.append(watched.event.text)
                if isinstance(watched.event, ev.TaskToolCall):
                    asked.append(bytes(watched.event.arguments))
        assert VALUE not in said
        assert "my [secret TOKEN], and " in said
        assert said.count(VALUE[:5]) == 1  # the end that was held back comes when the attempt is over
        assert "printed [secret TOKEN]\n" in said
        assert "with [secret TOKEN]" in progress
        assert asked in ([], [b'{"token":"${{ secrets.TOKEN }}"}'])


class Page(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(unquote(self.path))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


async def test_value_in_an_address_stands_nowhere_in_the_journal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", odd := 'Zk!8^qW{7}pL"x')
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        (place / "holdfast.toml").write_text(f'{SETTINGS}[tools.http]\nallow = ["{host}"]\n')
        query, user = f"http://{host}/x?key=${{{{ secrets.TOKEN }}}}", f"http://me:${{{{ secrets.TOKEN }}}}@{host}/"
        async with engine_at(place) as engine:
            run = await engine.start(
                plan(
                    step("query", "http.get", **{"with": {"url": query}}),
                    step("user", "http.get", **{"with": {"url": user}}),
                )
            )
            assert await settled(run) == "completed"
            kept = [bytes((await step_of(run, path)).output) for path in ("query", "user")]
        server.shutdown()
    assert Page.asked[0] == f"/x?key={odd}"
    for output in kept:
        assert b"[secret TOKEN]" in output
        assert b"qW" not in output
    assert b"[secret TOKEN]" in (written := _journal(place))
    assert b"8^qW" not in written
    assert b"8%5EqW" not in written


def _journal(place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in place.glob(".holdfast/*.db*"))


async def test_check_of_a_tool_gets_the_value_and_reducing_sees_the_reference(place: Path) -> None:
    seen_by: dict[str, Any] = {}

    @holdfast.tool(effect="once", in_doubt="verify")
    async def pay(token: str) -> str:
        raise TimeoutError

    @pay.verify
    async def check(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        seen_by["verify"] = arguments["token"]
        return holdfast.Happened(f"paid with {arguments['token']}")

    @holdfast.tool(effect="read")
    async def big(token: str, size: int) -> int:
        if size > 1:
            raise MemoryError
        return size

    @big.reduce
    async def smaller(call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        seen_by["reduce"] = arguments["token"]
        return {**arguments, "size": 1}

    steps = [step("pay", "pay", **{"with": ASKED}), step("big", "big", **{"with": {**ASKED, "size": 5}})]
    async with engine_at(place, pay, big) as engine:
        run = await engine.start(plan(*steps, output="${{ steps.pay.output }}"))
        assert await result(run) == "paid with [secret TOKEN]"
    assert seen_by == {"verify": VALUE, "reduce": "${{ secrets.TOKEN }}"}


async def test_secret_that_goes_missing_waits_for_a_person(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    @holdfast.tool(effect="once")
    async def use(token: str) -> int:
        return len(token)

    async with engine_at(place, gate.tool, use) as engine:
        run = await engine.start(plan(step("gate", "gate"), step("use", "use", **{"with": ASKED})))
        await gate.wait_entered()
        monkeypatch.delenv("MY_TOKEN")
        gate.open.set()
        assert await settled(run) == "waiting"
        [asked] = (await run.state()).open_requests()
        assert "the secret TOKEN needs the environment variable MY_TOKEN; set it" in asked.request.message
        assert asked.request.failure is not None
        assert asked.request.failure.happened == "nothing"
        monkeypatch.setenv("MY_TOKEN", VALUE)
        await run.resolve("use", "again")
        assert await result(run) == len(VALUE)


async def test_edited_arguments_may_name_only_the_secrets_of_the_step(place: Path) -> None:
    @holdfast.tool(effect="read")
    async def use(token: str) -> str:
        return token.upper()

    async with engine_at(place, use) as engine:
        run = await engine.start(plan(step("use", "use", approval="required", **{"with": ASKED})))
        await seen(run, "approval:requested")
        await run.approve("use", arguments={"token": "not ${{ secrets.OTHER }}"})
        assert await settled(run) == "waiting"
        assert "does not use the secret OTHER" in ((await step_of(run, "use")).failure or _none()).message
        await run.resolve("use", "again", arguments={"token": "x${{ secrets.TOKEN }}"})
        assert await result(run) == f"x{VALUE}".upper()  # in capitals it is another text, which nobody recognises


def _none() -> Any:
    raise AssertionError("there is no failure")


async def test_fallback_gets_the_secret_too_and_what_it_says_is_masked(place: Path) -> None:
    got: list[str] = []

    @holdfast.tool(effect="read")
    async def broken(token: str) -> str:
        raise holdfast.ToolError("no")

    @holdfast.tool(effect="read")
    async def other(token: str, data: str = "") -> str:
        got.append(f"{token} {data}")
        return token

    literal = "${{ '$' }}{{ secrets.TOKEN }}"  # an expression that makes data of what looks like a reference
    own = {"tool": "other", "with": {**ASKED, "data": literal}}
    steps = [step("a", "broken", fallback=[own], **{"with": {"token": "none"}}), step("b", "other", **{"with": ASKED})]
    async with engine_at(place, broken, other) as engine:
        run = await engine.start(plan(*steps))
        assert await result(run) == "[secret TOKEN]"
    assert got == [f"{VALUE} ${{{{ secrets.TOKEN }}}}", f"{VALUE} "]


async def test_what_was_asked_with_a_secret_is_not_answered_from_the_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @holdfast.tool(effect="read", cache="1h")
    async def whoami(token: str) -> str:
        return token[-3:]

    for value, user in (("alice-token-111", "111"), ("bobby-token-222", "222")):
        monkeypatch.setenv("MY_TOKEN", value)
        async with engine_at(place, whoami) as engine:
            run = await engine.start(plan(step("a", "whoami", **{"with": ASKED})))
            assert await result(run) == user


async def test_plain_code_gets_no_secret(place: Path) -> None:
    @holdfast.function
    async def work(ctx: holdfast.Context) -> None:
        await ctx.run("code", len, ctx.secret("TOKEN"))

    async with engine_at(place, functions=[work]) as engine:
        with pytest.raises(holdfast.ExecutionFailed, match="plain code gets no secrets; make it a tool"):
            await result(await engine.start(work))


async def test_message_with_a_secret_is_not_sent(place: Path) -> None:
    (place / "holdfast.toml").write_text(f'{SETTINGS}[tools.notify]\nchannels = {{box = "json://127.0.0.1:9"}}\n')
    told = {"to": "box", "text": "the key is ${{ secrets.TOKEN }}"}
    async with engine_at(place) as engine:
        run = await engine.start(plan(step("tell", "notify.send", **{"with": told})))
        with pytest.raises(holdfast.ExecutionFailed, match="the message is not sent: it holds the secret TOKEN"):
            await result(run)


# ---- where values come from ---------------------------------------------------------------------------------------


def vault(kind: Any, *where: str, root: Path = Path()) -> Vault:
    return Vault({"T": SecretSource(kind, where)}, root)


async def test_command_is_asked_once_a_minute_however_many_want_it(tmp_path: Path) -> None:
    script = "open('asked', 'a').write('x'); print('from-the-safe')"
    safe = vault("command", sys.executable, "-c", script, root=tmp_path)
    values = await asyncio.gather(*(safe.fetch(["T"]) for _ in range(5)))
    assert values == [{"T": "from-the-safe"}] * 5
    assert (tmp_path / "asked").read_text() == "x"
    assert masks.text("from-the-safe") == "[secret T]"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('locked\\nout')"), "failed with exit code 1: locked out"),
        ((sys.executable, "-c", ""), "is empty: its command"),
        ((sys.executable, "-c", "print('x' * 100000)"), "more than 65,536 bytes; pass the path"),
        ((sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\xfe12')"), "is not text"),
        (("no-such-program-anywhere",), "no-such-program-anywhere"),
    ],
)
async def test_command_that_gives_no_secret_is_named(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured, match="the secret T") as caught:
        await vault("command", *argv, root=tmp_path).fetch(["T"])
    assert said in str(caught.value)


async def test_command_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_vault, "COMMAND_TIMEOUT_S", 0.2)
    with pytest.raises(Misconfigured, match=r"did not answer within 0\.2 s"):
        await vault("command", "sleep", "60", root=tmp_path).fetch(["T"])


async def test_file_is_read_anew_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("first-value\n")
    safe = vault("file", "t", root=tmp_path)
    assert safe.missing("T") is None
    assert await safe.fetch(["T"]) == {"T": "first-value"}
    (tmp_path / "t").write_text("second-value\r\n")
    assert await safe.fetch(["T"]) == {"T": "second-value"}
    assert masks.text("first-value second-value") == "[secret T] [secret T]"  # the old one may still be about


async def test_file_that_is_none_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for file, said in (
        ("gone", "cannot be read"),
        ("pipe", "is not a file"),
        ("empty", "is empty"),
        ("~nobody-here/x", "nobody known"),
    ):
        safe = vault("file", file, root=tmp_path)
        assert said in str(safe.missing("T"))
        with pytest.raises(Misconfigured, match="the secret T"):
            await safe.fetch(["T"])


def test_what_is_missing_is_seen_without_asking_a_command() -> None:
    assert 'needs the program "no-such-program"' in str(vault("command", "no-such-program").missing("T"))
    assert vault("command", sys.executable, "-c", "1/0").missing("T") is None
    assert 'did you mean "T"' in str(vault("env", "X").missing("TT"))
