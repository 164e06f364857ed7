"""`holdfast config`: every value with its source; unknown names are warned of and stop nothing."""

from __future__ import annotations

import json
import subprocess

from cli.workshop import Workshop
from holdfast.settings import KEYS


def test_every_setting_is_printed_with_where_it_came_from(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", 'modules = ["tools.py"]\nowner = "file"\n[profiles.ci]\nlimits.parked = 7\n')
    printed = shop.run("config", "--profile", "ci", "--store", "x.db", HOLDFAST_LIMITS_DRAIN_S="3").out
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in printed.splitlines() if line}
    assert set(KEYS) < set(rows)
    assert rows["store"] == [f'"{shop.folder / "x.db"}"', "--store"]
    assert rows["owner"] == ['"file"', str(file)]
    assert rows["limits.parked"] == ["7", f"profile ci in {file}"]
    assert rows["limits.drain_s"] == ["3.0", "HOLDFAST_LIMITS_DRAIN_S"]
    assert rows["limits.executions"] == ["100", "default"]
    assert f"settings: {file}\nprofile: ci\n" in printed
    assert "profile: none\n" in shop.run("config").out
    assert "HOLDFAST_QUITE_OTHER: no such setting" in shop.run("config", HOLDFAST_QUITE_OTHER="1").err
    assert (
        shop.run("list", HOLDFAST_QUITE_OTHER="1").err
        == "holdfast: no executions; start one with `holdfast run PLAN`\n"
    )


def test_the_same_as_json_with_the_warnings_inside(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", "ownr = 1\n")
    printed = shop.run("config", "--json", HOLDFAST_PROFILE="")
    assert printed.json["values"]["modules"] == {"value": [], "source": "default"}
    assert printed.json["warnings"] == [f'{file}: ownr: no such setting; did you mean "owner"?']
    assert (printed.json["profile"], printed.json["root"]) == (None, str(shop.folder))
    assert printed.err == ""


def test_an_unknown_name_is_told_on_stderr_and_stops_nothing(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", 'modules = ["tools.py"]\ncolr = 1\n[limits]\nexecution = 3\n')
    for command in (["config"], ["run", "two.yaml"], ["list"]):
        told = shop.run(*command).err.splitlines()
        assert told[0].startswith(f"holdfast: {file}: colr: no such setting; there are: store, modules")
        assert told[1] == f'holdfast: {file}: limits.execution: no such setting; did you mean "limits.executions"?'
    assert [json.loads(line)["note"] for line in shop.run("list", "--json").err.splitlines()]


def test_a_wrong_type_and_an_unknown_profile_are_refused(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", "owner = 3\n[profiles.ci]\nowner = 'x'\n")
    assert shop.run("config", code=2).err == f"holdfast: {file}: owner: expected a text, got the number 3\n"
    file.write_text("[profiles.ci]\nowner = 'x'\n")
    refused = json.loads(shop.run("config", "--json", "--profile", "cl", code=2).err)
    assert refused == {
        "error": f'--profile: {file} has no profile "cl"; there are: ci',
        "type": "SettingsInvalid",
    }


def test_all_mistakes_are_told_at_once(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", 'owner = 3\nlimits = 5\n[retention]\nolder_than = "soon"\n')
    assert shop.run("list", code=2, HOLDFAST_LIMITS_DRAIN_S="long").err.splitlines() == [
        "holdfast: the settings have 4 mistakes:",
        f"  {file}: owner: expected a text, got the number 3",
        f"  {file}: limits: expected a table, got the number 5",
        f'  {file}: retention.older_than: expected a duration such as "30d" or "12h", got the string "soon"',
        '  HOLDFAST_LIMITS_DRAIN_S: expected a number of seconds from 0 to 86400, got the string "long"',
    ]


def test_profiles_that_are_not_chosen_are_looked_at_too(shop: Workshop) -> None:
    text = "[profiles.a]\nowner = 1\nowmer = 'x'\n[profiles.a.limits]\ndrain = 1\n[profiles.b]\nowner = 'b'\n"
    file = shop.write("holdfast.toml", text)
    told = shop.run("config").err.splitlines()
    assert told == [
        f"holdfast: {file}: profiles.a.owner: expected a text, got the number 1",
        f'holdfast: {file}: profiles.a.owmer: no such setting; did you mean "owner"?',
        f'holdfast: {file}: profiles.a.limits.drain: no such setting; did you mean "limits.drain_s"?',
    ]
    assert len(shop.run("config", "--json", "--profile", "b").json["warnings"]) == 3
    assert "profiles" not in shop.run("list").err


def test_a_password_is_not_printed(shop: Workshop) -> None:
    printed = shop.run("config", HOLDFAST_STORE="postgresql://ann:geheim@db/tasks").out
    assert '"postgresql://ann@db/tasks"' in printed
    assert "geheim" not in printed


def test_from_a_subfolder_without_settings_the_journal_above_is_the_one(shop: Workshop) -> None:
    (shop.folder / "holdfast.toml").unlink()
    shop.write("plan.yaml", "name: plan\nsteps:\n  - {id: nap, tool: time.sleep, with: {seconds: 0}}\n")
    shop.run("run", "plan.yaml")
    (shop.folder / "below").mkdir()
    assert [head["name"] for head in shop.run("-C", "below", "list", "--json").json] == ["plan"]
    shop.run("-C", "below", "run", "../plan.yaml")
    assert len(shop.run("list", "--json").json) == 2
    assert not (shop.folder / "below" / ".holdfast").exists()


def test_worktrees_share_a_journal_and_each_goes_on_with_its_own(shop: Workshop) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    linked = shop.folder.with_name(f"{shop.folder.name}-linked")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x"), ("worktree", "add", str(linked))):
        subprocess.run(["git", *command], cwd=shop.folder, check=True, capture_output=True)
    identity_of_it = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    assert shop.run("-C", str(linked), "list", "--json").json[0]["id"] == identity_of_it
    shop.run("-C", str(linked), "run", "two.yaml")
    folders = {
        head["name"]: head["folder"]
        for head in shop.run("list", "--all", "--json").json
        if head["store"] == str(shop.store)
    }
    assert folders == {"ask": str(shop.folder), "two": str(linked)}
    shop.run("-C", str(linked), "approve", identity_of_it)
    refused = shop.run("-C", str(linked), "resume", identity_of_it, code=2).err
    assert f"it was started in {shop.folder}, this is {linked}" in refused
    assert f"it can go on where it was started, with -C {shop.folder}" in refused
    shop.run("-C", str(shop.folder), "resume", identity_of_it)
    assert shop.run("show", identity_of_it, "--json").json["status"] == "completed"


def test_an_empty_variable_switches_the_channels_off_for_once(shop: Workshop) -> None:
    shop.write("holdfast.toml", '[notify]\nchannels = ["chat"]\n')
    found = shop.run("config", "--json", HOLDFAST_NOTIFY_CHANNELS="").json["values"]["notify.channels"]
    assert found == {"value": [], "source": "HOLDFAST_NOTIFY_CHANNELS"}


def test_what_only_the_tools_know_to_be_wrong_is_warned_of(shop: Workshop) -> None:
    file = shop.write("holdfast.toml", '[tools.http]\nalow = ["example.org"]\n')
    assert f"{file}: tools.http" in shop.run("config").err
    assert "alow" in shop.run("config").err
    file.write_text('[notify]\nchannels = ["hok"]\n[tools.notify.channels]\nhook = "https://example.org/x"\n')
    [warning] = shop.run("config", "--json").json["warnings"]
    assert warning.startswith(f'{file}: notify.channels: no channel called "hok"')
    assert 'did you mean "hook"?' in warning
    assert shop.run("config").err == f"holdfast: {warning}\n"
