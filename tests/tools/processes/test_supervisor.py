"""No subprocess outlives its engine, however it tries; real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.errors import Misconfigured, NotPermitted
from holdfast.core.failure import describe
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.tools.processes import spawn as processes_spawn
from holdfast.tools.processes import supervisor
from holdfast.tools.processes.pipes import PipeEnds
from holdfast.tools.processes.spawn import Exit, ProcessLost, keeper_pid, spawn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
DEADLINE_S = 10.0

# Leaves its session, its parent and its process group, as daemons do, and writes its own number.
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(f"{os.getpid()} ")
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.01)


def wait_for_pid(file: Path) -> int:
    """The number is followed by a space, so that half a number is not taken for one."""
    deadline = time.monotonic() + DEADLINE_S
    while not (file.exists() and file.read_text().endswith(" ")):
        assert time.monotonic() < deadline, f"{file} was never written"
        time.sleep(0.01)
    return int(file.read_text())


async def exit_code_of(argv: list[str]) -> int:
    process = await spawn(argv, cwd="/", env=os.environ)
    try:
        return (await process.wait()).code
    finally:
        process.close()


async def test_a_command_runs_with_its_folder_environment_and_input(tmp_path: Path) -> None:
    process = await spawn(
        ["sh", "-c", 'pwd; echo "$GREETING"; cat; echo oops >&2; exit 7'],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "GREETING": "hé\udcff"},
        stdin=b"from stdin\n",
    )
    out, err = await process.stdout.read(), await process.stderr.read()
    end = await process.wait()
    process.close()
    assert out == f"{tmp_path}\n".encode() + b"h\xc3\xa9\xff\nfrom stdin\n"
    assert err == b"oops\n"
    assert end.code == 7
    assert end.rss_bytes > 100_000
    assert 0 <= end.cpu_s < 10


async def test_a_command_starts_with_ordinary_signals_and_no_strange_descriptors() -> None:
    process = await spawn(["sh", "-c", "ls /proc/self/fd; grep SigIgn /proc/self/status"], cwd="/", env=os.environ)
    out = (await process.stdout.read()).decode().split()
    await process.wait()
    process.close()
    assert out[:3] == ["0", "1", "2"]
    assert out[3:5] == ["3", "SigIgn:"]  # 3 is the folder that ls itself reads
    assert int(out[5], 16) & 0x7FFF_FFFF == 0  # signals 1 to 31; those above belong to the C library's threads


async def test_input_that_is_never_read_holds_nobody_up() -> None:
    process = await spawn(["true"], cwd="/", env=os.environ, stdin=b"x" * 5_000_000)
    assert (await process.wait()).code == 0
    process.close()


def test_commands_work_from_one_event_loop_after_another() -> None:
    assert [asyncio.run(exit_code_of(["sh", "-c", "exit 3"])) for _ in range(3)] == [3, 3, 3]


async def test_many_commands_at_once_each_get_their_own_end() -> None:
    codes = await asyncio.gather(*(exit_code_of(["sh", "-c", f"exit {number}"]) for number in range(20)))
    assert codes == list(range(20))


async def test_a_very_long_command_line_arrives_whole() -> None:
    environment = {"PATH": os.environ["PATH"], **{f"V{number}": "x" * 100_000 for number in range(12)}}
    process = await spawn(["sh", "-c", "echo ${#V11}"], cwd="/", env=environment)
    assert await process.stdout.read() == b"100000\n"
    await process.wait()
    process.close()


async def test_a_command_that_cannot_start_says_why_and_had_no_effect(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo")
    with pytest.raises(
        Misconfigured, match=r'no such program: "no-such-program"; install it or correct the command'
    ) as e:
        await spawn(["no-such-program"], cwd="/", env=os.environ)
    assert describe(e.value).happened == "nothing"
    with pytest.raises(Misconfigured, match=r"cannot run in the folder /nowhere: No such file or directory; create it"):
        await spawn(["true"], cwd="/nowhere", env=os.environ)
    with pytest.raises(NotPermitted, match=r'the program ".*plain" may not be run: Permission denied; check its perm'):
        await spawn([str(plain)], cwd="/", env=os.environ)
    plain.chmod(0o755)
    with pytest.raises(Misconfigured, match=r'".*plain" could not be started: Exec format error; correct the command'):
        await spawn([str(plain)], cwd="/", env=os.environ)
    with pytest.raises(
        Misconfigured, match=r"a command needs a program, and no part of it may contain a NUL character"
    ):
        await spawn(["echo", "a\0b"], cwd="/", env=os.environ)


async def test_killing_asks_first_and_then_insists() -> None:
    polite = await spawn(["sh", "-c", "trap 'exit 5' TERM; echo ready; sleep 600 & wait"], cwd="/", env=os.environ)
    stubborn = await spawn(["sh", "-c", "trap '' TERM; echo ready; sleep 600 & wait"], cwd="/", env=os.environ)
    for process in (polite, stubborn):
        await process.stdout.readline()
    await polite.kill(grace_s=DEADLINE_S)
    await stubborn.kill(grace_s=0.05)
    assert (await polite.wait()).code == 5
    assert (await stubborn.wait()).code == -signal.SIGKILL
    await stubborn.kill()  # a second time changes nothing
    polite.close()
    stubborn.close()


async def test_whatever_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    bystander = await spawn(["sleep", "600"], cwd="/", env=os.environ)
    script = (
        f'sleep 600 & echo $!; setsid sleep 601 & echo $!; "$0" -c "$1" {file}; '
        f"while [ ! -s {file} ]; do sleep 0.01; done"
    )
    process = await spawn(["sh", "-c", script, sys.executable, DAEMON], cwd="/", env=os.environ)
    assert (await process.wait()).code == 0
    left = [int(line) for line in (await process.stdout.read()).split()]
    wait_until_gone([*left, wait_for_pid(file)])
    assert len(left) == 2
    assert is_alive(bystander.pid)
    process.close()
    bystander.close()
    wait_until_gone([bystander.pid])


async def test_output_ends_with_the_command_even_if_somebody_else_holds_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes_spawn, "OUTPUT_GRACE_S", 0.05)
    process = await spawn(["sh", "-c", "echo ready; read line; echo done"], cwd="/", env=os.environ, talks=True)
    assert await process.stdout.readline() == b"ready\n"
    held = os.open(f"/proc/{process.pid}/fd/1", os.O_WRONLY)  # as a process of another user might, that nobody may end
    await process.write(b"go\n")
    assert await asyncio.wait_for(process.stdout.read(), DEADLINE_S) == b"done\n"
    assert (await process.wait()).code == 0
    os.close(held)
    process.close()


# Drops its environment and lowers every limit that it may, so that nothing it was given tells where it came from.
HIDDEN = "import resource\nresource.setrlimit(10, (5, 5))\n" + DAEMON.replace(
    "time.sleep(600)", "os.execve('/bin/sleep', ['sleep', '600'], {})"
)


async def test_a_daemon_that_hides_where_it_came_from_ends_with_its_command_and_nobody_else_does(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pid"
    bystander = await spawn(["sleep", "600"], cwd="/", env=os.environ)
    script = f'env -i "$0" -c "$1" {file}; while [ ! -s {file} ]; do sleep 0.01; done'
    process = await spawn(["sh", "-c", script, sys.executable, HIDDEN], cwd="/", env=os.environ)
    assert (await process.wait()).code == 0
    assert not is_alive(wait_for_pid(file))
    assert is_alive(bystander.pid)
    process.close()
    bystander.close()


async def test_a_command_is_told_nothing_by_which_it_could_pass_for_another() -> None:
    process = await spawn(["env"], cwd="/", env={"PATH": os.environ["PATH"]})
    assert (await process.stdout.read()).decode() == f"PATH={os.environ['PATH']}\n"
    await process.wait()
    process.close()


@pytest.mark.parametrize("limits", [None, DEFAULTS], ids=["unwatched", "watched"])
async def test_a_command_that_kills_its_warden_dies_with_all_it_started_and_nobody_else_does(
    tmp_path: Path, limits: Resources | None
) -> None:
    file = tmp_path / "pid"
    bystander = await spawn(["sleep", "600"], cwd="/", env=os.environ, resources=limits)
    script = (
        f'"$0" -c "$1" {file}; while [ ! -s {file} ]; do sleep 0.01; done; '
        "setsid sleep 600 & echo $!; kill -9 $PPID; sleep 600"
    )
    process = await spawn(["sh", "-c", script, sys.executable, HIDDEN], cwd="/", env=os.environ, resources=limits)
    left = int(await process.stdout.readline())
    assert (await asyncio.wait_for(process.wait(), DEADLINE_S)).code == -signal.SIGKILL
    wait_until_gone([left, wait_for_pid(file), process.pid])
    assert is_alive(bystander.pid)
    process.close()
    await bystander.kill(grace_s=0)
    bystander.close()


async def test_a_command_that_stops_its_warden_can_still_be_killed() -> None:
    process = await spawn(["sh", "-c", "kill -STOP $PPID; echo ready; sleep 600"], cwd="/", env=os.environ)
    await process.stdout.readline()
    await asyncio.wait_for(process.kill(grace_s=0.01), DEADLINE_S)
    assert (await process.wait()).code in (-signal.SIGTERM, -signal.SIGKILL)
    process.close()


async def test_a_cancelled_start_leaves_no_process() -> None:
    task = asyncio.create_task(spawn(["sleep", "612"], cwd="/", env=os.environ))
    await asyncio.sleep(0)  # far enough to have asked, not far enough to have an answer
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline = time.monotonic() + DEADLINE_S
    while any("sleep\0612" in _command_line(name) for name in os.listdir("/proc") if name.isdigit()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def test_if_the_keeper_is_killed_its_commands_die_and_the_next_one_gets_a_new_keeper(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = await spawn([sys.executable, "-c", DAEMON, str(file)], cwd="/", env=os.environ)
    assert (await process.wait()).code == 0  # the daemon is killed with its command; one that still runs is next
    held = await spawn(["sh", "-c", "setsid sleep 600 & echo $!; wait"], cwd="/", env=os.environ)
    escaped = int(await held.stdout.readline())
    old = keeper_pid()
    assert old is not None
    os.kill(old, signal.SIGKILL)
    with pytest.raises(ProcessLost, match="the command with it; whether it had done its work is unknown") as caught:
        await held.wait()
    assert describe(caught.value).happened == "unknown"
    wait_until_gone([held.pid, escaped])
    held.close()
    process.close()
    again = await spawn(["true"], cwd="/", env=os.environ)
    assert isinstance(await again.wait(), Exit)
    again.close()
    assert keeper_pid() != old


async def test_if_the_keeper_is_killed_even_a_daemon_without_an_environment_dies_with_its_command_and_nobody_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pid"
    code = DAEMON.replace("time.sleep(600)", "os.execve('/bin/sleep', ['sleep', '600'], {})")
    held = await spawn(["sh", "-c", '"$0" -c "$1" "$2"; sleep 600', sys.executable, code, str(file)], cwd="/", env={})
    daemon = await asyncio.to_thread(wait_for_pid, file)
    other = tmp_path / "other"  # of another engine
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER_ENGINE, str(other), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        stranger = await asyncio.to_thread(wait_for_pid, other)
        old = keeper_pid()
        assert old is not None
        os.kill(old, signal.SIGKILL)
        with pytest.raises(ProcessLost):
            await held.wait()
        wait_until_gone([held.pid, daemon])
        assert is_alive(stranger)
    finally:
        held.close()
        assert engine.stdin is not None
        engine.stdin.close()
        await engine.wait()


OTHER_ENGINE = """
import asyncio, os, sys
from holdfast.tools.processes.spawn import spawn
async def main():
    process = await spawn(["sleep", "600"], cwd="/", env={"PATH": os.environ["PATH"]})
    with open(sys.argv[1], "w") as file:
        file.write(f"{process.pid} ")
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


def test_the_keeper_survives_what_a_terminal_or_service_manager_sends() -> None:
    async def scenario() -> None:
        process = await spawn(["sh", "-c", "echo ready; read line; exit 4"], cwd="/", env=os.environ, stdin=b"go\n")
        await process.stdout.readline()
        pid = keeper_pid()
        assert pid is not None
        assert os.getsid(pid) == pid
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        assert (await process.wait()).code == 4
        process.close()
        assert keeper_pid() == pid

    asyncio.run(scenario())


ENGINE = """
import asyncio, os, sys
from holdfast.tools.processes.spawn import keeper_pid, spawn

async def main():
    folder, daemon, forked = sys.argv[1:4]
    commands = [
        ["sleep", "600"],
        ["sh", "-c", "sleep 600 & wait"],
        ["sh", "-c", 'setsid sleep 600 & printf "%s " $! > "$0/setsid"; wait', folder],
        ["sh", "-c", '"$0" -c "$1" "$2"; exec sleep 600', sys.executable, daemon, folder + "/daemon"],
        ["env", "-i", sys.executable, "-c", "import time; import os; os.fork(); time.sleep(600)"],
    ]
    pids = [(await spawn(argv, cwd="/", env=os.environ)).pid for argv in commands]
    if forked == "forked" and os.fork() == 0:
        open(folder + "/fork", "w").write(f"{os.getpid()} ")
        while True:
            import time; time.sleep(600)
    print(*pids, keeper_pid(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("forked", ["alone", "forked"])
def test_nothing_outlives_an_engine_killed_with_sigkill(tmp_path: Path, forked: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    engine = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ENGINE, str(tmp_path), DAEMON, forked],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert engine.stdout is not None
    try:
        pids = [int(word) for word in engine.stdout.readline().split()]
        pids += [wait_for_pid(tmp_path / "setsid"), wait_for_pid(tmp_path / "daemon")]
        assert len(pids) == 8
        assert all(is_alive(pid) for pid in pids)
        engine.kill()
        wait_until_gone(pids)
    finally:
        engine.kill()
        engine.wait()
        engine.stdout.close()
        if (tmp_path / "fork").exists():
            os.kill(wait_for_pid(tmp_path / "fork"), signal.SIGKILL)


def test_an_engine_that_ends_normally_takes_its_commands_along(tmp_path: Path) -> None:
    program = (
        "import asyncio, os\n"
        "from holdfast.tools.processes.spawn import spawn, keeper_pid\n"
        "async def main():\n"
        "    print((await spawn(['sleep', '600'], cwd='/', env=os.environ)).pid, keeper_pid())\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, check=True, timeout=30
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


def test_a_forked_copy_of_the_engine_gets_a_keeper_of_its_own() -> None:
    asyncio.run(exit_code_of(["true"]))
    assert keeper_pid() is not None
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(keeper_pid()).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as answer:
        assert answer.read() == "None"
    assert processes_spawn.keeper_pid() is not None


def test_the_keeper_runs_on_the_bare_standard_library_and_leaves_with_its_engine() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), str(os.getpid())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        ours.close()
        assert process.wait(DEADLINE_S) == 0


async def test_a_daemon_without_an_environment_ends_with_its_command(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f'env -i "$0" -c "$1" {file}; while [ ! -s {file} ]; do sleep 0.01; done'
    process = await spawn(["sh", "-c", script, sys.executable, DAEMON], cwd="/", env=os.environ)
    assert (await process.wait()).code == 0
    process.close()
    wait_until_gone([wait_for_pid(file)])


@pytest.mark.parametrize("turns", range(6), ids=lambda turns: f"after {turns} turns of the loop")
@pytest.mark.parametrize("unread", [b"", b"x" * 1_000_000], ids=["nothing written", "more than a pipe holds"])
async def test_pipes_are_let_go_of_once_whenever_the_other_side_went(turns: int, unread: bytes) -> None:
    """The loop complains on stderr of a pipe that is closed twice."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
    ends, theirs = await PipeEnds.open(None, talks=True)
    assert ends.inlet is not None
    writing = asyncio.ensure_future(ends.inlet.write(unread))
    await asyncio.sleep(0)
    for descriptor in theirs:
        os.close(descriptor)
    for _ in range(turns):
        await asyncio.sleep(0)
    ends.close()
    ends.close()
    await writing
    await ends.stdout.read()
    for _ in range(3):
        await asyncio.sleep(0)
    assert complaints == []


async def test_if_keeper_and_warden_are_killed_at_once_the_system_ends_the_command(tmp_path: Path) -> None:
    process = await spawn(["sleep", "60"], cwd=tmp_path, env=os.environ)
    warden, keeper_process = parent_of(process.pid), keeper_pid()
    assert keeper_process is not None
    os.kill(keeper_process, signal.SIGSTOP)  # so that neither can do anything for the other
    os.kill(warden, signal.SIGKILL)
    os.kill(keeper_process, signal.SIGKILL)
    with pytest.raises(ProcessLost):
        await process.wait()
    await asyncio.to_thread(wait_until_gone, [process.pid])
    process.close()
