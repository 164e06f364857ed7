"""Commands that are refused: nothing is cut, nothing is posted, and what does not fit its tool never reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import holdfast
from engine.kit import Gate, engine_at, plan, result, seen, settled, step, step_of
from holdfast.core.commands import Command
from holdfast.core.errors import InputInvalid, Refused


@pytest.mark.parametrize("verb", ["interrupt", "stop"])
async def test_an_interrupt_that_is_refused_cuts_nothing(verb: str) -> None:
    gate = Gate("pay", effect="once")
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "pay", **{"with": {"value": 7}})))
        await gate.wait_entered()
        with pytest.raises(Refused, match="more than 4 MB of data"):
            await getattr(run, verb)(why="x" * (5 * 1024 * 1024))
        with pytest.raises(InputInvalid, match=r"do not fit: Expected `str`, got `null` - at `\$\.why`"):
            await getattr(run, verb)(why=None)
        # As another version of Holdfast may post it, which knows of no such check.
        told = Command(id="foreign", execution_id=run.id, verb=verb, at=0, arguments=Raw(b'{"why":null}'))  # type: ignore[arg-type]
        await engine.services.writer.write(told)
        driver = engine.driver(run.id)
        assert driver is not None
        driver.deliver([told])
        gate.open.set()
        assert await result(run) == 7
        answer = await engine.services.store.answer("foreign")
        assert answer is not None
        assert answer.outcome == "refused"
    assert (gate.cancelled, len(gate.calls)) == (0, 1)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"why": 5}, "Expected `str`, got `int`"),
        ({"sticky": "yes"}, "Expected `bool`, got `str`"),
        ({"data": Raw(b"{")}, "malformed|truncated"),
        ({"wy": "typo"}, "wy"),
    ],
)
async def test_a_command_that_no_driver_could_read_is_not_even_posted(values: dict[str, Any], problem: str) -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        with pytest.raises(InputInvalid, match=problem):
            await run.command("pause", id="mine", **values)
        assert await engine.services.store.command("mine") is None
        gate.open.set()
        await result(run)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_what_is_handed_in_must_fit_the_tool_however_it_comes(tmp_path: Path, large: bool) -> None:
    """The handle checks it, and so does whoever applies it: a command may come from anywhere."""

    @holdfast.tool(effect="once", approval="Pay?")
    async def pay(amount: int, note: str = "") -> int:
        if amount < 0:
            raise ConnectionResetError("gone")
        return amount

    given = {"amount": -1, "note": "n" * (100_000 if large else 1)}
    async with engine_at(tmp_path, pay) as engine:
        run = await engine.start(plan(step("a", "pay", **{"with": given})))
        await settled(run)
        for wrong, why in (
            (b"[1]", "must be a mapping"),
            (b'{"amount":"x"}', "amount: expected a whole number"),
            (b'{"amuont":1}', "amuont: no such argument"),
        ):
            answer = await run.command("approve", step="a", arguments=Raw(wrong))
            assert (answer.outcome, why in answer.text) == ("refused", True), answer
        with pytest.raises(InputInvalid, match="must be a mapping"):
            await run.approve("a", arguments=[1])  # type: ignore[arg-type]
        answer = await run.command("approve", step="a", arguments=Raw(b"null"))
        assert answer.outcome == "applied"
        await seen(run, "request:opened")
        for remedy, wrong, why in (
            ("done", b'"x"', "the output does not fit what pay returns"),
            ("again", b'{"amount":"x"}', "amount: expected a whole number"),
            ("again", b"[1]", "must be a mapping"),
        ):
            answer = await run.command("resolve", step="a", remedy=remedy, data=Raw(wrong))
            assert (answer.outcome, why in answer.text) == ("refused", True), answer
        assert (await step_of(run, "a")).status == "in_doubt"
        assert (await run.command("resolve", step="a", remedy="done", data=Raw(b"5"))).outcome == "applied"
        assert await result(run) == 5


async def test_new_steps_that_are_no_steps_are_refused_however_they_come() -> None:
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("a", "gate")))
        await gate.wait_entered()
        for wrong in (b"5", b'{"id":"b"}', b"[1]"):
            answer = await run.command("extend", data=Raw(wrong), count=1)
            assert (answer.outcome, "no list of steps" in answer.text) == ("refused", True), answer
        gate.open.set()
        await result(run)
