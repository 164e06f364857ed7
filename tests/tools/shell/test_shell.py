"""`shell.run`: what a command is given, what becomes of its output, and how each way to fail is told."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, Misconfigured, ResourceShort, SettingsInvalid, ToolError
from holdfast.core.failure import describe
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.tools.builtin import builtin_adapters
from holdfast.tools.call import Call
from holdfast.tools.processes.captured_output import OUTPUT_BYTES_MAX
from holdfast.tools.shell import tool as shell_tool
from holdfast.tools.toolset import HERE


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.first = asyncio.Event()

    async def note(self, call: Call, data: bytes) -> None: ...

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None: ...

    def progress(self, call: Call, percent: float, text: str) -> None: ...

    def check_open(self, call: Call, what: str) -> None: ...

    def hear(self, call: Call, stream: str, text: str) -> None:
        self.heard.append((stream, text))
        self.first.set()


async def run(folder: Path, host: Listener | None = None, config: Any = None, **arguments: Any) -> Any:
    """As a step does it: validate, call, check the output."""
    call = Call("execution", "step", 1, "key", folder, None, host or Listener())
    return await run_as(call, config, **arguments)


async def run_as(call: Call, config: Any = None, **arguments: Any) -> Any:
    (tool,) = shell_tool.Shell(config or shell_tool.Config(), HERE).tools()
    value = await tool.invoke(tool.validate(arguments), call)
    tool.output(value)
    return value


def call_in(folder: Path, **limits: Any) -> Call:
    call = Call("execution", "step", 1, "key", folder)
    call.resources = Resources(**limits).over(DEFAULTS)
    return call


async def test_room_that_is_taken_without_writing_is_noticed(tmp_path: Path) -> None:
    listener = Listener()
    (tmp_path / "own").mkdir()
    call = Call("execution", "step", 1, "key", tmp_path / "own", None, listener)
    call.resources = Resources(disk_bytes=5_000_000).over(DEFAULTS)
    # Outside of its folder, and over before anybody looked. Others use the disk too: what they free must not hide it.
    try:
        await run_as(call, command="for n in $(seq 20); do fallocate -l 4M ../$n; done")
    except ResourceShort:  # somebody looked while it had one of them open: then it is held to its limit
        return
    said = [text for stream, text in listener.heard if stream == "warning"]
    assert said, "the disk lost 80 MB, and 5 MB are allowed"
    assert "that its own writing does not explain: it reserved them without writing, or somebody else took" in said[0]


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- what a command is given -----------------------------------------------------------------------------------------


async def test_a_command_line_goes_through_the_shell_and_a_list_does_not(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    done = await run(tmp_path, command='echo "$A"; pwd; cat; echo err >&2', env={"A": "a b"}, cwd="sub", stdin="in")
    assert done == {
        "exit_code": 0, "stdout": f"a b\n{tmp_path}/sub\nin", "stderr": "err\n", "truncated": False, "spoilt": False,
    }  # fmt: skip
    done = await run(tmp_path, command=["echo", "$A", "&&"])
    assert done["stdout"] == "$A &&\n"


async def test_of_the_environment_only_the_allowed_variables_reach_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_TOKEN", "LC_TIME", "LANG", "APP_MODE", "APP_KEY"):
        monkeypatch.setenv(name, f"the {name}")
    names = await run(tmp_path, command="env | grep -o '^[A-Z_]*'", env={"EXTRA": "1"})
    assert {"PATH", "HOME", "LANG", "LC_TIME", "EXTRA"} <= set(names["stdout"].split())
    assert not {"API_TOKEN", "APP_MODE", "APP_KEY"} & set(names["stdout"].split())
    own = shell_tool.Config(env=("PATH", "APP_*"))
    names = await run(tmp_path, config=own, command="env | grep -o '^[A-Z_]*'")
    assert {"PATH", "APP_MODE", "APP_KEY"} <= set(names["stdout"].split())
    assert not {"HOME", "LANG"} & set(names["stdout"].split())


def test_wrong_settings_are_named_with_their_place() -> None:
    with pytest.raises(SettingsInvalid, match=r"tools\.shell\.env: expected a list, got the string"):
        builtin_adapters({"shell": {"env": "PATH"}})
    with pytest.raises(SettingsInvalid, match=r'tools\.shell\.envs: no such name; did you mean "env"\?'):
        builtin_adapters({"shell": {"envs": ["PATH"]}})


# ---- how it can fail -------------------------------------------------------------------------------------------------


async def test_a_failed_command_is_a_known_failure_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        await run(tmp_path, command="for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3")
    assert str(caught.value).splitlines() == [
        "exit code 3 from: for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3",
        *(f"line {number}" for number in range(3, 8)),
    ]
    failure = describe(caught.value)
    assert (failure.category, failure.happened) == ("tool", "known")
    with pytest.raises(ToolError, match=r"killed by SIGKILL from: kill -9 \$\$"):
        await run(tmp_path, command="kill -9 $$")


async def test_a_command_that_cannot_be_started_had_no_effect(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r'no such program: "nope"; install it') as caught:
        await run(tmp_path, command=["nope"])
    assert describe(caught.value).happened == "nothing"
    with pytest.raises(Misconfigured, match=r"cannot run in the folder .*/gone: No such file or directory; create it"):
        await run(tmp_path, command="true", cwd="gone")
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match=r"cannot run in the folder .*/file: Not a directory; create it or correct"):
        await run(tmp_path, command="true", cwd="file")
    for nothing in ("", " ", [], [""]):
        with pytest.raises(InvalidCall, match="command: expected a program to run, got nothing"):
            await run(tmp_path, command=nothing)


async def test_on_a_full_disk_a_command_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(
        ResourceShort,
        match=r"are free on the disk of .*, and 1000 TB are the least to begin with; free some space, or lower",
    ) as caught:
        await run(tmp_path, config=shell_tool.Config(free_bytes_min=10**15), command="touch begun")
    assert describe(caught.value).happened == "nothing"
    assert not (tmp_path / "begun").exists()


# ---- its output ------------------------------------------------------------------------------------------------------


async def test_output_beyond_what_is_kept_is_dropped_and_said_so(tmp_path: Path) -> None:
    listener = Listener()
    done = await run(tmp_path, listener, command="head -c 3000000 /dev/zero | tr '\\0' x; echo >&2")
    assert (len(done["stdout"]), done["stderr"], done["truncated"]) == (OUTPUT_BYTES_MAX, "\n", True)
    missed = 3_000_000 - OUTPUT_BYTES_MAX
    assert listener.heard[-1] == ("stdout", f"({missed:,} bytes came after this, of which nothing is kept)\n")
    assert sum(len(text.strip()) for _, text in listener.heard[:-1]) == OUTPUT_BYTES_MAX


async def test_lines_are_shown_while_the_command_still_runs_and_streams_stay_apart(tmp_path: Path) -> None:
    listener = Listener()
    command = "echo one; while [ ! -e go ]; do sleep 0.01; done; echo oops >&2; printf two"
    task = asyncio.create_task(run(tmp_path, listener, command=command))
    await asyncio.wait_for(listener.first.wait(), 60)
    assert listener.heard == [("stdout", "one\n")]
    (tmp_path / "go").touch()
    assert (await task)["stdout"] == "one\ntwo"
    assert sorted(listener.heard[1:]) == [("stderr", "oops\n"), ("stdout", "\n"), ("stdout", "two")]


async def test_what_is_no_text_is_refused_and_can_be_had_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(bytes(range(256)))
    listener = Listener()
    with pytest.raises(
        ToolError, match=r"its output is no text: byte 0 of stdout is zero, from: cat picture\nlet it write to a file"
    ) as caught:
        await run(tmp_path, listener, command=["cat", "picture"])
    assert describe(caught.value).category == "tool"
    assert listener.heard == [("stdout", "(what follows is no text, and is not shown)\n")]
    done = await run(tmp_path, command=["cat", "picture"], encoding="base64")
    assert base64.b64decode(done["stdout"]) == bytes(range(256))


async def test_a_stray_byte_in_a_text_is_replaced_and_that_is_told(tmp_path: Path) -> None:
    listener = Listener()
    done = await run(tmp_path, listener, command="printf 'caf\\351!'")
    assert (done["stdout"], done["spoilt"]) == ("caf�!", True)
    assert ("warning", "stdout is not UTF-8: each byte that is none stands as �\n") in listener.heard
    assert (await run(tmp_path, command="printf 'caf\\351!' >&2"))["spoilt"]
    assert not (await run(tmp_path, command="printf 'caf\\303\\251!'"))["spoilt"]
    assert not (await run(tmp_path, command="printf 'caf\\351!'", encoding="base64"))["spoilt"]


async def test_a_character_that_the_end_of_the_room_cuts_through_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" + "é" * (OUTPUT_BYTES_MAX // 2))
    done = await run(tmp_path, command="cat long")
    assert (done["truncated"], done["spoilt"]) == (True, False)


# ---- its end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
async def test_cancelling_ends_the_whole_tree_soon(tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_tool, "KILL_GRACE_S", 0.05)
    listener = Listener()
    task = asyncio.create_task(run(tmp_path, listener, command=f"{trap} setsid sleep 600 & echo $!; wait"))
    await asyncio.wait_for(listener.first.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_gone(int(listener.heard[0][1]))


async def test_cancelling_twice_does_not_wait_for_a_stubborn_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_tool, "KILL_GRACE_S", 600)
    listener = Listener()
    task = asyncio.create_task(run(tmp_path, listener, command="trap '' TERM; echo $$; while :; do sleep 1; done"))
    await asyncio.wait_for(listener.first.wait(), 60)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_gone(int(listener.heard[0][1]))


async def test_what_a_command_used_is_counted_for_its_call(tmp_path: Path) -> None:
    call = call_in(tmp_path)
    burn = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 150_000); print('x' * 999); x = b'1' * 30_000_000"
    await run_as(call, command=["python3", "-S", "-c", burn])
    used = call.used
    assert used is not None
    assert used.cpu_s is not None
    assert used.cpu_s > 0.01
    assert used.memory_bytes is not None
    assert used.memory_bytes > 30_000_000
    assert used.processes is not None
    assert used.processes >= 1
    assert used.output_bytes == 1000
    before = used.cpu_s
    await run_as(call, command="true")
    assert call.used is not None
    assert (call.used.cpu_s or 0) >= before
    assert call.used.output_bytes == 1000


async def test_a_limit_is_told_with_what_is_allowed_and_how_to_raise_it(tmp_path: Path) -> None:
    with pytest.raises(ResourceShort) as caught:
        await run_as(call_in(tmp_path, output_bytes=10_000), command="yes")
    text = str(caught.value)
    assert re.fullmatch(
        r"it printed more than 10 KB of output, which is its limit: yes;\n"
        r"if it needs more, raise resources\.output of the step, the task or the settings",
        text,
    )
    failure = describe(caught.value)
    assert (failure.category, failure.happened) == ("resource", "known")
