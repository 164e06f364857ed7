"""`notify.send` with a real mail server and a real webhook receiver: who is told what, once, and who is not."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiosmtpd.controller import Controller

import holdfast
from engine.kit import engine_at, plan, result, settled, until
from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, SettingsInvalid, ToolError, Transient
from holdfast.core.failure import describe
from holdfast.tools.call import SILENT, Call, Silent
from holdfast.tools.notify import filter
from holdfast.tools.notify.tool import Config, Notify
from holdfast.tools.processes import regex_child
from holdfast.tools.runtime.cancellation import NeverBegan
from holdfast.tools.toolset import HERE


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[tuple[list[str], Any]] = []
        self.says: dict[str, str] = {}  # what it answers to MAIL, RCPT or DATA instead of yes

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        envelope.mail_from = address
        return self.says.get("MAIL", "250 OK")

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if "RCPT" in self.says and "ann" in address:
            return self.says["RCPT"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if "DATA" in self.says:
            return self.says["DATA"]
        self.mails.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content, policy=email.policy.default)))
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[tuple[str, Mailbox]]:
    box = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield f"mailto://127.0.0.1:{port}/?from=holdfast@example.test&mode=insecure", box
    controller.stop()


class Receiver(BaseHTTPRequestHandler):
    got: list[tuple[str, dict[str, Any]]]
    refusing: set[str]
    patience: threading.Event

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(raw) if raw.startswith(b"{") else {}
        if self.path in self.refusing:
            self.send_response(500)
        elif self.path.startswith("/says/"):
            status, _, after = self.path.removeprefix("/says/").partition("-after-")
            self.send_response(int(status))
            self.send_header("Content-Length", "0")
            if after:
                self.send_header("Retry-After", after)
        elif self.path == "/reset":
            self.got.append((self.path, body))
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        elif self.path == "/away":
            self.got.append((self.path, body))
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
        else:
            if self.path == "/slow":
                self.patience.wait(10)
            self.got.append((self.path, body))
            self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...

    def handle(self) -> None:
        with suppress(OSError, ValueError):  # it closed the connection itself
            super().handle()

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            super().finish()


@pytest.fixture
def hooks() -> Iterator[str]:
    Receiver.got, Receiver.refusing, Receiver.patience = [], set(), threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"json://127.0.0.1:{listening.server_port}"
        Receiver.patience.set()
        listening.shutdown()
        thread.join()


class Notes(Silent):
    """Keeps what is noted, as the journal does for the next attempt."""

    kept: Any = None

    async def note(self, call: Call, data: bytes) -> None:
        self.kept = json.loads(data)


async def send(config: Config, host: Any = SILENT, notes: Any = None, **arguments: Any) -> Any:
    (tool,) = Notify(config, HERE).tools()
    call = Call("execution", "step", 1, "key", Path(), notes, host)
    answer = await tool.invoke(tool.validate(arguments), call)
    tool.output(answer)
    return answer


async def test_a_mail_reaches_its_people_in_the_format_asked_for(mail: tuple[str, Mailbox]) -> None:
    url, box = mail
    config = Config(channels={"team": f"{url}&to=ann@example.test"})
    answer = await send(config, to="team", title="Job done", text="All **3** steps", format="markdown")
    assert answer == {"delivered": ["team"]}
    ((people, message),) = box.mails
    assert (people, message["Subject"]) == (["ann@example.test"], "Job done")
    html = message.get_body(("html",))
    assert html is not None
    assert "<strong>3</strong>" in html.get_content()


async def test_somebody_can_be_named_on_a_mail_channel_if_the_settings_allow_it(mail: tuple[str, Mailbox]) -> None:
    url, box = mail
    config = Config(channels={"mail": url, "hook": "json://127.0.0.1:1/"}, recipients=("*@example.test",))
    await send(config, to="mail:Bob@Example.test", text="hello")
    assert [people for people, _ in box.mails] == [["Bob@Example.test"]]
    with pytest.raises(NotPermitted, match=r"eve@elsewhere.test may not be written to: `recipients` in \[tools.notify"):
        await send(config, to=["mail:bob@example.test", "mail:eve@elsewhere.test"], text="hello")
    assert len(box.mails) == 1, "nobody is told before all of them may be"
    with pytest.raises(InvalidCall, match=r'to: "hook" is no mail channel, so nobody can be named on it'):
        await send(config, to="hook:bob@example.test", text="hello")


@pytest.mark.parametrize(
    "person",
    [
        "eve@elsewhere.test,bob@example.test",
        "eve@elsewhere.test;bob@example.test",
        "eve@elsewhere.test bob@example.test",
        "Eve <eve@elsewhere.test> bob@example.test",
        "eve@elsewhere.test\nbob@example.test",
        "eve@elsewhere.test/bob@example.test",
        "bob",
    ],
)
async def test_nobody_else_slips_in_beside_one_who_may_be_written_to(mail: tuple[str, Mailbox], person: str) -> None:
    url, box = mail
    config = Config(channels={"mail": url}, recipients=("*@example.test", "bob"))
    with pytest.raises(InvalidCall, match=r"to: expected the address of one person"):
        await send(config, to=f"mail:{person}", text="hello")
    assert box.mails == []


async def test_a_webhook_gets_the_message_and_another_attempt_tells_only_the_others(hooks: str) -> None:
    config = Config(channels={"one": f"{hooks}/one", "two": f"{hooks}/two"})
    Receiver.refusing = {"/two"}
    noted = Notes()
    with pytest.raises(Transient, match=r'the channel "two" did not confirm: .*500') as refused:
        await send(config, noted, to=["one", "two"], title="T", text="words")
    assert describe(refused.value).happened == "unknown", "it may have taken the message before it said no"
    assert [path for path, _ in Receiver.got] == ["/one"]
    assert (Receiver.got[0][1]["title"], Receiver.got[0][1]["message"]) == ("T", "words")
    Receiver.refusing = set()
    answer = await send(config, noted, noted.kept, to=["one", "two"], title="T", text="words")
    assert answer == {"delivered": ["one", "two"]}
    assert [path for path, _ in Receiver.got] == ["/one", "/two"]


async def test_a_channel_that_does_not_answer_in_time_may_have_delivered(hooks: str) -> None:
    with pytest.raises(Transient, match='the channel "slow" did not confirm') as late:
        await send(Config(channels={"slow": f"{hooks}/slow"}, timeout="100ms"), to="slow", text="words")
    assert describe(late.value).happened == "unknown"
    with pytest.raises(Transient, match=r'the channel "gone" did not confirm: .*Connection error') as gone:
        await send(Config(channels={"gone": "json://127.0.0.1:1/"}), to="gone", text="words")
    assert describe(gone.value).happened == "nothing"


@pytest.mark.parametrize("path", ["reset", "away", "away?redirect=yes", "reset?retry=3"])
async def test_a_webhook_that_took_the_message_is_told_once_however_it_ends(hooks: str, path: str) -> None:
    with pytest.raises(Transient, match='the channel "one" did not confirm') as broke:
        await send(Config(channels={"one": f"{hooks}/{path}"}), to="one", text="words")
    assert describe(broke.value).happened == "unknown"
    assert len(Receiver.got) == 1


async def test_a_mail_server_that_goes_after_it_was_given_the_mail_may_have_taken_it() -> None:
    taken: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(b"220 here\r\n")
            while line := lines.readline():
                if line[:4].upper() == b"DATA":
                    connection.sendall(b"354 go on\r\n")
                    taken.append(b"".join(iter(lines.readline, b".\r\n")))
                    return
                connection.sendall(b"250 yes\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        address = (
            f"mailto://127.0.0.1:{listening.getsockname()[1]}/?from=a@example.test&to=b@example.test&mode=insecure"
        )
        with pytest.raises(Transient, match='the channel "mail" did not confirm') as gone:
            await send(Config(channels={"mail": address}), to="mail", text="words")
        serving.join()
    assert describe(gone.value).happened == "unknown"
    assert len(taken) == 1


@pytest.mark.parametrize(
    "address",
    [
        "json://127.0.0.1:1/",
        "json://no-such-host.invalid/",
        "mailto://127.0.0.1:1/?from=a@example.test&to=b@example.test&mode=insecure",
        "mailto://no-such-host.invalid/?from=a@example.test&to=b@example.test&mode=insecure",
    ],
)
async def test_a_service_that_nobody_could_connect_to_has_taken_nothing(address: str) -> None:
    with pytest.raises(Transient, match='the channel "gone" did not confirm') as gone:
        await send(Config(channels={"gone": address}), to="gone", text="words")
    assert describe(gone.value).happened == "nothing"


@pytest.mark.parametrize(
    ("says", "category", "happened"),
    [
        ("401", "permission", "nothing"),
        ("403", "permission", "nothing"),
        ("404", "configuration", "nothing"),
        ("410", "configuration", "nothing"),
        ("408", "transient", "nothing"),
        ("429", "rate_limit", "nothing"),
        ("429-after-7", "rate_limit", "nothing"),
        ("400", "tool", "nothing"),
        ("413", "tool", "nothing"),
        ("500", "transient", "unknown"),
        ("503-after-7", "transient", "unknown"),
        ("302", "transient", "unknown"),
    ],
)
@pytest.mark.parametrize("service", ["json", "xml", "form"])
async def test_what_a_webhook_answers_says_what_became_of_the_message(
    hooks: str, service: str, says: str, category: str, happened: str
) -> None:
    address = hooks.replace("json:", f"{service}:")
    with pytest.raises(ToolError, match='the channel "one" did not confirm') as refused:
        await send(Config(channels={"one": f"{address}/says/{says}"}), to="one", text="words")
    described = describe(refused.value)
    assert (described.category, described.happened) == (category, happened)
    assert described.retry_after_s == (7 if says == "429-after-7" else None)


@pytest.mark.parametrize(
    ("to", "says", "category", "happened", "told"),
    [
        ("MAIL", "535 who are you", "permission", "nothing", "535 who are you; check the credentials"),
        ("MAIL", "451 not now", "transient", "nothing", "451 not now"),
        ("MAIL", "550 not you", "tool", "nothing", "550 not you"),
        ("RCPT", "550 no such user", "configuration", "nothing", "550 no such user"),
        ("RCPT", "450 greylisted", "transient", "nothing", "450 greylisted"),
        ("DATA", "451 try later", "transient", "nothing", "451 try later"),
        ("DATA", "554 looks like spam", "tool", "nothing", "554 looks like spam"),
    ],
)
async def test_what_a_mail_server_refuses_was_not_sent(
    mail: tuple[str, Mailbox], to: str, says: str, category: str, happened: str, told: str
) -> None:
    url, box = mail
    box.says = {to: says}
    with pytest.raises(ToolError, match=f'the channel "mail" did not confirm: .*{told}') as refused:
        await send(Config(channels={"mail": f"{url}&to=ann@example.test"}), to="mail", text="words")
    described = describe(refused.value)
    assert (described.category, described.happened) == (category, happened)
    assert box.mails == []


async def test_a_mail_that_only_one_of_its_people_was_refused_may_have_reached_the_others(
    mail: tuple[str, Mailbox],
) -> None:
    url, box = mail
    box.says = {"RCPT": "550 no such user"}
    for more in ("&to=ann@example.test&cc=bob@example.test", "&to=bob@example.test,ann@example.test"):
        with pytest.raises(Transient) as refused:
            await send(Config(channels={"mail": url + more}), to="mail", text="words")
        assert describe(refused.value).happened == "unknown"
    assert [people for people, _ in box.mails] == [["bob@example.test"], ["bob@example.test"]]


async def test_whoever_sends_with_apprise_without_holdfast_is_not_listened_to(hooks: str) -> None:
    import apprise

    await send(Config(channels={"one": f"{hooks}/one"}), to="one", text="words")
    own = apprise.Apprise()
    own.add(f"{hooks}/says/404")
    assert not await own.async_notify(body="words")


async def test_once_somebody_was_told_no_failure_is_without_effect(hooks: str) -> None:
    """What follows "without effect" may be another tool, which would tell everybody again."""
    config = Config(channels={"good": f"{hooks}/good", "gone": "json://127.0.0.1:1/", "no": f"{hooks}/says/404"})
    noted = Notes()
    for channel, category in (("gone", "tool"), ("no", "configuration")):
        with pytest.raises(ToolError, match="already told, and not told again by another attempt: good") as failed:
            await send(config, noted, noted.kept, to=["good", channel], text="words")
        described = describe(failed.value)
        assert (described.category, described.happened) == (category, "known")
    assert len(Receiver.got) == 1
    await send(config, noted, noted.kept, to=["good"], text="other words")
    assert len(Receiver.got) == 2, "another message is another matter"


@pytest.mark.parametrize("notes", [{"page": 7}, {"delivered": 3}, {"delivered": [3]}, ["good"], "good", 0])
async def test_notes_of_another_shape_say_nothing_about_who_was_told(hooks: str, notes: Any) -> None:
    answer = await send(Config(channels={"good": f"{hooks}/good"}), SILENT, notes, to="good", text="words")
    assert answer == {"delivered": ["good"]}
    assert len(Receiver.got) == 1


async def test_a_retry_of_the_execution_tells_only_those_who_were_not_told(hooks: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        f'[tools.notify.channels]\ngood = "{hooks}/good"\nbad = "json://127.0.0.1:1/"\n'
    )
    tell = {"id": "n", "tool": "notify.send", "with": {"to": ["good", "bad"], "text": "hello"}}
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(tell))
        assert await settled(run) == "failed"
    (tmp_path / "holdfast.toml").write_text(f'[tools.notify.channels]\ngood = "{hooks}/good"\nbad = "{hooks}/bad"\n')
    async with engine_at(tmp_path) as engine:
        assert await result(await engine.retry(run.id)) == {"delivered": ["good", "bad"]}
    assert [path for path, _ in Receiver.got] == ["/good", "/bad"]


async def test_health_tells_of_each_channel_that_cannot_be_used_and_sends_nothing(
    hooks: str, mail: tuple[str, Mailbox]
) -> None:
    url, box = mail
    well = {
        "hook": f"{hooks}/one",
        "mail": f"{url}&to=ann@example.test",
        "chat": "slack://TAAAAAAAA/BAAAAAAAA/" + "c" * 24,
    }
    await Notify(Config(channels=well), HERE).health()
    ill = {"gone": "json://127.0.0.1:1/", "unset": "env:NOT_SET_HERE", "odd": "no-such-service://x"}
    with pytest.raises(Transient) as told:
        await Notify(Config(channels={**well, **ill}), HERE).health()
    lines = str(told.value).splitlines()
    assert lines[0] == 'the channel "gone": 127.0.0.1:1 could not be reached: Connection refused'
    assert "needs the environment variable NOT_SET_HERE" in lines[1]
    assert "makes no sense to apprise" in lines[2]
    assert (Receiver.got, box.mails) == ([], [])


async def test_a_channel_has_one_address(hooks: str) -> None:
    with pytest.raises(Misconfigured, match='the channel "both" has more than one address; make each of them a chan'):
        await send(Config(channels={"both": f"{hooks}/one, {hooks}/two"}), to="both", text="words")
    assert Receiver.got == []


async def test_a_hook_does_not_hold_up_the_others(hooks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, threads = ModuleType("a_hook_that_looks"), list[int]()
    module.check = lambda channel, title, text: threads.append(threading.get_ident())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_hook_that_looks", module)
    await send(Config(channels={"one": f"{hooks}/one"}, hook="a_hook_that_looks:check"), to="one", text="x")
    assert threads
    assert threading.get_ident() not in threads


async def test_who_waits_for_the_rate_has_told_nobody(hooks: str) -> None:
    family = Notify(Config(channels={"one": f"{hooks}/one"}, rate="1/h"), HERE)
    (tool,) = family.tools()
    arguments = tool.validate({"to": "one", "text": "x"})
    await tool.invoke(arguments, Call("execution", "first", 1, "key", Path()))
    waiting = asyncio.create_task(tool.invoke(arguments, Call("execution", "second", 1, "key", Path())))
    await until(lambda: bool(family._pacer._queue))
    waiting.cancel()
    with pytest.raises(NeverBegan):
        await waiting
    assert len(Receiver.got) == 1


@pytest.mark.parametrize("setting", ["block", "mask"])
async def test_a_pattern_that_takes_for_ever_holds_nobody_up_and_nothing_is_sent(
    hooks: str, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr(filter, "PATTERNS_S", 0.2)
    pattern = r"(\w+\s?)+@corp"
    patterns: dict[str, Any] = {setting: ("harmless", pattern)}
    config = Config(channels={"one": f"{hooks}/one"}, **patterns)
    with pytest.raises(Misconfigured) as refused:
        await send(config, to="one", text="a" * 26 + "!")
    assert str(refused.value) == (
        f"tools.notify.{setting}: {pattern!r} took longer than 0.2 s, so the message is not sent; "
        "simplify the pattern (nested repetitions take for ever)"
    )
    assert describe(refused.value).happened == "nothing"
    assert Receiver.got == []


async def test_a_message_whose_patterns_could_not_be_looked_for_is_not_sent(
    tmp_path: Path, hooks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in ("", '{"request": 0}\n{"request": 1}\n', '{"request": 0}\n{"texts": ["cut o'):
        (tmp_path / "dies.py").write_text(f"print({said!r}, end='')")
        monkeypatch.setattr(regex_child, "__file__", str(tmp_path / "dies.py"))
        with pytest.raises(
            ToolError, match=r"the message is not sent: the process that looks for .* ended before"
        ) as died:
            await send(Config(channels={"one": f"{hooks}/one"}, mask=("x",)), to="one", text="x")
        assert describe(died.value).happened == "nothing"
    assert Receiver.got == []


async def test_what_is_masked_may_be_written_in_any_letters(hooks: str) -> None:
    config = Config(channels={"one": f"{hooks}/one"}, mask=(r"größe \w+", r"(?<=key )\S+"))
    await send(config, to="one", title="größe überall", text="key 🔑\ud83d, 東京")
    assert [(body["title"], body["message"]) for _, body in Receiver.got] == [("•••", "key ••• 東京")]


async def test_what_must_not_leave_does_not(hooks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(channels={"one": f"{hooks}/one"}, block=("(?i)top secret",), mask=(r"sk-\w+", r"\d{16}"))
    with pytest.raises(NotPermitted, match=r"the message is not sent: it fits the blocked pattern '\(\?i\)top secret'"):
        await send(config, to="one", text="This is Top Secret.")
    await send(config, to="one", title="key sk-12ab", text="card 1234567890123456")
    assert [(body["title"], body["message"]) for _, body in Receiver.got] == [("key •••", "card •••")]

    module = ModuleType("a_filter_of_the_users")
    module.check = lambda channel, title, text: "not on a Friday" if "Friday" in text else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_filter_of_the_users", module)
    hooked = Config(channels={"one": f"{hooks}/one"}, hook="a_filter_of_the_users:check")
    with pytest.raises(NotPermitted, match="the message is not sent: not on a Friday"):
        await send(hooked, to="one", text="Friday!")
    await send(hooked, to="one", text="Monday!")
    assert len(Receiver.got) == 2
    with pytest.raises(Misconfigured, match=r"tools.notify.hook: no_such_module:f cannot be found"):
        await send(Config(channels={"one": f"{hooks}/one"}, hook="no_such_module:f"), to="one", text="x")


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"to": "taem", "text": "x"}, Misconfigured, r'to: no channel called "taem" in \[tools.notify\]; did you mean'),
        ({"to": [], "text": "x"}, InvalidCall, "to: expected 1 to 20 channels, got 0"),
        ({"to": "team", "text": " "}, InvalidCall, "text: expected a message, got nothing"),
        ({"to": "team", "text": "x" * 100_001}, InvalidCall, "text: expected at most 100,000 characters, got 100,001"),
        ({"to": "team", "text": "x", "title": "a\nb"}, InvalidCall, "title: expected one line"),
        ({"to": "odd", "text": "x"}, Misconfigured, 'the address of the channel "odd" makes no sense to apprise'),
        ({"to": "unset", "text": "x"}, Misconfigured, '"unset" needs the environment variable NOT_SET; set it'),
    ],
)
async def test_a_wrong_call_is_told_before_anybody_is(
    arguments: dict[str, Any], kind: type[ToolError], said: str
) -> None:
    channels = {"team": "json://127.0.0.1:1/", "odd": "nonsense://x", "unset": "env:NOT_SET"}
    with pytest.raises(kind, match=said) as refused:
        await send(Config(channels=channels), **arguments)
    assert describe(refused.value).happened == "nothing"


async def test_an_address_may_come_from_the_environment(hooks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_HOOK", f"{hooks}/one")
    await send(Config(channels={"one": "env:A_HOOK"}), to="one", text="x")
    assert [path for path, _ in Receiver.got] == ["/one"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(rate="x"), "tools.notify: expected a rate such as"),
        (Config(timeout="x"), "tools.notify: expected a duration such as"),
        (Config(block=("(",)), "tools.notify: block: '(' is not a regular expression"),
        (Config(mask=("(",)), "tools.notify: mask: '(' is not a regular expression"),
        (Config(hook="x"), 'tools.notify: hook: expected "module:function", got "x"'),
    ],
)
def test_a_mistake_in_the_settings_is_named(config: Config, said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        Notify(config, HERE)
    assert str(refused.value).startswith(said)


async def test_as_a_step_a_channel_that_was_told_is_not_told_again(tmp_path: Path, hooks: str) -> None:
    (tmp_path / "holdfast.toml").write_text(
        f'[tools.notify]\nchannels = {{one = "{hooks}/one", two = "json://127.0.0.1:1/"}}\nrate = "1000/s"\n'
    )
    plan = {
        "name": "tell",
        "steps": [
            {"id": "tell", "tool": "notify.send", "with": {"to": ["one", "two"], "text": "hello"},
             "retry": {"max": 2, "first": "10ms"}, "on_error": "fail"},
        ],
    }  # fmt: skip
    async with holdfast.Engine(folder=tmp_path) as engine:
        run = await engine.start(plan)
        with pytest.raises(holdfast.ExecutionFailed, match='the channel "two" did not confirm'):
            await run.result()
        assert [path for path, _ in Receiver.got] == ["/one"], "three attempts, and the first channel was told once"
        steps: Any = (await run.show())["steps"]
        assert steps[0]["attempts"] == 3
