"""What commands tell of executions that are held, imported, failed or half done, and of files that are wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop


@pytest.fixture
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    there = Workshop(tmp_path_factory.mktemp("there"))
    yield there
    there.kill_all()


def carried(shop: Workshop, there: Workshop) -> str:
    """An execution that asks, here and, imported, there."""
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    shop.run("export", identity, "-o", str(there.folder / "carried.json"))
    there.run("import", "carried.json", "--force")
    return identity


def test_an_imported_execution_is_not_sent_back_to_its_original(shop: Workshop, there: Workshop) -> None:
    identity = carried(shop, there)
    refused = there.run("resume", identity, code=2).err
    assert "it can go on where it was started" not in refused
    assert "it was imported, and where it was started the original may go on: resume only one of the two" in refused
    approved = there.run("approve", identity).out
    assert f"holdfast resume {identity} (--other-folder accepts that it was started in another folder)" in approved
    there.run("resume", identity, "--other-folder")


def test_what_no_engine_here_would_drive_is_not_resumed_with_the_others(shop: Workshop, there: Workshop) -> None:
    identity = carried(shop, there)
    there.run("run", "two.yaml", "--hold")
    mixed = there.run("resume", "--held", "--all", code=1).out
    assert "1 applied, 1 refused" in mixed
    assert f"it was imported, and it was started in {shop.folder}, this is {there.folder}" in mixed
    assert "accept that for each: holdfast resume ID --other-folder" in mixed
    listed = {head["id"]: head["held"] for head in there.run("list", "--json").json}
    assert listed[identity] == "it was imported, and the original may still run elsewhere"


def test_what_is_held_is_told_so_in_dry_runs_and_in_the_history(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("hold", "--all", "--why", "look first")
    assert "  held  " in shop.run("stop", "--all", "--dry-run").out
    assert shop.run("stop", "--all", "--dry-run", "--json").json["held"] == "look first"
    assert ": waiting, held: look first" in shop.run("history").out
    assert shop.run("history", "--json").json[0]["held"] == "look first"


def test_a_backup_counts_what_was_held_before(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("hold", "--all")
    assert shop.run("backup", "copy.db", "--json").json["held"] == 1


def test_a_failed_execution_is_told_by_how_its_steps_ended(shop: Workshop) -> None:
    ran = shop.run("run", "fail.yaml", code=1)
    assert ", 1 of 3 steps completed: " in ran.out
    assert " 3/3 ended " in shop.run("list").out
    assert "  steps        1 completed, 1 failed, 1 skipped, of 3\n" in shop.run("show", "@last").out
    assert shop.run("show", "@last", "--json").json["percent"] == pytest.approx(33.3)


def test_what_is_done_inside_of_a_for_each_counts_when_it_goes_on(shop: Workshop) -> None:
    each = "{id: each, for_each: ['0', '1', go], max_parallel: 1, tool: work.gate, with: {file: \"${{ item }}\"}}"
    shop.write("each.yaml", f"name: each\nsteps:\n  - {each}\n")
    shop.open_gate("0")
    shop.open_gate("1")
    process = shop.start("run", "each.yaml")
    shop.wait_for_log("each[2] begun")
    shop.kill(process)
    shop.open_gate()
    assert "2 steps are in the journal" in shop.run("resume", "@last").out


def test_a_dry_run_of_delete_foresees_what_stays(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", code=1)
    shop.run("run", "two.yaml")
    shop.run("retry", "--name", "fail")  # handed in, and nobody drives it
    dry = shop.run("delete", "--all", "--dry-run")
    assert [line.split()[1] for line in dry.out.splitlines()] == ["completed"]
    assert "1 execution would be deleted; nothing was changed" in dry.err
    assert "would refuse 1: execution " in dry.err
    assert "was made from it, has not ended and may still need it" in dry.err
    assert "1 applied, 1 refused" in shop.run("delete", "--all", code=1).out


def test_a_dry_run_of_prune_lists_what_would_go(shop: Workshop) -> None:
    identity = shop.run("run", "two.yaml", "--json").lines[-1]["id"]
    line, sentence = shop.run("prune", "--older-than", "0s", "--dry-run").out.splitlines()
    assert line.startswith(f"{identity}  completed ")
    assert sentence == "1 execution would be deleted; nothing was changed"


def test_large_values_are_compared_by_size_and_digest(shop: Workshop) -> None:
    for letter in "ab":
        shop.run("run", "double", "-i", "number=1", "-i", f"label={letter * 100_000}")
    ids = [head["id"] for head in shop.run("list", "--json").json]
    told = shop.run("diff", *ids, code=1).out
    assert "100.0 kB, too large to be shown here, with the digest " in told
    assert '"blob"' not in told


def test_what_a_command_said_is_told_apart_from_the_command(shop: Workshop) -> None:
    command = "echo the pier is closed >&2; exit 3"
    shop.write(
        "pier.yaml",
        f'name: pier\nsteps:\n  - {{id: a, tool: shell.run, with: {{command: "{command}"}}, on_error: fail}}\n',
    )
    shop.run("run", "pier.yaml", code=1)
    shown = shop.run("show", "@last").out
    assert f"exit code 3 from: {command}; it said: the pier is closed" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nsteps\n  - {id: a, tool: work.do}\n", 'line 2, column 1: expected "name: value"'),
        ("name: a: b\nsteps: []\n", 'line 1, column 8: a ":" where none can be; quote a text that holds ": "'),
        ("name: x\nsteps:\n\t- {id: a}\n", "line 3, column 1: a character that cannot begin a value; quote it, and "),
        ("name: x\nsteps:\n  - id: a\n   tool: work.do\n", "line 4, column 4: the indentation does not fit "),
    ],
)
def test_a_mistake_in_yaml_is_told_with_its_line_and_in_words(shop: Workshop, text: str, said: str) -> None:
    shop.write("wrong.yaml", text)
    assert f"is not YAML: {said}" in shop.run("run", "wrong.yaml", code=2).err
    line = said.partition(",")[0].removeprefix("line ")
    assert f"wrong.yaml:{line}: " in shop.run("check", "wrong.yaml", code=1).out


def test_a_plan_is_no_exported_execution(shop: Workshop) -> None:
    assert "two.yaml is not JSON: invalid character (byte " in shop.run("import", "two.yaml", code=2).err


def test_a_wrong_word_in_a_list_of_the_settings_is_named(shop: Workshop) -> None:
    shop.write("holdfast.toml", '[retention]\nolder_than = "30d"\nstatus = ["compleed"]\n')
    expected = (
        'retention.status: expected a list of completed, failed and stopped, got "compleed"; did you mean "completed"?'
    )
    assert expected in shop.run("list", code=2).err


def test_removing_a_service_says_nothing_of_installing_one(shop: Workshop, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\necho no bus here >&2\nexit 1\n")
    (programs / "systemctl").chmod(0o755)
    environ: dict[str, Any] = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    shop.run("service", "install", "--kind", "systemd", **environ)
    removed = shop.run("service", "uninstall", "--kind", "systemd", **environ)
    assert "systemd is not running for this user here (no bus here); its file is removed all the same" in removed.err
    assert "was written" not in removed.err
    assert removed.out.startswith("removed ")
