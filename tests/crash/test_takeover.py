"""What the sweep found in the moment between two drivers: each finding is kept here without a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.kit import echo, engine_at, names, plan, step
from holdfast.core.commands import Command
from holdfast.journal.store import Head


async def command_found_at_take_up(folder: Path, verb: Any, status: str) -> tuple[Head, list[str]]:
    """The head right after the transaction that moved an execution to `status`, and its events then."""
    async with engine_at(folder, echo, recover="none") as absent:
        run = await absent.start(plan(step("a", "echo")), hold=True)
        command = Command(id="a command", execution_id=run.id, verb=verb, at=1)
        await absent.services.store.commit([command])
    async with engine_at(folder, echo) as engine:
        store = engine.services.store
        commit, moved = store.commit, asyncio.get_running_loop().create_future()

        async def spying(writes: Sequence[Any]) -> Any:
            written = await commit(writes)
            head = await store.head(run.id)
            if head.status == status and not moved.done():
                moved.set_result(head)
            return written

        store.commit = spying  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            return await moved, await names(engine.get(run.id))


async def test_execution_that_is_stopped_as_it_is_taken_up_is_let_go_of_in_the_same_transaction(tmp_path: Path) -> None:
    head, _ = await command_found_at_take_up(tmp_path, "stop", "stopped")
    assert head.driver == "", "a death right now would leave it held for good"


async def test_pause_found_at_take_up_is_not_announced_as_expiring_thirty_days_early(tmp_path: Path) -> None:
    _, happened = await command_found_at_take_up(tmp_path, "pause", "paused")
    assert happened == ["task:created", "task:paused"]
