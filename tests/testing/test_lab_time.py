"""Virtual time: what passes at once, what has no place in it, and what would never end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab, LabError
from holdfast.testing.lab import loop as lab_loop


def one_step(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "p", "steps": [{"id": "s", "tool": tool, "with": arguments}]}


def test_years_pass_as_exactly_as_seconds() -> None:
    @holdfast.function
    async def patient(ctx: holdfast.Context) -> str:
        await ctx.sleep("1000d")
        await ctx.sleep("1ms")
        return ctx.now().isoformat()

    lab = Lab(start="2030-01-01T00:00:00Z", limit="1001d")
    assert lab.run(patient).output == "2032-09-27T00:00:00.001000+00:00"


def test_a_tool_may_sleep_and_its_time_limit_is_kept(lab: Lab) -> None:
    lab.use("time.sleep")
    assert lab.run(one_step("time.sleep", seconds=3599)).seconds == 3599
    outcome = lab.run(one_step("time.sleep", seconds=3700))
    assert "time.sleep took longer than 3600 s" in outcome.described()


def test_two_time_limits_are_each_kept(lab: Lab) -> None:
    @holdfast.tool(effect="read", retry=0)
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @holdfast.function
    async def naps(ctx: holdfast.Context) -> list[Any]:
        await ctx.gather(ctx.call(nap, 10), ctx.call(nap, 3500))
        return await ctx.gather(ctx.call(nap, 20), ctx.call(nap, 4000))

    lab.use(nap)
    outcome = lab.run(naps)
    assert (outcome.status, outcome.seconds) == ("failed", 3500 + 3600)


def test_a_blocking_tool_takes_no_virtual_time(lab: Lab) -> None:
    @holdfast.tool(effect="read")
    def block() -> str:
        time.sleep(0.05)
        return "done"

    lab.use(block)
    outcome = lab.run(one_step("block"))
    assert (outcome.output, outcome.seconds) == ("done", 0)


def test_a_blocking_tool_finds_its_notes_again(lab: Lab) -> None:
    @holdfast.tool(effect="idempotent")
    def copy(call: holdfast.Call) -> Any:
        found = call.notes
        call.note({"page": call.attempt})
        call.note({"page": call.attempt + 10})
        return found

    lab.use(copy)
    assert lab.run(one_step("copy")).output is None
    assert lab.run(one_step("copy"), crash_at="after:copy").output == {"page": 11}
    assert lab.run(one_step("copy"), crash_at="step:noted#1").output == {"page": 1}


def test_a_blocking_tool_is_interrupted_while_it_writes_a_note(lab: Lab) -> None:
    went_on: list[bool] = []

    @holdfast.tool(effect="once")
    def noting(call: holdfast.Call) -> str:
        call.note(1)
        call.note(2)
        went_on.append(True)
        return "done"

    lab.use(noting)
    outcome = lab.run(one_step("noting"), commands={"step:noted": "interrupt"})
    assert (outcome.status, outcome.steps["s"]["status"], went_on) == ("interrupted", "completed", [True])


def test_a_blocking_tool_hears_that_its_note_is_too_large(lab: Lab) -> None:
    @holdfast.tool(effect="read")
    def boast(call: holdfast.Call) -> None:
        call.note("x" * 20_000)

    lab.use(boast)
    assert "at most 16384 are kept" in lab.run(one_step("boast")).steps["s"]["failure"]["message"]


def test_code_in_other_threads_is_waited_for(lab: Lab) -> None:
    @holdfast.tool(effect="read")
    async def threaded(fails: bool = False) -> str | int:
        return await asyncio.to_thread("{}".format, 1) if not fails else await asyncio.to_thread(int, "x")

    lab.use(threaded)
    assert lab.run(one_step("threaded")).output == "1"
    assert "invalid literal" in lab.run(one_step("threaded", fails=True)).steps["s"]["failure"]["message"]


@pytest.mark.parametrize(
    ("tool", "arguments", "what"),
    [
        ("shell.run", {"command": "true"}, "another process"),
        ("shell.run", {"command": "cat", "stdin": "x"}, "another process"),
        ("http.get", {"url": "${{ ['http://127.0.0.1:9/'][0] }}"}, "the network"),
        ("http.get", {"url": "${{ ['http://localhost:9/'][0] }}"}, "the network"),
    ],
)
def test_what_takes_real_time_is_refused(lab: Lab, tool: str, arguments: dict[str, Any], what: str) -> None:
    lab.use(tool)
    with pytest.raises(LabError, match=f"step s wants {what}, which takes real time, and the lab runs in virtual time"):
        lab.run(one_step(tool, **arguments))


@pytest.mark.parametrize(
    "reach",
    [
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: asyncio.create_subprocess_shell("true"),
        lambda loop: asyncio.open_unix_connection("/nowhere"),
        lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)),
        lambda loop: loop.sock_connect(None, ("127.0.0.1", 9)),
        lambda loop: asyncio.open_connection("127.0.0.1", 9),
    ],
)
def test_a_tool_that_reaches_out_is_refused_however_it_does(lab: Lab, reach: Any) -> None:
    @holdfast.tool(effect="read")
    async def reaching() -> None:
        await reach(asyncio.get_running_loop())

    lab.use(reaching)
    with pytest.raises(LabError, match="put a fake in the place of its tool"):
        lab.run(one_step("reaching"))


def test_a_program_that_waits_for_ever_is_stopped_with_a_clear_word() -> None:
    @holdfast.function
    async def heartbeat(ctx: holdfast.Context) -> None:
        while True:
            await ctx.sleep("1d")

    with pytest.raises(LabError, match="it is not over after 90 days of virtual time"):
        Lab(limit="90d").run(heartbeat)


def test_a_program_that_writes_for_ever_is_stopped_with_a_clear_word() -> None:
    @holdfast.function
    async def chatty(ctx: holdfast.Context) -> None:
        while True:
            await ctx.run("again", lambda: 1)

    with pytest.raises(LabError, match=r"it has written 500 events and is not over; the last was step:\w+ again~"):
        Lab(events_max=500).run(chatty)
    with pytest.raises(LabError, match=r"the last was task:started\. Look"):
        Lab(events_max=1).run(chatty)


def test_a_program_that_runs_in_circles_is_stopped_with_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    @holdfast.function
    async def circling(ctx: holdfast.Context) -> None:
        while True:  # noqa: ASYNC110 -- the mistake itself
            await asyncio.sleep(0)

    monkeypatch.setattr(lab_loop, "TURNS_MAX", 2_000)
    with pytest.raises(LabError, match="the program runs in circles"):
        Lab().run(circling)


def test_many_waits_are_quick_and_the_first_are_replayed() -> None:
    replayed: list[int] = []

    @holdfast.function
    async def daily(ctx: holdfast.Context) -> int:
        replayed.append(1)
        for _ in range(200):
            await ctx.sleep("1d")
        return 200

    assert Lab().run(daily).output == 200
    assert 20 < len(replayed) < 50
