"""`holdfast rollback` in real processes: what a task changed is undone, also after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.workshop import Workshop, wait_until

PLAN = """
name: change
steps:
  - {id: make, tool: files.write, with: {path: out/new.txt, text: new}}
  - {id: edit, tool: files.edit, with: {path: notes.txt, old: one, new: one and one}}
  - {id: both, steps: [{id: clean, tool: files.delete, with: {path: old.txt}}]}
  - {id: work, tool: work.do}
"""

# Stops inside a change, on either side of the point of no return, until it is killed.
STOPPING = """
import os, time
import holdfast
from holdfast.tools.files import atomic_ops as disk

def _stop(*arguments):
    open("reached", "w").close()
    time.sleep(600)

if os.environ.get("STOP_AT"):
    setattr(disk, os.environ["STOP_AT"], _stop)


@holdfast.tool(name="pay.out", effect="once")
def pay(amount: int) -> str:
    return f"paid {amount}"


@pay.undo
def pay_back(call, arguments, output):
    with open("ledger.txt", "a") as ledger:
        ledger.write(f"{call.path} {arguments['amount']} {output}\\n")
"""


@pytest.fixture
def changed(shop: Workshop) -> Workshop:
    shop.write("change.yaml", PLAN)
    shop.write("notes.txt", "one\n")
    shop.write("old.txt", "old\n")
    shop.run("run", "change.yaml")
    assert (shop.folder / "notes.txt").read_text() == "one and one\n"
    return shop


def test_a_whole_execution_is_undone_and_the_journal_stays(changed: Workshop) -> None:
    folder = changed.folder
    looked = changed.run("rollback", "@last", "--dry-run").out.splitlines()
    assert looked == [
        "work: left as it is; work.do cannot be undone",
        f"both/clean: would restore {folder}/old.txt",
        f"edit: would restore {folder}/notes.txt",
        f"make: would remove {folder}/out/new.txt",
    ]
    assert not (folder / "old.txt").exists()
    done = changed.run("rollback", "@last").out.splitlines()
    assert done[1:] == [
        f"both/clean: restored {folder}/old.txt",
        f"edit: restored {folder}/notes.txt",
        f"make: removed {folder}/out/new.txt",
    ]
    assert (folder / "notes.txt").read_text() == "one\n"
    assert (folder / "old.txt").read_text() == "old\n"
    assert not (folder / "out").exists()
    assert changed.newest()["status"] == "completed"
    again = changed.run("rollback", "@last").out
    assert again == "work: left as it is; work.do cannot be undone\nalready undone: every file is as it was before\n"


def test_one_step_or_what_is_inside_it_is_undone(changed: Workshop) -> None:
    (undone,) = changed.run("rollback", "@last", "both", "--json").json
    assert undone == {
        "step": "both/clean",
        "tool": "files.delete",
        "path": str(changed.folder / "old.txt"),
        "from": None,
        "action": "restore",
        "problem": "",
    }
    assert (changed.folder / "notes.txt").read_text() == "one and one\n"
    assert changed.run("rollback", "@last", "both").out == "already undone: every file is as it was before\n"
    refused = changed.run("rollback", "@last", "mke", code=2).err
    assert 'has no step "mke"; did you mean "make"?' in refused


def test_what_somebody_changed_since_is_named_and_kept_unless_forced(changed: Workshop) -> None:
    changed.write("notes.txt", "theirs")
    refused = changed.run("rollback", "@last", code=2).err
    assert f"nothing was undone:\n  {changed.folder}/notes.txt was changed since edit by somebody else" in refused
    assert not (changed.folder / "old.txt").exists()
    looked = changed.run("rollback", "@last", "--dry-run").out
    assert f"edit: {changed.folder}/notes.txt was changed since edit by somebody else" in looked
    changed.run("rollback", "@last", "--force")
    assert (changed.folder / "notes.txt").read_text() == "one\n"


def test_what_is_no_longer_kept_is_said_and_the_rest_can_be_forced(changed: Workshop) -> None:
    (index,) = (changed.folder / ".holdfast" / "before").glob("*/index.jsonl")
    for image in index.parent.iterdir():
        if image != index:
            image.unlink()
    refused = changed.run("rollback", "@last", code=2).err
    assert "old.txt: what it was before both/clean was pruned to make room; --force undoes the rest" in refused
    forced = changed.run("rollback", "@last", "--force", code=1).out
    assert "was pruned to make room" in forced
    assert not (changed.folder / "out").exists()
    assert (changed.folder / "notes.txt").read_text() == "one and one\n"


def test_what_came_from_a_file_says_why_nothing_can_be_undone(changed: Workshop, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "holdfast.toml").touch()  # a project of its own
    changed.run("export", "@last", "-o", "there/it.json")
    changed.run("-C", "there", "import", "it.json")
    told = changed.run("-C", "there", "rollback", "@last").out
    assert "nothing to undo: make has changed files, but what they were before is not kept here" in told


def test_a_step_that_failed_before_it_changed_anything_leaves_nothing_to_undo(shop: Workshop) -> None:
    name = "n" * 300
    shop.write("long.yaml", "name: long\nsteps:\n"
               f"  - {{id: w, tool: files.write, with: {{path: new/folder/{name}, text: x}}}}\n")  # fmt: skip
    told = shop.run("run", "long.yaml", code=None)
    assert "File name too long" in told.out + told.err
    assert not (shop.folder / "new").exists()
    assert shop.run("rollback", "@last").out == "nothing to undo\n"


def test_an_execution_that_is_driven_is_not_rolled_back(shop: Workshop) -> None:
    shop.write("held.yaml", "name: held\nsteps:\n  - {id: w, tool: files.write, with: {path: f, text: x}}\n"
               "  - {id: g, tool: work.gate}\n")  # fmt: skip
    process = shop.start("run", "held.yaml")
    shop.wait_for_log("g begun")
    refused = shop.run("rollback", "@last", code=2).err
    assert "is being driven and may change files at any moment; nothing was undone. Hold it first, with: " in refused
    shop.kill(process)
    shop.run("rollback", "@last")
    assert not (shop.folder / "f").exists()


def test_other_tools_undo_what_they_know_how_to(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'modules = ["tools.py", "pay.py"]\n')
    shop.write("pay.py", STOPPING)
    shop.write("pay.yaml", "name: pay\nsteps:\n  - {id: first, tool: files.write, with: {path: f, text: x}}\n"
               "  - {id: pay, tool: pay.out, with: {amount: 7}}\n"
               "  - {id: last, tool: files.write, with: {path: g, text: x}}\n")  # fmt: skip
    shop.run("run", "pay.yaml")
    assert "pay: would be undone by pay.out" in shop.run("rollback", "@last", "--dry-run").out
    assert not (shop.folder / "ledger.txt").exists()
    done = shop.run("rollback", "@last").out.splitlines()
    assert [line.partition(":")[0] for line in done] == ["last", "pay", "first"]
    assert "pay: undone by pay.out" in done
    assert (shop.folder / "ledger.txt").read_text() == "pay 7 paid 7\n"


@pytest.mark.parametrize("stop_at", ["_check_unchanged", "sync"])
def test_an_edit_that_was_killed_happens_exactly_once(shop: Workshop, stop_at: str) -> None:
    """Killed just before and just after the point of no return; the tool tells which, and nobody is asked."""
    shop.write("holdfast.toml", 'modules = ["tools.py", "stopping.py"]\n')
    shop.write("stopping.py", STOPPING)
    shop.write("edit.yaml", "name: edit\nsteps:\n  - {id: e, tool: files.edit, with: {path: f, old: x, new: xx}}\n"
               "output: ${{ steps.e.output.replaced }}\n")  # fmt: skip
    shop.write("f", "x")
    process = shop.start("run", "edit.yaml", STOP_AT=stop_at)
    wait_until(Path(shop.folder / "reached").exists, "the middle of the change")
    shop.kill(process)
    shop.run("resume", "@last")
    assert (shop.folder / "f").read_text() == "xx"
    assert shop.run("show", "@last", "--json").json["output"] == 1
    shop.run("rollback", "@last")
    assert (shop.folder / "f").read_text() == "x"


def test_a_rollback_that_was_killed_is_repeated(changed: Workshop) -> None:
    """Killed when a file is back and that is not yet noted."""
    stopping = Path(changed.folder / "sitecustomize.py")
    stopping.write_text(
        "import sys, time\n"
        "def stop(*_):\n    open('reached', 'w').close()\n    time.sleep(600)\n"
        "from holdfast.tools.files.undo_store import UndoStore\nUndoStore.settle = stop\n"
    )
    process = changed.start("rollback", "@last", PYTHONPATH=_path_with(changed.folder))
    wait_until(Path(changed.folder / "reached").exists, "the middle of the rollback")
    changed.kill(process)
    stopping.unlink()
    changed.run("rollback", "@last")
    assert (changed.folder / "notes.txt").read_text() == "one\n"
    assert (changed.folder / "old.txt").read_text() == "old\n"
    assert not (changed.folder / "out").exists()


def _path_with(folder: Path) -> str:
    import os

    import holdfast

    return os.pathsep.join([str(folder), str(Path(holdfast.__file__).parents[1])])


def test_nothing_can_be_undone_if_nothing_is_kept(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[tools.files]\nbefore_bytes_max = 0\n')
    shop.write("w.yaml", "name: w\nsteps:\n  - {id: w, tool: files.write, with: {path: f, text: x}}\n")
    shop.run("run", "w.yaml")
    assert (
        "nothing is kept to undo changes: tools.files.before_bytes_max is 0"
        in shop.run("rollback", "@last", code=2).err
    )


def test_a_retry_runs_again_what_a_rollback_took_back(changed: Workshop) -> None:
    changed.run("rollback", "@last")
    assert not (changed.folder / "out/new.txt").exists()
    retried = changed.run("retry", "@last")
    assert retried.code == 0, retried.err
    assert (changed.folder / "out/new.txt").read_text() == "new"
    assert (changed.folder / "notes.txt").read_text() == "one and one\n"
    assert not (changed.folder / "old.txt").exists()
    assert "kept from" in retried.out
    assert "work: completed" not in retried.out  # which nothing took back


def test_a_retry_runs_again_the_step_that_a_rollback_took_back_and_keeps_the_others(changed: Workshop) -> None:
    changed.run("rollback", "@last", "edit")
    events = changed.run("events", "@last").out
    assert "edit: undone" in events
    retried = changed.run("retry", "@last").out
    assert "edit: completed" in retried
    assert "make: completed" not in retried
