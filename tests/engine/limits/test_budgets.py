"""Budgets: room is reserved before a call and settled after it; without room a step waits, or a person is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import holdfast
from engine.kit import (  # fmt: skip
    FAST,
    HURRY,
    Gate,
    Script,
    echo,
    engine_at,
    events,
    names,
    plan,
    quiet,
    result,
    seen,
    settled,
    step,
    step_of,
    turns,
)
from holdfast.core import events as ev
from holdfast.core.errors import InputInvalid
from holdfast.core.policy import LOSSES_MAX
from holdfast.engine.step.perform import input_digest

NOTHING = Raw(b"{}")
DIGEST = input_digest("ask", b"{}")


@holdfast.tool(effect="read", cost=0.3)
async def ask(value: Any = None) -> Any:
    return value


@holdfast.tool(effect="once", cost=0.3)
def draw(call: holdfast.Call, usd: float = 0.1) -> float:
    """In a thread, and says what it cost."""
    call.spend(usd)
    return usd


def paid(*steps: Any, usd: float = 0.5, **others: Any) -> dict[str, Any]:
    return plan(*steps, budget=usd, **others)


async def spend_of(run: holdfast.Run) -> tuple[Any, ...]:
    """Spent, unknown, limit, reserved."""
    spend: Any = (await run.show())["spend"]
    return spend["usd"], spend["unknown"], spend["limit"], spend["reserved"]


# ---- what an attempt comes to ----------------------------------------------------------------------------------


async def test_nothing_that_ran_told_a_cost_so_what_was_spent_is_unknown() -> None:
    async with engine_at("memory:", echo) as engine:
        run = await engine.start(plan(step("a", "echo")))
        await result(run)
        assert await spend_of(run) == (None, 0, None, 0.0)


async def test_a_call_costs_what_it_says_or_else_its_price() -> None:
    async with engine_at("memory:", ask, draw) as engine:
        run = await engine.start(plan(step("a", "ask"), step("b", "draw")), budget=1)
        await result(run)
        assert await spend_of(run) == (0.4, 0, 1.0, 0.0)
        started, completed = [event for event in await events(run) if getattr(event, "path", "") == "b"]
        assert isinstance(started, ev.StepStarted)
        assert isinstance(completed, ev.StepCompleted)
        assert (started.reserved_micros, completed.spent_micros) == (300_000, 100_000)


async def test_a_tool_without_a_price_needs_no_room_and_may_cost_something_all_the_same() -> None:
    @holdfast.tool(effect="read")
    async def surprise(call: holdfast.Call) -> None:
        call.spend(usd=2)

    async with engine_at("memory:", surprise, ask) as engine:
        run = await engine.start(paid(step("a", "surprise"), step("b", "ask", critical=False)))
        await settled(run)
        assert await spend_of(run) == (2.0, 0, 0.5, 0.0)
        assert [asked.request.message for asked in (await run.state()).open_requests()] == [
            "ask may cost $0.30, and $0.00 of $0.50 are left"
        ]
        await run.stop()


@pytest.mark.parametrize(
    ("error", "spent", "unknown"),
    [
        (holdfast.Transient("refused", without_effect=True), 0.3, 0),
        (holdfast.Transient("lost"), 0.6, 1),
        (holdfast.ToolError("known"), 0.6, 0),
    ],
    ids=["without effect", "unknown", "known"],
)
async def test_a_failed_attempt_costs_what_is_known_of_it(error: Exception, spent: float, unknown: int) -> None:
    tool = Script(error, "fine", effect="idempotent", cost=0.3)
    async with engine_at("memory:", tool.tool) as engine:
        run = await engine.start(plan(step("a", "script", retry=FAST)))
        assert await result(run) == "fine"
        assert await spend_of(run) == (spent, unknown, None, 0.0)


async def test_a_failure_for_good_and_one_that_waits_for_a_correction_are_paid() -> None:
    wrong = Script(ValueError("odd"), holdfast.ToolError("no"), cost=0.1)
    async with engine_at("memory:", wrong.tool) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "script", critical=False)))
        await settled(run)
        assert await spend_of(run) == (0.1, 0, None, 0.0)
        await run.resolve("a", "skip")
        await result(run)
        assert await spend_of(run) == (0.2, 0, None, 0.0)


async def test_an_answer_from_the_cache_costs_nothing() -> None:
    tool = Script("first", cost=0.3, cache=60)
    async with engine_at("memory:", tool.tool) as engine:
        await result(await engine.start(plan(step("a", "script"))))
        run = await engine.start(plan(step("a", "script")))
        assert await result(run) == "first"
        assert await spend_of(run) == (None, 0, None, 0.0)


async def test_a_doubt_costs_its_estimate_and_what_a_person_says_of_it_nothing_more() -> None:
    tool = Script(holdfast.Transient("the line broke"), effect="once", cost=0.3)
    async with engine_at("memory:", tool.tool) as engine:
        run = await engine.start(plan(step("a", "script")))
        await settled(run)
        assert await spend_of(run) == (0.3, 1, None, 0.0)
        await run.resolve("a", "done", output=1)
        assert await result(run) == 1
        assert await spend_of(run) == (0.3, 1, None, 0.0)


async def test_what_is_cut_off_costs_its_estimate() -> None:
    gate = Gate(cost=0.3)
    async with engine_at("memory:", gate.tool, limits=HURRY) as engine:
        run = await engine.start(paid(step("a", "gate")))
        await gate.wait_entered()
        assert await spend_of(run) == (None, 0, 0.5, 0.3)
        await run.interrupt()
        assert await spend_of(run) == (0.3, 1, 0.5, 0.0)
        await run.stop()


async def test_a_branch_that_its_program_cut_off_costs_its_estimate_or_what_it_said() -> None:
    gate = Gate(cost=0.3)

    @holdfast.tool(effect="read")
    async def talks(call: holdfast.Call) -> None:
        call.spend(0.01)
        await asyncio.Event().wait()

    async with engine_at("memory:", gate.tool, talks, draw) as engine:

        @holdfast.function
        async def cuts(ctx: holdfast.Context) -> str:
            for name in ("gate", "talks"):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(ctx.call(name, name=name), 0.05)
            return "went on"

        run = await engine.start(cuts)
        assert await result(run) == "went on"
        assert await spend_of(run) == (0.31, 1, None, 0.0)


async def test_words_about_money_after_the_end_of_an_attempt_are_refused() -> None:
    late: list[BaseException] = []

    @holdfast.tool(effect="read", cost=0.1)
    async def hasty(call: holdfast.Call) -> None:
        async def afterwards() -> None:
            await asyncio.sleep(0.01)
            try:
                call.spend(1)
            except holdfast.InvalidCall as error:
                late.append(error)

        tasks.append(asyncio.ensure_future(afterwards()))

    tasks: list[asyncio.Future[None]] = []
    async with engine_at("memory:", hasty) as engine:
        run = await engine.start(plan(step("a", "hasty")))
        await result(run)
        await asyncio.gather(*tasks)
        assert [str(error) for error in late] == ["a: attempt 1 is over; what it spends now cannot be counted"]
        assert await spend_of(run) == (0.1, 0, None, 0.0)


# ---- no room ---------------------------------------------------------------------------------------------------


async def test_without_room_a_person_is_asked_and_a_higher_limit_lets_the_step_go_on() -> None:
    async with engine_at("memory:", ask) as engine:
        run = await engine.start(paid(step("a", "ask"), step("b", "ask", **{"with": {"value": 7}})))
        assert await settled(run) == "waiting"
        state = await run.state()
        assert [(reason.kind, reason.path) for reason in state.reasons] == [("budget", "b")]
        assert await names(run, "budget:") == ["budget:exhausted"]
        request = next(iter(state.open_requests())).request
        assert (request.kind, request.message) == ("budget", "ask may cost $0.30, and $0.20 of $0.50 are left")
        answer = await run.budget(add=0.05, by="ann")
        assert (answer.outcome, answer.text) == ("applied", "the limit is $0.55 now")
        assert await settled(run) == "waiting", "that was not enough"
        await run.budget(limit=1, by="ann")
        assert await result(run) == 7
        assert await spend_of(run) == (0.6, 0, 1.0, 0.0)
        assert [event.by for event in await events(run) if isinstance(event, ev.BudgetRaised)] == ["ann", "ann"]


@pytest.mark.parametrize(("remedy", "status"), [("skip", "skipped"), ("fail", "failed")])
async def test_a_person_may_do_without_the_step(remedy: str, status: str) -> None:
    async with engine_at("memory:", ask) as engine:
        run = await engine.start(paid(step("a", "ask", critical=False), usd=0.1))
        await settled(run)
        await run.resolve("a", remedy, by="ann")
        await result(run)
        found = await step_of(run, "a")
        assert found.status == status
        if found.failure is not None:
            assert found.failure.message == "there was no budget for it, says ann"
        assert await spend_of(run) == (None, 0, 0.1, 0.0)


async def test_what_a_person_approved_is_what_runs_when_there_is_money() -> None:
    async with engine_at("memory:", ask) as engine:
        run = await engine.start(paid(step("a", "ask", approval=True, **{"with": {"value": 1}}), usd=0.1))
        await settled(run)
        await run.approve("a", arguments={"value": 2})
        await seen(run, "budget:exhausted")
        await settled(run)
        await run.budget(add=1)
        assert await result(run) == 2


async def test_a_doubt_that_is_tried_again_stays_a_doubt_until_there_is_money(tmp_path: Path) -> None:
    tool = Script(holdfast.Transient("the line broke"), "fine", effect="once", cost=0.3)
    async with engine_at(tmp_path, tool.tool, limits=HURRY) as engine:
        run = await engine.start(paid(step("a", "script")))
        await settled(run)
        await run.resolve("a", "again")
        await seen(run, "budget:exhausted")
        await settled(run)
        assert (await step_of(run, "a")).status == "in_doubt"
        assert [asked.request.kind for asked in (await run.state()).open_requests()] == ["budget"]
        await run.budget(add=1)
        assert await result(run) == "fine"
        assert await spend_of(run) == (0.6, 1, 1.5, 0.0)


async def test_no_room_but_something_that_runs_means_waiting_for_it() -> None:
    first, second = Gate("one", cost=0.4), Gate("two", cost=0.4)
    second.open.set()
    async with engine_at("memory:", first.tool, second.tool) as engine:
        run = await engine.start(paid(step("a", "one"), step("b", "two", needs=[]), usd=1))
        await first.wait_entered()
        await second.wait_entered()
        first.open.set()
        await result(run)
        run = await engine.start(paid(step("a", "one"), step("b", "two", needs=[])))
        assert await settled(run) == "waiting", "0.40 are spent, and nothing runs that could give any back"
        assert await names(run, "budget:") == ["budget:exhausted"]
        await run.stop()


async def test_whoever_came_first_gets_the_room_that_becomes_free() -> None:
    holder = Gate("holder", cost=0.4)
    order: list[str] = []

    def tool_of(name: str, cost: float) -> Any:
        @holdfast.tool(name=name, effect="read", cost=cost)
        async def one(call: holdfast.Call) -> None:
            order.append(call.path)
            call.spend(0)

        return one

    @holdfast.tool(name="cheap_holder", effect="read", cost=0.4)
    async def cheap(call: holdfast.Call) -> None:
        call.spend(0)
        holder.entered.set()
        await holder.open.wait()

    async with engine_at("memory:", cheap, tool_of("large", 0.45), tool_of("small", 0.1)) as engine:
        steps = [step("a", "cheap_holder"), step("b", "large", needs=[]), step("c", "small", needs=[])]
        run = await engine.start(paid(*steps))
        await holder.wait_entered()
        await turns()
        assert order == [], "the small one has room, and waits behind the large one"
        assert (await run.state()).status == "running"
        holder.open.set()
        await result(run)
        assert order == ["b", "c"]
        assert await names(run, "budget:") == []


async def test_people_are_warned_once_when_the_share_is_passed() -> None:
    async with engine_at("memory:", ask) as engine:
        each = step("each", "ask", for_each=[1, 2, 3, 4], max_parallel=1)
        run = await engine.start(plan(each), budget={"usd": 1.2, "warn_at": 0.5})
        await result(run)
        warned = [event for event in await events(run) if isinstance(event, ev.BudgetWarned)]
        assert [(event.settled_micros, event.limit_micros) for event in warned] == [(900_000, 1_200_000)]


async def test_a_waiting_step_that_was_put_to_sleep_wakes_with_a_higher_limit(tmp_path: Path) -> None:
    async with engine_at(tmp_path, ask, limits=HURRY) as engine:
        run = await engine.start(paid(step("a", "ask"), step("b", "ask")))
        await settled(run)
        await quiet(engine)
        await run.budget(add=0.5)
        await result(run)
        assert await spend_of(run) == (0.6, 0, 1.0, 0.0)


async def test_the_limit_can_be_changed_while_it_runs_and_while_it_is_paused() -> None:
    gate = Gate(cost=0.3)
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(paid(step("a", "gate"), step("b", "gate")))
        await gate.wait_entered()
        assert (await run.budget(add=0.1)).outcome == "applied"
        await run.pause()
        assert (await run.budget(add=0.1)).outcome == "applied"
        with pytest.raises(holdfast.Refused, match=r"cannot be \$0.10: \$0.00 are spent, and \$0.30 are reserved"):
            await run.budget(limit=0.1)
        gate.open.set()
        await settled(run)
        await run.resume()
        await result(run)
        assert await spend_of(run) == (0.6, 0, 0.7, 0.0)
        with pytest.raises(holdfast.Refused, match="the execution is completed"):
            await run.budget(add=1)


async def test_words_about_the_limit_that_make_no_sense_are_refused() -> None:
    async with engine_at("memory:", ask) as engine:
        run = await engine.start(plan(step("a", "ask")), hold=True)
        for more, most in ((None, None), (1, 2)):
            with pytest.raises(InputInvalid, match="exactly one of add and limit"):
                await run.budget(add=more, limit=most)
        with pytest.raises(InputInvalid, match="add: expected an amount in US dollars, more than 0"):
            await run.budget(add=0)
        with pytest.raises(InputInvalid, match="budget: expected an amount in US dollars"):
            await engine.start(plan(step("a", "ask")), budget=-1)
        with pytest.raises(holdfast.Refused, match="it has no limit that could be raised"):
            await run.budget(add=1)
        await run.stop()


# ---- crashes, forks --------------------------------------------------------------------------------------------


async def test_an_attempt_that_was_lost_counts_its_estimate_once() -> None:
    async with engine_at("memory:", ask) as engine:
        created = engine.preparer.prepare(paid(step("a", "ask"), step("b", "ask"), usd=0.6))
        lost = ev.StepStarted(
            at=created.at, path="a", tool="ask", digest=DIGEST, arguments=NOTHING, reserved_micros=300_000
        )
        run = await engine.create(created, copied=[lost], program=engine._open(created))
        assert await settled(run) == "waiting", "the lost attempt and its repetition have taken everything"
        assert await spend_of(run) == (0.6, 1, 0.6, 0.0)
        assert [asked.request.path for asked in (await run.state()).open_requests()] == ["b"]
        await run.budget(limit=0.9)
        await result(run)
        assert await spend_of(run) == (0.9, 1, 0.9, 0.0)


async def test_without_room_for_a_repetition_the_lost_attempt_is_settled_and_a_person_asked() -> None:
    async with engine_at("memory:", ask) as engine:
        created = engine.preparer.prepare(paid(step("a", "ask")))
        lost = ev.StepStarted(
            at=created.at, path="a", tool="ask", digest=DIGEST, arguments=NOTHING, reserved_micros=300_000
        )
        run = await engine.create(created, copied=[lost], program=engine._open(created))
        assert await settled(run) == "waiting"
        assert await spend_of(run) == (0.3, 1, 0.5, 0.0)
        await run.resolve("a", "skip")
        await result(run)
        assert await spend_of(run) == (0.3, 1, 0.5, 0.0)


async def test_a_lost_step_that_waits_for_a_childs_share_does_not_look_as_if_it_ran() -> None:
    @holdfast.function
    async def mixed(ctx: holdfast.Context) -> None:
        kid = await ctx.start(slow, name="kid")
        await ctx.gather(ctx.call(ask, name="mine"), kid.result())

    @holdfast.function
    async def slow(ctx: holdfast.Context) -> None:
        await ctx.wait_for("go")

    async with engine_at("memory:", ask, functions=[mixed, slow]) as engine:
        created = engine.preparer.prepare(mixed, budget=0.6)
        lost = ev.StepStarted(
            at=created.at, path="mine", tool="ask", digest=DIGEST, arguments=NOTHING, reserved_micros=300_000
        )
        run = await engine.create(created, copied=[lost], program=engine._open(created))
        await seen(run, "task:waiting", lambda event: {reason.path for reason in event.reasons} == {"kid", "mine"})
        state = await run.state()
        mine = state.steps["mine"]
        assert (mine.status, [attempt.outcome for attempt in mine.attempts]) == ("interrupted", ["lost"])
        assert await spend_of(run) == (0.3, 1, 0.6, 0.3), "nobody knows what the lost attempt cost"
        await engine.get(state.children["kid"].id).send("go")
        await result(run)
        assert await spend_of(run) == (0.6, 1, 0.6, 0.0)
        assert [attempt.outcome for attempt in (await step_of(run, "mine")).attempts] == ["lost", "completed"]


async def test_losses_count_also_when_the_step_waited_for_money_after_each() -> None:
    async with engine_at("memory:", ask) as engine:
        created = engine.preparer.prepare(paid(step("a", "ask"), usd=5))
        lost: list[ev.Event] = []
        for number in range(1, LOSSES_MAX + 1):
            lost.append(
                ev.StepStarted(
                    at=created.at, path="a", tool="ask", digest=DIGEST, arguments=NOTHING, attempt=number,
                    reserved_micros=300_000,
                )
            )  # fmt: skip
            lost.append(ev.StepInterrupted(at=created.at, path="a", attempt=number, lost=True))
        run = await engine.create(created, copied=lost[:-1], program=engine._open(created))
        assert await settled(run) == "waiting"
        [asked] = (await run.state()).open_requests()
        assert f"its process ended {LOSSES_MAX} times while it ran" in asked.request.message
        await run.stop()


async def test_a_retry_starts_with_nothing_spent_and_keeps_its_limit() -> None:
    wrong = Script(holdfast.ToolError("no"), effect="read", cost=0.1)
    async with engine_at("memory:", ask, wrong.tool) as engine:
        run = await engine.start(plan(step("a", "ask"), step("b", "script", on_error="fail")), budget=0.5)
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        assert await spend_of(run) == (0.4, 0, 0.5, 0.0)
        again = await engine.retry(run.id)
        await result(again)
        assert await spend_of(again) == (0.1, 0, 0.5, 0.0)
        other = await engine.retry(run.id, program=plan(step("a", "ask"), step("b", "ask")), again=True)
        await result(other)
        assert await spend_of(other) == (0.3, 0, 0.5, 0.0)


# ---- families --------------------------------------------------------------------------------------------------


@holdfast.function
async def child(ctx: holdfast.Context, calls: int = 1) -> int:
    for _ in range(calls):
        await ctx.call(ask)
    return calls


async def test_a_child_may_spend_what_its_parent_has_room_for_and_its_spend_counts_up() -> None:
    async with engine_at("memory:", ask, functions=[child]) as engine:
        run = await engine.start(paid(step("a", "ask"), {"id": "kid", "start": "child"}, usd=1))
        await result(run)
        assert await spend_of(run) == (0.6, 0, 1.0, 0.0)
        kid = engine.get((await run.state()).children["kid"].id)
        assert await spend_of(kid) == (0.3, 0, 0.7, 0.0)


async def test_without_a_limit_nothing_is_reserved_for_a_child_and_its_spend_counts_up() -> None:
    async with engine_at("memory:", ask, functions=[child]) as engine:
        run = await engine.start(plan({"id": "kid", "start": "child"}))
        await result(run)
        assert await spend_of(run) == (0.3, 0, None, 0.0)
        assert not [e for e in await events(run) if isinstance(e, ev.ChildStarted) and e.reserved_micros is not None]


async def test_a_child_that_needs_more_asks_for_itself_and_its_parents_limit_rises_with_it() -> None:
    async with engine_at("memory:", ask, functions=[child]) as engine:
        run = await engine.start(paid({"id": "kid", "start": "child", "with": {"calls": 2}}))
        await seen(run, "child:started")
        kid = engine.get((await run.state()).children["kid"].id)
        await seen(kid, "budget:exhausted")
        assert await spend_of(run) == (None, 0, 0.5, 0.5)
        await kid.budget(add=0.2)
        assert await result(run) == 2
        assert await spend_of(kid) == (0.6, 0, 0.7, 0.0)
        assert await spend_of(run) == (0.6, 0, 0.7, 0.0)


async def test_children_that_share_a_budget_take_turns_and_those_with_their_own_run_side_by_side() -> None:
    kids = [{"id": name, "start": "child", "needs": []} for name in ("one", "two")]
    async with engine_at("memory:", ask, functions=[child]) as engine:
        run = await engine.start(paid(*kids, usd=1))
        await result(run)
        family = [name for name in await names(run) if name.startswith("child:")]
        assert family == ["child:started", "child:ended"] * 2
        assert await spend_of(run) == (0.6, 0, 1.0, 0.0)


async def test_a_child_keeps_its_plans_own_limit_as_far_as_there_is_room(tmp_path: Path) -> None:
    own = "name: own\nbudget: 0.4\nsteps: [{id: a, tool: ask}]\n"
    (tmp_path / "own.yaml").write_text(own)
    kids = [{"id": name, "start": "own.yaml", "needs": []} for name in ("one", "two")]
    async with engine_at(tmp_path, ask) as engine:
        run = await engine.start(paid(*kids, usd=0.9))
        await result(run)
        shares = [event.reserved_micros for event in await events(run) if isinstance(event, ev.ChildStarted)]
        assert shares == [400_000, 400_000]
        small = await engine.start(paid({"id": "one", "start": "own.yaml"}, usd=0.35))
        await result(small)
        shares = [event.reserved_micros for event in await events(small) if isinstance(event, ev.ChildStarted)]
        assert shares == [350_000]


async def test_a_step_that_waits_for_a_childs_share_says_that_it_waits_for_the_child() -> None:
    gate = Gate(cost=0.3)

    @holdfast.function
    async def mixed(ctx: holdfast.Context) -> None:
        kid = await ctx.start(slow, name="kid")
        await ctx.gather(ctx.call(ask, name="mine"), kid.result())

    @holdfast.function
    async def slow(ctx: holdfast.Context) -> None:
        await ctx.wait_for("go")

    async with engine_at("memory:", ask, gate.tool, functions=[mixed, slow]) as engine:
        run = await engine.start(mixed, budget=0.5)
        await seen(run, "task:waiting")
        state = await run.state()
        assert {reason.kind for reason in state.reasons} == {"child"}
        assert {reason.path for reason in state.reasons} >= {"kid"}
        await engine.get(state.children["kid"].id).send("go")
        await result(run)
        assert await spend_of(run) == (0.3, 0, 0.5, 0.0)


async def test_a_child_that_is_stopped_tells_what_it_had_begun() -> None:
    gate = Gate(cost=0.3)

    @holdfast.function
    async def busy(ctx: holdfast.Context) -> None:
        await ctx.call("gate")

    async with engine_at("memory:", gate.tool, functions=[busy], limits=HURRY) as engine:
        run = await engine.start(paid({"id": "kid", "start": "busy", "critical": False}, usd=1))
        await gate.wait_entered()
        await engine.get((await run.state()).children["kid"].id).stop()
        await result(run)
        assert await spend_of(run) == (0.3, 1, 1.0, 0.0)
