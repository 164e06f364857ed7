"""What is known to be wrong with a step's arguments is told before anything starts, by `check` and by `run --check`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.workshop import Workshop

SETTINGS = """
modules = ["tools.py"]
[tools.notify]
recipients = ["*@example.org"]
[tools.notify.channels]
hook = "json://localhost/"
mail = "mailto://localhost/"
"""

URL = 'expected an address such as "https://example.org", got '
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("http.get", {"url": "ftp://a.example/"}, ".url", URL + '"ftp://a.example/"'),
    ("http.get", {"url": "example.org"}, ".url", URL + '"example.org"'),
    (
        "http.request",
        {"url": "https://a.example", "json": {}, "text": "x"},
        "",
        "a request has one body: give only one",
    ),
    (
        "notify.send",
        {"to": "hok", "text": "x"},
        ".to",
        'no channel called "hok" in [tools.notify]; did you mean "hook"?',
    ),
    ("notify.send", {"to": [], "text": "x"}, ".to", "expected 1 to 20 channels, got 0"),
    ("notify.send", {"to": "mail:ann@other.example", "text": "x"}, "", "ann@other.example may not be written to"),
    ("notify.send", {"to": "hook", "text": " "}, ".text", "expected a message, got nothing"),
    ("search.web", {"query": ""}, ".query", "expected 1 to 500 characters, got 0"),
    ("search.web", {"query": "x", "limit": 99}, ".limit", "expected 1 to 50, got 99"),
    ("browser.open", {"url": "file:///etc/passwd"}, ".url", URL + '"file:///etc/passwd"'),
    ("browser.open", {"url": "https://a.example", "timeout": "0s"}, ".timeout", "expected more than 0 seconds"),
    ("browser.wait", {"selector": "a", "text": "b"}, "", "expected one of selector, text, address and quiet, got sel"),
    ("browser.wait", {}, "", "expected one of selector, text, address and quiet, got none"),
    ("browser.screenshot", {"selector": "a", "whole": True}, "", "a picture is of the whole page or of one element"),
    ("files.read", {"path": "/etc/passwd"}, ".path", '"/etc/passwd" leads outside the allowed folders ('),
    ("files.move", {"path": "a", "to": "../b"}, ".to", 'b" leads outside the allowed folders ('),
    ("shell.run", {"command": " "}, ".command", "expected a program to run, got nothing"),
    ("shell.run", {"command": []}, ".command", "expected a program to run, got nothing"),
]


@pytest.fixture
def set_up(shop: Workshop) -> Workshop:
    shop.write("holdfast.toml", SETTINGS)
    return shop


def _plan(shop: Workshop, *steps: tuple[str, dict[str, Any]]) -> str:
    written = [{"id": f"s{index}", "tool": tool, "with": given} for index, (tool, given) in enumerate(steps)]
    shop.write("p.json", json.dumps({"inputs": {"later": "string"}, "steps": written}))
    return "p.json"


def test_every_known_mistake_is_found_by_check(set_up: Workshop) -> None:
    plan = _plan(set_up, *((tool, given) for tool, given, _, _ in WRONG))
    told = {
        finding["place"]: finding["message"] for finding in set_up.run("check", plan, "--json", code=1).json["findings"]
    }
    for index, (tool, given, place, text) in enumerate(WRONG):
        assert text in told.get(f"steps[{index}].with{place}", "nothing"), (tool, given, told)


def test_and_by_run_with_and_without_check(set_up: Workshop) -> None:
    plan = _plan(set_up, ("search.web", {"query": " "}))
    for options in (["--check"], []):
        refused = set_up.run("run", plan, *options, code=2)
        assert "steps[0].with.query: expected 1 to 500 characters, got 0" in refused.err
    assert not set_up.store.exists() or set_up.run("list", "--json").json == []


def test_what_comes_later_is_judged_later(set_up: Workshop) -> None:
    later = "${{ inputs.later }}"
    plan = _plan(
        set_up,
        ("http.request", {"url": later, "json": {"a": later}}),
        ("notify.send", {"to": later, "text": later}),
        ("search.web", {"query": later}),
        ("browser.wait", {"selector": later}),
        ("files.read", {"path": later}),
        ("shell.run", {"command": later}),
    )
    errors = [
        one for one in set_up.run("check", plan, "--json", code=None).json["findings"] if one["severity"] == "error"
    ]
    assert errors == []


def test_one_of_two_that_comes_later_does_not_hide_the_mistake_of_the_other(set_up: Workshop) -> None:
    plan = _plan(set_up, ("http.request", {"url": "nowhere", "text": "${{ inputs.later }}"}))
    assert "steps[0].with.url: expected an address" in set_up.run("check", plan, code=1).out


def test_a_program_that_is_not_here_is_a_warning(set_up: Workshop) -> None:
    plan = _plan(
        set_up, ("shell.run", {"command": ["no-such-binary"]}), ("shell.run", {"command": ["sh", "-c", "true"]})
    )
    found = set_up.run("check", plan, "--json").json["findings"]
    assert [(one["place"], one["severity"]) for one in found if "program" in one["message"]] == [
        ("steps[0].with.command", "warning")
    ]


def test_a_browser_that_is_not_there_is_told_before_a_plan_starts(shop: Workshop) -> None:
    shop.write("holdfast.toml", '[tools.browser]\nexecutable = "no-such-browser"\n')
    shop.write("p.yaml", "steps: [{id: a, tool: browser.open, with: {url: https://a.example}}]")
    text = 'no browser called "no-such-browser" can be run; correct executable in [tools.browser], or install it'
    assert f"warning: steps[0].tool: {text}" in shop.run("check", "p.yaml").out
    assert text in shop.run("run", "p.yaml", "--check", code=1).out
    assert text in shop.run("run", "p.yaml", code=2).err
    assert shop.run("tools").out.count(text) == 1


def test_a_secret_that_is_too_short_is_told_before_a_plan_starts(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[secrets]\nPIN = {file = "pin"}\n')
    shop.write("pin", "12")
    shop.write("p.yaml", "steps: [{id: a, tool: work.fail, with: {text: '${{ secrets.PIN }}'}}]")
    text = "the secret PIN has 2 characters, at least "
    assert text in shop.run("check", "p.yaml").out
    assert text in shop.run("run", "p.yaml", "--check", code=1).out


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('[tools.browser]\ntimeot = "5s"', 'tools.browser.timeot: no such name; did you mean "timeout"?'),
        (
            '[[tools.search.providers]]\nkind = "google"',
            'tools.search.providers[0].kind: expected one of "local", "searxng", "brave", got the string "google"',
        ),
        ('[tools.http]\nallow = "x"', 'tools.http.allow: expected a list, got the string "x"'),
        (
            '[tools.mcp.servers.s]\ncommand = ["x"]\neffects = {a = "raed"}',
            'tools.mcp.servers.s.effects.a: expected one of "read", "idempotent", "once", got the string "raed"; '
            'did you mean "read"?',
        ),
    ],
)
def test_a_mistake_in_the_settings_of_tools_is_told_in_words(shop: Workshop, table: str, text: str) -> None:
    shop.write("holdfast.toml", table)
    assert shop.run("tools", code=2).err == f"holdfast: {shop.folder / 'holdfast.toml'}: {text}\n"


def test_a_mistake_in_a_form_is_told_with_its_field(shop: Workshop) -> None:
    shop.write("p.yaml", "steps: [{id: a, tool: human.ask, with: {question: Well?, form: {colour: strng}}}]")
    out = shop.run("check", "p.yaml", code=1).out
    assert 'with.form.colour: expected one of "string"' in out
    assert 'got the string "strng"; did you mean "string"?' in out


def test_a_mistake_in_the_options_of_a_tool_names_its_own_line(shop: Workshop) -> None:
    shop.write("tools.py", 'import holdfast\n\n\n@holdfast.tool(effect="raed")\ndef look(): ...\n')
    err = shop.run("tools", code=2).err
    place = f"{shop.folder / 'tools.py'}:4"
    assert f'"tools.py" cannot be imported: {place}: ' in err
    assert f"tool look at {place}: effect: expected one of " in err
    assert 'got the string "raed"; did you mean "read"?' in err
    assert "options.py" not in err


def test_a_doubt_is_not_passed_over_by_a_step_that_is_not_critical(shop: Workshop) -> None:
    tool = '\n\n@holdfast.tool(name="far.pay")\ndef pay() -> None:\n    raise holdfast.Transient("the line is dead")\n'
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + tool)
    shop.write("p.yaml", "steps: [{id: pay, tool: far.pay, critical: false}]")
    assert "in doubt" in shop.run("run", "p.yaml", code=3).out


def test_an_id_that_yaml_takes_for_a_truth_value_is_explained(shop: Workshop) -> None:
    shop.write("p.yaml", "steps: [{id: yes, tool: work.do}]")
    out = shop.run("check", "p.yaml", code=1).out
    assert "got true; YAML reads yes, no, on, off, true and false as truth values: put the id in quotes" in out


def test_a_tool_of_a_server_that_cannot_be_started_is_missing_for_that_reason(shop: Workshop) -> None:
    shop.write("holdfast.toml", '[tools.mcp.servers.every]\ncommand = ["no-such-server"]\n')
    shop.write("p.yaml", "steps: [{id: a, tool: every.get-sum}]")
    for arguments in (("check", "p.yaml"), ("run", "p.yaml")):
        told = shop.run(*arguments, code=None)
        assert 'no tool called "every.get-sum": the MCP server every: no such program' in told.out + told.err


def test_one_long_value_does_not_make_every_line_long(shop: Workshop) -> None:
    channels = "".join(f'c{n} = "json://localhost/{n}"\n' for n in range(30))
    shop.write("holdfast.toml", f"[tools.notify.channels]\n{channels}")
    lines = shop.run("config").out.splitlines()
    assert sum(len(line) > 200 for line in lines) <= 1
