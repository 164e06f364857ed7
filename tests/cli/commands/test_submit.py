"""`holdfast submit` and `Engine.submit`: a task is handed over durably, and nothing of it begins here."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from cli.workshop import Workshop


def test_a_submitted_task_waits_for_a_worker_which_runs_it(shop: Workshop) -> None:
    answered = shop.run("submit", "two.yaml", "-i", "count=7", "--title", "Handed over", "--label", "team=harbour")
    execution_id = answered.out.strip()
    assert f"watch it: holdfast watch {execution_id}" in answered.err
    waiting = shop.newest()
    assert (waiting["id"], waiting["status"], waiting["title"]) == (execution_id, "queued", "Handed over")
    assert shop.log() == []
    shop.run("worker", "--until-idle")
    shown = shop.run("show", execution_id, "--json").json
    assert (shown["status"], shown["output"], shown["labels"]) == ("completed", 7, {"team": "harbour"})


def test_submit_with_the_same_key_is_the_same_execution(shop: Workshop) -> None:
    first = shop.run("submit", "two.yaml", "--key", "k", "--json").json
    again = shop.run("submit", "two.yaml", "--key", "k", "--json").json
    assert again["id"] == first["id"]
    assert again["text"] == f"key k is execution {first['id']}, which was begun before; no other one was started"
    shop.run("submit", "gate.yaml", "--key", "k", code=2)
    assert len(shop.run("list", "--json").json) == 1


def test_submit_refuses_wrong_inputs_and_leaves_nothing(shop: Workshop) -> None:
    refused = shop.run("submit", "two.yaml", "-i", "count=many", code=2)
    assert "count" in refused.err
    assert shop.run("list", "--json").json == []


def test_submit_needs_no_requirement_of_the_worker_here(shop: Workshop) -> None:
    shop.write("needy.yaml", "name: needy\nsteps:\n  - {id: one, tool: work.needy}\n")
    shop.run("run", "needy.yaml", code=2)
    assert shop.run("submit", "needy.yaml", "--json").json["status"] == "queued"


@pytest.mark.parametrize("recover", ["family", "none", "nothing"])
async def test_an_engine_leaves_what_it_submitted_to_another_one(tmp_path: Path, recover: str) -> None:
    """Also where it drives and recovers what it has started itself."""
    plan = {"name": "quick", "steps": [{"id": "say", "tool": "say"}], "output": "${{ steps.say.output }}"}
    ran: list[str] = []

    @holdfast.tool(effect="idempotent")
    def say(call: holdfast.Call) -> str:
        ran.append(call.execution_id)
        return "said"

    folder = tmp_path
    async with holdfast.Engine(folder=folder, tools=[say], recover=recover) as web:  # type: ignore[arg-type]
        run = await web.submit(plan, key="once")
        assert (await web.submit(plan, key="once")).id == run.id
        if recover != "nothing":  # a look around has come and gone when this one has ended
            await (await web.start(plan)).result()
        assert await run.status() == "queued"
        assert run.id not in ran
        async with holdfast.Engine(folder=folder, tools=[say], recover="all"):
            assert await run.result() == "said"
