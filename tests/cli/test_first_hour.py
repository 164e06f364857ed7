"""What a newcomer runs into in the first hour: families, files that lost their end, keys, twins, edited arguments."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from cli.workshop import Workshop


def test_last_is_the_newest_that_somebody_started_not_its_child(shop: Workshop) -> None:
    run = shop.run("run", "parent", code=3)
    shown = shop.run("show", "@last", "--json").json
    assert (shown["name"], shown["parent_id"]) == ("parent", None), run.out
    assert shop.run("list", "--json").json[0]["name"] == "ask"


def test_resuming_a_parent_resumes_the_child_it_waits_for(shop: Workshop) -> None:
    shop.run("run", "parent", code=3)
    (child,) = [row for row in shop.run("list", "--json").json if row["name"] == "ask"]
    assert shop.run("pause", child["id"]).out.startswith("applied as event")
    shop.run("resume", "@last", code=3)
    assert shop.run("show", child["id"], "--json").json["status"] == "waiting"
    shop.run("approve", child["id"])
    assert shop.run("resume", "@last").out.splitlines()[-2:]
    assert shop.run("show", "@last", "--json").json["status"] == "completed"


def test_after_a_kill_nobody_drives_it_and_everybody_says_so(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    assert shop.newest()["driven"] is True
    os.kill(driving.pid, signal.SIGKILL)
    driving.wait()
    assert shop.newest()["driven"] is False
    assert shop.run("show", "@last", "--json").json["driven"] is False
    assert "nobody is driving it now" in shop.run("show", "@last").out


def test_arguments_that_do_not_fit_the_tool_are_refused_when_they_are_given(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    refused = shop.run("approve", "@last", "publish", "--with", "value=much", "--with", "valeu=1", code=2)
    assert "the edited arguments do not fit work.do:" in refused.err
    assert 'value: expected a whole number, got the string "much"' in refused.err
    assert 'did you mean "value"?' in refused.err
    assert shop.run("approve", "@last", "publish", "--with", "value=7").out.startswith("applied as event")
    late = shop.run("approve", "@last", "publish", "--with", "value=8", code=2)
    assert "its arguments cannot be changed any more" in late.err


def test_a_key_stands_for_one_plan_not_for_one_name(shop: Workshop) -> None:
    first = shop.run("run", "two.yaml", "--key", "k", "--json").lines[-1]
    assert shop.run("run", "two.yaml", "--key", "k", "--json").lines[-1]["id"] == first["id"]
    plan = shop.folder / "two.yaml"
    plan.write_text(plan.read_text().replace("value: 2", "value: 3"))
    refused = shop.run("run", "two.yaml", "--key", "k", code=2)
    assert 'the key "k" belongs to execution' in refused.err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("twice.yaml", "name: twice\nsteps: []\nsteps:\n  - {id: a, tool: work.do}\n", 'line 3: "steps" stands twice'),
        ("twice.json", '{"name": "x", "steps": [], "steps": []}', '"steps" stands twice in one object; keep one'),
    ],
)
def test_a_key_that_stands_twice_in_a_plan_is_a_mistake(shop: Workshop, name: str, text: str, message: str) -> None:
    (shop.folder / name).write_text(text)
    assert message in shop.run("run", name, code=2).err


def test_a_journal_that_lost_its_end_is_refused_and_left_as_it_is(shop: Workshop, tmp_path: Path) -> None:
    for _ in range(3):
        shop.run("run", "two.yaml")
    whole = (shop.folder / ".holdfast" / "journal.db").read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[:-3000])
    for command in (["list"], ["run", "two.yaml"], ["show", "@last"]):
        refused = shop.run("--store", str(cut), *command, code=1)
        assert f"is damaged: it has {len(whole) - 3000:,} bytes and should have {len(whole):,}" in refused.err
    assert cut.read_bytes() == whole[:-3000]
    error = json.loads(shop.run("--store", str(cut), "list", "--json", code=1).err)
    assert error["type"] == "StoreCorrupted"


def test_a_pause_that_will_not_wait_is_an_interrupt(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    assert "interrupted" in shop.run("pause", "@last", "--now").out
    shop.finish(driving, 130)
    assert shop.newest()["status"] == "interrupted"
