"""Secrets through the real command: the tool gets the value, and nothing that Holdfast writes or shows holds it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cli.workshop import Result, Workshop, wait_until

VALUE = "hunter2/+ umläut-0815"
TOOLS = '''
import base64, logging, sys
from pathlib import Path
import holdfast

@holdfast.tool(name="leak.all", effect="read")
async def leak(header: str, call: holdfast.Call, data: str = "") -> dict:
    """Tell everybody."""
    (call.folder / "got.txt").write_text(header + "\\n" + data)
    token = header.removeprefix("Bearer ")
    print("printed", token)
    print("complained", token, file=sys.stderr)
    logging.getLogger("leak").warning("logged %s", token)
    call.say("said " + token)
    call.progress(50, "half of " + token)
    await call.note({"noted": token})
    return {"plain": token, "basic": base64.b64encode(("me:" + token).encode()).decode(), token: 1}

@holdfast.tool(name="leak.fail", effect="read")
def fail(token: str) -> None:
    """Complain with it."""
    raise holdfast.ToolError("the service refused " + token)

@holdfast.tool(name="leak.pay", effect="once")
def pay(token: str, call: holdfast.Call) -> str:
    (call.folder / "paid.txt").write_text(token)
    return "paid"

@pay.undo
def unpay(call, arguments, output):
    (call.folder / "unpaid.txt").write_text(arguments["token"])

@holdfast.function
async def bearer(ctx) -> dict:
    return await ctx.call(leak, header="Bearer " + ctx.secret("TOKEN"))
'''
PLAN = """
name: leaky
inputs: {data: {type: string, default: ""}}
steps:
  - {id: tell, tool: leak.all, with: {header: "Bearer ${{ secrets.TOKEN }}", data: "${{ inputs.data }}"}}
  - {id: complain, tool: leak.fail, with: {token: "${{ secrets.TOKEN }}"}, critical: false}
output: ${{ steps.tell.output }}
"""


@pytest.fixture
def leaky(shop: Workshop) -> Workshop:
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[secrets]\nTOKEN = {env = "MY_TOKEN"}\n')
    shop.write("tools.py", TOOLS)
    shop.write("leaky.yaml", PLAN)
    return shop


def holding(folder: Path) -> list[str]:
    """The files that hold the value in some form; what the tools wrote themselves is theirs."""
    forms = [VALUE.encode(), base64.b64encode(f"me:{VALUE}".encode()), base64.b64encode(VALUE.encode())[:-4]]
    files = [file for file in folder.rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    return [
        str(file.relative_to(folder))
        for file in files
        if file.name not in ("got.txt", "paid.txt", "unpaid.txt") and any(form in file.read_bytes() for form in forms)
    ]


def clean(result: Result) -> Result:
    assert VALUE not in result.out + result.err
    assert base64.b64encode(f"me:{VALUE}".encode()).decode() not in result.out + result.err
    return result


def test_value_reaches_the_tool_and_nothing_that_is_kept_or_shown(leaky: Workshop) -> None:
    ran = clean(leaky.run("run", "leaky.yaml", MY_TOKEN=VALUE))
    assert (leaky.folder / "got.txt").read_text() == f"Bearer {VALUE}\n"
    assert "printed [secret TOKEN]" in ran.out + ran.err
    shown = clean(leaky.run("show", "@last", "--json")).json
    assert shown["output"]["plain"] == "[secret TOKEN]"
    assert shown["output"]["[secret TOKEN]"] == 1
    failed = next(step for step in shown["steps"] if step["path"] == "complain")
    assert failed["failure"]["message"] == "the service refused [secret TOKEN]"
    told = clean(leaky.run("events", "@last", "--json"))
    started = next(event for event in told.lines if event["type"] == "step:started" and event["path"] == "tell")
    assert started["arguments"]["header"] == "Bearer ${{ secrets.TOKEN }}"
    assert started["secrets"] == ["TOKEN"]
    logged = clean(leaky.run("logs", "@last"))
    for word in ("printed", "complained", "said"):
        assert f"{word} [secret TOKEN]" in logged.out
    clean(leaky.run("export", "@last", "--output", "bundle.json"))
    clean(leaky.run("checkpoint", "@last"))
    assert holding(leaky.folder) == []


TRICKY = """
import logging, sys
import holdfast

logging.basicConfig()

@holdfast.tool(name="leak.tricky", effect="read")
def tricky(token: str) -> None:
    print("pieces", token[:6], end="", flush=True)
    print(token[6:])
    sys.stdout.buffer.write(("bytes " + token + "\\n").encode())
    sys.stdout.buffer.flush()
    try:
        raise ValueError("refused " + token)
    except ValueError:
        logging.getLogger("leak").exception("it failed")
"""


def test_value_in_pieces_in_bytes_and_in_a_trace_reaches_neither_the_terminal_nor_the_log_of_a_detached_process(
    leaky: Workshop,
) -> None:
    leaky.write("tools.py", TRICKY)
    leaky.write("t.yaml", "name: t\nsteps: [{id: a, tool: leak.tricky, with: {token: '${{ secrets.TOKEN }}'}}]\n")
    ran = clean(leaky.run("run", "t.yaml", MY_TOKEN=VALUE))
    for said in ("pieces", "bytes", "refused", "[secret TOKEN]"):
        assert said in ran.out + ran.err
    told = clean(leaky.run("run", "t.yaml", "--json", MY_TOKEN=VALUE))
    assert all(isinstance(line, dict) for line in told.lines)  # and what it printed does not break the answer
    detached = clean(leaky.run("run", "t.yaml", "--detach", "--json", MY_TOKEN=VALUE)).json
    leaky.run("watch", detached["id"])
    wait_until(lambda: "completed in" in Path(detached["log"]).read_text(), "the end of the log")
    log = Path(detached["log"]).read_text()
    # Words of a tool's thread and of the command itself may come between each other's.
    assert all(word in log for word in ("pieces", "bytes", "refused"))
    assert log.count("[secret TOKEN]") >= 3
    assert holding(leaky.folder) == []


def test_data_that_looks_like_a_reference_brings_no_secret_out(leaky: Workshop) -> None:
    data = "give me ${{ secrets.TOKEN }}"
    leaky.run("run", "leaky.yaml", "-i", f"data={data}", MY_TOKEN=VALUE)
    assert (leaky.folder / "got.txt").read_text() == f"Bearer {VALUE}\n{data}"


def test_function_hands_a_secret_on_without_seeing_it(leaky: Workshop) -> None:
    ran = clean(leaky.run("run", "bearer", MY_TOKEN=VALUE))
    assert "[secret TOKEN]" in ran.out
    assert (leaky.folder / "got.txt").read_text() == f"Bearer {VALUE}\n"
    assert holding(leaky.folder) == []


def test_dry_run_and_config_show_the_reference(leaky: Workshop) -> None:
    seen = clean(leaky.run("run", "leaky.yaml", "--dry-run", "--json", MY_TOKEN=VALUE)).json
    assert seen["steps"][0]["arguments"]["header"] == "Bearer ${{ secrets.TOKEN }}"
    assert clean(leaky.run("config", "--json", MY_TOKEN=VALUE)).json["values"]["secrets"]["value"] == {
        "TOKEN": {"env": "MY_TOKEN"}
    }


def test_approval_shows_the_reference_and_the_other_process_brings_its_own_value(leaky: Workshop) -> None:
    leaky.write(
        "pay.yaml",
        "name: pay\nsteps:\n  - {id: pay, tool: leak.pay, with: {token: '${{ secrets.TOKEN }}'}, approval: Pay?}\n",
    )
    asked = clean(leaky.run("run", "pay.yaml", code=3, MY_TOKEN=VALUE))
    assert "${{ secrets.TOKEN }}" in asked.out + asked.err
    [request] = clean(leaky.run("inbox", "--json")).json
    assert request["arguments"] == {"token": "${{ secrets.TOKEN }}"}
    leaky.run("approve", "@last", "pay", MY_TOKEN="changed-meanwhile")
    leaky.run("resume", "@last", code=None, MY_TOKEN="changed-meanwhile")
    assert (leaky.folder / "paid.txt").read_text() == "changed-meanwhile"
    leaky.run("rollback", "@last", MY_TOKEN="changed-again")
    assert (leaky.folder / "unpaid.txt").read_text() == "changed-again"


def test_missing_secret_stops_before_anything_starts(leaky: Workshop) -> None:
    refused = leaky.run("run", "leaky.yaml", code=2)
    assert "the secret TOKEN needs the environment variable MY_TOKEN; set it" in refused.err
    assert leaky.run("list", "--json").json == []
    checked = leaky.run("check", "leaky.yaml", code=None)
    assert "leaky.yaml:5" in checked.out
    assert "the secret TOKEN needs the environment variable MY_TOKEN; set it" in checked.out


def test_mistyped_secret_is_addressed_with_what_was_meant(leaky: Workshop) -> None:
    leaky.write("leaky.yaml", PLAN.replace("secrets.TOKEN", "secrets.TOKN"))
    refused = leaky.run("run", "leaky.yaml", code=None, MY_TOKEN=VALUE)
    assert 'steps[0].with.header: no secret called "TOKN" is declared under [secrets] in the settings' in refused.err
    assert 'did you mean "TOKEN"' in refused.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  - {id: a, tool: leak.fail, when: 'secrets.TOKEN == \"x\"', with: {token: x}}", "a secret can only be"),
        ("  - {id: a, tool: leak.fail, with: {token: '${{ secrets.TOKEN + \"x\" }}'}}", "a secret can only be put in"),
        ("  - {id: a, tool: leak.fail, title: '${{ secrets.TOKEN }}', with: {token: x}}", "a secret goes to a tool"),
        ("  - {id: a, start: leaky.yaml, with: {data: '${{ secrets.TOKEN }}'}}", "a secret goes to a tool"),
    ],
)
def test_secret_anywhere_but_in_the_arguments_of_a_tool_is_refused(leaky: Workshop, line: str, said: str) -> None:
    leaky.write("wrong.yaml", f"name: wrong\nsteps:\n{line}\n")
    refused = leaky.run("check", "wrong.yaml", code=None, MY_TOKEN=VALUE)
    assert refused.code != 0
    assert said in refused.out


def test_short_secret_is_refused_and_nothing_is_called(leaky: Workshop) -> None:
    refused = leaky.run("run", "leaky.yaml", code=None, MY_TOKEN="abc")
    assert refused.code != 0
    assert "the secret TOKEN has 3 characters, at least 4 are needed" in refused.out + refused.err
    assert not (leaky.folder / "got.txt").exists()


def test_wrong_declaration_is_named_in_the_settings(leaky: Workshop) -> None:
    leaky.write("holdfast.toml", '[secrets]\nTOKEN = {command = "pass show x"}\n')
    refused = leaky.run("list", code=None)
    assert refused.code != 0
    assert "holdfast.toml: secrets.TOKEN.command: expected a list of a program and its arguments" in refused.err


def test_file_that_others_may_read_is_told(leaky: Workshop) -> None:
    leaky.write("holdfast.toml", 'modules = ["tools.py"]\n[secrets]\nTOKEN = {file = "token"}\n')
    token = leaky.write("token", f"{VALUE}\n")
    token.chmod(0o644)
    ran = clean(leaky.run("run", "leaky.yaml"))
    assert "holdfast: the file of the secret TOKEN can be read by others" in ran.err
    notes = [json.loads(line) for line in leaky.run("run", "leaky.yaml", "--json").err.splitlines() if "note" in line]
    assert any("can be read by others" in note["note"] for note in notes)
    leaky.write("plain.yaml", "name: plain\nsteps:\n  - {id: pay, tool: leak.pay, with: {token: mine}}\n")
    assert "can be read by others" not in leaky.run("run", "plain.yaml").err  # which does not use it
    assert (leaky.folder / "got.txt").read_text() == f"Bearer {VALUE}\n"
    token.chmod(0o600)
    assert "can be read by others" not in leaky.run("run", "leaky.yaml").err


def test_doctor_names_secrets_that_cannot_be_had_and_asks_no_command(leaky: Workshop) -> None:
    command = '["sh", "-c", "touch asked; echo from-the-safe"]'
    leaky.write(
        "holdfast.toml",
        'modules = ["tools.py"]\n[secrets]\nTOKEN = {env = "MY_TOKEN"}\nKEY = {file = "key"}\n'
        f'OPEN = {{file = "open"}}\nSAFE = {{command = {command}}}\n',
    )
    leaky.write("open", VALUE).chmod(0o644)
    found = clean(leaky.run("doctor", code=1)).out
    assert (
        "secret: the secret TOKEN needs the environment variable MY_TOKEN. Plans that use TOKEN will not start" in found
    )
    assert "the secret KEY cannot be read" in found
    assert "the file of the secret OPEN can be read by others" in found
    assert not (leaky.folder / "asked").exists()


@pytest.mark.parametrize(
    "line", ['TOKEN = "hunter2-itself"', 'TOKEN = {command = "hunter2-itself"}', "TOKEN = {file = 9876543210}"]
)
def test_value_written_where_its_place_belongs_is_not_repeated(leaky: Workshop, line: str) -> None:
    leaky.write("holdfast.toml", f"[secrets]\n{line}\n")
    refused = leaky.run("list", code=2)
    assert "holdfast.toml: secrets.TOKEN" in refused.err
    assert "expected " in refused.err
    assert "hunter2" not in refused.out + refused.err
    assert "9876543210" not in refused.out + refused.err


def test_header_that_cannot_be_sent_shows_nothing_of_the_secret(leaky: Workshop) -> None:
    step = {"id": "get", "tool": "http.get", "with": {"url": "${{ ['http://127.0.0.1:9/'][0] }}"}}
    step["with"]["headers"] = {"Authorization": "${{ secrets.TOKEN }}"}  # type: ignore[index]
    leaky.write("get.json", json.dumps({"name": "get", "steps": [step]}))
    ran = clean(leaky.run("run", "get.json", code=None, MY_TOKEN="häßlich-4711"))
    told = ran.out + ran.err + leaky.run("show", "@last", "--json").out + leaky.run("logs", "@last").out
    assert "a header has a character that is not ASCII" in told
    assert "xe4" not in told
    assert "position" not in told


def test_config_shows_no_password_of_a_channel_or_a_server(leaky: Workshop) -> None:
    leaky.write(
        "holdfast.toml",
        "[tools.notify.channels]\n"
        'mail = "mailtos://me:hunter2-mail@smtp.example.org"\nchat = "env:CHAT_URL"\n'
        "[tools.mcp.servers.far]\n"
        'url = "https://me:hunter2-url@far.example.org/mcp?api_key=hunter2-query&page=3"\n'
        'headers = {Authorization = "Bearer hunter2-header", Other = "env:OTHER"}\n'
        "[tools.mcp.servers.near]\n"
        'command = ["near"]\nenv = {API = "hunter2-env"}\n'
        '[tools.own]\napi_token = "hunter2-own"\nlevel = 3\n',
    )
    plain, wired = leaky.run("config"), leaky.run("config", "--json")
    for told in (plain, wired):
        assert "hunter2" not in told.out + told.err
    tools = wired.json["values"]["tools"]["value"]
    assert tools["notify"]["channels"] == {"mail": "mailtos://[hidden]", "chat": "env:CHAT_URL"}
    far = tools["mcp"]["servers"]["far"]
    assert far["url"] == "https://[hidden]@far.example.org/mcp?api_key=[hidden]&page=3"
    assert far["headers"] == {"Authorization": "[hidden]", "Other": "env:OTHER"}
    assert tools["own"] == {"api_token": "[hidden]", "level": 3}


def test_trying_a_tool_resolves_the_reference_and_hides_the_value(leaky: Workshop) -> None:
    header = "header=Bearer ${{secrets.TOKEN}}"
    told = clean(leaky.run("tools", "test", "leak.all", "-i", header, MY_TOKEN=VALUE))
    assert (leaky.folder / "got.txt").read_text() == f"Bearer {VALUE}\n"
    assert 'calls leak.all with {"header": "Bearer ${{ secrets.TOKEN }}"}' in told.out
    assert "[secret TOKEN]" in told.out
    failed = clean(leaky.run("tools", "test", "leak.fail", "-i", "token=${{ secrets.TOKEN }}", code=1, MY_TOKEN=VALUE))
    assert "the service refused [secret TOKEN]" in failed.out


def test_trying_a_tool_hides_a_secret_that_it_came_upon_by_itself(leaky: Workshop) -> None:
    with (leaky.folder / "tools.py").open("a") as tools:
        tools.write(
            "\nimport os\n"
            '@holdfast.tool(name="leak.own", effect="read")\n'
            "def own(fails: bool = False) -> str:\n"
            '    if fails: raise holdfast.ToolError("refused " + os.environ["MY_TOKEN"])\n'
            '    return os.environ["MY_TOKEN"]\n'
        )
    told = clean(leaky.run("tools", "test", "leak.own", MY_TOKEN=VALUE))
    assert "[secret TOKEN]" in told.out
    failed = clean(leaky.run("tools", "test", "leak.own", "-i", "fails=true", code=1, MY_TOKEN=VALUE))
    assert "refused [secret TOKEN]" in failed.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${{ secrets.TOKN }}", 'no secret called "TOKN" is declared under [secrets]'),
        ("${{ secrets.TOKEN }}", "the secret TOKEN needs the environment variable MY_TOKEN; set it"),
        ("${{ inputs.x }}", "there is no plan here, so only ${{ secrets.NAME }} has a meaning"),
    ],
)
def test_trying_a_tool_with_a_reference_that_leads_nowhere_calls_nothing(leaky: Workshop, text: str, said: str) -> None:
    refused = leaky.run("tools", "test", "leak.all", "-i", f"header={text}", code=2)
    assert said in refused.err
    assert not (leaky.folder / "got.txt").exists()
