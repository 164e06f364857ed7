"""A damaged execution is repaired by importing a checkpoint of it, which `doctor` names."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from cli.workshop import Workshop
from holdfast.journal.store import NewExecution
from holdfast.journal.writer import Writer

TWICE = """
name: twice
steps:
  - {id: draft, tool: work.do}
  - {id: first, tool: work.do, approval: required}
  - {id: second, tool: work.do, approval: required}
output: done
"""


@pytest.fixture
def well(shop: Workshop) -> Workshop:
    tools = (shop.folder / "tools.py").read_text()
    shop.write("tools.py", tools.replace('requires=["no-such-program-anywhere"]', "requires=[]"))
    shop.write("twice.yaml", TWICE)
    return shop


def damage(shop: Workshop, execution_id: str, event: str) -> None:
    """Change one byte of an event: `event` picks it in SQL."""
    connection = apsw.Connection(str(shop.store))
    one = "(SELECT num FROM executions WHERE id = ?)"
    change = "UPDATE events SET body = CAST(replace(body, 'at', 'ta') AS BLOB) WHERE execution = "
    connection.execute(
        f"{change}{one} AND seq = (SELECT {event} FROM events WHERE execution = {one})", [execution_id] * 2
    )
    connection.close()


def todo(shop: Workshop) -> list[str]:
    """What doctor says is to be done about the damaged execution, as words of a command."""
    found = [one for one in shop.run("doctor", "--json", code=1).json["findings"] if one["name"] == "damaged execution"]
    (said,) = {one["todo"] for one in found}
    assert said.startswith("Repair it from its checkpoint: holdfast import "), said
    return shlex.split(said.partition(": holdfast ")[2].partition(";")[0])


def test_doctor_names_the_checkpoint_and_its_import_repairs_the_execution(well: Workshop) -> None:
    well.run("run", "twice.yaml", code=3)
    identity = well.newest()["id"]
    well.run("checkpoint", identity)
    well.run("approve", identity)
    well.run("resume", identity, code=3)  # two more steps behind the checkpoint, which are kept
    before = well.run("events", identity, "--json").out
    damage(well, identity, "2")
    repaired = well.run(*todo(well))
    assert f"repaired {identity}: waiting" in repaired.out
    assert "lost" not in repaired.out
    assert f"holdfast resume {identity}" in repaired.out
    assert well.run("events", identity, "--json").out == before
    assert well.run("doctor").out.splitlines()[-1] == "all is well"
    well.run("approve", identity)
    *_, last = well.run("resume", identity, "--json").lines
    assert (last["status"], well.log()) == ("completed", ["draft ran", "first ran", "second ran"])
    assert not list((well.folder / ".holdfast" / "repair").iterdir())


def test_what_is_whole_nowhere_is_said_to_be_lost(well: Workshop) -> None:
    well.run("run", "twice.yaml", code=3)
    identity = well.newest()["id"]
    well.run("checkpoint", identity)
    well.run("approve", identity)
    whole = len(well.run("events", identity, "--json").lines)
    well.run("resume", identity, code=3)
    every = len(well.run("events", identity, "--json").lines)
    damage(well, identity, f"{whole + 1}")
    repaired = well.run(*todo(well))
    assert f"lost: {every - whole} events at the end; steps that ran then may run again" in repaired.out
    assert len(well.run("events", identity, "--json").lines) == whole
    *_, last = well.run("resume", identity, "--json", code=3).lines
    assert [request["path"] for request in last["requests"]] == ["second"]


def test_a_file_of_another_history_repairs_nothing(well: Workshop, tmp_path: Path) -> None:
    well.run("run", "twice.yaml", code=3)
    identity = well.newest()["id"]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(well.folder, elsewhere)
    for folder, verb, code in (("elsewhere", "deny", 1), (".", "approve", 3)):
        well.run("-C", str(elsewhere if folder == "elsewhere" else well.folder), verb, identity)
        well.run(
            "-C", str(elsewhere if folder == "elsewhere" else well.folder), "resume", identity, "--force", code=code
        )
    well.run("-C", str(elsewhere), "export", identity, "-o", str(tmp_path / "other.json"))
    damage(well, identity, "max(seq)")
    refused = well.run("import", str(tmp_path / "other.json"), code=2)
    assert "is another history here than in the file" in refused.err
    assert "was changed after it was written" in well.run("show", identity, code=1).err


def test_a_damaged_child_is_repaired_with_a_file_of_its_parent(well: Workshop) -> None:
    well.run("run", "parent", code=3)
    child = well.run("show", "@last", "--json").json["children"][0]["id"]
    parent = well.run("show", "@last", "--json").json["id"]
    well.run("checkpoint", parent)
    damage(well, child, "2")
    repaired = well.run(*todo(well))
    assert f"repaired {parent} with 1 descendant" in repaired.out
    assert well.run("doctor").out.splitlines()[-1] == "all is well"
    well.run("approve", child)
    *_, last = well.run("resume", parent, "--json").lines
    assert (last["status"], last["output"]) == ("completed", 5)


async def test_a_repair_that_a_crash_cut_short_is_finished_by_the_file_that_doctor_names(
    well: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    well.run("run", "twice.yaml", code=3)
    identity = well.newest()["id"]
    (file,) = [Path(well.run("checkpoint", identity).out.strip())]
    damage(well, identity, "2")

    write = Writer.write

    async def die(self: Writer, write_: Any) -> Any:
        if isinstance(write_, NewExecution):
            raise RuntimeError("the process dies here")
        return await write(self, write_)

    async with holdfast.Engine(folder=well.folder, recover="none") as engine:
        with monkeypatch.context() as patched:
            patched.setattr(Writer, "write", die)
            with pytest.raises(RuntimeError):
                await engine.restore(file)
    report = well.run("doctor", "--json", code=1).json["findings"]
    (unfinished,) = [one for one in report if one["name"] == "unfinished repair"]
    command = shlex.split(unfinished["todo"].partition(": holdfast ")[2])
    assert identity in well.run(*command).out
    assert well.run("doctor").out.splitlines()[-1] == "all is well"
    well.run("approve", identity)
    well.run("resume", identity, code=3)
