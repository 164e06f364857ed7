"""A fallback whose tool has gone keeps its place, and says so when its turn comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast


@holdfast.tool(name="main", effect="read")
async def main() -> None:
    raise holdfast.ToolError("broken", without_effect=True)


@holdfast.tool(name="second", effect="read")
async def second() -> str:
    return "second"


@holdfast.tool(name="third", effect="read")
async def third() -> str:
    return "third"


PLAN: dict[str, Any] = {
    "name": "p",
    "steps": [{"id": "a", "tool": "main", "fallback": ["second", "third"]}],
}


async def test_a_fallback_that_is_gone_is_passed_over_and_the_next_one_answers(tmp_path: Path) -> None:
    async with holdfast.Engine(folder=tmp_path, tools=[main, second, third]) as engine:
        run = await engine.start(PLAN, hold=True)
    async with holdfast.Engine(folder=tmp_path, tools=[main, third]) as engine:
        with pytest.raises(holdfast.HoldfastError, match="its tool second is not here"):
            await engine.get(run.id).resume()
        await engine.get(run.id).resume(force=True)
        assert await engine.get(run.id).result() == "third"
        step = (await engine.get(run.id).state()).steps["a"]
        assert [attempt.message for attempt in step.attempts] == ["broken", "the tool second is not here", ""]
