"""Tools that can say how they are: asked in the background, left alone while they are ill, and shown to others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holdfast
from engine.kit import engine_at, plan, result, seen, step, until
from holdfast.journal.tool_status import Board, EngineToolStates
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import Adapter, NoConfig, ToolsetFolders

OFTEN = holdfast.Limits(health_every_s=0.01, breaker_rest_s=60)


class Patient:
    def __init__(self) -> None:
        self.calls = 0
        self.asked = 0
        self.trouble: Exception | None = holdfast.Transient("the server is down")

        @holdfast.tool(effect="read")
        async def patient() -> str:
            self.calls += 1
            return "fine"

        @patient.health
        async def health() -> None:
            self.asked += 1
            if self.trouble is not None:
                raise self.trouble

        self.tool = patient


async def test_an_ill_tool_is_left_alone_until_it_says_that_it_is_well() -> None:
    patient = Patient()
    async with engine_at("memory:", patient.tool, limits=OFTEN) as engine:
        await until(lambda: "patient" in engine.health.seen)
        run = await engine.start(plan(step("a", "patient")))
        await seen(run, "task:waiting", lambda event: event.reasons[0].kind == "breaker")
        assert patient.calls == 0
        patient.trouble = None
        assert await result(run) == "fine"
        assert engine.health.seen["patient"].is_well


async def test_a_family_is_asked_once_for_all_its_tools() -> None:
    @holdfast.tool(name="far.one", effect="read")
    async def one() -> None: ...

    @holdfast.tool(name="far.two", effect="read")
    async def two() -> None: ...

    class Far(Adapter):
        def tools(self) -> Sequence[Tool[..., Any]]:
            return (one, two)

        async def health(self) -> None:
            raise holdfast.Misconfigured("no key was given")

    engine = holdfast.Engine("memory:", limits=OFTEN)
    engine.services.registry.add_adapter(Far(NoConfig(), ToolsetFolders()))
    async with engine:
        await until(lambda: "far.two" in engine.health.seen)
        assert {name: seen_.why for name, seen_ in engine.health.seen.items() if name.startswith("far.")} == {
            "far.one": "no key was given",
            "far.two": "no key was given",
        }


async def test_nobody_is_asked_before_a_while_or_after_the_engine_has_closed() -> None:
    patient = Patient()
    async with engine_at("memory:", patient.tool, limits=OFTEN):
        await until(lambda: patient.asked > 1)
    asked = patient.asked
    await asyncio.sleep(0.03)
    assert patient.asked == asked
    async with engine_at("memory:", patient.tool):
        pass
    assert patient.asked == asked


async def test_what_an_engine_knows_of_its_tools_is_on_the_board_until_it_closes(tmp_path: Path) -> None:
    patient = Patient()
    board = Board(tmp_path / ".holdfast")

    def read() -> list[EngineToolStates]:
        return board.read(lambda driver: False)

    async with engine_at(tmp_path, patient.tool, limits=OFTEN):
        await until(lambda: any(one.tool == "patient" for posted in read() for one in posted.tools))
        notice = next(notice for notice in read()[0].tools if notice.tool == "patient")
        assert (notice.tool, notice.breaker, notice.health) == ("patient", "open", "ill")
        assert notice.health_why == notice.why == "the server is down"
        assert notice.probe_at is not None
        patient.trouble = None
        await until(lambda: any(one.tool == "patient" and one.breaker == "closed" for one in read()[0].tools))
    assert read() == []


def test_what_the_dead_or_strangers_left_on_the_board_is_not_believed(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.post("dead", EngineToolStates(at=1, tools=[]))
    board.post("living", EngineToolStates(at=2, tools=[]))
    (tmp_path / "tools" / "odd.json").write_text("{not json")
    assert [notices.at for notices in board.read(lambda driver: driver == "dead")] == [2]
    board.tidy(lambda driver: driver == "dead")
    assert not (tmp_path / "tools" / "dead.json").exists()
    assert Board(tmp_path / "nowhere").read(lambda driver: False) == []
