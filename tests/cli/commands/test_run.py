"""`run` and what it is given: outcomes, exit codes, and every mistake a person can make."""

from __future__ import annotations

import os
import threading

import pytest

from cli.workshop import PLANS, Workshop


def test_a_plan_runs_to_its_end_in_plain_lines(shop: Workshop) -> None:
    result = shop.run("run", "two.yaml", "-i", "count=7")
    assert "first: started (work.do)" in result.out
    assert "completed in" in result.out
    assert "2 of 2 steps: Two steps for you" in result.out
    assert "output: 7" in result.out
    assert shop.log() == ["first ran", "second ran"]


def test_json_prints_every_event_and_the_outcome_last(shop: Workshop) -> None:
    *events, last = shop.run("run", "two.yaml", "--json", "-i", "who=me").lines
    durable = [event["seq"] for event in events if event["seq"] is not None]
    assert durable == list(range(1, len(durable) + 1))
    assert {"task:created", "step:completed", "task:completed"} <= {event["type"] for event in events}
    assert (last["status"], last["output"], last["title"]) == ("completed", 1, "Two steps for me")
    assert {event["task_id"] for event in events} == {last["id"]}


def test_a_failure_says_what_happened_what_it_affects_and_what_can_be_done(shop: Workshop) -> None:
    result = shop.run("run", "fail.yaml", code=1)
    identity = shop.newest()["id"]
    assert "what happened: it broke at step broken (tool)" in result.out
    assert "what it affects: never did not run" in result.out
    assert f"what can be done now: holdfast retry {identity}" in result.out
    page = shop.run("show", identity).out
    assert "what happened: it broke at step broken (tool)" in page
    assert "✘ broken" in page


def test_what_repeating_cannot_mend_may_need_another_plan(shop: Workshop) -> None:
    shop.write("odd.yaml", "name: odd\nsteps:\n  - {id: count, tool: work.even, with: {number: 3}, on_error: fail}\n")
    for page in (shop.run("run", "odd.yaml", code=1).out, shop.run("show", "@last").out):
        assert f"or: holdfast retry {shop.newest()['id']} --plan FILE" in page
    shop.run("run", "fail.yaml", code=1)
    assert "--plan" not in shop.run("show", "@last").out


def test_a_function_runs_with_typed_inputs(shop: Workshop) -> None:
    *_, last = shop.run("run", "double", "--json", "-i", "number=21", "-i", "label=7").lines
    assert last["output"] == "742"
    refused = shop.run("run", "double", "-i", "number=many", code=2)
    assert "number" in refused.err
    assert refused.out == ""


def test_who_needs_a_person_exits_3_and_says_what_to_type(shop: Workshop) -> None:
    result = shop.run("run", "ask.yaml", code=3)
    identity = shop.newest()["id"]
    assert "publish asks for an approval: Publish it?" in result.out
    assert 'would run: work.do {"value": 5}' in result.out
    assert f"holdfast approve {identity} publish" in result.out
    assert f"holdfast deny {identity} publish" in result.out
    assert f"then go on with: holdfast resume {identity}" in result.out


def test_a_parent_whose_child_needs_a_person_exits_3_and_names_the_child(shop: Workshop) -> None:
    *_, last = shop.run("run", "parent", "--json", code=3).lines
    (request,) = last["requests"]
    assert (request["path"], request["execution_id"] != last["id"]) == ("publish", True)
    shop.run("approve", request["execution_id"])
    *_, last = shop.run("resume", last["id"], "--json").lines
    assert (last["status"], last["output"]) == ("completed", 5)


def test_hold_hands_in_without_starting(shop: Workshop) -> None:
    held = shop.run("run", "two.yaml", "--hold")
    identity = shop.newest()["id"]
    assert held.out == f"handed in and held as {identity}\nstart it with: holdfast resume {identity}\n"
    assert shop.log() == []
    *_, last = shop.run("resume", identity, "--json").lines
    assert last["status"] == "completed"


def test_run_with_the_key_of_a_held_execution_says_so_and_exits_3(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--hold", "--key", "k1")
    identity = shop.newest()["id"]
    again = shop.run("run", "two.yaml", "--key", "k1", code=3)
    assert "it is held: handed in without starting it" in again.out
    assert again.out.count(f"holdfast resume {identity}") == 1
    *_, last = shop.run("run", "two.yaml", "--key", "k1", "--json", code=3).lines
    assert (last["id"], last["status"]) == (identity, "queued")
    assert shop.log() == []
    assert "is held" in shop.run("run", "two.yaml", "--key", "k1", "--detach", code=3).err


def test_the_same_key_means_the_same_execution(shop: Workshop) -> None:
    *_, first = shop.run("run", "two.yaml", "--json", "--key", "k1").lines
    *_, second = shop.run("run", "two.yaml", "--json", "--key", "k1").lines
    assert first["id"] == second["id"]
    assert shop.log() == ["first ran", "second ran"]
    refused = shop.run("run", "gate.yaml", "--key", "k1", code=2)
    assert 'the key "k1" belongs to execution' in refused.err


def test_a_key_that_was_used_before_is_said_to_run_nothing_again(shop: Workshop) -> None:
    first = shop.run("run", "two.yaml", "--key", "k1").out
    assert "key k1" not in first
    said = f"key k1 is execution {shop.newest()['id']}, which has completed; nothing was run again"
    assert shop.run("run", "two.yaml", "--key", "k1").out.splitlines()[0] == said


def test_a_mistyped_value_hides_no_other_mistake_in_the_inputs(shop: Workshop) -> None:
    plan = "name: tides\ninputs: {port: string, naps: integer}\nsteps:\n  - {id: a, tool: work.do}\n"
    shop.write("tides.yaml", plan)
    refused = shop.run("run", "tides.yaml", "-i", "prt=x", "-i", "naps=two", code=2).err
    assert 'inputs.naps: expected a whole number, got the string "two"' in refused
    assert 'inputs.prt: no such input; did you mean "port"?' in refused
    assert "inputs.port: missing; expected a string" in refused


def test_labels_title_and_owner_are_kept(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--label", "team=a", "--title", "Mine", "--owner", "ada")
    head = shop.newest()
    assert (head["labels"], head["title"], head["owner"]) == ({"team": "a"}, "Mine", "ada")


def test_check_starts_nothing(shop: Workshop) -> None:
    assert shop.run("run", "two.yaml", "--check").out == "two.yaml is in order; nothing was started\n"
    shop.write("needy.yaml", "name: needy\nsteps:\n  - {id: a, tool: work.needy}\n")
    lacking = shop.run("run", "needy.yaml", "--check", code=1)
    assert 'work.needy needs the program "no-such-program-anywhere", which is not on PATH' in lacking.out
    assert shop.run("run", "needy.yaml", "--check", "--json", code=1).json["ok"] is False
    refused = shop.run("run", "needy.yaml", code=2)
    assert "holdfast: nothing was started, because something is missing:" in refused.err
    assert shop.run("list", "--json").json == []


@pytest.mark.parametrize("more", [(), ("--check",), ("--dry-run",)])
def test_plan_from_a_pipe_is_read_once(shop: Workshop, more: tuple[str, ...]) -> None:
    pipe = shop.folder / "piped.yaml"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=(PLANS["two.yaml"],), daemon=True).start()
    shop.run("run", "piped.yaml", "-i", "count=7", *more)
    if not more:
        pipe.unlink()
        shown = shop.run("show", "@last", "--json").json
        assert (shown["status"], shown["output"]) == ("completed", 7)


def test_a_plan_is_found_from_where_one_stands(shop: Workshop) -> None:
    (shop.folder / "inner").mkdir()
    *_, last = shop.run("-C", "inner", "run", "../two.yaml", "--json").lines
    assert last["status"] == "completed"
    assert shop.store.exists()


def test_a_store_in_memory_runs_and_leaves_nothing(shop: Workshop) -> None:
    *_, last = shop.run("--store", "memory:", "run", "two.yaml", "--json").lines
    assert last["status"] == "completed"
    assert not shop.store.exists()


def test_inputs_from_a_file_are_overridden_by_flags(shop: Workshop) -> None:
    shop.write("in.json", '{"count": 3, "who": "file"}')
    *_, last = shop.run("run", "two.yaml", "--json", "--inputs", "in.json", "-i", "who=flag").lines
    assert (last["output"], last["title"]) == (3, "Two steps for flag")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two.yaml", "-i", "count=many"], 'inputs.count: expected a whole number, got the string "many"'),
        (["two.yaml", "-i", "cuont=1"], 'inputs.cuont: no such input; did you mean "count"?'),
        (["two.yaml", "-i", "count"], "-i count: expected NAME=VALUE, such as -i topic=tides"),
        (["two.yaml", "--label", "x"], "--label x: expected NAME=VALUE"),
        (["two.yaml", "--inputs", "none.json"], "--inputs none.json cannot be read: No such file or directory"),
        (["two.yaml", "--inputs", "two.yaml"], "--inputs two.yaml is not JSON: "),
        (["two.yaml", "--inputs", "list.json"], "--inputs list.json: expected a JSON object of names and values"),
        (["none.yaml"], "there is no plan file "),
        (["nobody"], 'there is no program "nobody": give a plan file (.yaml, .yml, .json) or the name of a function'),
        (["broken.yaml"], "broken.yaml has 1 mistake; nothing was started\n  is not YAML: "),
        (["wrong.yaml"], 'steps[0].tool: no tool called "work.dou"; did you mean "work.do"?'),
        (["wrong.yaml"], 'steps[1].needs[0]: no step called "frist"'),
        (["two.yaml", "--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_mistake_is_one_clear_sentence_and_exit_2(shop: Workshop, arguments: list[str], message: str) -> None:
    shop.write("list.json", "[1]")
    shop.write("broken.yaml", "name: [")
    shop.write(
        "wrong.yaml",
        "name: wrong\nsteps:\n  - {id: first, tool: work.dou}\n  - {id: b, tool: work.do, needs: [frist]}\n",
    )
    result = shop.run("run", *arguments, code=2)
    assert result.err.startswith("holdfast: ")
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    assert shop.run("list", "--json").json == []


def test_settings_and_modules_that_are_wrong_are_named(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'stoer = "x"\n')
    assert 'stoer: no such setting; did you mean "store"?' in shop.run("run", "two.yaml", code=2).err
    shop.write("holdfast.toml", 'modules = ["absent.py"]\n')
    assert 'no file called "absent.py"' in shop.run("run", "two.yaml", code=2).err
    assert shop.run("list").err == "holdfast: no executions; start one with `holdfast run PLAN`\n"


def test_a_store_that_cannot_be_used_is_explained(shop: Workshop) -> None:
    shop.write("file", "")
    inside_a_file = shop.run("--store", "file/x.db", "run", "two.yaml", code=1)
    assert (
        "cannot be created or written (Not a directory); make it writable, or name another store" in inside_a_file.err
    )
    folder = shop.run("run", "two.yaml", "--store", ".", code=2)
    assert f"store: {shop.folder} is a folder; name a file, such as {shop.folder}/journal.db" in folder.err
    nobody = shop.run("run", "two.yaml", HOLDFAST_STORE="postgresql://me:secret@127.0.0.1:1/y", code=1)
    assert "cannot be reached" in nobody.err
    assert "check that the server runs and that the address is right" in nobody.err
    assert "secret" not in nobody.err
    nowhere = shop.run("-C", "nowhere", "list", code=2)
    assert "--folder nowhere: No such file or directory; name a folder that exists" in nowhere.err


def test_what_is_waited_for_is_told_once(shop: Workshop) -> None:
    shop.write(
        "slow.py",
        "import holdfast\n\n@holdfast.tool(effect='read', rate='20/s')\nasync def slow(n: int) -> int:\n    return n\n",
    )
    shop.write("holdfast.toml", 'modules = ["slow.py"]\n')
    shop.write(
        "slow.yaml",
        "name: slow\nsteps:\n  - {id: all, for_each: [0, 1, 2, 3, 4, 5, 6, 7], tool: slow, with: {n: '${{ item }}'}}\n",
    )
    lines = shop.run("run", "slow.yaml").out.splitlines()
    waits = [line for line in lines if line.startswith("waiting for")]
    assert len(waits) == 1
    assert waits[0].startswith("waiting for its turn with a tool (slow, for all[")
    assert waits[0].endswith("more")
    assert lines.count("woken") == 1
