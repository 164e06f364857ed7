"""Tools in processes of their own, from the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.workshop import Workshop, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TOOLS = """
import os, pathlib, sys, time, holdfast

@holdfast.tool(effect="read", isolated=True)
def waits() -> None:
    pathlib.Path("pid").write_text(str(os.getpid()))
    time.sleep(600)

@holdfast.tool(effect="read", isolated=True)
def where() -> str:
    print("printed there")
    return os.path.basename(sys.argv[0])
"""
WHERE = "name: where\noutput: ${{ steps.a.output }}\nsteps: [{id: a, tool: where, on_error: fail}]\n"


def test_a_killed_engine_leaves_no_process_of_a_tool(shop: Workshop) -> None:
    shop.write("tools.py", TOOLS)
    shop.write("wait.yaml", "name: wait\nsteps: [{id: a, tool: waits}]\n")
    process = shop.start("run", "wait.yaml")
    pid_file = shop.folder / "pid"
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the tool's process")
    shop.kill(process)
    wait_until(lambda: not Path(f"/proc/{pid_file.read_text()}").exists(), "the end of the tool's process")


def test_a_module_that_cannot_be_loaded_there_is_explained(shop: Workshop) -> None:
    breaks = (
        "import os\nif os.environ.get('HOLDFAST_TEST_ENGINE') != str(os.getpid()):\n    import not_installed_here\n"
    )
    own = "import os\nos.environ.setdefault('HOLDFAST_TEST_ENGINE', str(os.getpid()))\n"
    shop.write("tools.py", own + breaks + TOOLS)
    shop.write("where.yaml", WHERE)
    told = shop.run("run", "where.yaml", code=1)
    assert "tools.py cannot be loaded in the tool's own process" in told.out + told.err
    assert "No module named 'not_installed_here'" in told.out + told.err


@pytest.mark.parametrize("arguments", [["run", "where.yaml"], ["tools", "test", "where"]])
def test_a_tool_and_a_trial_of_it_run_in_a_process_of_their_own(shop: Workshop, arguments: list[str]) -> None:
    shop.write("tools.py", TOOLS)
    shop.write("where.yaml", WHERE)
    told = shop.run(*arguments).out
    assert "child_main.py" in told
    assert "printed there" in told.splitlines()


SLOW = """
import os, time, holdfast
os.environ.setdefault("ENGINE", str(os.getpid()))
if os.environ["ENGINE"] != str(os.getpid()):
    time.sleep(2.1)

@holdfast.tool(effect="read", isolated=True, timeout="2s")
def loads_slowly() -> int:
    return 1

@holdfast.tool(effect="read", timeout="100ms")
def blocks() -> None:
    time.sleep(600)

@holdfast.tool(effect="read", idle_timeout="100ms", isolated=True)
def silent() -> None:
    time.sleep(600)
"""


def test_a_trial_takes_as_long_as_a_step_would(shop: Workshop) -> None:
    shop.write("tools.py", SLOW)
    assert "answered in" in shop.run("tools", "test", "loads_slowly").out
    told = shop.run("tools", "test", "blocks", code=1)
    assert "blocks took longer than 0.1 s" in told.out
    assert "Traceback" not in told.err
    told = shop.run("tools", "test", "silent", code=1)
    assert "silent gave no sign of life for 0.1 s" in told.out


def test_a_limit_that_was_passed_is_one_sentence_where_steps_are_listed(shop: Workshop) -> None:
    shop.write("tools.py", TOOLS)
    shop.write(
        "flood.yaml",
        "name: flood\nsteps: [{id: a, tool: shell.run, with: {command: 'yes'}, resources: {output: 10KB}}]\n",
    )
    shop.run("run", "flood.yaml", code=1)
    told = " ".join(shop.run("show", "@last").out.split())
    assert "which is its limit: yes; if it needs more, raise resources.output of the step" in told
    assert "it said: if it needs" not in told


GREEDY = """
import holdfast

@holdfast.tool(effect="read")
def hoard(megabytes: int) -> int:
    return len(b"x" * 10**6 * megabytes) // 10**6

@holdfast.function
async def collect(ctx: holdfast.Context) -> int:
    return await ctx.call(hoard, 400)
"""


def test_a_task_is_handed_in_with_limits_and_run_again_with_others(shop: Workshop) -> None:
    shop.write("tools.py", GREEDY)
    told = shop.run("run", "collect", "--resource", "memory=150MB", "--resource", "total.processes=20", code=1)
    identity = shop.newest()["id"]
    assert "150 MB" in told.out
    assert f"holdfast retry {identity} --resource memory=300MB    # with twice as much as it had" in told.out
    shown = shop.run("show", identity, "--json").json
    assert shown["resources"]["memory_bytes"] == 150_000_000
    assert shown["resources_total"]["processes"] == 20
    again = shop.run("retry", identity, "--resource", "memory=2GB")
    assert "output: 400" in again.out


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["memory"], "--resource memory: expected NAME=VALUE, such as --resource memory=500MB"),
        (["memroy=1GB"], 'resources.memroy: unknown key; did you mean "memory"?'),
        (["memory=lots"], 'resources.memory: expected a size such as "512MB"'),
        (["total=5"], "resources.total: expected a map such as {memory: 2GB, cpu: 10m, processes: 200"),
        (["total=5", "total.cpu=1m"], "--resource total.cpu: total was given a value of its own; say one or the other"),
        (["memory=1GB", "memory=2GB"], "--resource memory is given twice; say it once"),
        (["total.=5"], "--resource total.=5: expected NAME=VALUE, such as --resource memory=500MB"),
    ],
)
def test_wrong_limits_are_told_and_nothing_is_started(shop: Workshop, said: list[str], told: str) -> None:
    shop.write("tools.py", GREEDY)
    arguments = [word for one in said for word in ("--resource", one)]
    assert told in shop.run("run", "collect", *arguments, code=2).err
    assert told in shop.run("run", "collect", "--check", *arguments, code=2).err
    assert shop.run("list", "--json").json == []


def test_limits_go_with_one_execution_that_is_retried(shop: Workshop) -> None:
    told = shop.run("retry", "--status", "failed", "--resource", "memory=1GB", code=2).err
    assert "--from, --plan, -i and --resource go with the ID of one execution" in told
