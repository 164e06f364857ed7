"""`holdfast tools` and `holdfast tools test`, in real processes: what is listed, what is known, and calling one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.workshop import Workshop, wait_until

MORE = '''

@holdfast.tool(name="far.ask", effect="read", retry=0, concurrency=2, rate="10/s", fallbacks=["work.even"],
               idle_timeout=5, breaker=holdfast.Breaker(failures=1, rest_s=600))
async def ask(number: int) -> int:
    """Ask somebody far away."""
    raise holdfast.Transient("nobody is there")


@ask.health
async def how_is_it() -> None:
    raise holdfast.Transient("the cable is cut")


@holdfast.tool(name="talk", effect="read", estimate=lambda arguments: 1.5)
async def talk(call: holdfast.Call, count: int, loud: bool = False) -> dict:
    call.say("thinking")
    call.progress(50, "half")
    return {"count": count, "loud": loud}
'''


@pytest.fixture
def tooled(shop: Workshop) -> Workshop:
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + MORE)
    return shop


def tool(shop: Workshop, name: str) -> dict[str, Any]:
    return next(found for found in shop.run("tools", "--json").json if found["name"] == name)


def test_a_tool_is_listed_with_all_that_it_declares(tooled: Workshop) -> None:
    found = tool(tooled, "far.ask")
    assert {key: found[key] for key in ("concurrency", "rate", "fallbacks", "idle_timeout_s", "timeout_s")} == {
        "concurrency": 2, "rate": "10/1s", "fallbacks": ["work.even"], "idle_timeout_s": 5.0, "timeout_s": None,
    }  # fmt: skip


def test_limits_that_do_not_hold_for_a_tools_own_code_are_told(tooled: Workshop) -> None:
    said = "talk: memory, cpu: held to are only commands that it starts, not its own code in the engine's process"
    assert said not in tooled.run("tools").out
    text = (tooled.folder / "tools.py").read_text()
    limited = text.replace('name="talk",', 'name="talk", resources={"memory": "64MB", "cpu": "1s"}, isolated=False,')
    tooled.write("tools.py", limited)
    assert said in tooled.run("tools").out.splitlines()
    assert tool(tooled, "talk")["warnings"] == [said]
    assert tool(tooled, "shell.run")["warnings"] == []


def test_what_nobody_knows_is_shown_as_unknown(tooled: Workshop) -> None:
    found = tool(tooled, "far.ask")
    assert (found["breaker"], found["health"]) == (None, None)
    assert found["figures"] == {"calls": 0, "failures": 0, "cached": 0, "median_s": None, "p90_s": None}
    line = next(line for line in tooled.run("tools").out.splitlines() if line.startswith("far.ask"))
    assert line.count("unknown") == 2


def test_how_tools_have_done_is_counted_over_the_newest_executions(tooled: Workshop) -> None:
    steps = [
        {"id": "a", "tool": "work.even", "with": {"number": 2}},
        {"id": "b", "tool": "work.even", "with": {"number": 4}},
        {"id": "c", "tool": "work.fail", "critical": False},
    ]
    tooled.write("three.json", json.dumps({"name": "three", "steps": steps}))
    tooled.run("run", "three.json")
    even, fail = tool(tooled, "work.even")["figures"], tool(tooled, "work.fail")["figures"]
    assert (even["calls"], even["failures"]) == (2, 0)
    assert 0 <= even["median_s"] <= even["p90_s"]
    assert (fail["calls"], fail["failures"], fail["median_s"]) == (1, 1, None)
    line = next(line for line in tooled.run("tools").out.splitlines() if line.startswith("work.fail"))
    assert "1 (1 failed)" in line


def test_while_an_engine_runs_breakers_and_health_are_told(tooled: Workshop) -> None:
    tooled.write("holdfast.toml", 'modules = ["tools.py"]\n[limits]\nhealth_every_s = 0.05\n')
    steps = [
        {"id": "a", "tool": "far.ask", "with": {"number": 2}},
        {"id": "b", "tool": "work.gate"},
    ]
    tooled.write("two.json", json.dumps({"name": "two", "steps": steps}))
    running = tooled.start("run", "two.json")
    wait_until(lambda: tool(tooled, "far.ask")["health"] == "ill", "its health is told")
    found = tool(tooled, "far.ask")
    assert found["breaker"] == "open"
    assert found["health_why"] == "the cable is cut"
    assert found["probe_at"] is not None
    assert tool(tooled, "work.even")["breaker"] == "closed"
    out = tooled.run("tools").out
    assert "far.ask is ill: the cable is cut" in out
    assert "far.ask is left alone: nobody is there; it is tried again in " in out or "left alone: the cable" in out
    shown = tooled.run("show", "@last").out
    assert "work.even, its fallback" in shown
    tooled.open_gate()
    tooled.finish(running)
    assert tool(tooled, "far.ask")["breaker"] is None


# ---- test ------------------------------------------------------------------------------------------------------


def test_one_tool_is_called_outside_any_execution(tooled: Workshop) -> None:
    told = tooled.run("tools", "test", "talk", "-i", "count=3", "-i", "loud=true")
    assert told.out.startswith('calls talk with {"count": 3, "loud": true}\ntakes about 1.5 s, it says\nanswered in ')
    assert json.loads(told.out.partition(":\n")[2]) == {"count": 3, "loud": True}
    assert "thinking" in told.err
    assert "50% half" in told.err
    assert tooled.run("list", "--json").json == []


def test_what_becomes_of_it_is_told_as_json(tooled: Workshop) -> None:
    found = tooled.run("tools", "test", "talk", "-i", "count=3", "--json").json
    assert found["output"] == {"count": 3, "loud": False}
    assert (found["arguments"], found["failure"], found["estimate_s"]) == ({"count": 3}, None, 1.5)
    assert found["duration_s"] >= 0


def test_how_long_a_tool_takes_is_its_own_word_or_what_its_calls_took(tooled: Workshop) -> None:
    first = tooled.run("tools", "test", "work.even", "-i", "number=2", "--json").json
    assert (first["estimate_s"], first["estimate_by"]) == (None, None), "nobody knows yet"
    steps = [{"id": "a", "tool": "work.even", "with": {"number": 2}}]
    tooled.write("plan.json", json.dumps({"name": "p", "steps": steps}))
    tooled.run("run", "plan.json")
    found = tooled.run("tools", "test", "work.even", "-i", "number=2", "--json").json
    assert (found["estimate_s"], found["estimate_by"]) == (tool(tooled, "work.even")["figures"]["median_s"], "history")
    told = tooled.run("tools", "test", "work.even", "-i", "number=2").out
    assert ", as its calls in the newest executions did" in told
    assert tooled.run("tools", "test", "talk", "-i", "count=3", "--json").json["estimate_by"] == "tool"


def test_a_failure_is_told_with_its_category(tooled: Workshop) -> None:
    told = tooled.run("tools", "test", "far.ask", "-i", "number=2", code=1)
    assert ": nobody is there" in told.out
    assert "category: transient (nothing happened)" in told.out
    found = tooled.run("tools", "test", "work.even", "-i", "number=3", "--json", code=1).json
    assert found["failure"]["category"] == "logic"
    assert found["failure"]["message"] == "3 is odd"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nobody",), 2, 'no tool called "nobody"'),
        (("work.even", "-i", "number=many"), 2, "work.even: number: expected"),
        (("work.even",), 2, "work.even: number: is missing"),
        (("work.even", "-i", "number"), 2, "-i number: expected NAME=VALUE"),
        (("work.do",), 2, "work.do was not called: it may have an effect that cannot be taken back; add --yes"),
    ],
)
def test_what_cannot_be_called_is_refused_in_words(
    tooled: Workshop, arguments: tuple[str, ...], code: int, text: str
) -> None:
    told = tooled.run("tools", "test", *arguments, code=code)
    assert text in told.err
    assert not (tooled.folder / "log.txt").exists()


def test_a_tool_with_an_effect_is_called_after_a_yes(tooled: Workshop) -> None:
    assert tooled.run("tools", "test", "work.do", "-i", "value=7", "--yes", "--json").json["output"] == 7
    assert (tooled.folder / "log.txt").read_text() == "test ran\n"


def test_without_the_cache_a_run_asks_anew(tooled: Workshop) -> None:
    tooled.write(
        "tools.py",
        "import holdfast, itertools\nfrom pathlib import Path\n\n"
        "@holdfast.tool(name='count', effect='read', cache='1h')\n"
        "def count(call: holdfast.Call) -> int:\n"
        "    file = call.folder / 'count.txt'\n"
        "    number = int(file.read_text()) + 1 if file.exists() else 1\n"
        "    file.write_text(str(number))\n"
        "    return number\n",
    )
    tooled.write("one.json", json.dumps({"name": "one", "steps": [{"id": "a", "tool": "count"}]}))
    assert [tooled.run("run", "one.json", "--json").lines[-1]["output"] for _ in range(2)] == [1, 1]
    assert "from the cache" in tooled.run("show", "@last").out
    cached = tooled.run("show", "@last", "--json").json["steps"][0]["cached"]
    assert cached is True
    assert tooled.run("run", "one.json", "--no-cache", "--json").lines[-1]["output"] == 2


def test_an_address_that_may_not_be_reached_is_told_with_the_setting_that_allows_it(tooled: Workshop) -> None:
    told = tooled.run("tools", "test", "http.get", "-i", "url=http://127.0.0.1:1/", code=1)
    assert "127.0.0.1 is this machine" in told.out
    assert 'what tools.http.allow names: add "127.0.0.1:1" there if that is meant' in told.out
    tooled.write("holdfast.toml", '[tools.http]\nallow = ["127.0.0.1:1"]\n')
    told = tooled.run("tools", "test", "http.get", "-i", "url=http://127.0.0.1:1/", code=1)
    assert "http://127.0.0.1:1/ could not be reached: 127.0.0.1:1: Connection refused" in told.out


# ---- bugs ------------------------------------------------------------------------------------------------------

BUGS = """

def _deep(row):
    return row["colour"]


@holdfast.tool(name="bug.key", effect="read")
def key() -> str:
    return _deep({})


@holdfast.tool(name="bug.exit", effect="read")
async def leave() -> None:
    raise SystemExit(3)


@holdfast.tool(name="bug.block", effect="read", timeout="0.2s")
async def block() -> str:
    import time
    time.sleep(0.8)
    return "late"
"""


def _line_of(shop: Workshop, text: str) -> str:
    lines = (shop.folder / "tools.py").read_text().splitlines()
    return f"{shop.folder / 'tools.py'}:{1 + next(n for n, line in enumerate(lines) if text in line)}"


@pytest.fixture
def buggy(shop: Workshop) -> Workshop:
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + BUGS)
    for name in ("key", "exit", "block"):
        shop.write(f"{name}.yaml", f"steps: [{{id: a, tool: bug.{name}, on_error: fail}}]")
    return shop


def test_a_bug_in_a_tool_is_told_with_its_line_and_its_trace(buggy: Workshop) -> None:
    place = _line_of(buggy, 'row["colour"]')
    failed = buggy.run("run", "key.yaml", code=1)
    identity = buggy.newest()["id"]
    assert f"where: {place}; the whole trace: holdfast logs {identity} a" in failed.out + failed.err
    assert f"KeyError: 'colour' (at {place})" in buggy.run("show", "@last").out
    assert buggy.run("show", "@last", "--json").json["failure"]["place"] == place
    logged = buggy.run("logs", "@last", "a").out
    assert "in _deep" in logged
    assert "engine/step/invoke.py" not in logged
    buggy.write("asks.yaml", "steps: [{id: a, tool: bug.key}]")
    assert f"  where: {place}\n" in buggy.run("run", "asks.yaml", code=3).out
    tried = buggy.run("tools", "test", "bug.key", code=1).out
    assert f"where: {place}" in tried
    assert "nothing happened" in tried


def test_a_tool_that_exits_is_told_as_such(buggy: Workshop) -> None:
    failed = buggy.run("run", "exit.yaml", code=1)
    assert "SystemExit: 3" in failed.out + failed.err


def test_a_tool_that_blocks_the_loop_beyond_its_time_is_warned_of(buggy: Workshop) -> None:
    buggy.run("run", "block.yaml")
    text = "and its limit of 0.2 s could not be kept: the event loop was blocked"
    assert text in buggy.run("logs", "@last").out


def test_a_tool_that_was_not_called_was_not_said_to_be(tooled: Workshop) -> None:
    refused = tooled.run("tools", "test", "work.do", code=2)
    assert "work.do was not called: " in refused.err
    assert "calls" not in refused.out


def test_a_failed_read_had_no_effect(tooled: Workshop) -> None:
    assert "(nothing happened)" in tooled.run("tools", "test", "far.ask", "-i", "number=2", code=1).out


def test_what_a_check_found_to_have_happened_is_told(shop: Workshop) -> None:
    more = """

@holdfast.tool(name="far.pay", in_doubt="verify")
def pay() -> str:
    raise holdfast.Transient("the line is dead")


@pay.verify
def paid(call, arguments):
    return holdfast.Happened("receipt")
"""
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + more)
    shop.write("p.yaml", "steps: [{id: pay, tool: far.pay}]")
    told = shop.run("run", "p.yaml").out
    assert "pay: completed: it was in doubt, and the tool's own check found that it happened\n" in told
