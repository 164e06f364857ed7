"""What the tests of the engine share: engines that must leave nothing behind, short plans, ways to look and to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast.core.events import AnyEvent
from holdfast.core.execution import Step
from holdfast.engine.feed import Watched
from holdfast.journal.log import read_events

FAST = {"max": 3, "first": 0.001}  # the default number of retries, without the waiting
HURRY = holdfast.Limits(passivate_after_s=0.0, interrupt_grace_s=0.2, drain_s=0.05)

_open_engines = 0


@asynccontextmanager
async def engine_at(
    folder: Path | str, *tools: Any, functions: Any = (), check: bool = True, **options: Any
) -> AsyncIterator[holdfast.Engine]:
    """An engine on the folder's own journal (or "memory:"). When the last one closes, nothing of any may be left."""
    global _open_engines  # noqa: PLW0603 -- tests of one process share one loop at a time
    where: dict[str, Any] = {"store": "memory:"} if folder == "memory:" else {"folder": folder}
    engine = holdfast.Engine(**where, tools=tools, functions=functions, **options)
    _open_engines += 1
    try:
        async with engine:
            yield engine
    finally:
        _open_engines -= 1
    if check:
        assert not any(engine.holdings().values()), engine.holdings()
        if not _open_engines:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks outlived their engine: {left}"


def plan(*steps: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    return {"name": "test", "steps": list(steps), **others}


def step(step_id: str, tool: str, /, **others: Any) -> dict[str, Any]:
    return {"id": step_id, "tool": tool, **others}


async def events(run: holdfast.Run) -> list[AnyEvent]:
    """All durable events, in order."""
    return [event for _, event in await read_events(run._engine.services.store, run.id, 0)]


async def names(run: holdfast.Run, prefix: str = "") -> list[str]:
    kinds = [str(type(event).__struct_config__.tag) for event in await events(run)]
    return [name for name in kinds if name.startswith(prefix)]


async def step_of(run: holdfast.Run, path: str) -> Step:
    return (await run.state()).steps[path]


async def seen(run: holdfast.Run, kind: str, fits: Callable[[Any], bool] = lambda _: True, since: int = 0) -> Watched:
    """Wait for a durable event of this kind."""
    async with asyncio.timeout(60), aclosing(run.watch(since)) as watching:  # type: ignore[type-var]
        async for watched in watching:
            if watched.type == kind and fits(watched.event):
                return watched
    raise AssertionError(f"the execution ended without {kind}")


async def settled(run: holdfast.Run) -> str:
    async with asyncio.timeout(60):
        return (await run.settled()).status


async def result(run: holdfast.Run) -> Any:
    async with asyncio.timeout(60):
        return await run.result()


async def quiet(engine: holdfast.Engine) -> None:
    """Wait until the engine drives nothing."""
    await until(lambda: not engine.holdings()["tasks"])


async def until(is_so: Callable[[], bool]) -> None:
    """For what no event tells: look often, and give up after a while."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 -- there is nothing to wait for but the fact itself
            await asyncio.sleep(0.002)


async def turns(count: int = 300) -> None:
    """Many turns of the loop: what an engine on a journal in memory can do without waiting, it has done by then."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """A tool that says when it was entered and stays until it is let go."""

    def __init__(self, name: str = "gate", effect: Any = "read", **options: Any) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.calls: list[str] = []
        self.cancelled = 0

        @holdfast.tool(name=name, effect=effect, **options)
        async def gate(call: holdfast.Call, value: Any = None) -> Any:
            self.calls.append(call.key)
            self.entered.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return value

        self.tool = gate

    async def wait_entered(self) -> None:
        async with asyncio.timeout(60):
            await self.entered.wait()


class Script:
    """A tool that answers from a list, one entry per call: a value to return or an exception to raise."""

    def __init__(self, *answers: Any, name: str = "script", effect: Any = "read", **options: Any) -> None:
        self.answers = list(answers)
        self.calls: list[holdfast.Call] = []
        self.arguments: list[Any] = []

        @holdfast.tool(name=name, effect=effect, **options)
        async def script(call: holdfast.Call, value: Any = None) -> Any:
            self.calls.append(call)
            self.arguments.append(value)
            answer = self.answers.pop(0) if self.answers else value
            if isinstance(answer, BaseException):
                raise answer
            return answer

        self.tool = script


@holdfast.tool(effect="read")
async def echo(value: Any = None) -> Any:
    return value


@holdfast.tool(effect="read")
async def broken(value: Any = None) -> Any:
    raise holdfast.ToolError("it is broken")
