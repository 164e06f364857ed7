"""`crash_at="everywhere"`: the same run, killed at every point, must come to the same end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.testing import Lab, LabError, NotCrashSafe
from holdfast.testing.lab.sweep import differences, effects
from testing.shop import buy, charge, look, stocked


@pytest.fixture
def shop(lab: Lab) -> Lab:
    return stocked(lab)


def test_a_crash_everywhere_tries_every_write_and_every_call(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="everywhere")
    assert outcome.output == ["charged", 3]
    writes = [f"{when}:commit:{number}" for number in range(1, outcome.commits + 1) for when in ("before", "after")]
    calls = [f"{when}:{call}" for call in ("look#1", "charge#1", "look#2") for when in ("before", "after")]
    assert outcome.points == [*writes, *calls]
    assert len(outcome.calls_of("charge")) == 1


def test_a_crash_everywhere_works_with_people_events_children_and_threads(lab: Lab) -> None:
    @holdfast.tool(effect="once")
    def blocking(value: int, call: holdfast.Call) -> int:
        call.note({"value": value})
        return value + 1

    @holdfast.function
    async def child(ctx: holdfast.Context) -> int:
        await ctx.sleep("2h")
        return await ctx.call(blocking, 1)

    @holdfast.function
    async def parent(ctx: holdfast.Context) -> Any:
        run = await ctx.start(child)
        both = await ctx.gather(ctx.call(look), ctx.call(blocking, 5))
        return [both, await ctx.wait_for("go"), await ctx.ask("colour?"), await run.result()]

    lab.use(blocking)
    lab.fake(look, returns=3)
    outcome = lab.run(parent, events={"go": lab.later("1h", "now")}, answers={"ask": "blue"}, crash_at="everywhere")
    assert outcome.output == [[3, 6], "now", "blue", 2]
    assert len(outcome.points) > 40


def test_a_program_that_leans_on_what_dies_with_its_process_is_found_out(lab: Lab) -> None:
    @holdfast.function
    async def forgetful(ctx: holdfast.Context) -> int:
        await ctx.call(charge, 1)
        return len(charged.calls)

    charged = lab.fake(charge, effect="idempotent", returns="x")
    with pytest.raises(NotCrashSafe) as error:
        lab.run(forgetful, crash_at="everywhere")
    assert str(error.value).startswith("2 of 8 crashes change what becomes of it\nkilled at before:commit:3:")
    assert "killed at after:charge#1:\n  its output is 2; left alone it is 1" in str(error.value)


def test_a_program_that_is_not_the_same_on_replay_is_found_out(lab: Lab) -> None:
    calls: list[int] = []

    @holdfast.function
    async def fickle(ctx: holdfast.Context) -> None:
        calls.append(1)
        await ctx.call(charge, len(calls))

    lab.fake(charge, returns="x")
    with pytest.raises(NotCrashSafe, match="step charge was recorded with another input"):
        lab.run(fickle, crash_at="everywhere")


def test_a_program_that_changes_its_mind_while_it_waits_is_found_out(lab: Lab) -> None:
    calls: list[int] = []

    @holdfast.function
    async def fickle(ctx: holdfast.Context) -> None:
        calls.append(1)
        await ctx.call(charge, len(calls))
        await ctx.sleep("1h")

    lab.fake(charge, returns="x")
    with pytest.raises(NotCrashSafe, match="even left alone, it is not the same when it wakes up\nstep charge was"):
        lab.run(fickle, crash_at="everywhere")


def test_a_sweep_of_a_run_that_does_not_complete_is_refused_unless_it_is_meant(lab: Lab) -> None:
    @holdfast.function
    async def asking(ctx: holdfast.Context) -> Any:
        return [await ctx.call(look), await ctx.ask("agreed?", name="agree")]

    lab.fake(look, returns=3)
    with pytest.raises(LabError, match=r'left alone, the execution is waiting for an answer \(agree\).*ends="waiting"'):
        lab.run(asking, crash_at="everywhere")
    assert lab.run(asking, crash_at="everywhere", ends="waiting").points
    assert lab.run(asking, crash_at="everywhere", answers={"agree": 1}).output == [3, 1]
    with pytest.raises(LabError, match='the execution is completed; if that is meant, say ends="completed"'):
        lab.run(asking, crash_at="everywhere", answers={"agree": 1}, ends="waiting")
    lab.fake(look, raises=holdfast.Transient("down"), replace=True)
    with pytest.raises(LabError, match=r'the execution is failed: down.*ends="failed"'):
        lab.run(asking, crash_at="everywhere")
    assert lab.run(asking, crash_at="everywhere", ends="failed").status == "failed"


def test_a_test_may_say_how_a_run_ends(shop: Lab) -> None:
    assert shop.run(buy, ends="completed").status == "completed"
    with pytest.raises(LabError, match="it should end as failed; the execution is completed"):
        shop.run(buy, ends="failed")
    with pytest.raises(
        LabError, match=r"ends= is one of completed, failed, stopped, waiting.*did you mean \"completed\""
    ):
        shop.run(buy, ends="complete")
    with pytest.raises(LabError, match="doubts= is one of wait, look, not 'ask'"):
        shop.run(buy, doubts="ask")  # type: ignore[arg-type]


def test_what_the_clock_says_may_differ_and_a_test_may_say_what_may_not(lab: Lab) -> None:
    @holdfast.function
    async def dated(ctx: holdfast.Context) -> dict[str, Any]:
        await ctx.call(look)
        return {"at": str(ctx.now()), "value": 3}

    lab.fake(look, returns=1)
    with pytest.raises(NotCrashSafe, match=r"asks ctx for the time or for chance.*say with same="):
        lab.run(dated, crash_at="everywhere")
    assert lab.run(dated, crash_at="everywhere", same=lambda outcome: outcome.output["value"]).points
    with pytest.raises(NotCrashSafe, match="left alone it is"):
        lab.run(dated, crash_at="everywhere", same=lambda outcome: outcome.crashes)


def test_a_once_tool_that_is_retried_by_its_own_policy_is_reported_in_doubt(lab: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "c", "tool": "charge", "with": {"amount": 1}, "in_doubt": "retry"}]}
    fake = lab.fake(charge, returns="x")
    lab.run(plan, crash_at="everywhere")
    outcome = lab.run(plan, crash_at="after:charge")
    assert (outcome.doubts, len(fake.calls)) == (["c"], 2)


def test_a_doubt_that_is_a_failure_by_policy_is_no_surprise(lab: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "c", "tool": "charge", "with": {"amount": 1}, "in_doubt": "fail"}]}
    lab.fake(charge, returns="x")
    assert lab.run(plan, crash_at="everywhere").status == "completed"
    assert lab.run(plan, crash_at="after:charge").status == "failed"


def test_an_answer_for_a_doubt_counts_as_asked_for_in_any_of_the_runs(shop: Lab) -> None:
    done = shop.resolve("done", output="charged")
    assert shop.run(buy, crash_at="everywhere", answers={"charge": done}).status == "completed"
    with pytest.raises(LabError, match=r'answers\["chrge"\] was never asked for'):
        shop.run(buy, crash_at="everywhere", answers={"chrge": done})


def test_cancelled_branches_that_never_began_leave_no_warning(lab: Lab) -> None:
    @holdfast.function
    async def many(ctx: holdfast.Context) -> int:
        await ctx.gather(*(ctx.call(look) for _ in range(3)))
        return 1

    lab.fake(look, returns=1)
    assert lab.run(many, crash_at="everywhere").output == 1


def test_work_that_was_done_twice_without_a_doubt_is_a_difference(shop: Lab) -> None:
    outcome = shop.run(buy, crash_at="everywhere")
    twice = [*outcome.calls, *outcome.calls_of("charge")]
    silent = msgspec.structs.replace(outcome, calls=twice)
    assert effects(silent) == ["step charge did its work 2 times, and nobody was asked"]
    assert effects(msgspec.structs.replace(silent, doubts=["charge"])) == []
    assert effects(msgspec.structs.replace(outcome, children=[silent])) == effects(silent)


def test_a_step_that_ends_otherwise_is_a_difference_though_the_output_is_the_same(lab: Lab) -> None:
    @holdfast.function
    async def glance(ctx: holdfast.Context) -> str:
        await ctx.call(look)
        return "done"

    looked = lab.fake(look, does=lambda value=0: len(looked.calls))
    with pytest.raises(NotCrashSafe, match="step look is completed with 2; left alone it is completed with 1"):
        lab.run(glance, crash_at="everywhere")


def test_children_are_compared_too(shop: Lab) -> None:
    one = shop.run(buy)
    family = msgspec.structs.replace(one, children=[one])
    assert differences(family, one) == ["it has 0 children; left alone it has 1"]
    failed = msgspec.structs.replace(one, children=[msgspec.structs.replace(one, value=5)])
    assert differences(family, failed) == [f"in a child: its output is 5; left alone it is {one.output!r}"]
    empty = msgspec.structs.replace(one, steps={})
    assert "step look is not there; left alone it is completed with 3" in differences(one, empty)


@holdfast.tool(effect="once", cost=0.30)
async def priced() -> str:
    return "bought"


def test_a_crash_that_costs_more_than_a_tight_budget_allows_says_why_and_can_be_answered(lab: Lab) -> None:
    lab.fake(priced, returns="bought")
    plan = {"name": "paid", "budget": 0.5, "steps": [{"id": "buy", "tool": "priced"}]}
    with pytest.raises(NotCrashSafe, match=r"larger budget \(buy\).* an attempt that a crash loses counts its cost"):
        lab.run(plan, crash_at="everywhere")
    assert lab.run(plan, crash_at="everywhere", budget=0.6).output == "bought"
    again = {"buy": lab.in_turn("again", 1.0)}
    assert lab.run(plan, crash_at="everywhere", answers=again).output == "bought"


def test_the_ids_of_executions_may_be_journaled(lab: Lab) -> None:
    @holdfast.tool(effect="idempotent")
    async def keyed(call: holdfast.Call, of: str = "") -> list[str]:
        return [call.key, of]

    @holdfast.function
    async def inner(ctx: holdfast.Context) -> list[str]:
        return await ctx.call(keyed)

    @holdfast.function
    async def outer(ctx: holdfast.Context) -> list[Any]:
        run = await ctx.start(inner, name="child")
        return [run.id, await run.result(), await ctx.call(keyed, run.id)]

    lab.use(keyed)
    outcome = lab.run(outer, crash_at="everywhere")
    assert outcome.output[0] in outcome.output[1][0]
