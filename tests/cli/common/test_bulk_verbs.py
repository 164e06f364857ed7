"""Every command that makes sense for many takes the same filters: answers, events, money, files, deletions, holding."""

from __future__ import annotations

import json

import msgspec

from cli.common.test_bulk import bulk_of, events_of, hand_in
from cli.workshop import Workshop
from holdfast.core import events as ev


def test_the_same_question_of_many_is_answered_at_once(shop: Workshop) -> None:
    for _ in range(2):
        shop.run("run", "asks", code=3)
    shop.run("run", "ask.yaml", code=3)
    silent = shop.run("answer", "--name", "asks", "--step", "colour", code=2)
    assert "say what the answer is: holdfast answer ID STEP ANSWER, or with filters --answer ANSWER" in silent.err
    elsewhere = shop.run("answer", "--name", "asks", "--step", "shape", "--answer", "round", code=2)
    assert "nothing that could be answered at shape matches --name asks; nothing was changed" in elsewhere.err
    dry = shop.run("answer", "--since", "1h", "--step", "colour", "--answer", "blue", "--dry-run")
    assert "2 executions would be answered at colour; nothing was changed" in dry.err
    assert shop.run("answer", "--since", "1h", "--answer", "blue").out == "2 applied\n"
    ids = [head["id"] for head in shop.run("list", "--name", "asks", "--json").json]
    for events in events_of(shop, ids).values():
        assert [msgspec.json.encode(event.data) for event in events if isinstance(event, ev.RequestAnswered)] == [
            b'"blue"'
        ]


def test_many_corrections_are_settled_at_once(shop: Workshop) -> None:
    for _ in range(2):
        shop.run("run", "even.yaml", code=3)
    changed = shop.run("resolve", "--name", "even", "--again", "--with", "number=2", code=2)
    assert "--with goes with the ID of one execution: it is checked against the tool that asks" in changed.err
    done = shop.run("resolve", "--name", "even", "--all", "--step", "count", "--done", code=1)
    assert "refused 2: the output does not fit what work.even returns: expected a whole number, got null" in done.out
    assert shop.run("resolve", "--name", "even", "--all", "--step", "count", "--fail").out == "2 applied\n"


def test_an_event_and_a_budget_go_to_many(shop: Workshop) -> None:
    ids = hand_in(shop, 2, "event.yaml", budget=1.0, labels={"team": "a"})
    hand_in(shop, 1, "event.yaml", budget=1.0)
    assert "name the event: holdfast send ID NAME [DATA]" in shop.run("send", "--label", "team=a", code=2).err
    data = json.dumps({"amount": 12})
    assert shop.run("send", "--label", "team=a", "--event", "start", "--data", data).out == "2 applied\n"
    nothing = shop.run("budget", "--label", "team=a", code=2)
    assert "with filters say --add or --limit; what one has spent is shown by its ID" in nothing.err
    more = shop.run("budget", "--label", "team=a", "--add", "0.50", "--json")
    assert [line["text"] for line in more.lines] == ["the limit is $1.50 now"] * 2
    assert sorted(line["id"] for line in more.lines) == sorted(ids)
    assert shop.run("budget", "--label", "team=a", "--add", "0.50", "--json", "--id", bulk_of(more)).out == ""
    for events in events_of(shop, ids).values():
        assert [bytes(event.data) for event in events if isinstance(event, ev.EventReceived)] == [b'{"amount":12}']
        assert [event.limit_micros for event in events if isinstance(event, ev.BudgetRaised)] == [1_500_000]


def test_many_are_exported_into_a_folder_and_saved(shop: Workshop) -> None:
    ids = sorted(hand_in(shop, 2, labels={"team": "a"}))
    hand_in(shop, 1)
    wrong = shop.run("export", "--label", "team=a", "-o", "two.yaml", code=2)
    assert "two.yaml is a file; with filters -o names a folder" in wrong.err
    assert "do not fit into standard output" in shop.run("export", "--all", "-o", "-", code=2).err
    assert shop.run("export", "--label", "team=a", "-o", "there").out == "2 applied\n"
    assert sorted(path.name for path in (shop.folder / "there").iterdir()) == [f"{one}.json" for one in ids]
    (shop.folder / "there" / f"{ids[0]}.json").unlink()  # as if the bulk had been cut off before it
    again = shop.run("export", "--label", "team=a", "-o", "there")
    assert again.out == "1 applied, 1 unchanged\n"
    shop.run("pause", "--label", "team=a")
    twice = shop.run("export", "--label", "team=a", "-o", "there", code=1)
    assert "2 refused" in twice.out
    assert "there/ID.json exists; name another file, or replace it with --force" in twice.out
    assert shop.run("export", "--label", "team=a", "-o", "there", "--force").out == "2 applied\n"
    assert shop.run("checkpoint", "--label", "team=a").out == "2 applied\n"
    saved = sorted(path.name.partition(".")[0] for path in (shop.folder / ".holdfast" / "executions").glob("*.json"))
    assert saved == ids


def test_many_are_deleted_and_what_stays_says_why(shop: Workshop) -> None:
    for _ in range(2):
        shop.run("run", "two.yaml", "--label", "team=a")
    [waiting] = hand_in(shop, 1)
    assert "2 executions would be deleted" in shop.run("delete", "--label", "team=a", "--dry-run").err
    assert shop.run("delete", "--label", "team=a", "--all").out == "2 applied\n"
    kept = shop.run("delete", "--status", "queued", "--all", code=1)
    assert "refused 1: execution ID is queued and has not ended; stop it first: holdfast stop ID" in kept.out
    assert [head["id"] for head in shop.run("list", "--json").json] == [waiting]


def test_what_a_person_holds_is_left_alone_and_found(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("run", "two.yaml")
    held = shop.run("hold", "--all", "--why", "restored from a dump")
    assert held.out == "1 applied\n"
    shop.run("approve", "@last", code=2)  # the newest is another one
    [listed] = shop.run("list", "--held", "--json").json
    assert (listed["name"], listed["held"]) == ("ask", "restored from a dump")
    assert shop.run("list", "--status", "held", "--json").json == [listed]
    shop.run("approve", listed["id"])
    assert "execution is completed; nobody will drive it" in shop.run("hold", "@last", code=2).err
    assert "no execution matches --held --name two" in shop.run("list", "--held", "--name", "two").err
    shop.run("worker", "--once")
    assert shop.run("list", "--held", "--json").json[0]["status"] == "waiting"
    assert shop.run("resume", "--held", "--all").out == "1 applied\n"
    shop.run("worker", "--until-idle")
    assert shop.log() == ["draft ran", "first ran", "second ran", "publish ran"]


def test_one_that_is_held_by_its_id_is_told_of_as_one(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    identity = shop.newest()["id"]
    held = shop.run("hold", "@last", "--why", "look first")
    assert (held.out, held.err) == (f"held; it goes on with: holdfast resume {identity}\n", "")
    assert shop.run("list", "--held", "--json").json[0]["held"] == "look first"
    told = shop.run("hold", "@last", "--json").json
    assert (told["id"], told["outcome"], told["text"]) == (identity, "applied", "held")


def test_what_runs_is_not_held(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    identity = shop.newest()["id"]
    refused = shop.run("hold", "@last", code=2)
    assert f"a process drives it now; interrupt it: holdfast interrupt {identity}; nothing was changed" in refused.err
    assert "refused 1: a process drives it now" in shop.run("hold", "--all", code=1).out
    shop.open_gate()
    shop.finish(process)


def test_what_was_retried_is_not_retried_again_by_a_slip(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", code=1)
    shop.run("run", "fail.yaml", "--label", "team=a", code=1)
    assert shop.run("retry", "--label", "team=a").out == "1 applied\n"
    second = shop.run("retry", "--label", "team=a")
    assert "1 was retried or forked before (" in second.err
    assert "and left out; --again takes them, too" in second.err
    assert "nothing is left to be retried; nothing was changed" in second.err
    assert len(shop.run("list", "--json").json) == 3
    assert shop.run("retry", "--label", "team=a", "--again").out == "1 applied\n"
    assert shop.run("retry", "--status", "failed").out == "1 applied\n"  # the one that never was


def test_one_that_was_retried_is_not_retried_again_by_a_slip_either(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", code=1)
    failed = shop.newest()["id"]
    assert "retried as" not in shop.run("show", failed).out
    shop.run("retry", failed, code=1)
    made = shop.newest()["id"]
    second = shop.run("retry", failed, code=2)
    assert f"was retried or forked before, as {made}, which is failed; nothing was started" in second.err
    assert f"all the same: holdfast retry {failed} --again" in second.err
    assert f"retried as   {made}, failed" in shop.run("show", failed).out
    assert shop.run("show", failed, "--json").json["retried_as"] == {"id": made, "status": "failed"}
    assert shop.run("show", made, "--json").json["retried_as"] is None
    shop.run("retry", failed, "--again", code=1)
    assert len(shop.run("list", "--json").json) == 3


def test_what_has_not_ended_is_not_retried_one_or_many(shop: Workshop) -> None:
    [held] = hand_in(shop, 1, labels={"team": "a"})
    one = shop.run("retry", held, code=2)
    assert "the execution is queued and has not ended" in one.err
    assert f"To go on with it: holdfast resume {held}. To begin anew: holdfast stop {held} first" in one.err
    dry = shop.run("retry", "--label", "team=a", "--status", "queued", "--dry-run")
    assert "would refuse 1: the execution is queued and has not ended" in dry.err
    many = shop.run("retry", "--label", "team=a", "--status", "queued", "--all", code=1)
    assert "refused 1: the execution is queued and has not ended" in many.out
    assert len(shop.run("list", "--json").json) == 1


def test_a_bulk_of_checkpoints_tells_what_each_answered(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--label", "team=a")
    hand_in(shop, 1, labels={"team": "a"})
    hand_in(shop, 1)
    told = {line["outcome"]: line["text"] for line in shop.run("checkpoint", "--label", "team=a", "--json").lines}
    assert told.keys() == {"applied", "unchanged"}  # the journal of what has ended says no more
    assert told["unchanged"].startswith(
        "saved; the execution is completed, and its journal ends with that; it is saved"
    )
