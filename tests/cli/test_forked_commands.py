"""What the tests rely on: a command that is forked finds what a newly started one finds, and is as real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop
from servers.commands import ForkedCommand, environment, next_number, start_command

# Imported by every command that needs tools, before anything else is done.
PROBE = """
import json, os, signal, sys, threading, time
from pathlib import Path

stream = lambda one: [type(one).__name__, one.name, one.fileno(), one.mode, one.encoding, one.errors, one.line_buffering,
                      one.newlines, one.isatty(), one.closed]
Path("found.json").write_text(json.dumps({
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "environ": dict(os.environ), "zone": time.tzname,
    "main": [sys.modules["__main__"].__name__, sys.modules["__main__"].__spec__.name],
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "signals": {int(one): str(signal.getsignal(one)).split(" at ")[0] for one in signal.valid_signals()},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": threading.active_count(),
    "open": [name for name in os.listdir("/dev/fd") if int(name) < 3], "flags": list(sys.flags), "wake": signal.set_wakeup_fd(-1),
    "leads": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
}))
"""  # noqa: E501 -- one line for each thing that is compared


@pytest.fixture
def probed(shop: Workshop) -> Workshop:
    shop.write("holdfast.toml", 'modules = ["probe.py"]\n')
    shop.write("probe.py", PROBE)
    return shop


def found(shop: Workshop) -> dict[str, Any]:
    return json.loads((shop.folder / "found.json").read_text())


@pytest.mark.parametrize("new_session", [False, True])
def test_a_forked_command_finds_what_a_started_one_finds(
    probed: Workshop, new_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    more: dict[str, Any] = {
        "cwd": probed.folder, "env": environment(HOLDFAST_OWNER="Ada"), "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": new_session, "text": True,
    }  # fmt: skip
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with subprocess.Popen([sys.executable, "-m", "holdfast.cli", "tools", "--json"], **more) as started:
            said = started.communicate()
        seen = found(probed)
        del more["text"]
        with start_command(["tools", "--json"], **more) as forked:
            assert isinstance(forked, ForkedCommand)
            assert forked.communicate() == said
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert (started.returncode, forked.returncode) == (0, 0)
    assert {key: (value, seen[key]) for key, value in found(probed).items() if value != seen[key]} == {}


def test_the_end_of_a_command_may_be_told_together_with_its_pid() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"4711\n256\n")
        assert [next_number(ours), next_number(ours)] == [4711, 256]


def test_a_variable_that_only_a_starting_interpreter_reads_starts_one(probed: Workshop) -> None:
    process = probed.start("tools", PYTHONOPTIMIZE="1")
    assert not isinstance(process, ForkedCommand)
    probed.finish(process)
    assert found(probed)["environ"]["PYTHONOPTIMIZE"] == "1"


def test_a_forked_command_is_killed_waited_for_and_told_apart_by_its_code(shop: Workshop) -> None:
    running = shop.start("run", "gate.yaml")
    assert isinstance(running, ForkedCommand)
    shop.wait_for_log("gate begun")
    assert running.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=0.01)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == running.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{running.pid}").exists()
    assert shop.run("show", "nothing-like-it", code=None).code == 2
