"""Tools of MCP servers: what a server offers, what its failures mean, and what a hostile one cannot do."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from engine.kit import FAST, engine_at, plan, settled, step, step_of, until
from holdfast.core.errors import InvalidCall, Misconfigured, NotFound, SettingsInvalid, ToolError, Transient
from holdfast.core.failure import describe
from holdfast.tools.builtin import FAMILIES
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.mcp import server as server_module
from holdfast.tools.mcp.toolset import TAKEN, Config, Mcp
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.toolset import ToolsetFolders
from servers.mcp_kit import family, hostile


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FIRST_PAUSE_S", 0.01)


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "server", "said"),
    [
        ("files", {"url": "http://a/"}, '"files" is a family of tools that comes with Holdfast; choose another name'),
        ("Big", {"url": "http://a/"}, "expected a name of small letters, digits, _ and -, at most 40 long"),
        ("a", {}, "expected either `command` or `url`"),
        ("a", {"url": "http://a/", "command": ["x"]}, "expected either `command` or `url`"),
        ("a", {"url": "ftp://a/"}, 'url: expected an address that begins with http:// or https://, got "ftp://a/"'),
        ("a", {"url": "http://a/", "env": ["X"]}, "only a server that is started by `command` has an environment"),
        ("a", {"command": ["x"], "headers": {"A": "b"}}, "only a server with a `url` is sent headers"),
        ("a", {"command": ["x"], "timeout": "soon"}, "a: expected a duration"),
        ("a", {"command": ["x"], "resources": {"memory": "lots"}}, "a.resources.memory: expected a size such as"),
        ("a", {"command": ["x"], "resources": {"cpu": "1s"}}, "cpu: unknown key; known are: memory, processes, open_f"),
        ("a", {"url": "http://a/", "resources": {"processes": 3}}, "only a server that is started by `command` can be"),
        ("a", {"command": ["x"], "timeout": "0s"}, "a time limit of 0 leaves no time at all"),
    ],
)
def test_a_mistake_in_the_settings_is_told_with_its_place(name: str, server: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        Mcp(msgspec.convert({"servers": {name: server}}, Config), ToolsetFolders())
    assert str(refused.value).startswith(f"tools.mcp.servers.{name}")
    assert said in str(refused.value)


def test_no_server_can_have_the_name_of_a_family() -> None:
    assert FAMILIES.keys() <= TAKEN


async def test_what_a_server_says_of_its_own_tools_is_not_believed_unless_the_settings_say_so(tmp_path: Path) -> None:
    for settings, look, repeat in (
        ({}, "once", "once"),
        ({"trust_hints": True}, "read", "idempotent"),
        ({"trust_hints": True, "effects": {"lo*": "once"}}, "once", "idempotent"),
        ({"effects": {"*": "read", "repeat": "idempotent"}}, "read", "idempotent"),
    ):
        async with family(tmp_path, h=hostile("", tmp_path, **settings)) as h:
            effects = {name: h.registry.get(name).effect for name in ("h.look", "h.repeat")}
            assert effects == {"h.look": look, "h.repeat": repeat}, settings


async def test_effects_come_from_the_settings_or_the_hints_and_else_are_once(tmp_path: Path) -> None:
    trusted = {"effects": {"act": "idempotent"}, "trust_hints": True}
    settings = hostile("", tmp_path, **trusted, approval=["a*"], timeout="7s")
    async with family(tmp_path, h=settings) as h:
        effects = {name: h.registry.get(name).effect for name in h.registry.names()}
        assert effects == {"h.act": "idempotent", "h.look": "read", "h.repeat": "idempotent"}
        assert h.registry.get("h.act").approval is not None
        assert h.registry.get("h.look").approval is None
        assert h.registry.get("h.look").timeout_s == 7
    async with family(tmp_path, h=hostile("", tmp_path)) as h:
        assert h.registry.get("h.act").effect == "once"


async def test_only_allowed_tools_are_there_and_the_others_say_why(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("", tmp_path, allow=["act", "look"], deny=["l*"])) as h:
        assert set(h.registry.names()) == {"h.act"}
        with pytest.raises(NotFound, match=r"`allow` and `deny` of tools\.mcp\.servers\.h leave it out"):
            h.registry.get("h.look")
    async with family(tmp_path, h=hostile("", tmp_path)) as h:
        with pytest.raises(NotFound, match="the MCP server h does not offer it"):
            h.registry.get("h.acts")


# ---- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": ["no-such-program"]}, 'no such program: "no-such-program"; install it or correct the command'),
        ({"command": ["true"], "cwd": "nowhere"}, "cannot run in the folder"),
        ({"command": ["true"], "env": ["NOT_SET_HERE"]}, "the environment variable NOT_SET_HERE is not set; set it"),
        ({"url": "http://127.0.0.1:9/mcp"}, "is the server there?"),
        ({"url": "http://127.0.0.1:9/mcp", "headers": {"A": "env:NOT_SET_HERE"}}, "NOT_SET_HERE is not set; set it"),
    ],
)
async def test_a_server_that_cannot_be_started_leaves_its_tools_missing_with_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, server: dict[str, Any], said: str
) -> None:
    async with family(tmp_path, bad=server, good=hostile("", tmp_path)) as h:
        assert set(h.registry.names()) == {"good.act", "good.look", "good.repeat"}
        with pytest.raises(NotFound, match=r'no tool called "bad\.x": ') as no:
            h.registry.get("bad.x")
        assert said in str(no.value)
        with pytest.raises(ToolError):
            await h.adapter.health()
    assert said in caplog.text


async def test_a_server_that_ends_or_says_nothing_is_told_with_its_last_words(tmp_path: Path) -> None:
    settings = {"a": hostile("refuses", tmp_path), "b": hostile("never", tmp_path, start_timeout="500ms")}
    async with family(tmp_path, **settings, c=hostile("listing", tmp_path)) as h:
        assert not h.registry.names()
        with pytest.raises(NotFound, match=r"it ended with exit code 1\nits last words: I do not want to"):
            h.registry.get("a.x")
        with pytest.raises(NotFound, match=r"the MCP server b did not introduce itself within 0\.5 s"):
            h.registry.get("b.x")
        with pytest.raises(NotFound, match=r"the MCP server c could not be started: .*validation error"):
            h.registry.get("c.x")


async def test_a_server_gets_only_a_minimal_environment_and_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "s3cret")
    monkeypatch.setenv("HANDED_ON", "yes")
    settings = hostile("environment", tmp_path)
    settings["env"] = {"COUNT": "x", "HANDED_ON": "env:HANDED_ON", "SET": "here"}
    async with family(tmp_path, h=settings) as h:
        seen = json.loads((await h.call("h.look"))["text"])
    assert "SECRET_OF_MINE" not in seen
    assert (seen["HANDED_ON"], seen["SET"]) == ("yes", "here")
    assert seen["PATH"] == os.environ["PATH"]


async def test_a_call_carries_its_idempotency_key(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("meta", tmp_path)) as h:
        assert json.loads((await h.call("h.look"))["text"])["holdfast/idempotency-key"] == "key-1"


# ---- what it offers --------------------------------------------------------------------------------------------------


async def test_thousands_of_tools_are_cut_and_odd_ones_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with family(tmp_path, many=hostile("many", tmp_path), odd=hostile("names", tmp_path)) as h:
        names = set(h.registry.names())
        assert len([name for name in names if name.startswith("many.")]) == 1000
        assert {name for name in names if name.startswith("odd.")} == {"odd.good"}
    assert "all tools after the first 1,000" in caplog.text
    assert "a tool called 'bad name': its name has other characters" in caplog.text
    assert "a second tool called 'good'" in caplog.text


async def test_a_credential_in_what_a_server_says_of_itself_is_neither_shown_nor_kept_nor_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", token := "sk-live-9f8e7d6c5b4a")
    settings = hostile("tells", tmp_path)
    settings["env"]["TOKEN"] = "env:TOKEN"
    kept = tmp_path / ".holdfast" / "mcp"
    kept.mkdir(parents=True)
    kept.chmod(0o755)  # as it was made before
    try:
        async with family(tmp_path, h=settings) as h:
            assert h.registry.get("h.look").description == "Asks with [secret TOKEN]."
            assert (await h.call("h.look"))["text"] == "told"
        logging.getLogger("client").warning("from somebody else who is called so")
    finally:
        masks.forget()
    [file] = kept.glob("*.json")
    assert token not in file.read_text()
    assert (kept.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert token not in caplog.text
    assert [record.message for record in caplog.records if record.name == "client"] == [
        "from somebody else who is called so"
    ]


async def test_a_listing_without_an_end_is_cut(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("pages", tmp_path)) as h:
        assert set(h.registry.names()) == {"h.act", "h.look", "h.repeat"}


async def test_a_schema_that_is_none_is_left_out_and_a_dangerous_one_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with family(tmp_path, h=hostile("schemas", tmp_path)) as h:
        assert set(h.registry.names()) == {"h.good", "h.away", "h.lost", "h.endless", "h.slow"}
        assert h.registry.get("h.away").check({"x": 1}) == []  # nothing is fetched to check it
        with pytest.raises(Misconfigured, match="its server's schema cannot be used"):
            h.registry.get("h.lost").validate({"x": 1})
        with pytest.raises(Misconfigured, match="too complicated to check anything by"):
            h.registry.get("h.endless").validate({"x": 1})
        with pytest.raises(InvalidCall, match="x: expected text that matches"):  # elsewhere this runs for years
            h.registry.get("h.slow").validate({"x": "a" * 60 + "!"})
    assert "numbered: its schema makes no sense" in caplog.text
    assert "deep: its schema makes no sense: it is nested more than 64 deep" in caplog.text
    assert "huge: its schema makes no sense: it is larger than 262,144 bytes" in caplog.text


# ---- failures, one by one --------------------------------------------------------------------------------------------

LOST = "the MCP server h was lost: "
TABLE = [
    ("error", "h.act", ToolError, "tool", "known", "h.act: no act"),
    ("error", "h.look", InvalidCall, "logic", "nothing", "h.look: no look"),
    ("error", "h.repeat", Misconfigured, "configuration", "nothing", "is it an MCP server that has tools?"),
    ("is-error", "h.act", ToolError, "tool", "known", "h.act: the cat ate it"),
    ("dies-always", "h.act", Transient, "transient", "unknown", LOST + "it ended with exit code 4"),
    ("dies", "h.act", Transient, "transient", "unknown", "its last words: first line\nthe roof is on fire"),
    ("garbage", "h.act", Transient, "transient", "unknown", LOST + "it wrote something that is no MCP message: '{"),
    (
        "endless-noise",
        "h.act",
        Transient,
        "transient",
        "unknown",
        "it wrote something that is no MCP message: 'na na na'",
    ),
    ("no-newline", "h.act", Transient, "transient", "unknown", "it wrote a message of more than 8,388,608 bytes"),
    ("large", "h.act", Transient, "transient", "unknown", "it wrote a message of more than 8,388,608 bytes"),
    ("nonsense", "h.act", OutputInvalid, "logic", "unknown", "h.act: its server answered with nonsense: "),
    ("locked", "h.act", ToolError, "tool", "known", "h.act: database is locked"),
    ("closed", "h.act", ToolError, "tool", "known", "h.act: Connection closed"),
    ("null", "h.act", OutputInvalid, "logic", "unknown", "h.act: its server answered with nonsense: '{"),
    ("text", "h.act", OutputInvalid, "logic", "unknown", "h.act: its server answered with nonsense: '{"),
    ("no-code", "h.act", OutputInvalid, "logic", "unknown", '"code": "abc", "message": 5}}\'; tell its author'),
    ("neither", "h.act", OutputInvalid, "logic", "unknown", "h.act: its server answered with nonsense: '{"),
    ("promise", "h.none", OutputInvalid, "logic", "known", "promises structured data and sent none"),
    ("promise", "h.wrong", OutputInvalid, "logic", "known", 'data.n: expected a whole number, got the string "two"'),
]


@pytest.mark.parametrize(("vice", "tool", "error", "category", "happened", "said"), TABLE)
async def test_each_failure_has_its_category_its_effect_and_its_words(  # noqa: PLR0917 -- the table's columns
    tmp_path: Path, vice: str, tool: str, error: type[ToolError], category: str, happened: str, said: str
) -> None:
    async with family(tmp_path, h=hostile(vice, tmp_path)) as h:
        with pytest.raises(error) as failed:
            await h.call(tool)
    assert said in str(failed.value)
    described = describe(failed.value)
    assert (described.category, described.happened) == (category, happened)


@pytest.mark.parametrize("vice", ["locked", "closed", "null", "text", "no-code", "neither"])
async def test_a_bad_answer_fails_nobody_but_whom_it_answers(tmp_path: Path, vice: str) -> None:
    async with family(tmp_path, h=hostile(vice, tmp_path)) as h:
        under_way = asyncio.create_task(h.call("h.look"))
        await until((tmp_path / "count").exists)
        with pytest.raises(ToolError) as failed:
            await h.call("h.act")
        assert describe(failed.value).happened == ("known" if vice in ("locked", "closed") else "unknown")
        assert (await h.call("h.repeat"))["text"] == "repeat done"
        assert (await under_way)["text"] == "look done"


async def test_answer_that_breaks_its_promise_is_kept_unless_the_tool_only_reads(tmp_path: Path) -> None:
    server = hostile("promise", tmp_path, effects={"none": "read"})
    _project(tmp_path, h=server)
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(step("a", "h.wrong")))
        assert await settled(run) == "completed"
        kept = await step_of(run, "a")
        assert kept.warning.startswith("h.wrong: its server sent something else than it promises: data.n: expected")
        run = await engine.start(plan(step("a", "h.none")))
        assert await settled(run) == "waiting"
        assert (await step_of(run, "a")).status == "waiting"
        await run.stop()


@pytest.mark.parametrize(
    ("vice", "tool", "text"),
    [
        ("twice", "h.act", "first"),
        ("noise", "h.act", "after the noise"),
        ("flood", "h.act", "dry again"),
        ("promise", "h.right", "n is 2"),
        ("stays", "h.act", "act done"),
    ],
)
async def test_what_is_only_odd_is_lived_with(tmp_path: Path, vice: str, tool: str, text: str) -> None:
    async with family(tmp_path, h=hostile(vice, tmp_path)) as h:
        for _ in range(2):
            assert (await h.call(tool))["text"] == text


async def test_a_server_that_takes_too_much_memory_is_ended_and_the_next_call_starts_another(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("hog", tmp_path, resources={"memory": "200MB"})) as h:
        for _ in range(2):
            with pytest.raises(
                Transient, match=r"it went over its limit; if it needs more, raise its resources.memory"
            ):
                await h.call("h.look")
    async with family(tmp_path, h=hostile("hog", tmp_path)) as h:
        assert (await h.call("h.look"))["text"] == "holds 60 pieces"


async def test_after_too_many_failures_a_server_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("dies-always", tmp_path)) as h:
        for _ in range(server_module.FAILURES_MAX + 1):
            with pytest.raises(Transient, match="was lost"):
                await h.call("h.look")
        with pytest.raises(Transient, match="failed 6 times in a row, and is not started again before") as refused:
            await h.call("h.look")
        assert refused.value.without_effect


async def test_a_server_that_changes_its_tools_is_asked_again(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("grows", tmp_path)) as h:
        (catalogue,) = (tmp_path / ".holdfast" / "mcp").glob("*.json")
        assert b"new" not in catalogue.read_bytes()
        await h.call("h.act")
        while b"new" not in catalogue.read_bytes():  # noqa: ASYNC110 -- the server decides when
            await asyncio.sleep(0.01)


async def test_many_calls_at_once_share_one_server(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("", tmp_path)) as h:
        answers = await asyncio.gather(*(h.call("h.act") for _ in range(50)))
    assert {answer["text"] for answer in answers} == {"act done"}


async def test_a_tool_of_ones_own_is_not_pushed_aside_by_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.tool(name="h.act")
    def own() -> str:
        return "mine"

    @holdfast.tool(name="h.other")
    def other() -> str:
        return "mine"

    _project(tmp_path, h=hostile("", tmp_path))
    for known in ("asked for when it opens", "on disk"):
        caplog.clear()
        async with engine_at(tmp_path, own, other) as engine:
            run = await engine.start(plan(step("act", "h.act"), step("other", "h.other"), step("look", "h.look")))
            await run.result()
            assert msgspec.json.decode((await run.state()).steps["act"].output) == "mine", known
        assert "the MCP server h offers h.act, which is already there at" in caplog.text


async def test_health_starts_nothing_and_tells_of_a_server_that_failed(tmp_path: Path) -> None:
    async with family(tmp_path, h=hostile("dies-always", tmp_path)) as h:
        await h.adapter.health()
    async with family(tmp_path, h=hostile("dies-always", tmp_path)) as h:
        await h.adapter.health()  # what it offers is on disk, so it was not started for that
        assert h.adapter._sources[0].server()._link is None
        for _ in range(2):
            with pytest.raises(Transient, match="was lost"):
                await h.call("h.look")
        with pytest.raises(Transient, match="the MCP server h: it ended with exit code 4"):
            await h.adapter.health()


# ---- inside an engine ------------------------------------------------------------------------------------------------


def _project(folder: Path, **servers: dict[str, Any]) -> None:
    lines: list[str] = []
    for name, server in servers.items():
        lines.append(f"[tools.mcp.servers.{name}]")
        for key, value in server.items():
            table = (
                "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
                if isinstance(value, dict)
                else json.dumps(value)
            )
            lines.append(f"{key} = {table}")
    (folder / "holdfast.toml").write_text("\n".join(lines) + "\n")


async def test_a_crash_is_survived_by_a_reading_step_and_leaves_one_that_acts_in_doubt(tmp_path: Path) -> None:
    _project(tmp_path, h=hostile("dies", tmp_path, trust_hints=True))
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(step("look", "h.look", retry=FAST)))
        assert (await run.result())["text"] == "alive again"
        doubtful = await engine.start(plan(step("act", "h.act", in_doubt="fail")))
        other = await engine.start(plan(step("wait", "time.sleep", **{"with": {"seconds": 0.01}})))
        await other.result()
        with pytest.raises(holdfast.ExecutionFailed):
            await doubtful.result()
        state = await doubtful.state()
        assert state.steps["act"].failure is not None
        assert "the MCP server h was lost" in state.steps["act"].failure.message
        assert state.steps["act"].failure.happened == "unknown"


async def test_tool_that_is_no_longer_said_to_read_is_not_called_as_one_that_does(tmp_path: Path) -> None:
    settings = hostile("hardens", tmp_path, trust_hints=True)
    _project(tmp_path, h=settings)
    async with family(tmp_path, h=settings) as h:
        assert h.registry.get("h.look").effect == "read"
    (tmp_path / "count").write_text("0")
    async with engine_at(tmp_path) as engine:  # which knows the tool from the disk
        run = await engine.start(plan(step("look", "h.look")))
        assert await settled(run) == "waiting"
        failure = (await step_of(run, "look")).failure
        assert failure is not None
        assert "h.look: its server no longer says that it may be repeated: it was begun as `read`" in failure.message
        assert (failure.category, failure.happened) == ("configuration", "nothing")
        assert (tmp_path / "count").read_text() == "0"
        await run.resolve("look", "again")
        assert await settled(run) == "completed"
        assert (await step_of(run, "look")).effect == "once"
        own = await engine.start(plan(step("look", "h.look", effect="read")))  # its author says so, whatever others say
        assert (await own.result())["text"] == "call 2"


async def test_a_server_that_says_nothing_of_its_own_is_held_to_the_resources_of_the_settings(tmp_path: Path) -> None:
    generous = hostile("hog", tmp_path, trust_hints=True, resources={"memory": "2GB"})
    _project(tmp_path, h=hostile("hog", tmp_path, trust_hints=True), g=generous)
    with (tmp_path / "holdfast.toml").open("a") as settings:
        settings.write('[resources]\nmemory = "200MB"\n')
    async with engine_at(tmp_path) as engine:
        held = await engine.start(plan(step("look", "h.look", retry={"max": 0})))
        with pytest.raises(holdfast.ExecutionFailed, match=r"raise its resources\.memory"):
            await held.result()
        own = await engine.start(plan(step("look", "g.look")))
        assert (await own.result())["text"] == "holds 60 pieces"


async def test_a_time_limit_tells_the_server_and_keeps_it(tmp_path: Path) -> None:
    _project(
        tmp_path, h=hostile("silent", tmp_path, trust_hints=True), w=hostile("wrong-id", tmp_path, trust_hints=True)
    )
    async with engine_at(tmp_path) as engine:
        for name in ("h.look", "w.look"):
            run = await engine.start(plan(step("look", name, timeout="300ms", retry=0)))
            with pytest.raises(holdfast.ExecutionFailed):
                await run.result()
            state = await run.state()
            failure = state.steps["look"].failure
            assert failure is not None
            assert (failure.category, failure.message) == ("timeout", f"{name} took longer than 0.3 s")
        while (tmp_path / "count").read_text() != "cancelled":  # noqa: ASYNC110 -- another process writes it
            await asyncio.sleep(0.01)


async def test_a_fallback_of_a_server_that_is_away_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.tool(effect="read", fallbacks=["bad.x"])
    def near() -> str:
        return "here"

    @holdfast.function
    async def ask(ctx: holdfast.Context) -> str:
        return await ctx.call(near)

    _project(tmp_path, bad={"command": ["no-such-program"]})
    async with engine_at(tmp_path, near, functions=[ask]) as engine:
        assert await (await engine.start(ask)).result() == "here"
    assert "its fallback bad.x is missing: the MCP server bad" in caplog.text


async def test_an_execution_that_needs_a_missing_server_is_left_alone_and_others_go_on(tmp_path: Path) -> None:
    _project(tmp_path, h=hostile("", tmp_path))
    async with engine_at(tmp_path, recover="nothing") as engine:
        waiting = await engine.start(plan(step("act", "h.act")))
    _project(tmp_path, h={"command": ["no-such-program"]})
    async with engine_at(tmp_path) as engine:
        other = await engine.start(plan(step("wait", "time.sleep", **{"with": {"seconds": 0.01}})))
        await other.result()
        assert (await engine.get(waiting.id).state()).status == "queued"
    _project(tmp_path, h=hostile("", tmp_path))
    async with engine_at(tmp_path) as engine:
        assert (await engine.get(waiting.id).result())["text"] == "act done"


async def test_each_server_is_asked_for_its_own_health(tmp_path: Path) -> None:
    """One that is down says nothing about the tools of the others."""
    async with family(tmp_path, one=hostile("honest", tmp_path), two=hostile("honest", tmp_path)) as h:
        checks = h.adapter.health_checks(["one.a", "two.b", "one.c"])
    assert [check.tools for check in checks] == [("one.a", "one.c"), ("two.b",)]
