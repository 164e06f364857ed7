"""`holdfast check` finds what can be known of a plan before it runs: fields, types, lists, addresses, failed steps."""

from __future__ import annotations

from cli.workshop import Workshop

WRONG = """\
name: wrong
inputs: {count: integer, who: string, maybe: {type: string, required: false}, any: any}
steps:
  - {id: ask, tool: http.get, with: {url: "http://127.0.0.1:1/x"}}
  - {id: list, tool: shell.run, with: {command: ls, parse: lines}, effect: read}
  - {id: field, tool: work.do, with: {value: "${{ steps.ask.output.jsn.wind }}"}}
  - {id: deep, tool: work.do, with: {value: "${{ steps.ask.output.status.code }}"}}
  - {id: sum, tool: work.do, with: {value: "${{ inputs.count + inputs.who }}"}}
  - {id: when, when: inputs.count, tool: work.do}
  - {id: text, for_each: "${{ steps.list.output.stdout }}", tool: work.do}
  - {id: all, for_each: "${{ steps.list.output.lines }}", tool: shell.run, with: {command: ["${{ item.name }}"]}}
  - {id: of_list, tool: work.do, with: {value: "${{ steps.all.output.stdout }}"}}
"""

RIGHT = """\
name: right
inputs: {count: integer, who: string, maybe: {type: string, required: false}, any: any}
steps:
  - {id: ask, tool: http.get, with: {url: "http://localhost.example/x"}}
  - {id: list, tool: shell.run, with: {command: ls, parse: lines}, effect: read}
  - {id: a, tool: work.do, with: {value: "${{ steps.ask.output.json.any.thing + inputs.any.x }}"}}
  - {id: b, when: has(steps.ask.output.nothing) || steps.ask.output.headers.etag == "x", tool: work.do}
  - {id: c, when: inputs.count < 1.5 && inputs.maybe != null && inputs.who != "", tool: work.do}
  - id: d
    for_each: ${{ steps.list.output.stdout.split("/") }}
    tool: work.even
    with: {number: "${{ size(item) }}"}
  - {id: e, tool: work.do, with: {value: "${{ inputs.count > 1 ? inputs.who : inputs.count }}"}}
  - {id: f, tool: work.do, with: {value: "${{ steps.d.output.map(n, n + 1)[0] + steps.list.output.lines.size() }}"}}
  - {id: g, when: 'inputs.count in [1, 2] && !(steps.b.status in ["failed"])', tool: work.do}
"""

UNSURE = """\
name: unsure
steps:
  - {id: ask, tool: shell.run, with: {command: ls}, critical: false}
  - {id: uses, tool: shell.run, with: {command: ["echo", "${{ steps.ask.output.stdout }}"]}}
  - {id: whole, tool: shell.run, with: {command: ["echo", "${{ string(steps.ask.output == null) }}"]}}
  - id: guarded
    when: steps.ask.status == "completed"
    tool: shell.run
    with: {command: ["echo", "${{ steps.ask.output.stdout }}"]}
  - id: asked
    tool: shell.run
    with: {command: ["echo", "${{ has(steps.ask.output.stdout) ? steps.ask.output.stdout : '' }}"]}
finally:
  - {id: tidy, tool: shell.run, with: {command: ["echo", "${{ steps.uses.output.stdout }}"]}}
"""


def test_what_is_sure_to_fail_is_a_mistake_with_its_place(shop: Workshop) -> None:
    shop.write("wrong.yaml", WRONG)
    told = shop.run("check", "wrong.yaml", code=1).out
    assert "wrong.yaml:4: steps[0].with.url: 127.0.0.1 is this machine; only public addresses are reached" in told
    shop.write("wrong.yaml", WRONG.replace("127.0.0.1:1", "example.org"))
    assert shop.run("check", "wrong.yaml", code=1).out.splitlines() == [
        'wrong.yaml:6: steps[2].with.value: ${{ steps.ask.output.jsn.wind }}: steps.ask.output has no field "jsn"; '
        'did you mean "json"?',
        "wrong.yaml:7: steps[3].with.value: ${{ steps.ask.output.status.code }}: steps.ask.output.status is a whole "
        'number and has no field or item "code"',
        "wrong.yaml:8: steps[4].with.value: ${{ inputs.count + inputs.who }}: + does not work with int and string",
        "wrong.yaml:9: steps[5].when: ${{ inputs.count }}: expected true or false, and this is a whole number",
        "wrong.yaml:10: steps[6].for_each: ${{ steps.list.output.stdout }}: expected a list, and this is a text; "
        'make a list of it, with json(…) or .split("\\n")',
        'wrong.yaml:11: steps[7].with.command[0]: ${{ item.name }}: item is a text and has no field or item "name"',
        "wrong.yaml:12: steps[8].with.value: ${{ steps.all.output.stdout }}: steps.all.output is a list and has no "
        'field "stdout"; name an item, as steps.all.output[0], or use map',
        "1 plan: 7 mistakes, 0 warnings",
    ]
    refused = shop.run("run", "wrong.yaml", "-i", "count=1", "-i", "who=you", code=2).err
    assert "nothing was started" in refused


def test_what_may_be_right_is_no_mistake(shop: Workshop) -> None:
    shop.write("right.yaml", RIGHT)
    assert shop.run("check", "right.yaml", code=0).out == "1 plan: 0 mistakes, 0 warnings\n"


def test_field_of_a_step_that_may_have_failed_is_a_warning_unless_somebody_asks(shop: Workshop) -> None:
    shop.write("unsure.yaml", UNSURE)
    told = shop.run("check", "unsure.yaml").out.splitlines()
    assert [line.partition(": steps.")[0] for line in told] == [
        "unsure.yaml:4: warning: steps[1].with.command[1]",
        "unsure.yaml:14: warning: finally[0].with.command[1]",
        "1 plan: 0 mistakes, 2 warnings",
    ]
    assert "steps.ask may have failed, and then its output is null" in told[0]
