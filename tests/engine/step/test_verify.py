"""A tool's own check of a doubt: it is always asked, and what keeps it from answering is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, engine_at, events, plan, quiet, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.engine.step import invoke as attempt_module

Verdict = holdfast.Happened | holdfast.DidNotHappen | holdfast.Unknown
PAY = plan(step("pay", "pay"))


class Shop:
    """A tool whose connection is lost after it has paid, and a check that a test can break."""

    def __init__(self, *, fails: int = 99, pays: bool = True, in_doubt: Any = "verify", **options: Any) -> None:
        self.paid: list[str] = []
        self.calls = self.checks = 0
        self.broken: Exception | None = None
        self.verdict: Any = None

        @holdfast.tool(name="pay", effect="once", in_doubt=in_doubt, **options)
        async def pay(call: holdfast.Call) -> str:
            self.calls += 1
            if pays:
                self.paid.append(call.key)
            if self.calls <= fails:
                raise ConnectionResetError("gone")
            return "paid"

        @pay.verify
        async def check(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
            self.checks += 1
            print("looking for", call.key)
            if self.broken is not None:
                raise self.broken
            if self.verdict is not None:
                return self.verdict
            return holdfast.Happened("receipt") if call.key in self.paid else holdfast.DidNotHappen()

        self.tool = pay


async def doubt(run: holdfast.Run) -> ev.Request:
    assert await settled(run) == "waiting"
    return next((await run.state()).open_requests()).request


async def logged(engine: holdfast.Engine, run: holdfast.Run) -> str:
    told = [event.log for event in await events(run) if isinstance(event, ev.StepLogged)]
    return "".join([(await engine.services.store.blob(log.digest)).decode() for log in told])


async def test_check_that_raises_is_told_with_its_line_and_its_trace() -> None:
    shop = Shop()
    shop.broken = KeyError("order")
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        request = await doubt(run)
        assert f"its check failed: KeyError: 'order' (at {__file__}:" in request.message
        assert request.remedies == ("done", "again", "verify", "skip", "fail")
        log = await logged(engine, run)
        assert "looking for" in log
        assert "raise self.broken" in log
        await run.stop()


async def test_check_that_returns_no_verdict_is_told() -> None:
    shop = Shop()
    shop.verdict = True
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        assert "its check failed: pay: its verify hook returned True; return Happened" in (await doubt(run)).message
        await run.stop()


async def test_check_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "HOOK_TIMEOUT_S", 0.01)
    shop = Shop()

    @shop.tool.verify
    async def check(call: holdfast.Call, arguments: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        assert "its check failed: it took longer than 0.01 s" in (await doubt(run)).message
        await run.stop()


async def test_check_whose_output_misfits_counts_with_a_warning() -> None:
    shop = Shop()
    shop.verdict = holdfast.Happened(17)
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        assert await result(run) == 17
        assert (await step_of(run, "pay")).warning.startswith("pay returned something else than it declares")


async def test_check_whose_output_cannot_be_kept_is_told() -> None:
    shop = Shop()
    shop.verdict = holdfast.Happened(b"receipt")
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        assert "its check failed: it returned, but the output of pay: bytes cannot" in (await doubt(run)).message
        await run.stop()


async def test_check_that_cannot_tell_is_not_asked_again_by_itself(tmp_path: Path) -> None:
    shop = Shop()
    shop.verdict = holdfast.Unknown()
    async with engine_at(tmp_path, shop.tool, limits=HURRY) as engine:
        run = await engine.start(PAY)
        assert "its check cannot tell" in (await doubt(run)).message
        await quiet(engine)
    shop.verdict = None
    async with engine_at(tmp_path, shop.tool, limits=HURRY) as engine:
        await engine.get(run.id).resume()
        await quiet(engine)
        assert shop.checks == 1
        await engine.get(run.id).resolve("pay", "verify", by="ada")
        assert await result(engine.get(run.id)) == "receipt"
        kept = await step_of(engine.get(run.id), "pay")
        assert (shop.checks, shop.calls, kept.by) == (2, 1, "ada")


@pytest.mark.parametrize("is_mended", [True, False])
async def test_check_that_failed_is_asked_again_by_the_next_engine(tmp_path: Path, is_mended: bool) -> None:
    shop = Shop()
    shop.broken = KeyError("order")
    async with engine_at(tmp_path, shop.tool) as engine:
        run = await engine.start(PAY)
        await doubt(run)  # and the engine closes before the execution is put to sleep
    shop.broken = None if is_mended else shop.broken
    async with engine_at(tmp_path, shop.tool) as engine:
        again = engine.get(run.id)
        before = (await again.state()).seq
        await again.send("anything")  # which wakes it
        if is_mended:
            assert await result(again) == "receipt"
        else:
            await seen(again, "task:waiting", since=before)
            opened = [event for event in await events(again) if isinstance(event, ev.RequestOpened)]
            assert len(opened) == 1  # the same reason is told once
            await again.stop()
    assert (shop.checks, shop.calls) == (2, 1)


async def test_person_may_let_the_check_decide_where_the_policy_asks() -> None:
    shop = Shop(fails=1, pays=False, in_doubt="ask")
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        assert (await doubt(run)).remedies == ("done", "again", "verify", "skip", "fail")
        assert shop.checks == 0
        await run.resolve("pay", "verify")
        assert await result(run) == "paid"
    assert (shop.checks, shop.calls) == (1, 2)


async def test_check_that_fails_for_a_person_asks_that_person_again() -> None:
    shop = Shop(in_doubt="ask")
    shop.broken = KeyError("order")
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        first = await doubt(run)
        await run.resolve("pay", "verify")
        await seen(run, "request:opened", lambda event: event.request.id != first.id)
        assert "its check failed: KeyError" in (await doubt(run)).message
        shop.broken = None
        await run.resolve("pay", "verify")
        assert await result(run) == "receipt"


async def test_answer_that_comes_while_the_check_is_asked_counts(tmp_path: Path) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()
    shop = Shop()
    shop.broken = KeyError("order")
    async with engine_at(tmp_path, shop.tool) as engine:
        run = await engine.start(PAY)
        await doubt(run)

    @shop.tool.verify
    async def slow(call: holdfast.Call, arguments: dict[str, Any]) -> Verdict:
        entered.set()
        await leave.wait()
        return holdfast.DidNotHappen()

    async with engine_at(tmp_path, shop.tool) as engine:
        again = engine.get(run.id)
        await again.send("anything")
        async with asyncio.timeout(60):
            await entered.wait()
        await again.resolve("pay", "done", output="by hand")
        leave.set()
        assert await result(again) == "by hand"
    assert shop.calls == 1


async def test_check_is_asked_after_any_number_of_doubts_and_only_new_runs_are_bounded() -> None:
    shop = Shop(pays=False, retry=2)
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        request = await doubt(run)
        assert (shop.calls, shop.checks) == (3, 3)
        assert "its check says that it did not happen" in request.message
        assert "it has been in doubt 3 times in a row, so it is not run again by itself" in request.message
        await run.resolve("pay", "again")
        shop.paid.append(shop_key(await step_of(run, "pay"), run))
        assert await result(run) == "receipt"
    assert (shop.calls, shop.checks) == (4, 4)


def shop_key(kept: Any, run: holdfast.Run) -> str:
    from holdfast.core.execution import call_key

    return kept.call_key or call_key(run.id, kept.path)


async def test_bound_of_a_policy_that_repeats_is_told() -> None:
    shop = Shop(pays=False, in_doubt="retry", retry=1)
    async with engine_at("memory:", shop.tool) as engine:
        run = await engine.start(PAY)
        request = await doubt(run)
        assert "it has been in doubt 2 times in a row, so it is not run again by itself" in request.message
        assert shop.calls == 2
        await run.stop()
