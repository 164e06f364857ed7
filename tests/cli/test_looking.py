"""`list`, `show`, `events`, `tools` and the help: what is printed, for people and for programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.workshop import Workshop, environment

COMMANDS = [
    "run", "resume", "retry", "fork", "list", "show", "events", "watch", "pause", "interrupt", "stop", "approve",
    "deny", "answer", "resolve", "send", "tools", "doctor", "demo",
]  # fmt: skip


def test_list_shows_the_newest_first_and_filters(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--owner", "ada")
    shop.run("run", "fail.yaml", code=1)
    heads = shop.run("list", "--json").json
    assert [head["name"] for head in heads] == ["fail", "two"]
    assert {"id", "name", "title", "status", "created_at"} <= heads[0].keys()
    assert [head["name"] for head in shop.run("list", "--json", "--status", "failed").json] == ["fail"]
    assert [head["name"] for head in shop.run("list", "--json", "--name", "two").json] == ["two"]
    assert [head["name"] for head in shop.run("list", "--json", "--owner", "ada").json] == ["two"]
    assert len(shop.run("list", "--json", "--limit", "1").json) == 1
    table = shop.run("list").out.splitlines()
    assert table[0].split() == ["ID", "STATUS", "STEPS", "CREATED", "NAME", "TITLE"]
    assert table[1].startswith(heads[0]["id"])
    refused = shop.run("list", "--status", "complete", code=2)
    assert '--status: there is no status "complete"; did you mean "completed"?' in refused.err


def test_an_id_may_be_any_unambiguous_beginning_or_end(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    shop.run("run", "two.yaml")
    newest, older = (head["id"] for head in shop.run("list", "--json").json)
    for fragment in (older, older[-8:], older[:23]):
        assert shop.run("show", fragment, "--json").json["id"] == older
    assert shop.run("show", "@last", "--json").json["id"] == newest
    ambiguous = shop.run("show", older[:4], code=2)
    assert "fits more than one execution" in ambiguous.err
    assert older in ambiguous.err
    unknown = shop.run("show", "zzz", code=2)
    assert unknown.err == 'holdfast: there is no execution "zzz"; `holdfast list` shows them\n'


def test_looking_where_nothing_ever_ran_leaves_nothing_behind(shop: Workshop) -> None:
    assert shop.run("list", "--json").json == []
    for command in ("show", "pause", "resume", "retry"):
        missing = shop.run(command, "@last", code=2)
        assert f"there is no journal at {shop.store}; start a task with `holdfast run PLAN`" in missing.err
    assert not shop.store.parent.exists()
    in_memory = shop.run("show", "@last", "--store", "memory:", code=2)
    assert "a store in memory ends with its process, so there is nothing to look at; use a file" in in_memory.err


def test_show_json_has_the_whole_execution(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    shown = shop.run("show", "@last", "--json").json
    assert [(step["path"], step["tool"], step["status"]) for step in shown["steps"]] == [
        ("first", "work.do", "completed"),
        ("second", "work.do", "completed"),
    ]
    assert (shown["status"], shown["output"], shown["spend"]) == ("completed", 1, {"usd": None, "tokens": None})


def test_events_are_numbered_json_lines_and_can_be_continued(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    events = shop.run("events", "@last", "--json").lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all({"seq", "at", "type", "task_id"} <= event.keys() for event in events)
    assert shop.run("events", "@last", "--json", "--since", "5").lines == events[5:]
    assert shop.run("events", "@last", "--since", "999").out == ""
    assert "task:completed" in shop.run("events", "@last").out.splitlines()[-1]


def test_events_follow_to_the_end(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    following = shop.start("events", "@last", "--follow", "--json")
    shop.open_gate()
    assert shop.finish(following).lines[-1]["type"] == "task:completed"
    shop.finish(driving)


def test_a_reader_that_leaves_early_is_no_error(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    command = f"{sys.executable} -m holdfast.cli events @last --json | head -n 1 >/dev/null"
    result = subprocess.run(
        ["sh", "-c", command], cwd=shop.folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.stderr == ""


def test_tools_lists_effects_arguments_and_unmet_needs(shop: Workshop) -> None:
    tools = {tool["name"]: tool for tool in shop.run("tools", "--json").json}
    assert tools["shell.run"]["effect"] == "once"
    assert "value" in tools["work.do"]["arguments"]["properties"]
    assert tools["work.needy"]["missing"]
    page = shop.run("tools").out
    assert "work.do" in page
    assert "Do a little work." in page
    assert 'work.needy needs the program "no-such-program-anywhere"' in page


def test_no_colours_where_nobody_looks(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    for arguments in (["list"], ["show", "@last"], ["events", "@last"], ["tools"]):
        assert "\x1b" not in shop.run(*arguments).out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli.main import run

    assert run([command, "--help"]) == 0
    page = capsys.readouterr().out
    assert "Example:\n" in page
    assert f"holdfast {command}" in page.partition("Example:")[2]


def test_help_and_version_come_without_heavy_imports(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys; from holdfast.cli.main import run; run(['--help']); run(['--version'])\n"
        "named = {'asyncio', 'msgspec', 'apsw', 'rich', 'yaml', 'httpx', 'pydantic', 'holdfast.app'}\n"
        "heavy = named & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "holdfast run report.yaml -i topic=tides" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("holdfast 0.")


def test_wrong_commands_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli.main import run

    assert run(["rnu"]) == 2
    assert capsys.readouterr().err.startswith("holdfast: No such command 'rnu'")
    assert run(["show"]) == 2
    assert "Missing argument 'ID'; `holdfast show --help` shows how" in capsys.readouterr().err
