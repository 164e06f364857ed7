"""Commands of the shell through the real command line: what a person is told of limits, floods and strange bytes."""

from __future__ import annotations

import json
import sys

import pytest

from cli.workshop import Workshop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are watched through /proc")


def plan(shop: Workshop, command: str, **resources: str) -> None:
    step = {"id": "a", "tool": "shell.run", "with": {"command": command}, "resources": resources}
    shop.write("one.json", json.dumps({"name": "one", "steps": [step]}))


def test_a_pipeline_that_writes_beyond_its_limit_fails_its_step(shop: Workshop) -> None:
    plan(shop, "cat /dev/zero | head -c 9000000 > big.out; cp big.out big2.out; echo finished", disk="2MB")
    ran = shop.run("run", "one.json", code=1)
    assert "a: failed: it wrote " in ran.out
    step = shop.run("show", "@last", "--json").json["steps"][0]
    assert step["failure"]["category"] == "resource"
    assert "raise resources.disk of the step" in step["failure"]["message"]


def test_a_flood_is_shown_in_part_and_the_sentence_about_it_can_be_read(shop: Workshop) -> None:
    plan(shop, "yes", output="5MB")
    ran = shop.run("run", "one.json", code=1)
    assert "which is its limit: yes; if it needs more, raise resources.output" in ran.out
    assert "which is its limit: yes at step a (resource)" in ran.out
    assert len(ran.out) < 5_000_000  # how much of it depends on how fast this process reads what the engine passes on
    assert f"lines left out here; see: holdfast logs {shop.newest()['id']} a)" in ran.out


def test_output_that_is_not_utf_8_is_told(shop: Workshop) -> None:
    plan(shop, r"printf 'a\377b\n'")
    ran = shop.run("run", "one.json")
    assert "stdout is not UTF-8" in ran.out
    assert shop.run("show", "@last", "--json").json["steps"][0]["output"]["spoilt"] is True
    assert "stdout is not UTF-8" in shop.run("logs", "@last").out
