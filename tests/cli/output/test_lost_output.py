"""An answer that finds no room where it should go: one line on stderr and an exit code of its own, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.workshop import PATIENCE_S, Workshop
from servers.commands import environment, start_command

FULL = Path("/dev/full")
needs_a_full_disk = pytest.mark.skipif(not FULL.exists(), reason="there is no device here that is always full")


def on_a_full_disk(shop: Workshop, *arguments: str) -> str:
    with FULL.open("w") as full:
        process = start_command(
            list(arguments), cwd=shop.folder, env=environment(), stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    return shop.finish(process, 74).err


@needs_a_full_disk
@pytest.mark.parametrize(
    "command", ["list", "events @last", "show @last", "export @last -o -", "run two.yaml", "--help"]
)
def test_a_full_disk_is_told_in_one_line(shop: Workshop, command: str) -> None:
    shop.run("run", "two.yaml")
    said = "the output cannot be written: No space left on device; nothing in the journal is lost"
    assert on_a_full_disk(shop, *command.split()) == f"holdfast: {said}\n"


@needs_a_full_disk
def test_with_json_it_is_told_in_json_and_what_ran_can_go_on(shop: Workshop) -> None:
    error = json.loads(on_a_full_disk(shop, "run", "two.yaml", "--json"))
    assert error["type"] == "OutputError"
    assert json.loads(on_a_full_disk(shop, "list", "--json")) == error
    if shop.newest()["status"] != "completed":
        shop.run("resume", "@last")
    assert shop.newest()["status"] == "completed"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_a_place_for_its_words_it_works_and_says_nothing(shop: Workshop, closed: str) -> None:
    for command in ("run two.yaml", "list", "show @last"):
        done = subprocess.run(
            ["sh", "-c", f'"$0" -m holdfast.cli {command} {closed}', sys.executable], cwd=shop.folder,
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), command
    assert [head["status"] for head in shop.run("list", "--json").json] == ["completed"]
    assert shop.store.read_bytes().startswith(b"SQLite format 3")


@needs_a_full_disk
@pytest.mark.parametrize(
    "words", ["print('paid', flush=True)", "sys.stdout.buffer.write(b'paid\\n')\n    sys.stdout.buffer.flush()"]
)
def test_a_tool_that_has_done_its_work_is_not_failed_by_a_full_disk_behind_its_words(
    shop: Workshop, words: str
) -> None:
    tool = f"""
import sys

@holdfast.tool(name="work.pay", effect="once")
def pay(call: holdfast.Call) -> str:
    _log(call, "paid")
    {words}
    return "done"
"""
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + tool)
    shop.write("pay.yaml", "steps: [{id: a, tool: work.pay}]")
    on_a_full_disk(shop, "run", "pay.yaml")
    if shop.newest()["status"] != "completed":
        shop.run("resume", "@last")
    assert shop.newest()["status"] == "completed"
    assert shop.log() == ["a paid"]
