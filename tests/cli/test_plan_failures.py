"""What a plan may ask of a step that failed, and what it says once for all its steps."""

from __future__ import annotations

from cli.workshop import Workshop

SWITCH = """\
name: switch
steps:
  - {id: call, tool: shell.run, with: {command: "echo no >&2; exit 3"}, critical: false}
  - {id: fine, tool: work.do, with: {value: 1}}
  - id: again_later
    when: steps.call.failure.status == 3 && steps.call.failure.category == "tool"
    tool: work.do
    with: {value: 2}
  - {id: other, when: steps.call.failure.status == 4, tool: work.do, with: {value: 3}}
  - {id: never, when: steps.fine.failure.status >= 1 || steps.fine.failure.category == "tool", tool: work.do}
output:
  said: ${{ steps.call.failure.message.startsWith("exit code 3") }}
  ran: ["${{ steps.again_later.status }}", "${{ steps.other.status }}", "${{ steps.never.status }}"]
"""

CATCH = """\
name: catch
steps:
  - {id: call, tool: shell.run, with: {command: exit 7}}
on_failure:
  - {id: tell, tool: work.do, with: {value: "${{ failure.status }}"}}
"""


def test_steps_are_chosen_by_category_and_status_of_a_failure(shop: Workshop) -> None:
    shop.write("switch.yaml", SWITCH)
    ended = shop.run("run", "switch.yaml", "--json").lines[-1]
    assert ended["output"] == {"said": True, "ran": ["completed", "skipped", "skipped"]}


def test_ending_steps_see_the_status_of_what_failed(shop: Workshop) -> None:
    shop.write("catch.yaml", CATCH)
    told = shop.run("run", "catch.yaml", "--json", code=1).lines
    completed = next(line for line in told if line["type"] == "step:completed" and line["path"] == "tell")
    assert completed["output"] == 7
