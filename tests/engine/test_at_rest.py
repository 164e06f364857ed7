"""What moves an execution next, by its head, and who waits for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import HURRY, engine_at, plan, result, seen, settled
from holdfast.core.events import Reason
from holdfast.engine.at_rest import is_all_waiting, is_at_rest, is_idle, moved_by
from holdfast.journal.store import ASKED, Head

NOW_US = 1_000


def waits(*reasons: tuple[Any, ...], wake_at: int | None = None, **more: Any) -> dict[str, Any]:
    made = tuple(Reason(kind=kind, due_at=due_at[0] if due_at else None) for kind, *due_at in reasons)
    return {"status": "waiting", "reasons": made, "wake_at": wake_at, **more}


@pytest.mark.parametrize(
    ("head", "movers"),
    [
        ({"status": "queued"}, {"driver"}),
        ({"status": "queued", "wake_at": None}, {"person"}),
        ({"status": "running"}, {"driver"}),
        ({"status": "running", "held": "imported"}, {"person"}),
        ({"status": "running", "quarantined": "damaged"}, {"person"}),
        ({"status": "paused", "driver": "alive"}, {"driver"}),
        ({"status": "paused", "driver": "dead"}, {"person"}),
        ({"status": "paused", "wake_at": None}, {"person"}),
        ({"status": "interrupted", "driver": "alive"}, {"person"}),
        ({"status": "completed"}, set()),
        ({"status": "failed", "quarantined": "damaged"}, set()),
        (waits(("approval",)), {"person"}),
        (waits(("approval", 2_000), wake_at=2_000), {"person"}),
        (waits(("approval", 900), wake_at=900), {"driver"}),
        (waits(("answer",), wake_at=ASKED), {"driver"}),
        (waits(("child",), wake_at=0), {"driver"}),
        (waits(("child",), ("doubt",)), {"child", "person"}),
        (waits(("timer", 2_000), ("event",)), {"time", "event"}),
        (waits(("event", 2_000)), {"time"}),
        (waits(("quota",), ("breaker", 2_000), ("limit", 2_000), ("pressure", 2_000)), {"time"}),
        (waits(("budget",), ("correction",), driver="alive"), {"person"}),
    ],
)
def test_what_moves_an_execution_is_told_by_its_head(head: dict[str, Any], movers: set[str]) -> None:
    found = Head(id="x", name="test", kind="plan", created_at=0, **head)
    assert moved_by(found, NOW_US, lambda driver: driver == "dead") == movers


async def test_settled_ends_when_only_people_can_move_the_child(tmp_path: Path) -> None:
    asks = tmp_path / "ask.yaml"
    asks.write_text("steps: [{id: agree, approval: Shall we?}]")
    async with engine_at(tmp_path, limits=HURRY) as engine:
        run = await engine.start(plan({"id": "child", "start": "ask.yaml"}))
        assert await settled(run) == "waiting"
        (reason,) = (await run.head()).reasons
        assert reason.kind == "child"
        assert await is_idle(engine)
        await engine.get(reason.name).approve()
        assert await result(run) is True


async def test_an_answer_that_is_given_ends_the_rest() -> None:
    async with engine_at("memory:") as engine:
        run = await engine.start(plan({"id": "agree", "approval": "Shall we?"}, {"id": "go", "wait": {"event": "go"}}))
        assert await settled(run) == "waiting"
        waiting = await run.head()
        assert await is_at_rest(engine, waiting)
        await run.approve()
        assert not await is_at_rest(engine, waiting)  # also before its driver has moved the head
        await seen(run, "task:waiting", lambda event: event.reasons[0].kind == "event")
        assert await is_all_waiting(engine)
        assert not await is_idle(engine)  # somebody outside may send the event
        await run.send("go")
        await result(run)


async def test_what_was_started_to_be_held_is_at_rest_until_a_person_has_it_started() -> None:
    async with engine_at("memory:") as engine:
        run = await engine.start(plan({"id": "go", "wait": {"event": "go"}}), hold=True)
        assert await is_at_rest(engine, await run.head())
        assert await is_idle(engine)  # nobody here will ever drive it by itself
        await run.stop()
        with pytest.raises(holdfast.ExecutionStopped):
            await run.result()
