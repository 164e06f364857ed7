"""The command line knows the tools of MCP servers, and starts a server only when it must."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from cli.workshop import Workshop
from servers.mcp_kit import SERVERS, hostile, needs_servers, node


@needs_servers
def test_the_command_line_knows_the_tools_of_a_server(shop: Workshop) -> None:
    command = json.dumps(node("server-everything", "stdio")["command"])
    with (shop.folder / "holdfast.toml").open("a") as settings:
        settings.write(f"\n[tools.mcp.servers.s]\ncommand = {command}\n")
    shop.write("good.yaml", "steps: [{id: a, tool: s.echo, with: {message: tides}}]")
    shop.write("bad.yaml", "steps: [{id: a, tool: s.echo, with: {mesage: tides}}]")
    assert shop.run("check", "good.yaml").code == 0
    wrong = shop.run("check", "bad.yaml", code=None)
    assert wrong.code
    assert 'no such argument; did you mean "message"?' in wrong.out + wrong.err
    assert "s.echo" in shop.run("tools").out
    ran = shop.run("run", "good.yaml", "--json")
    assert ran.code == 0
    assert "Echo: tides" in ran.out


def test_a_catalogue_is_used_without_starting_the_server(shop: Workshop) -> None:
    server = hostile("", shop.folder)
    with (shop.folder / "holdfast.toml").open("a") as settings:
        settings.write(f'\n[tools.mcp.servers.h]\ncommand = {json.dumps(server["command"])}\nenv = {{COUNT = "x"}}\n')
    shop.write("good.yaml", "steps: [{id: a, tool: h.act}]")
    assert shop.run("check", "good.yaml").code == 0
    (catalogue,) = (shop.folder / ".holdfast" / "mcp").glob("h-*.json")
    known: Any = json.loads(catalogue.read_text())
    known["tools"].append({"name": "invented"})
    catalogue.write_text(json.dumps(known))
    shop.write("invented.yaml", "steps: [{id: a, tool: h.invented}]")
    assert shop.run("check", "invented.yaml").code == 0  # so the file was read, and the server not asked
    assert "h.invented" in shop.run("tools").out  # and here
    assert "h.invented" not in shop.run("tools", "--refresh").out  # and now it was asked
    catalogue.write_text("{nonsense")
    assert shop.run("check", "good.yaml").code == 0


def test_check_says_which_argument_does_not_match_its_pattern_and_warns_of_those_that_only_the_server_can_judge(
    shop: Workshop,
) -> None:
    command = json.dumps([sys.executable, str(SERVERS / "patterns_mcp.py")])
    with (shop.folder / "holdfast.toml").open("a") as settings:
        settings.write(f"\n[tools.mcp.servers.s]\ncommand = {command}\n")
    shop.write("wrong.yaml", "steps: [{id: a, tool: s.book, with: {code: abc}}]")
    shop.write("unsure.yaml", "steps: [{id: a, tool: s.others, with: {ahead: b, evil: aaa}}]")
    wrong = shop.run("check", "wrong.yaml", code=1)
    assert 'code: expected text that matches ^[A-Z]{3}-[0-9]+$, got the string "abc"' in wrong.out + wrong.err
    unsure = shop.run("check", "unsure.yaml")
    assert "with.ahead: whether it fits the pattern ^(?=a) is not checked here" in unsure.out + unsure.err
    assert "evil" not in unsure.out + unsure.err
    refused = shop.run("run", "wrong.yaml", code=None)
    assert refused.code
    assert "expected text that matches" in refused.out + refused.err
    assert "abc" not in shop.run("list").out  # nothing began


@pytest.mark.parametrize("order", [("check", "plan.yaml"), ("tools",)], ids=["check", "tools"])
def test_a_server_whose_program_is_missing_is_told_in_words_alone(shop: Workshop, order: tuple[str, ...]) -> None:
    with (shop.folder / "holdfast.toml").open("a") as settings:
        settings.write('\n[tools.mcp.servers.gone]\ncommand = ["no-such-program-anywhere"]\n')
    shop.write("plan.yaml", "steps: [{id: a, tool: gone.act}]")
    said = shop.run(*order, code=None)
    assert 'no such program: "no-such-program-anywhere"' in said.out + said.err
    assert "Exception" not in said.err
    assert "Traceback" not in said.err
