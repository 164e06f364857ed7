"""`list` with filters, `inbox`, `history` and `diff`, from real processes."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest

from cli.workshop import Workshop


def names(shop: Workshop, *filters: str) -> list[str]:
    return [head["name"] for head in shop.run("list", "--json", *filters).json]


def test_list_finds_by_label_error_step_time_id_and_words(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--label", "team=harbour", "--label", "env/stage=prod", "-i", "who=Ada Lovelace")
    shop.run("run", "fail.yaml", "--label", "team=sea", code=1)
    two, fail = sorted(shop.run("list", "--json").json, key=lambda head: head["created_at"])
    assert names(shop, "--label", "team=harbour") == ["two"]
    assert names(shop, "--label", "team") == ["fail", "two"]
    assert names(shop, "--label", "team=sea", "--label", "env/stage") == []
    assert names(shop, "--failed-step", "broken") == ["fail"]
    assert names(shop, "--error", "IT BROKE") == ["fail"]
    assert names(shop, "--since", "1h") == ["fail", "two"]
    assert names(shop, "--until", "1h") == []
    assert names(shop, "--since", fail["created_at"]) == ["fail"]
    assert names(shop, "--until", fail["created_at"]) == ["two"]
    assert names(shop, "--execution", two["id"][-8:]) == ["two"]
    assert names(shop, "lovelace", "harbour") == ["two"]
    assert names(shop, "--text", "lovelace sea") == []
    assert names(shop, two["id"]) == ["two"]


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (("--label", "te am=x"), '--label "te am=x": a label\'s name is 1 to 63 letters, digits and . _ - /'),
        (("--since", "yesterday"), "--since: expected a duration such as"),
        (("--since", "2026-12-01T08:00:00"), '--since: the string "2026-12-01T08:00:00" has no time zone'),
        (("--execution", "zzz"), '--execution "zzz": there is no execution with such an id'),
        (("--status", "complete"), 'did you mean "completed"?'),
    ],
)
def test_filters_that_cannot_be_read(shop: Workshop, filters: tuple[str, ...], said: str) -> None:
    shop.run("run", "two.yaml")
    for command in ("list", "inbox", "history", "stop"):
        assert said in shop.run(command, *filters, code=2).err


def test_labels_have_one_rule(shop: Workshop) -> None:
    said = 'a label\'s name is 1 to 63 letters, digits and . _ - /, not "te am"'
    assert said in shop.run("run", "two.yaml", "--label", "te am=x", code=2).err
    shop.write("odd.yaml", "name: odd\nlabels: {te am: x}\nsteps:\n  - {id: a, tool: work.do}\n")
    assert f"labels: {said}" in shop.run("run", "odd.yaml", code=2).err
    long = shop.run("run", "two.yaml", "--label", f"team={'x' * 257}", code=2)
    assert "the label team has 257 characters, 256 are allowed" in long.err
    assert names(shop) == []


def test_title_and_labels_hold_for_retries_forks_and_children(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", "--title", "Mine", "--label", "team=sea", code=1)
    shop.run("retry", "@last", code=1)
    shop.run("fork", "@last", "--at", "broken", code=1)
    heads = shop.run("list", "--json").json
    assert [(head["title"], head["labels"]) for head in heads] == [("Mine", {"team": "sea"})] * 3
    shop.write("child.yaml", "name: child\nlabels: {team: own}\nsteps:\n  - {id: a, tool: work.do}\n")
    shop.write("family.yaml", "name: family\nsteps:\n  - {id: a, start: child.yaml}\n")
    shop.run("run", "family.yaml", "--label", "team=sea", "--label", "env=prod")
    child = shop.run("list", "--name", "child", "--json").json[0]
    assert child["labels"] == {"team": "own", "env": "prod"}


def test_a_title_that_a_person_gave_outlives_other_inputs(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--title", "Mine")
    shop.run("retry", "@last", "--from", "second", "-i", "who=Bob")
    assert shop.newest()["title"] == "Mine"
    shop.run("run", "two.yaml")
    shop.run("retry", "@last", "--from", "second", "-i", "who=Bob")
    assert shop.newest()["title"] == "Two steps for Bob"


def test_the_inbox_holds_what_is_asked_of_people_and_how_to_answer(shop: Workshop) -> None:
    empty = shop.run("inbox")
    assert (empty.out, empty.err) == ("", "holdfast: nothing is asked of anybody\n")
    shop.run("run", "ask.yaml", "--label", "team=sea", "--owner", "ann", code=3)
    shop.run("run", "asks", code=3)
    shop.run("run", "even.yaml", code=3)
    asked = shop.run("inbox", "--json").json
    assert [one["kind"] for one in asked] == ["correction", "question", "approval"]
    approval: dict[str, Any] = asked[-1]
    assert approval["path"] == "publish"
    assert approval["owner"] == "ann"
    assert approval["opened_at"] < approval["expires_at"]
    assert approval["commands"][0] == f"holdfast approve {approval['execution_id']} publish"
    text = shop.run("inbox", "--label", "team=sea").out
    assert f"ask ({approval['execution_id']}, of ann)," in text
    assert "publish asks for an approval: Publish it?" in text
    assert approval["commands"][0] in text
    shop.run(*approval["commands"][0].split()[1:])
    none = shop.run("inbox", "--label", "team=sea")
    assert none.err == "holdfast: nothing is asked of anybody by what matches --label team=sea\n"
    few = shop.run("inbox", "--limit", "1")
    assert "these are the newest 1; --limit shows more" in few.err


def test_the_inbox_tells_of_what_runs_and_asks_beside(shop: Workshop) -> None:
    shop.write(
        "beside.yaml",
        "name: beside\nsteps:\n  - {id: gate, tool: work.gate, needs: []}\n"
        "  - {id: publish, tool: work.do, approval: Well?, needs: []}\n",
    )
    process = shop.start("run", "beside.yaml")
    shop.wait_for_log("gate begun")
    assert [one["path"] for one in shop.run("inbox", "--json").json] == ["publish"]
    shop.kill(process)


@pytest.mark.parametrize("verb", ["pause", "interrupt"])
def test_what_is_paused_or_interrupted_is_asked_all_the_same(shop: Workshop, verb: str) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run(verb, "@last")
    assert shop.newest()["status"] in {"paused", "interrupted"}
    assert [asked["path"] for asked in shop.run("inbox", "--json").json] == ["publish"]
    assert "1 execution would be approved" in shop.run("approve", "--name", "ask", "--dry-run").err
    assert shop.run("approve", "--name", "ask").out == "1 applied\n"
    assert shop.run("inbox", "--json").json == []


def test_history_tells_who_ran_and_who_commanded_what(shop: Workshop) -> None:
    assert shop.run("history").err == "holdfast: nothing was run yet\n"
    shop.run("run", "ask.yaml", "--owner", "ann", code=3)
    shop.run("deny", "@last", "--why", "not today")
    shop.run("stop", "@last", "--why", "enough")
    shop.run("run", "two.yaml")
    newest, older = shop.run("history", "--json").json
    assert (newest["name"], newest["status"], newest["commands"]) == ("two", "completed", [])
    assert newest["duration_s"] > 0
    assert [(one["type"], one["why"]) for one in older["commands"]] == [
        ("approval:denied", "not today"),
        ("task:stopped", "enough"),
    ]
    text = shop.run("history", "--owner", "ann").out
    me = getpass.getuser()
    assert (older["started_by"], older["owner"]) == (me, "ann")
    assert f"ask ({older['id']}) by {me} for ann: stopped after " in text
    assert f"two ({newest['id']}) by {me}: completed" in shop.run("history").out.replace("Two steps for you", "two")
    assert f", by {me}" in shop.run("show", older["id"]).out
    assert shop.run("show", older["id"], "--json").json["started_by"] == me
    assert ": not today" in text
    assert "no execution matches --owner bob" in shop.run("history", "--owner", "bob").err


def test_diff_shows_the_place_in_which_long_values_differ(shop: Workshop) -> None:
    text = "the same for long " * 30
    for end in ("red", "blue"):
        step = {"id": "say", "tool": "shell.run", "with": {"command": ["echo", text + end]}}
        shop.write("long.json", json.dumps({"name": "long", "steps": [step]}))
        shop.run("run", "long.json")
    newest, older = (head["id"] for head in shop.run("list", "--json").json)
    found = shop.run("diff", older, newest, code=1).out.splitlines()
    place = found.index("document, steps[0].with.command[1]")
    assert found[place + 1].startswith("  a: …")
    assert found[place + 1].endswith("the same for long red")
    assert found[place + 2].endswith("the same for long blue")


def test_diff_compares_by_path_and_its_exit_code_tells(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "-i", "count=1")
    first = shop.newest()["id"]
    shop.run("run", "two.yaml", "-i", "count=1")
    same = shop.newest()["id"]
    shop.run("run", "two.yaml", "-i", "count=2")
    other = shop.newest()["id"]
    assert shop.run("diff", first, same).out.splitlines()[-1] == "the same"
    found = shop.run("diff", first, other, code=1).out
    assert 'inputs\n  a: {"count": 1' in found
    assert 'first: arguments\n  a: {"value": 1}\n  b: {"value": 2}' in found
    assert "first: output\n  a: 1\n  b: 2" in found
    as_json = shop.run("diff", first, other, "--json", code=1).json
    assert as_json["same"] is False
    assert {"path": "first", "what": "output", "a": 1, "b": 2} in as_json["differences"]
    shop.run("run", "fail.yaml", code=1)
    different = shop.run("diff", first, "@last", code=1).out
    assert "program\n  a: plan two\n  b: plan fail" in different
    assert "first: only in a (completed)" in different
    assert "broken: only in b (failed)" in different
    assert shop.run("diff", first, "zzz", code=2).err.startswith('holdfast: there is no execution "zzz"')


def test_diff_shows_large_values(shop: Workshop) -> None:
    for letter in "ab":
        shop.write(
            "large.yaml",
            "name: large\nsteps:\n  - {id: a, tool: shell.run, "
            f'with: {{command: "printf %09000d 0 | tr 0 {letter}"}}}}\n',
        )
        shop.run("run", "large.yaml")
    older = shop.run("list", "--json").json[1]["id"]
    found = shop.run("diff", older, "@last", "--json", code=1).json["differences"]
    output = next(one for one in found if (one["path"], one["what"]) == ("a", "output"))
    assert output["a"]["stdout"] == "a" * 9000
