"""Parents and children in the lab: whatever time a child takes, its parent hears of its end."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab


@holdfast.tool(effect="read")
async def look() -> int: ...


@holdfast.function
async def sleeper(ctx: holdfast.Context, wait: str = "2s") -> int:
    await ctx.sleep(wait)
    return 5


@holdfast.function
async def looker(ctx: holdfast.Context) -> int:
    return await ctx.call(look)


@holdfast.function
async def asker(ctx: holdfast.Context) -> Any:
    return await ctx.ask("well?", name="well")


def parent_of(child: str, **inputs: Any) -> Any:
    @holdfast.function(name="parent")
    async def parent(ctx: holdfast.Context) -> Any:
        run = await ctx.start(child, inputs=inputs)
        return await run.result()

    return parent


@pytest.fixture
def family(lab: Lab) -> Lab:
    lab.use(sleeper, looker, asker)
    lab.fake(look, returns=5)
    return lab


@pytest.mark.parametrize("patience", [0, "1ms", "1h"])
@pytest.mark.parametrize("wait", ["2s", "30s", "31s", "9d"])
def test_a_parent_hears_of_a_child_that_took_its_time(family: Lab, wait: str, patience: Any) -> None:
    outcome = family.run(parent_of("sleeper", wait=wait), patience=patience)
    assert (outcome.output, outcome.children[0].output) == (5, 5)


@pytest.mark.parametrize("child", ["sleeper", "looker"])
@pytest.mark.parametrize("patience", [0, "1s"])
def test_a_crash_anywhere_in_a_family_changes_nothing(family: Lab, child: str, patience: Any) -> None:
    assert family.run(parent_of(child), crash_at="everywhere", patience=patience).output == 5


def test_a_plan_waits_for_the_child_it_starts(family: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "s", "start": "sleeper"}]}
    assert family.run(plan).output == 5
    assert family.run(plan, crash_at="everywhere").output == 5


def test_a_child_that_waits_for_a_person_leaves_its_parent_waiting(family: Lab) -> None:
    outcome = family.run(parent_of("asker"))
    assert (outcome.status, outcome.children[0].waiting_for) == ("waiting", "an answer (well)")
    assert family.run(parent_of("asker"), answers={"well": family.later("40s", "yes")}).output == "yes"


def test_an_end_in_the_family_is_heard_before_the_run_is_over(family: Lab) -> None:
    outcome = family.run(parent_of("asker"), commands={"1h": "stop"})
    assert (outcome.status, outcome.children[0].status) == ("stopped", "stopped")
