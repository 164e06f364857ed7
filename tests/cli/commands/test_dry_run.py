"""`run --dry-run`: what would run, in which order, with which arguments; and nothing happens."""

from __future__ import annotations

from cli.workshop import Workshop

PLAN = """\
name: dry
title: Survey ${{ inputs.name }}
inputs:
  name: {type: string, default: tides}
  places: {type: list, default: [1, 2]}
steps:
  - {id: first, tool: work.do, with: {value: "${{ size(inputs.places) }}"}, effect: idempotent}
  - {id: beside, needs: [], tool: work.fail, with: {text: "a ${{ inputs.name }}"}, timeout: 90s, critical: false}
  - id: each
    needs: [first]
    for_each: ${{ inputs.places }}
    max_parallel: 3
    tool: work.do
    with: {value: "${{ item + 1 }}"}
  - id: later
    for_each: ${{ steps.each.output }}
    tool: work.do
    with: {value: "${{ item }}"}
    when: size(steps.each.output) > 1
  - id: inner
    title: A milestone
    steps:
      - {id: agree, approval: "Shall we, ${{ inputs.name }}?"}
      - {id: rest, wait: {event: go, timeout: 1h}}
  - {id: never, when: size(inputs.places) > 5, tool: work.do}
  - {id: extra, tool: work.nowhere, optional: true}
  - id: last
    tool: work.do
    with: {value: "${{ steps.first.output }}"}
    approval: {message: "Sure?", expires: 1h}
    fallback: {tool: work.even, with: {number: 2}}
  - {id: odd, tool: work.do, with: {value: "${{ inputs.places[7] }}"}}
on_failure:
  - {id: tell, tool: work.do}
finally:
  - {id: child, start: two.yaml, with: {who: "${{ inputs.name }}"}}
output: ${{ steps.last.output }}
"""


def test_order_tools_effects_arguments_and_people_are_shown(shop: Workshop) -> None:
    shop.write("dry.yaml", PLAN)
    assert shop.run("run", "dry.yaml", "--dry-run", "-i", "name=waves").out.splitlines() == [
        "Survey waves",
        "  name: waves",
        "  places: [1, 2]",
        '1. first: work.do (idempotent) {"value": 2}',
        '1. beside: work.fail (read) {"text": "a waves"}',
        "   time limit: 1 min 30 s",
        "   not critical: the plan goes on if it fails",
        "2. each: for each of 2 items, 3 at a time",
        '   - work.do (once) {"value": 2}',
        '   - work.do (once) {"value": 3}',
        '3. later: work.do (once) {"value": "${{ item }}"}',
        "   runs when size(steps.each.output) > 1: not known yet",
        "   for each of ${{ steps.each.output }}, 8 at a time",
        "4. inner: A milestone",
        "4.1. inner/agree: ask for an approval",
        "     a person must agree within 7 d 0 h: Shall we, waves?",
        "4.2. inner/rest: wait event go, timeout 1h",
        "5. never: work.do (once) {}",
        "   runs when size(inputs.places) > 5: it does not: skipped",
        "6. extra: work.nowhere",
        "   no tool called work.nowhere: it would be left out",
        "   optional",
        '7. last: work.do (once) {"value": "${{ steps.first.output }}"}',
        "   a person must agree within 1 h 00 min: Sure?",
        '   or else work.even (read) {"number": 2}',
        "8. odd: work.do",
        "   ${{ inputs.places[7] }}: there is no item 7 in a list of 2",
        "if it fails:",
        "1. tell: work.do (once) {}",
        "at the end:",
        '1. child: start two.yaml {"who": "waves"}',
        "output: ${{ steps.last.output }}",
        "steps with the same number may run at the same time; nothing was started",
    ]
    assert shop.log() == []
    assert not (shop.folder / ".holdfast").exists()


def test_json_holds_the_same_as_values(shop: Workshop) -> None:
    shop.write("dry.yaml", PLAN)
    seen = shop.run("run", "dry.yaml", "--dry-run", "--json").json
    steps = {step["path"]: step for step in seen["steps"]}
    assert seen["inputs"] == {"name": "tides", "places": [1, 2]}
    assert (steps["beside"]["turn"], steps["beside"]["timeout_s"]) == (1, 90)
    assert [item["arguments"] for item in steps["each"]["each"]] == [{"value": 2}, {"value": 3}]
    assert (steps["later"]["items"], steps["later"]["runs"]) == (None, None)
    assert steps["never"]["runs"] is False
    assert steps["last"]["approval"] == {"message": "Sure?", "expires_s": 3600}
    assert [step["path"] for step in steps["inner"]["steps"]] == ["inner/agree", "inner/rest"]
    assert seen["unmet"] == []


def test_many_items_are_cut_and_counted(shop: Workshop) -> None:
    shop.write("many.yaml", "steps:\n  - {id: a, for_each: [1, 2, 3, 4, 5, 6, 7], steps: [{id: b, tool: work.do}]}\n")
    shown = shop.run("run", "many.yaml", "--dry-run").out.splitlines()
    assert shown[1] == "1. a: for each of 7 items, 8 at a time"
    assert shown[3] == "     1.1. a[0]/b: work.do (once) {}"
    assert "   … and 2 more" in shown


def test_mistakes_missing_things_and_functions_are_said(shop: Workshop) -> None:
    refused = shop.run("run", "two.yaml", "--dry-run", "-i", "count=x", code=2).err
    assert "inputs.count: expected a whole number" in refused
    shop.write("needy.yaml", "steps: [{id: a, tool: work.needy}]")
    assert "which is not on PATH; install it" in shop.run("run", "needy.yaml", "--dry-run", code=1).out
    refused = shop.run("run", "double", "-i", "number=1", "--dry-run", code=2).err
    assert "double is a function, which decides its steps while it runs; --dry-run is for plans" in refused
    assert not shop.store.exists()
