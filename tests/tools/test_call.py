"""What a tool says reaches the engine on its loop, from coroutines and threads alike."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, UsageError
from holdfast.core.policy import NOTE_BYTES_MAX
from holdfast.tools.call import Call, current_call
from holdfast.tools.tool import tool


class Recorder:
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.threads: set[threading.Thread] = set()

    async def note(self, call: Call, data: bytes) -> None:
        self.heard.append(("note", call.path, data))
        self.threads.add(threading.current_thread())

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        self.heard.append(("say", content, role, streaming))
        self.threads.add(threading.current_thread())

    def progress(self, call: Call, percent: float, text: str) -> None:
        self.heard.append(("progress", percent, text))
        self.threads.add(threading.current_thread())

    def check_open(self, call: Call, what: str) -> None:
        self.threads.add(threading.current_thread())

    def hear(self, call: Call, stream: str, text: str) -> None:
        self.heard.append((stream, text))


def recorded() -> tuple[Call, Recorder]:
    host = Recorder()
    return Call("execution", "step", 2, "key", Path(), {"session": 1}, host), host


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_call_spends_adds_up(kind: str) -> None:
    def pay(call: Call) -> None:
        call.spend(usd=0.1)
        call.spend(0.2)
        call.spend(usd=0)

    async def pay_async(call: Call) -> None:
        pay(call)

    call, host = recorded()
    assert call.spent_micros is None
    await tool(pay if kind == "thread" else pay_async).invoke({"call": call}, call)
    assert call.spent_micros == 300_000
    assert host.threads == {threading.current_thread()}


@pytest.mark.parametrize(
    ("amount", "got"),
    [
        (-0.01, "the number -0.01"),
        (float("nan"), "the number nan"),
        (2_000_000, "the number 2000000"),
        (True, "true"),
        ("much", 'the string "much"'),
        (None, "null"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused(amount: Any, got: str) -> None:
    call, _ = recorded()
    expected = (
        f"step: spend: expected an amount in US dollars, 0 or more and at most 1,000,000, such as 0.50, got {got}"
    )
    with pytest.raises(InvalidCall, match=re.escape(expected)):
        call.spend(usd=amount)
    assert call.spent_micros is None


EXPECTED = [
    ("say", "hello", "tool", False),
    ("note", "step", b'{"session":2}'),
    ("progress", 50.0, "half"),
    ("progress", 100.0, ""),
]


async def test_an_async_tool_speaks_through_its_call() -> None:
    @tool
    async def speak(call: Call) -> Any:
        call.say("hello")
        await call.note({"session": 2})
        call.progress(50, "half")
        current_call().progress(150)
        return call.notes

    call, host = recorded()
    assert await speak.invoke({}, call) == {"session": 1}
    assert host.heard == EXPECTED


async def test_a_def_tool_speaks_on_the_engines_thread() -> None:
    @tool
    def speak(call: Call) -> Any:
        call.say("hello")
        call.note({"session": 2})
        call.progress(50, "half")
        current_call().progress(150)
        return call.notes

    call, host = recorded()
    assert await speak.invoke({}, call) == {"session": 1}
    assert host.heard == EXPECTED
    assert host.threads == {threading.current_thread()}


async def test_a_call_used_by_a_def_hook_still_works_in_a_coroutine() -> None:
    call, host = recorded()

    @tool(refresh=lambda call, arguments: call.say("from a thread"))
    async def speak(call: Call) -> None:
        call.say("from the loop")
        await call.note(1)

    await speak.run_refresh({}, call)
    await speak.invoke({}, call)
    assert [heard[1] for heard in host.heard] == ["from a thread", "from the loop", "step"]


async def test_a_note_beyond_the_limit_is_refused_and_not_kept() -> None:
    call, host = recorded()
    with pytest.raises(InvalidCall, match=r"a note has 16386 bytes, at most 16384 are kept; write the data to a file"):
        await call.note("x" * NOTE_BYTES_MAX)
    assert host.heard == []


async def test_without_an_engine_a_call_keeps_its_own_notes() -> None:
    call = Call("execution", "step", 1, "key", Path())
    call.say("nobody listens")
    call.progress(1)
    await call.note([1])
    assert call.notes == [1]
    assert repr(call) == "Call('step', attempt=1, execution='execution')"


def test_outside_a_tool_there_is_no_current_call() -> None:
    with pytest.raises(UsageError, match=r"current_call\(\) works only inside a tool that Holdfast is running"):
        current_call()
