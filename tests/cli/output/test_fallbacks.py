"""What a failure says of the fallbacks that its step had."""

from __future__ import annotations

from cli.workshop import Workshop

PLAN = "steps: [{id: a, tool: shell.run, with: {command: 'exit 4'}, %s, fallback: {tool: files.list, with: {path: .}}}]"


def test_a_failure_says_that_a_fallback_was_passed_over_because_the_call_may_have_happened(shop: Workshop) -> None:
    shop.write("a.yaml", PLAN % "effect: once")
    said = "its fallback files.list was not tried: the call may have had its effect"
    assert said in shop.run("run", "a.yaml", code=1).out
    assert said in shop.run("show", "@last").out
    assert shop.run("show", "@last", "--json").lines[0]["failure"]["untried"] == ["files.list"]


def test_a_fallback_that_was_tried_is_not_said_to_be_passed_over(shop: Workshop) -> None:
    shop.write("a.yaml", PLAN % "effect: read")
    assert "was not tried" not in shop.run("run", "a.yaml").out
