"""Commands for many executions: which are meant, what becomes of each, and that a death leaves nothing half done."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

import holdfast
from cli.workshop import Result, Workshop
from holdfast.core import events as ev
from holdfast.journal.log import read_events
from holdfast.journal.store import Hold

MANY = 300


def hand_in(shop: Workshop, number: int, plan: str = "two.yaml", **options: Any) -> list[str]:
    """Executions that nobody drives, made in one process."""

    async def work() -> list[str]:
        async with holdfast.Engine(folder=shop.folder) as engine:
            runs = await asyncio.gather(*(engine.start(plan, hold=True, **options) for _ in range(number)))
            return [run.id for run in runs]

    return asyncio.run(work())


def events_of(shop: Workshop, ids: list[str]) -> dict[str, list[Any]]:
    async def work() -> dict[str, list[Any]]:
        async with holdfast.Engine(folder=shop.folder, recover="none") as engine:
            return {one: [event for _, event in await read_events(engine.services.store, one, 0)] for one in ids}

    return asyncio.run(work())


def bulk_of(result: Result) -> str:
    """The id that a bulk told on stderr, with or without `--json`."""
    return re.findall("--id ([-0-9a-f]+)", result.err)[0]


def assert_stopped_once(shop: Workshop, ids: list[str], why: str) -> None:
    for found in events_of(shop, ids).values():
        assert [event.why for event in found if isinstance(event, ev.TaskStopped)] == [why]


def test_filters_take_the_place_of_an_id(shop: Workshop) -> None:
    mine = hand_in(shop, 2, labels={"team": "a"})
    others = hand_in(shop, 2, labels={"team": "b"})
    dry = shop.run("stop", "--label", "team=a", "--dry-run")
    assert sorted(line.split()[0] for line in dry.out.splitlines()) == sorted(mine)
    assert "2 executions would be stopped; nothing was changed" in dry.err
    assert {head["status"] for head in shop.run("list", "--json").json} == {"queued"}
    done = shop.run("stop", "--label", "team=a", "--why", "enough")
    assert done.out == "2 applied\n"
    assert "2 executions to be stopped; if this is cut off, add --id " in done.err
    assert_stopped_once(shop, mine, "enough")
    left = shop.run("list", "--status", "queued", "--json").json
    assert sorted(head["id"] for head in left) == sorted(others)


def test_a_filter_that_matches_nothing_says_so_and_changes_nothing(shop: Workshop) -> None:
    hand_in(shop, 1)
    nothing = shop.run("stop", "--name", "nobody", code=2)
    assert nothing.err == "holdfast: nothing that could be stopped matches --name nobody; nothing was changed\n"
    listed = shop.run("list", "--label", "team", "--error", "disk full")
    assert (listed.out, listed.err) == ("", 'holdfast: no execution matches --label team --error "disk full"\n')
    assert shop.run("list", "--name", "nobody", "--json").json == []


@pytest.mark.parametrize(
    ("typed", "empty"),
    [
        (("stop", "--status", "queued", "--owner", ""), "--owner"),
        (("stop", "--status", "queued", "--name", " "), "--name"),
        (("stop", "--status", "queued", "--failed-step", ""), "--failed-step"),
        (("stop", "--status", "queued", "--error", ""), "--error"),
        (("stop", "--status", "queued", "--since", ""), "--since"),
        (("stop", "--status", "queued", "--until", ""), "--until"),
        (("stop", "--status", "queued", "--text", ""), "--text"),
        (("stop", "", "--status", "queued"), "ID"),
        (("pause", "", "--all"), "ID"),
        (("approve", "@last", ""), "STEP"),
        (("deny", "--status", "queued", "--step", ""), "--step"),
        (("retry", "@last", "--from", ""), "--from"),
        (("prune", "--status", "completed", "--name", ""), "--name"),
        (("show", ""), "ID"),
    ],
)
def test_what_is_given_and_empty_is_refused_and_never_means_everybody(
    shop: Workshop, typed: tuple[str, ...], empty: str
) -> None:
    hand_in(shop, 2)
    refused = shop.run(*typed, code=2)
    assert refused.err.startswith(f"holdfast: {empty} is empty; give it a value, or leave it out")
    assert {head["status"] for head in shop.run("list", "--json").json} == {"queued"}


def test_a_label_with_nothing_behind_its_sign_means_the_empty_value(shop: Workshop) -> None:
    hand_in(shop, 2, labels={"team": "a"})
    (empty,) = hand_in(shop, 1, labels={"team": ""})
    assert shop.run("stop", "--label", "team=", "--dry-run").out.split()[0] == empty
    assert len(shop.run("list", "--label", "team", "--json").json) == 3
    shop.run("delete", empty, code=None)
    shop.run("stop", "--label", "team=")
    nobody = shop.run("stop", "--label", "team=", code=2)
    assert "matches --label team=; nothing was changed" in nobody.err


def test_a_pause_of_what_nobody_drives_speaks_of_no_running_steps(shop: Workshop) -> None:
    (held,) = hand_in(shop, 1)
    paused = shop.run("pause", held)
    assert re.fullmatch(r"applied as event \d+: paused\n", paused.out)


def test_held_is_asked_for_as_lists_print_it(shop: Workshop) -> None:
    hand_in(shop, 1)
    shop.run("run", "two.yaml")
    (held,) = shop.run("list", "--status", "held", "--json").json
    assert held["held"]
    assert shop.run("list", "--held", "--json").json == [held]
    mixed = shop.run("list", "--status", "held", "--status", "completed", code=2)
    assert "--status held stands alone" in mixed.err


def test_everything_must_be_said(shop: Workshop) -> None:
    ids = hand_in(shop, 3)
    bare = shop.run("pause", code=2)
    assert "say which: the ID of an execution, filters such as --status waiting, or --all" in bare.err
    both = shop.run("pause", ids[0], "--name", "two", code=2)
    assert "give the ID of one execution, or filters for many, not both" in both.err
    all_of_them = shop.run("pause", "--since", "1d", code=2)
    which = "all 3 executions that are queued or running or waiting"
    assert f"the filters leave nothing out: they match {which}; add --all" in all_of_them.err
    assert {head["status"] for head in shop.run("list", "--json").json} == {"queued"}
    assert shop.run("pause", "--all").out == "3 applied\n"
    assert shop.run("pause", "--all", "--status", "paused").out == "3 unchanged\n"


def test_what_has_ended_makes_no_choice_out_of_a_filter(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    hand_in(shop, 3)
    all_of_them = shop.run("pause", "--since", "1d", code=2)
    assert (
        "they match all 3 executions that are queued or running or waiting; add --all if that is meant"
        in all_of_them.err
    )
    hand_in(shop, 1, labels={"team": "b"}, title="another")
    assert shop.run("stop", "--label", "team=b").out == "1 applied\n"


def test_labels_that_are_asked_for_together_must_all_be_so(shop: Workshop) -> None:
    hand_in(shop, 2, labels={"team": "a", "sea": "north"})
    hand_in(shop, 1, labels={"team": "b"})
    nothing = shop.run("stop", "--label", "team=a", "--label", "team=b", code=2)
    assert "nothing that could be stopped matches --label team=a --label team=b; nothing was changed" in nothing.err
    assert shop.run("list", "--label", "team=b", "--label", "team=a", "--json").json == []
    for same in (["team=a", "team=a"], ["team=a", "team"], ["team", "team=a"], ["sea", "team=a"]):
        typed = [word for label in same for word in ("--label", label)]
        assert len(shop.run("list", *typed, "--json").json) == 2


def test_one_object_for_each_and_refusals_with_their_reasons(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("run", "ask.yaml", "--label", "team=a", code=3)
    shop.run("run", "two.yaml", "--label", "team=a")
    lines = shop.run("approve", "--name", "ask", "--step", "publish", "--all", "--json").lines
    assert [(line["outcome"], line["text"]) for line in lines] == [("applied", "approved publish")] * 2
    refused = shop.run("stop", "--label", "team=a", "--status", "completed", "--status", "waiting", code=1)
    assert "1 applied, 1 refused" in refused.out
    assert "refused 1: the execution is already completed; there is nothing to stop" in refused.out
    wrong = shop.run("approve", "--name", "ask", "--with", "value=1", code=2)
    assert "--with goes with the ID of one execution" in wrong.err


def test_only_what_asks_is_answered(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    hand_in(shop, 1, "event.yaml")
    denied = shop.run("deny", "--since", "1h", "--why", "no")
    assert denied.out == "1 applied\n"


def test_what_asks_is_answered_whatever_its_status(shop: Workshop) -> None:
    for _ in range(2):
        shop.run("run", "ask.yaml", code=3)
    shop.run("pause", "--all")
    shop.run("resume", "--all")
    assert {head["status"] for head in shop.run("list", "--json").json} == {"running"}  # and nobody drives them
    assert shop.run("approve", "--name", "ask", "--all", "--step", "publish").out == "2 applied\n"
    nothing = shop.run("approve", "--name", "ask", "--all", code=2)
    assert "nothing that could be approved matches --name ask" in nothing.err


def test_the_same_answer_again_is_a_no_op_that_says_so(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("approve", "@last")
    again = shop.run("approve", "@last").out
    assert again.startswith("unchanged: publish was already granted by ")
    other = shop.run("deny", "@last", code=2)
    assert "publish was already granted by " in other.err
    shop.run("resume", "@last")
    assert shop.run("approve", "@last").out.startswith("unchanged: publish was already granted by ")
    assert "the execution is completed" in shop.run("deny", "@last", code=2).err


def test_a_doubt_that_is_settled_again_in_the_same_way_is_left_alone(shop: Workshop) -> None:
    process = shop.start("run", "once.yaml")
    shop.wait_for_log("pay begun")
    shop.kill(process)
    shop.run("resume", "@last", "--no-ask", code=3)
    paid = ("resolve", "@last", "pay", "--done", "--output", '"paid"')
    shop.run(*paid)
    assert shop.run(*paid).out.startswith('unchanged: pay was already settled with "done"')
    late = shop.run("resolve", "@last", "pay", "--done", "--output", '"twice"', code=2)
    assert "its arguments cannot be changed any more" in late.err


def test_resuming_many_leaves_the_driving_to_engines(shop: Workshop) -> None:
    ids = hand_in(shop, 3)
    resumed = shop.run("resume", "--all", "--why", "go")
    assert resumed.out == "3 applied\n"
    assert "they are driven by the engines that run; one without an engine: holdfast resume ID" in resumed.err
    assert shop.log() == []
    assert "--force goes with the ID of one execution" in shop.run("resume", "--all", "--force", code=2).err

    async def drive() -> list[Any]:
        async with holdfast.Engine(folder=shop.folder) as engine:
            return [await asyncio.wait_for(engine.get(one).result(), 60) for one in ids]

    assert asyncio.run(drive()) == [1, 1, 1]


def test_what_a_restored_store_holds_is_let_go(shop: Workshop) -> None:
    ids = hand_in(shop, 2)

    async def hold() -> None:
        async with holdfast.Engine(folder=shop.folder, recover="none") as engine:
            await engine.services.store.commit([Hold(execution_ids=tuple(ids), why="restored")])

    asyncio.run(hold())
    assert shop.run("resume", "--all").out == "2 applied\n"

    async def held() -> list[str]:
        async with holdfast.Engine(folder=shop.folder, recover="none") as engine:
            return [head.held for head in await engine.list()]

    assert asyncio.run(held()) == ["", ""]


def test_retrying_many_twice_makes_each_once(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", "--label", "team=a", code=1)
    shop.run("run", "fail.yaml", "--label", "team=a", code=1)
    shop.run("run", "two.yaml")
    first = shop.run("retry", "--failed-step", "broken", "--all", "--json")
    assert [line["outcome"] for line in first.lines] == ["applied", "applied"]
    second = shop.run("retry", "--failed-step", "broken", "--id", bulk_of(first))
    assert second.err == f"holdfast: nothing is left to be retried by bulk {bulk_of(first)}\n"
    made = shop.run("list", "--status", "queued", "--label", "team=a", "--json").json
    assert len(made) == 2
    wrong = shop.run("retry", "--status", "failed", "--from", "broken", code=2)
    assert "--from, --plan, -i and --resource go with the ID of one execution" in wrong.err


def cut_off(shop: Workshop, answers: int) -> str:
    """A bulk whose process is killed when so many have been answered; the id it told."""
    process = shop.start("stop", "--name", "two", "--all", "--why", "storm", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    bulk_id = json.loads(process.stderr.readline())["note"].split("--id ")[1]
    for _ in range(answers):
        assert json.loads(process.stdout.readline())["outcome"] == "applied"
    shop.kill(process)
    return bulk_id


def test_a_bulk_that_was_killed_half_way_is_finished_by_the_same_again(shop: Workshop) -> None:
    ids = hand_in(shop, MANY)
    bulk_id = cut_off(shop, MANY // 10)
    late = hand_in(shop, 1)
    again = shop.run("stop", "--id", bulk_id, "--json")
    assert {line["outcome"] for line in again.lines} == {"applied"}
    assert_stopped_once(shop, ids, "storm")
    assert shop.run("show", late[0], "--json").json["status"] == "queued"
    nothing = shop.run("stop", "--id", bulk_id)
    assert (nothing.out, nothing.err) == ("", f"holdfast: nothing is left to be stopped by bulk {bulk_id}\n")


def test_a_bulk_that_was_killed_half_way_is_finished_by_an_engine_that_has_none_of_the_tools(
    shop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ids = hand_in(shop, MANY)
    cut_off(shop, 5)
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    async def finish() -> None:
        async with holdfast.Engine(str(shop.store), folder=elsewhere) as engine:
            assert "work.do" not in engine.services.registry.names()
            while await engine.services.store.pending():  # noqa: ASYNC110 -- nothing tells of it but the inbox itself
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(finish(), 60))
    assert_stopped_once(shop, ids, "storm")


def test_a_bulk_reaches_what_another_process_drives(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    hand_in(shop, 1)
    assert shop.run("interrupt", "--all", "--why", "storm").out == "2 applied\n"
    assert shop.finish(process, 130).code == 130


def test_a_bulk_id_made_here_means_what_was_there_then(shop: Workshop) -> None:
    hand_in(shop, 1)
    began = bulk_of(shop.run("pause", "--all"))
    hand_in(shop, 1)
    again = shop.run("pause", "--all", "--id", began)
    assert again.err == f"holdfast: nothing is left to be paused by bulk {began}\n"
    for nonsense in ("x" * 300, "../../x", f"../bulks/{began}"):
        assert "no such bulk" in shop.run("pause", "--all", "--id", nonsense, code=2).err


def test_a_mistyped_bulk_id_does_nothing_and_the_right_one_nothing_twice(shop: Workshop) -> None:
    ids = hand_in(shop, 2, "event.yaml")
    sending = ("send", "--name", "event", "--all", "--event", "start", "--data", "1")
    began = bulk_of(shop.run(*sending))
    mistyped = began[:-1] + ("0" if began[-1] != "0" else "1")
    wrong = shop.run(*sending, "--id", mistyped, code=2)
    assert f'no such bulk: none of the last 30 days with the id "{mistyped}"' in wrong.err
    assert "Give the id that was printed, or leave --id out to begin anew" in wrong.err
    again = shop.run(*sending, "--id", began)
    assert (again.out, again.err) == ("", f"holdfast: nothing is left to be sent the event by bulk {began}\n")
    for found in events_of(shop, ids).values():
        assert sum(isinstance(event, ev.EventReceived) for event in found) == 1
    for nonsense in ("nonsense", began):  # the latter is the id of a bulk, but not of one that stops
        refused = shop.run("stop", "--name", "event", "--all", "--id", nonsense, code=2)
        assert "no such bulk" in refused.err
        assert "was begun here with `holdfast stop`; nothing was changed" in refused.err
    assert {head["status"] for head in shop.run("list", "--json").json} == {"queued"}


def test_a_dry_run_of_one(shop: Workshop) -> None:
    (one,) = hand_in(shop, 1)
    assert shop.run("stop", one, "--dry-run", "--json").json["id"] == one
    assert shop.run("show", one, "--json").json["status"] == "queued"
