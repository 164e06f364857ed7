"""What goes past Python's streams, straight to descriptors 1 and 2, shows no secret, and nothing of it is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cli.test_terminal import at_terminal
from cli.workshop import Workshop, wait_until

VALUE = "hunter2/+ umläut-0815"
TOOLS = """
import os, pathlib, subprocess, sys, time
import holdfast

def sh(script, token="", **more):
    subprocess.run(["sh", "-c", script], env={**os.environ, "TOKEN": token}, **more)

@holdfast.tool(name="leak.past", effect="read")
def past(token: str) -> None:
    sh("echo child $TOKEN; echo complaint $TOKEN >&2", token)
    sh("echo handed $TOKEN", token, stdout=sys.stdout)
    os.write(1, b"written " + token.encode() + b"\\n")
    os.write(2, b"written too " + token.encode() + b"\\n")
    os.write(1, b"piece " + token.encode()[:14])  # in the middle of a character
    os.write(1, token.encode()[14:] + b" whole\\n")
    print("kept stream", token, file=sys.__stdout__, flush=True)

@holdfast.tool(name="leak.much", effect="read")
def much(token: str) -> None:
    sh("seq 1 200000; echo last $TOKEN", token)

@holdfast.tool(name="leak.prompt", effect="read")
def prompt(token: str, call: holdfast.Call) -> None:
    os.write(1, b"prompt " + token[:2].encode())
    while not (call.folder / "go").exists():
        time.sleep(0.01)
    os.write(1, token[2:].encode() + b"\\n")

@holdfast.tool(name="leak.crash", effect="read")
def crash(token: str) -> None:
    os.write(2, b"last words " + token.encode() + b"\\n")
    os.abort()

@holdfast.tool(name="leak.outlive", effect="read")
def outlive(token: str) -> None:
    code = 'while [ ! -e go ]; do sleep 0.01; done; echo later "$TOKEN"; touch outlived'
    subprocess.Popen(["sh", "-c", code], env={**os.environ, "TOKEN": token})

@holdfast.tool(name="leak.flood", effect="read")
def flood(token: str) -> None:
    sh("head -c 400000 /dev/zero | tr '\\\\0' x >&2", token)

@holdfast.tool(name="leak.kill", effect="read")
def kill(token: str) -> int:
    for place in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            is_mine = place.read_text().rpartition(")")[2].split()[1] == str(os.getpid())
            if is_mine and b"passing_on" in (place.parent / "cmdline").read_bytes():
                os.kill(int(place.parent.name), 9)
        except OSError:
            pass
    own = {**os.environ, "TOKEN": token}
    return subprocess.run(["sh", "-c", "echo $TOKEN; echo done > effect"], env=own).returncode

@holdfast.tool(name="leak.fork", effect="read")
def fork(token: str) -> None:
    pid = os.fork()
    if not pid:
        print("forked", token, flush=True)
        os.write(1, b"fork wrote " + token.encode() + b"\\n")
        os._exit(0)
    os.waitpid(pid, 0)
"""
QUICK = """
@holdfast.tool(name="work.do", effect="read")
def do() -> None: ...
"""
SAID = ("child", "complaint", "handed", "written", "written too", "kept stream", "piece")


@pytest.fixture
def leaky(shop: Workshop) -> Workshop:
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[secrets]\nTOKEN = {env = "MY_TOKEN"}\n')
    shop.write("tools.py", TOOLS)
    for name in ("past", "much", "prompt", "crash", "outlive", "flood", "kill", "fork"):
        step = f"{{id: a, tool: leak.{name}, with: {{token: '${{{{ secrets.TOKEN }}}}'}}}}"
        shop.write(f"{name}.yaml", f"name: {name}\nsteps: [{step}]\n")
    return shop


def clean(text: str) -> str:
    assert not any(part in text for part in (VALUE, VALUE[3:], VALUE[:12])), text
    return text


def kept_clean(folder: Path) -> None:
    for file in (folder / ".holdfast").rglob("*"):
        assert not file.is_file() or VALUE.encode() not in file.read_bytes(), file


def test_in_front_nothing_shows_the_value_and_each_word_stays_on_its_stream(leaky: Workshop) -> None:
    ran = leaky.run("run", "past.yaml", MY_TOKEN=VALUE)
    clean(ran.out + ran.err)
    for word in ("child", "handed", "written", "kept stream"):
        assert f"{word} [secret TOKEN]\n" in ran.out
    for word in ("complaint", "written too"):
        assert f"{word} [secret TOKEN]\n" in ran.err
    assert "piece [secret TOKEN] whole\n" in ran.out
    kept_clean(leaky.folder)


def test_on_a_terminal_the_value_is_hidden_and_the_picture_is_as_before(leaky: Workshop) -> None:
    shown = clean(at_terminal(leaky, ["run", "past.yaml"], [], MY_TOKEN=VALUE))
    assert shown.count("[secret TOKEN]") >= len(SAID)  # the picture may stand between a word and what follows it
    assert "exit 0" in shown
    assert "\x1b[?25l" in shown  # the live picture
    assert "✔" in shown


def test_the_log_of_a_detached_process_and_of_a_worker_holds_no_value(leaky: Workshop) -> None:
    masked = [f"{word} [secret TOKEN]" for word in SAID]
    detached = leaky.run("run", "past.yaml", "--detach", "--json", MY_TOKEN=VALUE).json
    log = Path(detached["log"])
    wait_until(lambda: all(word in log.read_text() for word in (*masked, "look at it")), "the end of the log")
    clean(log.read_text())
    leaky.run("run", "past.yaml", "--hold", MY_TOKEN=VALUE)
    leaky.run("resume", "--status", "queued", MY_TOKEN=VALUE)
    leaky.run("worker", "--until-idle", "--log", "worker.log", MY_TOKEN=VALUE)
    log = leaky.folder / "worker.log"
    wait_until(lambda: all(word in log.read_text() for word in (*masked, "everything is let go of")), "the log's end")
    clean(log.read_text())
    kept_clean(leaky.folder)


def test_with_json_stdout_is_for_answers_also_for_children(leaky: Workshop) -> None:
    ran = leaky.run("run", "past.yaml", "--json", MY_TOKEN=VALUE)
    assert all(isinstance(line, dict) for line in ran.lines)
    assert all(f"{word} [secret TOKEN]" in clean(ran.err) for word in SAID)
    leaky.write("holdfast.toml", 'modules = ["tools.py"]\n')
    leaky.write("plain.yaml", "name: plain\nsteps: [{id: a, tool: leak.past, with: {token: harmless}}]\n")
    ran = leaky.run("run", "plain.yaml", "--json")
    assert all(isinstance(line, dict) for line in ran.lines)
    assert "child harmless" in ran.err


def test_much_that_comes_right_before_the_end_is_complete_and_in_order(leaky: Workshop) -> None:
    lines = leaky.run("run", "much.yaml", "--json", MY_TOKEN=VALUE).err.splitlines()  # where nobody else writes
    assert lines == [*(str(number) for number in range(1, 200_001)), "last [secret TOKEN]"]


def test_our_last_word_comes_after_what_tools_have_written(leaky: Workshop) -> None:
    lines = leaky.run("run", "past.yaml", MY_TOKEN=VALUE).out.splitlines()
    assert lines.index("piece [secret TOKEN] whole") < next(i for i, line in enumerate(lines) if "look at it" in line)


def test_the_beginning_of_a_value_is_shown_after_a_while_and_its_rest_never(leaky: Workshop) -> None:
    process = leaky.start("run", "prompt.yaml", "--json", MY_TOKEN=VALUE)
    assert process.stderr is not None
    prompt = f"prompt {VALUE[:2]}"
    assert process.stderr.read(len(prompt)) == prompt
    leaky.open_gate()
    assert "[secret TOKEN]" in clean(leaky.finish(process).err)


def test_the_last_words_of_a_process_that_crashes_are_heard(leaky: Workshop) -> None:
    ran = leaky.run("run", "crash.yaml", code=-signal.SIGABRT, MY_TOKEN=VALUE)
    assert "last words [secret TOKEN]\n" in clean(ran.err)


def test_a_child_that_outlives_the_command_goes_on_and_is_masked(leaky: Workshop) -> None:
    process = leaky.start("run", "outlive.yaml", MY_TOKEN=VALUE)
    assert process.wait(30) == 0
    leaky.open_gate()
    wait_until((leaky.folder / "outlived").exists, "the child's end")
    assert "later [secret TOKEN]\n" in clean(leaky.finish(process).out)


def test_a_copy_of_the_process_that_a_tool_makes_is_masked(leaky: Workshop) -> None:
    out = clean(leaky.run("run", "fork.yaml", MY_TOKEN=VALUE).out)
    assert out.count("[secret TOKEN]\n") == 2  # the copy and the original both write, and may do so at once
    assert "forked" in out


def test_a_reader_who_leaves_holds_nobody_up(leaky: Workshop) -> None:
    process = leaky.start("run", "much.yaml", MY_TOKEN=VALUE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    leaky.finish(process, code=None)
    leaky.wait_for_status("completed")


def test_who_does_not_read_stderr_holds_up_the_tool_and_nobody_else(leaky: Workshop) -> None:
    step = "{id: flood, needs: [], tool: leak.flood, with: {token: '${{ secrets.TOKEN }}'}}"
    quick = "{id: quick, needs: [], for_each: '${{ inputs.all }}', tool: work.do}"
    leaky.write("tools.py", TOOLS + QUICK)
    leaky.write("busy.yaml", f"name: busy\ninputs: {{all: {{default: {[0] * 300}}}}}\nsteps: [{step}, {quick}]\n")
    process = leaky.start("run", "busy.yaml", "--json", MY_TOKEN=VALUE)
    ended = 0
    while ended < 300:
        ended += leaky.told(process)["type"] == "step:completed"
    assert "x" * 400_000 in leaky.finish(process).err.replace("\n", "")


def test_if_the_process_that_masks_dies_nothing_is_seen_and_children_live_on(leaky: Workshop) -> None:
    ran = leaky.run("run", "kill.yaml", MY_TOKEN=VALUE)
    clean(ran.out + ran.err)
    assert (leaky.folder / "effect").read_text() == "done\n"
    assert "what tools write past Python's streams is dropped from now on" in ran.err
    assert "output: 0\n" in ran.out


def test_without_anything_to_mask_children_have_the_terminal_itself(leaky: Workshop) -> None:
    leaky.write("holdfast.toml", 'modules = ["tools.py"]\n')
    leaky.write("tools.py", TOOLS.replace("seq 1 200000; echo last $TOKEN", "test -t 1 && echo it is one"))
    leaky.write("much.yaml", "name: much\nsteps: [{id: a, tool: leak.much, with: {token: harmless}}]\n")
    assert "it is one" in at_terminal(leaky, ["run", "much.yaml"], [])
