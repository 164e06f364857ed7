"""What must hold at every end: no step goes on behind it, no doubt is passed over, nothing is written twice."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, Gate, Script, engine_at, plan, result, seen, settled, step, step_of, turns, until
from holdfast.core.errors import InputInvalid, StoreCorrupted, Suspended, UsageError
from holdfast.engine.transfer import auto_checkpoint
from holdfast.engine.transfer import export as transfer_export


async def test_a_step_that_nobody_waited_for_does_not_outlive_its_program() -> None:
    pay = Gate("pay", effect="once")

    @holdfast.tool(effect="read")
    async def fails() -> None:
        await pay.entered.wait()
        raise holdfast.ToolError("no")

    @holdfast.function
    async def careless(ctx: holdfast.Context) -> None:
        await asyncio.gather(ctx.call(pay.tool), ctx.call(fails))

    async with engine_at("memory:", functions=[careless]) as engine:
        run = await engine.start(careless)
        with pytest.raises(holdfast.ExecutionFailed, match="no"):
            await result(run)
        assert (await step_of(run, "pay")).status == "in_doubt"
        assert (pay.cancelled, len(pay.calls)) == (1, 1)


async def test_a_background_step_is_cut_off_when_the_function_returns() -> None:
    look = Gate("look")

    @holdfast.function
    async def hasty(ctx: holdfast.Context) -> str:
        task = asyncio.create_task(ctx.call(look.tool))  # type: ignore[arg-type]
        await look.entered.wait()
        return f"gone before {task.get_name()[:4]}"

    async with engine_at("memory:", functions=[hasty]) as engine:
        run = await engine.start(hasty)
        assert await result(run) == "gone before Task"
        assert (await step_of(run, "look")).status == "interrupted"
        assert look.cancelled == 1


async def test_no_background_step_begins_while_the_last_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, first = Gate("look"), Script("first", name="first")
    writing, go_on, begin, refused = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    save = transfer_export.save

    async def slow_disk(*given: Any) -> Any:
        writing.set()
        await go_on.wait()
        return await save(*given)

    async def later(ctx: holdfast.Context) -> None:
        await begin.wait()
        try:
            await ctx.call(look.tool, name="look")
        except Suspended:
            refused.set()

    @holdfast.function
    async def hasty(ctx: holdfast.Context) -> str:
        task = asyncio.create_task(later(ctx))
        await ctx.call(first.tool)
        return f"gone before {task.get_name()[:4]}"

    monkeypatch.setattr(auto_checkpoint, "save", slow_disk)
    async with engine_at(tmp_path, first.tool, look.tool, functions=[hasty]) as engine:
        run = await engine.start(hasty, checkpoint={"every_steps": 1})
        await writing.wait()
        await turns()  # the function has returned, and its driver waits for the disk
        begin.set()
        await refused.wait()
        go_on.set()
        assert await result(run) == "gone before Task"
        assert "look" not in (await run.state()).steps


async def test_a_doubt_that_the_program_ran_away_from_fails_it() -> None:
    pay = Gate("pay", effect="once")

    @holdfast.function
    async def impatient(ctx: holdfast.Context) -> str:
        paying = asyncio.ensure_future(ctx.call(pay.tool))
        await pay.wait_entered()
        paying.cancel()
        await asyncio.wait({paying})
        return "never mind"

    async with engine_at("memory:", functions=[impatient]) as engine:
        run = await engine.start(impatient)
        with pytest.raises(holdfast.ExecutionFailed, match="in doubt whether it happened"):
            await result(run)
        assert (await run.state()).failed_path == "pay"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), type("Odd", (BaseException,), {})("odd")])
async def test_even_the_worst_exception_of_a_tool_ends_its_step(error: BaseException) -> None:
    script = Script(error)
    async with engine_at("memory:", script.tool) as engine:
        run = await engine.start(plan(step("a", "script", on_error="fail", retry=0)))
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        assert (await step_of(run, "a")).status == "failed"


async def test_a_start_whose_caller_was_cancelled_is_driven_all_the_same(tmp_path: Path) -> None:
    script = Script("ran")
    async with engine_at(tmp_path, script.tool) as engine:
        starting = asyncio.create_task(engine.start(plan(step("a", "script"))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: bool(script.calls))
        (head,) = await engine.list()
        assert await result(engine.get(head.id)) == "ran"


async def test_a_damaged_value_sets_the_execution_aside_and_is_not_handed_to_the_program(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    @holdfast.function
    async def cautious(ctx: holdfast.Context) -> str:
        try:
            await ctx.run("big", lambda: "x" * 20_000)
            await ctx.wait_for("go")
        except Exception as error:
            caught.append(error)
        return "went on"

    async with engine_at(tmp_path, functions=[cautious], limits=HURRY) as engine:
        run = await engine.start(cautious)
        assert (await seen(run, "task:waiting")).seq
        await until(lambda: not engine.holdings()["drivers"])
        import apsw

        store = apsw.Connection(str(tmp_path / ".holdfast" / "journal.db"))
        store.execute("UPDATE blobs SET body = ?", (b'"' + b"y" * 20_000 + b'"',))
        await run.send("go")
        with pytest.raises(StoreCorrupted, match="was changed after it was written"):
            await result(run)
        assert "was changed after it was written" in (await run.head()).quarantined
    assert caught == []


async def test_a_program_that_catches_everything_does_not_stop_the_engine() -> None:
    gate = Gate()
    spins = 0

    @holdfast.function
    async def deaf(ctx: holdfast.Context) -> None:
        nonlocal spins
        while spins < 1000:
            try:
                await ctx.call(gate.tool)
            except BaseException:
                spins += 1

    async with engine_at("memory:", functions=[deaf], limits=HURRY, check=False) as engine:
        run = await engine.start(deaf)
        await gate.wait_entered()
        await run.interrupt()
        assert await settled(run) == "interrupted"
        assert 100 <= spins < 1000  # it was let spin for a while, and then put where it can spin no more
        for task in list(engine.services.left_behind):
            spins = 1000
            task.cancel()
        await until(lambda: not engine.services.left_behind)


async def test_a_tool_that_ignores_its_time_limit_is_left_behind_and_counted() -> None:
    free = asyncio.Event()

    @holdfast.tool(effect="once", timeout=0.02)
    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with engine_at("memory:", stubborn) as engine:
        run = await engine.start(plan(step("a", "stubborn")))
        assert await settled(run) == "waiting"
        assert (await step_of(run, "a")).status == "in_doubt"
        assert engine.holdings()["left_behind"] == 1
        free.set()
        await until(lambda: not engine.holdings()["left_behind"])
        await run.stop()


def blocking_payment() -> tuple[Any, threading.Event, threading.Event]:
    """A tool that occupies its thread: set when it has begun, and what it waits for."""
    entered, go = threading.Event(), threading.Event()

    @holdfast.tool(effect="once")
    def pay() -> str:
        entered.set()
        go.wait(10)
        return "paid"

    return pay, entered, go


async def test_a_blocking_tool_may_finish_in_the_time_an_interrupt_gives_it(tmp_path: Path) -> None:
    pay, entered, go = blocking_payment()
    async with engine_at(tmp_path, pay) as engine:
        run = await engine.start(plan(step("a", "pay")))
        await asyncio.to_thread(entered.wait, 10)
        driver = engine.driver(run.id)
        interrupting = asyncio.create_task(run.interrupt())
        await until(lambda: driver is not None and driver.cause == "cut")
        go.set()
        await interrupting
        assert await settled(run) == "interrupted"
        assert (await step_of(run, "a")).status == "completed"
        await run.resume()
        assert await result(run) == "paid"


async def test_being_cut_twice_leaves_a_blocking_tool_the_time_it_was_given(tmp_path: Path) -> None:
    """Its driver tells the step, and then its program does: in which order depends on nothing that can be relied on."""
    pay, entered, go = blocking_payment()
    async with engine_at(tmp_path, pay) as engine:
        run = await engine.start(plan(step("a", "pay")))
        await asyncio.to_thread(entered.wait, 10)
        driver = engine.driver(run.id)
        assert driver is not None
        (mover,) = driver._pulse.movers
        interrupting = asyncio.create_task(run.interrupt())
        await until(lambda: mover.cancelling() > 0)
        await asyncio.sleep(0)
        mover.cancel()  # once more, now that it waits for its thread
        await asyncio.sleep(0)
        go.set()
        await interrupting
        assert (await step_of(run, "a")).status == "completed"


async def test_a_blocking_tool_that_never_got_a_thread_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engine.step import invoke
    from holdfast.tools import tool as tool_module
    from holdfast.tools.runtime.thread_pool import ThreadPool

    monkeypatch.setattr(tool_module, "pool", ThreadPool(1))
    monkeypatch.setattr(invoke, "IN_LINE_S_MAX", 0.0)
    go, calls = threading.Event(), list[str]()

    @holdfast.tool(effect="read")
    def occupy() -> None:
        go.wait(10)

    @holdfast.tool(effect="once", timeout=0.02, retry=holdfast.Retry(max=0))
    def pay() -> None:
        calls.append("paid")

    async with engine_at("memory:", occupy, pay) as engine:
        run = await engine.start(plan(step("a", "occupy"), step("b", "pay", needs=[], critical=False)))
        failed = (await seen(run, "step:failed")).event
        assert failed.failure.message == "it waited for its turn and never began"  # type: ignore[union-attr]
        assert failed.failure.happened == "nothing"  # type: ignore[union-attr]
        go.set()
        await result(run)
    assert calls == []


async def test_a_step_within_a_step_is_fine() -> None:
    script = Script(7)

    @holdfast.function
    async def nested(ctx: holdfast.Context) -> Any:
        return await ctx.run("outer", lambda: ctx.call(script.tool))

    async with engine_at("memory:", functions=[nested]) as engine:
        assert await result(await engine.start(nested)) == 7


async def test_a_branch_may_be_opened_from_any_task() -> None:
    script = Script(1, 2)

    @holdfast.function
    async def split(ctx: holdfast.Context) -> list[Any]:
        async def work(name: str) -> Any:
            return await ctx.branch(name).call(script.tool)

        return list(await asyncio.gather(work("left"), work("right")))

    async with engine_at("memory:", functions=[split]) as engine:
        run = await engine.start(split)
        assert sorted(await result(run)) == [1, 2]
        assert sorted((await run.state()).steps) == ["left/script", "right/script"]


async def test_a_step_name_has_a_limit() -> None:
    script = Script()

    @holdfast.function
    async def wordy(ctx: holdfast.Context) -> None:
        with pytest.raises(UsageError, match=r'"x{40}…" is too long for a step: 1,000 characters, 200 are allowed'):
            await ctx.call(script.tool, name="x" * 1000)

    async with engine_at("memory:", functions=[wordy]) as engine:
        await result(await engine.start(wordy))


async def test_inputs_have_a_limit_and_watching_begins_at_an_event() -> None:
    async with engine_at("memory:", Script().tool) as engine:
        takes = plan(step("a", "script"), inputs={"s": "string"})
        with pytest.raises(InputInvalid, match=r"the inputs are 2,000,008 bytes of JSON, 1,048,576 are allowed"):
            await engine.start(takes, inputs={"s": "y" * 2_000_000})
        run = await engine.start(takes, inputs={"s": "y"})
        with pytest.raises(InputInvalid, match="since must be the number of an event"):
            run.watch(-1)
        await result(run)


async def test_many_parallel_steps_wait_for_the_disk_once_not_each_for_all(tmp_path: Path) -> None:
    @holdfast.tool(effect="idempotent")
    async def touch() -> int:
        return 1

    async with engine_at(tmp_path, touch) as engine:
        before = engine.services.writer.commits
        run = await engine.start(plan(*(step(f"s{i}", "touch", needs=[]) for i in range(300))))
        assert await result(run) == 1
        assert engine.services.writer.commits - before < 60


async def test_an_execution_that_sleeps_leaves_nothing_in_memory() -> None:
    import gc

    from holdfast.engine.drive.driver import Driver
    from holdfast.programs.plan_level import RunningLevel

    def count() -> int:
        gc.collect()
        return sum(isinstance(thing, Driver | RunningLevel) for thing in gc.get_objects())

    before = count()
    async with engine_at("memory:", limits=HURRY) as engine:
        runs = [await engine.start(plan({"id": "ask", "approval": "Go on?"})) for _ in range(100)]
        for run in runs:
            assert await settled(run) == "waiting"
        await until(lambda: not engine.holdings()["tasks"])
        assert count() - before < 50  # of 200 drivers and levels; the last few may still be referred to by the loop
