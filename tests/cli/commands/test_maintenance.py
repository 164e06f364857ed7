"""prune, delete and backup, in real processes."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.workshop import Workshop
from holdfast.journal.sqlite.store import SqliteStore
from journal.older import as_older
from servers.commands import environment


def status_of(shop: Workshop, *where: str) -> dict[str, str]:
    return {head["name"]: head["status"] for head in shop.run(*where, "list", "--json").json}


@pytest.fixture
def used(shop: Workshop) -> Workshop:
    """A completed, a failed and a waiting execution, with a file beside the store for each."""
    for plan, code in (("two.yaml", 0), ("fail.yaml", 1), ("ask.yaml", 3)):
        shop.run("run", plan, "--label", f"plan={plan}", code=code)
    files = shop.store.parent / "executions"
    files.mkdir()
    for head in shop.run("list", "--json").json:
        (files / f"{head['id']}.9.json").write_text("{}")
    return shop


def files_of(shop: Workshop) -> int:
    return len(list((shop.store.parent / "executions").iterdir()))


# ---- prune ---------------------------------------------------------------------------------------------------------


def test_prune_deletes_what_ended_and_says_how_much_that_was(used: Workshop) -> None:
    size = used.store.stat().st_size
    assert used.run("prune", "--older-than", "1h").out == "deleted 0 executions, 0 bytes freed\n"
    pruned = used.run("prune", "--older-than", "0s")
    assert pruned.out.startswith("deleted 2 executions, ")
    assert status_of(used) == {"ask": "waiting"}
    assert files_of(used) == 1
    assert used.store.stat().st_size < size
    assert used.run("doctor", code=None).out.count("problem") == 0


def test_an_empty_duration_or_bulk_is_refused(used: Workshop) -> None:
    empty = used.run("prune", "--older-than", "", "--status", "completed", code=2)
    assert empty.err == "holdfast: --older-than is empty; give it a value, or leave it out\n"
    empty = used.run("delete", "--status", "completed", "--all", "--id", "", code=2)
    assert empty.err == "holdfast: --id is empty; give it a value, or leave it out\n"
    assert status_of(used) == {"two": "completed", "fail": "failed", "ask": "waiting"}


def test_what_is_freed_counts_the_files_too(shop: Workshop) -> None:
    identity = shop.run("run", "two.yaml", "--json").lines[-1]["id"]
    files = shop.store.parent / "executions"
    files.mkdir(exist_ok=True)
    (files / f"{identity}.9.json").write_bytes(bytes(1_000_000))
    assert shop.run("delete", identity, "--json").json["bytes_freed"] >= 1_000_000


def test_prune_takes_only_what_fits(used: Workshop) -> None:
    assert used.run("prune", "--status", "failed", "--name", "two", "--json").json["deleted"] == 0
    assert used.run("prune", "--status", "completed", "--label", "plan=fail.yaml", "--json").json["deleted"] == 0
    told = used.run("prune", "--status", "failed", "--label", "plan", "--json").json
    assert (told["deleted"], told["kept"], told["dry_run"], len(told["ids"])) == (1, 0, False, 1)
    assert status_of(used) == {"two": "completed", "ask": "waiting"}


def delete_half(shop: Workshop, label: str) -> None:
    """What a delete leaves that is killed after its transaction: files and free pages."""
    [execution_id] = [head["id"] for head in shop.run("list", "--label", label, "--json").json]
    store = SqliteStore(shop.store)
    store._transact(lambda: store._deleter.delete([execution_id]))
    asyncio.run(store.close())
    assert free_pages(shop) > 0


def free_pages(shop: Workshop) -> int:
    connection = apsw.Connection(str(shop.store))
    try:
        return int(connection.pragma("freelist_count"))
    finally:
        connection.close()


def test_what_a_killed_delete_left_goes_with_the_next_one_though_nothing_fits(shop: Workshop) -> None:
    for team in ("a", "b"):
        shop.run("run", "double", "-i", "number=1", "-i", f"label={team * 100_000}", "--label", f"team={team}")
        shop.run("checkpoint", "@last")
    delete_half(shop, "team=a")
    refused = shop.run("delete", "--label", "team=a", code=2)
    assert "nothing that could be deleted matches --label team=a" in refused.err
    assert free_pages(shop) == 0
    assert checkpoints(shop) == 1
    delete_half(shop, "team=b")
    assert shop.run("prune", "--older-than", "0s", "--dry-run").out.startswith("0 executions")
    assert checkpoints(shop) == 1
    pruned = shop.run("prune", "--older-than", "0s").out
    assert pruned.startswith("deleted 0 executions, ")
    assert "0 bytes" not in pruned
    assert free_pages(shop) == 0
    assert checkpoints(shop) == 0


def checkpoints(shop: Workshop) -> int:
    return len(list((shop.store.parent / "executions").glob("*.json")))


def test_a_dry_run_changes_nothing(used: Workshop) -> None:
    told = used.run("prune", "--older-than", "0s", "--dry-run")
    assert told.out.endswith("2 executions would be deleted; nothing was changed\n")
    assert used.run("prune", "--status", "failed", "--dry-run", "--json").json["deleted"] == 1
    assert len(status_of(used)) == files_of(used) == 3


SLIPS: dict[tuple[str, ...], str] = {
    (): "say what may go, with --older-than 30d or --status completed; --dry-run shows it first",
    ("--name", "two"): "say what may go",
    ("--older-than", "soon"): '--older-than: expected a duration such as "250ms"',
    ("--older-than", "-1d"): "--older-than: expected a duration",
    ("--status", "waiting"): 'only what has ended is deleted, and "waiting" is no end; there are: completed',
    ("--status", "complete"): 'did you mean "completed"?',
    ("--status", "failed", "--label", "te am"): '--label "te am": a label\'s name is 1 to 63 letters',
}


def test_prune_refuses_what_may_be_a_slip(used: Workshop) -> None:
    for arguments, text in SLIPS.items():
        assert text in used.run("prune", *arguments, code=2).err
    assert len(status_of(used)) == 3


def test_what_belongs_to_others_is_kept_and_counted(shop: Workshop) -> None:
    shop.run("run", "parent", code=3)
    child = shop.newest()["id"]
    shop.run("stop", child)
    for dry in ((), ("--dry-run",)):
        begin, *stays = shop.run("prune", "--status", "stopped", *dry).out.splitlines()
        assert begin.startswith("0 executions would be deleted" if dry else "deleted 0 executions, 0 bytes freed")
        assert stays[0] == "1 execution would fit, too, and stays:"
        assert stays[1].startswith("  kept 1: execution ID is a child and goes with its parent: holdfast delete ")
        assert stays[2] == f"    {child}"


def test_prune_without_a_journal_says_so(shop: Workshop) -> None:
    assert "there is no journal at" in shop.run("prune", "--older-than", "30d", code=2).err


def test_a_store_of_an_earlier_release_shrinks_when_nothing_else_uses_it(shop: Workshop) -> None:
    shop.write("big.yaml", "name: big\nsteps:\n  - {id: say, tool: shell.run, with: {command: seq 30000}}\n")
    shop.run("run", "big.yaml")
    as_older(shop.store, 2)
    large = shop.store.stat().st_size
    running = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    told = shop.run("prune", "--status", "completed")
    assert "deleted 1 execution, 0 bytes freed" in told.out
    assert "will be reused, but the file is from before files could shrink, and another process uses it" in told.out
    shop.open_gate()
    shop.finish(running)
    freed = shop.run("prune", "--status", "completed", "--json").json["bytes_freed"]
    assert freed > large / 2
    assert shop.store.stat().st_size < large / 2


# ---- delete --------------------------------------------------------------------------------------------------------


def test_delete_removes_one_ended_execution(used: Workshop) -> None:
    heads = {head["name"]: head["id"] for head in used.run("list", "--json").json}
    assert used.run("delete", heads["two"]).out.startswith("deleted 1 execution, ")
    assert status_of(used) == {"fail": "failed", "ask": "waiting"}
    assert files_of(used) == 2
    assert used.run("delete", heads["two"], code=2).err == (
        f'holdfast: there is no execution "{heads["two"]}"; `holdfast list` shows them\n'
    )


def test_delete_refuses_what_has_not_ended_and_says_what_to_do(used: Workshop) -> None:
    waiting = used.newest()["id"]
    refused = used.run("delete", "@last", code=2)
    assert refused.err == (
        f"holdfast: execution {waiting} is waiting and has not ended; stop it first: holdfast stop {waiting}; "
        "nothing was deleted\n"
    )
    used.run("stop", waiting)
    assert used.run("delete", "@last", "--json").json["ids"] == [waiting]


def test_a_child_goes_with_its_parent(shop: Workshop) -> None:
    shop.run("run", "parent", code=3)
    child, parent = [head["id"] for head in shop.run("list", "--json").json]
    shop.run("stop", child)
    refused = shop.run("delete", child, code=2)
    assert f"is a child and goes with its parent: holdfast delete {parent}; nothing was deleted" in refused.err
    shop.run("resume", parent, code=None)
    shop.run("stop", parent, code=None)
    assert shop.run("delete", parent).out.startswith("deleted 2 executions, ")
    assert "there is no execution yet" in shop.run("delete", "@last", code=2).err


def test_a_parent_that_completes_stops_its_child_and_both_are_deleted(shop: Workshop) -> None:
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + LEAVES_ITS_CHILD)
    shop.run("run", "leaves")
    child, parent = [head["id"] for head in shop.run("list", "--json").json]
    shop.run("worker", "--until-idle")
    assert shop.run("show", child, "--json").json["status"] == "stopped"
    assert shop.run("delete", parent).out.startswith("deleted 2 executions")


LEAVES_ITS_CHILD = """

@holdfast.function
async def leaves(ctx) -> str:
    child = await ctx.start("event.yaml", name="child")
    return child.id
"""


def test_what_a_fork_may_still_need_stays(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    origin = shop.newest()["id"]
    shop.run("stop", origin)
    shop.run("retry", origin, code=3)
    fork = shop.newest()["id"]
    refused = shop.run("delete", origin, code=2)
    assert f"execution {fork} was made from it, has not ended and may still need it; nothing was deleted" in refused.err
    shop.run("stop", fork)
    shop.run("delete", origin)
    assert shop.run("show", fork, "--json").json["forked_from"]["id"] == origin


# ---- backup --------------------------------------------------------------------------------------------------------


def test_a_backup_holds_all_that_had_not_ended(used: Workshop) -> None:
    told = used.run("backup", "copy.db")
    copy = used.folder / "copy.db"
    assert told.out.startswith(f"{copy} holds 3 executions (")
    held = f"1 execution had not ended and will be held there until `holdfast --store {copy} resume ID`"
    assert held in told.out
    assert [path.name for path in used.folder.glob("copy.db*")] == ["copy.db"]
    listed = {head["name"]: head["held"] for head in used.run("--store", "copy.db", "list", "--json").json}
    assert listed["two"] is listed["fail"] is None
    assert listed["ask"].startswith("restored from a backup made 20")
    shown = used.run("--store", "copy.db", "show", "@last").out
    assert "held         restored from a backup made 20" in shown
    assert f"nobody drives it before `holdfast --store {copy} resume " in shown
    assert " held " in used.run("--store", "copy.db", "list").out
    assert used.run("list", "--json").json[0]["held"] is None


def test_what_is_pruned_in_a_backup_keeps_its_files_in_the_store(shop: Workshop) -> None:
    """Also if both lie in one folder: what is kept beside a store is its own."""
    shop.write("note.yaml", "name: note\nsteps:\n  - {id: write, tool: files.write, with: {path: n, text: new}}\n")
    shop.write("n", "old")
    shop.run("run", "note.yaml")
    shop.run("checkpoint", "@last")
    shop.run("backup", ".holdfast/monday.db")
    assert "deleted 1 execution" in shop.run("--store", ".holdfast/monday.db", "prune", "--status", "completed").out
    assert checkpoints(shop) == 1
    shop.run("rollback", "@last")
    assert (shop.folder / "n").read_text() == "old"


def test_a_store_leaves_nothing_in_the_project_but_itself_and_its_folder(shop: Workshop) -> None:
    before = set(shop.folder.iterdir())
    for name in ("a.db", "b.db"):
        shop.run("--store", name, "run", "two.yaml")
        shop.run("--store", name, "checkpoint", "@last")
    left = {path.name for path in set(shop.folder.iterdir()) - before} - {"log.txt", "__pycache__"}
    assert left == {"a.db", "a.db.d", "b.db", "b.db.d"}
    assert (shop.folder / "a.db.d" / ".gitignore").read_text() == "*\n"


def test_a_backup_never_writes_over_anything_unasked(used: Workshop) -> None:
    letter = used.write("letter.txt", "dear")
    assert (
        f"{letter} exists; name another file, or replace it with --force"
        in used.run("backup", "letter.txt", code=2).err
    )
    assert letter.read_text() == "dear"
    assert "is the store itself; name another file" in used.run("backup", str(used.store), "--force", code=2).err
    (used.folder / "link.db").symlink_to(used.store)
    assert "is the store itself" in used.run("backup", "link.db", "--force", code=2).err
    assert "is a folder; name a file in it" in used.run("backup", ".", code=2).err
    assert "there is no folder" in used.run("backup", "no/where.db", code=2).err
    told = used.run("backup", "letter.txt", "--force", "--json").json
    assert (told["executions"], told["held"], told["file"]) == (3, 1, str(letter))
    assert told["bytes"] == letter.stat().st_size
    assert len(status_of(used, "--store", "letter.txt")) == 3


def test_a_backup_that_fails_leaves_the_old_one(used: Workshop) -> None:
    used.run("backup", "copy.db")
    before = (used.folder / "copy.db").read_bytes()
    (used.folder / "copy.db.part").write_text("what a killed process left")
    _damage(used, "UPDATE events SET body = CAST(replace(body, 'draft', 'craft') AS BLOB)")
    failed = used.run("backup", "copy.db", "--force", code=1)
    assert "is damaged: event" in failed.err
    assert "run `holdfast doctor`, which sets it aside, and make the backup again" in failed.err
    assert (used.folder / "copy.db").read_bytes() == before
    assert not (used.folder / "copy.db.part").exists()
    used.run("doctor", code=1)
    used.run("backup", "copy.db", "--force")


def test_a_changed_blob_is_found(used: Workshop) -> None:
    _damage(used, "INSERT INTO blobs (digest, body) VALUES ('00', x'01')")
    assert "blob 00 was changed after it was written" in used.run("backup", "copy.db", code=1).err


def _damage(shop: Workshop, statement: str) -> None:
    connection = apsw.Connection(str(shop.store))
    connection.execute(statement)
    connection.close()


def test_a_restored_backup_goes_on_only_when_a_person_says_so(shop: Workshop, tmp_path: Path) -> None:
    """Run, back up in the middle, be killed; restore elsewhere; nothing moves by itself, one is let go."""
    for plan in ("once.yaml", "gate.yaml"):
        process = shop.start("run", plan)
        shop.wait_for_log({"once.yaml": "pay begun", "gate.yaml": "gate begun"}[plan])
    heads = {head["name"]: head["id"] for head in shop.run("list", "--json").json}
    shop.run("backup", str(tmp_path / "copy.db"))
    shop.kill(process)
    shop.kill_all()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    new = Workshop(elsewhere)
    new.store.parent.mkdir()
    (tmp_path / "copy.db").rename(new.store)
    new.open_gate()
    _let_an_engine_look(new)
    assert new.log() == []
    assert status_of(new) == {"once": "running", "gate": "running"}

    new.run("resume", heads["gate"], "--force")
    assert new.log() == ["gate begun", "gate ended", "after ran"]
    doubt = new.run("resume", heads["once"], "--force", code=3)
    assert "pay" in doubt.out
    shown: Any = new.run("show", heads["once"], "--json").json
    assert [step["status"] for step in shown["steps"]] == ["in_doubt"]
    assert shown["held"] is None
    assert "pay begun" not in new.log()


def _let_an_engine_look(shop: Workshop) -> None:
    """An engine that takes up all it can: when what it starts itself has ended, it has looked at the rest too."""
    shop.write("worker.py", LOOKS)
    subprocess.run([sys.executable, "worker.py"], cwd=shop.folder, env=environment(), check=True, timeout=60)


LOOKS = """
import asyncio
import holdfast

async def main():
    async with holdfast.Engine() as engine:
        looked = asyncio.Event()
        claimable = engine.services.store.claimable

        async def watched(*arguments):
            found = await claimable(*arguments)
            assert found == [], found
            looked.set()
            return found

        engine.services.store.claimable = watched
        await asyncio.wait_for(looked.wait(), 60)

asyncio.run(main())
"""


def test_watching_what_is_held_says_how_to_go_on(used: Workshop) -> None:
    used.run("backup", "copy.db")
    waiting = used.newest()["id"]
    watched = used.run("--store", "copy.db", "watch", waiting, code=3)
    command = f"holdfast --store {used.folder / 'copy.db'} resume {waiting}"
    assert f"go on with: {command}" in watched.out + watched.err
    answered = used.run("--store", "copy.db", "approve", waiting)
    assert answered.out.startswith("applied as event ")
    assert used.run("--store", "copy.db", "list", "--json").json[0]["held"]
    assert used.run("--store", "copy.db", "show", waiting, "--json").json["status"] == "waiting"


def test_a_backup_never_goes_under_the_log_of_what_was_there_before(used: Workshop) -> None:
    """SQLite would read that log into the new file."""
    used.run("backup", "b.db")
    (used.folder / "b.db-wal").write_bytes(b"what somebody wrote and was killed")
    before = (used.folder / "b.db").read_bytes()
    refused = used.run("backup", "b.db", "--force", code=2)
    assert "b.db is in use, or was when its process was killed" in refused.err
    assert (used.folder / "b.db").read_bytes() == before
    assert not list(used.folder.glob("*.part"))


def test_two_backups_to_one_place_do_not_spoil_each_other(used: Workshop) -> None:
    with (used.folder / "b.db.part").open("w") as somebody:
        fcntl.flock(somebody, fcntl.LOCK_EX)
        assert "another process is making a backup to" in used.run("backup", "b.db", code=2).err
        assert not (used.folder / "b.db").exists()
    used.run("backup", "b.db")
    assert len(status_of(used, "--store", "b.db")) == 3
