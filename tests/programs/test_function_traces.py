"""Where a mistake in a function's own body is: file, line and trace, as those of a tool."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import echo, engine_at, events, settled
from holdfast.core.errors import RecordedTrace
from holdfast.core.events import TaskError


def _share(total: int, among: int) -> float:
    return total / among


LINE = f"{__file__}:{inspect.getsourcelines(_share)[1] + 1}"


@holdfast.function
async def split(ctx: holdfast.Context, among: int = 0) -> float:
    await ctx.call(echo, "first")
    return _share(7, among)


async def test_failure_of_a_body_names_its_line_and_carries_its_trace() -> None:
    async with engine_at("memory:", echo, functions=[split]) as engine:
        run = await engine.start(split)
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await run.result()
        assert failed.value.failure.place == LINE
        shown = "".join(traceback.format_exception(failed.value))
        assert "in split\n    return _share(7, among)\n" in shown
        assert shown.index("ZeroDivisionError: division by zero") < shown.index("ExecutionFailed")
        assert "holdfast/engine" not in str(failed.value.__cause__)


async def test_trace_is_read_from_the_journal_by_whoever_asks_later(tmp_path: Path) -> None:
    async with engine_at(tmp_path, echo, functions=[split]) as engine:
        run = await engine.start(split)
        assert await settled(run) == "failed"
    async with engine_at(tmp_path, recover="none") as engine:
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await engine.get(run.id).result()
        assert isinstance(failed.value.__cause__, RecordedTrace)
        assert "in _share" in str(failed.value.__cause__)


async def test_long_trace_is_kept_beside_its_event(tmp_path: Path) -> None:
    @holdfast.function
    async def long(ctx: holdfast.Context) -> None:
        raise RuntimeError("x" * 12_000)

    async with engine_at(tmp_path, functions=[long]) as engine:
        run = await engine.start(long)
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await run.result()
        assert str(failed.value.__cause__).endswith("x" * 12_000 + "\n")


async def test_mistake_in_the_use_of_the_context_has_its_line_too() -> None:
    @holdfast.function
    async def misnames(ctx: holdfast.Context) -> None:
        await ctx.call(echo, 1, name="a/b")

    async with engine_at("memory:", echo, functions=[misnames]) as engine:
        run = await engine.start(misnames)
        with pytest.raises(holdfast.ExecutionFailed, match="cannot name a step") as failed:
            await run.result()
        assert failed.value.failure.place.startswith(f"{__file__}:")


@pytest.mark.parametrize("error", [holdfast.ToolError("declined"), holdfast.Transient("down")])
async def test_error_that_was_raised_for_people_has_no_trace(error: Exception) -> None:
    @holdfast.function
    async def declines(ctx: holdfast.Context) -> None:
        raise error

    async with engine_at("memory:", functions=[declines]) as engine:
        run = await engine.start(declines)
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await run.result()
        assert (failed.value.failure.place, failed.value.__cause__) == ("", None)


async def test_failed_step_that_a_body_lets_through_is_told_by_its_own_log() -> None:
    @holdfast.tool(effect="read")
    async def broken() -> None:
        raise RuntimeError("bug")

    @holdfast.function
    async def lets(ctx: holdfast.Context) -> None:
        await ctx.call(broken)

    async with engine_at("memory:", broken, functions=[lets]) as engine:
        run = await engine.start(lets)
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await run.result()
        assert failed.value.failure.place.startswith(f"{__file__}:")
        assert failed.value.__cause__ is None


async def test_secret_in_a_trace_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "holdfast.toml").write_text('[secrets]\nTOKEN = {env = "HOLDFAST_TEST_TOKEN"}\n')
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "open-sesame-14")

    @holdfast.function
    async def tells(ctx: holdfast.Context) -> Any:
        raise RuntimeError("no entry with open-sesame-14")

    async with engine_at(tmp_path, functions=[tells]) as engine:
        run = await engine.start(tells)
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await run.result()
        assert "no entry with [secret TOKEN]" in str(failed.value.__cause__)
        error = next(event for event in await events(run) if isinstance(event, TaskError))
        assert b"sesame" not in bytes(error.trace)
