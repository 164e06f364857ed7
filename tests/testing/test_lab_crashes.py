"""`crash_at`: a process is killed where a test says, another takes over, and what must not change does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab, LabError
from testing.shop import buy, charge, look, stocked


@pytest.fixture
def shop(lab: Lab) -> Lab:
    return stocked(lab)


def test_a_crash_after_a_once_tool_leaves_a_doubt(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="after:charge")
    assert (outcome.status, outcome.waiting_for) == ("waiting", "a doubt to be settled (charge)")
    assert (outcome.doubts, outcome.crashes, len(outcome.calls_of("charge"))) == (["charge"], ["after:charge"], 1)
    assert outcome.requests[0]["kind"] == "doubt"
    assert "task:recovered" in outcome.names()


def test_a_crash_before_a_once_tool_leaves_a_doubt_too_and_nothing_was_called(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="before:charge")
    assert (outcome.doubts, outcome.calls_of("charge")) == (["charge"], [])


def test_a_doubt_is_settled_by_a_scripted_person(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="after:charge", answers={"charge": shop.resolve("done", output="found")})
    assert outcome.output == ["found", 3]
    assert len(outcome.calls_of("charge")) == 1
    again = shop.run(buy, crash_at="after:charge", answers={"charge": "again"})
    assert (again.output, len(again.calls_of("charge"))) == (["charged", 3], 2)


def test_a_read_tool_simply_runs_again(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="after:look")
    assert outcome.status == "completed"
    assert [call.path for call in outcome.calls_of("look")] == ["look", "look", "look~2"]


def test_a_point_may_be_the_second_call_or_a_step(shop: Lab) -> None:
    second = shop.run(buy, crash_at="before:look#2")
    step = shop.run(buy, crash_at="before:look~2")
    assert second.names() == step.names()
    assert [call.path for call in second.calls] == ["look", "charge", "look~2"]


def test_a_point_may_be_an_event_that_nobody_has_been_told_of(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="step:completed charge")
    assert (outcome.status, outcome.doubts, len(outcome.calls_of("charge"))) == ("completed", [], 1)
    anywhere = shop.run(buy, crash_at="task:waiting")
    assert anywhere.status == "completed"


def test_a_point_may_be_a_journal_write(shop: Lab) -> None:
    before = shop.run(buy, crash_at="before:commit:1")
    assert before.names("task:")[:2] == ["task:created", "task:started"]
    after = shop.run(buy, crash_at="commit:1")
    assert after.names("task:")[:3] == ["task:created", "task:started", "task:recovered"]
    assert shop.run(buy, crash_at="after:commit:1").recording == after.recording


def test_several_crashes_come_one_after_the_other(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at=["after:look", "after:look", "step:waiting sleep"])
    assert outcome.crashes == ["after:look", "after:look", "step:waiting sleep"]
    assert len(outcome.calls_of("look")) == 4
    assert outcome.names("task:recovered") == ["task:recovered"] * 3


@pytest.mark.parametrize(
    ("point", "text"),
    [
        ("sometimes", 'crash_at="sometimes" names no point; write "before:TOOL"'),
        ("step:complete charge", 'there is no event step:complete; did you mean "step:completed"'),
        ("before:commit:", 'crash_at="before:commit:": say the number of the journal write, such as "commit:7"'),
        ("commit:two", "say the number of the journal write"),
        ("commit:0", "journal writes are counted from 1"),
        ("after:charge#0", 'crash_at="after:charge#0": calls and events are counted from 1'),
        ("after:charge#2", "was never reached; calls of charge: 1, of which returned: 1; the execution"),
        ("step:completed chrage", 'was never reached; did you mean "charge"?; the execution'),
        (
            "step:completed publish",
            "was never reached; there were the steps look, charge, sleep, look~2; the execution",
        ),
        ([], "crash_at is empty, so nothing would crash"),
        (3, "crash_at takes a point or a list of points, not 3; write"),
        (["commit:1", None], "crash_at takes a point or a list of points, not None; write"),
        (["everywhere"], 'crash_at: "everywhere" stands alone, not in a list'),
        ("after:chrage", 'crash_at="after:chrage" was never reached; did you mean "charge"'),
        ("after:publish", 'crash_at="after:publish" was never reached; called were: look, charge, look~2'),
        ("commit:1000", 'crash_at="commit:1000" was never reached; there were '),
        ("step:failed", 'crash_at="step:failed" was never reached; the execution is completed'),
    ],
)
def test_a_point_that_is_not_there_is_named(shop: Lab, point: Any, text: str) -> None:
    with pytest.raises(LabError) as error:
        shop.run(buy, crash_at=point)
    assert text in str(error.value)


def test_a_process_that_was_killed_says_no_last_words(lab: Lab) -> None:
    said: list[str] = []
    heard: list[list[str]] = []

    @holdfast.tool(effect="read")
    async def wordy() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            said.append("last words")

    def listen(value: int = 0) -> int:
        heard.append(list(said))
        return 1

    @holdfast.function
    async def both(ctx: holdfast.Context) -> None:
        await ctx.gather(ctx.call(wordy), ctx.call(look))

    lab.use(wordy)
    lab.fake(look, does=listen)
    assert lab.run(both, crash_at="after:look").status == "completed"
    assert heard == [[], []]


def test_a_call_that_raised_is_not_counted_as_one_that_returned(lab: Lab) -> None:
    lab.fake(look, raises=[holdfast.Transient("down")], returns=3)

    @holdfast.function
    async def glance(ctx: holdfast.Context) -> int:
        return await ctx.call(look)

    assert lab.run(glance, crash_at="before:look#2").status == "completed"
    with pytest.raises(LabError, match="calls of look: 2, of which returned: 1"):
        lab.run(glance, crash_at="after:look#2")


def test_the_count_begins_anew_after_a_crash(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at=["before:look#2", "before:look#1"])
    assert [call.path for call in outcome.calls] == ["look", "charge", "look~2"]


def test_in_a_plan_an_event_tells_of_a_step_and_not_of_a_tool(shop: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "c", "tool": "charge", "with": {"amount": 1}}]}
    with pytest.raises(LabError, match="charge is a tool, and an event tells of a step: c; the execution"):
        shop.run(plan, crash_at="step:completed charge")
    with pytest.raises(
        LabError, match=r'commands\["step:completed charge"\]: that moment never came; charge is a tool'
    ):
        shop.run(plan, commands={"step:completed charge": "pause"})


def test_a_doubt_is_settled_by_a_person_who_looks(shop: Lab) -> None:
    after = shop.run(buy, crash_at="after:charge", doubts="look")
    assert (after.output, after.doubts, len(after.calls_of("charge"))) == (["charged", 3], ["charge"], 1)
    before = shop.run(buy, crash_at="before:charge", doubts="look")
    assert (before.output, before.doubts, len(before.calls_of("charge"))) == (["charged", 3], ["charge"], 1)


def test_an_answer_that_a_doubt_kept_from_being_asked_for_says_so(shop: Lab) -> None:
    @holdfast.function
    async def asking(ctx: holdfast.Context) -> Any:
        await ctx.call(charge, 1)
        return await ctx.ask("agreed?", name="agree")

    with pytest.raises(LabError) as error:
        shop.run(asking, crash_at="after:charge", answers={"agree": True})
    assert 'answers["agree"] was never asked for; asked about: charge' in str(error.value)
    assert (
        "the execution is waiting for a doubt to be settled (charge); "
        'settle it with answers={"charge": "again"}, or with doubts="look"'
    ) in str(error.value)
    outcome = shop.run(asking, crash_at="after:charge", answers={"agree": True}, doubts="look")
    assert outcome.output is True
