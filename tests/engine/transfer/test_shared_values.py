"""Large values that two executions refer to: whichever of them is deleted, the other still reads whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, broken, engine_at, plan, result, step
from holdfast.core.errors import NotFound
from holdfast.journal.inspection import verify_execution
from holdfast.journal.store import Query
from journal.support import sql

LARGE = "x" * 50_000


@holdfast.function
async def page(ctx: holdfast.Context) -> str:
    return LARGE


@holdfast.function
async def book(ctx: holdfast.Context) -> dict[str, Any]:
    started = await ctx.start(page)
    return {"child": started.id, "length": len(await started.result())}


async def assert_all_whole(engine: holdfast.Engine) -> None:
    """Every event, and every large value behind it, as the doctor looks at them."""
    store = engine.services.store
    for head in await store.heads(Query()):
        await verify_execution(store, head)


async def test_a_parent_reads_whole_after_its_child_was_deleted(tmp_path: Path) -> None:
    async with engine_at(tmp_path, functions=[page, book]) as engine:
        run = await engine.start(book)
        output = await result(run)
        assert await engine.services.store.delete([output["child"]]) == [output["child"]]
        with pytest.raises(NotFound):
            await engine.get(output["child"]).head()
        await assert_all_whole(engine)
        shown: Any = await run.show()
        assert [child["output"] for child in shown["children"]] == [LARGE]
        await engine.services.store.delete([run.id])
    assert sql(tmp_path / ".holdfast" / "journal.db", "SELECT count(*) FROM blobs") == [(0,)]


async def test_a_fork_reads_whole_after_its_origin_was_deleted(tmp_path: Path) -> None:
    first, second = Script(LARGE), Script(holdfast.ToolError("no"), "better", name="second")
    async with engine_at(tmp_path, first.tool, second.tool) as engine:
        run = await engine.start(plan(step("a", "script"), step("b", "second"), output="${{ steps.a.output }}"))
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        again = await engine.retry(run.id)
        assert await result(again) == LARGE
        assert await engine.services.store.delete([run.id]) == [run.id]
        await assert_all_whole(engine)
        assert await result(again) == LARGE
    assert len(first.calls) == 1


async def test_what_a_fork_was_made_from_stays_as_long_as_the_fork_may_look_into_it(tmp_path: Path) -> None:
    """A retried parent's new children keep what the children in their place had done."""
    async with engine_at(tmp_path, broken) as engine:
        run = await engine.start(plan(step("a", "broken")))
        with pytest.raises(holdfast.ExecutionFailed):
            await result(run)
        fork = await engine.fork(run.id)
        with pytest.raises(holdfast.ExecutionFailed):
            await result(fork)
        held = await engine.start(plan(step("a", "broken")), hold=True)
        assert await engine.services.store.delete([held.id]) == []
        assert await engine.services.store.delete([run.id]) == [run.id]
