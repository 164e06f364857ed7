"""What a person says a step has given must be something that its tool returns; to say nothing is to say null."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from msgspec import Raw

import holdfast
from engine.kit import engine_at, plan, result, settled, step, step_of
from holdfast.core.errors import InputInvalid, UsageError
from holdfast.core.plan.step_reads import is_output_read


class Receipt(TypedDict):
    number: int
    lines: list[str]
    paid: bool
    note: str | None


@holdfast.tool(name="say", effect="once")
async def say() -> str:
    raise ConnectionResetError("gone")


@holdfast.tool(name="sell", effect="once")
async def sell() -> Receipt:
    raise ConnectionResetError("gone")


async def test_done_without_an_output_is_refused_where_null_is_none() -> None:
    async with engine_at("memory:", say, sell) as engine:
        read: Any = {"output": "${{ steps.a.output }}"}
        text = await engine.start(plan(step("a", "say"), **read))
        receipt = await engine.start(plan(step("a", "sell"), **read))
        for run, said in (
            (text, "say returns: expected a string, got null; say what it gave: --output '\"…\"'"),
            (
                receipt,
                "sell returns: expected a map, got null; say what it gave: "
                '--output \'{"lines": [], "note": "…", "number": 0, "paid": false}\'',
            ),
        ):
            assert await settled(run) == "waiting"
            with pytest.raises(InputInvalid) as refused:
                await run.resolve("a", "done")
            assert str(refused.value) == f"the output does not fit what {said}"
            said_nothing = [
                await run.command("resolve", step="a", remedy="done"),
                await run.command("resolve", step="a", remedy="done", data=Raw(b"null")),
            ]
            for answer in said_nothing:  # however it comes
                assert (answer.outcome, answer.text) == ("refused", str(refused.value))
            assert (await step_of(run, "a")).status == "in_doubt"
            shown: Any = await run.show()
            command = shown["requests"][0]["card"]["choices"][0]["command"]
            assert command == f"holdfast resolve {run.id} a --done --output JSON"
        with pytest.raises(InputInvalid, match=r"what say returns: expected a string, got the number 5$"):
            await text.resolve("a", "done", output=5)
        with pytest.raises(InputInvalid, match=r"what sell returns: lines\[0\]: expected a string, got the number 1$"):
            await receipt.resolve("a", "done", output={"lines": [1], "note": None, "number": 0, "paid": False})
        await text.resolve("a", "done", output="paid")
        assert await result(text) == "paid"
        await receipt.stop()


async def test_done_without_an_output_is_enough_where_a_tool_may_return_nothing() -> None:
    @holdfast.tool(name="quiet", effect="once")
    async def quiet() -> None:
        raise ConnectionResetError("gone")

    @holdfast.tool(name="perhaps", effect="once")
    async def perhaps() -> str | None:
        raise ConnectionResetError("gone")

    @holdfast.tool(name="anything", effect="once")
    async def anything():  # type: ignore[no-untyped-def]
        raise ConnectionResetError("gone")

    async with engine_at("memory:", quiet, perhaps, anything) as engine:
        for name in ("quiet", "perhaps", "anything"):
            run = await engine.start(plan(step("a", name)))
            assert await settled(run) == "waiting"
            shown: Any = await run.show()
            assert shown["requests"][0]["card"]["choices"][0]["command"] == f"holdfast resolve {run.id} a --done"
            await run.resolve("a", "done")
            assert await result(run) is None


async def test_done_needs_no_output_where_no_later_step_reads_it() -> None:
    @holdfast.tool(name="after", effect="read")
    async def after(text: str = "") -> str:
        return text

    unread = plan(
        step("group", "sell", title="don't ${{ inputs.x }}"),
        step("then", "after", when="steps.group.status == 'completed'", **{"with": {"text": "steps.group.output"}}),
        inputs={"x": "string"},
        output="${{ steps.then.output }}",
    )
    async with engine_at("memory:", sell, after) as engine:
        run = await engine.start(unread, inputs={"x": "x"})
        assert await settled(run) == "waiting"
        shown: Any = await run.show()
        assert shown["requests"][0]["card"]["choices"][0]["command"] == f"holdfast resolve {run.id} group --done"
        await run.resolve("group", "done")
        assert await result(run) == "steps.group.output"


async def test_a_function_is_taken_to_read_what_its_steps_give() -> None:
    @holdfast.function
    async def sells(ctx: holdfast.Context) -> Any:
        return await ctx.call(sell, name="a")

    async with engine_at("memory:", sell, functions=[sells]) as engine:
        run = await engine.start(sells)
        assert await settled(run) == "waiting"
        with pytest.raises(InputInvalid, match="expected a map, got null"):
            await run.resolve("a", "done")
        await run.stop()


async def test_done_without_an_output_takes_what_the_tool_declares() -> None:
    @holdfast.tool(name="order", effect="once", done_output={"number": 0, "lines": [], "paid": True, "note": None})
    async def order() -> Receipt:
        raise ConnectionResetError("gone")

    async with engine_at("memory:", order) as engine:
        run = await engine.start(plan(step("a", "order"), output="${{ steps.a.output.paid }}"))
        assert await settled(run) == "waiting"
        await run.resolve("a", "done")
        assert await result(run) is True


def test_a_declared_output_must_fit_what_the_tool_returns() -> None:
    with pytest.raises(UsageError, match=r"done_output: .*number"):

        @holdfast.tool(name="order", effect="once", done_output={"lines": [], "paid": True, "note": None})
        async def order() -> Receipt: ...


def test_what_reads_an_output_is_looked_up_in_every_expression() -> None:
    def reads(text: str, path: str = "a", key: str = "with") -> bool:
        return is_output_read({"steps": [{"id": "b", key: text}]}, path)

    assert reads("${{ steps.a.output.x }}")
    assert reads("it isn't ${{ size(steps.a) }} or ${{ 'steps' }}")
    assert reads("steps.a.output == 1", key="when")
    assert reads("${{ steps.pages.output }}", "pages[3]/inner")
    assert not reads("steps.a.output")
    assert not reads("${{ 'steps.a.output' + steps.a.status }}")
    assert not reads("${{ steps.other.output }}")
