"""A tool that returned has happened, whatever its value looks like."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import holdfast
from engine.kit import engine_at, events, names, plan, result, settled, step, step_of
from engine.step import isolated_tools
from holdfast.core import events as ev

MISFIT = "pay returned something else than it declares: Expected `str`, got `int`; correct the tool or its annotation"


def paying(value: Any, effect: Any = "once", **options: Any) -> tuple[holdfast.Tool[..., Any], list[str]]:
    called: list[str] = []

    @holdfast.tool(name="pay", effect=effect, **options)
    async def pay(call: holdfast.Call) -> str:
        called.append(call.key)
        return value  # type: ignore[no-any-return]

    return pay, called


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_output_that_misfits_its_annotation_is_kept_with_a_warning(effect: Any) -> None:
    pay, called = paying(17, effect)
    async with engine_at("memory:", pay) as engine:
        run = await engine.start(plan(step("pay", "pay"), output="${{ steps.pay.output }}"))
        assert await result(run) == 17
        assert len(called) == 1
        completed = next(one for one in await events(run) if isinstance(one, ev.StepCompleted))
        assert completed.warning == MISFIT
        assert (await step_of(run, "pay")).warning == MISFIT


async def test_retry_keeps_output_that_misfits_its_annotation() -> None:
    pay, called = paying(17)
    broken = True

    @holdfast.tool(effect="read")
    async def after() -> str:
        if broken:
            raise RuntimeError("not yet")
        return "went on"

    async with engine_at("memory:", pay, after) as engine:
        run = await engine.start(plan(step("pay", "pay"), step("after", "after", on_error="fail")))
        assert await settled(run) == "failed"
        broken = False
        again = await engine.retry(run.id)
        assert await result(again) == "went on"
        assert len(called) == 1


@pytest.mark.parametrize("isolated", [False, True])
async def test_output_of_a_once_step_that_cannot_be_encoded_is_in_doubt(isolated: bool) -> None:
    pay, called = (isolated_tools.returns_bytes, []) if isolated else paying(b"\x00receipt")
    async with engine_at("memory:", pay) as engine:
        run = await engine.start(plan(step("pay", pay.name)))
        assert await settled(run) == "waiting"
        state = await run.state()
        request = next(state.open_requests()).request
        assert (state.steps["pay"].status, request.kind) == ("in_doubt", "doubt")
        assert f"it returned, but the output of {pay.name}: bytes cannot be journaled" in request.message
        await run.resolve("pay", "done", output="receipt 17")
        assert await result(run) == "receipt 17"
        assert len(called) == (0 if isolated else 1)


async def test_output_of_a_once_step_that_cannot_be_encoded_is_settled_by_its_check() -> None:
    pay, called = paying(b"\x00", in_doubt="verify")

    @pay.verify
    async def paid(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        return holdfast.Happened("receipt") if call.key in called else holdfast.DidNotHappen()

    async with engine_at("memory:", pay) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        assert await result(run) == "receipt"
        assert len(called) == 1


async def test_output_of_a_read_step_that_misfits_waits_for_a_correction() -> None:
    pay, _ = paying(17, "read")
    async with engine_at("memory:", pay) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        assert await settled(run) == "waiting"
        request = next((await run.state()).open_requests()).request
        assert (request.kind, MISFIT in request.message) == ("correction", True)
        await run.stop()


async def test_secret_in_the_warning_is_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "holdfast.toml").write_text('[secrets]\nTOKEN = {env = "HOLDFAST_TEST_TOKEN"}\n')
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "open-sesame-17")

    @holdfast.tool(name="pay", effect="once")
    async def pay() -> Literal["paid"]:
        return "open-sesame-17"  # type: ignore[return-value]

    async with engine_at(tmp_path, pay) as engine:
        run = await engine.start(plan(step("pay", "pay")))
        assert await result(run) == "[secret TOKEN]"
        kept = (await step_of(run, "pay")).warning
        assert "pay returned something else than it declares" in kept
        assert "open-sesame-17" not in kept
        assert "step:completed" in await names(run)
