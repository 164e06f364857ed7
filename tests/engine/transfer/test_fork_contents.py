"""What comes along into a retry or a fork besides outcomes, and what a fork of a fork finds before a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, Script, echo, engine_at, events, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.engine.transfer.copies import kept_events

APPROVED = {"id": "ok", "approval": True}
NO = holdfast.ToolError("no")


# ---- what was added to a plan ----------------------------------------------------------------------------------


async def extended_and_failed(engine: holdfast.Engine, *added: dict[str, Any]) -> holdfast.Run:
    """The steps `a` and `ok`, then those that are added, of which one fails."""
    run = await engine.start(plan(step("a", "script"), APPROVED))
    assert await settled(run) == "waiting"
    assert (await run.extend(list(added))).outcome == "applied"
    await run.approve()
    assert await settled(run) == "failed"
    return run


async def test_a_retry_keeps_what_was_added_to_the_plan(tmp_path: Path) -> None:
    first, x, y = Script("a"), Script(NO, "x", name="x"), Script("y", name="y")
    async with engine_at(tmp_path, first.tool, x.tool, y.tool) as engine:
        run = await extended_and_failed(engine, step("x", "x"), step("y", "y"))
        again = await engine.retry(run.id)
        assert await result(again) == "y"
        assert (await again.state()).total == (await run.state()).total == 4
    assert (len(first.calls), len(x.calls), len(y.calls)) == (1, 2, 1)


async def test_a_fork_keeps_also_what_was_added_after_its_step(tmp_path: Path) -> None:
    first, x = Script(), Script(NO, "x", "x", name="x")
    async with engine_at(tmp_path, first.tool, x.tool) as engine:
        run = await extended_and_failed(engine, step("x", "x"))
        fork = await engine.fork(run.id, at="a")
        await fork.settled()
        await fork.approve()
        assert await result(fork) == "x"
        retried = await engine.retry(fork.id, from_step="x")
        assert await result(retried) == "x"
    assert (len(first.calls), len(x.calls)) == (2, 3)


async def test_a_copy_under_a_new_id_keeps_what_was_added_and_what_was_sent(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(APPROVED, {"id": "w", "wait": {"event": "paid"}}))
        assert await settled(run) == "waiting"
        await run.extend([step("more", "echo", **{"with": {"value": "${{ steps.w.output }}"}})])
        await run.send("paid", 7)
        copy = engine.get((await engine.restore(await engine.export(run.id), as_new=True)).id)
        await copy.resume()
        await copy.settled()
        await copy.approve()
        assert await result(copy) == 7
        await run.stop()


async def test_an_added_step_that_another_plan_names_is_that_plans_and_the_others_are_added_to_it(
    tmp_path: Path,
) -> None:
    first, x, y = Script("a"), Script(NO, name="x"), Script("y", name="y")
    async with engine_at(tmp_path, first.tool, x.tool, y.tool, echo) as engine:
        run = await extended_and_failed(engine, step("x", "x"), step("y", "y"))
        mended = plan(step("a", "script"), step("x", "echo", **{"with": {"value": "mended"}}))
        again = await engine.retry(run.id, program=mended)
        assert await result(again) == "y"
        assert (await step_of(again, "x")).tool == "echo"
        assert (await again.state()).total == 3
    assert (len(first.calls), len(x.calls), len(y.calls)) == (1, 1, 1)


async def test_added_steps_that_do_not_fit_another_plan_are_refused_by_name(tmp_path: Path) -> None:
    first, x = Script("a"), Script(NO, name="x")
    async with engine_at(tmp_path, first.tool, x.tool, echo) as engine:
        run = await extended_and_failed(engine, step("x", "x", **{"with": {"value": "${{ steps.a.output }}"}}))
        with pytest.raises(holdfast.Refused) as refused:
            await engine.retry(run.id, program=plan(step("b", "echo")))
        assert len(await engine.list()) == 1
    text = str(refused.value)
    assert '"a"' in text
    assert "cannot be added to the new one: x; write them into the new plan as they should be; nothing was" in text


async def test_a_function_in_place_of_a_plan_takes_no_added_steps(tmp_path: Path) -> None:
    first, x = Script("a"), Script(NO, name="x")

    @holdfast.function
    async def instead(ctx: holdfast.Context) -> str:
        return "by hand"

    async with engine_at(tmp_path, first.tool, x.tool, functions=[instead]) as engine:
        run = await extended_and_failed(engine, step("x", "x"))
        again = await engine.retry(run.id, program="instead")
        assert await result(again) == "by hand"
        assert (await again.state()).extensions == []


# ---- events that nobody has taken ------------------------------------------------------------------------------

WAIT = {"id": "w", "wait": {"event": "paid"}}


def is_w2(event: ev.StepWaiting) -> bool:
    return event.path == "w2"


async def test_a_retry_keeps_an_event_that_nobody_has_taken(tmp_path: Path) -> None:
    bad = Script(NO, NO, "fine", name="bad")
    async with engine_at(tmp_path, bad.tool) as engine:
        run = await engine.start(plan(APPROVED, step("d", "bad"), WAIT))
        await run.settled()
        await run.send("paid", 7)
        await run.approve()
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "failed"
        assert await result(await engine.retry(again.id)) == 7


async def test_a_retry_leaves_behind_an_event_that_was_taken(tmp_path: Path) -> None:
    bad = Script(NO, "fine", name="bad")
    async with engine_at(tmp_path, bad.tool) as engine:
        run = await engine.start(plan(WAIT, step("d", "bad"), {**WAIT, "id": "w2"}))
        await run.send("paid", 1)
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        await seen(again, "step:waiting", is_w2)
        await again.send("paid", 2)
        assert await result(again) == 2


async def test_a_fork_at_a_step_keeps_the_events_that_came_before_it(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(plan(APPROVED, step("d", "echo"), WAIT, {**WAIT, "id": "w2"}))
        await run.settled()
        await run.send("paid", "before")
        await run.approve()
        await seen(run, "step:waiting", is_w2)
        await run.send("paid", "after")
        assert await result(run) == "after"
        fork = await engine.fork(run.id, at="d")
        await seen(fork, "step:waiting", is_w2)
        assert bytes((await step_of(fork, "w")).output) == b'"before"'
        assert (await fork.state()).mailbox == {}
        await fork.stop()


# ---- before a step ---------------------------------------------------------------------------------------------


async def test_a_fork_of_a_fork_keeps_all_that_completed_before_its_step(tmp_path: Path) -> None:
    a = Script(name="a", effect="once", in_doubt="retry")
    z, c, d = Script(name="z", effect="idempotent"), Script(name="c", effect="once"), Script(NO, NO, "d", name="d")
    async with engine_at(tmp_path, *(script.tool for script in (z, a, c, d))) as engine:
        run = await engine.start(plan(step("z", "z"), {**APPROVED}, *(step(name, name) for name in "acd")))
        await run.settled()
        await run.approve()
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        assert await settled(again) == "failed"
        assert await result(await engine.retry(again.id, from_step="c")) == "d"
    assert [len(script.calls) for script in (z, a, c, d)] == [1, 1, 2, 3]


async def test_a_retry_has_its_copies_in_the_order_in_which_it_all_happened(tmp_path: Path) -> None:
    bad = Script(NO, "fine", name="bad")
    async with engine_at(tmp_path, echo, bad.tool) as engine:
        run = await engine.start(plan({"id": "m", "steps": [step("a", "echo"), step("b", "echo")]}, step("c", "bad")))
        assert await settled(run) == "failed"
        again = await engine.retry(run.id)
        await result(again)
        copies = [(ev.name_of(event)[5:], getattr(event, "path", "")) for event in (await events(again))[1:7]]
    begin, end, anew = "started", "completed", "carried"
    assert copies == [(anew, "m"), (begin, "m/a"), (end, "m/a"), (begin, "m/b"), (end, "m/b"), (anew, "c")]


def test_in_a_fork_of_an_older_release_what_completed_before_a_step_is_found_behind_it() -> None:
    """There all copied steps begin before the first of them ends."""
    program = ev.Program(kind="plan", name="p")
    old: list[ev.AnyEvent] = [
        ev.TaskCreated(at=1, program=program, forked_from=ev.ForkedFrom(id="older")),
        *(ev.StepStarted(at=1, path=path, tool="pay", effect="once") for path in "abc"),
        *(ev.StepCompleted(at=1, path=path) for path in "abc"),
        ev.TaskStarted(at=2, because="created"),
    ]
    kept = kept_events(old, "old", 3, "c")
    assert [
        (ev.name_of(event), event.path) for event in kept if isinstance(event, ev.StepStarted | ev.StepCompleted)
    ] == [
        ("step:started", "a"),
        ("step:started", "b"),
        ("step:completed", "a"),
        ("step:completed", "b"),
    ]
    assert len(kept) == 4


async def test_an_outcome_is_kept_though_the_step_of_the_fork_began_before_it_was_known(tmp_path: Path) -> None:
    pay, other = Gate("pay", effect="once", in_doubt="retry"), Script(name="other")
    async with engine_at(tmp_path, pay.tool, other.tool) as engine:
        run = await engine.start(plan(step("p", "pay", needs=[]), step("o", "other", needs=[])))
        await pay.wait_entered()
        while not other.calls:
            await run.state()
        pay.open.set()
        await result(run)
        await result(await engine.fork(run.id, at="o"))
    assert (len(pay.calls), len(other.calls)) == (1, 2)


async def test_a_fork_inside_a_milestone_runs_the_rest_of_it_again(tmp_path: Path) -> None:
    scripts = [Script(name=name) for name in ("one", "two", "three")]
    inner = {"id": "m", "steps": [step("x", "one"), step("y", "two"), step("z", "three")]}
    async with engine_at(tmp_path, *(script.tool for script in scripts)) as engine:
        run = await engine.start(plan(inner))
        await result(run)
        fork = await engine.fork(run.id, at="m/y")
        await result(fork)
        await result(await engine.fork(fork.id, at="m/z"))
    assert [len(script.calls) for script in scripts] == [1, 2, 3]


async def test_what_was_noted_elsewhere_is_no_beginning_of_its_step(tmp_path: Path) -> None:
    """The note stands at the head of the retry, before all that the retry does itself."""
    c, noted = Script(NO, "c", name="c"), list[Any]()

    @holdfast.tool(effect="once", retry=0)
    async def pages(call: holdfast.Call) -> str:
        noted.append(call.notes)
        await call.note({"page": len(noted)})
        if len(noted) < 3:
            raise holdfast.ToolError("no")
        return "done"

    async with engine_at(tmp_path, pages, c.tool) as engine:
        run = await engine.start(plan(step("p", "pages", critical=False), step("c", "c")))
        assert await settled(run) == "failed"
        again = await engine.retry(run.id, program=plan(step("c", "c"), step("p", "pages")))
        assert await settled(again) == "failed"
        assert await result(await engine.retry(again.id, from_step="p")) == "done"
    assert len(c.calls) == 2
    assert noted == [None, {"page": 1}, None]
