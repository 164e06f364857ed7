"""Commands that are printed work when they are pasted into a shell in the folder they were printed in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.workshop import PATIENCE_S, Result, Workshop, environment, wait_until

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent


def shell(command: str, folder: Path, **environ: str) -> Result:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def command_in(text: str, verb: str) -> str:
    """The last printed command of this verb, as a person would copy it."""
    found = re.findall(
        rf"(?:^|[ `])((?:\S*holdfast|\S*python\S* -m holdfast\.cli)(?: -\S+ (?:'[^']*'|\S+))* {verb}\b[^;`#\n]*)", text
    )
    assert found, text
    return found[-1].strip()


@pytest.fixture
def elsewhere(shop: Workshop) -> Path:
    """A folder beside the project, with a space in the way to it."""
    folder = shop.folder / "other place"
    folder.mkdir()
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n')
    return folder


def test_commands_name_the_folder_that_was_given(shop: Workshop, elsewhere: Path) -> None:
    waits = shell("holdfast -C .. run ask.yaml --no-ask", elsewhere)
    assert waits.code == 3, waits
    assert shell(command_in(waits.out, "approve"), elsewhere).code == 0
    resumed = shell(command_in(waits.out, "resume"), elsewhere)
    assert resumed.code == 0, resumed
    shown = shell(command_in(resumed.out, "show"), elsewhere)
    assert "completed" in shown.out
    again = shell(command_in(shown.out, "retry").replace("STEP", "publish"), elsewhere)
    assert again.code == 3, again
    refused = shell(f"holdfast -C .. stop {shop.newest()['id']} && holdfast -C .. resume @last", elsewhere)
    assert shell(command_in(refused.err, "retry") + " --no-ask", elsewhere).code == 3, refused


def test_commands_name_the_store_that_was_given_wherever_it_lies(shop: Workshop, elsewhere: Path) -> None:
    failed = shell("holdfast --store 'my journal.db' -C .. run fail.yaml", elsewhere)
    assert failed.code == 1
    retry = command_in(failed.out, "retry")
    assert (shop.folder / "my journal.db").exists()
    retried = shell(retry, shop.folder.parent)
    assert "what happened: it broke" in retried.out, retried
    by_variable = shell("HOLDFAST_STORE='my journal.db' holdfast run two.yaml", shop.folder)
    assert shell(command_in(by_variable.out, "show"), shop.folder).code == 0, by_variable


@pytest.mark.parametrize("called", [str(BIN / "holdfast"), f"{sys.executable} -m holdfast.cli"])
def test_commands_begin_with_the_path_of_a_program_that_is_not_on_path(shop: Workshop, called: str) -> None:
    bare = {"PATH": "/usr/bin:/bin"}
    assert shutil.which("holdfast", path=bare["PATH"]) is None
    waits = shell(f"{called} run ask.yaml --no-ask", shop.folder, **bare)
    assert waits.code == 3, waits
    assert shell(command_in(waits.out, "approve"), shop.folder, **bare).code == 0
    assert shell(command_in(waits.out, "resume"), shop.folder, **bare).code == 0
    here = shell("holdfast show @last", shop.folder)
    assert command_in(here.out, "retry").startswith("holdfast retry ")


def test_another_program_of_that_name_on_path_is_not_what_is_named(shop: Workshop) -> None:
    other = shop.folder / "bin" / "holdfast"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    ended = shell(f"{BIN / 'holdfast'} run two.yaml", shop.folder, PATH=f"{other.parent}:{BIN}:/usr/bin:/bin")
    assert command_in(ended.out, "show").startswith(f"{BIN / 'holdfast'} show ")


def test_the_log_of_what_was_detached_names_the_folder_too(shop: Workshop, elsewhere: Path) -> None:
    shop.open_gate()
    detached = shell("holdfast -C .. run gate.yaml --detach", elsewhere)
    watched = shell(command_in(detached.err, "watch"), elsewhere)
    assert watched.code == 0, watched
    log = Path(detached.err.rpartition("its log: ")[2].strip())
    wait_until(lambda: "look at it: " in log.read_text(), "its last line")
    assert shell(command_in(log.read_text(), "show"), elsewhere).code == 0


def test_no_command_holds_a_password(shop: Workshop) -> None:
    address = "postgresql://ada:geheim@localhost:1/none"
    refused = shop.run("--store", address, "list", code=None)
    assert "geheim" not in refused.out + refused.err
    refused = shop.run("show", "@last", code=None, HOLDFAST_STORE=address)
    assert "geheim" not in refused.out + refused.err


def test_the_new_project_is_entered_before_its_first_command(shop: Workshop) -> None:
    said = shop.run("init", "my project").out
    typed = said.partition("now type:\n")[2].partition("and for its test:")[0]
    done = shell(f"set -e\n{typed}", shop.folder)
    assert done.code == 0, done
    assert (shop.folder / "my project" / ".holdfast").is_dir()


def test_no_text_says_to_install_holdfast_from_an_index() -> None:
    """It is on none: what is called so there is somebody else's."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    said = re.compile(r"(?:pip|pipx|uv|uvx)(?: tool| pip)? (?:install |run )?[^\n`]*?['\" ]holdfast(?:\[|['\"`\s]|$)")
    found = [(file.name, hit[0]) for file in files for hit in said.finditer(file.read_text()) if "install" in hit[0]]
    assert found == []


def test_environment_finds_the_program_under_test() -> None:
    assert shutil.which("holdfast", path=environment()["PATH"]) == str(BIN / "holdfast")
    assert os.access(BIN / "holdfast", os.X_OK)
