"""Each limit of a command is attacked, beside a neighbour that must not notice. Real processes, small limits.

Every attack ends by itself, should a limit not hold: it is bounded in time, in memory and in number.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ResourceShort, ToolError
from holdfast.core.failure import describe
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.tools.call import Call
from holdfast.tools.processes import proc_tree
from holdfast.tools.processes import spawn as processes_spawn
from holdfast.tools.processes.spawn import Exit, spawn
from holdfast.tools.shell import tool as shell_tool
from holdfast.tools.toolset import HERE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MB = 1_000_000
PYTHON = [sys.executable, "-I", "-S", "-c"]

HOG = """
import time
held = []
for _ in range(60):  # 600 MB at most
    held.append(bytearray(b"x" * 10_000_000))
    time.sleep(0.005)
time.sleep(60)
"""
# Each child takes little; only together they take too much.
HERD = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1000) * 20_000)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
# All of it is one and the same memory, which is not eight times as much.
SHARED = """
import os, time
held = bytearray(os.urandom(1000) * 40_000)
pids = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        time.sleep(2)
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
"""
# Doubles for ten generations, away from its session; a thousand processes at most, each for a minute at most.
BOMB = """
import os, time
for _ in range(10):
    os.fork()
    os.setsid() if os.getpid() != os.getsid(0) else None
    time.sleep(0.01)
time.sleep(60)
"""
SPINNER = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
# The work is done by children that are waited for, none of which is over the limit by itself.
SPINNERS = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        end = time.process_time() + 0.1
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""
LEAK = """
held = []
for _ in range(5000):
    held.append(open("/dev/null"))
"""
FILLER = """
with open("big", "wb") as file:
    for _ in range(200):
        file.write(b"x" * 1_000_000)
"""
FILLERS = """
import os, time
for number in range(200):
    with open(f"part{number}", "wb") as file:
        file.write(os.urandom(1_000_000))
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.01)
time.sleep(60)
"""


async def attack(folder: Path, program: str, **limits: Any) -> tuple[ResourceShort, Call]:
    call = Call("execution", "step", 1, "key", folder)
    call.resources = Resources(**limits).over(DEFAULTS)
    (tool,) = shell_tool.Shell(shell_tool.Config(), HERE).tools()
    with pytest.raises(ResourceShort) as caught:
        async with asyncio.timeout(60):
            await tool.invoke(tool.validate({"command": [*PYTHON, program]}), call)
    assert describe(caught.value).category == "resource"
    return caught.value, call


@pytest.fixture
async def neighbour(tmp_path: Path) -> Any:
    """A command kept by the same keeper all the while; it must end as if nothing had been."""
    waits = "while [ ! -e over ]; do sleep 0.02; done; echo undisturbed"
    process = await spawn(["sh", "-c", waits], cwd=tmp_path, env=os.environ, resources=DEFAULTS)
    yield process
    (tmp_path / "over").touch()
    assert await process.stdout.read() == b"undisturbed\n"
    assert (await process.wait()).code == 0
    process.close()


def left_over() -> list[int]:
    """What still runs below the keeper."""
    keeper = processes_spawn.keeper_pid()
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    living = [pid for pid in children if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]
    return [int(pid) for pid in living]


def keeper_bytes() -> int:
    pages = Path(f"/proc/{processes_spawn.keeper_pid()}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def wait_until_alone() -> None:
    async with asyncio.timeout(60):
        while left_over():  # noqa: ASYNC110 -- there is nothing to wait for but the fact itself
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("program", [HOG, HERD], ids=["one process", "eight processes"])
async def test_a_memory_hog_is_ended(tmp_path: Path, program: str) -> None:
    error, call = await attack(tmp_path, program, memory_bytes=100 * MB)
    assert str(error).startswith("it used ")
    assert "of memory, and 100 MB are allowed, so it was ended: " in str(error)
    assert "raise resources.memory of the step, the task or the settings" in str(error)
    assert call.used is not None
    assert 100 * MB < (call.used.memory_bytes or 0) < 400 * MB


async def test_a_command_that_is_refused_memory_is_told_its_limit(tmp_path: Path) -> None:
    call = Call("execution", "step", 1, "key", tmp_path)
    call.resources = Resources(memory_bytes=64 * MB).over(DEFAULTS)
    (tool,) = shell_tool.Shell(shell_tool.Config(), HERE).tools()
    with pytest.raises(ToolError, match="exit code 1 from: ") as caught:  # it never had what it asked for
        await tool.invoke(tool.validate({"command": [*PYTHON, "bytearray(10**9)"]}), call)
    assert "MemoryError\n(its limit of memory is " in str(caught.value)
    with pytest.raises(ToolError) as caught:
        await tool.invoke(tool.validate({"command": "exit 4"}), call)
    assert "memory" not in str(caught.value)


async def test_memory_that_processes_share_is_counted_once(tmp_path: Path) -> None:
    process = await spawn([*PYTHON, SHARED], cwd=tmp_path, env={}, resources=Resources(memory_bytes=150 * MB))
    end = await process.wait()
    process.close()
    assert (end.code, end.over) == (0, "")
    assert (end.processes or 0) >= 8


@pytest.mark.usefixtures("neighbour")
async def test_a_fork_bomb_is_ended_with_all_its_pieces(tmp_path: Path) -> None:
    error, call = await attack(tmp_path, BOMB, processes=30)
    assert "processes at once, and 30 are allowed, so it was ended: " in str(error)
    assert call.used is not None
    assert (call.used.processes or 0) > 30


@pytest.mark.parametrize("program", [SPINNER, SPINNERS], ids=["one process", "a hundred processes"])
@pytest.mark.usefixtures("neighbour")
async def test_a_spinner_is_ended(tmp_path: Path, program: str) -> None:
    error, call = await attack(tmp_path, program, cpu_s=0.5)
    assert "of CPU time, and 0.5 s are allowed, so it was ended: " in str(error)
    assert call.used is not None
    assert 0.5 < (call.used.cpu_s or 0) < 5


@pytest.mark.usefixtures("neighbour")
async def test_a_handle_leak_is_stopped_at_its_limit(tmp_path: Path) -> None:
    error, _ = await attack(tmp_path, LEAK, open_files=50)
    assert str(error).startswith("it wanted more than 50 open files in one process, which is its limit: ")
    assert "Too many open files" in str(error)


@pytest.mark.usefixtures("neighbour")
async def test_a_disk_filler_is_stopped_at_its_limit(tmp_path: Path) -> None:
    error, _ = await attack(tmp_path, FILLER, disk_bytes=5 * MB)
    assert re.match(
        "it wrote (more than 5 MB to disk, which is its limit|5.* MB to disk, and 5 MB are allowed)", str(error)
    )
    assert (tmp_path / "big").stat().st_size <= 5 * MB + 2 * proc_tree.DISK_SLACK_BYTES
    (tmp_path / "big").unlink()


@pytest.mark.usefixtures("neighbour")
async def test_many_small_files_fill_no_disk_either(tmp_path: Path) -> None:
    error, call = await attack(tmp_path, FILLERS, disk_bytes=10 * MB)
    assert "to disk, and 10 MB are allowed, so it was ended: " in str(error)
    assert call.used is not None
    assert 10 * MB < (call.used.disk_bytes or 0) < 150 * MB


@pytest.mark.parametrize(
    "command",
    [
        "cat /dev/zero | head -c 9000000 > big; echo finished",
        "dd if=/dev/zero of=big bs=1M count=50; rm -f big; echo finished",
        "for part in a b c; do head -c 1500000 /dev/zero > $part; done; echo finished",
        "(setsid sh -c 'head -c 3000000 /dev/zero > big; touch done' &) ; until [ -e done ]; do sleep 0.01; done",
        "truncate -s 9M big; echo finished",
    ],
    ids=["in a pipeline", "removed at once", "in several files", "by one that left", "a hole"],
)
async def test_what_a_child_writes_beyond_the_limit_is_never_passed_over(tmp_path: Path, command: str) -> None:
    """The system ends only the child, and the shell goes on and ends well."""
    call = Call("execution", "step", 1, "key", tmp_path)
    call.resources = Resources(disk_bytes=2 * MB).over(DEFAULTS)
    (tool,) = shell_tool.Shell(shell_tool.Config(), HERE).tools()
    with pytest.raises(ResourceShort, match=r"it wrote .* to disk, (and 2 MB are allowed|which is its limit)"):
        await tool.invoke(tool.validate({"command": command}), call)


@pytest.mark.skipif(not shutil.which("bash"), reason="it is about bash")
async def test_the_words_of_bash_about_a_child_that_met_the_limit_are_believed(tmp_path: Path) -> None:
    call = Call("execution", "step", 1, "key", tmp_path)
    call.resources = Resources(disk_bytes=2 * MB).over(DEFAULTS)
    (tool,) = shell_tool.Shell(shell_tool.Config(), HERE).tools()
    (tmp_path / "script").write_text("truncate -s 9M big\necho finished\n")
    for command in (["bash", "-c", "truncate -s 9M big; echo finished"], ["bash", "script"]):
        with pytest.raises(ResourceShort, match="it wrote more than 2 MB to disk, which is its limit: bash"):
            await tool.invoke(tool.validate({"command": command}), call)


@pytest.mark.parametrize(
    "words", ["zsh: File size limit exceeded (hint from a log)", "exit 3 means: File size limit exceeded"]
)
async def test_a_command_that_ended_well_may_speak_of_the_limit(tmp_path: Path, words: str) -> None:
    (tool,) = shell_tool.Shell(shell_tool.Config(), HERE).tools()
    call = Call("execution", "step", 1, "key", tmp_path)
    done = await tool.invoke(tool.validate({"command": f"echo '{words}' >&2"}), call)
    assert (done["exit_code"], done["stderr"]) == (0, f"{words}\n")
    with pytest.raises(ResourceShort, match="it wrote more than 10 GB to disk, which is its limit"):
        await tool.invoke(tool.validate({"command": f"echo '{words}' >&2; exit 3"}), call)


async def test_a_file_of_just_the_allowed_size_may_be_written(tmp_path: Path) -> None:
    command = ["sh", "-c", "head -c 2000000 /dev/zero > big"]
    process = await spawn(command, cwd=tmp_path, env=os.environ, resources=Resources(disk_bytes=2 * MB))
    end = await process.wait()
    process.close()
    assert (end.code, end.over) == (0, "")
    assert (tmp_path / "big").stat().st_size == 2 * MB


# Room that is reserved and not written; no file is beyond the limit by itself, and each attack takes 400 MB at most.
RESERVER = """
import os, time
held = []
for number in range(100):
    held.append(os.open(f"part{number}", os.O_CREAT | os.O_RDWR))
    os.posix_fallocate(held[-1], 0, 4_000_000)
    time.sleep(0.01)
time.sleep(60)
"""
QUICK_RESERVER = """
import os, time
for number in range(4000):
    one = os.open(f"part{number % 400}", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(one, 0, 1_000_000)
    time.sleep(0.002)
    os.close(one)
time.sleep(60)
"""


@pytest.fixture
def own_folder(tmp_path: Path) -> Any:
    """Below that of the neighbour; what was reserved there is given back."""
    (tmp_path / "own").mkdir()
    yield tmp_path / "own"
    shutil.rmtree(tmp_path / "own")


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("program", [RESERVER, QUICK_RESERVER], ids=["held open", "soon closed"])
async def test_whoever_reserves_more_than_allowed_without_writing_is_held_to_it(own_folder: Path, program: str) -> None:
    error, call = await attack(own_folder, program, disk_bytes=10 * MB)
    assert re.match(r"it wrote [\d.]+ MB to disk, and 10 MB are allowed, so it was ended: ", str(error))
    assert call.used is not None
    assert (call.used.disk_bytes or 0) > 10 * MB


@pytest.mark.parametrize("place", ["", "sub"], ids=["beside it", "from above"])
async def test_whoever_reserves_nothing_does_not_pay_for_what_others_write_into_its_folder(
    own_folder: Path, place: str
) -> None:
    (own_folder / place).mkdir(exist_ok=True)
    calm = await spawn(
        ["sh", "-c", "while [ ! -e over ]; do sleep 0.02; done; sleep 0.3"],
        cwd=own_folder / place, env=os.environ, resources=Resources(disk_bytes=2 * MB),
    )  # fmt: skip
    (own_folder / place / "big").write_bytes(b"x" * 20 * MB)
    (own_folder / place / "over").touch()
    assert (await calm.wait()).over == ""
    calm.close()


@pytest.mark.parametrize(
    "program",
    [
        "for n in range(9):\n with open(f'hole{n}', 'wb') as file: file.truncate(1_900_000); time.sleep(0.05)",
        "with open('old', 'r+b') as file: time.sleep(0.3); file.write(b'x')",
        "with open('new', 'wb') as file:\n for _ in range(18): file.write(b'x' * 100_000); time.sleep(0.02)",
        "one = os.open('new', os.O_CREAT | os.O_RDWR); os.posix_fallocate(one, 0, 1_800_000)\n"
        "for _ in range(18): os.write(one, b'x' * 100_000); time.sleep(0.02)",
    ],
    ids=["holes", "a large file that was there", "an ordinary writer", "reserved first, then written"],
)
async def test_whoever_takes_no_more_room_than_allowed_is_left_alone(own_folder: Path, program: str) -> None:
    (own_folder / "old").write_bytes(b"x" * 9 * MB)
    program = f"import os, time\n{program}"
    process = await spawn([*PYTHON, program], cwd=own_folder, env={}, resources=Resources(disk_bytes=2 * MB))
    end = await process.wait()
    process.close()
    assert (end.code, end.over) == (0, "")


async def test_whoever_computes_for_long_lets_others_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_spawn, "NICE_AFTER_S", 0.1)
    told = "import os, time\nend = time.monotonic() + 30\n" + (
        "while os.getpriority(os.PRIO_PROCESS, 0) < 10 and time.monotonic() < end: pass\n"
        "print(os.getpriority(os.PRIO_PROCESS, 0))"
    )
    process = await spawn([*PYTHON, told], cwd=tmp_path, env={}, resources=DEFAULTS)
    assert await process.stdout.read() == b"10\n"
    await process.wait()
    process.close()


async def test_a_descendant_that_leaves_session_and_parent_still_counts(tmp_path: Path) -> None:
    """It forks twice, calls setsid, empties its environment and then spins; its starter waits for nothing."""
    away = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        os.execve(sys.executable, ['python', '-I', '-S', '-c', {SPINNER!r}], {{}})\n"
        "    os._exit(0)\n"
        "time.sleep(60)\n"
    )
    error, _ = await attack(tmp_path, away, cpu_s=0.5)
    assert "of CPU time" in str(error)
    await wait_until_alone()


# Nothing that was inherited tells any more where these came from.
HIDE = """
import os, resource, sys, time
resource.setrlimit(10, (5, 5))
def away(program):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, ["python", "-I", "-S", "-c", program], {})
        os._exit(0)
    os.wait()
"""


@pytest.mark.usefixtures("neighbour")
async def test_memory_of_a_descendant_that_hides_where_it_came_from_counts(tmp_path: Path) -> None:
    error, _ = await attack(tmp_path, HIDE + f"away({HOG!r})\ntime.sleep(60)", memory_bytes=100 * MB)
    assert "of memory, and 100 MB are allowed, so it was ended: " in str(error)


@pytest.mark.usefixtures("neighbour")
async def test_descendants_that_hide_where_they_came_from_are_counted(tmp_path: Path) -> None:
    many = HIDE + "for _ in range(60): away('import time; time.sleep(60)')\ntime.sleep(60)"
    error, _ = await attack(tmp_path, many, processes=10)
    assert "processes at once, and 10 are allowed, so it was ended: " in str(error)


async def test_a_process_whose_first_thread_has_ended_still_counts(tmp_path: Path) -> None:
    """To the system such a process looks dead, with no memory of its own."""
    headless = (
        "import ctypes, os, threading\n"
        f"threading.Thread(target=exec, args=({HOG!r}, {{}})).start()\n"
        "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n"  # exit, of one thread
    )
    error, _ = await attack(tmp_path, headless, memory_bytes=100 * MB)
    assert "of memory, and 100 MB are allowed, so it was ended: " in str(error)
    await wait_until_alone()


@pytest.mark.usefixtures("neighbour")
async def test_cpu_time_of_children_that_nobody_waits_for_counts(tmp_path: Path) -> None:
    """The system forgets what a child used when its parent does not want to know of its end."""
    unwaited = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + SPINNERS.replace(
        "os.wait()", "\n    try: os.wait()\n    except ChildProcessError: pass"
    )
    error, _ = await attack(tmp_path, unwaited, cpu_s=0.5)
    assert "of CPU time, and 0.5 s are allowed, so it was ended: " in str(error)


# Each child lives a while after it has written, and is forgotten then.
UNWAITED_FILLERS = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for number in range(30):
    if os.fork() == 0:
        with open(f"part{number}", "wb") as file:
            file.write(os.urandom(1_000_000))
        time.sleep(0.3)
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
time.sleep(60)
"""


@pytest.mark.usefixtures("neighbour")
async def test_what_children_wrote_that_nobody_waits_for_counts(tmp_path: Path) -> None:
    error, _ = await attack(tmp_path, UNWAITED_FILLERS, disk_bytes=5 * MB)
    assert "to disk, and 5 MB are allowed, so it was ended: " in str(error)


# Memory that is in nobody's address space.
FILES_IN_MEMORY = """
import os, time
held = [os.memfd_create(str(number)) for number in range(30)]
for one in held:
    os.write(one, b"x" * 10_000_000)
    time.sleep(0.01)
time.sleep(60)
"""


@pytest.mark.usefixtures("neighbour")
async def test_files_in_memory_count_as_memory(tmp_path: Path) -> None:
    error, call = await attack(tmp_path, FILES_IN_MEMORY, memory_bytes=100 * MB)
    assert "of memory, and 100 MB are allowed, so it was ended: " in str(error)
    assert call.used is not None
    assert (call.used.memory_bytes or 0) > 100 * MB


async def test_a_file_in_memory_that_processes_have_mapped_counts_once(tmp_path: Path) -> None:
    mapped = (
        "import mmap, os, time\n"
        "file = os.memfd_create('shared')\n"
        "os.write(file, b'x' * 50_000_000)\n"
        "pids = []\n"
        "for _ in range(3):\n"
        "    pids.append(os.fork())\n"
        "    if pids[-1] == 0:\n"
        "        view = mmap.mmap(file, 50_000_000)\n"
        "        sum(view[0::4096])\n"
        "        time.sleep(0.5)\n"
        "        os._exit(0)\n"
        "for pid in pids: os.waitpid(pid, 0)\n"
    )
    process = await spawn([*PYTHON, mapped], cwd=tmp_path, env={}, resources=Resources(memory_bytes=120 * MB))
    end = await process.wait()
    process.close()
    assert (end.code, end.over) == (0, "")


async def test_a_command_without_limits_is_held_to_none(tmp_path: Path) -> None:
    process = await spawn([*PYTHON, LEAK + "print(len(held))"], cwd=tmp_path, env={}, resources=None)
    out = await process.stdout.read()
    end = await process.wait()
    process.close()
    assert end.over == ""
    assert isinstance(end, Exit)
    assert out in (b"5000\n", b"")  # the system may have a lower limit of its own


async def test_a_small_command_is_not_taken_for_as_large_as_the_process_that_started_it(tmp_path: Path) -> None:
    process = await spawn(["sleep", "0.3"], cwd=tmp_path, env=os.environ, resources=DEFAULTS)
    end = await process.wait()
    process.close()
    assert 0 < end.rss_bytes < keeper_bytes()
