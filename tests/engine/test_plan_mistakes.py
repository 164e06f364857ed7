"""Every kind of step waits for a correction of what its plan says; answers survive a restart, and a yes is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, echo, engine_at, plan, result, seen, settled, step, step_of


@holdfast.tool(name="pay", effect="once", approval="Pay it?")
async def pay(call: holdfast.Call, amount: int, note: str = "") -> int:
    with (call.folder / "paid.txt").open("a") as paid:
        paid.write(f"{amount} {note}\n")
    return amount


def first(value: Any) -> dict[str, Any]:
    return step("first", "echo", **{"with": {"value": value}})


FAULTY = {
    "for_each": {"id": "x", "for_each": "${{ steps.first.output }}", "tool": "echo", "with": {"value": 1}},
    "item": {"id": "x", "for_each": [1], "tool": "echo", "with": {"value": "${{ steps.first.output.no }}"}},
    "wait": {"id": "x", "wait": "${{ steps.first.output }}"},
    "until": {"id": "x", "wait": {"until": "${{ steps.first.output }}"}},
    "event": {"id": "x", "wait": {"event": "${{ steps.first.output.no }}"}},
    "approval": {"id": "x", "approval": "${{ steps.first.output.no }}?"},
    "milestone": {"id": "x", "steps": [step("y", "echo")], "output": "${{ steps.first.output.no }}"},
}


@pytest.mark.parametrize("kind", FAULTY)
async def test_each_kind_of_step_waits_and_counts_as_done_with_what_a_person_says(tmp_path: Path, kind: str) -> None:
    work = plan(first("soon"), FAULTY[kind], step("after", "echo", **{"with": {"value": "${{ steps.x.output }}"}}))
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(work)
        await settled(run)
        path = await asked(run)
    async with engine_at(tmp_path, echo) as engine:
        run = engine.get(run.id)
        assert (await run.resolve(path, "done", output=[7] if kind == "for_each" else 7)).outcome == "applied"
        assert await result(run) == ([7] if kind in ("for_each", "item") else 7)


async def test_again_works_it_out_once_more(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text("steps:\n  - {id: a, tool: echo, with: {value: 5}}\n")
    async with engine_at(tmp_path, echo, limits=HURRY) as engine:
        run = await engine.start(
            plan(first(1), {"id": "w", "wait": {"event": "go"}}, {"id": "x", "start": "child.yaml"})
        )
        await seen(run, "task:waiting")
        text = child.read_text()
        child.write_text("steps: 3\n")
        await run.send("go")
        await settled(run)
        assert await asked(run) == "x"
        child.write_text(text)
        await run.resolve("x", "again")
        assert await result(run) == 5


async def test_arguments_given_by_hand_are_still_agreed_to_and_survive_restarts(tmp_path: Path) -> None:
    broken = step("x", "pay", **{"with": {"amount": "${{ steps.first.output.no }}", "note": "for ${{ inputs.who }}"}})
    work = plan(first(1), broken, inputs={"who": "string"})
    async with engine_at(tmp_path, echo, pay, limits=HURRY) as engine:
        run = await engine.start(work, inputs={"who": "Ada"})
        await settled(run)
        await run.resolve("x", "again", arguments={"amount": 30})
        await settled(run)
    async with engine_at(tmp_path, echo, pay, limits=HURRY) as engine:
        run = engine.get(run.id)
        await settled(run)
        (request,) = (await run.state()).open_requests()
        assert (request.request.kind, bytes(request.request.arguments)) == (
            "approval",
            b'{"note":"for Ada","amount":30}',
        )
        assert not (tmp_path / "paid.txt").exists()
        await run.approve("x")
        assert await result(run) == 30
        assert (tmp_path / "paid.txt").read_text() == "30 for Ada\n"


async def test_step_that_may_fail_waits_for_nobody(tmp_path: Path) -> None:
    work = plan(first("soon"), {**FAULTY["wait"], "critical": False}, step("after", "echo"))
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(work)
        await result(run)
        assert (await step_of(run, "x")).status == "failed"


async def asked(run: holdfast.Run) -> str:
    """The path of the one correction that is asked for."""
    (request,) = (await run.state()).open_requests()
    assert request.request.kind == "correction"
    return request.request.path
