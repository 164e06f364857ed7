"""What `make` says and does where something that the tests want cannot be had."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVERS = Path("tests/servers/npm")
READY = f"{SERVERS}/node_modules/.installed"
MAKE = shutil.which("make") or ""

pytestmark = pytest.mark.skipif(not MAKE, reason="needs make")
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / SERVERS).mkdir(parents=True)
    for name in ("Makefile", *(f"{SERVERS}/{name}" for name in ("package.json", "package-lock.json", ".npmrc"))):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody answers, and nobody will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"


def make(folder: Path, *goals: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    alone = {"npm_config_cache": str(folder / "cache"), "npm_config_fetch_retries": "0"}
    told = {**given, **alone, **env}
    return subprocess.run([MAKE, *goals], check=False, cwd=folder, env=told, capture_output=True, text=True)


def test_the_continuous_integration_runs_the_gate_that_the_readme_names() -> None:
    *_, command = (ROOT / ".ci" / "run").read_text().splitlines()
    gate = command.removeprefix("exec ")
    assert any(line.split(" #")[0].strip() == gate for line in (ROOT / "README.md").read_text().splitlines())


@needs_npm
def test_servers_that_cannot_be_fetched_are_done_without_and_npm_says_why(checkout: Path, nobody: str) -> None:
    done = make(checkout, READY, npm_config_registry=nobody)
    assert done.returncode == 0, done.stderr
    assert "ECONNREFUSED" in done.stderr
    assert (
        "the MCP servers could not be installed, for the reason above; the tests that talk to them need " in done.stderr
    )
    assert "Without them these tests are skipped" in done.stderr
    assert not (checkout / READY).exists()


@needs_npm
def test_a_gate_does_not_pass_without_the_servers(checkout: Path, nobody: str) -> None:
    in_ci = make(checkout, READY, npm_config_registry=nobody, CI="true")
    check = make(checkout, "-o", ".venv/.installed-dev", "check", npm_config_registry=nobody)
    for gate in (in_ci, check):
        assert gate.returncode != 0
        assert "the MCP servers could not be installed" in gate.stderr
        assert "skipped" not in gate.stderr


def test_without_npm_it_is_named(checkout: Path) -> None:
    done = make(checkout, READY, PATH=str(checkout))
    assert done.returncode == 0, done.stderr
    assert "there is no npm here: on Debian, apt install npm" in done.stderr
    assert make(checkout, READY, PATH=str(checkout), CI="true").returncode != 0
