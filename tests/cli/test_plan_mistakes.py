"""What cannot be worked out while a plan runs waits for a person, like any other mistake."""

from __future__ import annotations

from cli.workshop import Workshop

ARGUMENT = """\
name: argument
steps:
  - {id: ask, tool: shell.run, with: {command: "echo '{}'", parse: json}, effect: read}
  - {id: count, tool: work.do, with: {value: "${{ steps.ask.output.json.number }}"}}
  - {id: after, tool: work.do, with: {value: "${{ steps.count.output + 1 }}"}}
output: ${{ steps.after.output }}
"""

CONDITION = """\
name: condition
inputs: {when: {type: any, default: soon}}
steps:
  - {id: maybe, when: inputs.when > 3, tool: work.do, with: {value: 4}}
output: ${{ steps.maybe.output }}
"""


def test_argument_that_cannot_be_worked_out_waits_and_is_given_by_hand(shop: Workshop) -> None:
    shop.write("plan.yaml", ARGUMENT)
    waiting = shop.run("run", "plan.yaml", code=3)
    assert 'cannot begin: value: ${{ steps.ask.output.json.number }}: there is no field "number"' in (
        waiting.out + waiting.err
    )
    refused = shop.run("resolve", "@last", "count", "--again", "--with", "value=many", code=2).err
    assert "value: expected a whole number" in refused
    shop.run("resolve", "@last", "count", "--again", "--with", "value=41")
    assert shop.run("resume", "@last", "--json").lines[-1]["output"] == 42
    assert shop.log() == ["count ran", "after ran"]


def test_again_without_the_missing_argument_asks_once_more_and_calls_nothing(shop: Workshop) -> None:
    shop.write("plan.yaml", ARGUMENT)
    shop.run("run", "plan.yaml", code=3)
    shop.run("resolve", "@last", "count", "--again")
    shop.run("resume", "@last", code=3)
    assert shop.log() == []
    shop.run("resolve", "@last", "count", "--done", "--output", "9")
    assert shop.run("resume", "@last", "--json").lines[-1]["output"] == 10
    assert shop.log() == ["after ran"]


def test_condition_that_cannot_be_worked_out_waits_too(shop: Workshop) -> None:
    shop.write("plan.yaml", CONDITION)
    told = shop.run("run", "plan.yaml", code=3)
    assert "cannot begin: ${{ inputs.when > 3 }}" in told.out + told.err
    shop.run("resolve", "@last", "maybe", "--skip")
    assert shop.run("resume", "@last", "--json").lines[-1]["status"] == "completed"


def test_step_that_says_so_fails_at_once(shop: Workshop) -> None:
    shop.write("plan.yaml", CONDITION.replace("when: inputs.when > 3", "when: inputs.when > 3, on_error: fail"))
    shop.run("run", "plan.yaml", code=1)
