"""Manners that hold for every command: an example in each help text, JSON from all that answer, suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from cli.workshop import Workshop
from holdfast.cli.main import app

# What prints a story or a picture for people, and what is JSON already.
WITHOUT_JSON = {"schema"}


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is shown, with the words that lead to it."""
    root: Any = typer.main.get_command(app) if group is None else group
    for name, command in root.commands.items():
        if command.hidden:
            continue
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


EVERY = dict(commands())
LEAVES = {path: command for path, command in EVERY.items() if not hasattr(command, "commands")}


def test_every_help_text_has_an_example_that_calls_the_command_itself() -> None:
    for path, command in EVERY.items():
        _, heading, example = (command.help or "").partition("Example:")
        assert heading, f"holdfast {' '.join(path)} has no example"
        called = re.findall(r"holdfast (.+?)(?:\n|$|\))", example)
        assert any(" ".join(path) in line for line in called), f"{path}: the example calls something else"


def test_every_option_and_argument_is_explained() -> None:
    silent = [
        f"{' '.join(path)} {parameter.name}"
        for path, command in EVERY.items()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    assert silent == []


def test_everything_that_answers_has_json() -> None:
    without = {
        " ".join(path)
        for path, command in LEAVES.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_JSON


# How each command is called so that it has something to answer; `{id}` is an execution that asks for approval.
ANSWERS: dict[str, tuple[str, ...]] = {
    "run": ("two.yaml",),
    "resume": ("{id}", "--no-ask"),
    "retry": ("{id}", "--no-ask"),
    "fork": ("{id}", "--no-ask"),
    "watch": ("{id}",),
    "events": ("{id}",),
    "show": ("{id}",),
    "pause": ("{id}",),
    "interrupt": ("{id}",),
    "stop": ("{id}",),
    "approve": ("{id}",),
    "deny": ("{id}",),
    "answer": ("{id}", "publish", "x"),
    "resolve": ("{id}", "publish", "--skip"),
    "send": ("{id}", "x"),
    "completion": ("bash",),
    "worker": ("--once",),
    "service install": ("--dry-run",),
}
STREAMS = {"run", "resume", "retry", "fork", "watch", "events", "worker"}  # JSON lines, all others one document


@pytest.mark.parametrize("path", [path for path in LEAVES if path[0] not in WITHOUT_JSON], ids=" ".join)
def test_json_is_one_document_or_lines_and_an_error_is_json_on_stderr(shop: Workshop, path: tuple[str, ...]) -> None:
    name = " ".join(path)
    arguments = ANSWERS.get(name, ())
    needs_one = any("{id}" in argument for argument in arguments)
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"] if needs_one else ""
    given = [argument.format(id=identity) for argument in arguments]
    result = shop.run(*path, *given, "--json", code=None)
    assert "Traceback" not in result.err
    for line in result.err.splitlines():
        assert {"error", "note"} & set(json.loads(line)), line
    if result.code == 2:  # refused: nothing but the error
        assert result.out == ""
        assert set(json.loads(result.err)) == {"error", "type"}
    elif name in STREAMS:
        assert all(isinstance(line, dict) for line in result.lines)
    else:
        assert isinstance(result.json, dict | list)
    refused = shop.run(*path, *given, "--no-such-option", "--json", code=2)
    assert refused.out == ""
    assert json.loads(refused.err)["type"] == "UsageError"


# ---- suggestions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "two.yam"), "two.yaml"),
        (("lst",), "list"),
        (("service", "instal"), "install"),
        (("list", "--stauts", "waiting"), "--status"),
        (("--stor", "x", "list"), "--store"),
        (("list", "--status", "wating"), "waiting"),
        (("run", "duoble"), "double"),
        (("run", "double", "-i", "nubmer=1"), "number"),
        (("run", "two.yaml", "-i", "cuont=1"), "count"),
        (("run", "typo.yaml"), "work.do"),
        (("run", "tow.yaml"), "two.yaml"),
        (("completion", "fsh"), "fish"),
        (("approve", "@last", "pubish"), "publish"),
        (("deny", "@last", "pubish"), "publish"),
        (("answer", "@last", "pubish", "x"), "publish"),
        (("resolve", "@last", "pubish", "--skip"), "publish"),
        (("fork", "@last", "--at", "drfat"), "draft"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_mistyped_word_is_answered_with_what_was_probably_meant(
    shop: Workshop, words: tuple[str, ...], meant: str
) -> None:
    shop.write("typo.yaml", "name: typo\nsteps:\n  - {id: a, tool: work.od}\n")
    if "@last" in words:
        shop.run("run", "ask.yaml", code=3)
    refused = shop.run(*words, code=2)
    assert re.search(f"[Dd]id you mean ['\"]{re.escape(meant)}['\"]", refused.err), refused.err
    assert refused.out == ""
