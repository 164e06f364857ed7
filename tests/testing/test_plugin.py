"""The pytest plugin as a user's project gets it: by being installed, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import holdfast.testing

PASSING = """
def test_lab(lab):
    lab.fake("look", returns=3)
    assert lab.run({"name": "p", "steps": [{"id": "s", "tool": "look"}]}).output == 3
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        *options,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_fixture_is_there_without_any_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PASSING)
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_plan_files_are_found_beside_the_test_and_then_in_the_current_folder(tmp_path: Path) -> None:
    beside = tmp_path / "tests"
    beside.mkdir()
    (tmp_path / "both.yaml").write_text("steps: [{id: s, tool: far}]")
    (beside / "both.yaml").write_text("steps: [{id: s, start: near.yaml}]")
    (beside / "near.yaml").write_text("steps: [{id: s, tool: near}]")
    (tmp_path / "far.yaml").write_text("steps: [{id: s, tool: far}]")
    (beside / "test_it.py").write_text("""
import holdfast
import pytest

def test_it(lab):
    lab.fake("near", returns="near")
    lab.fake("far", returns="far")
    assert lab.run("both.yaml").output == "near"
    assert lab.run("near.yaml").output == "near"
    assert lab.run("far.yaml").output == "far"
    with pytest.raises(holdfast.HoldfastError, match="gone.yaml, neither beside the test .*tests. nor in"):
        lab.run("gone.yaml")
""")
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PASSING)
    done = run_pytest(tmp_path, "-p", "no:holdfast")
    assert "fixture 'lab' not found" in done.stdout


def test_a_crash_that_matters_fails_the_test_and_names_the_point(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import holdfast

@holdfast.function
async def counting(ctx):
    await ctx.call("look")
    return len(look.calls)

def test_counting(lab):
    global look
    look = lab.fake("look")
    lab.run(counting, crash_at="everywhere", answers={"look": "again"})
""")
    done = run_pytest(tmp_path)
    assert "1 failed" in done.stdout
    assert "killed at after:look#1:" in done.stdout


def test_a_failure_shows_the_line_of_the_test_and_nothing_of_the_lab(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
def test_lab(lab):
    lab.fake("look", returns=3)
    lab.run({"name": "p", "steps": [{"id": "s", "tool": "look"}]}, answers={"t": True})
""")
    done = run_pytest(tmp_path)
    assert ">       lab.run(" in done.stdout, done.stdout + done.stderr
    assert 'answers["t"] was never asked for' in done.stdout
    assert "test_it.py:4: LabError" in done.stdout
    assert "errors.py" not in done.stdout


def test_the_plugin_costs_nothing_until_it_is_used(tmp_path: Path) -> None:
    code = "import sys, holdfast.testing.plugin; print([m for m in sys.modules if m.startswith('holdfast')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = ["holdfast", "holdfast.testing", "holdfast.testing.plugin", "holdfast.version"]
    assert sorted(eval(done.stdout)) == loaded


def test_holdfast_does_not_need_pytest() -> None:
    names = ", ".join(holdfast.testing.__all__)
    code = f"import sys; from holdfast.testing import {names}; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_the_plugin_is_announced_under_its_name() -> None:
    (found,) = entry_points(group="pytest11", name="holdfast")
    assert found.value == "holdfast.testing.plugin"


def test_the_face_of_the_package_is_small_and_every_name_is_there() -> None:
    assert holdfast.testing.__all__ == [
        "Lab", "LabError", "NotCrashSafe", "Outcome", "Replayed", "StoreContract", "record", "replay",
    ]  # fmt: skip
    assert all(callable(getattr(holdfast.testing, name)) for name in holdfast.testing.__all__)
    assert dir(holdfast.testing) == holdfast.testing.__all__
    assert not hasattr(holdfast.testing, "lobster")
