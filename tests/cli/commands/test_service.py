"""`holdfast service`: the files that keep a worker running, checked by those who read them."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop
from holdfast.cli.commands.service_units import MISTAKE, Worker, service_name, systemd_text, unit_of
from servers.commands import environment

ODD = 'it\'s 100%h "odd" $HOME \\ ünï'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    (tmp_path / ODD).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Workshop(tmp_path / ODD)


def unit_file(shop: Workshop) -> Path:
    return shop.folder.parent / "home" / ".config" / "systemd" / "user" / f"{service_name(shop.folder)}.service"


def control(shop: Workshop, answer: str = "exit 0") -> dict[str, Any]:
    """A systemctl that writes down what it was asked: a real one would change the machine these tests run on."""
    folder = shop.folder.parent / "bin"
    folder.mkdir()
    script = folder / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(folder / "asked"))}\n{answer}\n')
    script.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def asked(shop: Workshop) -> list[str]:
    return (shop.folder.parent / "bin" / "asked").read_text().splitlines()


def test_install_writes_the_unit_and_says_what_to_type(shop: Workshop) -> None:
    said = shop.run("service", "install", "--kind", "systemd").out
    file = unit_file(shop)
    assert f"wrote {file}" in said
    assert f"  systemctl --user enable --now {file.name}" in said
    assert "loginctl enable-linger" in said
    assert file.read_text() == shop.run("service", "install", "--kind", "systemd", "--dry-run").out


def test_a_dry_run_writes_nothing(shop: Workshop) -> None:
    printed = shop.run("service", "install", "--kind", "systemd", "--dry-run", "--json").json
    assert printed["file"] == str(unit_file(shop))
    assert "KillMode=mixed" in printed["text"]
    assert not unit_file(shop).exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd itself is wanted as a witness")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    python = tmp_path / ODD / "python"
    python.symlink_to(sys.executable)
    worker = Worker(shop.folder, [str(python), "-C", str(shop.folder)], Path("x"), f"/bin:{shop.folder}", 10)
    texts = {"odd": systemd_text(worker), "own": shop.run("service", "install", "--kind", "systemd", "--dry-run").out}
    for name, text in texts.items():
        file = tmp_path / f"{name}.service"
        file.write_text(text)
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
        command = ["systemd-analyze", "verify", "--user", str(file)]
        verified = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert (verified.returncode, verified.stderr) == (0, ""), text


def test_odd_names_are_escaped_for_systemd() -> None:
    text = systemd_text(Worker(Path('/a "b" %h\\'), ["/p", "-C", "/a $b %h 'c' \"d\" \\e"], Path("x"), "/x y%", 10))
    assert 'ExecStart="/p" "-C" "/a $$b %%h \'c\' \\"d\\" \\\\e"\n' in text
    assert 'Environment="PATH=/x y%%"\n' in text
    assert 'Description=Holdfast worker for /a "b" %%h\n' in text
    assert 'ExecStart="/usr/bin/env" "/it\'s/python"' in systemd_text(
        Worker(Path("/"), ["/it's/python"], Path("x"), "/", 10)
    )


def test_the_launchd_file_says_the_same(shop: Workshop) -> None:
    text = shop.run("service", "install", "--kind", "launchd", "--dry-run", "--profile", "", "--store", "x.db").out
    described = plistlib.loads(text.encode())
    assert described["Label"] == f"dev.holdfast.{service_name(shop.folder)}"
    assert described["ProgramArguments"] == [
        sys.executable, "-P", "-m", "holdfast.cli", "-C", str(shop.folder), "--store", str(shop.folder / "x.db"),
        "worker", "--log", str(shop.folder / "x.db.d" / "logs" / "worker.log"),
    ]  # fmt: skip
    assert described["KeepAlive"] == {"SuccessfulExit": False}
    assert "launchctl load" in shop.run("service", "install", "--kind", "launchd").out


def test_the_command_of_the_unit_really_works(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("approve", "@last")
    text = shop.run("service", "install", "--kind", "launchd", "--dry-run").out
    command = [*plistlib.loads(text.encode())["ProgramArguments"], "--until-idle"]
    subprocess.run(command, cwd="/", check=True, timeout=60)
    assert shop.newest()["status"] == "completed"
    log = (shop.folder / ".holdfast" / "logs" / "worker.log").read_text()
    assert f"completed: ask ({shop.newest()['id']})" in log


def test_names_are_readable_and_differ_by_folder(tmp_path: Path) -> None:
    assert service_name(Path("/a/my project!")).startswith("holdfast-my-project-")
    assert service_name(Path("/a/x")) != service_name(Path("/b/x"))
    assert service_name(Path("/")).startswith("holdfast-")
    unit = unit_of("systemd", Worker(tmp_path, ["/p"], tmp_path, "", 1), {"XDG_CONFIG_HOME": "/c", "HOME": "/h"})
    assert unit.file == Path("/c/systemd/user") / unit.name


def test_now_runs_what_would_be_typed_and_uninstall_takes_it_back(shop: Workshop) -> None:
    environ = control(shop)
    name = unit_file(shop).name
    assert "it runs now" in shop.run("service", "install", "--kind", "systemd", "--now", **environ).out
    assert asked(shop) == ["--user daemon-reload", f"--user enable --now {name}"]
    status = shop.run("service", "status", "--kind", "systemd", "--json", **environ).json
    assert (status["installed"], status["up_to_date"], status["runs"]) == (True, True, True)
    assert f"{name}: it runs" in shop.run("service", "status", "--kind", "systemd", **environ).out
    assert "removed " in shop.run("service", "uninstall", "--kind", "systemd", **environ).out
    assert asked(shop)[-1] == f"--user disable --now {name}"
    assert not unit_file(shop).exists()
    again = shop.run("service", "uninstall", "--kind", "systemd", "--json", **environ).json
    assert again["removed"] is False
    assert "there is no service" in shop.run("service", "status", "--kind", "systemd", **environ).out


def test_a_worker_with_a_mistake_in_its_settings_is_not_started_again_for_ever(shop: Workshop) -> None:
    shop.write("holdfast.toml", "limits = 3\n")
    assert shop.run("worker", code=None).code == MISTAKE
    assert f"RestartPreventExitStatus={MISTAKE}\n" in systemd_text(Worker(shop.folder, ["h"], Path("l"), "p", 1.0))


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_services_are_listed_with_their_folders_also_with_those_that_are_gone(shop: Workshop, kind: str) -> None:
    assert "there are no services" in shop.run("service", "list", "--kind", kind).err
    gone = shop.folder.parent / f"gone {ODD}"
    gone.mkdir()
    for folder in (shop.folder, gone):
        shop.run("-C", str(folder), "service", "install", "--kind", kind)
    gone.rmdir()
    listed = {one["folder"]: one for one in shop.run("service", "list", "--kind", kind, "--json").json}
    assert {folder: one["folder_exists"] for folder, one in listed.items()} == {
        str(shop.folder): True,
        str(gone): False,
    }
    name = listed[str(gone)]["name"]
    assert f"that is gone: holdfast service uninstall {name}" in shop.run("service", "list", "--kind", kind).out
    assert "removed" in shop.run("service", "uninstall", name, "--kind", kind).out
    assert [one["folder"] for one in shop.run("service", "list", "--kind", kind, "--json").json] == [str(shop.folder)]


def test_the_service_of_a_folder_that_is_gone_can_be_uninstalled(shop: Workshop) -> None:
    gone = shop.folder.parent / "gone"
    for how in (("-C", "../gone"), ()):
        gone.mkdir()
        shop.run("-C", str(gone), "service", "install", "--kind", "systemd")
        file = unit_file(shop).with_name(f"{service_name(gone)}.service")
        assert file.exists()
        if how:
            gone.rmdir()
            shop.run(*how, "service", "uninstall", "--kind", "systemd")
        else:  # from within it
            command = f"rmdir {gone}; {sys.executable} -m holdfast.cli service uninstall --kind systemd"
            subprocess.run(["sh", "-c", command], cwd=gone, env=environment(PWD=str(gone)), check=True)
        assert not file.exists()


def test_a_service_that_is_not_there_is_no_name(shop: Workshop) -> None:
    shop.run("service", "install", "--kind", "systemd")
    name = service_name(shop.folder)
    said = shop.run("service", "uninstall", f"{name[:-1]}x", "--kind", "systemd", code=2).err
    assert f'there is no service {name[:-1]}x; did you mean "{name}"?' in said
    assert unit_file(shop).exists()


def test_a_systemd_that_refuses_is_quoted_and_the_file_stays(shop: Workshop) -> None:
    environ = control(shop, "echo no bus here >&2; exit 1")
    refused = shop.run("service", "install", "--kind", "systemd", "--now", code=1, **environ).err
    assert f"{unit_file(shop)} was written, but systemd is not running for this user here (no bus here)" in refused
    assert "and then type: systemctl --user daemon-reload && systemctl --user enable --now holdfast-" in refused
    assert unit_file(shop).exists()
    status = shop.run("service", "status", "--kind", "systemd", **environ).out
    assert "whether it runs cannot be asked here" in status
    removed = shop.run("service", "uninstall", "--kind", "systemd", **environ)
    assert "no bus here" in removed.err
    assert not unit_file(shop).exists()


def test_now_without_systemctl_says_so(shop: Workshop) -> None:
    refused = shop.run("service", "install", "--kind", "systemd", "--now", code=2, PATH="/nowhere").err
    assert "systemctl is not on this machine" in refused
    assert unit_file(shop).exists()


def test_a_file_that_is_out_of_date_is_told(shop: Workshop) -> None:
    shop.run("service", "install", "--kind", "systemd")
    unit_file(shop).write_text("something else")
    assert "is out of date" in shop.run("service", "status", "--kind", "systemd").out


def test_variables_of_this_shell_are_not_carried_along(shop: Workshop) -> None:
    said = shop.run("service", "install", "--kind", "systemd", HOLDFAST_OWNER="me").err
    assert "HOLDFAST_OWNER is set here and will not be there" in said


def test_bad_wishes_are_refused_and_nothing_is_written(shop: Workshop) -> None:
    refused = shop.run("service", "install", "--kind", "cron", code=2).err
    assert refused == 'holdfast: --kind: expected systemd or launchd, got "cron"\n'
    store = "postgresql://ann:geheim@db/tasks"
    refused = shop.run("service", "install", "--kind", "systemd", "--store", store, code=2).err
    assert "a password has no place in a service's file" in refused
    assert "geheim" not in refused
    (shop.folder.parent / "home").write_text("a file where the home should be")
    refused = shop.run("service", "install", "--kind", "systemd", code=2).err
    assert "cannot be written: Not a directory; nothing was installed" in refused
