"""Recorded executions against new code: the same, or where it differs; and no tool is ever called."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.testing import Lab, LabError, record, replay

PLAN: dict[str, Any] = {
    "name": "p",
    "inputs": {"page": "number"},
    "steps": [
        {"id": "look", "tool": "look", "with": {"page": "${{ inputs.page }}"}},
        {"id": "rest", "wait": "1d"},
        {"id": "each", "for_each": [1, 2], "tool": "look", "with": {"page": "${{ item }}"}},
        {"id": "publish", "tool": "publish", "with": {"text": "${{ steps.look.output }}"}, "approval": "required"},
    ],
}


@holdfast.tool(effect="read")
async def look(page: int) -> str:
    raise AssertionError("called")


@holdfast.tool(effect="once")
async def publish(text: str) -> str:
    raise AssertionError("called")


@holdfast.function
async def child(ctx: holdfast.Context) -> int:
    return 7


def program(change: str = "") -> Any:
    @holdfast.function(name="program")
    async def changing(ctx: holdfast.Context, page: int) -> Any:
        text = await ctx.call(look, page + (change == "other input"))
        text += change if change == "other text" else ""
        await ctx.sleep("2d" if change != "other wait" else "3d")
        if change == "new step":
            await ctx.call(publish, "draft", name="draft")
        if change == "new wait":
            await ctx.wait_for("go")
        if change == "new question":
            await ctx.ask("sure?", name="sure")
        if change == "new sleep":
            await ctx.sleep("1h", name="nap")
        if change == "new child":
            await ctx.start(child, name="second")
        number = ctx.random()
        born = await ctx.start(child)
        both = await ctx.gather(lambda c: c.call(publish, text), lambda c: c.call(look, 8)) if change != "less" else 0
        return [both, number, await born.result()] if change != "other end" else 5

    return changing


@pytest.fixture
def recording(lab: Lab) -> bytes:
    lab.fake(look, returns="seen")
    lab.fake(publish, returns="x" * 20_000)
    return lab.run(program(), inputs={"page": 1}).recording


@pytest.fixture
def of_plan(lab: Lab) -> bytes:
    lab.fake(look, returns="seen")
    lab.fake(publish, returns="out")
    return lab.run(PLAN, inputs={"page": 1}, answers={"publish": True}).recording


def test_unchanged_code_is_the_same(recording: bytes) -> None:
    replayed = replay(recording, program())
    assert replayed.is_same
    assert str(replayed) == "same"
    assert (replayed.recorded, replayed.ended) == ("completed", "completed")


def test_an_unchanged_plan_is_the_same_and_needs_no_tools(of_plan: bytes) -> None:
    assert replay(of_plan).is_same
    assert replay(of_plan, PLAN).is_same


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("other input", 'diverged at step look\n    recorded:  look {"page":1}\n    attempted: look {"page":2}'),
        (
            "other wait",
            "diverged at step sleep\n    recorded:  wait.timer 172800 s\n    attempted: wait.timer 259200 s",
        ),
        ("new step", 'would take a new step: draft: publish {"text":"draft"}'),
        ("new wait", 'would take a new step: wait_for.go: wait.event "go"'),
        ("new question", 'would take a new step: sure: human.ask "sure?"'),
        ("new sleep", 'would take a new step: nap: wait.timer "3600 s"'),
        ("new child", "would take a new step: second: child"),
        ("less", "no longer asks for the recorded step gather[0]/publish"),
        ("other end", "ended otherwise\n    recorded:  completed [["),
    ],
)
def test_changed_code_is_told_apart(recording: bytes, change: str, said: str) -> None:
    replayed = replay(recording, program(change))
    assert not replayed.is_same
    assert str(replayed).startswith(f"not the same\n  {said}")


def test_what_comes_after_a_divergence_is_not_called_left_out(recording: bytes) -> None:
    replayed = replay(recording, program("other input"))
    assert (len(replayed.divergences), replayed.left_out, replayed.new_steps) == (1, [], [])


def test_a_changed_plan_is_told_apart(of_plan: bytes) -> None:
    other = copy.deepcopy(PLAN)
    other["steps"][0]["with"] = {"page": 9}
    assert str(replay(of_plan, other)).endswith('recorded:  look {"page":1}\n    attempted: look {"page":9}')
    longer = copy.deepcopy(PLAN)
    longer["steps"].append({"id": "tell", "tool": "tell", "with": {"whom": "ada"}})
    assert [str(step) for step in replay(of_plan, longer).new_steps] == ['tell: tell {"whom":"ada"}']
    gated = copy.deepcopy(PLAN)
    gated["steps"].insert(1, {"id": "sure", "approval": "go on?"})
    assert [(step.path, step.tool) for step in replay(of_plan, gated).new_steps] == [("sure", "approval")]
    shorter = copy.deepcopy(PLAN)
    del shorter["steps"][2]
    assert replay(of_plan, shorter).left_out == ["each", "each[0]", "each[1]"]


def test_an_effect_that_the_plan_itself_says_is_compared_though_its_tool_is_only_named(of_plan: bytes) -> None:
    other = copy.deepcopy(PLAN)
    other["steps"][0]["effect"] = "once"
    assert [str(difference) for difference in replay(of_plan, other).divergences] == [
        "step look\n    recorded:  look, effect read\n    attempted: look, effect once"
    ]
    other["steps"][0]["effect"] = "read"
    assert replay(of_plan, other).is_same


def test_a_failed_execution_fails_the_same_way(lab: Lab) -> None:
    lab.fake(look, raises=holdfast.InvalidCall("no"))
    recording = lab.run(program(), inputs={"page": 1}).recording
    replayed = replay(recording, program())
    assert (replayed.is_same, replayed.recorded, replayed.ended) == (True, "failed", "failed")


@pytest.mark.parametrize("commands", [{}, {"2d": "pause"}, {"2d": "interrupt"}, {"2d": "stop"}])
def test_an_unfinished_execution_tells_how_it_would_go_on(lab: Lab, commands: dict[str, str]) -> None:
    lab.fake(look, returns="seen")
    lab.fake(publish, returns="out")
    recording = lab.run(PLAN, inputs={"page": 1}, commands=commands).recording
    replayed = replay(recording)
    assert (replayed.is_same, replayed.recorded, replayed.ended) == (True, "unfinished", "unfinished")
    assert [str(step) for step in replayed.open_steps] == ['publish: publish {"text":"seen"}']
    assert (replayed.new_steps, replayed.left_out) == ([], [])
    assert (
        str(replayed)
        == """\
same up to publish; the recording goes no further
  goes on with the open step publish: publish {"text":"seen"}"""
    )


def test_a_step_that_was_under_way_is_compared_too(lab: Lab) -> None:
    lab.fake(look, returns="seen")
    lab.fake(publish, returns="out")
    recording = lab.run(program(), inputs={"page": 1}, crash_at="after:publish").recording
    replayed = replay(recording, program())
    assert replayed.is_same
    assert [step.path for step in replayed.open_steps] == ["gather[0]/publish"]
    other = str(replay(recording, program("other text")))
    assert other.startswith("not the same\n  diverged at step gather[0]/publish\n    recorded:  publish ")


def test_no_hook_and_no_fallback_of_a_real_tool_is_called(lab: Lab) -> None:
    called: list[str] = []

    @holdfast.tool(effect="once", in_doubt="verify")
    async def pay(amount: int) -> None:
        called.append("pay")

    @pay.verify
    async def paid(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        called.append("verify")
        return holdfast.Unknown()

    @holdfast.tool(effect="read")
    async def other(page: int) -> str:
        called.append("other")
        return "x"

    @holdfast.function
    async def risky(ctx: holdfast.Context) -> None:
        policy = holdfast.StepPolicy(fallback=(holdfast.Fallback(tool="other"),))
        await ctx.gather(ctx.call(pay, 3), ctx.call(look, 1, policy=policy))

    lab.fake(pay, takes="10m")
    lab.fake(look, raises=holdfast.InvalidCall("no"))
    lab.fake(other, takes="10m")
    recording = lab.run(risky, commands={"1m": "interrupt"}).recording
    replayed = replay(recording, risky, tools=[other])
    assert [step.path for step in replayed.open_steps] == ["pay", "look"]
    assert (replayed.new_steps, called) == ([], [])


async def test_an_execution_of_a_live_engine_is_recorded(tmp_path: Path) -> None:
    @holdfast.function
    async def hello(ctx: holdfast.Context) -> str:
        return await ctx.run("greet", lambda: "hello")

    async with holdfast.Engine(folder=tmp_path) as engine:
        await (await engine.start(hello)).result()
        (tmp_path / "hello.json").write_bytes(await record(engine, "@last"))
    file = msgspec.json.decode((tmp_path / "hello.json").read_bytes())
    assert (file["holdfast"], file["version"]) == ("recording", 1)
    with pytest.raises(LabError, match="call it from a plain `def`"):
        replay(tmp_path / "hello.json", hello)


def test_a_recording_is_read_from_its_file(recording: bytes, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_bytes(recording)
    assert replay(tmp_path / "kept.json", program()).is_same
    assert replay(str(tmp_path / "kept.json"), program()).is_same
    assert replay(recording.decode(), program()).is_same


def test_a_recording_that_was_cut_between_two_events_is_refused(recording: bytes) -> None:
    file = msgspec.json.decode(recording)
    count = len(file["events"])
    last = file["events"].pop()
    with pytest.raises(LabError, match=f"this is damaged: it was made with {count} events and holds {count - 1}$"):
        replay(msgspec.json.encode(file), program())
    file["count"] -= 1
    with pytest.raises(LabError, match="this is damaged: its last event is not the one it was made with"):
        replay(msgspec.json.encode(file), program())
    file["count"] += 1
    assert replay(msgspec.json.encode({**file, "events": [*file["events"], last]}), program()).is_same


def test_a_recording_that_does_not_say_where_it_ends_is_read(recording: bytes) -> None:
    file = msgspec.json.decode(recording)
    del file["count"], file["final"]
    assert str(replay(msgspec.json.encode(file), program())) == "same"
    file["events"].pop()
    told = str(replay(msgspec.json.encode(file), program())).splitlines()
    assert told[0] == "same up to start.child; the recording goes no further"
    assert told[1].startswith("  would end: completed [")
    assert len(told) == 2


def test_what_cannot_be_replayed_says_why(recording: bytes) -> None:
    with pytest.raises(LabError, match="recording of the function program; hand it over as program="):
        replay(recording)
    with pytest.raises(LabError, match=r"this is not a recording \("):
        replay(b"{}")
    with pytest.raises(LabError, match="this is damaged: event 1 was changed after it was written"):
        replay(recording.replace(b"program", b"prigram"), program())
    with pytest.raises(LabError, match="this is damaged: event 1 was changed"):
        replay(recording.replace(b'"digest": "', b'"digest": "?', 1), program())
    with pytest.raises(LabError, match="this has version 2, this Holdfast reads 1; upgrade it"):
        replay(recording.replace(b'"version": 1', b'"version": 2', 1), program())
    with pytest.raises(LabError, match=r"nowhere\.json cannot be read: No such file"):
        replay("nowhere.json")
    with pytest.raises(LabError) as error:
        replay("nowhere" * 1000)
    assert len(str(error.value)) < 300
    with pytest.raises(LabError, match=r"a recording is a file, or what is in one \(bytes or text\); not 5"):
        replay(5, program())  # type: ignore[arg-type]
    with pytest.raises(LabError, match=r"tools= takes tools, and child is a function; .* functions=\[child\]"):
        replay(recording, program(), tools=[look, child])  # type: ignore[list-item]
    with pytest.raises(LabError, match="this is not a recording"):
        replay('{"some": "text"}')
    with pytest.raises(LabError, match="this holds no execution"):
        replay(b'{"holdfast": "recording", "version": 1, "id": "x", "events": []}')
