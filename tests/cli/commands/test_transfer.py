"""Carrying executions with the real command, between folders that stand for machines, and from SQLite to PostgreSQL."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop
from servers.commands import environment, start_command
from servers.postgres import PostgresServer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Workshop]:
    """Another machine: another folder, another store."""
    folder = tmp_path / "there"
    folder.mkdir()
    shop = Workshop(folder)
    yield shop
    shop.kill_all()


def content(file: Path) -> tuple[Any, Any]:
    """What must be the same wherever it is: events and large values."""
    told = json.loads(file.read_text())
    return [(one["id"], one["events"]) for one in told["executions"]], told["blobs"]


def export(shop: Workshop, name: str = "carried.json") -> Path:
    shop.run("export", "@last", "-o", name)
    return shop.folder / name


def test_an_execution_ends_elsewhere_as_it_would_have_ended_here(shop: Workshop, there: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    file = export(shop)
    for where, accept in ((shop, ()), (there, ("--other-folder",))):
        if where is there:
            imported = where.run("import", str(file), "--other-folder")
            identity = shop.newest()["id"]
            assert imported.out.splitlines() == [
                f"imported {identity}: waiting",
                f"nobody drives it until you say so; go on with: holdfast resume {identity} --other-folder",
            ]
            assert content(export(there)) == content(file)
        where.run("approve", "@last")
        where.run("resume", "@last", *accept)
    here, carried = (where.run("show", "@last", "--json").json for where in (shop, there))
    assert (here["status"], here["output"]) == (carried["status"], carried["output"]) == ("completed", 5)
    assert here["id"] == carried["id"]
    assert shop.log() == ["draft ran", "publish ran"]
    assert there.log() == ["publish ran"]


def test_resume_from_a_file_imports_it_and_goes_on(shop: Workshop, there: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    file = export(shop)  # while it runs
    shop.kill(process)
    there.open_gate()
    refused = there.run("resume", "--from", str(file), code=2)
    assert f"it was started in {shop.folder}, this is {there.folder}" in refused.err
    assert "nothing was changed; put them right, or import it with --other-folder" in refused.err
    assert there.run("list").err.startswith("holdfast: no executions")
    done = there.run("resume", "--from", str(file), "--force")
    assert "going on with gate" in done.out
    assert there.log() == ["gate begun", "gate ended", "after ran"]
    again = there.run("resume", "--from", str(file), "--force", code=2)
    assert "is here, and further" in again.err


def test_what_was_exported_to_go_on_elsewhere_stays_put_and_comes_home(shop: Workshop, there: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("export", "@last", "--hold", "-o", "carried.json")
    identity, held = shop.newest()["id"], "it was exported, and goes on elsewhere"
    assert shop.newest()["held"] == held
    there.run("import", "../carried.json", "--other-folder")
    there.run("approve", "@last")
    there.run("resume", "@last", "--other-folder")
    there.run("export", "@last", "-o", "../done.json")
    home = shop.run("import", "done.json").out
    assert re.fullmatch(rf"{identity} was here and has gone on elsewhere, \d+ events added: completed\n", home)
    shown = shop.run("show", "@last", "--json").json
    assert (shown["status"], shown["output"], shown["held"]) == ("completed", 5, None)
    assert "unchanged: publish was already granted" in shop.run("approve", "@last").out
    assert (shop.log(), there.log()) == (["draft ran"], ["publish ran"])


def test_what_is_driven_is_not_held_and_so_not_exported_to_go_on_elsewhere(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    refused = shop.run("export", "@last", "--hold", "-o", "carried.json", code=2).err
    assert "was not exported, because it cannot be held: a process drives it now; interrupt it" in refused
    assert not (shop.folder / "carried.json").exists()
    shop.open_gate()
    shop.finish(process)


def test_an_export_that_fails_holds_nothing(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("export", "@last", "--hold", "-o", "gone/carried.json", code=None)
    assert shop.newest()["held"] is None


def test_resume_from_a_file_that_is_here_already_just_goes_on(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    file = export(shop)
    again = shop.run("resume", "--from", str(file), code=3)
    assert "going on with ask" in again.out
    assert shop.log() == ["draft ran"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say which: the ID of an execution, filters such as --status waiting, or --all"),
        (("@last", "--from", "x.json"), "say what to resume: the id of an execution, or --from FILE, and not both"),
    ],
)
def test_resume_wants_an_id_or_a_file(shop: Workshop, arguments: tuple[str, ...], said: str) -> None:
    assert shop.run("resume", *arguments, code=2).err == f"holdfast: {said}\n"


def test_a_once_step_that_ran_when_it_was_exported_is_in_doubt_elsewhere(shop: Workshop, there: Workshop) -> None:
    process = shop.start("run", "once.yaml")
    shop.wait_for_log("pay begun")
    file = export(shop)
    shop.open_gate()
    shop.finish(process)  # the original goes on
    there.open_gate()
    doubt = there.run("resume", "--from", str(file), "--force", code=3)
    assert "pay: in doubt: its process ended, or lost its journal, while it ran" in doubt.out
    assert there.log() == []
    there.run("resolve", "@last", "pay", "--done", "--output", '"done"')
    assert there.run("resume", "@last", "--json").lines[-1]["output"] == "done"
    assert there.log() == []


def test_checkpoint_saves_what_runs_without_stopping_it(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    path = Path(shop.run("checkpoint", "@last").out.strip())
    identity = shop.newest()["id"]
    assert path.parent == shop.folder / ".holdfast" / "executions"
    assert re.fullmatch(rf"{identity}\.\d+\.json", path.name)
    for _ in range(2):
        shop.run("checkpoint", "@last")
    saved = shop.run("checkpoint", "@last", "--json").json
    assert (saved["id"], saved["outcome"]) == (identity, "applied")
    assert saved["seq"] == saved["through"] + 1
    assert saved["bytes"] == Path(saved["file"]).stat().st_size
    assert len(list(path.parent.glob("*.json"))) == 3
    assert not path.exists()  # the oldest of four
    shop.open_gate()
    result = shop.finish(process)
    assert f"saved up to event {saved['through']} in {saved['file']}" in result.out
    assert shop.log() == ["before ran", "gate begun", "gate ended", "after ran"]
    assert content(Path(saved["file"]))[0][0][1] == shop_events(shop)[: saved["through"]]


def shop_events(shop: Workshop) -> Any:
    return content(export(shop))[0][0][1]


def test_policies_work_in_plans_written_in_yaml_and_in_settings(shop: Workshop) -> None:
    steps = "steps:\n  - {id: a, tool: work.do}\n  - {id: b, tool: work.do}\n"
    plan = f"name: p\ncheckpoint: {{every_steps: 2, on: [end]}}\n{steps}"
    shop.write("policy.yaml", plan)
    shop.run("run", "policy.yaml")
    files = shop.folder / ".holdfast" / "executions"
    assert len(list(files.glob("*.json"))) == 2
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[checkpoint]\non = ["end"]\n')
    shop.run("run", "two.yaml")
    assert len(list(files.glob(f"{shop.newest()['id']}.*.json"))) == 1
    shop.write("policy.yaml", plan.replace("end", "ending"))
    error = shop.run("run", "policy.yaml", code=2).err
    assert (
        'checkpoint.on: expected a list of "pause", "interrupt", "end", got the string "ending"; did you mean' in error
    )


def test_a_disk_without_rights_is_noted_and_the_run_completes(shop: Workshop) -> None:
    shop.write("policy.yaml", "name: p\ncheckpoint: {on: [end]}\nsteps:\n  - {id: a, tool: work.do}\n")
    shop.run("run", "two.yaml")
    (shop.folder / ".holdfast" / "executions").write_text("a file in its place")
    result = shop.run("run", "policy.yaml")
    assert "no checkpoint was saved: " in result.err
    assert "what is in the journal is safe" in result.err
    failed = shop.run("checkpoint", "@last", code=1)
    assert "cannot be written" in failed.err


def test_export_writes_where_it_is_told(shop: Workshop, there: Workshop) -> None:
    shop.run("run", "two.yaml")
    identity = shop.newest()["id"]
    before = shop.run("events", "@last", "--json").out
    assert shop.run("export", "@last").out == f"{identity}.json\n"
    told = shop.run("export", "@last", "-o", "other.json", "--json").json
    file = shop.folder / "other.json"
    assert told == {"id": identity, "file": "other.json", "bytes": file.stat().st_size}
    piped = shop.run("export", "@last", "-o", "-").out
    assert piped == file.read_text() == (shop.folder / f"{identity}.json").read_text()
    assert shop.run("events", "@last", "--json").out == before  # a pure read
    assert not list(shop.folder.glob(".*.tmp"))
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    importing = start_command(["import", "-", "--json"], cwd=there.folder, env=environment(), **pipes)
    assert json.loads(importing.communicate(piped)[0]) == {
        "id": identity, "outcome": "imported", "status": "completed", "executions": 1, "differences": [], "added": 0,
        "lost": 0, "held": False,
    }  # fmt: skip
    again = there.run("import", str(file))
    assert again.out == f"execution {identity} is here already, as it is in the file; nothing was changed\n"
    assert "cannot be written: No such file" in shop.run("export", "@last", "-o", "gone/x.json", code=1).err


def test_import_as_new_makes_a_copy_that_waits(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    file = export(shop)
    told = shop.run("import", str(file), "--as-new", "--json").json
    assert (told["outcome"], told["status"], told["held"]) == ("imported", "queued", True)
    assert told["id"] != shop.run("list", "--json").json[1]["id"]
    shop.run("resume", told["id"], code=3)
    shop.run("approve", told["id"])
    shop.run("resume", told["id"])
    assert shop.log() == ["draft ran", "publish ran"]


def test_files_that_are_none_change_nothing(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    file = export(shop)
    whole = file.read_bytes()
    for name, data, said in (
        ("plan.yaml", b"name: x", "is not JSON"),
        ("cut.json", whole[:-40], "is cut short, or was edited: it does not end with its digest; copy it once more"),
        ("edited.json", whole.replace(b"Two steps", b"Two stops"), "was edited: its digest does not match"),
        ("future.json", whole.replace(b'"format":1', b'"format":7'), "has format 7, this Holdfast knows 1: upgrade"),
    ):
        (shop.folder / name).write_bytes(data)
        refused = shop.run("import", name, "--force", code=2)
        assert refused.err.startswith(f"holdfast: {name} {said}")
        assert refused.err.endswith("nothing was changed\n")
    told = json.loads(shop.run("import", "gone.json", "--json", code=2).err)
    assert told == {"error": "gone.json cannot be read: No such file or directory", "type": "BundleInvalid"}
    assert len(shop.run("list", "--json").json) == 1


def test_to_postgres_and_back(shop: Workshop, there: Workshop, postgres_server: PostgresServer) -> None:
    shop.write("large.yaml", LARGE)
    shop.run("run", "large.yaml", code=3)
    file = export(shop)
    url = postgres_server.schema_url(lease_s=1)
    there.run("import", str(file), "--force", HOLDFAST_STORE=url)
    there.run("export", "@last", "-o", "from_postgres.json", HOLDFAST_STORE=url)
    assert content(there.folder / "from_postgres.json") == content(file)
    assert content(file)[1]  # with a large value
    there.run("approve", "@last", HOLDFAST_STORE=url)
    there.run("resume", "@last", "--force", HOLDFAST_STORE=url)
    there.run("export", "@last", "-o", "done.json", HOLDFAST_STORE=url)
    back = shop.run("import", str(there.folder / "done.json"), "--store", "other.db")
    assert back.out.startswith("imported ")
    assert shop.run("show", "@last", "--json", "--store", "other.db").json["output"] == 5
    shop.run("export", "@last", "-o", "home.json", "--store", "other.db")
    assert content(shop.folder / "home.json") == content(there.folder / "done.json")


LARGE = """
name: large
steps:
  - {id: speak, tool: shell.run, with: {command: "yes tide | head -c 20000"}}
  - {id: publish, tool: work.do, with: {value: 5}, approval: Publish it?}
output: ${{ steps.publish.output }}
"""
