"""A step that may fail never holds up those that must not: its broken tool is not waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.workshop import Workshop

DOWN = """
import holdfast


@holdfast.tool(name="down.fetch", effect="read", retry=holdfast.Retry(max=20, first_s=0.001, factor=1))
def fetch(call: holdfast.Call) -> str:
    with (call.folder / "calls.txt").open("a") as calls:
        calls.write(f"{call.path}\\n")
    raise holdfast.Transient("the line is dead")


@holdfast.tool(name="work.say", effect="read")
def say(text: str) -> str:
    return text


@holdfast.tool(name="work.needy", effect="read", requires=["no-such-program-anywhere"])
def needy(call: holdfast.Call) -> None:
    (call.folder / "needy.txt").write_text("called")
"""
SETTINGS = """
modules = ["tools.py"]
[limits]
breaker_failures = 3
breaker_rest_s = 3600
optional_wait_s = 0.2
"""


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    workshop = Workshop(tmp_path)
    workshop.write("tools.py", DOWN)
    workshop.write("holdfast.toml", SETTINGS)
    return workshop


@pytest.mark.parametrize("word", ["optional: true", "critical: false"])
def test_step_that_may_fail_is_skipped_when_its_tool_is_left_alone(workshop: Workshop, word: str) -> None:
    workshop.write(
        "plan.yaml",
        f"""
steps:
  - {{id: extra, tool: down.fetch, {word}}}
  - {{id: more, tool: work.say, with: {{text: "more"}}, needs: [extra], optional: true}}
  - {{id: vital, tool: work.say, with: {{text: "done"}}, needs: [extra]}}
""",
    )
    shown = workshop.run("run", "plan.yaml", "--json").lines
    assert shown[-1]["status"] == "completed"
    assert shown[-1]["output"] == "done"
    steps = {step["path"]: step for step in workshop.run("show", "@last", "--json").json["steps"]}
    assert steps["extra"]["status"] == "skipped"
    assert "its tool does not work now" in steps["extra"]["reason"]
    assert "the line is dead" in steps["extra"]["reason"]
    assert steps["more"]["status"] == "skipped"
    assert len((workshop.folder / "calls.txt").read_text().splitlines()) == 3


def test_many_items_of_a_broken_tool_do_not_wait_one_after_the_other(workshop: Workshop) -> None:
    """The time counts from when the tool broke, not from when each item came to it."""
    workshop.write(
        "plan.yaml",
        """
steps:
  - {id: pages, for_each: "${{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }}", max_parallel: 1, tool: down.fetch, critical: false}
""",
    )
    result = workshop.run("run", "plan.yaml", "--json").lines[-1]
    assert result["output"] == [None] * 10
    waited = [event for event in workshop.run("events", "@last", "--json").lines if event["type"] == "task:waiting"]
    assert sum(any(reason["kind"] == "breaker" for reason in event["reasons"]) for event in waited) == 1


def test_critical_step_inside_of_an_optional_group_fails_and_the_plan_goes_on(workshop: Workshop) -> None:
    workshop.write(
        "plan.yaml",
        """
steps:
  - id: group
    critical: false
    steps: [{id: inner, tool: down.fetch}]
  - {id: vital, tool: work.say, with: {text: "done"}}
""",
    )
    assert workshop.run("run", "plan.yaml", "--json").lines[-1]["output"] == "done"
    steps = {step["path"]: step for step in workshop.run("show", "@last", "--json").json["steps"]}
    assert [steps[path]["status"] for path in ("group/inner", "group")] == ["failed", "failed"]
    assert "its tool does not work now" in steps["group/inner"]["failure"]["message"]


def test_optional_step_whose_tool_lacks_something_is_skipped(workshop: Workshop) -> None:
    workshop.write(
        "plan.yaml",
        """
steps:
  - {id: extra, tool: work.needy, optional: true}
  - {id: vital, tool: work.say, with: {text: "done"}}
""",
    )
    assert workshop.run("run", "plan.yaml", "--json").lines[-1]["output"] == "done"
    (extra, _) = workshop.run("show", "@last", "--json").json["steps"]
    assert extra["status"] == "skipped"
    assert 'needs the program "no-such-program-anywhere"' in extra["reason"]
    assert not (workshop.folder / "needy.txt").exists()
