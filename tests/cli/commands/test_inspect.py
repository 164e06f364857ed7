"""`list`, `show`, `events`, `tools` and the help: what is printed, for people and for programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from cli.workshop import Workshop
from holdfast.cli.command_index import FAMILIES, GROUPS, LINE_CHARS_MAX, commands_of
from servers.commands import environment, script_at

COMMANDS = [
    "run", "resume", "retry", "fork", "list", "show", "events", "watch", "pause", "interrupt", "stop", "approve",
    "deny", "answer", "resolve", "send", "tools", "doctor", "demo", "logs", "inbox", "history", "diff",
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


def test_a_named_store_that_is_not_there_is_a_mistake(shop: Workshop) -> None:
    missing = f"there is no journal at {shop.folder / 'nope.db'}; start a task"
    assert missing in shop.run("list", "--store", "nope.db", code=2).err
    assert missing in shop.run("list", code=2, HOLDFAST_STORE="nope.db").err
    shop.write("holdfast.toml", 'store = "later.db"\n')
    assert shop.run("list").err == "holdfast: no executions; start one with `holdfast run PLAN`\n"


def test_a_list_that_is_cut_says_so(shop: Workshop) -> None:
    for _ in range(3):
        shop.run("run", "two.yaml", "--hold")
    said = "there are more; these are the newest 2: --limit shows more, filters narrow it down"
    assert shop.run("list", "--limit", "2").err == f"holdfast: {said}\n"
    cut = shop.run("list", "--limit", "2", "--json")
    assert len(cut.json) == 2
    assert json.loads(cut.err) == {"note": said}
    assert shop.run("list", "--limit", "3").err == ""
    assert len(shop.run("list", "--limit", "3", "--json").json) == 3


def test_a_list_says_that_nobody_drives_what_runs(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    driven = shop.run("list")
    assert "nobody drives it" not in driven.out + driven.err
    shop.kill(process)
    left = shop.run("list")
    assert left.out.splitlines()[1].endswith("(nobody drives it)")
    assert left.err == (
        "holdfast: what nobody drives goes on with: holdfast resume ID, or holdfast worker for all of it\n"
    )


def test_steps_that_have_not_begun_are_pending(shop: Workshop) -> None:
    shop.write(
        "long.yaml",
        "name: long\nsteps:\n  - {id: agree, approval: Well?}\n  - {id: act, tool: work.do}\n"
        "  - {id: each, for_each: [1], tool: work.do}\nfinally:\n  - {id: tidy, tool: work.do}\n",
    )
    shop.run("run", "long.yaml", code=3)
    agree, *pending = shop.run("show", "@last", "--json").json["steps"]
    assert [(step["path"], step["tool"], step["kind"], step["status"]) for step in pending] == [
        ("act", "work.do", "tool", "pending"),
        ("each", "work.do", "for_each", "pending"),
        ("tidy", "work.do", "tool", "pending"),
    ]
    assert all(step.keys() == agree.keys() for step in pending)
    assert {(step["attempts"], step["effect"], step["started_at"]) for step in pending} == {(0, None, None)}
    assert "  · act    pending, work.do\n" in shop.run("show", "@last").out


def test_many_items_are_counted_and_those_amiss_are_shown(shop: Workshop) -> None:
    numbers = ", ".join(["2", "3", *["4"] * 24])
    shop.write(
        "many.yaml",
        f"name: many\nsteps:\n  - id: each\n    for_each: [{numbers}]\n    steps:\n"
        '      - {id: n, tool: work.even, with: {number: "${{ item }}"}}\n',
    )
    shop.run("run", "many.yaml", code=3)
    page = shop.run("show", "@last").out
    assert "    … 26 items: 25 completed, 1 running; --all shows every one\n" in page
    assert "● [1]" in page
    assert "◌ n" in page
    assert "[0]" not in page
    everything = shop.run("show", "@last", "--all").out
    assert "✔ [25]" in everything
    assert "26 items" not in everything
    assert len(shop.run("show", "@last", "--json").json["steps"]) == 1 + 2 * 26


def test_children_are_marked_in_the_list_and_shown_with_what_they_ask(shop: Workshop) -> None:
    shop.run("run", "parent", code=3)
    child, parent = shop.run("list", "--json").json
    assert child["parent_id"] == parent["id"]
    table = shop.run("list").out.splitlines()
    assert "↳ ask" in table[1]
    assert f"(child of {parent['id']})" in table[1]
    assert "↳" not in table[2]
    assert "> ask" in shop.run("list", PYTHONIOENCODING="ascii").out
    (shown,) = shop.run("show", parent["id"], "--json").json["children"]
    assert (shown["id"], shown["status"]) == (child["id"], "waiting")
    assert [(request["execution_id"], request["path"]) for request in shown["requests"]] == [(child["id"], "publish")]
    page = shop.run("show", parent["id"]).out
    assert f"children\n  child  {child['id']}  waiting\n    publish asks for an approval: Publish it?\n" in page
    assert f"holdfast approve {child['id']} publish" in page
    shop.run("approve", child["id"])
    shop.run("resume", parent["id"])
    assert f"child  {child['id']}  completed" in shop.run("show", parent["id"]).out


def test_a_long_output_is_cut_and_json_has_all_of_it(shop: Workshop) -> None:
    text = "tide " * 3000
    shop.write("words.txt", text)
    shop.write("long.yaml", "name: long\nsteps:\n  - {id: read, tool: files.read, with: {path: words.txt}}\n")
    ran = shop.run("run", "long.yaml").out
    hint = f"… (cut; all of it: holdfast show {shop.newest()['id']} --json)\n"
    assert hint in ran
    assert hint in shop.run("show", "@last").out
    assert shop.run("show", "@last", "--json").json["output"] == text
    shop.run("run", "two.yaml")
    assert "cut" not in shop.run("show", "@last").out


def test_a_completed_execution_is_run_again_from_a_step(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    page = shop.run("show", "@last").out
    assert page.endswith(f"run it again from a step on: holdfast retry {shop.newest()['id']} --from STEP\n")


def test_show_json_has_the_whole_execution(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    shown = shop.run("show", "@last", "--json").json
    assert [(step["path"], step["tool"], step["status"]) for step in shown["steps"]] == [
        ("first", "work.do", "completed"),
        ("second", "work.do", "completed"),
    ]
    assert (shown["status"], shown["output"], shown["spend"]) == (
        "completed",
        1,
        {"usd": None, "unknown": 0, "limit": None, "reserved": 0.0},
    )


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
    for command in ("events @last --json", "events @last", "list", "show @last", "show @last --json", "watch @last"):
        assert code_without_reader(shop, command, "true") == 0
    assert code_without_reader(shop, "events @last --json", "head -n 1") == 0


def test_a_run_whose_reader_leaves_early_goes_on_to_its_own_outcome(shop: Workshop) -> None:
    for command, code in (("run two.yaml", 0), ("run two.yaml --json", 0), ("run fail.yaml", 1), ("run ask.yaml", 3)):
        assert code_without_reader(shop, command, "true") == code
    assert code_without_reader(shop, "run two.yaml", "head -n 1") == 0
    statuses = [head["status"] for head in shop.run("list", "--json").json]
    assert statuses == ["completed", "waiting", "failed", "completed", "completed"]


def code_without_reader(shop: Workshop, command: str, reader: str) -> int:
    """The exit code of a command whose reader leaves early: `true` before the first line, `head` after it."""
    script_at(shop.folder)
    script = f"./holdfast {command} | {reader} >/dev/null; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", script], cwd=shop.folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    return int(result.stdout)


def test_tools_lists_effects_arguments_and_unmet_needs(shop: Workshop) -> None:
    tools = {tool["name"]: tool for tool in shop.run("tools", "--json").json}
    assert tools["shell.run"]["effect"] == "once"
    assert "value" in tools["work.do"]["arguments"]["properties"]
    assert tools["work.needy"]["missing"]
    page = shop.run("tools").out
    assert "work.do" in page
    assert "Do a little work." in page
    assert 'work.needy needs the program "no-such-program-anywhere"' in page


def test_tools_also_lists_the_functions_that_can_be_run(shop: Workshop) -> None:
    found = {each["name"]: each for each in shop.run("tools", "--json").json}
    assert (found["work.do"]["kind"], found["double"]["kind"]) == ("tool", "function")
    assert found["double"].keys() == found["work.do"].keys()
    assert found["double"]["arguments"]["required"] == ["number"]
    assert found["double"]["place"].startswith(f"{shop.folder / 'tools.py'}:")
    lines = [line.split() for line in shop.run("tools").out.splitlines()]
    assert ["FUNCTION", "INPUTS", "WHAT", "IT", "DOES"] in lines
    assert ["double", "number,", "[label]"] in lines


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


def test_help_shows_all_commands_in_groups_on_one_screen() -> None:
    script = (
        "import sys; from holdfast.cli.main import run; run(['--help'])\n"
        "from holdfast.cli.command_index import FAMILIES\n"
        "imported = [one for one in FAMILIES if f'holdfast.cli.commands.{one}' in sys.modules]\n"
        "sys.exit(f'imported {imported}' if imported else 0)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment(COLUMNS="80"), capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for group, commands in GROUPS.items():
        assert re.search(rf"(^| ){group}( |$)", shown.stdout, re.MULTILINE)
        for name, line in commands.items():
            assert len(line) <= LINE_CHARS_MAX
            assert re.search(rf"(^|  )  {name} +{re.escape(line)}(  |$)", shown.stdout, re.MULTILINE), name
    listed = [name for commands in GROUPS.values() for name in commands]
    assert sorted(listed) == sorted(
        name for family in FAMILIES for name, command in commands_of(family).items() if not command.hidden
    )
    narrow = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "--help"],
        env=environment(COLUMNS="50"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(f"\n  {name} " in narrow.stdout for name in listed)


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


def test_a_list_comes_without_what_only_other_commands_need(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    script = (
        f"import sys; from holdfast.cli.main import run; run(['-C', {str(shop.folder)!r}, 'list'])\n"
        "named = {'rich', 'yaml', 'httpx', 'pydantic', 'importlib.resources', 'holdfast.app',\n"
        "         'holdfast.core.plan.model', 'holdfast.core.expressions', 'holdfast.engine.engine',\n"
        "         'holdfast.tools.tool'}\n"
        "heavy = named & set(sys.modules)\n"
        "from holdfast.cli.command_index import FAMILIES\n"
        "families = {one for one in FAMILIES if f'holdfast.cli.commands.{one}' in sys.modules} - {'inspect'}\n"
        "sys.exit(f'imported {heavy | families}' if heavy | families else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "completed" in result.stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_of_commands_says_what_each_family_has(family: str) -> None:
    assert tuple(commands_of(family)) == FAMILIES[family]


def test_wrong_commands_are_explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli.main import run

    monkeypatch.setenv("PATH", environment()["PATH"])

    assert run(["rnu"]) == 2
    assert capsys.readouterr().err.startswith("holdfast: No such command 'rnu'")
    assert run(["show"]) == 2
    assert "Missing argument 'ID'; `holdfast show --help` shows how" in capsys.readouterr().err
    assert run(["shwo"]) == 2
    assert capsys.readouterr().err.endswith("Did you mean 'show'? `holdfast --help` shows how\n")


@pytest.mark.parametrize(
    ("arguments", "same"),
    [([], ["--help"]), (["-C", "."], ["--help"]), (["help"], ["--help"]), (["help", "run"], ["run", "--help"])],
)
def test_help_is_found_without_dashes(
    arguments: list[str], same: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli.main import run

    assert run(arguments) == 0
    found = capsys.readouterr()
    assert run(same) == 0
    assert found == capsys.readouterr()
    assert found.out.startswith("Usage: holdfast")
    assert found.err == ""


def test_with_json_an_error_is_one_object_and_the_exit_code_stays(shop: Workshop) -> None:
    for arguments, code, kind, text in [
        (["show", "@last", "--json"], 2, "NotFound", "there is no journal at "),
        (["show", "--json"], 2, "UsageError", "Missing argument 'ID'; `holdfast show --help` shows how"),
        (["run", "--json", "none.yaml"], 2, "NotFound", "there is no plan file "),
        (["--store", "two.yaml", "list", "--json"], 1, "StoreCorrupted", "is damaged"),
    ]:
        result = shop.run(*arguments, code=code)
        said = json.loads(result.err)
        assert said.keys() == {"error", "type"}
        assert said["type"] == kind
        assert text in said["error"]
        assert result.out == ""
    assert shop.run("answer", "@last", "a", "--", "--json", code=2).err.startswith("holdfast: ")


def test_a_title_stands_on_one_line_of_bounded_length_and_turns_no_text_around(shop: Workshop) -> None:
    title = "a\nb\u202ec" + "x" * 5000
    told = shop.run("run", "two.yaml", "--title", title)
    assert max(map(len, told.out.splitlines())) < 400
    assert re.search(r"^completed in .*: a b\ufffdcx+… \(", told.out, re.MULTILINE)
    for command in ("history", "list", "show @last", "retry @last --from second"):
        shown = shop.run(*command.split()).out
        assert "\u202e" not in shown
        assert max(map(len, shown.splitlines())) < 400
    assert shop.newest()["title"] == title


def test_a_title_of_several_lines_stands_on_one(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--title", "first\nsecond  completed")
    for command in (["list"], ["show", "@last"], ["history"], ["events", "@last"], ["delete", "@last", "--dry-run"]):
        out = shop.run(*command).out
        assert "first second completed" in out
        assert not any(line.startswith("second") for line in out.splitlines())


def test_show_says_when_a_pause_limit_acts_and_that_it_is_overdue(shop: Workshop) -> None:
    for limit, then in (("2d", "stop"), ("10ms", "stop"), ("10ms", "resume")):
        shop.write(
            "paused.yaml",
            f"name: paused\npause_timeout: {limit}\non_pause_timeout: {then}\nsteps:\n  - {{id: a, tool: work.do}}\n",
        )
        shop.run("run", "paused.yaml", "--hold")
        shop.run("pause", "@last")
        page = shop.run("show", "@last").out
        if limit == "2d":
            assert re.search("pause limit  it is stopped in (1 d 23 h|2 d 0 h)", page)
        else:
            assert f"pause limit  overdue: it was to be {'stopped' if then == 'stop' else 'resumed'} " in page
            assert "that happens when an engine runs: holdfast worker" in page
        assert shop.run("show", "@last", "--json").json["on_pause_timeout"] == then
    shop.run("worker", "--until-idle")
    assert "overdue" not in shop.run("show", "@last").out
