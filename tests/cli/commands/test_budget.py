"""`holdfast budget` and what `run`, `show` and `tools` say about money, in real processes."""

from __future__ import annotations

import re

import pytest

from cli.foreground.test_terminal import at_terminal
from cli.workshop import Workshop

TOOLS = '''
import asyncio

import holdfast


@holdfast.tool(name="model.ask", effect="read", cost=0.3)
def ask(call: holdfast.Call, usd: float = 0.2) -> str:
    """Ask something that costs."""
    call.spend(usd=usd)
    return "answered"


@holdfast.tool(name="model.slow", effect="read", cost=0.3)
async def slow(call: holdfast.Call) -> str:
    """Cost something, slowly."""
    with (call.folder / "log.txt").open("a") as log:
        log.write("begun\\n")
    while not (call.folder / "go").exists():
        await asyncio.sleep(0.01)
    return "done"
'''
PLAN = """
name: paid
budget: {usd: 0.50, warn_at: 0.7}
steps:
  - {id: one, tool: model.ask}
  - {id: two, tool: model.ask}
  - {id: three, tool: model.ask}
"""


@pytest.fixture
def paid(shop: Workshop) -> Workshop:
    shop.write("models.py", TOOLS)
    shop.write("holdfast.toml", 'modules = ["models.py"]\n')
    shop.write("paid.yaml", PLAN)
    shop.write("slow.yaml", "name: slow\nsteps: [{id: wait, tool: model.slow}]\n")
    return shop


def test_a_request_for_money_tells_what_is_left_now(paid: Workshop) -> None:
    paid.run("run", "paid.yaml", code=3)
    paid.run("budget", "@last", "--add", "0.10")
    for command in (("show", "@last"), ("inbox",)):
        assert "model.ask may cost $0.30, and $0.20 of $0.60 are left" in paid.run(*command).out


def test_an_exhausted_budget_ends_the_run_with_3_and_says_what_to_type(paid: Workshop) -> None:
    ran = paid.run("run", "paid.yaml", code=3)
    identity = paid.newest()["id"]
    assert "$0.40 of $0.50 are spent" in ran.out
    assert "three: the budget is exhausted: $0.10 of $0.50 are left, and $0.30 may be needed" in ran.out
    assert "three asks for a larger budget: model.ask may cost $0.30, and $0.10 of $0.50 are left" in ran.out
    assert re.search(rf"holdfast budget {identity} --add USD +# let it spend more", ran.out)
    assert f"holdfast resolve {identity} three --skip" in ran.out
    raised = paid.run("budget", "@last", "--add", "0.50")
    assert ": the limit is $1.00 now\n" in raised.out
    assert f"holdfast resume {identity}" in raised.out, "nobody drives it now"
    assert "the budget is $1.00 now by " not in ran.out
    resumed = paid.run("resume", "@last")
    assert "completed" in resumed.out
    assert paid.run("show", "@last", "--json").json["spend"] == {
        "usd": 0.6, "unknown": 0, "limit": 1.0, "reserved": 0.0,
    }  # fmt: skip
    assert "spent        $0.60 of $1.00" in paid.run("show", "@last").out


def test_budget_shows_limit_spent_reserved_unknown_and_room(paid: Workshop) -> None:
    paid.run("run", "paid.yaml", code=3)
    assert paid.run("budget", "@last").out.splitlines() == [
        "limit     $0.50",
        "spent     $0.40",
        "unknown   0 amounts counted as estimated",
        "reserved  $0.00",
        "room      $0.10",
    ]
    assert paid.run("budget", "@last", "--json").json == {
        "id": paid.newest()["id"], "usd": 0.4, "unknown": 0, "limit": 0.5, "reserved": 0.0, "room": 0.1,
    }  # fmt: skip


def test_what_nobody_told_is_unknown_and_not_zero(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    shown = shop.run("budget", "@last").out
    assert "limit     none\nspent     unknown: nothing that ran told a cost\n" in shown
    assert "room      without a limit" in shown
    assert shop.run("show", "@last", "--json").json["spend"]["usd"] is None


def test_the_limit_may_be_given_on_the_command_line(paid: Workshop) -> None:
    paid.run("run", "paid.yaml", "--budget", "$2")
    assert paid.run("budget", "@last", "--json").json["limit"] == 2.0


@pytest.mark.parametrize("how", ["--skip", "--fail"])
def test_resolve_does_without_the_step(paid: Workshop, how: str) -> None:
    paid.run("run", "paid.yaml", code=3)
    assert "resolved three: " in paid.run("resolve", "@last", "three", how).out
    ended = paid.run("resume", "@last", code=0 if how == "--skip" else 1)
    assert ("there was no budget for it" in ended.out) == (how == "--fail")


def test_a_killed_call_counts_its_estimate_once(paid: Workshop) -> None:
    process = paid.start("run", "slow.yaml", "--budget", "1")
    paid.wait_for_log("begun")
    paid.kill(process)
    assert paid.run("budget", "@last", "--json").json["reserved"] == 0.3
    paid.open_gate()
    paid.run("resume", "@last")
    spend = paid.run("budget", "@last", "--json").json
    assert (spend["usd"], spend["unknown"], spend["reserved"], spend["room"]) == (0.6, 1, 0.0, 0.4)
    assert "spent        $0.60 of $1.00 (1 amount estimated)" in paid.run("show", "@last").out


def test_the_person_at_the_terminal_says_how_much_more(paid: Workshop) -> None:
    shown = at_terminal(
        paid, ["run", "paid.yaml"], [("[l]ater: ", "a lot\n"), ("[l]ater: ", "0.05\n"), ("[l]ater: ", "1\n")]
    )
    assert "how many dollars more? or: skip, fail, [d]etails, [l]ater: " in shown
    assert "the amount: expected an amount in US dollars" in shown
    assert "exit 0" in shown
    assert paid.run("budget", "@last", "--json").json["limit"] == 1.55


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["budget", "@last", "--add", "1", "--limit", "2"], "say either --add, by how much to raise the limit"),
        (["budget", "@last", "--add", "lots"], "--add: expected an amount in US dollars, more than 0"),
        (["budget", "@last", "--limit", "0.3"], "the limit cannot be $0.30: $0.40 are spent"),
        (["run", "paid.yaml", "--budget", "-1"], "--budget: expected an amount in US dollars, more than 0"),
    ],
)  # fmt: skip
def test_words_that_make_no_sense_are_refused(paid: Workshop, arguments: list[str], text: str) -> None:
    paid.run("run", "paid.yaml", code=3)
    assert text in paid.run(*arguments, code=2).err


def test_after_the_end_nothing_is_raised(paid: Workshop) -> None:
    paid.run("run", "paid.yaml", "--budget", "2")
    assert "the execution is completed" in paid.run("budget", "@last", "--add", "1", code=2).err


def test_tools_tell_what_they_cost(paid: Workshop) -> None:
    assert "$0.30" in next(line for line in paid.run("tools").out.splitlines() if line.startswith("model.ask"))
    found = {tool["name"]: tool["cost_usd"] for tool in paid.run("tools", "--json").json}
    assert (found["model.ask"], found["files.read"]) == (0.3, None)
