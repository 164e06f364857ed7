"""The pool of threads: fair between executions, and not starved by calls that do not end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kit import until
from holdfast.core.errors import ResourceShort
from holdfast.tools.call import Call, running_call
from holdfast.tools.runtime.cancellation import NeverBegan, StillRunning
from holdfast.tools.runtime.thread_pool import ThreadPool


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """What stuck calls wait for."""
    event = threading.Event()
    yield event
    event.set()


def call_of(execution_id: str) -> Call:
    return Call(execution_id, "step", 1, f"{execution_id}:step", Path())


class Stuck:
    """Calls in a thread that end when they may."""

    def __init__(self, pool: ThreadPool, end: threading.Event) -> None:
        self._pool, self._end = pool, end
        self.inside = 0

    def __call__(self) -> None:
        self.inside += 1
        self._end.wait(60)

    async def begin(self, count: int, execution_id: str = "") -> list[asyncio.Task[None]]:
        """So many more of them, all in their threads."""
        if execution_id:
            running_call.set(call_of(execution_id))
        wanted = self.inside + count
        tasks = [asyncio.create_task(self._pool.run(self)) for _ in range(count)]
        await until(lambda: self.inside == wanted)
        return tasks

    async def leave(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with pytest.raises(StillRunning):
                await task


async def test_calls_that_do_not_end_leave_their_places_to_others(end: threading.Event) -> None:
    pool = ThreadPool(2, 0, left_behind_max=4)
    stuck = Stuck(pool, end)
    for _ in range(2):
        await stuck.leave(await stuck.begin(2))
        assert await pool.run(lambda: 7) == 7


async def test_when_too_many_do_not_end_the_next_call_is_told_why(end: threading.Event) -> None:
    pool = ThreadPool(1, 0, left_behind_max=1)
    stuck = Stuck(pool, end)
    await stuck.leave(await stuck.begin(1))
    last = await stuck.begin(1)
    waiting = asyncio.create_task(pool.run(lambda: 1))
    await asyncio.sleep(0)
    await stuck.leave(last)
    for told in (waiting, pool.run(lambda: 2)):
        with pytest.raises(ResourceShort, match=r"2 calls of .* did not end .*, or start this process") as short:
            await told
        assert short.value.without_effect
    end.set()
    await until(lambda: not pool.busy)
    assert await pool.run(lambda: 3) == 3


async def test_a_pool_has_its_size_again_when_those_left_behind_have_ended(end: threading.Event) -> None:
    pool = ThreadPool(2, 0, left_behind_max=8)
    stuck = Stuck(pool, end)
    await stuck.leave(await stuck.begin(2))
    await stuck.leave(await stuck.begin(1))
    end.set()
    await until(lambda: not pool.busy)
    inside = most = 0
    lock = threading.Lock()

    def count() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.002)
        with lock:
            inside -= 1

    await asyncio.gather(*(pool.run(count) for _ in range(40)))
    assert most <= 2


async def test_executions_have_their_turns_one_after_the_other(end: threading.Event) -> None:
    pool = ThreadPool(1, 0)
    await Stuck(pool, end).begin(1)
    order: list[str] = []

    async def ask(execution_id: str, number: int) -> None:
        running_call.set(call_of(execution_id))
        await pool.run(lambda: order.append(f"{execution_id}{number}"))

    calls = [asyncio.create_task(ask("a", number)) for number in range(4)]
    calls += [asyncio.create_task(ask("b", number)) for number in range(2)]
    await asyncio.sleep(0)
    end.set()
    await asyncio.gather(*calls)
    assert order == ["a0", "b0", "a1", "b1", "a2", "a3"]


async def test_the_first_call_of_an_execution_does_not_wait_for_the_slow_calls_of_another(end: threading.Event) -> None:
    pool = ThreadPool(2, 1)
    await Stuck(pool, end).begin(2, "slow")
    running_call.set(call_of("quick"))
    async with asyncio.timeout(60):
        for number in range(3):
            assert await pool.run(lambda number=number: number) == number
    running_call.set(call_of("slow"))
    another = asyncio.create_task(pool.run(lambda: "its turn"))
    await asyncio.sleep(0)
    another.cancel()
    with pytest.raises(NeverBegan):
        await another


async def test_a_call_knows_how_long_it_waited_for_its_thread(end: threading.Event) -> None:
    pool = ThreadPool(1, 0)
    await Stuck(pool, end).begin(1, "slow")
    call = call_of("quick")
    running_call.set(call)
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(pool.run(lambda: None))
    began = loop.time()
    await until(lambda: call.waited_s(loop.time()) > 0.01)
    end.set()
    await waiting
    waited_s = call.waited_s(loop.time())
    assert 0.01 < waited_s <= loop.time() - began
    assert call.waited_s(loop.time() + 100) == waited_s


async def test_a_call_that_goes_on_without_its_thread_has_its_time_again(end: threading.Event) -> None:
    pool = ThreadPool(1, 0)
    stuck = Stuck(pool, end)
    tasks = await stuck.begin(1)
    call = call_of("b")
    running_call.set(call)
    waiting = asyncio.create_task(pool.run(stuck))
    await until(lambda: call.waited_s(asyncio.get_running_loop().time()) > 0)
    waiting.cancel()
    with pytest.raises(NeverBegan):
        await waiting
    now = asyncio.get_running_loop().time()
    assert call.waited_s(now) == call.waited_s(now + 10)
    await stuck.leave(tasks)


async def test_a_machine_without_threads_is_told_of_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPool(1)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ResourceShort, match="can start no more threads"):
            await pool.run(lambda: 1)
    assert not pool.busy
    assert await pool.run(lambda: 2) == 2
