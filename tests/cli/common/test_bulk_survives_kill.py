"""A bulk is written down before it begins: whatever the verb, a killed one goes on and does nothing twice."""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.common.test_bulk import bulk_of, events_of, hand_in
from cli.workshop import Workshop
from holdfast.core import events as ev
from holdfast.journal import bulk_log
from holdfast.journal.store import Head, Query

MANY = 130  # more than are held or deleted in one go
PIPE_BYTES = 4096  # so little that a process whose answers nobody reads stands still in the middle


def stop_all(shop: Workshop) -> None:
    assert shop.run("stop", "--all").out == f"{MANY} applied\n"


def heads(shop: Workshop) -> list[Head]:
    async def work() -> list[Head]:
        async with holdfast.Engine(folder=shop.folder, recover="none") as engine:
            return await engine.list(Query(limit=10 * MANY))

    return asyncio.run(work())


def cut_off(shop: Workshop, *arguments: str) -> str:
    """A bulk whose process is killed in the middle: its first answers were read, and then none. The id it told."""
    process = shop.start(*arguments, "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    told = json.loads(process.stderr.readline())["note"]
    assert f"{MANY} executions to be " in told
    for _ in range(3):
        assert shop.told(process)["outcome"] == "applied"
    shop.kill(process)
    return told.split("--id ")[1]


def go_on(shop: Workshop, verb: str, bulk_id: str) -> list[dict[str, Any]]:
    """With nothing but the id: whom it means and what it says is known."""
    again = shop.run(verb, "--id", bulk_id, "--json")
    assert {line["outcome"] for line in again.lines} <= {"applied", "unchanged"}
    assert 0 < len(again.lines) < MANY  # it was cut off in the middle
    over = shop.run(verb, "--id", bulk_id)
    assert over.out == ""
    assert over.err.startswith("holdfast: nothing is left to be ")
    assert over.err.endswith(f" by bulk {bulk_id}\n")
    return again.lines


def test_a_killed_bulk_of_retries_makes_each_once(shop: Workshop) -> None:
    ids = hand_in(shop, MANY)
    stop_all(shop)
    bulk_id = cut_off(shop, "retry", "--all")
    go_on(shop, "retry", bulk_id)
    made = Counter(head.forked_from for head in heads(shop) if head.forked_from)
    assert made == dict.fromkeys(ids, 1)


def test_a_killed_bulk_of_checkpoints_saves_each_once(shop: Workshop) -> None:
    ids = hand_in(shop, MANY)
    bulk_id = cut_off(shop, "checkpoint", "--all")
    [late] = hand_in(shop, 1)
    go_on(shop, "checkpoint", bulk_id)
    for found in events_of(shop, ids).values():
        assert sum(isinstance(event, ev.CheckpointSaved) for event in found) == 1
    files = Counter(path.name.partition(".")[0] for path in (shop.folder / ".holdfast/executions").glob("*.json"))
    assert files == dict.fromkeys(ids, 1)
    assert late not in files


def test_a_killed_bulk_of_exports_goes_on_into_the_same_folder(shop: Workshop, tmp_path: Path) -> None:
    ids = hand_in(shop, MANY)
    bulk_id = cut_off(shop, "export", "--all", "-o", "there")
    hand_in(shop, 1)
    written = {path.name: path.stat().st_mtime_ns for path in (shop.folder / "there").glob("*.json")}
    go_on(shop, "export", bulk_id)
    after = {path.name: path.stat().st_mtime_ns for path in (shop.folder / "there").iterdir()}
    assert sorted(after) == sorted(f"{one}.json" for one in ids)
    assert {name: after[name] for name in written} == written
    elsewhere = shop.run("export", "--id", bulk_id, "-o", str(tmp_path), code=2)
    assert f"bulk {bulk_id} was begun with other values; nothing was changed" in elsewhere.err


def test_a_killed_bulk_of_holds_goes_on_with_its_reason(shop: Workshop) -> None:
    ids = hand_in(shop, MANY)
    bulk_id = cut_off(shop, "hold", "--all", "--why", "storm")
    [late] = hand_in(shop, 1)
    go_on(shop, "hold", bulk_id)
    held = {head.id: head.held for head in heads(shop)}
    assert held == {**dict.fromkeys(ids, "storm"), late: ""}


def test_a_killed_bulk_of_deletions_goes_on_with_what_was_meant(shop: Workshop) -> None:
    hand_in(shop, MANY)
    stop_all(shop)
    bulk_id = cut_off(shop, "delete", "--all")
    shop.run("run", "two.yaml")
    told = go_on(shop, "delete", bulk_id)
    assert {"it is gone already", "deleted"} >= {line["text"] for line in told}
    assert [head.name for head in heads(shop)] == ["two"]


def test_a_killed_bulk_of_resumes_lets_go_of_what_was_held(shop: Workshop) -> None:
    ids = hand_in(shop, MANY)
    shop.run("hold", "--all")
    bulk_id = cut_off(shop, "resume", "--held", "--all")
    go_on(shop, "resume", bulk_id)
    assert {head.held for head in heads(shop)} == {""}
    for found in events_of(shop, ids).values():
        assert sum(isinstance(event, ev.TaskResumed) for event in found) == 1


# ---- the file of a bulk --------------------------------------------------------------------------------------------


def test_what_was_refused_is_asked_again_and_what_was_done_is_not(shop: Workshop) -> None:
    ids = hand_in(shop, 2)
    (shop.folder / "there").mkdir()
    (shop.folder / "there" / f"{ids[0]}.json").write_text("somebody else's")
    first = shop.run("export", "--all", "-o", "there", code=1)
    assert first.out.startswith("1 applied, 1 refused")
    (shop.folder / "there" / f"{ids[0]}.json").unlink()
    again = shop.run("export", "--id", bulk_of(first), "--json").lines
    assert [(line["id"], line["outcome"]) for line in again] == [(ids[0], "applied")]


def test_other_filters_than_the_first_time_are_refused(shop: Workshop) -> None:
    hand_in(shop, 1, labels={"team": "a"})
    hand_in(shop, 1, labels={"team": "b"})
    began = bulk_of(shop.run("pause", "--label", "team=a"))
    other = shop.run("pause", "--label", "team=b", "--id", began, code=2)
    assert f"bulk {began} was begun with --label team=a; nothing was changed; leave the filters out" in other.err
    both = shop.run("pause", "@last", "--id", began, code=2)
    assert "--id goes on with a bulk, which knows whom it means" in both.err


def test_a_dry_run_of_a_bulk_lists_what_is_left(shop: Workshop) -> None:
    ids = hand_in(shop, 2)
    (shop.folder / f"{ids[0]}.json").write_text("in the way")
    began = bulk_of(shop.run("export", "--all", code=1))
    dry = shop.run("export", "--id", began, "--dry-run")
    assert [line.split()[0] for line in dry.out.splitlines()] == [ids[0]]


MEANT = bulk_log.Meant(verb="stop", said={"why": "storm"}, filters="", executions=("a", "b"))
ID = "01a1e4b3-0000-7000-8000-000000000000"


def test_only_one_process_goes_on_with_a_bulk(tmp_path: Path) -> None:
    bulk = bulk_log.begin(tmp_path, ID, MEANT)
    with pytest.raises(holdfast.Refused, match="another process goes on with bulk"):
        bulk_log.go_on(tmp_path, ID, "stop")
    bulk.close()
    bulk_log.go_on(tmp_path, ID, "stop").close()


def test_a_line_that_was_cut_short_counts_as_not_written(tmp_path: Path) -> None:
    bulk = bulk_log.begin(tmp_path, ID, MEANT)
    bulk.note("a", "applied")
    bulk.close()
    file = tmp_path / "bulks" / f"{ID}.jsonl"
    file.write_bytes(file.read_bytes()[:-3])
    for left, done in ((["a", "b"], "a"), (["b"], "b"), ([], "b")):
        with closing(bulk_log.go_on(tmp_path, ID, "stop")) as bulk:
            assert bulk.left() == left
            bulk.note(done, "unchanged")


def test_a_damaged_bulk_does_nothing(shop: Workshop) -> None:
    hand_in(shop, 1)
    began = bulk_of(shop.run("pause", "--all"))
    (shop.folder / ".holdfast" / "bulks" / f"{began}.jsonl").write_text("{")
    refused = shop.run("pause", "--id", began, code=1)
    assert "is damaged" in refused.err
    assert "nothing was changed; begin a new bulk" in refused.err


def test_old_bulks_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_log, "BULKS_MAX", 3)
    for number in range(5):
        bulk_log.begin(tmp_path, f"{number:08x}{ID[8:]}", MEANT).close()
    assert len(list((tmp_path / "bulks").iterdir())) == 3
