"""`holdfast logs`: what is stored, what comes, in order and only once."""

from __future__ import annotations

import json
import re

import pytest

from cli.workshop import Workshop, wait_until
from holdfast.cli.commands.logs import LogRecord, _Live
from holdfast.core import events as ev
from holdfast.tools.runtime.attempt_log import LogLine

TALK = """
import logging
import os
import subprocess
import sys
import time

import holdfast


@holdfast.tool(name="talk.loud", effect="read", retry=1)
def loud(call: holdfast.Call, fails: int = 0) -> None:
    call.say("I say")
    print("I", "print")
    print("I complain", file=sys.stderr)
    logging.getLogger("loud").warning("I warn")
    if call.attempt <= fails:
        raise holdfast.Transient("not yet")


@holdfast.tool(name="talk.slow", effect="read")
def slow(call: holdfast.Call) -> None:
    print("before")
    while not (call.folder / "go").exists():
        time.sleep(0.01)
    print("after")


@holdfast.tool(name="talk.child", effect="read")
def child() -> None:
    subprocess.run(["echo", "from a child"])
    subprocess.run(["echo", "handed over"], stdout=sys.stdout)
    os.write(1, b"from a descriptor\\n")


@holdfast.tool(name="talk.much", effect="read")
async def much() -> None:
    for number in range(20_000):
        print(f"line {number:>30}")
"""
EVERYTHING = {("say", "I say"), ("stdout", "I print"), ("stderr", "I complain"), ("warning", "loud: I warn")}


def talking(shop: Workshop) -> None:
    shop.write("talk.py", TALK)
    shop.write("holdfast.toml", 'modules = ["tools.py", "talk.py"]\n')
    shop.write(
        "loud.yaml",
        "name: loud\nsteps:\n"
        "  - {id: first, tool: talk.loud, with: {fails: 1}, retry: {max: 1, first: 0.001}}\n"
        "  - {id: second, tool: shell.run, with: {command: echo hello}}\n",
    )
    shop.write("slow.yaml", "name: slow\nsteps:\n  - {id: wait, tool: talk.slow}\n")
    shop.write("child.yaml", "name: child\nsteps:\n  - {id: noisy, tool: talk.child}\n")
    shop.write("much.yaml", "name: much\nsteps:\n  - {id: flood, tool: talk.much}\n")


@pytest.mark.parametrize("command", [("run", "child.yaml"), ("worker", "--until-idle")])
def test_with_json_stdout_holds_nothing_but_json_also_when_children_write(
    shop: Workshop, command: tuple[str, ...]
) -> None:
    talking(shop)
    if command[0] == "worker":
        shop.run("run", "child.yaml", "--hold")
        shop.run("resume", "--status", "queued")
    ran = shop.run(*command, "--json")
    assert all(isinstance(line, dict) for line in ran.lines)
    assert {"from a child", "handed over", "from a descriptor"} <= set(ran.err.splitlines())


def test_logs_show_every_attempt_with_time_step_and_stream(shop: Workshop) -> None:
    talking(shop)
    ran = shop.run("run", "loud.yaml")
    assert ran.out.count("print") == 2  # once for each attempt, and not a second time by the view
    assert "  second | hello\n" in ran.out  # a command's output is nowhere else
    lines = shop.run("logs", "@last", "--json").lines
    first = [line for line in lines if line["path"] == "first"]
    for attempt in (1, 2):
        assert {(line["stream"], line["text"]) for line in first if line["attempt"] == attempt} == EVERYTHING
    assert lines[-1]["path"] == "second"
    assert (lines[-1]["stream"], lines[-1]["text"]) == ("stdout", "hello")
    assert all(line["at"].endswith("Z") for line in lines)
    text = shop.run("logs", "@last", "first", "--attempt", "2").out.splitlines()
    assert len(text) == len(EVERYTHING)
    assert any(line.endswith("first#2  stdout   I print") for line in text)
    assert "second: said 1 line\n" in shop.run("events", "@last").out


def test_a_step_that_is_not_there_and_one_that_said_nothing(shop: Workshop) -> None:
    talking(shop)
    shop.run("run", "two.yaml")
    quiet = shop.run("logs", "@last", "first")
    assert (quiet.out, quiet.err) == ("", "holdfast: nothing was said by first, or nothing of it is stored yet\n")
    unknown = shop.run("logs", "@last", "frist", code=2)
    assert 'there is no step "frist" in ' in unknown.err
    assert 'did you mean "first"?' in unknown.err


def test_following_shows_what_is_printed_in_another_process_and_nothing_twice(shop: Workshop) -> None:
    talking(shop)
    running = shop.start("run", "slow.yaml")
    wait_until(lambda: "wait: started" in shop.run("events", "@last", code=None).out, "the step")
    following = shop.start("logs", "@last", "--follow", "--json")
    wait_until((shop.folder / ".holdfast" / "live.db").exists, "a watcher")
    shop.open_gate()
    shop.finish(running)
    lines = [json.loads(line)["text"] for line in shop.finish(following).out.splitlines()]
    assert sorted(lines) == ["after", "before"]


def test_of_a_flood_the_beginning_and_the_end_are_kept(shop: Workshop) -> None:
    talking(shop)
    shop.run("run", "much.yaml")
    lines = shop.run("logs", "@last", "--json").lines
    assert lines[0]["text"].split() == ["line", "0"]
    assert lines[-1]["text"].split() == ["line", "19999"]
    dropped = [line for line in lines if line["stream"] == "dropped"]
    assert len(dropped) == 1
    said = re.fullmatch(r"([0-9,]+) lines \(([0-9,]+) bytes\) were left out here", dropped[0]["text"])
    assert said is not None
    missing = 20_000 - len(lines) + 1
    size = len(lines[0]["text"]) + 1
    assert [int(number.replace(",", "")) for number in said.groups()] == [missing, missing * size]
    assert sum(len(line["text"]) for line in lines) < 256 * 1024


def test_a_line_is_shown_once_in_whichever_order_it_comes_by() -> None:
    key = {"path": "a", "attempt": 1}
    stored = ev.StepLogged(at=9, log=ev.Blob(digest="", bytes=0), **key)
    lines = [LogRecord("a", 1, LogLine(at, "stdout", str(at))) for at in (1, 2, 3, 4)]

    def frame(at: int) -> ev.TaskMessage:
        return ev.TaskMessage(at=at, after=1, role="stdout", content=f"{at}\n", **key)

    live = _Live()
    assert [said.line.text for at in (2, 3) for said in live.lines_of(frame(at))] == ["2", "3"]
    assert [said.line.text for said in live.not_shown(stored, lines)] == ["1", "4"]
    assert live.lines_of(frame(4)) == []
    said = ev.TaskMessage(at=5, after=1, role="assistant", content="half", streaming=True, **key)
    assert live.lines_of(said) == []
    rest = ev.TaskMessage(at=6, after=1, role="assistant", content=" and half\n", streaming=True, **key)
    assert live.lines_of(rest) == [LogRecord("a", 1, LogLine(6, "say", "half and half"))]
