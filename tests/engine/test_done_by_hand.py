"""What a person says a step has given must be something that its tool returns; to say nothing is to say null."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from msgspec import Raw

import holdfast
from engine.kit import engine_at, plan, result, settled, step, step_of
from holdfast.core.errors import InputInvalid


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
        text, receipt = await engine.start(plan(step("a", "say"))), await engine.start(plan(step("a", "sell")))
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
