"""`doctor` finds and names each illness; a damaged execution is set aside and the others go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.workshop import Workshop
from holdfast.cli.commands.doctor_checks import disk
from holdfast.settings import load_settings
from servers.commands import environment

IS_ROOT = os.geteuid() == 0


def findings(shop: Workshop, code: int = 1) -> dict[str, dict[str, Any]]:
    report = shop.run("doctor", "--json", code=code).json
    assert report["ok"] is (code == 0)
    return {finding["name"]: finding for finding in report["findings"]}


def healthy(shop: Workshop) -> None:
    """Take the tool whose needs nobody can meet out of the workshop."""
    tools = (shop.folder / "tools.py").read_text()
    shop.write("tools.py", tools.replace('requires=["no-such-program-anywhere"]', "requires=[]"))


def edit(shop: Workshop, sql: str, *values: object) -> None:
    connection = apsw.Connection(str(shop.store))
    connection.execute(sql, values)
    connection.close()


@pytest.fixture
def well(shop: Workshop) -> Workshop:
    healthy(shop)
    return shop


def test_all_is_well_before_and_after_a_run(well: Workshop) -> None:
    assert well.run("doctor").out.splitlines()[-1] == "all is well"
    assert not well.store.exists()
    well.run("run", "two.yaml")
    assert well.run("doctor", "--json").json == {"ok": True, "findings": []}


def test_an_edited_execution_is_set_aside_and_the_others_go_on(well: Workshop) -> None:
    well.run("run", "ask.yaml", code=3)
    edited = well.newest()["id"]
    well.run("run", "ask.yaml", code=3)
    other = well.newest()["id"]
    change = "UPDATE events SET body = CAST(replace(body, ?, ?) AS BLOB) WHERE seq = 1 AND execution = 1"
    edit(well, change, "ask.yaml", "axk.yaml")
    found = findings(well)
    assert found.keys() == {"damaged execution"}
    assert found["damaged execution"]["execution_id"] == edited
    assert "event 1 was changed after it was written: its digest does not match" in found["damaged execution"]["what"]
    assert "It was set aside" in found["damaged execution"]["meaning"]
    refused = well.run("resume", edited, code=1)
    assert "was changed after it was written" in refused.err
    assert "Traceback" not in refused.err
    assert [line.split()[1] for line in well.run("list").out.splitlines()[1:]] == ["waiting", "set"]
    well.run("approve", other)
    well.run("resume", other)
    still = well.run("doctor", "--release", edited, code=1)
    assert f"execution {edited} is still damaged: event 1 was changed" in still.err
    edit(well, change, "axk.yaml", "ask.yaml")
    assert "is whole now" in findings(well)["set aside"]["what"]
    released = well.run("doctor", "--release", edited)
    assert f"execution {edited} is whole again and was let back in" in released.out
    assert well.run("doctor", "--release", edited).out == f"unchanged: execution {edited} is not set aside\n"
    assert findings(well, code=0) == {}


def test_a_spoilt_row_is_named_and_the_others_go_on(well: Workshop) -> None:
    well.run("run", "ask.yaml", code=3)
    spoilt = well.newest()["id"]
    well.run("run", "ask.yaml", code=3)
    other = well.newest()["id"]
    edit(well, "CREATE TABLE kept AS SELECT reasons, wake_at FROM executions WHERE id = ?", spoilt)
    edit(well, "UPDATE executions SET reasons = '[{', wake_at = 0 WHERE id = ?", spoilt)
    table = {line.split()[0]: line for line in well.run("list").out.splitlines()}
    assert "set aside" in table[spoilt]
    found = findings(well)
    assert found.keys() == {"damaged execution"}
    assert found["damaged execution"]["what"] == (
        f"execution {spoilt} is damaged: its row in the list cannot be read (reasons: Input data was truncated)"
    )
    assert f"execution {spoilt} is damaged: its row in the list" in well.run("show", spoilt, code=1).err
    well.run("approve", other)
    well.run("resume", other)
    assert f"execution {spoilt} is damaged" in well.run("doctor", "--release", spoilt, code=1).err
    edit(well, "UPDATE executions SET (reasons, wake_at) = (SELECT * FROM kept) WHERE id = ?", spoilt)
    well.run("doctor", "--release", spoilt)
    assert findings(well, code=0) == {}


def test_lost_events_at_the_end_are_noticed(well: Workshop) -> None:
    well.run("run", "two.yaml")
    edit(well, "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
    assert "the end of its journal is lost" in findings(well)["damaged execution"]["what"]


def test_release_wants_an_id_that_exists(well: Workshop) -> None:
    well.run("run", "two.yaml")
    refused = well.run("doctor", "--release", "zzz", code=2)
    assert '"zzz" fits no executions; give an id as `holdfast list` shows it' in refused.err


def test_a_truncated_database_is_named_everywhere(well: Workshop) -> None:
    well.run("run", "two.yaml")
    size = well.store.stat().st_size
    os.truncate(well.store, size - 3 * 4096)
    found = findings(well)
    assert "damaged store" in found
    assert "backup" in found["damaged store"]["todo"]


def test_a_file_that_is_no_database_is_named(well: Workshop) -> None:
    well.store.parent.mkdir()
    well.store.write_text("these are not the bytes you are looking for" * 100)
    damaged = findings(well)["damaged store"]
    assert damaged["what"] == f"{well.store} is damaged (file is not a database)"
    assert "doctor" not in well.run("doctor", code=1).out
    for command in (["run", "two.yaml"], ["list"], ["show", "@last"]):
        refused = well.run(*command, code=1)
        assert f"{well.store} is damaged" in refused.err
        assert "run `holdfast doctor`, and restore a backup if it cannot be read" in refused.err


def test_a_schema_from_the_future_is_left_alone(well: Workshop) -> None:
    well.run("run", "two.yaml")
    edit(well, "PRAGMA user_version = 99")
    found = findings(well)["schema"]
    assert "has schema version 99" in found["what"]
    assert found["todo"] == "Upgrade Holdfast"
    for command in (["run", "two.yaml"], ["list"], ["show", "@last"]):
        assert "has schema version 99, this Holdfast knows" in well.run(*command, code=1).err


def test_a_folder_that_cannot_be_written_is_named(well: Workshop) -> None:
    well.write(".holdfast", "a file where the folder should be")
    found = findings(well)["folder"]
    assert f"{well.folder / '.holdfast'} cannot be written (it is not a folder)" in found["what"]
    assert "Nothing can be started or resumed" in found["meaning"]


def test_a_store_that_is_a_folder_is_named(well: Workshop) -> None:
    well.store.mkdir(parents=True)
    found = findings(well)["store"]
    assert (found["what"], found["todo"]) == (f"{well.store} is a folder", "Name a file with --store")


@pytest.mark.skipif(IS_ROOT and not shutil.which("setpriv"), reason="root may write everything")
def test_a_read_only_store_is_named(well: Workshop) -> None:
    well.run("run", "two.yaml")
    well.store.chmod(0o400)
    without_privileges = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if IS_ROOT else []
    command = [*without_privileges, sys.executable, "-m", "holdfast.cli", "doctor", "--json"]
    done = subprocess.run(command, cwd=well.folder, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    [finding] = json.loads(done.stdout)["findings"]
    assert finding["name"] == "store"
    assert "cannot be written (Permission denied)" in finding["what"]


def test_a_nearly_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk cannot be filled in a test, so the number the system gives is the one thing put in its place.
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10 * 1024**2})())
    (finding,) = disk(load_settings(tmp_path, {}))
    assert finding.what == f"only 10 MB are free for {tmp_path / '.holdfast'}"
    assert "Free some space" in finding.todo


def test_modules_and_tools_with_troubles_are_named(shop: Workshop) -> None:
    shop.write("bad.py", "import no_such_package\n")
    shop.write("holdfast.toml", 'modules = ["tools.py", "bad.py", "absent.py"]\n')
    report = shop.run("doctor", code=1)
    assert 'problem: module: the module "bad.py" cannot be imported' in report.out
    assert 'problem: module: no file called "absent.py"' in report.out
    assert 'warning: tool: work.needy needs the program "no-such-program-anywhere"' in report.out
    assert "Plans that use work.needy will not start. Install it." in report.out


def test_orphans_dead_processes_and_missing_tools_are_named(well: Workshop) -> None:
    process = well.start("run", "gate.yaml")
    well.wait_for_log("gate begun")
    assert findings(well, code=0) == {}
    well.kill(process)
    identity = well.newest()["id"]
    orphan = findings(well)["orphaned"]
    assert f"execution {identity} (gate) is running, but the process that drove it died" in orphan["what"]
    assert orphan["todo"] == f"holdfast resume {identity}"
    well.write("holdfast.toml", "modules = []\n")
    assert f"execution {identity}: its tool work.gate is not here" in well.run("doctor", code=1).out
    well.write("holdfast.toml", 'modules = ["tools.py"]\n')
    well.run("stop", identity)
    tidied = findings(well, code=0)
    assert "the lock file of a dead process" in tidied["lock file"]["what"]
    assert findings(well, code=0) == {}


def test_a_fallback_that_does_not_exist_concerns_its_own_tool_alone(well: Workshop) -> None:
    with (well.folder / "tools.py").open("a") as tools:
        tools.write('\n\n@holdfast.tool(name="far.ask", effect="read", fallbacks=["work.evne"])\ndef far(): ...\n')
    finding = findings(well)["fallback"]
    place = f"{well.folder / 'tools.py'}:"
    assert finding["what"].startswith(f"tool far.ask at {place}")
    assert finding["what"].endswith(': its fallback work.evne does not exist; did you mean "work.even"?')
    ran = well.run("run", "two.yaml")
    assert "its fallback work.evne does not exist" in ran.err
    well.write("far.yaml", "steps: [{id: a, tool: far.ask}]")
    assert 'its fallback "work.evne" is not here' in well.run("run", "far.yaml", code=2).err


def test_what_the_settings_ask_for_and_cannot_be_had_is_named(well: Workshop) -> None:
    well.write(
        "holdfast.toml",
        'modules = ["tools.py"]\n[tools.browser]\nexecutable = "no-such-browser"\n'
        '[tools.mcp.servers.gone]\ncommand = ["no-such-server"]\n'
        '[tools.notify.channels]\ntypo = "jsn://localhost/"\nhere = "json://localhost/"\nlater = "env:NO_SUCH_THING"\n',
    )
    out = well.run("doctor", code=1).out
    assert 'warning: settings: no browser called "no-such-browser" can be run. Steps that need it will fail.' in out
    assert 'tools.mcp.servers.gone.command: no program called "no-such-server" can be run' in out
    assert 'the address of the channel "typo" makes no sense to apprise. ' in out
    assert 'the channel "later" needs the environment variable NO_SUCH_THING. ' in out
    assert 'channel "here"' not in out


def test_a_password_that_is_too_short_to_be_masked_is_named_and_not_shown(well: Workshop) -> None:
    well.write(
        "holdfast.toml",
        'modules = ["tools.py"]\n[tools.notify.channels]\n'
        'short = "json://ann:pqxz@localhost/"\nlong = "json://ann:long-enough@localhost/"\n',
    )
    out = well.run("doctor", code=1).out
    assert "warning: secret: the password of the channel short has less than 8 characters. It is not masked" in out
    assert "channel long" not in out
    assert "pqxz" not in out


@pytest.mark.parametrize(
    ("package", "table", "text"),
    [
        ("playwright", "[tools.browser]\nwidth = 800\n", "pip install playwright"),
        ("mcp", '[tools.mcp.servers.s]\ncommand = ["sh"]\n', "pip install 'mcp>=2.3,<3'"),
        ("apprise", '[tools.notify.channels]\nhere = "json://localhost/"\n', "pip install apprise"),
    ],
)
def test_an_extra_that_the_settings_need_and_is_not_installed_is_named(
    well: Workshop, package: str, table: str, text: str
) -> None:
    # The one way to take an installed package away from a real process: a finder that says it is not there.
    hide = "import importlib.util as u; f = u.find_spec; "
    hide += f"u.find_spec = lambda n, *a: None if n == {package!r} else f(n, *a)"
    well.write("sitecustomize.py", hide)
    well.write("holdfast.toml", f'modules = ["tools.py"]\n{table}')
    told = well.run("doctor", code=1, PYTHONPATH=str(well.folder))
    assert text in told.out


def test_what_was_set_aside_is_not_asked_anything_and_goes_only_by_force(well: Workshop) -> None:
    well.run("run", "ask.yaml", code=3)
    edited = well.newest()["id"]
    edit(well, "UPDATE events SET body = CAST(replace(body, ?, ?) AS BLOB) WHERE seq = 1", "ask.yaml", "axk.yaml")
    assert findings(well).keys() == {"damaged execution"}
    stopped = well.run("stop", edited, code=2)
    assert f"execution {edited} was set aside, because its journal is damaged (event 1 was changed" in stopped.err
    assert f"delete it with: holdfast delete {edited} --force" in stopped.err
    kept = well.run("delete", edited, code=2)
    assert f"delete it for good with: holdfast delete {edited} --force; nothing was deleted" in kept.err
    assert "deleted 1 execution" in well.run("delete", edited, "--force").out
    assert well.run("list", "--json").json == []


def test_a_channel_for_notices_that_is_not_there_is_named(well: Workshop) -> None:
    said = '[notify]\nchannels = ["hok"]\n[tools.notify.channels]\nhook = "https://example.org/x"\n'
    well.write("holdfast.toml", f'modules = ["tools.py"]\n{said}')
    assert 'no channel called "hok"' in well.run("run", "two.yaml", code=2).err
    found = findings(well)["notices"]
    assert found["severity"] == "problem"
    assert 'notify.channels: no channel called "hok"' in found["what"]
