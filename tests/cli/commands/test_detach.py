"""`run --detach`: on disk first, then a process of its own that survives the terminal, and a log with a limit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop, wait_until
from holdfast.cli.commands.detach import LOGS_KEPT
from holdfast.cli.output.rotating_log import BoundedLog
from servers.commands import environment, start_at_terminal


class Yard(Workshop):
    """A workshop that also tidies up the processes that were detached from it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.detached: list[int] = []

    def detach(self, *arguments: str, **environ: Any) -> dict[str, Any]:
        answer = self.run(*arguments, "--json", **environ).json
        self.detached.append(answer["pid"])
        return answer

    def kill_all(self) -> None:
        super().kill_all()
        for pid in self.detached:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.kill_all()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(OSError):  # a container may have nobody who collects the dead
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def test_the_answer_is_the_id_and_the_background_goes_on(yard: Yard) -> None:
    answer = yard.detach("run", "gate.yaml", "-d")
    yard.wait_for_log("gate begun")
    assert yard.newest()["id"] == answer["id"]
    assert os.getsid(answer["pid"]) == answer["pid"]
    assert f"watch it: holdfast watch {answer['id']}" in answer["text"]
    yard.open_gate()
    yard.wait_for_status("completed")
    wait_until(lambda: is_gone(answer["pid"]), "the process's end")
    log = Path(answer["log"]).read_text()
    assert log.startswith(f"gate is execution {answer['id']}")
    assert f"look at it: holdfast show {answer['id']}" in log


def test_for_people_the_id_alone_is_on_stdout(yard: Yard) -> None:
    yard.open_gate()
    answered = yard.run("run", "gate.yaml", "--detach")
    yard.wait_for_status("completed")
    assert answered.out == f"{yard.newest()['id']}\n"
    assert "drives it; watch it: " in answered.err


def test_it_survives_the_terminal_it_was_started_from(yard: Yard) -> None:
    arguments = ["run", "gate.yaml", "-d"]
    process, terminal = start_at_terminal(arguments, cwd=yard.folder, env=environment(TERM="xterm"))
    yard.wait_for_log("gate begun")
    os.close(terminal)
    process.wait()
    assert yard.newest()["driven"] is True
    yard.open_gate()
    yard.wait_for_status("completed")
    assert yard.log() == ["before ran", "gate begun", "gate ended", "after ran"]


def test_a_hangup_is_ignored_and_sigterm_drains(yard: Yard) -> None:
    answer = yard.detach("run", "gate.yaml", "-d", HOLDFAST_LIMITS_DRAIN_S="0")
    yard.wait_for_log("gate begun")
    os.kill(answer["pid"], signal.SIGHUP)
    assert not is_gone(answer["pid"])
    os.kill(answer["pid"], signal.SIGTERM)
    wait_until(lambda: is_gone(answer["pid"]), "the process's end")
    assert (yard.newest()["status"], yard.newest()["driven"]) == ("running", False)
    assert f"letting go; it goes on with: holdfast resume {answer['id']}" in Path(answer["log"]).read_text()


def test_a_killed_background_is_resumed_in_front_or_behind(yard: Yard) -> None:
    answer = yard.detach("run", "gate.yaml", "-d")
    yard.wait_for_log("gate begun")
    os.kill(answer["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(answer["pid"]), "the process's end")
    assert (yard.newest()["status"], yard.newest()["driven"]) == ("running", False)
    again = yard.detach("resume", answer["id"], "-d")
    assert (again["id"], again["log"]) == (answer["id"], answer["log"])
    wait_until(lambda: yard.log().count("gate begun") == 2, "the gate's second attempt")
    os.kill(again["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(again["pid"]), "the process's end")
    yard.open_gate()
    *_, last = yard.run("resume", answer["id"], "--json").lines
    assert last["status"] == "completed"
    assert yard.log().count("before ran") == 1


def test_the_background_waits_for_people_and_goes_on_with_their_answer(yard: Yard) -> None:
    answer = yard.detach("run", "ask.yaml", "-d")
    yard.wait_for_status("waiting")
    assert not is_gone(answer["pid"])
    said = yard.run("approve", answer["id"]).out
    assert "nobody is driving it" not in said
    yard.wait_for_status("completed")
    wait_until(lambda: is_gone(answer["pid"]), "the process's end")


def test_a_process_that_cannot_start_leaves_the_task_on_disk(yard: Yard) -> None:
    (yard.folder / ".holdfast").mkdir()
    (yard.folder / ".holdfast" / "logs").write_text("a file where the folder should be")
    failed = yard.run("run", "two.yaml", "-d", "--json", code=1)
    assert failed.json["pid"] is None
    identity = failed.json["id"]
    assert "it is on disk, but its process could not start (" in failed.json["text"]
    assert failed.json["text"].endswith(f"go on with: holdfast resume {identity}")
    assert yard.newest()["status"] == "queued"
    yard.run("resume", identity)
    assert yard.newest()["status"] == "completed"


def test_a_process_that_dies_at_once_is_told_with_its_last_words(yard: Yard) -> None:
    # The module is there when the task is handed in, and breaks whoever loads it next.
    yard.write("tools.py", (yard.folder / "tools.py").read_text() + "\nimport twice\n")
    yard.write("twice.py", "import pathlib\npathlib.Path(__file__).write_text('raise ValueError(5)')\n")
    failed = yard.run("run", "two.yaml", "-d", "--json", code=1).json
    assert "ValueError" in failed["text"]
    assert failed["pid"] is None


@pytest.mark.parametrize("other", ["--hold", "--check"])
def test_detach_does_not_go_with_what_starts_nothing(yard: Yard, other: str) -> None:
    refused = yard.run("run", "two.yaml", "-d", other, code=2).err
    assert refused == "holdfast: --detach starts it, --hold and --check do not; give one of them\n"


def test_a_store_in_memory_cannot_be_left_behind(yard: Yard) -> None:
    refused = yard.run("run", "two.yaml", "-d", "--store", "memory:", code=2).err
    assert refused == "holdfast: --detach: a store in memory ends with its process; use a file\n"


def test_what_is_driven_or_over_already_gets_no_second_process(yard: Yard) -> None:
    answer = yard.detach("run", "gate.yaml", "-d", "--key", "k")
    yard.wait_for_log("gate begun")
    again = yard.run("run", "gate.yaml", "-d", "--key", "k", "--json").json
    assert (again["id"], again["pid"], again["text"]) == (answer["id"], None, "another process drives it already")
    yard.open_gate()
    yard.wait_for_status("completed")
    again = yard.run("run", "gate.yaml", "-d", "--key", "k", "--json").json
    assert (again["pid"], again["text"]) == (None, "it is completed already")


def test_nohup_is_respected(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    process.send_signal(signal.SIGHUP)
    shop.finish(process, 129)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = shop.start("resume", "@last")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_until(lambda: shop.log().count("gate begun") == 2, "the second attempt")
    process.send_signal(signal.SIGHUP)
    shop.open_gate()
    shop.finish(process, 0)


# ---- the log -------------------------------------------------------------------------------------------------------


def test_a_log_never_grows_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    kept, pid = os.dup(1), os.fork()
    os.close(kept)
    if pid == 0:  # it takes the process's own output over
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        log = BoundedLog(path, bytes_max=1000)
        for number in range(500):
            log.write(f"line {number} ü\n")
        log.write("x" * 5000 + "\n")
        os.write(2, b"a library says so\n")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["x.log", "x.log.1"]
    assert sum(file.stat().st_size for file in files) <= 1000 + len("a library says so\n")
    assert "a library says so" in path.read_text()


def test_old_logs_are_removed_when_there_are_too_many(yard: Yard) -> None:
    logs = yard.folder / ".holdfast" / "logs"
    logs.mkdir(parents=True)
    for number in range(2 * LOGS_KEPT + 5):
        (logs / f"{number}.log").touch()
        os.utime(logs / f"{number}.log", (number, number))
    yard.open_gate()
    yard.detach("run", "gate.yaml", "-d")
    names = {path.name for path in logs.iterdir()}
    assert "4.log" not in names
    assert "5.log" in names
    yard.wait_for_status("completed")
