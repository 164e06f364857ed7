"""The idempotency key survives every retry and fork of a step that began and did not complete (rule 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Gate, Script, engine_at, plan, result, settled, step

NO = holdfast.ToolError("500")


def keys(script: Script) -> list[str]:
    return [call.key for call in script.calls]


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_failed_step_is_called_with_the_same_key_by_every_retry_and_fork(tmp_path: Path, effect: Any) -> None:
    post = Script(NO, NO, NO, NO, "done", name="post", effect=effect, retry=0)
    async with engine_at(tmp_path, post.tool) as engine:
        run = await engine.start(plan(step("p", "post")))
        assert await settled(run) == "failed"
        second = await engine.retry(run.id)
        assert await settled(second) == "failed"
        third = await engine.retry(second.id, from_step="p")
        assert await settled(third) == "failed"
        fourth = await engine.fork(third.id, at="p")
        assert await settled(fourth) == "failed"
        await result(await engine.retry(fourth.id))
    assert keys(post) == [f"{run.id}:p"] * 5


@pytest.mark.parametrize("way", ["function", "item", "milestone", "child"])
async def test_the_key_survives_wherever_the_step_is(tmp_path: Path, way: str) -> None:
    post = Script(NO, "done", name="post", effect="idempotent", retry=0)

    @holdfast.function
    async def work(ctx: holdfast.Context) -> Any:
        return await ctx.call(post.tool)

    plans = {
        "item": plan(step("p", "post", for_each=[1])),
        "milestone": plan({"id": "m", "steps": [step("p", "post")]}),
        "child": plan({"id": "c", "start": "work"}),
    }
    async with engine_at(tmp_path, post.tool, functions=[work]) as engine:
        run = await engine.start(plans.get(way, work))
        assert await settled(run) == "failed"
        await result(await engine.retry(run.id))
    first, second = keys(post)
    assert first == second


async def test_the_key_survives_a_retry_that_never_came_to_the_step(tmp_path: Path) -> None:
    a, post = Script("one", NO, "three", name="a"), Script(NO, "done", name="post", effect="idempotent", retry=0)
    work = plan(step("a", "a", **{"with": {"value": "${{ inputs.x }}"}}), step("p", "post"), inputs={"x": "integer"})
    async with engine_at(tmp_path, a.tool, post.tool) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        second = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(second) == "failed"
        await result(await engine.retry(second.id))
    assert keys(post) == [f"{run.id}:p"] * 2


async def test_the_key_survives_when_the_first_attempt_goes_to_a_fallback(tmp_path: Path) -> None:
    post, other = Script(NO, name="post", effect="idempotent", retry=0), Script(NO, "done", name="other", retry=0)
    first = plan(step("p", "post", fallback="other"))
    async with engine_at(tmp_path, post.tool, other.tool) as engine:
        run = await engine.start(first)
        assert await settled(run) == "failed"
        assert await settled(await engine.retry(run.id)) == "completed"
    assert set(keys(post) + keys(other)) == {f"{run.id}:p"}


async def test_a_step_that_was_running_when_it_was_forked_is_called_with_the_same_key(tmp_path: Path) -> None:
    post = Gate("post", effect="idempotent")
    async with engine_at(tmp_path, post.tool) as engine:
        run = await engine.start(plan(step("p", "post")))
        await post.wait_entered()
        fork = await engine.fork(run.id)
        post.open.set()
        await result(run)
        await result(fork)
    assert post.calls == [f"{run.id}:p"] * 2


async def test_another_input_has_another_key_and_no_notes(tmp_path: Path) -> None:
    heard: list[tuple[str, Any]] = []

    @holdfast.tool(effect="idempotent", retry=0)
    async def post(call: holdfast.Call, x: int) -> str:
        heard.append((call.key, call.notes))
        await call.note({"x": x})
        if x < 3:
            raise NO
        return "done"

    work = plan(step("p", "post", **{"with": {"x": "${{ inputs.x }}"}}), inputs={"x": "integer"})
    async with engine_at(tmp_path, post) as engine:
        run = await engine.start(work, inputs={"x": 1})
        assert await settled(run) == "failed"
        second = await engine.retry(run.id, inputs={"x": 2})
        assert await settled(second) == "failed"
        third = await engine.retry(second.id)
        assert await settled(third) == "failed"
        fourth = await engine.retry(third.id, inputs={"x": 3})
        await result(fourth)
    assert heard == [
        (f"{run.id}:p", None), (f"{second.id}:p", None), (f"{second.id}:p", {"x": 2}), (f"{fourth.id}:p", None),
    ]  # fmt: skip


async def test_a_completed_step_that_is_wanted_anew_has_a_new_key(tmp_path: Path) -> None:
    post = Script(name="post", effect="idempotent")
    async with engine_at(tmp_path, post.tool) as engine:
        run = await engine.start(plan(step("p", "post")))
        await result(run)
        again = await engine.retry(run.id, from_step="p")
        await result(again)
    assert keys(post) == [f"{run.id}:p", f"{again.id}:p"]
