"""Taking turns: so many at once, so many in a second, one execution after the other."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.errors import InputInvalid
from holdfast.testing.virtual_time import run_virtually
from holdfast.tools.runtime.fair_queue import Pacer, Places, Rate, Turn, Turns, parse_rate


@pytest.mark.parametrize(
    ("text", "rate"), [("10/s", (10, 1)), (" 100 / m ", (100, 60)), ("5/2s", (5, 2)), ("1/500ms", (1, 0.5))]
)
def test_a_rate_is_read_as_people_write_it(text: str, rate: tuple[int, float]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "10", "10/", "0/s", "-1/s", "1/0s", "1/x", "99999999/s"])
def test_what_is_no_rate_is_refused_in_words(text: str) -> None:
    with pytest.raises(InputInvalid, match=r"expected a rate "):
        parse_rate(text)


def test_calls_are_spaced_evenly_and_no_time_is_saved_up() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        pacer = Pacer(Rate(10, 1.0))
        at: list[float] = []

        async def call() -> None:
            await pacer.take("one")
            at.append(round(loop.time(), 6))

        await asyncio.gather(*(call() for _ in range(4)))
        await asyncio.sleep(5)
        await asyncio.gather(*(call() for _ in range(3)))
        return at

    assert run_virtually(main()) == [0.0, 0.1, 0.2, 0.3, 5.3, 5.4, 5.5]


@pytest.mark.parametrize(("rate", "at_once"), [(Rate(64, 1.0), 4), (Rate(2, 1.0), 1)])
def test_a_loop_that_stood_still_does_not_make_up_for_it_at_once(rate: Rate, at_once: int) -> None:
    async def main() -> int:
        pacer = Pacer(rate)
        gone: list[int] = []

        async def call(number: int) -> None:
            await pacer.take("one")
            gone.append(number)

        calls = [asyncio.ensure_future(call(number)) for number in range(500)]
        await asyncio.sleep(0)
        assert gone == [0]
        pacer._next_at -= 10  # as if ten seconds had passed unseen
        pacer._serve()
        await asyncio.sleep(0)
        for waiting in calls:
            waiting.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return len(gone) - 1

    assert run_virtually(main()) == at_once


def test_an_execution_with_many_calls_does_not_starve_one_with_few() -> None:
    async def main() -> list[str]:
        pacer = Pacer(Rate(1, 1.0))
        order: list[str] = []

        async def call(who: str) -> None:
            await pacer.take(who)
            order.append(who)

        await asyncio.gather(*(call("many") for _ in range(6)), call("few"), call("few"))
        return order

    assert run_virtually(main()) == ["many", "many", "few", "many", "few", "many", "many", "many"]


def test_who_gives_up_waiting_takes_nobodys_turn() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        pacer = Pacer(Rate(1, 1.0))
        await pacer.take("a")
        tasks = [loop.create_task(pacer.take(who)) for who in ("a", "b", "c")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [loop.time()]

    assert run_virtually(main()) == [2.0]


def test_only_so_many_hold_a_place_and_the_next_gets_it() -> None:
    async def main() -> tuple[int, int, list[str]]:
        places, most, order = Places(2), 0, list[str]()

        async def work(who: str) -> None:
            nonlocal most
            async with places.hold(who):
                most = max(most, places.used)
                order.append(who)
                await asyncio.sleep(1)

        await asyncio.gather(*(work(who) for who in "aaaabb"))
        return most, places.used, order

    assert run_virtually(main()) == (2, 0, ["a", "a", "a", "b", "a", "b"])


def test_a_place_handed_to_one_who_was_just_cancelled_is_passed_on() -> None:
    async def main() -> int:
        places = Places(1)
        begun = asyncio.Event()

        async def work(until: asyncio.Event) -> None:
            async with places.hold("x"):
                begun.set()
                await until.wait()

        done, second = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(work(done))
        await begun.wait()
        waiting = asyncio.create_task(work(second))
        await asyncio.sleep(0)
        done.set()
        await first  # the place is handed over in this very turn
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(1), places.hold("y"):
            return places.used

    assert run_virtually(main()) == 1


def test_turns_keep_to_a_number_and_to_a_rate_in_one_line() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        turns = Turns(2, Rate(10, 1.0))
        went: list[tuple[str, float]] = []

        async def call(who: str) -> None:
            await turns.take(who)
            went.append((who, round(loop.time(), 6)))
            await asyncio.sleep(0.35)
            turns.over()

        await asyncio.gather(*(call(who) for who in ("a", "a", "a", "a", "b")))
        assert turns.used == 0
        assert turns.is_at_rest()
        return went

    # Two at once, a tenth of a second apart; and when a place is free again, it is the other one's turn.
    assert run_virtually(main()) == [("a", 0.0), ("a", 0.1), ("b", 0.35), ("a", 0.45), ("a", 0.7)]


def test_a_turn_that_was_not_used_is_the_next_ones() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        turns = Turns(5, Rate(1, 10.0))
        assert turns.take_now()
        assert not turns.take_now()
        waiting = asyncio.ensure_future(turns.take("one"))
        await asyncio.sleep(1)
        turns.give_back()
        await waiting
        at = [loop.time()]
        left = turns.join("two")
        turns.leave("two", left)
        await turns.take("three")
        return [*at, loop.time()]

    first, second = run_virtually(main())
    assert (first, second) == (1.0, pytest.approx(10.5))  # half a second of the delay is made up for


def test_a_turn_ends_once() -> None:
    async def main() -> int:
        turns = Turns(1)
        assert turns.take_now()
        turn = Turn(turns)
        turn.end()
        turn.end()
        return turns.used

    assert run_virtually(main()) == 0
