"""`holdfast check`: many plans at once, every mistake with its file, line and place."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from cli.workshop import Workshop

BROKEN = """\
name: broken
inputs: {topic: string}
steps:
  - id: serach
    tool: work.du
    with: {value: "${{ inputs.topci }}"}
  - id: next
    needs:
      - search
    tool: work.do
    wtih: {}
"""


def test_every_mistake_of_every_plan_has_its_file_line_and_place_and_a_suggestion(shop: Workshop) -> None:
    (shop.folder / "plans").mkdir()
    shop.write("plans/broken.yaml", BROKEN)
    shop.write("plans/twice.yml", "name: a\nname: b\nsteps: []\n")
    shop.write("plans/fine.json", '{"steps": [{"id": "a", "tool": "work.do"}]}')
    checked = shop.run("check", "plans", code=1)
    assert checked.out.splitlines() == [
        'plans/broken.yaml:5: steps[0].tool: no tool called "work.du"; did you mean "work.do"?',
        'plans/broken.yaml:6: steps[0].with.value: no input called "topci"; did you mean "topic"?',
        'plans/broken.yaml:9: steps[1].needs[0]: no step called "search"; did you mean "serach"?',
        'plans/broken.yaml:11: steps[1].wtih: unknown key; did you mean "with"?',
        'plans/twice.yml:2: "name" stands twice; keep one',
        "3 plans: 5 mistakes, 0 warnings",
    ]


def test_json_answers_with_one_object(shop: Workshop) -> None:
    shop.write("broken.yaml", BROKEN)
    found = shop.run("check", "broken.yaml", "two.yaml", "--json", code=1).json
    assert (found["ok"], found["files"]) == (False, 2)
    assert found["findings"][0] == {
        "file": "broken.yaml",
        "line": 5,
        "place": "steps[0].tool",
        "message": 'no tool called "work.du"; did you mean "work.do"?',
        "severity": "error",
    }
    assert shop.run("check", "two.yaml", "--json").json["ok"] is True


SUSPICIOUS = """\
name: suspicious
inputs: {unused: {type: string, default: x}}
steps:
  - {id: needs_much, tool: work.needy}
  - {id: never, tool: work.do, when: "${{ 1 > 2 }}"}
  - {id: cached, tool: work.do, cache: true}
  - {id: sure, tool: work.even, with: {number: 2}, in_doubt: ask}
  - {id: unsure, tool: work.do, in_doubt: verify}
  - {id: extra, tool: work.gaet, optional: true}
  - {id: agree, approval: {message: Well?, expires: 0}}
"""


def test_what_is_probably_not_meant_is_a_warning_and_fails_only_when_strict(shop: Workshop) -> None:
    shop.write("suspicious.yaml", SUSPICIOUS)
    checked = shop.run("check", "suspicious.yaml")
    assert checked.out.splitlines() == [
        "suspicious.yaml:2: warning: inputs.unused: nothing uses this input",
        "suspicious.yaml:4: warning: steps[0].tool: work.needy needs the program "
        '"no-such-program-anywhere", which is not on PATH; install it',
        "suspicious.yaml:5: warning: steps[1].when: is always false, so this step never runs",
        "suspicious.yaml:6: warning: steps[2].cache: only read steps are cached, and this one is once",
        "suspicious.yaml:7: warning: steps[3].in_doubt: only once steps can be in doubt, and this one is read",
        "suspicious.yaml:8: warning: steps[4].in_doubt: work.do has no check of its own; a person will be asked",
        'suspicious.yaml:9: warning: steps[5].tool: no tool called "work.gaet"; did you mean "work.gate"? '
        "this step will be left out",
        "suspicious.yaml:10: warning: steps[6].approval: expires at once, and silence is a no",
        "1 plan: 0 mistakes, 8 warnings",
    ]
    shop.run("check", "suspicious.yaml", "--strict", code=1)
    assert shop.run("check", "suspicious.yaml", "--strict", "--json", code=1).json["ok"] is False


def test_caching_what_is_asked_with_a_secret_is_a_warning(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[secrets]\nTOKEN = {env = "MY_TOKEN"}\n')
    text = "name: x\nsteps:\n  - {id: a, tool: work.even, cache: true, with: {number: '${{ secrets.TOKEN }}'}}\n"
    shop.write("cached.yaml", text)
    said = "steps[0].cache: a call that uses a secret is never answered from the cache"
    assert said in shop.run("check", "cached.yaml", MY_TOKEN="a-long-enough-value").out


def test_a_fallback_that_a_known_failure_does_not_reach_is_a_warning(shop: Workshop) -> None:
    shop.write(
        "spare.yaml",
        "name: spare\nsteps:\n"
        "  - {id: a, tool: shell.run, with: {command: exit 4}, fallback: {tool: work.do, with: {}}}\n"
        "  - {id: b, tool: shell.run, with: {command: exit 4}, effect: read, fallback: {tool: work.do, with: {}}}\n",
    )
    first, *_, last = shop.run("check", "spare.yaml").out.splitlines()
    assert first.startswith("spare.yaml:3: warning: steps[0].fallback: this step is once, so its fallback runs only")
    assert last == "1 plan: 0 mistakes, 1 warning"


def test_limits_that_hold_for_nothing_are_a_warning(shop: Workshop) -> None:
    plan = """\
name: limits
resources: {processes: 9}
steps:
  - {id: plain, tool: work.do}
  - {id: apart, tool: work.do, resources: {memory: 64MB}}
  - {id: limited, tool: time.sleep, with: {seconds: 0}, resources: {memory: 64MB, open_files: 99}}
  - {id: command, tool: shell.run, with: {command: "true"}, resources: {memory: 64MB}}
"""
    shop.write("limits.yaml", plan)
    assert shop.run("check", "limits.yaml").out.splitlines() == [
        "limits.yaml:6: warning: steps[2].resources: time.sleep runs in the engine's process and is held to none of "
        "memory, processes, open_files",
        "1 plan: 0 mistakes, 1 warning",
    ]


def test_inputs_used_in_conditions_or_handed_on_whole_are_used(shop: Workshop) -> None:
    shop.write(
        "used.yaml",
        "name: used\ninputs: {a: {default: true}, b: {default: 1}}\nsteps:\n"
        "  - {id: one, tool: work.do, when: inputs.a && true}\n  - {id: two, start: two.yaml, with: '${{ inputs }}'}\n",
    )
    assert shop.run("check", "used.yaml").out == "1 plan: 0 mistakes, 0 warnings\n"


@pytest.mark.parametrize(
    ("name", "text", "is_plan"),
    [
        ("plain.yaml", "steps:\n  - {id: a, wait: 1s}\n", True),
        ("deep/plan.yml", "steps:\n  - {id: a, approval: Shall we?}\n", True),
        ("data.json", '{"steps": [{"tool": "work.do"}]}', True),
        ("cut.yaml", "name: cut\nsteps:\n  - {id: a", True),
        ("cloudbuild.yaml", "steps:\n  - {name: docker, args: [build]}\n", False),
        ("steps.yaml", "steps: 3\n", False),
        ("list.json", '["steps"]', False),
        ("other.yaml", "jobs: {a: {steps: [{run: x}]}}\n", False),
        ("notes.txt", "steps:\n", False),
        (".hidden/plan.yaml", "steps:\n  - {id: a, wait: 1s}\n", False),
        ("node_modules/x/plan.yaml", "steps:\n  - {id: a, wait: 1s}\n", False),
    ],
)
def test_in_a_folder_plans_are_told_from_other_files(shop: Workshop, name: str, text: str, is_plan: bool) -> None:
    for plan in shop.folder.glob("*.yaml"):
        plan.unlink()
    path = shop.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    checked = shop.run("check", code=None)
    if is_plan:
        assert checked.out.endswith("warnings\n")
    else:
        assert checked.code == 2
        assert "no plans in .; a plan is a YAML or JSON file with a list of steps" in checked.err


def test_another_project_below_and_an_environment_are_left_out(shop: Workshop) -> None:
    for folder, mark in (("other", "holdfast.toml"), ("venv", "pyvenv.cfg")):
        (shop.folder / folder).mkdir()
        shop.write(f"{folder}/{mark}", "")
        shop.write(f"{folder}/plan.yaml", BROKEN)
    shop.run("check")


def test_paths_that_cannot_be_checked_are_wrong_use(shop: Workshop) -> None:
    assert "there is no file or folder nowhere" in shop.run("check", "nowhere", code=2).err
    assert "tools.py is not a plan file; those end with .yaml, .yml, .json" in shop.run("check", "tools.py", code=2).err
    shop.write("tools.py", "def broken(")
    assert "cannot be imported" in shop.run("check", code=2).err


def test_a_file_that_cannot_be_read_is_a_mistake_in_it(shop: Workshop) -> None:
    (shop.folder / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert "bytes.yaml: cannot be read: " in shop.run("check", "bytes.yaml", code=1).out
    shop.write("cut.json", '{"steps": [\n{"id": ')
    assert "cut.json:2: is not JSON: Expecting value: line 2 column 8" in shop.run("check", "cut.json", code=1).out


def test_checking_leaves_no_journal_behind(shop: Workshop) -> None:
    shop.run("check")
    shop.run("run", "two.yaml", "--check")
    assert not os.path.exists(shop.folder / ".holdfast")


BOMB = "name: b\na: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 10)}]\n" for before, one in pairwise("abcdefghij")
)


def test_what_aliases_make_huge_or_endless_is_refused_with_its_line_and_the_others_are_checked(shop: Workshop) -> None:
    (shop.folder / "plans").mkdir()
    shop.write("plans/bomb.yaml", f"{BOMB}steps:\n  - {{id: a, tool: work.do, with: {{value: *j}}}}\n")
    shop.write("plans/endless.yaml", "name: r\nx: &a [*a]\nsteps:\n  - {id: a, tool: work.do}\n")
    shop.write("plans/fine.yaml", "name: f\nsteps:\n  - &s {id: a, tool: work.do}\n  - {<<: *s, id: b}\n")
    assert shop.run("check", "plans", code=1).out.splitlines() == [
        "plans/bomb.yaml:6: aliases make more than 100,000 values of this; write out what is meant",
        "plans/endless.yaml:2: holds itself through an alias; write out what is meant",
        "3 plans: 2 mistakes, 0 warnings",
    ]
    for plan in ("bomb", "endless"):
        assert "write out what is meant" in shop.run("run", f"plans/{plan}.yaml", code=2).err


def test_no_slip_of_the_pen_makes_a_plan_invisible(shop: Workshop) -> None:
    (shop.folder / "plans").mkdir()
    shop.write("plans/keys.yaml", "name: a\nstpes:\n  - {id: a, tool: work.do}\n")
    shop.write("plans/kinds.yaml", "name: b\nsteps:\n  - {id: a, tol: work.do}\n")
    shop.write("plans/marked.yaml", "# yaml-language-server: $schema=../holdfast.schema.json\nname: c\n")
    shop.write("plans/mapped.yaml", "name: d\nsteps:\n  a: {tool: work.do}\n")
    checked = shop.run("check", "plans", code=1)
    assert {line.partition(":")[0] for line in checked.out.splitlines()[:-1]} == {
        "plans/keys.yaml", "plans/kinds.yaml", "plans/marked.yaml", "plans/mapped.yaml"
    }  # fmt: skip
    assert 'stpes: unknown key; did you mean "steps"?' in checked.out


def test_what_is_no_plan_is_named(shop: Workshop) -> None:
    (shop.folder / "plans").mkdir()
    shop.write("plans/fine.yaml", "name: a\nsteps:\n  - {id: a, tool: work.do}\n")
    shop.write("plans/pipeline.yml", "name: ci\nstages:\n  - {stage: build, jobs: []}\n")
    shop.write("plans/data.json", '{"steps": 3}')
    shop.write("plans/holdfast.schema.json", "{}")
    checked = shop.run("check", "plans")
    assert checked.out == "1 plan: 0 mistakes, 0 warnings\n"
    said = "no plans, and not checked: plans/data.json, plans/pipeline.yml; name a file to check it all the same"
    assert checked.err == f"holdfast: {said}\n"
    assert shop.run("check", "plans", "--json").json["left_out"] == ["plans/data.json", "plans/pipeline.yml"]
