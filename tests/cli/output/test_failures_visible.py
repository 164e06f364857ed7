"""A failure that is lived with stays visible: in every place that tells how an execution went."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.foreground.test_terminal import at_terminal
from cli.workshop import Workshop
from servers.letters import receiving

TOOLS = """
import holdfast


@holdfast.tool(name="work.fetch", effect="read")
def fetch(number: int) -> int:
    if number == 3:
        raise holdfast.ToolError("there is no page 3")
    return number


@holdfast.tool(name="work.fail", effect="read")
def fail() -> None:
    raise holdfast.ToolError("it broke")


@holdfast.tool(name="work.say", effect="read")
def say(text: str = "") -> str:
    return text
"""
PLAN = """
name: report
steps:
  - {id: pages, for_each: "${{ [0, 1, 2, 3, 4] }}", tool: work.fetch, with: {number: "${{ item }}"}, critical: false}
  - {id: extra, tool: work.fail, critical: false}
  - {id: more, tool: work.say, needs: [extra], optional: true}
  - {id: publish, tool: work.say, needs: [pages, extra, more], approval: required, with: {text: "out"}}
"""
BY_NAME = ["3 of 4 steps, 1 failed: extra", "4 of 5 pages, 1 failed: pages[3]"]
IN_WORDS = "1 of 4 steps failed, 1 of 5 pages failed"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.write("tools.py", TOOLS)
    shop.write("plan.yaml", PLAN)
    return shop


def test_failures_are_told_wherever_an_execution_is(shop: Workshop) -> None:
    asked = shop.run("run", "plan.yaml", code=3)
    (request,) = shop.run("inbox", "--json").json
    expected = ["1 of 4 steps, 1 failed: extra", BY_NAME[1]]
    assert request["failed"] == request["card"]["failed"] == expected
    for said in (asked.out, shop.run("show", "@last").out, shop.run("inbox").out):
        assert "before it: 4 of 5 pages, 1 failed: pages[3]" in said
    shop.run("approve", "@last", "publish")
    done = shop.run("resume", "@last", "--json").lines[-1]
    assert done["failures"] == IN_WORDS
    assert shop.run("list", "--json").json[0]["failures"] == IN_WORDS
    assert shop.run("list", "--json").json[0]["error"] is None
    assert shop.run("history", "--json").json[0]["failures"] == IN_WORDS
    for command in ("list", "history"):
        assert IN_WORDS in shop.run(command).out
    shown = shop.run("show", "@last", "--json").json
    assert shown["failures"] == IN_WORDS
    assert shown["failed"] == ["2 of 4 steps, 1 failed: extra", BY_NAME[1]]
    assert "4 of 5 pages, 1 failed: pages[3]" in shop.run("show", "@last").out
    shop.run("doctor")


def test_last_line_of_run_tells_how_many_steps_failed(shop: Workshop) -> None:
    shop.write("plan.yaml", PLAN.replace("approval: required, ", ""))
    result = shop.run("run", "plan.yaml")
    last = [line for line in result.out.splitlines() if line.startswith("completed in ")]
    assert len(last) == 1
    assert f", {IN_WORDS}: report" in last[0]
    assert f"\ncompleted, {IN_WORDS}\n" in result.out


def test_failure_that_is_lived_with_tells_what_was_left_out_for_it(shop: Workshop) -> None:
    shop.write("plan.yaml", PLAN.replace("approval: required, ", ""))
    result = shop.run("run", "plan.yaml")
    assert "extra: failed (not critical, going on): it broke; left out for it: more" in result.out
    steps = {step["path"]: step for step in shop.run("show", "@last", "--json").json["steps"]}
    assert steps["extra"]["failure"]["affects"] == ["more"]
    assert "left out for it: more" in shop.run("show", "@last").out


def test_skipped_step_shows_its_tool_and_whether_it_was_critical(shop: Workshop) -> None:
    shop.write(
        "plan.yaml",
        """
name: report
steps:
  - {id: one, tool: work.say, when: "false", critical: false}
  - {id: group, when: "false", steps: [{id: inner, tool: work.say}]}
  - {id: items, for_each: "${{ [1, 2] }}", when: "false", tool: work.say}
  - {id: two, tool: work.say, when: "false"}
""",
    )
    shop.run("run", "plan.yaml")
    steps = {step["path"]: step for step in shop.run("show", "@last", "--json").json["steps"]}
    seen = {path: (step["tool"], step["kind"], step["critical"]) for path, step in steps.items()}
    assert seen == {
        "one": ("work.say", "tool", False),
        "group": ("plan", "plan", True),
        "items": ("work.say", "for_each", True),
        "two": ("work.say", "tool", True),
    }
    assert "work.say" in shop.run("show", "@last").out


def test_notice_of_an_end_tells_what_failed(shop: Workshop) -> None:
    shop.write("plan.yaml", PLAN.replace("approval: required, ", ""))
    with receiving() as hook:
        shop.write(
            "holdfast.toml",
            'modules = ["tools.py"]\n[notify]\nchannels = ["chat"]\n'
            f'[tools.notify.channels]\nchat = "{hook.address}"\n',
        )
        shop.run("run", "plan.yaml")
        (letter,) = hook.got
    assert letter["title"] == f"report is done, {IN_WORDS}"
    assert BY_NAME[1] in letter["message"]


def test_failures_inside_of_a_group_are_counted_where_they_stand(shop: Workshop) -> None:
    """And those of a group that failed are told by the group."""
    shop.write(
        "plan.yaml",
        """
name: report
steps:
  - {id: whole, steps: [{id: a, tool: work.fail, critical: false}, {id: b, tool: work.say}]}
  - {id: broken, critical: false, steps: [{id: a, tool: work.fail}]}
""",
    )
    assert shop.run("run", "plan.yaml", "--json").lines[-1]["failures"] == (
        "1 of 2 steps failed, 1 of 2 steps of whole failed"
    )


def test_function_that_goes_on_after_a_failure_tells_of_it(shop: Workshop) -> None:
    shop.write(
        "tools.py",
        TOOLS
        + """
@holdfast.function
async def careful(ctx) -> str:
    ctx.now()
    try:
        await ctx.call(fail)
    except holdfast.StepFailed:
        pass
    return await ctx.call(say, text="done")
""",
    )
    assert shop.run("run", "careful", "--json").lines[-1]["failures"] == "1 of 2 steps failed"


def test_group_with_a_failure_in_it_has_no_green_tick(shop: Workshop) -> None:
    shop.write("plan.yaml", PLAN.replace("approval: required, ", ""))
    shop.run("run", "plan.yaml")
    shown = shop.run("show", "@last", PYTHONIOENCODING="utf-8").out
    (line,) = [line for line in shown.splitlines() if " pages " in line and "for_each" in line]
    assert line.strip().startswith("!")
    assert "✔ pages" not in shop.run("graph", "@last", PYTHONIOENCODING="utf-8").out
    live = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", at_terminal(shop, ["run", "plan.yaml"], []))
    assert "✔ publish" in live
    assert "✔ pages" not in live


def test_check_says_that_a_failed_item_is_null(shop: Workshop) -> None:
    output = "${{ steps.pages.output }}"
    shop.write("plan.yaml", PLAN.replace("approval: required, ", "") + f'output: "{output}"\n')
    assert shop.run("run", "plan.yaml", "--json").lines[-1]["output"] == [0, 1, 2, None, 4]
    (finding,) = shop.run("check", "plan.yaml", "--json").json["findings"]
    assert finding["severity"] == "warning"
    assert "an item that fails is null in steps.pages.output" in finding["message"]
    known = "${{ steps.pages.output.filter(o, o != null) }}"
    shop.write("plan.yaml", (shop.folder / "plan.yaml").read_text().replace(output, known))
    assert shop.run("run", "plan.yaml", "--json").lines[-1]["output"] == [0, 1, 2, 4]
    assert shop.run("check", "plan.yaml", "--json").json["findings"] == []
