"""Looking hosts up: names that nobody answers for hold up whoever asked for them, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.kit import until
from holdfast.core.errors import ResourceShort, Transient
from holdfast.tools.browser.proxy import BrowserProxy
from holdfast.tools.call import Call, running_call
from holdfast.tools.net import dns
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.net.dns import looked_up
from holdfast.tools.runtime.thread_pool import ThreadPool


class DeadNames:
    """A resolver that says nothing about names below `.dead`, and the rest as the system does."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = threading.Event()
        self._real = socket.getaddrinfo
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        if not host.endswith(".dead"):
            return self._real(host, *args, **options)
        self._loop.call_soon_threadsafe(self._count)
        self.over.wait(600)
        raise socket.gaierror(socket.EAI_NONAME, "nobody knows")

    def ask(self, execution: str, name: str) -> asyncio.Task[list[str]]:
        self._tasks.append(asyncio.create_task(looked_up_by(execution, f"{name}.dead", within_s=None)))
        return self._tasks[-1]

    async def wait_asked(self, times: int) -> None:
        async with asyncio.timeout(60):  # only whoever is held up takes that long
            while self.asked < times:
                self._more.clear()
                await self._more.wait()

    async def ask_and_give_up(self, execution: str, name: str) -> None:
        before = self.asked
        task = self.ask(execution, name)
        await self.wait_asked(before + 1)
        task.cancel()
        await asyncio.wait([task])

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.over.set()
        await until(lambda: not dns.lookups.busy)  # what they say at last is heard before the loop is closed
        await asyncio.sleep(0)

    def _count(self) -> None:
        self.asked += 1
        self._more.set()


async def looked_up_by(execution: str, host: str, within_s: float | None = 30) -> list[str]:
    running_call.set(Call(execution, "step", 1, "key", Path()))
    return await looked_up(host, 80, within_s)


@pytest.fixture
async def dead(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DeadNames]:
    names = DeadNames()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    await names.end()


async def answer_for_localhost(execution: str) -> list[str]:
    return await asyncio.create_task(looked_up_by(execution, "localhost"))


async def test_the_dead_names_of_many_executions_hold_up_no_other(dead: DeadNames) -> None:
    for number in range(100):
        dead.ask(f"execution {number}", f"host{number}")
    await dead.wait_asked(100)
    assert set(await answer_for_localhost("another")) <= {"127.0.0.1", "::1"}


async def test_an_execution_with_many_dead_names_holds_up_no_other(
    dead: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "lookups", ThreadPool(2, 1, 10))
    for number in range(10):
        dead.ask("greedy", f"host{number}")
    await dead.wait_asked(2)
    assert await answer_for_localhost("another")
    assert dead.asked == 2


async def test_a_name_that_was_given_up_gives_its_place_back(dead: DeadNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "lookups", ThreadPool(1, 0, 1, of_what="look-ups of hosts"))
    await dead.ask_and_give_up("execution", "one")
    assert await answer_for_localhost("execution")
    await dead.ask_and_give_up("execution", "two")
    with pytest.raises(ResourceShort, match=r"2 look-ups of hosts did not end when they were told to and still run"):
        await answer_for_localhost("execution")


async def test_a_call_that_is_cut_during_a_look_up_may_have_begun(
    dead: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been sent here by somebody who took its request: that its look-up never began proves nothing."""
    monkeypatch.setattr(dns, "lookups", ThreadPool(1, 0, 10))
    running, waiting = dead.ask("execution", "one"), dead.ask("execution", "two")
    await dead.wait_asked(1)
    for task in (waiting, running):
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as cut:
            await task
        assert cut.type is asyncio.CancelledError


async def test_waiting_for_a_look_up_stops_no_clock_of_the_call(
    dead: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "lookups", ThreadPool(1, 0, 10))
    dead.ask("execution", "one")
    await dead.wait_asked(1)
    call = Call("execution", "step", 1, "key", Path())
    running_call.set(call)
    with pytest.raises(Transient, match=r'the host "two.dead" could not be looked up within 0.01 s'):
        await looked_up("two.dead", 80, 0.01)
    assert call.waited_s(asyncio.get_running_loop().time()) == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "fe80::1%lo"])
async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    assert await looked_up(address, 80) == [address]


async def test_a_name_that_nobody_knows_is_told(dead: DeadNames) -> None:
    dead.over.set()
    with pytest.raises(Transient, match=r'the host "no.dead" is not known: nobody knows'):
        await dead.ask("execution", "no")


async def test_the_browser_looks_names_up_in_the_same_threads(dead: DeadNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "lookups", ThreadPool(1, 0, 0, of_what="look-ups of hosts"))
    await dead.ask_and_give_up("execution", "slow")
    proxy = BrowserProxy(Reach(()))
    reader, writer = await asyncio.open_connection("127.0.0.1", await proxy.start())
    writer.write(b"CONNECT other.dead:443 HTTP/1.1\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
    assert isinstance(proxy.trouble_with("https://other.dead/"), ResourceShort)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await proxy.close()
