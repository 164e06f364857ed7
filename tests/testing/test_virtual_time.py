"""Virtual time and simulated processes: what the simulator and the lab stand on."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from holdfast.testing.simulated_processes import Process, SimulatedLoop
from holdfast.testing.virtual_time import START_US, NothingWillHappen, VirtualClock, VirtualLoop, run_virtually
from holdfast.tools.runtime.thread_pool import pool


def test_a_month_passes_at_once() -> None:
    async def wait() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(30 * 86400)
        return loop.time(), VirtualClock(loop).now_us()

    passed_s, now_us = run_virtually(wait())
    assert passed_s == pytest.approx(30 * 86400)
    assert now_us == START_US + 30 * 86400 * 1_000_000


def test_timers_ring_in_the_order_of_their_times() -> None:
    rung: list[float] = []

    async def ring(after_s: float) -> None:
        await asyncio.sleep(after_s)
        rung.append(after_s)

    async def main() -> None:
        await asyncio.gather(*(ring(after_s) for after_s in (3, 1, 2, 0.5)))

    run_virtually(main())
    assert rung == [0.5, 1, 2, 3]


def test_what_will_never_come_is_said_instead_of_awaited() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingWillHappen, match="what is awaited will never come"):
        run_virtually(wait())


def test_the_clock_stands_still_while_a_thread_works() -> None:
    async def work() -> float:
        async with asyncio.timeout(5):  # would be over at once if time jumped
            await pool.run(lambda: time.sleep(0.02))
        return asyncio.get_running_loop().time()

    assert run_virtually(work()) < 5


def test_sets_of_tasks_are_walked_in_one_order() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.ensure_future(asyncio.sleep(0, number)) for number in range(20)}
        await asyncio.wait(tasks)
        return [str(task.result()) for task in tasks]

    assert run_virtually(main()) == run_virtually(main())


# ---- processes -------------------------------------------------------------------------------------------------


def simulated(work: Any) -> Any:
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))


def test_a_killed_process_has_no_last_words() -> None:
    said: list[str] = []

    async def main(loop: SimulatedLoop) -> None:
        process = Process(loop, "p")

        async def work() -> None:
            try:
                said.append("began")
                await asyncio.sleep(1)
                said.append("went on")
            finally:
                said.append("tidied up")

        process.spawn(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)
        assert said == ["began"]
        await process.bury()

    simulated(main)


def test_a_process_is_killed_between_any_two_awaits() -> None:
    async def main(loop: SimulatedLoop) -> list[int]:
        reached: list[int] = []
        for turns in range(1, 6):
            process, steps = Process(loop, "p"), [0]

            async def work(steps: list[int] = steps) -> None:
                for _ in range(10):
                    steps[0] += 1
                    await asyncio.sleep(0)

            process.kill_in(turns)
            process.spawn(work())
            await asyncio.sleep(1)
            reached.append(steps[0])
            await process.bury()
        return reached

    assert simulated(main) == [0, 1, 2, 3, 4]


def test_a_frozen_process_wakes_up_where_it_was_and_does_not_do_what_was_called_off() -> None:
    said: list[str] = []

    async def main(loop: SimulatedLoop) -> None:
        process = Process(loop, "p")
        handles: list[asyncio.TimerHandle] = []

        async def work() -> None:
            handles.append(asyncio.get_running_loop().call_later(1, said.append, "called off"))
            await asyncio.sleep(1)
            said.append(f"woke at {loop.time():g}")

        process.spawn(work())
        await asyncio.sleep(0.5)
        process.freeze()
        await asyncio.sleep(5)
        assert said == []
        handles[0].cancel()
        process.thaw()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    simulated(main)
    assert said == ["woke at 5.5"]


def test_others_go_on_while_one_process_is_dead() -> None:
    async def main(loop: SimulatedLoop) -> str:
        one, other = Process(loop, "one"), Process(loop, "other")
        one.spawn(asyncio.sleep(100))
        working = other.spawn(asyncio.sleep(2, "done"))
        one.kill()
        result = await working
        await one.bury()
        return result

    assert simulated(main) == "done"


def test_who_turns_in_circles_and_will_not_be_cancelled_is_let_go_of_all_the_same() -> None:
    turned: list[int] = []

    async def main(loop: SimulatedLoop) -> None:
        process = Process(loop, "p")
        loop.allow(50, process.kill)

        async def work() -> None:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)

        process.spawn(work())
        await asyncio.sleep(1)
        turned.append(process.turns)
        await process.bury()

    simulated(main)
    assert turned == [50]
