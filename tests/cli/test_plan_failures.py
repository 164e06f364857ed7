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
    completed = next(line for line in told if line.get("type") == "step:completed" and line["path"] == "tell")
    assert completed["output"] == 7


DEFAULTS = """\
name: defaults
defaults: {critical: false, on_error: fail, retry: {max: 2, first: 1ms}}
steps:
  - {id: odd, tool: work.even, with: {number: 3}}
  - {id: command, tool: shell.run, with: {command: "echo again >> tried.txt; exit 1"}}
  - {id: reads, tool: shell.run, with: {command: "echo again >> reads.txt; exit 1"}, effect: read}
  - {id: written, tool: shell.run, with: {command: "echo again >> written.txt; exit 1"}, retry: {max: 1, first: 1ms}}
  - id: many
    steps:
      - {id: inner, tool: work.even, with: {number: 5}}
  - {id: vital, tool: work.fail, critical: true}
"""


def test_defaults_count_for_each_step_that_does_not_say_otherwise(shop: Workshop) -> None:
    shop.write("defaults.yaml", DEFAULTS)
    told = shop.run("run", "defaults.yaml", "--json", code=1).lines
    failed = {line["path"]: line["critical"] for line in told if line.get("type") == "step:failed"}
    assert failed == {
        "odd": False, "command": False, "reads": False, "written": False, "many/inner": False, "vital": True,
    }  # fmt: skip
    tries = {name: len((shop.folder / f"{name}.txt").read_text().split()) for name in ("tried", "reads", "written")}
    assert tries == {"tried": 1, "reads": 3, "written": 2}  # a once step is repeated only by its own word


def test_mistake_in_defaults_is_told_once_at_its_place(shop: Workshop) -> None:
    shop.write("defaults.yaml", DEFAULTS.replace("critical: false, on_error: fail", "critcal: 1, timeout: 0s"))
    told = shop.run("check", "defaults.yaml", code=1).out
    assert told.splitlines() == [
        'defaults.yaml:2: defaults.critcal: unknown key; did you mean "critical"?',
        "defaults.yaml:2: defaults.timeout: expected more than 0 seconds; leave it out for the default",
        "1 plan: 2 mistakes, 0 warnings",
    ]
